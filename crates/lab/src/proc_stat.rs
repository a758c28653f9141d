//! Processes as /proc lists them and as their `stat` tells (proc_pid_stat(5)). Knows nothing of
//! whose they are.

use std::fs;

/// The ids of all processes there are.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The line of a process; none once it has gone.
pub(crate) fn of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// What follows the name, which stands in parentheses and may have anything in it.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest)
}

/// The state: `Z` and `X` are of processes that have ended.
pub(crate) fn state(stat: &str) -> Option<char> {
    after_name(stat)?.trim_start().chars().next()
}

/// Whether the process has ended, and is only an entry that nobody has asked about yet.
pub(crate) fn has_ended(stat: &str) -> bool {
    matches!(state(stat), Some('Z' | 'X'))
}

/// A field by its number in the manual, from 3 on.
pub(crate) fn field(stat: &str, number: usize) -> Option<u64> {
    after_name(stat)?.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// The process group.
pub(crate) fn group(stat: &str) -> Option<u64> {
    field(stat, 5)
}
