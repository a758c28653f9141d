//! Measurements. `bench serve` sets `weir serve` against other servers and against itself, one
//! server at a time on a core of its own; `bench load` does the same with `weir load` and other
//! generators of load, on the other core; `bench slots` is about one part by itself. What each run
//! gave is written to `results/`. The matrix runs the same way, and asks whether the replies are
//! right.

mod cases;
mod core_time;
mod idle;
mod load;
mod machine;
mod matrix;
mod order;
mod overflow;
mod page;
mod peers;
mod process;
mod programs;
mod record;
mod report;
mod serve;
mod slots;
mod stage;
mod stop;
mod window;
mod wrk;

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

/// The core every server is pinned to.
const SERVER_CORE: usize = 0;

/// The core the load generator, and this program while it measures, are pinned to.
const LOAD_CORE: usize = 1;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Compare `weir serve` with other servers, and with itself under other options
    Serve(ServeArgs),
    /// Compare `weir load` with other load generators, and see whether it keeps its word
    Load(LoadArgs),
    /// Compare ways to find a free slot: a tree of bitmaps, a scan, a list
    Slots(SlotsArgs),
}

#[derive(Args)]
struct Common {
    /// How often each contestant of a case is run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each run is measured, seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// The folder to write to [default: results/DATE-MACHINE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where the shuffling of the rounds starts from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    common: Common,
    /// The case to run; may be given more than once [default: all]
    #[arg(long, value_name = "WHAT", value_parser = PossibleValuesParser::new(cases::NAMES))]
    only: Vec<String>,
}

#[derive(Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    common: Common,
    /// How long each run of the cases lag and silent is, seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    long_seconds: u32,
    /// How often the cases lag, idle and silent are run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    long_rounds: u32,
    /// The cases to run, separated by commas [default: all]
    #[arg(long, value_name = "WHAT", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(load::NAMES))]
    only: Vec<String>,
    /// The executable to measure [default: a release build of this tree]
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct SlotsArgs {
    /// How often each is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// For how long each time
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
    /// The folder to write to [default: results/DATE-MACHINE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct MatrixArgs {
    /// The mechanism to run; may be given more than once [default: all]
    #[arg(long, value_name = "NAME")]
    mechanism: Vec<String>,
    /// The preset to run; may be given more than once [default: all]
    #[arg(long, value_name = "NAME")]
    preset: Vec<String>,
    /// How long each run of wrk takes, seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// The folder to write to [default: results/DATE-MACHINE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct OverflowArgs {
    /// How many requests are answered at least, by all cases with too short a queue together
    #[arg(long, default_value_t = 10_000_000)]
    requests: u64,
    /// How long wrk runs at a time, seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// The folder to write to [default: results/DATE-MACHINE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Lets queues of events overflow.
pub(crate) fn overflow(args: &OverflowArgs) -> Result<()> {
    overflow::run(args)
}

/// Serves a set of files with the mechanisms and presets that `args` asks for.
pub(crate) fn matrix(args: &MatrixArgs) -> Result<()> {
    matrix::run(args)
}

/// Runs the measurement that `bench` asks for.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Serve(args) => serve::run(args),
        Bench::Load(args) => load::run(args),
        Bench::Slots(args) => slots::run(args),
    }
}
