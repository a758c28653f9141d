//! Seconds of a driving thread that go to the collector and come back, emptied: each takes half a
//! mebibyte, which is made before the run and not anew every second.

use std::sync::mpsc::{Receiver, Sender, channel};

use crate::measure::Interval;

/// The seconds of a thread that have come back.
pub(super) struct SpareIntervals {
    returned: Receiver<Box<Interval>>,
    owner: Sender<Box<Interval>>,
}

impl SpareIntervals {
    /// Creates one spare second: the thread measures the next while the last is reported.
    pub(super) fn new() -> Self {
        let (owner, returned) = channel();
        // The receiver is here.
        let _ = owner.send(Box::default());
        Self { returned, owner }
    }

    /// Takes an empty second; makes one if the collector is late to return the last.
    pub(super) fn take(&self) -> Box<Interval> {
        self.returned.try_recv().unwrap_or_default()
    }

    /// Lends a second that has ended to the collector.
    pub(super) fn lend(&self, interval: Box<Interval>) -> LentInterval {
        LentInterval { interval, owner: self.owner.clone() }
    }
}

/// A second that has ended, lent to the collector.
pub(super) struct LentInterval {
    /// Its measurements.
    pub(super) interval: Box<Interval>,
    owner: Sender<Box<Interval>>,
}

impl LentInterval {
    /// Empties the second and gives it back to its thread.
    pub(super) fn give_back(mut self) {
        self.interval.clear();
        // A thread that has ended needs it no more.
        let _ = self.owner.send(self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_that_comes_back_is_the_next_and_empty() {
        let spares = SpareIntervals::new();
        let (mut first, second) = (spares.take(), spares.take());
        let at = std::ptr::from_ref(&*first);
        assert_ne!(at, std::ptr::from_ref(&*second), "the first has not come back");
        first.lag.record(7);
        spares.lend(first).give_back();
        let third = spares.take();
        assert_eq!(std::ptr::from_ref(&*third), at);
        assert_eq!((third.lag.count(), third.lag.max()), (0, 0));
    }

    #[test]
    fn a_second_may_outlive_its_thread() {
        let spares = SpareIntervals::new();
        let lent = spares.lend(spares.take());
        drop(spares);
        lent.give_back();
    }
}
