//! The clock of a run, the same for all its threads.

use std::time::Instant;

/// Nanoseconds since the run was set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    /// A clock that stands at 0.
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    /// The time.
    pub(super) fn now_ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}
