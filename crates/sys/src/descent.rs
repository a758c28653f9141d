//! Child processes of a server that has left its place to them: signals to them, their ends, and
//! the children that they leave behind.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper,
    wait, waitpid,
};

use crate::poll::{self, POLLIN, PollFd};
use crate::proc;

/// Field of proc_pid_stat(5) with the parent's process id.
const PARENT: usize = 4;

/// Field with the minor faults of children that were waited for.
const FAULTS_OF_ENDED: usize = 11;

/// Sends a signal to a process.
///
/// # Errors
/// ESRCH: there is no such process; EPERM: it is another's; EINVAL: there is no such signal.
pub fn signal(pid: u32, number: i32) -> io::Result<()> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let signal = Signal::from_named_raw(number).ok_or_else(invalid)?;
    Ok(kill_process(process(pid)?, signal)?)
}

/// Makes this process the parent of what its descendants leave behind
/// (PR_SET_CHILD_SUBREAPER).
///
/// # Errors
/// Those of prctl(2).
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A look for a child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// A child has ended, with the exit code that a shell would report.
    Ended(u8),
    /// There are children, all of which run.
    AllRun,
    /// There is no child.
    NoChild,
}

/// Releases a child that has ended (waitpid(2)), if there is one.
pub fn reap() -> Reaped {
    // In whatever process group they are.
    match wait(WaitOptions::NOHANG) {
        Ok(Some((_, status))) => {
            let killed = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(killed).unwrap_or_default();
            Reaped::Ended(u8::try_from(code).unwrap_or(u8::MAX))
        }
        Ok(None) => Reaped::AllRun,
        Err(_) => Reaped::NoChild,
    }
}

/// Returns whether a process is there, and has not ended: proc(5).
pub fn runs(pid: u32) -> bool {
    proc::of(pid).is_some_and(|stat| !proc::has_ended(&stat))
}

/// Returns the children of a process that have not ended, those that it has adopted among them:
/// proc(5).
pub fn children_of(parent: u32) -> Vec<u32> {
    let runs = |stat: &String| !proc::has_ended(stat);
    proc::processes()
        .filter(|&pid| proc::of(pid).filter(runs).is_some_and(is_child(parent)))
        .collect()
}

fn is_child(parent: u32) -> impl Fn(String) -> bool {
    move |stat| proc::field(&stat, PARENT) == Some(parent.into())
}

/// Releases the children that have ended but for those that somebody waits for: descendants that
/// this process has adopted ([`adopt_orphans`]).
pub fn reap_adopted(is_awaited: impl Fn(u32) -> bool) {
    let has_ended = |pid: &u32| {
        let stat = proc::of(*pid).filter(|stat| proc::has_ended(stat));
        stat.is_some_and(is_child(std::process::id()))
    };
    for pid in proc::processes().filter(|pid| !is_awaited(*pid)).filter(has_ended) {
        if let Ok(pid) = process(pid) {
            // Released by nobody else: it was not awaited.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Returns a number that grows when a process has waited for a child that has ended: the page
/// faults of such children, which each has (proc_pid_stat(5)).
pub fn faults_of_ended_children(parent: u32) -> Option<u64> {
    proc::field(&proc::of(parent)?, FAULTS_OF_ENDED)
}

/// Returns the descendants of a process.
pub fn descendants_of(ancestor: u32) -> Vec<u32> {
    let parent_of = |pid| proc::field(&proc::of(pid)?, PARENT);
    let parents: Vec<_> =
        proc::processes().filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|(_, its)| *its == u64::from(parent));
        found.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// Returns whether the first thread of a process blocks a signal: then it does not end by it.
pub fn blocks(pid: u32, number: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // Bit 0 is signal 1: proc_pid_status(5).
    number > 0 && mask.checked_shr(number.unsigned_abs() - 1).unwrap_or(0) & 1 == 1
}

/// Waits until a process has ended, but no longer than `wait`; returns whether it has.
///
/// # Errors
/// EMFILE, ENFILE: pidfd_open(2).
pub fn await_end(pid: u32, wait: Duration) -> io::Result<bool> {
    let fd = match pidfd_open(process(pid)?, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        fd => fd?,
    };
    let mut fds = [PollFd { fd: fd.as_raw_fd(), events: POLLIN, revents: 0 }];
    Ok(poll::poll(&mut fds, Some(wait))? > 0)
}

fn process(pid: u32) -> io::Result<Pid> {
    let pid = i32::try_from(pid).ok().filter(|&pid| pid > 0).and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_signalled_and_one_that_is_not_there_is_an_error() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(children_of(std::process::id()).contains(&child.id()));
        assert!(descendants_of(std::process::id()).contains(&child.id()));
        assert!(!blocks(child.id(), libc::SIGTERM) && !blocks(child.id(), 0));
        assert!(!await_end(child.id(), Duration::ZERO).unwrap());
        signal(child.id(), libc::SIGTERM).unwrap();
        assert!(await_end(child.id(), Duration::from_secs(60)).unwrap());
        let faults = || faults_of_ended_children(std::process::id()).unwrap();
        let before = faults();
        child.wait().unwrap();
        assert!(faults() > before);
        let error = signal(child.id(), libc::SIGTERM).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        assert!(await_end(child.id(), Duration::ZERO).unwrap());
        assert!(signal(0, libc::SIGTERM).is_err(), "a whole group is no process");
        let [awaited, other] = [(); 2].map(|()| Command::new("true").spawn().unwrap().id());
        for pid in [awaited, other] {
            await_end(pid, Duration::from_secs(60)).unwrap();
        }
        assert!(!children_of(std::process::id()).contains(&awaited));
        let is_there = |pid| proc::of(pid).is_some();
        // Other tests have children too, whom they wait for.
        reap_adopted(|pid| pid != other);
        assert!(is_there(awaited) && !is_there(other));
        waitpid(Some(process(awaited).unwrap()), WaitOptions::empty()).unwrap();
        assert!(signal(1, 0).is_err());
    }
}
