//! How much is asked for, and which share of it the gate keeps out. Knows what was accepted and
//! dropped; not how a gate is made.

/// The time over which older counts fade, nanoseconds.
const MEMORY_NS: f64 = 100_000_000.0;

/// The gate lets through this many times what is served: the accept queue must not run dry, and
/// refuses the rest.
const MARGIN_MIN: f64 = 1.25;

/// The most it ever lets through, in what is served.
const MARGIN_MAX: f64 = 8.0;

/// Below this many times what is served the gate stays open: the accept queue is enough.
const DEMAND_MIN: f64 = 1.5;

/// The largest share that is dropped: some must come through, or the end is never noticed.
const SHARE_MAX: f64 = 0.98;

/// A change of what is let through smaller than this, of itself, is not worth its system call.
const STEP: f64 = 0.1;

/// How much of a queue's distance from where it should be is made up for in the time it takes to
/// answer: more would swing.
const PULL: f64 = 0.25;

/// The same, of what is off for longer.
const BIAS_PULL: f64 = 0.02;

/// The most that estimates are believed to be off for longer.
const BIAS_MAX: f64 = 0.4;

/// Connection requests a second, those dropped included, and what follows for the gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    at_ns: u64,
    drops: Option<u32>,
    queue: u32,
    accepted: u64,
    per_ns: Option<f64>,
    margin: f64,
    bias: f64,
    share: f64,
}

impl Demand {
    pub(super) fn new(now_ns: u64, queue: u32) -> Self {
        let (per_ns, margin, bias, share) = (None, MARGIN_MIN, 0.0, 0.0);
        Self { at_ns: now_ns, drops: None, queue, accepted: 0, per_ns, margin, bias, share }
    }

    /// So many were accepted.
    pub(super) fn accepted(&mut self, more: u64) {
        self.accepted += more;
    }

    /// Closes a stretch: what was asked for in it is what was accepted, what was dropped, and what
    /// the queue grew by. The first only tells how many had been dropped before.
    pub(super) fn count(&mut self, now_ns: u64, drops: Option<u32>, queue: u32) {
        if self.drops.is_none() && drops.is_some() {
            *self = Self { at_ns: now_ns, drops, queue, accepted: 0, ..*self };
            return;
        }
        let spent = now_ns.saturating_sub(self.at_ns) as f64;
        if spent <= 0.0 {
            return;
        }
        let dropped = match (drops, self.drops) {
            (Some(now), Some(before)) => now.wrapping_sub(before),
            _ => 0,
        };
        let grown = i64::from(queue) - i64::from(self.queue);
        let asked = (self.accepted as i64 + i64::from(dropped) + grown).max(0) as f64;
        let seen = asked / spent;
        let weight = spent / (spent + MEMORY_NS);
        let mean = self.per_ns.unwrap_or(seen);
        let per_ns = Some(mean + weight * (seen - mean));
        let drops = drops.or(self.drops);
        *self = Self { at_ns: now_ns, drops, queue, accepted: 0, per_ns, ..*self };
    }

    /// What is asked for in the time in which one is served.
    pub(super) fn of_capacity(&self, interval_ns: f64) -> Option<f64> {
        self.per_ns.map(|per_ns| per_ns * interval_ns)
    }

    /// Which share is to be dropped while the accept queue refuses what is too much at once, as it
    /// does when callers are near: the queue is never to run dry.
    pub(super) fn share_near(&mut self, interval_ns: f64) -> f64 {
        self.margin = (self.margin * 0.98).max(MARGIN_MIN);
        self.set_share(interval_ns, DEMAND_MIN, self.margin)
    }

    /// Which share is to be dropped while callers are so far away that the queue answers late, and
    /// would let in who then finds it full: as much as keeps the queue in its middle. `off`: how
    /// far below it is, of itself.
    pub(super) fn share_far(&mut self, interval_ns: f64, off: f64) -> f64 {
        let off = off.clamp(-1.0, 1.0);
        self.bias = (self.bias + BIAS_PULL * off).clamp(-BIAS_MAX, BIAS_MAX);
        self.set_share(interval_ns, 0.0, 1.0 + PULL * off + self.bias)
    }

    fn set_share(&mut self, interval_ns: f64, demand_min: f64, wanted_of_capacity: f64) -> f64 {
        let demand = self.of_capacity(interval_ns).unwrap_or(0.0);
        let wanted = 1.0 - wanted_of_capacity / demand.max(f64::MIN_POSITIVE);
        let wanted = if demand < demand_min { 0.0 } else { wanted.clamp(0.0, SHARE_MAX) };
        let through = 1.0 - self.share;
        if (wanted - self.share).abs() >= STEP * through || wanted == 0.0 {
            self.share = wanted;
        }
        self.share
    }

    /// The queue ran dry: whatever is dropped now could be served. The next share is smaller.
    pub(super) fn ran_dry(&mut self) {
        if self.share > 0.0 {
            self.share = 0.0;
            self.margin = (self.margin * 1.5).min(MARGIN_MAX);
        }
    }

    /// The share in force.
    pub(super) fn share_now(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const INTERVAL_NS: f64 = 500_000.0;

    /// Ten stretches of 20 ms in which 40 are served and `dropped` are not.
    fn after(dropped: u32) -> Demand {
        let mut demand = Demand::new(0, 30);
        demand.count(0, Some(u32::MAX - 5), 30);
        for step in 1..=10 {
            demand.accepted(40);
            let drops = (u32::MAX - 5).wrapping_add(step * dropped);
            demand.count(u64::from(step) * 20 * MS, Some(drops), 30);
        }
        demand
    }

    #[test]
    fn what_was_dropped_was_asked_for() {
        let demand = after(160).of_capacity(INTERVAL_NS).unwrap();
        assert!((demand - 5.0).abs() < 1e-9, "{demand}");
    }

    #[test]
    fn the_gate_leaves_the_queue_a_little_more_than_is_served() {
        let mut demand = after(160);
        assert!((demand.share_near(INTERVAL_NS) - 0.75).abs() < 1e-9);
        assert!((after(760).share_near(INTERVAL_NS) - (1.0 - 1.25 / 20.0)).abs() < 1e-9);
    }

    #[test]
    fn a_little_too_much_is_left_to_the_queue() {
        assert_eq!(after(10).share_near(INTERVAL_NS), 0.0);
    }

    #[test]
    fn for_those_far_away_it_follows_the_queue() {
        let mut demand = after(160);
        assert!((demand.share_far(INTERVAL_NS, 0.0) - 0.8).abs() < 1e-9);
        assert!(demand.share_far(INTERVAL_NS, 1.0) < 0.76, "the queue is empty");
        assert!(demand.share_far(INTERVAL_NS, -1.0) > 0.84, "the queue is too long");
        for _ in 0..100 {
            demand.share_far(INTERVAL_NS, 0.5);
        }
        let share = demand.share_far(INTERVAL_NS, 0.0);
        assert!((share - (1.0 - 1.4 / 5.0)).abs() < 0.03, "what stays off is made up for: {share}");
    }

    #[test]
    fn a_queue_run_dry_opens_it_and_widens_it() {
        let mut demand = after(160);
        let before = demand.share_near(INTERVAL_NS);
        demand.ran_dry();
        assert_eq!(demand.share_now(), 0.0);
        assert!(demand.share_near(INTERVAL_NS) < before);
    }
}
