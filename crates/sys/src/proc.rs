//! Processes as listed in /proc, and the fields of their `stat`, `status` and `schedstat` files
//! (proc_pid_stat(5), proc_pid_status(5), Documentation/scheduler/sched-stats.rst).

use std::fs;
use std::os::unix::fs::FileExt;

/// Returns the ids of all processes.
pub fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Reads the `stat` line of a process; returns `None` once the process is gone.
pub fn of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// The memory of this process that is resident and of no file, which its threads may ask for
/// however they are confined (proc_pid_statm(5)).
#[derive(Debug)]
pub struct ResidentMemory(fs::File);

impl ResidentMemory {
    /// Opens what tells it.
    ///
    /// # Errors
    /// There is no /proc.
    pub fn open() -> std::io::Result<Self> {
        fs::File::open("/proc/self/statm").map(Self)
    }

    /// Returns it, bytes; `None` if the kernel does not tell.
    pub fn bytes(&self) -> Option<u64> {
        let mut line = [0; 128];
        let read = self.0.read_at(&mut line, 0).ok()?;
        anonymous_pages(std::str::from_utf8(line.get(..read)?).ok()?)?
            .checked_mul(rustix::param::page_size() as u64)
    }
}

/// Returns the resident pages of a `statm` line that are of no file.
fn anonymous_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_whitespace().skip(1).map_while(|field| field.parse().ok());
    let (resident, of_files): (u64, u64) = (fields.next()?, fields.next()?);
    Some(resident.saturating_sub(of_files))
}

/// Returns the part after the name, which is in parentheses and may contain any character.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest)
}

/// Returns the state of the process: `Z` and `X` mean that it has ended.
pub fn state(stat: &str) -> Option<char> {
    after_name(stat)?.trim_start().chars().next()
}

/// Returns whether the process has ended, even if it has not been reaped yet. A process whose first
/// thread alone has ended is in the same state: its other threads still hold its descriptors.
pub fn has_ended(stat: &str) -> bool {
    let has_threads = field(stat, 20).is_some_and(|threads| threads > 1);
    matches!(state(stat), Some('Z' | 'X')) && !has_threads
}

/// Returns a numeric field by its number in the manual page, from 3 on.
pub fn field(stat: &str, number: usize) -> Option<u64> {
    after_name(stat)?.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// Returns the length of a time in ticks, seconds.
pub fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// Returns the process group.
pub fn group(stat: &str) -> Option<u64> {
    field(stat, 5)
}

/// Returns utime and stime, ticks.
pub fn times(stat: &str) -> Option<(u64, u64)> {
    Some((field(stat, 14)?, field(stat, 15)?))
}

/// Returns a number of a `status` file by its name, which ends in a colon; `None` where a unit
/// follows it.
pub fn status_number(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// Returns the second number of a `schedstat` file: time spent waiting on a run queue, nanoseconds.
pub fn run_delay_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_no_file_is_what_grows_when_it_is_written_to() {
        assert_eq!(anonymous_pages("900 300 100 1 0 2 0\n"), Some(200));
        assert_eq!(anonymous_pages("900 x"), None);
        let memory = ResidentMemory::open().unwrap();
        let before = memory.bytes().unwrap();
        let block = vec![1_u8; 64 << 20];
        assert!(memory.bytes().unwrap() >= before + (block.len() as u64) / 2);
    }

    #[test]
    fn a_name_in_stat_may_contain_anything() {
        let line = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 31 42 0 0 20";
        assert_eq!((times(line), state(line), group(line)), (Some((31, 42)), Some('S'), Some(2)));
        assert_eq!((times(""), times("7 (a) S 1"), field(line, 2)), (None, None, None));
    }

    #[test]
    fn the_time_on_a_run_queue_is_the_second_of_three() {
        assert_eq!(run_delay_ns("2005128 41077 19\n"), Some(41_077));
        assert_eq!((run_delay_ns(""), run_delay_ns("1 x 2")), (None, None));
    }

    #[test]
    fn a_process_has_ended_with_its_last_thread() {
        let line = |state: char, threads: u32| {
            format!("7 (a) {state} 1 2 3 4 5 6 7 8 9 10 31 42 0 0 20 0 {threads} 0 9")
        };
        assert!(has_ended(&line('Z', 1)) && has_ended(&line('X', 0)));
        assert!(!has_ended(&line('Z', 2)) && !has_ended(&line('S', 1)) && !has_ended(""));
    }

    #[test]
    fn a_status_has_numbers_by_their_names() {
        let status = "Name:\tcat\nvoluntary_ctxt_switches:\t8\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(status_number(status, "voluntary_ctxt_switches:"), Some(8));
        assert_eq!(status_number(status, "nonvoluntary_ctxt_switches:"), Some(2));
        assert_eq!((status_number(status, "Name:"), status_number(status, "Pid:")), (None, None));
    }
}
