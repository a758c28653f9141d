//! `weir upgrade`: asks a running server to start the program that is installed now and to leave
//! its place to it, and says what came of it.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use weir_server::{ask_to_upgrade, children_of, faults_of_ended_children};

use crate::print::print_text;
use crate::stat::one_server;

/// Time within which a successor has to be seen: what a server gives it, and some more.
const WAIT_MAX: Duration = Duration::from_secs(35);

/// Time without a successor after one has ended: the next may have been asked for meanwhile.
const MISSING_MAX: Duration = Duration::from_millis(100);

/// Interval at which it is looked for.
const INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub(crate) struct UpgradeOptions {
    /// Process id of the server; may be left out if only one runs
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
}

/// Asks a server to leave its place to a new process, and waits until that serves.
///
/// # Errors
/// A sentence: there is no such server, or no other took its place.
pub(crate) fn upgrade(options: &UpgradeOptions) -> Result<ExitCode, String> {
    let page = one_server(options.pid)?;
    // The one named may be finishing what it has.
    let page = page.last_successor().unwrap_or(page);
    let pid = page.pid();
    let (before, faults) = (children_of(pid), faults_of_ended_children(pid));
    ask_to_upgrade(pid).map_err(|error| format!("process {pid}: {error}"))?;
    let until = Instant::now() + WAIT_MAX;
    let (mut has_started, mut missing_since) = (false, None);
    while Instant::now() < until {
        // The server that has ended left its place before.
        let has_ended = page.has_ended();
        if let Some(successor) = page.last_successor() {
            let serves = successor.pid();
            return print_text(&format!("weir: process {serves} serves in place of {pid}\n"));
        }
        if has_ended {
            return Err(format!("process {pid} has ended, and no other serves in its place"));
        }
        let is_there = children_of(pid).iter().any(|child| !before.contains(child));
        // One may have ended before it was seen.
        has_started |= is_there || faults_of_ended_children(pid) > faults;
        if is_there || !has_started {
            missing_since = None;
        } else if missing_since.get_or_insert_with(Instant::now).elapsed() > MISSING_MAX {
            break;
        }
        thread::sleep(INTERVAL);
    }
    Err(format!("process {pid} goes on: no other took its place, and its own messages say why"))
}
