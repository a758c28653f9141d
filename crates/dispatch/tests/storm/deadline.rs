//! Deadline of a storm, which turns a hang into a failure.

use std::time::{Duration, Instant};

/// Maximum duration of any wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum duration of a wait: the time left until the deadline.
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn new() -> Self {
        Self(Instant::now() + TIMEOUT)
    }

    /// Returns the time left.
    pub(crate) fn left(&self) -> Duration {
        let left = self.0.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "an event was lost: a wait lasted as long as there is patience");
        left
    }
}
