//! Processor time and context switches of threads, as /proc tells them to other processes
//! (proc_pid_stat(5), proc_pid_status(5)). Times are in steps of a tick, 10 ms.

use std::fs;
use std::path::Path;

use weir_stats::page::{Owner, Usage, thread_name};
use weir_sys::proc;

/// Length of a tick of /proc, nanoseconds: USER_HZ is 100 on every architecture but alpha and ia64.
const TICK_NS: u64 = 10_000_000;

/// Returns the usage of the thread that owns a slot, and of those that do its work with it; `None`
/// if /proc does not show the thread.
pub(crate) fn of(owner: &Owner) -> Option<Usage> {
    let tasks = format!("/proc/{}/task", owner.pid);
    let tasks = Path::new(&tasks);
    let own = of_task(&tasks.join(owner.tid.to_string()))?;
    if !owner.has_threads {
        return Some(own);
    }
    let name = usize::try_from(owner.worker).ok().map(thread_name)?;
    let entries = fs::read_dir(tasks).ok()?.flatten().map(|entry| entry.path());
    let is_ours = |task: &std::path::PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    Some(entries.filter(is_ours).filter_map(|task| of_task(&task)).fold(own, Usage::plus))
}

fn of_task(task: &Path) -> Option<Usage> {
    let (user, system) = proc::times(&fs::read_to_string(task.join("stat")).ok()?)?;
    let status = fs::read_to_string(task.join("status")).ok()?;
    Some(Usage {
        user_ns: user.saturating_mul(TICK_NS),
        system_ns: system.saturating_mul(TICK_NS),
        voluntary: proc::status_number(&status, "voluntary_ctxt_switches:")?,
        involuntary: proc::status_number(&status, "nonvoluntary_ctxt_switches:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_is_found_and_one_that_is_not_there_is_not() {
        let (pid, tid) = weir_sys::process::ids_in_proc();
        let owner = Owner { pid: pid.into(), tid: tid.into(), ..Owner::default() };
        assert!(of(&owner).is_some());
        assert_eq!(of(&Owner { tid: u64::MAX, ..owner }), None);
    }
}
