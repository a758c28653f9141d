//! Storms in the simulator by the hundred thousand: random sequences of loads against the overload
//! control, each known by its seed. The tests play a thousand; this looks for what they miss.
//!
//! Nothing here knows what a storm is or what harm is: that is the simulator's.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::tree;

/// Which storms.
#[derive(clap::Args)]
pub(crate) struct StormArgs {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds
    #[arg(long, default_value_t = 100_000)]
    count: u64,
}

/// Plays the storms; prints the seed of a harmful one, and fails.
pub(crate) fn run(args: &StormArgs) -> Result<()> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--release", "-p", "weir-sim", "--example", "storms", "--"])
        .args([format!("--from={}", args.from), format!("--count={}", args.count)])
        .current_dir(tree::root())
        .status()?;
    ensure!(status.success(), "storms harmed somebody, or were not played");
    Ok(())
}
