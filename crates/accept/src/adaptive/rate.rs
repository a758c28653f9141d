//! How fast connections are served while some wait: the server's capacity, as far as it can be seen
//! from outside the work. Knows nothing of queues or limits.

/// A stretch shorter than this tells too little, nanoseconds.
const STRETCH_MIN_NS: u64 = 10_000_000;

/// The time over which older stretches fade, nanoseconds.
const MEMORY_NS: f64 = 100_000_000.0;

/// The mean time between two connections served, over the stretches in which some waited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// When the present stretch began, and how many had been served by then.
    began: Option<(u64, u64)>,
    interval_ns: Option<f64>,
}

impl Rate {
    /// Some wait now, and have since the last call. `closed`: connections served so far.
    pub(super) fn busy(&mut self, now_ns: u64, closed: u64) {
        let Some((began_ns, before)) = self.began else {
            self.began = Some((now_ns, closed));
            return;
        };
        let (spent_ns, served) = (now_ns.saturating_sub(began_ns), closed.saturating_sub(before));
        if spent_ns < STRETCH_MIN_NS || served == 0 {
            return;
        }
        let spent = spent_ns as f64;
        let seen = spent / served as f64;
        let weight = spent / (spent + MEMORY_NS);
        let mean = self.interval_ns.unwrap_or(seen);
        self.interval_ns = Some(mean + weight * (seen - mean));
        self.began = Some((now_ns, closed));
    }

    /// Nobody waits: what follows is another stretch.
    pub(super) fn idle(&mut self) {
        self.began = None;
    }

    /// The mean time between two connections served, nanoseconds, once it is known.
    pub(super) fn interval_ns(&self) -> Option<f64> {
        self.interval_ns.filter(|interval| *interval > 0.0)
    }

    /// How many are served in a time.
    pub(super) fn served_in(&self, span_ns: u64) -> Option<f64> {
        self.interval_ns().map(|interval_ns| span_ns as f64 / interval_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn it_is_what_was_served_while_some_waited() {
        let mut rate = Rate::default();
        assert_eq!(rate.interval_ns(), None);
        (0..=100).for_each(|step| rate.busy(step * MS, step * 10));
        assert_eq!(rate.interval_ns(), Some(100_000.0));
        // A second without anybody is no slowness.
        rate.idle();
        (0..=20).for_each(|step| rate.busy(1_100 * MS + step * MS, 1_000 + step * 10));
        assert_eq!(rate.interval_ns(), Some(100_000.0));
        assert_eq!(rate.served_in(20 * MS), Some(200.0));
    }

    #[test]
    fn it_follows_a_change_within_some_hundred_milliseconds() {
        let mut rate = Rate::default();
        (0..=100).for_each(|step| rate.busy(step * MS, step * 10));
        (1..=400).for_each(|step| rate.busy((100 + step) * MS, 1_000 + step));
        let interval_ns = rate.interval_ns().unwrap();
        assert!((900_000.0..1_000_000.0).contains(&interval_ns), "{interval_ns}");
    }

    #[test]
    fn a_stretch_in_which_nobody_was_served_goes_on() {
        let mut rate = Rate::default();
        rate.busy(0, 0);
        rate.busy(50 * MS, 0);
        rate.busy(100 * MS, 1);
        assert_eq!(rate.interval_ns(), Some(100.0 * MS as f64));
    }
}
