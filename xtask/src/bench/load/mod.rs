//! `bench load`: the load generator itself is measured. Some cases set `weir load` against others
//! of its kind, and some ask whether it keeps what it promises. One client runs at a time, on the
//! load's core, and one server on the server's.

mod agree;
mod client;
mod compare;
mod generator;
mod held;
mod lag;
mod page;
mod quiet;
mod rate;
mod run;
mod search;
mod silent;
mod slow;
mod tools;

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use self::client::Ended;
use self::generator::{Generator, Job};
use self::run::{Entry, Measured, Notes, Run};
use self::tools::Tools;
use super::machine::{Plan, Setup};
use super::process::CommandLine;
use super::stage::{self, Stage};
use super::{LOAD_CORE, LoadArgs, idle, order};

/// The cases, in the order they are run.
pub(super) const NAMES: [&str; 6] = ["close", "keep", "lag", "httperf", "idle", "silent"];

const WARM_UP_SECONDS: u32 = 1;

/// Where the search for a free port starts.
const FIRST_PORT: u16 = 24_000;

/// The sizes of the files that are served, in bytes.
const FILE_SIZES: [u64; 2] = [1, 1024];

/// The file of one byte.
const ONE_BYTE: &str = "/1.bin";

/// Runs the cases that `args` asks for and writes their results.
pub(super) fn run(args: &LoadArgs) -> Result<()> {
    let tools = Tools::gather(args.weir.as_deref())?;
    let descriptors_max = idle::raise_descriptors()?;
    stage::stay_off_the_servers_core()?;
    let setup = Setup::read(Plan {
        versions: tools.versions.clone(),
        descriptors_max,
        rounds: args.common.rounds,
        seconds: args.common.seconds,
        warm_up_seconds: WARM_UP_SECONDS,
        seed: args.common.seed,
    })?;
    let out = args.common.out.clone().unwrap_or_else(|| setup.folder());
    fs::create_dir_all(&out)?;
    let bench = Bench {
        stage: Stage::new(&FILE_SIZES, FIRST_PORT)?,
        background_share: stage::background_share(LOAD_CORE)?,
        long: Long { rounds: args.long_rounds, seconds: args.long_seconds },
        tools,
        setup,
        out,
    };
    let wanted = |name: &&str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let (mut flagged, mut failed) = (0, Vec::new());
    for name in NAMES.into_iter().filter(wanted) {
        // A case that cannot be run is no reason not to run the next.
        match bench.case(name) {
            Ok(runs) => flagged += runs,
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
    }
    println!("results in {}", bench.out.display());
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    ensure!(flagged == 0, "{flagged} run(s) do not count; see the summaries");
    Ok(())
}

/// How the cases that are not about speed are run.
struct Long {
    rounds: u32,
    seconds: u32,
}

/// What every case needs.
struct Bench {
    stage: Stage,
    tools: Tools,
    setup: Setup,
    long: Long,
    /// The part of a second in which the client's core was busy although no client ran.
    background_share: f64,
    out: PathBuf,
}

impl Bench {
    /// Runs a case, writes its results and returns how many runs do not count.
    fn case(&self, name: &'static str) -> Result<usize> {
        match name {
            "close" => compare::close(self),
            "keep" => compare::keep(self),
            "lag" => lag::run(self),
            "httperf" => agree::run(self),
            "idle" => held::run(self),
            _ => silent::run(self),
        }
    }

    /// Runs every entry once a round, in an order shuffled anew, and writes each run down as soon
    /// as it is made.
    fn rounds<'a, T>(
        &'a self,
        case: &'a str,
        rounds: u32,
        entries: &'a [Entry<T>],
        measure: impl Fn(&T, &mut Notes) -> Result<Measured>,
    ) -> Result<Vec<Run<'a>>> {
        let mut lines = File::create(self.out.join(format!("load-{case}.jsonl")))?;
        let mut runs = Vec::new();
        for turn in order::rounds(self.setup.seed, rounds, entries) {
            let mut notes = Notes::default();
            let measured = match measure(&turn.item.of, &mut notes) {
                Ok(measured) => Some(measured),
                Err(error) => {
                    notes.flags.push(format!("{error:#}"));
                    None
                }
            };
            let run = Run {
                case,
                group: &turn.item.group,
                contestant: &turn.item.name,
                round: turn.round,
                place: turn.place,
                notes,
                measured,
                setup: &self.setup,
            };
            writeln!(lines, "{}", serde_json::to_string(&run)?)?;
            say(&run);
            runs.push(run);
        }
        Ok(runs)
    }

    /// Writes the summary of a case, and returns how many of its runs do not count.
    fn write(&self, case: &str, page: &str, runs: &[Run<'_>]) -> Result<usize> {
        fs::write(self.out.join(format!("load-{case}.md")), page)?;
        Ok(runs.iter().filter(|run| run.valid().is_none()).count())
    }
}

fn say(run: &Run<'_>) {
    let result = match run.valid() {
        Some(measured) => format!(
            "{:.0} replies/s, {:.2} core µs each, {} errors",
            measured.replies_per_s(),
            measured.core_us(),
            measured.tally.errors
        ),
        None => format!("DOES NOT COUNT: {}", run.notes.flags.join("; ")),
    };
    println!("round {} {} {}: {result}", run.round, run.case, run.full_name());
}

/// A load, and whom it is for.
struct Drive<'a> {
    generator: &'a Generator,
    job: &'a Job,
    to: SocketAddr,
    seconds: u32,
    /// The folder of the run.
    folder: &'a Path,
}

impl Drive<'_> {
    /// Runs the client to its end; what it was told is noted.
    fn run(&self, notes: &mut Notes) -> Result<Measured> {
        self.run_by(client::run, notes)
    }

    /// The same, with `run` to run it.
    fn run_by(
        &self,
        run: impl FnOnce(&CommandLine, &Path) -> Result<Ended>,
        notes: &mut Notes,
    ) -> Result<Measured> {
        let line = self.generator.command_line(self.job, self.to, self.seconds, self.folder)?;
        let folder = self.folder.to_string_lossy();
        let arguments = line.arguments.join(" ").replace(&*folder, "$RUN");
        let program = line.program.file_name().unwrap_or_default().to_string_lossy();
        notes.client = format!("{program} {arguments}");
        let ended = run(&line, self.folder)?;
        Ok(Measured::new(&ended, self.generator.tally(&ended, self.folder)?))
    }
}
