//! The project's own tasks, run as `cargo xtask NAME`: checks of the tree, generated tables, and
//! trials under load. One file or folder per task. Measurements are experiments of `weir lab`.
//!
//! Nothing here is part of the server, and nothing here links it: the binary is run as a process.

mod arrows;
mod dip;
mod dist;
mod docs;
mod link;
mod matrix;
mod overflow;
mod sanitize;
mod scan;
mod slots;
mod start;
mod storm;
mod succession;
mod tidy;
mod tree;
mod trial;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own tasks")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the style of every file of the tree
    Tidy,
    /// Check that each crate, and each module in it, depends only on what it may
    Arrows,
    /// Measure how goodput dips around reloads and upgrades in an overload
    Dip(dip::DipArgs),
    /// Write the generated tables of the documentation anew
    Docs {
        /// Write nothing; fail when a table is stale
        #[arg(long)]
        check: bool,
    },
    /// Make the packages of a release: a tarball, a Debian package, a list of what is linked in
    Dist(dist::DistArgs),
    /// Measure the paths of `weir load link` by fping and iperf3, against what was asked for
    Link(link::LinkArgs),
    /// Serve a set of files with every mechanism and preset under wrk and ab, checking each byte
    Matrix(matrix::MatrixArgs),
    /// Answer millions of requests while the queue of events overflows, and lose none
    Overflow(overflow::OverflowArgs),
    /// Compare ways to find a free slot: a tree of bitmaps, a scan, a list
    Slots(slots::SlotsArgs),
    /// Measure the time from the program's start to its first reply, with each architecture
    Start(start::StartArgs),
    /// Play random storms against the overload control in the simulator, looking for harm
    Storm(storm::StormArgs),
    /// Reload and upgrade a server again and again under load, and count the requests that fail
    Succession(succession::SuccessionArgs),
    /// Test sys and dispatch under the address sanitizer, Miri and valgrind where they are here
    Sanitize,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Tidy => tidy::run(),
        Task::Arrows => arrows::run(),
        Task::Dip(args) => dip::run(&args),
        Task::Docs { check } => docs::run(check),
        Task::Dist(args) => dist::run(&args),
        Task::Link(args) => link::run(&args),
        Task::Matrix(args) => matrix::run(&args),
        Task::Overflow(args) => overflow::run(&args),
        Task::Slots(args) => slots::run(&args),
        Task::Start(args) => start::run(&args),
        Task::Storm(args) => storm::run(&args),
        Task::Succession(args) => succession::run(&args),
        Task::Sanitize => sanitize::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
