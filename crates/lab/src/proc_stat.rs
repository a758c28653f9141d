//! Processes as listed in /proc, and the fields of their `stat` files (proc_pid_stat(5)). Knows
//! nothing of the lab's own processes.

use std::fs;

/// Returns the ids of all processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Reads the `stat` line of a process; returns `None` once the process is gone.
pub(crate) fn of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// Returns the part after the name, which is in parentheses and may contain any character.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest)
}

/// Returns the state of the process: `Z` and `X` mean that it has ended.
pub(crate) fn state(stat: &str) -> Option<char> {
    after_name(stat)?.trim_start().chars().next()
}

/// Returns whether the process has ended, even if it has not been reaped yet.
pub(crate) fn has_ended(stat: &str) -> bool {
    matches!(state(stat), Some('Z' | 'X'))
}

/// Returns a numeric field by its number in the manual page, from 3 on.
pub(crate) fn field(stat: &str, number: usize) -> Option<u64> {
    after_name(stat)?.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// Returns the length of a time in ticks, seconds.
pub(crate) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// Returns the process group.
pub(crate) fn group(stat: &str) -> Option<u64> {
    field(stat, 5)
}
