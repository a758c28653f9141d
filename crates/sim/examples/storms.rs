//! Runs storms by the thousand on every core, and prints the seeds of those that broke an
//! invariant, with what was broken. Fails if there was one.

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Parser;
use weir_sim::{run, storm};

#[derive(Parser)]
struct Options {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds
    #[arg(long, default_value_t = 100_000)]
    count: u64,
}

fn main() -> ExitCode {
    let Options { from, count } = Options::parse();
    let end = from.saturating_add(count);
    let (next, harmed) = (AtomicU64::new(from), AtomicU64::new(0));
    let play = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            break;
        }
        let scenario = storm::scenario(seed);
        let faults = storm::faults(&scenario, &run(&scenario, seed));
        if !faults.is_empty() {
            harmed.fetch_add(1, Ordering::Relaxed);
            println!("{seed}: {}", faults.join("; "));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(play);
        }
    });
    let harmed = harmed.into_inner();
    println!("{harmed} of the {count} storms from seed {from} harmed somebody");
    if harmed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
