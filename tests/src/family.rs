//! Processes and their children, as reported by `/proc`; signals to them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Returns the parent of a process that has not ended.
pub fn parent_of(pid: u32) -> Option<u32> {
    let (state, parent) = state_and_parent(pid)?;
    (state != "Z").then_some(parent)
}

/// Returns whether a process was stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state == "T")
}

/// Reads `/proc/PID/stat`, proc_pid_stat(5).
fn state_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Number of times that the threads of a process with a name have gone to sleep:
/// `/proc/PID/task/TID/status`, proc_pid_status(5).
pub fn sleeps_of(pid: u32, thread: &str) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let statuses = threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("status")).ok());
    let field = |status: &str, name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.trim().to_owned())
    };
    let sleeps = statuses.filter_map(|status| {
        let is_named = field(&status, "Name:")? == thread;
        field(&status, "voluntary_ctxt_switches:")?.parse::<u64>().ok().filter(|_| is_named)
    });
    sleeps.sum()
}

/// Sends a signal to a process.
///
/// # Panics
/// When there is no such process.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Returns the children of a process that have not ended: those of its threads, as listed in
/// `/proc/PID/task/TID/children`.
pub fn children_of(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    let lists = threads
        .into_iter()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let pids = lists.flat_map(|list| {
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    pids.filter(|&pid| parent_of(pid) == Some(parent)).collect()
}

/// Returns a process and all its descendants.
pub fn family_of(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&next) = family.get(at) {
        family.extend(children_of(next));
        at += 1;
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    #[test]
    fn a_child_is_in_the_family_until_it_ends() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(parent_of(child.id()), Some(id()));
        assert!(family_of(id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent_of(child.id()), None);
    }
}
