//! `weir upgrade`: asks a running server to start the program that is installed now and to leave
//! its place to it, and says what came of it.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use weir_observe::ServerPage;
use weir_server::{ask_to_upgrade, children_of, faults_of_ended_children};

use crate::print::print_text;
use crate::stat::one_server;

/// Time within which a successor has to be seen: what a server gives it, and some more.
const WAIT_MAX: Duration = Duration::from_secs(35);

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
    let page = ServerPage::last_successor(page.pid()).unwrap_or(page);
    let pid = page.pid();
    let (before, faults) = (children_of(pid), faults_of_ended_children(pid));
    ask_to_upgrade(pid).map_err(|error| format!("process {pid}: {error}"))?;
    let goes_on =
        || format!("process {pid} goes on: no other took its place, and its own messages say why");
    let until = Instant::now() + WAIT_MAX;
    let mut started = None;
    while Instant::now() < until {
        let new = children_of(pid).into_iter().find(|child| !before.contains(child));
        // One that had nothing to finish may have ended since, and its successor is no child of it.
        if let Some(serves) = new.or(started)
            && ServerPage::open(serves).is_ok()
        {
            return print_text(&format!("weir: process {serves} serves in place of {pid}\n"));
        }
        // One may have ended before it was seen.
        let has_failed = started.is_some() || faults_of_ended_children(pid) > faults;
        if has_failed && new.is_none() && !page.has_ended() {
            return Err(goes_on());
        }
        started = new;
        if page.has_ended() {
            return Err(format!("process {pid} has ended, and no other serves in its place"));
        }
        thread::sleep(INTERVAL);
    }
    Err(goes_on())
}
