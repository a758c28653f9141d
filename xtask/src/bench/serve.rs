//! Runs the cases: rounds of runs, one server at a time, each written down as soon as it is made.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::thread::CpuSet;

use super::cases::{self, Case, Contestant, Per};
use super::core_time::{CoreTicks, group_s, resident_bytes};
use super::idle::{self, Idle};
use super::machine::{Plan, Setup};
use super::order::Lcg;
use super::peers::Site;
use super::process::{Running, free_address};
use super::programs::Programs;
use super::record::{Measured, Run};
use super::report::{self, Notes};
use super::wrk::{self, Load};
use super::{LOAD_CORE, SERVER_CORE, ServeArgs};

const WARM_UP_SECONDS: u32 = 1;

/// Where the search for a free port starts; each run starts one further.
const FIRST_PORT: u16 = 22_000;

/// How long the core is watched with no server running.
const BACKGROUND_WINDOW: Duration = Duration::from_secs(1);

/// Runs the cases that `args` asks for and writes their results.
pub(super) fn run(args: &ServeArgs) -> Result<()> {
    let wanted = |name: &&str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let names: Vec<&str> = cases::NAMES.into_iter().filter(wanted).collect();
    let programs = Programs::gather(names.contains(&"counters"))?;
    let descriptors_max = idle::raise_descriptors()?;
    stay_off_the_servers_core()?;
    let setup = Setup::read(Plan {
        versions: programs.versions.clone(),
        descriptors_max,
        rounds: args.rounds,
        seconds: args.seconds,
        warm_up_seconds: WARM_UP_SECONDS,
        seed: args.seed,
    })?;
    let out = args.out.clone().unwrap_or_else(|| setup.folder());
    fs::create_dir_all(&out)?;
    let files = tempfile::Builder::new().prefix("weir-files-").tempdir()?;
    write_files(files.path())?;
    let bench = Bench { files: files.path(), setup: &setup, next_port: Cell::new(FIRST_PORT) };
    let mut flagged = 0;
    for name in names {
        let case = cases::case(name, &programs)?;
        flagged += bench.case(&case, &programs.skipped, &out).with_context(|| name.to_owned())?;
    }
    println!("results in {}", out.display());
    ensure!(flagged == 0, "{flagged} run(s) do not count; see the summaries");
    Ok(())
}

/// Pins this program to the core of the load.
pub(super) fn stay_off_the_servers_core() -> Result<()> {
    ensure!(thread::available_parallelism()?.get() > LOAD_CORE, "two cores are needed");
    let mut set = CpuSet::new();
    set.set(LOAD_CORE);
    rustix::thread::sched_setaffinity(None, &set).context("cannot stay on the load's core")
}

fn write_files(folder: &Path) -> Result<()> {
    for size in cases::FILE_SIZES {
        let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        fs::write(folder.join(format!("{size}.bin")), content)?;
    }
    Ok(())
}

struct Bench<'a> {
    files: &'a Path,
    setup: &'a Setup,
    next_port: Cell<u16>,
}

impl Bench<'_> {
    /// Runs a case, writes its results to `out` and returns how many runs do not count.
    fn case(&self, case: &Case, skipped: &[&'static str], out: &Path) -> Result<usize> {
        let background_share = background_share()?;
        let mut lines = File::create(out.join(format!("serve-{}.jsonl", case.name)))?;
        let mut order = Lcg::new(self.setup.seed);
        let mut runs = Vec::new();
        for round in 1..=self.setup.rounds {
            let mut contestants: Vec<&Contestant> = case.contestants.iter().collect();
            order.shuffle(&mut contestants);
            for (at, contestant) in contestants.into_iter().enumerate() {
                let run = self.run(case, contestant, round, at + 1);
                writeln!(lines, "{}", serde_json::to_string(&run)?)?;
                say(&run, case);
                runs.push(run);
            }
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
        let folder = tempfile::Builder::new().prefix("weir-run-").tempdir()?;
        let address = free_address(self.next_port.get())?;
        self.next_port.set(address.port() + 1);
        let site = Site { folder: folder.path(), files: self.files, address };
        let line = contestant.server.command_line(&site)?;
        run.arguments = line
            .arguments
            .join(" ")
            .replace(&*self.files.to_string_lossy(), "$FILES")
            .replace(&*folder.path().to_string_lossy(), "$RUN");
        let mut server = Running::start(&line, address, folder.path())?;
        wrk::run(&contestant.load, address, WARM_UP_SECONDS, folder.path())?;
        let before = resident_bytes(server.id())?;
        let idle = Idle::open(address, contestant.idle, cases::EMPTY_FILE)?;
        let after = resident_bytes(server.id())?;
        let mut measured = self.window(&server, &contestant.load, address, folder.path())?;
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
    fn window(
        &self,
        server: &Running,
        load: &Load,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Measured> {
        let used = group_s(server.id())?;
        let start = Instant::now();
        let ticks = CoreTicks::read(SERVER_CORE)?;
        let wrk = wrk::run(load, address, self.setup.seconds, folder)?;
        let core_ticks = CoreTicks::read(SERVER_CORE)?.since(ticks);
        Ok(Measured {
            window_s: start.elapsed().as_secs_f64(),
            core_ticks,
            core_busy_s: core_ticks.busy_s(),
            server_s: group_s(server.id())? - used,
            wrk,
            resident_bytes: None,
        })
    }
}

/// The part of the time in which the server's core is busy with other things than a server.
fn background_share() -> Result<f64> {
    let start = Instant::now();
    let ticks = CoreTicks::read(SERVER_CORE)?;
    thread::sleep(BACKGROUND_WINDOW);
    Ok(CoreTicks::read(SERVER_CORE)?.since(ticks).busy_s() / start.elapsed().as_secs_f64())
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
