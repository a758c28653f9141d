//! Processor time and context switches of threads, as /proc tells them to other processes
//! (proc_pid_stat(5), proc_pid_status(5)). Times are in steps of a tick, 10 ms.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use weir_stats::page::{Owner, Usage, thread_name};
use weir_sys::proc;

/// Length of a tick of /proc, nanoseconds: USER_HZ is 100 on every architecture but alpha and ia64.
const TICK_NS: u64 = 10_000_000;

/// Usage of the threads of a process, summed by their names.
type ByName = BTreeMap<String, Usage>;

/// Usages for one snapshot. The threads of a process are listed once, however many slots of the
/// snapshot are theirs.
#[derive(Debug, Default)]
pub(crate) struct Usages {
    /// Processes listed so far, by id; `None` for one that /proc does not show.
    listed: BTreeMap<u64, Option<ByName>>,
}

impl Usages {
    /// Returns the usage of the thread that owns a slot, and of those that do its work with it;
    /// `None` if /proc does not show the thread.
    pub(crate) fn of(&mut self, owner: &Owner) -> Option<Usage> {
        let own = of_task(Path::new(&format!("/proc/{}/task/{}", owner.pid, owner.tid)))?;
        if !owner.has_threads {
            return Some(own.usage);
        }
        let name = usize::try_from(owner.worker).ok().map(thread_name)?;
        let by_name = self.listed.entry(owner.pid).or_insert_with(|| by_name(owner.pid));
        let helpers = by_name.as_ref()?.get(&name).copied().unwrap_or_default();
        Some(own.usage.plus(helpers))
    }
}

/// A thread at one time.
struct Task {
    name: String,
    usage: Usage,
}

/// Reads all threads of a process. One that ends meanwhile is left out.
fn by_name(pid: u64) -> Option<ByName> {
    let mut by_name = ByName::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        if let Some(Task { name, usage }) = of_task(&entry.path()) {
            let sum = by_name.entry(name).or_default();
            *sum = sum.plus(usage);
        }
    }
    Some(by_name)
}

fn of_task(task: &Path) -> Option<Task> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    let (user, system) = proc::times(&stat)?;
    let status = fs::read_to_string(task.join("status")).ok()?;
    let usage = Usage {
        user_ns: user.saturating_mul(TICK_NS),
        system_ns: system.saturating_mul(TICK_NS),
        voluntary: proc::status_number(&status, "voluntary_ctxt_switches:")?,
        involuntary: proc::status_number(&status, "nonvoluntary_ctxt_switches:")?,
    };
    Some(Task { name: name(&stat)?.to_owned(), usage })
}

/// Returns the name in a `stat` line: between the first and the last parenthesis.
fn name(stat: &str) -> Option<&str> {
    Some(stat.split_once('(')?.1.rsplit_once(')')?.0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    fn this_thread() -> Owner {
        let (pid, tid) = weir_sys::process::ids_in_proc();
        Owner { pid: pid.into(), tid: tid.into(), ..Owner::default() }
    }

    #[test]
    fn the_calling_thread_is_found_and_one_that_is_not_there_is_not() {
        let mut usages = Usages::default();
        let owner = this_thread();
        assert!(usages.of(&owner).is_some());
        assert_eq!(usages.of(&Owner { tid: u64::MAX, ..owner }), None);
        assert!(usages.listed.is_empty(), "no slot has threads besides its owner");
    }

    #[test]
    fn the_threads_of_a_process_are_listed_once_for_all_its_slots() {
        let (waits, waiting) = channel();
        let helpers: Vec<_> = [0, 0, 7]
            .into_iter()
            .map(|worker| {
                let (end, ended) = channel::<()>();
                let waits = waits.clone();
                let helper = move || {
                    waits.send(()).unwrap();
                    ended.recv().unwrap_err();
                };
                let thread = thread::Builder::new().name(thread_name(worker)).spawn(helper);
                (thread.unwrap(), end)
            })
            .collect();
        helpers.iter().for_each(|_| waiting.recv().unwrap());
        let mut usages = Usages::default();
        let owner = Owner { has_threads: true, ..this_thread() };
        assert!(usages.of(&owner).is_some());
        let by_name = usages.listed[&owner.pid].clone().unwrap();
        assert!(by_name.contains_key(&thread_name(0)) && by_name.contains_key(&thread_name(7)));
        // Threads that end are not noticed by a second slot: the first listing is used.
        for (thread, end) in helpers {
            drop(end);
            thread.join().unwrap();
        }
        assert!(usages.of(&Owner { worker: 7, ..owner }).is_some());
        assert_eq!(usages.listed[&owner.pid], Some(by_name));
    }

    #[test]
    fn a_name_may_contain_anything() {
        assert_eq!(name("7 (a) b) S 1 2"), Some("a) b"));
        assert_eq!(name("7 S 1 2"), None);
    }
}
