//! The clock that a loop reads: the machine's, or a manual one, so that a test can choose any time
//! and repeat it in every run.

use std::cell::Cell;
use std::time::Instant;

use weir_sys::process::{self, thread_cpu_clock_ns};

/// A clock. Times are nanoseconds since the loop began, unless stated otherwise.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The machine's clock, counted from this moment.
    Machine(Instant),
    /// A manual clock, which stands still between two readings.
    Manual {
        /// Time at the next reading.
        now_ns: Cell<u64>,
        /// Advance at each reading.
        step_ns: u64,
        /// Start of the clock, nanoseconds since 1970.
        unix_ns: u64,
    },
}

impl Clock {
    /// Returns the time now.
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Self::Machine(start) => start.elapsed().as_nanos() as u64,
            Self::Manual { now_ns, step_ns, .. } => {
                now_ns.replace(now_ns.get().saturating_add(*step_ns))
            }
        }
    }

    /// Returns the CPU time that this thread has used, nanoseconds since an arbitrary start. A
    /// manual clock counts all its time as CPU time.
    pub(crate) fn cpu_ns(&self) -> u64 {
        match self {
            Self::Machine(_) => thread_cpu_clock_ns(),
            Self::Manual { .. } => self.now_ns(),
        }
    }

    /// Advances a manual clock; has no effect on the machine's.
    pub(crate) fn advance(&self, ns: u64) {
        if let Self::Manual { now_ns, .. } = self {
            now_ns.set(now_ns.get().saturating_add(ns));
        }
    }

    /// Returns the nanoseconds since 1970 at which this clock showed 0, as far as known at
    /// `now_ns`.
    pub(crate) fn unix_offset_ns(&self, now_ns: u64) -> u64 {
        match self {
            Self::Machine(_) => process::unix_ns().saturating_sub(now_ns),
            Self::Manual { unix_ns, .. } => *unix_ns,
        }
    }
}
