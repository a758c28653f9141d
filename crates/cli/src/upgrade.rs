//! `weir upgrade`: asks a running server to start the program that is installed now and to leave
//! its place to it, and says what came of it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use weir_observe::ServerPage;
use weir_server::{ask_to_upgrade, children_of, faults_of_ended_children, runs};

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
    let asked = page.pid();
    let (programs, faults) = (Programs::of(asked), faults_of_ended_children(asked));
    let mut watch = Watch::new(page, faults);
    ask_to_upgrade(asked).map_err(|error| format!("process {asked}: {error}"))?;
    let until = Instant::now() + WAIT_MAX;
    while Instant::now() < until {
        // The server that has ended left its place before.
        let has_ended = watch.page.has_ended();
        let next = watch.page.last_successor();
        let is_expected = watch.expects_successor();
        let pid = watch.page.pid();
        // A successor without statistics has no page, and serves once its predecessor has left.
        let unseen = watch.newcomer.filter(|&newcomer| has_ended && runs(newcomer));
        let successor = next.as_ref().map(ServerPage::pid).or(unseen);
        match (successor.filter(|&pid| programs.may_be_installed(pid)), next) {
            (Some(serves), _) => {
                let text = format!("weir: process {serves} serves in place of {asked}\n");
                return print_text(&text);
            }
            // A reload had begun: its successor is asked by the server in whose place it is, and it
            // has waited for no child before.
            (None, Some(reloaded)) => watch = Watch::new(reloaded, Some(0)),
            (None, None) if has_ended => {
                return Err(format!("process {pid} has ended, and no other serves in its place"));
            }
            (None, None) if !is_expected => break,
            (None, None) => {}
        }
        thread::sleep(INTERVAL);
    }
    let pid = watch.page.pid();
    Err(format!("process {pid} goes on: no other took its place, and its own messages say why"))
}

/// Watch over a server that is to start a successor.
struct Watch {
    page: ServerPage,
    /// Its children before it was asked, and the faults of those that had ended.
    before: Vec<u32>,
    faults: Option<u64>,
    /// The last new child that was seen.
    newcomer: Option<u32>,
    has_started: bool,
    missing_since: Option<Instant>,
}

impl Watch {
    fn new(page: ServerPage, faults: Option<u64>) -> Self {
        let before = children_of(page.pid());
        Self { page, before, faults, newcomer: None, has_started: false, missing_since: None }
    }

    /// Looks for a new child; returns false if there has been one, and is none any more.
    fn expects_successor(&mut self) -> bool {
        let pid = self.page.pid();
        let new = children_of(pid).into_iter().find(|child| !self.before.contains(child));
        self.newcomer = new.or(self.newcomer);
        // A child may have ended before it was seen.
        self.has_started |= new.is_some() || faults_of_ended_children(pid) > self.faults;
        if new.is_some() || !self.has_started {
            self.missing_since = None;
            return true;
        }
        self.missing_since.get_or_insert_with(Instant::now).elapsed() <= MISSING_MAX
    }
}

/// Device and inode of a file.
type FileId = (u64, u64);

/// The programs of a server: the one that it runs, and the one that is at its path now; `None` for
/// one that this user may not see.
struct Programs {
    running: Option<FileId>,
    installed: Option<FileId>,
}

impl Programs {
    fn of(pid: u32) -> Self {
        Self { running: program_of(pid), installed: installed_for(pid) }
    }

    /// Returns whether a successor may be the one that was asked for. One that a reload has started
    /// runs the program that ran before, whatever is installed.
    fn may_be_installed(&self, successor: u32) -> bool {
        let is_known = self.running.is_some() && self.installed.is_some();
        !is_known || self.running == self.installed || program_of(successor) != self.running
    }
}

/// Returns the program that a process runs, whether it has been removed or not: proc(5),
/// /proc/pid/exe.
fn program_of(pid: u32) -> Option<FileId> {
    id(Path::new(&format!("/proc/{pid}/exe")))
}

/// Returns the program that is now at the path of the one that a process runs, in its own mounts.
fn installed_for(pid: u32) -> Option<FileId> {
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let path = link.as_os_str().as_bytes();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let mut place = OsString::from(format!("/proc/{pid}/root"));
    place.push(OsStr::from_bytes(path));
    id(Path::new(&place))
}

fn id(path: &Path) -> Option<FileId> {
    path.metadata().ok().map(|about| (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_of_the_old_program_is_that_of_a_reload_if_another_is_installed() {
        let own = std::process::id();
        let (running, other) = (program_of(own), Some((0, 0)));
        assert!(running.is_some() && running == installed_for(own));
        let takes = |running, installed| Programs { running, installed }.may_be_installed(own);
        assert!(!takes(running, other), "it runs the old one");
        assert!(takes(other, running) && takes(running, running));
        assert!(takes(None, other) && takes(running, None), "nothing is known");
        assert!(runs(own) && !runs(u32::MAX));
    }
}
