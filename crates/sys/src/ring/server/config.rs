//! Parameters and counters of a server's ring.

use std::io;

/// Parameters of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingConfig {
    /// Maximum number of operations submitted by one call, and so the maximum length of a chain; 1
    /// to 32,768, rounded up to a power of two.
    pub entries: u32,
    /// Size of the completion queue, beyond which the kernel stores completions elsewhere, at a
    /// cost; at least `entries`, at most 65,536, rounded up to a power of two.
    pub completions: u32,
    /// Number of slots for sockets without descriptors; 0 for none. Bounded by RLIMIT_NOFILE.
    pub files: u32,
    /// Number of receive buffers, a power of two up to 32,768; 0 for none, and then nothing can be
    /// received.
    pub buffers: u16,
    /// Size of a receive buffer, bytes.
    pub buffer_bytes: u32,
    /// A kernel thread takes queued entries, instead of a call; `None` for ordinary submission.
    pub sqpoll: Option<SqPoll>,
}

/// Polling thread of the kernel that takes queued entries (IORING_SETUP_SQPOLL). It needs a
/// processor of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqPoll {
    /// Time that the thread polls for work before it sleeps, milliseconds; 0 for the kernel's
    /// default, a second.
    pub idle_ms: u32,
    /// Processor that the thread runs on; `None` for any.
    pub cpu: Option<u32>,
}

impl RingConfig {
    pub(super) fn check(&self) -> io::Result<()> {
        let has_buffers = self.buffers > 0;
        let wrong = if self.entries == 0 {
            "a ring has at least one entry"
        } else if self.completions < self.entries {
            "a ring has room for as many completions as it has entries"
        } else if has_buffers && (!self.buffers.is_power_of_two() || self.buffers > 1 << 15) {
            "the number of buffers is a power of two, at most 32768"
        } else if has_buffers && !(1..=1 << 30).contains(&self.buffer_bytes) {
            "a buffer has at least one byte, and at most 1 GiB"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
    }
}

/// Counters of a ring since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of io_uring_enter(2).
    pub enters: u64,
    /// Operations and cancel requests given to the kernel.
    pub submitted: u64,
    /// Completions of both, including unreported ones of cancel requests.
    pub completed: u64,
    /// Times that the completion queue was found overflowed.
    pub overflows: u64,
    /// Calls made because the kernel's thread slept.
    pub wakeups: u64,
    /// Zero-copy sends whose bytes the kernel copied anyway, as it does on loopback.
    pub copied: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_makes_no_ring_is_told_in_a_sentence() {
        let fine = RingConfig { entries: 8, completions: 8, ..RingConfig::default() };
        assert!(fine.check().is_ok());
        let wrong = [
            RingConfig { entries: 0, ..fine },
            RingConfig { completions: 7, ..fine },
            RingConfig { buffers: 3, buffer_bytes: 1, ..fine },
            RingConfig { buffers: 2, buffer_bytes: 0, ..fine },
        ];
        for config in wrong {
            assert_eq!(config.check().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
