//! The clock of a run, shared by all its threads.

use std::time::Instant;

/// A monotonic clock that counts nanoseconds since the run was set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    /// Starts a clock at 0.
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    /// Returns the current time, nanoseconds.
    pub(super) fn now_ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}
