//! State of an overload while it lasts: whether it is over, how much more than a target's work has
//! to be admitted so that the loop never runs dry, what the random filter drops, and whether the
//! SYNs are a flood from spoofed addresses.

use crate::Syns;

/// Calm ticks after which an overload is over: the loop slept and no connection was refused. A tick
/// without sleep that ends with no connection waiting is not counted; any other restarts the count.
const CALM_TICKS: u32 = 3;

/// Growth factor of the margin each time the loop ran dry while connections were refused.
const MARGIN_GROWTH: f64 = 1.25;

/// Maximum margin, in targets.
const MARGIN_MAX: f64 = 4.0;

/// Part of the margin's excess that remains after a tick.
const MARGIN_KEPT: f64 = 0.995;

/// Maximum share of SYNs dropped: some must pass, or the end of the overload is never noticed.
const DROPPED_MAX: f64 = 0.98;

/// Gains of the random filter's controller, for the deviation of the queue and for its change (the
/// two terms of PIE, RFC 8033 section 4.2).
const OFF_GAIN: f64 = 0.25;
const CHANGE_GAIN: f64 = 0.5;

/// Minimum relative change of the share let through that is worth its system call.
const PASSED_STEP: f64 = 0.1;

/// Share of SYNs dropped from which demand is far beyond capacity.
const EXCESS_DROPPED: f64 = 0.1;

/// Share of SYNs dropped from which a queue longer than keeps the loop busy is of no use. It is
/// small because a long queue causes refusals itself, by what it costs.
const SHORT_DROPPED: f64 = 0.02;

/// Weight of a tick in the smoothed share of SYNs dropped.
const EXCESS_PART: f64 = 0.05;

/// Share of handshakes completed below which SYNs are a flood from spoofed addresses, and above
/// which they no longer are.
const ENDED_MIN: f64 = 0.5;
const ENDED_MIN_AFTER: f64 = 0.75;

/// Round trip, in targets, above which clients are far away: what is decided about them shows too
/// late.
const FAR_TICKS: f64 = 0.25;

/// An overload.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overload {
    /// Time of the last tick, nanoseconds.
    pub(super) tick_ns: u64,
    calm_ticks: u32,
    /// Work to admit, as a multiple of a target's.
    pub(super) margin: f64,
    /// Share of SYNs to let through by chance, and the share in force.
    passed: f64,
    passed_now: f64,
    queue_before: u32,
    /// Counts of the SYN filter at the last tick, or when the overload began.
    before: Syns,
    /// Smoothed share of SYNs dropped.
    dropped: f64,
    /// Tokens left at the last look, and whether none were when the loop next slept.
    unused: u64,
    ran_out: bool,
    /// True if most SYNs come from spoofed addresses.
    pub(super) is_flooded: bool,
    /// Weight of the competing sources; 0 without counts.
    pub(super) weight: u32,
}

/// Observations over the last target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Last wake-up of the loop, nanoseconds.
    pub(super) woke_ns: u64,
    /// True if connections wait, or may.
    pub(super) waits: bool,
    /// Counts of the SYN filter.
    pub(super) syns: Option<Syns>,
    /// Length of the accept queue, and the length it should have.
    pub(super) queue: u32,
    pub(super) fit: u32,
    /// Mean round trip time, in ticks.
    pub(super) ticks_of_way: f64,
}

impl Overload {
    /// Creates an overload that begins now, with the counts of a SYN filter that is attached
    /// already: one that guards the queue, or has stayed since another overload.
    pub(super) fn new(now_ns: u64, syns: Option<Syns>) -> Self {
        Self {
            tick_ns: now_ns,
            margin: 1.0,
            passed: 1.0,
            passed_now: 1.0,
            before: syns.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Records the counts of the SYN filter; `slept`: the loop has slept since the last look.
    pub(super) fn look(&mut self, syns: Option<Syns>, slept: bool) {
        self.ran_out |= slept && self.unused == 0;
        self.unused = syns.map_or(0, |syns| syns.unused.unwrap_or(u64::MAX));
    }

    /// Evaluates the last target: when the loop last woke and whether connections wait, the SYN
    /// filter's counts, the accept queue, and the length it should have.
    pub(super) fn tick(&mut self, now_ns: u64, seen: &Seen) {
        let &Seen { woke_ns, waits, syns, queue, fit, ticks_of_way } = seen;
        let slept = woke_ns > self.tick_ns;
        let refused = syns.is_some_and(|syns| syns.dropped > self.before.dropped);
        let dropped = refused || syns.is_none();
        self.note_dropped(syns);
        self.tick_ns = now_ns;
        // A loop that ran dry while connections were refused admits too few, and is overloaded.
        // One expensive request may take many targets, with no connection behind it.
        self.calm_ticks = match (slept, waits) {
            (true, _) if !refused => self.calm_ticks + 1,
            (true, _) | (false, true) => 0,
            (false, false) => self.calm_ticks,
        };
        // With tokens left it was the clients that paused, and no longer queue outlasts that.
        // Nobody can tell near the capacity, nor of clients that are far away.
        let ran_out = std::mem::take(&mut self.ran_out);
        let admits_too_few = ran_out || self.excess() < 1.0 || ticks_of_way > FAR_TICKS;
        self.margin = if slept && dropped && admits_too_few {
            (self.margin * MARGIN_GROWTH).min(MARGIN_MAX)
        } else {
            1.0 + (self.margin - 1.0) * MARGIN_KEPT
        };
        self.control(queue, fit, slept, ticks_of_way);
        if let Some(syns) = syns {
            self.judge(syns, queue < fit.div_ceil(2));
        }
    }

    /// Updates the share of SYNs dropped; without counts it is taken to be large.
    fn note_dropped(&mut self, syns: Option<Syns>) {
        let now = syns.unwrap_or_default();
        let dropped = now.dropped.saturating_sub(self.before.dropped) as f64;
        let passed = now.passed.saturating_sub(self.before.passed) as f64;
        self.before = now;
        let share = match syns {
            None => 1.0,
            Some(_) if dropped + passed > 0.0 => dropped / (dropped + passed),
            Some(_) => return,
        };
        self.dropped += EXCESS_PART * (share - self.dropped);
    }

    /// Controls the share let through by chance, so that the accept queue stays at half its length.
    fn control(&mut self, queue: u32, fit: u32, slept: bool, ticks_of_way: f64) {
        let fit = f64::from(fit.max(1)) * self.margin;
        let off = f64::from(queue) / fit - 0.5;
        let change = (f64::from(queue) - f64::from(self.queue_before)) / fit;
        self.queue_before = queue;
        let gain = 1.0 / (1.0 + ticks_of_way);
        let factor = (1.0 - gain * (OFF_GAIN * off + CHANGE_GAIN * change)).clamp(0.5, 1.5);
        self.passed = (self.passed * factor).clamp(1.0 - DROPPED_MAX, 1.0);
        if slept {
            self.passed = (self.passed * (1.0 + 0.5 * gain)).min(1.0);
        }
        if (self.passed - self.passed_now).abs() >= PASSED_STEP * self.passed_now {
            self.passed_now = self.passed;
        }
    }

    /// Judges whether SYNs are a flood. Most SYNs of a flood come from spoofed addresses, and their
    /// handshakes never end, so few connections wait to be accepted. Where many wait, handshakes
    /// end in vain because too many arrive at once.
    fn judge(&mut self, syns: Syns, few_wait: bool) {
        self.weight = syns.weight;
        self.is_flooded = if self.is_flooded {
            syns.ended_part < ENDED_MIN_AFTER
        } else {
            syns.ended_part < ENDED_MIN && few_wait
        };
    }

    /// Returns whether the overload is over, for clients `ticks_of_way` ticks away.
    pub(super) fn is_over(&self, ticks_of_way: u32) -> bool {
        self.calm_ticks >= CALM_TICKS + ticks_of_way
    }

    /// Returns the degree to which demand exceeds capacity, from 0 to 1.
    pub(super) fn excess(&self) -> f64 {
        (self.dropped / EXCESS_DROPPED).min(1.0)
    }

    /// Returns the degree, from 0 to 1, to which a long queue is shortened.
    pub(super) fn shortening(&self) -> f64 {
        (self.dropped / SHORT_DROPPED).min(1.0)
    }

    /// Returns the share of SYNs to drop by chance.
    pub(super) fn dropped_share(&self) -> f64 {
        1.0 - self.passed_now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_overload_counts_no_syns_from_before_it_began() {
        let before = Syns { passed: 100, dropped: 900, ..Syns::default() };
        let now = Syns { passed: 200, ..before };
        let mut overload = Overload::new(500 * MS, Some(before));
        for at_ms in [520, 540, 560] {
            let (woke_ns, syns) = ((at_ms - 10) * MS, Some(now));
            let seen = Seen { woke_ns, waits: false, syns, queue: 9, fit: 9, ticks_of_way: 0.0 };
            overload.tick(at_ms * MS, &seen);
        }
        // All passed, and it is over three targets in which the loop slept and none was dropped.
        assert_eq!((overload.excess(), overload.margin), (0.0, 1.0));
        assert!(overload.is_over(0));
    }
}
