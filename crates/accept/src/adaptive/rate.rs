//! How fast connections are served: the server's capacity, as the time it is busy divided by those
//! it serves. Knows nothing of queues or limits.

/// A stretch is over when it has been busy so long, nanoseconds,
const STRETCH_NS: u64 = 10_000_000;

/// or when so many were served in it.
const STRETCH_SERVED: u64 = 32;

/// The busy time over which older stretches fade, nanoseconds.
const MEMORY_NS: f64 = 100_000_000.0;

/// The number served after which they have faded as much, if that is sooner.
const MEMORY_SERVED: f64 = 256.0;

/// The mean busy time of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    last: Option<Reading>,
    busy_ns: u64,
    served: u64,
    interval_ns: Option<f64>,
}

/// What the clocks and counters of the server say at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) now_ns: u64,
    /// Of it, spent waiting for events.
    pub(super) waited_ns: u64,
    /// Connections served so far.
    pub(super) closed: u64,
}

impl Rate {
    /// Looks again. `queued`: somebody waited all along, so that the loop cannot have slept, and
    /// what it took to ask for events was work. `spoilt`: it was busy with other things.
    pub(super) fn see(&mut self, now: Reading, queued: bool, spoilt: bool) {
        let Some(before) = self.last.replace(now) else { return };
        if spoilt {
            (self.busy_ns, self.served) = (0, 0);
            return;
        }
        let spent_ns = now.now_ns.saturating_sub(before.now_ns);
        let waited_ns = now.waited_ns.saturating_sub(before.waited_ns);
        self.busy_ns += if queued { spent_ns } else { spent_ns.saturating_sub(waited_ns) };
        self.served += now.closed.saturating_sub(before.closed);
        if self.served > 0 && (self.busy_ns >= STRETCH_NS || self.served >= STRETCH_SERVED) {
            self.learn();
        }
    }

    fn learn(&mut self) {
        let (busy, served) = (self.busy_ns as f64, self.served as f64);
        let seen = busy / served;
        let weight = (busy / (busy + MEMORY_NS)).max(served / (served + MEMORY_SERVED));
        let mean = self.interval_ns.unwrap_or(seen);
        self.interval_ns = Some(mean + weight * (seen - mean));
        (self.busy_ns, self.served) = (0, 0);
    }

    /// The mean busy time of a connection, nanoseconds, once it is known.
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

    /// Some milliseconds in each of which `closed` are served, in `busy_ns` altogether.
    fn run(rate: &mut Rate, from: Reading, steps: u64, closed: u64, busy_ns: u64) -> Reading {
        let mut now = from;
        for _ in 0..steps {
            now.now_ns += MS;
            now.waited_ns += MS - busy_ns;
            now.closed += closed;
            rate.see(now, false, false);
        }
        now
    }

    const START: Reading = Reading { now_ns: 0, waited_ns: 0, closed: 0 };

    #[test]
    fn it_is_the_busy_time_of_each_however_idle_the_server() {
        for (closed, busy_ns) in [(10, MS), (5, MS / 2), (1, MS / 10)] {
            let mut rate = Rate::default();
            assert_eq!(rate.interval_ns(), None);
            run(&mut rate, START, 200, closed, busy_ns);
            assert_eq!(rate.interval_ns(), Some(100_000.0));
            assert_eq!(rate.served_in(20 * MS), Some(200.0));
        }
    }

    #[test]
    fn with_a_queue_the_wait_is_work_too() {
        let mut rate = Rate::default();
        for step in 0..=50 {
            let waited_ns = step * MS / 2;
            rate.see(Reading { now_ns: step * MS, waited_ns, closed: step }, true, false);
        }
        assert_eq!(rate.interval_ns(), Some(MS as f64));
    }

    #[test]
    fn it_follows_a_change_within_some_hundred_milliseconds_or_connections() {
        let mut rate = Rate::default();
        let now = run(&mut rate, START, 100, 10, MS);
        let now = run(&mut rate, now, 400, 1, MS);
        let interval_ns = rate.interval_ns().unwrap();
        assert!((900_000.0..1_000_000.0).contains(&interval_ns), "{interval_ns}");
        run(&mut rate, now, 20, 100, MS);
        let interval_ns = rate.interval_ns().unwrap();
        assert!(interval_ns < 20_000.0, "{interval_ns}");
    }

    #[test]
    fn what_was_spent_on_refusing_does_not_count() {
        let mut rate = Rate::default();
        let now = run(&mut rate, START, 100, 10, MS);
        for step in 1..100 {
            let now_ns = now.now_ns + step * MS;
            rate.see(Reading { now_ns, ..now }, true, true);
        }
        assert_eq!(rate.interval_ns(), Some(100_000.0));
    }
}
