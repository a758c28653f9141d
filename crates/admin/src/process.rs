//! The process as its metrics tell it: `process_*`, which Prometheus's own clients have too.

use std::fs;

use weir_sys::proc;

/// Use of the machine by this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessUsage {
    /// User and system time, seconds.
    pub cpu_s: f64,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Size of the address space, bytes.
    pub virtual_bytes: u64,
    /// Number of open descriptors, and how many there may be.
    pub fds: u64,
    pub fds_max: Option<u64>,
}

impl ProcessUsage {
    /// Reads it from /proc (proc(5)); `None` if that is not there.
    pub(super) fn of_this_process() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let (user, system) = proc::times(&stat)?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        Some(Self {
            cpu_s: proc::seconds(user + system),
            resident_bytes: bytes(&status, "VmRSS:")?,
            virtual_bytes: bytes(&status, "VmSize:")?,
            // One is that of the listing itself.
            fds: fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64,
            fds_max: fs::read_to_string("/proc/self/limits").ok().and_then(|text| soft(&text)),
        })
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
    use super::*;

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let usage = ProcessUsage::of_this_process().unwrap();
        assert!(usage.resident_bytes > 1 << 20 && usage.virtual_bytes >= usage.resident_bytes);
        assert!(usage.fds >= 3 && usage.fds_max.is_some_and(|most| most > usage.fds), "{usage:?}");
    }

    #[test]
    fn a_limit_is_the_soft_one() {
        let text = "Limit   Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(soft(text), Some(1024));
        assert_eq!(soft("Max open files   unlimited   unlimited   files\n"), None);
    }
}
