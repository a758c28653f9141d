//! Schedule of sweeps, which check all selected descriptors as a safety net for unreported closes.

use std::time::{Duration, Instant};

/// Interval of sweeps, and count of their finds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    every: Option<Duration>,
    next: Option<Instant>,
    /// Number of descriptors found ready, or closed, without a hint.
    pub(super) found: u64,
}

impl Sweep {
    /// Creates a schedule with a sweep at each `every` from now on; none when it is `None`.
    pub(crate) fn new(every: Option<Duration>) -> Self {
        let mut sweep = Self { every, ..Self::default() };
        sweep.done();
        sweep
    }

    pub(super) fn set(&mut self, every: Option<Duration>) {
        self.every = every;
        self.done();
    }

    pub(super) fn done(&mut self) {
        self.next = self.every.and_then(|every| Instant::now().checked_add(every));
    }

    pub(super) fn is_on(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn is_due(&self, now: Option<Instant>) -> bool {
        self.next.zip(now).is_some_and(|(next, now)| next <= now)
    }

    /// Shortens a timeout to end when the next sweep is due.
    pub(super) fn cap(&self, timeout: Option<Duration>, now: Option<Instant>) -> Option<Duration> {
        let until = self.next.zip(now).map(|(next, now)| next.saturating_duration_since(now));
        timeout.into_iter().chain(until).min()
    }
}
