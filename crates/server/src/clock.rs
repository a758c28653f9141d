//! The clock that a loop reads: the machine's, or one that is set by hand, so that a check can have
//! any time at all and the same in every run. Knows nothing of what is timed.

use std::cell::Cell;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use weir_sys::process::thread_cpu_clock_ns;

/// A clock. Times are nanoseconds since the loop began, unless it says otherwise.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The machine's, from this moment on.
    Machine(Instant),
    /// One that stands still between two looks at it.
    Hand {
        /// What it shows next.
        now_ns: Cell<u64>,
        /// How far it goes on with each look.
        step_ns: u64,
        /// Its beginning, nanoseconds since 1970.
        unix_ns: u64,
    },
}

impl Clock {
    /// The time now.
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Self::Machine(start) => start.elapsed().as_nanos() as u64,
            Self::Hand { now_ns, step_ns, .. } => {
                now_ns.replace(now_ns.get().saturating_add(*step_ns))
            }
        }
    }

    /// Core time that this thread has used, nanoseconds since any time. Set by hand, time passes
    /// for nothing else.
    pub(crate) fn cpu_ns(&self) -> u64 {
        match self {
            Self::Machine(_) => thread_cpu_clock_ns(),
            Self::Hand { .. } => self.now_ns(),
        }
    }

    /// So much time passes, if it is set by hand.
    pub(crate) fn pass(&self, ns: u64) {
        if let Self::Hand { now_ns, .. } = self {
            now_ns.set(now_ns.get().saturating_add(ns));
        }
    }

    /// Nanoseconds since 1970 when this clock showed 0, as far as is known `now_ns` later.
    pub(crate) fn unix_offset_ns(&self, now_ns: u64) -> u64 {
        match self {
            Self::Machine(_) => {
                let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (unix.as_nanos() as u64).saturating_sub(now_ns)
            }
            Self::Hand { unix_ns, .. } => *unix_ns,
        }
    }
}
