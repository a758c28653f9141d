//! The sampling of the server: a reading of its page each second, kept as the history of the last
//! minutes.

use weir_stats::live::{History, Reading};
use weir_stats::page::Snapshot;

/// Time between two samples, nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;

/// The history of the server.
#[derive(Default)]
pub(crate) struct Sampler {
    pub(crate) history: History,
    /// Time of the next sample.
    due_ns: u64,
}

impl Sampler {
    /// Returns the time of the next sample, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Returns whether a sample is due, and sets the time of the next.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = self.due_ns <= now_ns;
        if is_due {
            // The first, and one after the machine was suspended, begin a rhythm of their own.
            let is_in_time = now_ns - self.due_ns < INTERVAL_NS / 2;
            self.due_ns = INTERVAL_NS + if is_in_time { self.due_ns } else { now_ns };
        }
        is_due
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, snapshot: &Snapshot) {
        self.history.add(Reading::of(snapshot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_due_each_second_and_none_is_made_up_for() {
        let mut sampler = Sampler::default();
        let mut is_due = |ms: u64| sampler.is_due(ms * 1_000_000);
        assert!(is_due(500) && !is_due(1499) && is_due(1510) && !is_due(2499) && is_due(2500));
        assert!(is_due(9000) && !is_due(9999) && is_due(10_000));
    }
}
