//! When everybody is asked, though nothing gave cause to: the net below a close that nobody told
//! of. Asks nobody itself.

use std::time::{Duration, Instant};

/// How often, and how often it was of use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    every: Option<Duration>,
    next: Option<Instant>,
    /// Those found ready, or closed, that no hint had come for.
    pub(super) found: u64,
}

impl Sweep {
    /// One each `every`, from now on; none at all when it is `None`.
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

    /// A timeout that ends when the next is due.
    pub(super) fn cap(&self, timeout: Option<Duration>, now: Option<Instant>) -> Option<Duration> {
        let until = self.next.zip(now).map(|(next, now)| next.saturating_duration_since(now));
        timeout.into_iter().chain(until).min()
    }
}
