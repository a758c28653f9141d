//! Runs the cases: rounds of runs, one server at a time, each written down as soon as it is made.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::cases::{self, Case, Contestant, Per};
use super::core_time::{group_s, resident_bytes};
use super::idle::{self, Idle};
use super::machine::{Plan, Setup};
use super::order;
use super::process::Running;
use super::programs::Programs;
use super::record::{Measured, Run};
use super::report::{self, Notes};
use super::stage::{self, Place, Stage};
use super::window::Window;
use super::wrk::{self, Load};
use super::{SERVER_CORE, ServeArgs};

const WARM_UP_SECONDS: u32 = 1;

/// Where the search for a free port starts; each run starts one further.
const FIRST_PORT: u16 = 22_000;

/// Runs the cases that `args` asks for and writes their results.
pub(super) fn run(args: &ServeArgs) -> Result<()> {
    let wanted = |name: &&str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let names: Vec<&str> = cases::NAMES.into_iter().filter(wanted).collect();
    let programs = Programs::gather(names.contains(&"counters"))?;
    let descriptors_max = idle::raise_descriptors()?;
    stage::stay_off_the_servers_core()?;
    let setup = Setup::read(Plan {
        versions: programs.versions.clone(),
        descriptors_max,
        rounds: args.common.rounds,
        seconds: args.common.seconds,
        warm_up_seconds: WARM_UP_SECONDS,
        seed: args.common.seed,
    })?;
    let out = args.common.out.clone().unwrap_or_else(|| setup.folder());
    fs::create_dir_all(&out)?;
    let stage = Stage::new(&cases::FILE_SIZES, FIRST_PORT)?;
    let bench = Bench { stage: &stage, setup: &setup };
    let mut flagged = 0;
    for name in names {
        let case = cases::case(name, &programs)?;
        flagged += bench.case(&case, &programs.skipped, &out).with_context(|| name.to_owned())?;
    }
    println!("results in {}", out.display());
    ensure!(flagged == 0, "{flagged} run(s) do not count; see the summaries");
    Ok(())
}

struct Bench<'a> {
    stage: &'a Stage,
    setup: &'a Setup,
}

impl Bench<'_> {
    /// Runs a case, writes its results to `out` and returns how many runs do not count.
    fn case(&self, case: &Case, skipped: &[&'static str], out: &Path) -> Result<usize> {
        let background_share = stage::background_share(SERVER_CORE)?;
        let mut lines = File::create(out.join(format!("serve-{}.jsonl", case.name)))?;
        let mut runs = Vec::new();
        for turn in order::rounds(self.setup.seed, self.setup.rounds, &case.contestants) {
            let run = self.run(case, turn.item, turn.round, turn.place);
            writeln!(lines, "{}", serde_json::to_string(&run)?)?;
            say(&run, case);
            runs.push(run);
        }
        let notes = Notes { skipped, background_share };
        let page = report::page(case, &runs, self.setup, &notes);
        fs::write(out.join(format!("serve-{}.md", case.name)), page)?;
        Ok(runs.iter().filter(|run| !run.flags.is_empty()).count())
    }

    fn run<'a>(
        &'a self,
        case: &'a Case,
        contestant: &'a Contestant,
        round: u32,
        place: usize,
    ) -> Run<'a> {
        let mut run = Run {
            case: case.name,
            group: &contestant.group,
            contestant: &contestant.name,
            round,
            place,
            arguments: String::new(),
            load: &contestant.load,
            idle_connections: contestant.idle,
            flags: Vec::new(),
            measured: None,
            setup: self.setup,
        };
        match self.measure(contestant, &mut run) {
            Ok(measured) => run.measured = Some(measured),
            Err(error) => run.flags.push(format!("{error:#}")),
        }
        run
    }

    fn measure(&self, contestant: &Contestant, run: &mut Run<'_>) -> Result<Measured> {
        let place = self.stage.place(&contestant.server)?;
        run.arguments.clone_from(&place.arguments);
        let mut server = place.start()?;
        let address = place.address;
        wrk::run(&contestant.load, address, WARM_UP_SECONDS, place.path())?;
        let before = resident_bytes(server.id())?;
        let idle = Idle::open(address, contestant.idle, cases::EMPTY_FILE)?;
        let after = resident_bytes(server.id())?;
        let mut measured = self.window(&server, &contestant.load, &place)?;
        measured.resident_bytes = (contestant.idle > 0).then_some([before, after]);
        run.flags.extend(measured.complaints());
        match idle.lost()? {
            0 => {}
            lost => run.flags.push(format!("{lost} idle connections were closed")),
        }
        if !server.is_alive() {
            run.flags.push(format!("the server ended: {}", server.last_words()));
        }
        Ok(measured)
    }

    /// The part of a run that counts.
    fn window(&self, server: &Running, load: &Load, place: &Place) -> Result<Measured> {
        let used = group_s(server.id())?;
        let open = Window::open(SERVER_CORE)?;
        let wrk = wrk::run(load, place.address, self.setup.seconds, place.path())?;
        let window = open.close()?;
        let server_s = group_s(server.id())? - used;
        Ok(Measured { window, server_s, wrk, resident_bytes: None })
    }
}

fn say(run: &Run<'_>, case: &Case) {
    let name = [case.name, run.group, run.contestant].join(" ");
    let result = match run.valid() {
        Some(measured) => format!(
            "{:.2} µs per request, {:.0} requests/s",
            measured.cost_s(Per::Request) * 1e6,
            measured.requests_per_s()
        ),
        None => format!("DOES NOT COUNT: {}", run.flags.join("; ")),
    };
    println!("round {} {name}: {result}", run.round);
}
