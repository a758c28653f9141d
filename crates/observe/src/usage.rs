//! Processor time and context switches of threads, as /proc tells them to other processes
//! (proc_pid_stat(5), proc_pid_status(5)). Times are in steps of a tick, 10 ms.

use std::fs;
use std::path::Path;

use weir_stats::page::{Owner, Usage, thread_name};

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
    let (user, system) = ticks(&fs::read_to_string(task.join("stat")).ok()?)?;
    let status = fs::read_to_string(task.join("status")).ok()?;
    Some(Usage {
        user_ns: user.saturating_mul(TICK_NS),
        system_ns: system.saturating_mul(TICK_NS),
        voluntary: field(&status, "voluntary_ctxt_switches:")?,
        involuntary: field(&status, "nonvoluntary_ctxt_switches:")?,
    })
}

/// Returns utime and stime. The name before them may contain anything, parentheses included.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_stat_may_contain_anything() {
        let line = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 31 42 0 0 20";
        assert_eq!(ticks(line), Some((31, 42)));
        assert_eq!((ticks(""), ticks("7 (a) S 1")), (None, None));
    }

    #[test]
    fn the_calling_thread_is_found_and_one_that_is_not_there_is_not() {
        let (pid, tid) = weir_sys::process::ids_in_proc();
        let owner = Owner { pid: pid.into(), tid: tid.into(), ..Owner::default() };
        assert!(of(&owner).is_some());
        assert_eq!(of(&Owner { tid: u64::MAX, ..owner }), None);
    }
}
