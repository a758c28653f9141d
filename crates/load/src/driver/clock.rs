//! The clock of a run, shared by all its threads.

use std::time::Instant;

use weir_sys::process::monotonic_ns;

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

    /// Returns the time of CLOCK_MONOTONIC at which this clock was 0, nanoseconds: one that goes on
    /// from run to run.
    pub(super) fn began_ns(self) -> u64 {
        monotonic_ns().saturating_sub(self.now_ns())
    }
}
