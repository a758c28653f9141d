//! The server's processes as its metrics tell them: `process_*`, which Prometheus's own clients
//! have too.
//!
//! A server is one process, or a main process and children that serve (`--arch processes`); then
//! each number is a sum. Processes between the two, which only start the children, are left out.

use std::collections::BTreeSet;
use std::fs;

use weir_stats::page::{Snapshot, State};
use weir_sys::proc;
use weir_sys::process::ids_in_proc;

/// Name of this process in /proc.
const OWN: &str = "self";

/// Nanoseconds of a second.
const NS: f64 = 1e9;

/// Use of the machine by a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ProcessUsage {
    /// User and system time, seconds, that of ended children included; `None` while a child has
    /// just ended and is not accounted for.
    pub(crate) cpu_s: Option<f64>,
    /// Resident memory, bytes.
    pub(crate) resident_bytes: u64,
    /// Size of the address space, bytes.
    pub(crate) virtual_bytes: u64,
    /// Number of open descriptors; `None` if the kernel shows it to nobody but root, as it does
    /// before Linux 6.2 for children that have become another user.
    pub(crate) fds: Option<u64>,
    /// Maximum number of open descriptors; `None` if there is none.
    pub(crate) fds_max: Option<u64>,
}

impl ProcessUsage {
    /// Reads it from /proc (proc(5)), for this process and the children that have a slot in its
    /// page; `None` if /proc is not there.
    pub(crate) fn of_server(snapshot: &Snapshot) -> Option<Self> {
        let own = Self::of_process(OWN)?;
        let (pid, _) = ids_in_proc();
        let children = live_pids(snapshot).into_iter().filter(|child| *child != u64::from(pid));
        // One that has ended meanwhile has nothing more.
        let usages = children.filter_map(|child| Self::of_process(&child.to_string()));
        let sum = usages.fold(own, Self::plus);
        if !forks(snapshot) {
            return Some(sum);
        }
        // The page knows the times of children that have ended too.
        let cpu_s = own.cpu_s.zip(cpu_of_loops_s(snapshot)).map(|(main, loops)| main + loops);
        Some(Self { cpu_s, ..sum })
    }

    /// Reads the files of a process, by its name in /proc.
    fn of_process(name: &str) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{name}/{file}")).ok();
        let usage = Self::of_texts(&read("stat")?, &read("status")?)?;
        let fds_max = read("limits").and_then(|text| soft(&text));
        Some(Self { fds: fds(name), fds_max, ..usage })
    }

    /// Returns what the files tell that are shown to everybody.
    fn of_texts(stat: &str, status: &str) -> Option<Self> {
        let (user, system) = proc::times(stat)?;
        Some(Self {
            cpu_s: Some(proc::seconds(user + system)),
            resident_bytes: bytes(status, "VmRSS:")?,
            virtual_bytes: bytes(status, "VmSize:")?,
            ..Self::default()
        })
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_s: self.cpu_s.zip(other.cpu_s).map(|(one, other)| one + other),
            resident_bytes: self.resident_bytes.saturating_add(other.resident_bytes),
            virtual_bytes: self.virtual_bytes.saturating_add(other.virtual_bytes),
            fds: self.fds.zip(other.fds).map(|(one, other)| one.saturating_add(other)),
            fds_max: self.fds_max.zip(other.fds_max).map(|(one, other)| one.saturating_add(other)),
        }
    }
}

/// Returns the processes that own slots: of each loop, or each child.
fn live_pids(snapshot: &Snapshot) -> BTreeSet<u64> {
    let live = snapshot.loops.iter().filter(|each| each.owner.state == State::Live);
    live.map(|each| each.owner.pid).filter(|pid| *pid != 0).collect()
}

/// Returns whether the loops are child processes: the sum of the ended ones has a slot that no
/// thread owns.
fn forks(snapshot: &Snapshot) -> bool {
    snapshot.loops.iter().any(|each| each.owner.state == State::Live && each.owner.pid == 0)
}

/// Returns the processor time of all loops, seconds.
fn cpu_of_loops_s(snapshot: &Snapshot) -> Option<f64> {
    let total = snapshot.total();
    let of = |name: &str| total.iter().find(|counter| counter.name == name)?.value;
    Some((of("cpu_user_ns")? as f64 + of("cpu_system_ns")? as f64) / NS)
}

/// Returns the number of open descriptors of a process; `None` if it is not shown.
fn fds(name: &str) -> Option<u64> {
    let path = format!("/proc/{name}/fd");
    // Since Linux 6.2 it is the size of the directory.
    match fs::metadata(&path).ok()?.len() {
        0 => {
            let listed = fs::read_dir(&path).ok()?.count();
            // One of its own is that of the listing itself.
            Some(listed.saturating_sub(usize::from(name == OWN)) as u64)
        }
        size => Some(size),
    }
}

/// Returns a size of a `status` file by its name, which ends in a colon.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the soft limit on open files; `None` if there is none.
fn soft(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use weir_stats::page::Owner;

    use super::*;
    use crate::fixtures::{Page, this_thread};

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let page = Page::new(1);
        page.publish(0, &this_thread(), &[("cpu_user_ns", 1 << 50)]);
        let usage = ProcessUsage::of_server(&page.observed().snapshot().unwrap()).unwrap();
        assert!(usage.resident_bytes > 1 << 20 && usage.virtual_bytes >= usage.resident_bytes);
        assert!(usage.fds >= Some(3) && usage.fds_max > usage.fds, "{usage:?}");
        assert!(usage.cpu_s.is_some_and(|seconds| seconds < 1e5), "its own, and no loop's");
    }

    #[test]
    fn children_are_added_up_and_so_is_the_time_of_those_that_have_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = u64::from(child.id());
        let page = Page::new(3);
        let sum = Owner { state: State::Live, ..Owner::default() };
        page.publish(0, &sum, &[("cpu_user_ns", 2_000_000_000_000), ("cpu_system_ns", 1)]);
        page.publish(1, &Owner { pid, tid: pid, ..sum }, &[]);
        let usage = |page: &Page| ProcessUsage::of_server(&page.observed().snapshot().unwrap());
        let both = usage(&page).unwrap();
        let alone = ProcessUsage::of_process(OWN).unwrap();
        let of_child = ProcessUsage::of_process(&pid.to_string()).unwrap();
        assert!(both.cpu_s >= alone.cpu_s.map(|seconds| seconds + 1999.0), "{both:?}");
        assert!(both.virtual_bytes > of_child.virtual_bytes && of_child.fds > Some(0));
        assert!(both.fds_max > alone.fds_max);
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = usage(&page).unwrap();
        assert_eq!(ended.cpu_s, None, "its master has not added it to the sum");
        assert!(ended.fds_max < both.fds_max);
    }

    #[test]
    fn a_child_whose_descriptors_are_not_shown_has_memory_and_time_all_the_same() {
        let read = |file: &str| fs::read_to_string(format!("/proc/{OWN}/{file}")).unwrap();
        let child = ProcessUsage::of_texts(&read("stat"), &read("status")).unwrap();
        assert_eq!((child.fds, child.fds_max), (None, None));
        let own = ProcessUsage { fds: Some(7), fds_max: Some(9), ..child };
        let both = own.plus(ProcessUsage { fds_max: Some(9), ..child });
        assert_eq!((both.fds, both.fds_max), (None, Some(18)));
        assert_eq!(both.resident_bytes, 2 * child.resident_bytes);
        assert!(both.resident_bytes > 1 << 20 && both.cpu_s.is_some(), "{both:?}");
        assert_eq!(fds("0"), None, "there is no such process");
    }

    #[test]
    fn a_limit_is_the_soft_one() {
        let text = "Limit   Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(soft(text), Some(1024));
        assert_eq!(soft("Max open files   unlimited   unlimited   files\n"), None);
    }
}
