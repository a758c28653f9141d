//! The smallest limit at which one more request in flight completes no more of them.
//!
//! What is maximised is the number of requests answered per second. A server with `k` workers
//! answers more of them the more are in flight, up to `k`; beyond that they only wait there instead
//! of here, where the newest could go first and a client that has gone could be taken out. A long
//! response time alone changes nothing: it may be what a request costs.
//!
//! * **Search.** The limit is doubled until the rate hardly rises. The knee is where the rate then
//!   reached meets the line of the first levels, on which each request in flight adds the same.
//! * **Compare.** The limit and a neighbour, an eighth lower or higher, take turns. The lower one
//!   wins if it answers as many, the higher one if it answers more, once the difference is as
//!   certain as it needs to be. If neither wins, the limit is held for a while.
//!
//! Nothing is learnt while no request waits: the number in flight is then the clients' choice.
//! Rates are those of Little's law, requests in flight by the time each takes, which a server whose
//! workers all end at the same moment does not upset as a count per time does.

use super::policy::{Completion, InFlightPolicy, Outcome};

/// Limit at the start.
const INITIAL: usize = 8;

/// Maximum limit.
const MAX: usize = 1 << 16;

/// Minimum number of requests by which a level is measured, and how many per request in flight.
const SAMPLES_MIN: u64 = 32;
const SAMPLES_EACH: u64 = 3;

/// Rise of the rate at a doubling below which the search ends; 2 is that of a server with time.
const RISE_MIN: f64 = 1.4;

/// Share of the first levels' rate per request in flight above which a level is on their line.
const ON_THE_LINE: f64 = 0.85;

/// Limit beyond the knee that the search leaves: too few cost answers, too many only a wait.
const MARGIN: f64 = 1.1;

/// Distance of a neighbour: this part of the limit, at least 1.
const STEP_PART: usize = 8;

/// Loss by which a lower limit still counts as good, and gain by which a higher one counts as
/// better.
const LOSS_MAX: f64 = 0.015;
const GAIN_MIN: f64 = 0.02;

/// Number of turns of each limit before a comparison is decided, and after which it ends undecided.
const TURNS_MIN: f64 = 5.0;
const TURNS_MAX: f64 = 200.0;

/// Standard errors by which a higher limit must be better: it is looked at after every turn, and
/// one look of many may deceive.
const CERTAIN: f64 = 4.0;

/// Time for which a limit is held that won against both neighbours, nanoseconds: at first, and when
/// it has done so again and again.
const HOLD_NS_MIN: u64 = 10_000_000_000;
const HOLD_NS_MAX: u64 = 60_000_000_000;

/// Requests measured at one limit in one go.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    answered: u64,
    ended: u64,
    took_ns: f64,
    in_flight: f64,
}

impl Sample {
    fn add(&mut self, completion: &Completion) {
        self.answered += u64::from(completion.outcome == Outcome::Answered);
        self.ended += 1;
        self.took_ns += completion.took_ns.max(1) as f64;
        self.in_flight += completion.in_flight as f64;
    }

    fn merge(&mut self, other: &Self) {
        self.answered += other.answered;
        self.ended += other.ended;
        self.took_ns += other.took_ns;
        self.in_flight += other.in_flight;
    }

    /// Answers per nanosecond and request in flight.
    fn rate_each(&self) -> f64 {
        if self.ended == 0 { 0.0 } else { self.answered as f64 / self.took_ns }
    }

    /// Answers per nanosecond.
    fn rate(&self) -> f64 {
        self.rate_each() * self.in_flight / (self.ended as f64).max(1.0)
    }
}

/// Rates of one limit over several turns. Response times that follow each other are alike, and only
/// turns show how much the rate really varies.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Turns {
    fn add(&mut self, rate: f64) {
        self.count += 1.0;
        self.sum += rate;
        self.squares += rate * rate;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// Relative standard error of the mean.
    fn error(&self) -> f64 {
        let mean = self.mean();
        let variance = (self.squares / self.count - mean * mean).max(0.0);
        (variance / (self.count - 1.0)).sqrt() / mean.max(f64::MIN_POSITIVE)
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// `line`: the first levels; `best`: the highest rate so far.
    Search { line: Sample, best: f64, last: f64 },
    /// The limit `base` and the neighbour `other` take turns.
    Compare { base: usize, other: usize, turns: [Turns; 2], turn: usize },
    /// Held until then.
    Hold { until_ns: u64 },
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Auto {
    limit: usize,
    stage: Stage,
    sample: Sample,
    hold_ns: u64,
    /// Completions to be passed over, of requests sent under another limit.
    skips: usize,
}

impl Auto {
    /// Creates the policy.
    #[must_use]
    pub fn new() -> Self {
        Self {
            limit: INITIAL,
            stage: Stage::Search { line: Sample::default(), best: 0.0, last: 0.0 },
            sample: Sample::default(),
            hold_ns: HOLD_NS_MIN,
            skips: INITIAL,
        }
    }

    fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(1, MAX);
        self.restart_sample();
    }

    fn restart_sample(&mut self) {
        self.sample = Sample::default();
        self.skips = self.limit;
    }

    fn compare_with(&mut self, base: usize, other: usize) {
        self.stage = Stage::Compare { base, other, turns: [Turns::default(); 2], turn: 0 };
        self.set_limit(base);
    }

    /// Compares with the lower neighbour; with the higher one if there is none.
    fn compare_down(&mut self, base: usize) {
        let lower = base - (base / STEP_PART).max(1).min(base - 1);
        if lower < base { self.compare_with(base, lower) } else { self.compare_up(base) }
    }

    fn compare_up(&mut self, base: usize) {
        self.compare_with(base, (base + (base / STEP_PART).max(1)).min(MAX));
    }

    /// Continues the search after a level.
    fn end_level(&mut self, mut line: Sample, best: f64, last: f64) {
        let level = self.sample;
        let rate = level.rate();
        if line.ended == 0 || level.rate_each() >= ON_THE_LINE * line.rate_each() {
            line.merge(&level);
        }
        let best = best.max(rate);
        if (last == 0.0 || rate >= RISE_MIN * last) && self.limit < MAX {
            self.stage = Stage::Search { line, best, last: rate };
            return self.set_limit(self.limit * 2);
        }
        if rate == 0.0 {
            // Nothing is answered, and more in flight would change nothing.
            return self.compare_down(self.limit.div_ceil(2));
        }
        let knee = best / line.rate_each();
        self.compare_down((knee * MARGIN).ceil().max(1.0) as usize);
    }

    /// Continues a comparison after both have had as many turns.
    fn end_round(&mut self, now_ns: u64, base: usize, other: usize, turns: &[Turns; 2]) {
        let [of_base, of_other] = turns;
        if of_base.count < 2.0 {
            return;
        }
        let gain = of_other.mean() / of_base.mean().max(f64::MIN_POSITIVE) - 1.0;
        let error = of_base.error().hypot(of_other.error());
        let is_over = of_base.count >= TURNS_MAX;
        if other < base && gain + 2.0 * error < -LOSS_MAX {
            // Every further turn costs answers.
            self.compare_up(base);
            return;
        }
        if of_base.count < TURNS_MIN {
            return;
        }
        if other < base {
            if gain - error > -LOSS_MAX {
                self.hold_ns = HOLD_NS_MIN;
                self.compare_down(other);
            } else if is_over {
                self.compare_up(base);
            }
        } else if gain > GAIN_MIN && gain > CERTAIN * error {
            self.hold_ns = HOLD_NS_MIN;
            self.compare_up(other);
        } else if gain + error < GAIN_MIN || is_over {
            self.stage = Stage::Hold { until_ns: now_ns + self.hold_ns };
            self.hold_ns = (2 * self.hold_ns).min(HOLD_NS_MAX);
            self.set_limit(base);
        }
    }
}

impl Default for Auto {
    fn default() -> Self {
        Self::new()
    }
}

impl InFlightPolicy for Auto {
    fn limit(&self) -> usize {
        self.limit
    }

    fn completed(&mut self, now_ns: u64, completion: &Completion) {
        if completion.waiting == 0 {
            return self.restart_sample();
        }
        if completion.outcome == Outcome::Abandoned || completion.in_flight > self.limit {
            return;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return;
        }
        self.sample.add(completion);
        if self.sample.ended < SAMPLES_MIN.max(SAMPLES_EACH * self.limit as u64) {
            return;
        }
        match self.stage {
            Stage::Search { line, best, last } => self.end_level(line, best, last),
            Stage::Compare { base, other, mut turns, turn } => {
                turns[turn].add(self.sample.rate());
                let next = 1 - turn;
                self.stage = Stage::Compare { base, other, turns, turn: next };
                self.set_limit(if next == 0 { base } else { other });
                if next == 0 {
                    self.end_round(now_ns, base, other, &turns);
                }
            }
            Stage::Hold { until_ns } if now_ns >= until_ns => self.compare_down(self.limit),
            Stage::Hold { .. } => self.restart_sample(),
        }
    }
}
