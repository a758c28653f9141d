//! Knowledge gained while an overload lasts: whether it is over, how much more than a target's work
//! has to be let in so that the loop never runs dry, what the random filter drops, and whether the
//! SYNs that come are a flood that nobody stands behind.

use crate::Syns;

/// Ticks in which the loop slept and nobody was refused, after which an overload is over. One in
/// which it did not sleep and at whose end nobody waits is not counted, any other starts the count
/// again.
const CALM_TICKS: u32 = 3;

/// Growth of the margin each time the loop ran dry while somebody was refused.
const MARGIN_GROWTH: f64 = 1.25;

/// The largest margin, in targets.
const MARGIN_MAX: f64 = 4.0;

/// Part of the margin's excess that is left after a tick.
const MARGIN_KEPT: f64 = 0.995;

/// The largest share that is dropped: some must come through, or the end is never noticed.
const DROPPED_MAX: f64 = 0.98;

/// The gains of the random filter's control, for what the queue is off and for how it changes (the
/// two terms of PIE, RFC 8033 section 4.2).
const OFF_GAIN: f64 = 0.25;
const CHANGE_GAIN: f64 = 0.5;

/// A change of what is let through smaller than this, of itself, is not worth its system call.
const PASSED_STEP: f64 = 0.1;

/// The share of SYNs dropped from which on far more is asked for than can be served.
const EXCESS_DROPPED: f64 = 0.1;

/// The part of what is known of that share that a tick has.
const EXCESS_PART: f64 = 0.05;

/// The part of the handshakes that end, below which SYNs are a flood that nobody stands behind; and
/// above which they are none any more.
const ENDED_MIN: f64 = 0.5;
const ENDED_MIN_AFTER: f64 = 0.75;

/// An overload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overload {
    tick_ns: u64,
    calm_ticks: u32,
    margin: f64,
    /// The share of SYNs to be let through by chance, and that in force.
    passed: f64,
    passed_now: f64,
    queue_before: u32,
    before: Syns,
    /// The share of SYNs that was dropped lately.
    dropped: f64,
    flooded: bool,
    weight: u32,
}

/// Facts of the last target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// When the loop last woke, nanoseconds.
    pub(super) woke_ns: u64,
    /// Somebody waits, or may.
    pub(super) waits: bool,
    /// What the SYN filter counted.
    pub(super) syns: Option<Syns>,
    /// The accept queue, and how long it should be.
    pub(super) queue: u32,
    pub(super) fit: u32,
    /// The mean round trip, in ticks.
    pub(super) ticks_of_way: f64,
}

impl Overload {
    /// Makes one that begins.
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            tick_ns: now_ns,
            calm_ticks: 0,
            margin: 1.0,
            passed: 1.0,
            passed_now: 1.0,
            queue_before: 0,
            before: Syns::default(),
            dropped: 0.0,
            flooded: false,
            weight: 0,
        }
    }

    /// When it was last looked at, nanoseconds.
    pub(super) fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// Looks at the last target: when the loop last woke and whether somebody waits, what the SYN
    /// filter counted, the accept queue, and how long that should be.
    pub(super) fn tick(&mut self, now_ns: u64, seen: &Seen) {
        let &Seen { woke_ns, waits, syns, queue, fit, ticks_of_way } = seen;
        let slept = woke_ns > self.tick_ns;
        let dropped = syns.is_none_or(|syns| syns.dropped > self.before.dropped);
        self.note_dropped(syns);
        self.tick_ns = now_ns;
        // A loop that ran dry while somebody was refused lets in too little, and is overloaded.
        let refused = dropped && syns.is_some();
        // One expensive request may take many targets, with nobody behind it.
        self.calm_ticks = match (slept, waits) {
            (true, _) if !refused => self.calm_ticks + 1,
            (true, _) | (false, true) => 0,
            (false, false) => self.calm_ticks,
        };
        self.margin = if slept && dropped {
            (self.margin * MARGIN_GROWTH).min(MARGIN_MAX)
        } else {
            1.0 + (self.margin - 1.0) * MARGIN_KEPT
        };
        self.control(queue, fit, slept, ticks_of_way);
        if let Some(syns) = syns {
            self.judge(syns, queue < fit.div_ceil(2));
        }
    }

    /// Learns which share of SYNs is dropped; where nobody counts them it is a large one.
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

    /// Steers what is let through by chance, so that the accept queue stays at half its length.
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

    /// Most SYNs of a flood are from nowhere, and their handshakes never end: few wait to be
    /// accepted. Where many do, handshakes end in vain because too much comes at once.
    fn judge(&mut self, syns: Syns, few_wait: bool) {
        self.weight = syns.weight;
        self.flooded = if self.flooded {
            syns.ended_part < ENDED_MIN_AFTER
        } else {
            syns.ended_part < ENDED_MIN && few_wait
        };
    }

    /// Tells whether it is over, for callers as far away as so many ticks.
    pub(super) fn is_over(&self, ticks_of_way: u32) -> bool {
        self.calm_ticks >= CALM_TICKS + ticks_of_way
    }

    /// Work let in, as a multiple of a target's.
    pub(super) fn margin(&self) -> f64 {
        self.margin
    }

    /// Degree to which more is asked for than can be served, from 0 to 1.
    pub(super) fn excess(&self) -> f64 {
        (self.dropped / EXCESS_DROPPED).min(1.0)
    }

    /// The share of SYNs to be dropped by chance.
    pub(super) fn dropped_share(&self) -> f64 {
        1.0 - self.passed_now
    }

    /// Tells whether what comes is mostly SYNs that nobody stands behind.
    pub(super) fn is_flooded(&self) -> bool {
        self.flooded
    }

    /// The weight of the sources that ask to be let in; 0 where nobody counts them.
    pub(super) fn weight(&self) -> u32 {
        self.weight
    }
}
