//! The smallest limit at which one more request in flight completes no more of them.
//!
//! The number of requests answered per second is maximised. A server with `k` workers
//! answers more of them the more are in flight, up to `k`; beyond that they only wait there instead
//! of here, where the newest could go first and a client that has gone could be taken out. A long
//! response time alone changes nothing: it may be what a request costs.
//!
//! Everything is a comparison of two limits that take turns: of the present one with one that is
//! lower or higher. The higher wins if it surely answers more, and enough more to be worth its
//! places; the lower if the higher surely does not; otherwise the present one stays, since too few
//! in flight cost answers and too many only a wait.
//!
//! * At first the limit is **doubled**, as long as a doubling seems to pay. The first limit of all
//!   is looked at before and after its double, unless that takes long.
//! * Then it is **lowered** in steps of a half, a quarter, an eighth, and **raised** by a quarter
//!   or an eighth; a step that wins is repeated, and upwards doubled. A step down waits, for a
//!   minute at most, until what a turn of it will cost, if that limit is too low, is a hundredth of
//!   what has been answered meanwhile; not where most clients go.
//! * It is **held** until the next comparison, which comes the later the more answers the last ones
//!   have cost.
//!
//! Where an answer takes less than a **millisecond**, hardly anything waits in the server, and with
//! few in flight the loops here wake for every reply or two: the higher limit wins if it answers
//! more, however little, and the lower one only if it surely does. There are so many answers then
//! that both rates are soon known well.
//!
//! Nothing is learnt while no request waits: the number in flight is then the clients' choice. The
//! exception is a server that refuses many itself, so that none need to wait.
//!
//! Answers count that come before their clients have gone. Where hardly any do, that tells one
//! limit from another no longer; but the server replies all the same, and if requests queue in it,
//! it gives as many replies under half the limit. A comparison of replies with half the limit
//! begins **at once** then, since there is little to lose. Where a request simply takes longer than
//! clients wait, half the limit gives half the replies, and it is not tried again soon.

mod rate;

use super::policy::{Completion, InFlightPolicy, Outcome};
use rate::{Gain, Rates, Sample};

/// Limit at the start.
const INITIAL: usize = 8;

/// Maximum limit.
const MAX: usize = 1 << 16;

/// Minimum number of requests in a turn, and how many there are per request in flight.
const TURN_MIN: f64 = 32.0;
const TURN_EACH: f64 = 2.0;

/// Part of a turn that is enough where half the limit is tried: it costs most, and shows soonest.
const TURN_HALF: f64 = 0.5;

/// Number of turns of the present limit for each of a lower one.
const BASE_TURNS: f64 = 3.0;

/// Rise of the logarithm of the rate at a doubling that is believed if it is only likely. At worst
/// the limit is too high for a while.
const RISE_SEEN: f64 = 0.34;

/// Standard errors by which a difference must be sure for the present limit to lose, and for it to
/// win against a lower one, which costs answers while it is tried.
const CERTAIN: f64 = 2.5;
const LIKELY: f64 = 1.0;

/// Standard errors by which a doubling must seem to pay by the arithmetic mean: where few requests
/// take most of the time, they seem smaller than they are.
const LIKELY_MEAN: f64 = 2.0;

/// Duration of the first turn of all below which it is had a second time, after that of twice the
/// limit: nothing was warm at the start, and by chance all workers may have had long requests.
/// Where it takes longer, as long a second one would put the search off.
const AGAIN_NS_MAX: f64 = 4e8;

/// Part of the rise of a limit that the rate must rise by.
const WORTH: f64 = 0.125;

/// Time of an answer below which its place costs next to nothing, nanoseconds: a twentieth of the
/// delay target as it comes. Standard error of a gain at which it is known there, and the number of
/// turns of the other limit after which it need not be.
const CHEAP_NS: f64 = 1e6;
const ERROR_CHEAP: f64 = 0.01;
const TURNS_CHEAP: f64 = 100.0;

/// Number of turns of the other limit before the present one loses, and after which a comparison
/// with a lower one or twice as high a one, and with a higher one, ends undecided.
const TURNS_MIN: f64 = 4.0;
const TURNS_MAX: [f64; 2] = [12.0, 24.0];

/// First step upwards and smallest step, as shifts of the limit.
const SHIFT_UP: u32 = 2;
const SHIFT_MAX: u32 = 3;

/// Time until a limit is compared with a lower one again, and with a higher one: bounds, and its
/// ratio to the time that the last comparisons have cost. A higher one is not put off for long,
/// since the server may have become larger.
const HOLD_NS_MIN: u64 = 5_000_000_000;
const LOWER_NS_MAX: u64 = 600_000_000_000;
const RAISE_NS_MAX: u64 = 30_000_000_000;
const HOLD_PER_LOST: f64 = 200.0;

/// Ratio of the time until a step down to what a turn of it will cost, or the last one has cost;
/// and the longest such time.
const STEP_PER_LOST: f64 = 100.0;
const STEP_NS_MAX: u64 = 60_000_000_000;

/// Share of refusals by the server, and of replies to clients that had gone, at which it is seen as
/// full though no request waits.
const REFUSED_SHARE: f64 = 0.125;

/// Replies whose clients had gone, at least, and for each one that came in time, at which most
/// clients go.
const DEPARTED_MIN: f64 = 8.0;
const DEPARTED_EACH: f64 = 9.0;

/// Rise of the logarithm of the rate of replies from half the limit, below which half wins where
/// most clients go: halfway between what a queue in the server gives and what a lack of requests
/// does. The standard errors by which it must be sure, and the number of turns after which it need
/// not be.
const RISE_CROWDED: f64 = 0.35;
const CERTAIN_CROWDED: f64 = 1.5;
const TURNS_CROWDED: f64 = 4.0;

/// Time after which half the limit is tried again, where it did not win: at first, and at most.
const CROWDED_NS_MIN: u64 = 30_000_000_000;
const CROWDED_NS_MAX: u64 = 600_000_000_000;

/// Which limit has the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Base,
    Other,
}

/// A comparison of two limits.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// The present limit.
    base: usize,
    /// The one that differs from it by a step of `base >> shift`.
    other: usize,
    shift: u32,
    turn: Turn,
    /// Rates of the two.
    rates: [Rates; 2],
    /// True if the limit has only been doubled so far.
    is_first: bool,
    /// True if most clients go under the present limit.
    is_crowded: bool,
}

/// End of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// The limit is doubled.
    Double,
    /// The other limit is taken.
    Move,
    /// The present limit stays.
    Stay,
}

impl Comparison {
    fn new(base: usize, other: usize, shift: u32) -> Self {
        let rates = [Rates::default(); 2];
        let (is_first, is_crowded) = (false, false);
        Self { base, other, shift, turn: Turn::Base, rates, is_first, is_crowded }
    }

    /// Returns the comparison of a limit under which most clients go with half of it.
    fn crowded(base: usize, is_first: bool, sample: &Sample, spent_ns: u64) -> Self {
        let mut comparison = Self { is_first, is_crowded: true, ..Self::new(base, base / 2, 1) };
        comparison.turn = Turn::Other;
        comparison.rates[Turn::Base as usize].add(sample, spent_ns);
        comparison
    }

    /// Decides where most clients go.
    fn crowded_decision(&self) -> Option<Decision> {
        let [of_base, of_other] = &self.rates;
        let gain = of_other.reply_gain_of(of_base)?;
        let is_certain = gain.is_below(RISE_CROWDED, CERTAIN_CROWDED)
            || gain.is_above(RISE_CROWDED, CERTAIN_CROWDED);
        let decision = if gain.log < RISE_CROWDED { Decision::Move } else { Decision::Stay };
        (is_certain || of_base.turns >= TURNS_CROWDED).then_some(decision)
    }

    /// Returns the comparison of a limit with twice as much; what is known of its rate is kept.
    fn doubling(base: usize, rates: Rates) -> Self {
        let other = base.saturating_mul(2).min(MAX);
        let turn = if rates.turns > 0.0 { Turn::Other } else { Turn::Base };
        let rates = [rates, Rates::default()];
        Self { base, other, shift: 0, turn, rates, is_first: true, is_crowded: false }
    }

    /// Returns the limit that has the turn.
    fn limit(&self) -> usize {
        if self.turn == Turn::Base { self.base } else { self.other }
    }

    fn is_upwards(&self) -> bool {
        self.other > self.base
    }

    /// Number of requests in a turn: as many for each request in flight under both limits.
    fn turn_length(&self) -> f64 {
        if self.is_crowded {
            return DEPARTED_MIN.max(self.other as f64);
        }
        let each = if self.is_first { 1.0 } else { TURN_EACH };
        let length = (TURN_MIN / self.base as f64).max(each) * self.limit() as f64;
        if !self.is_upwards() && self.shift == 1 { length * TURN_HALF } else { length }
    }

    /// Returns whether the present limit has another turn before the other one. Where that is
    /// lower, its turns alone cost answers, and fewer do the better the present one is known.
    fn base_has_another_turn(&self) -> bool {
        let [of_base, of_other] = &self.rates;
        let is_lower = !self.is_upwards() && !self.is_crowded;
        is_lower && of_base.turns < BASE_TURNS * (of_other.turns + 1.0)
    }

    /// Decides, if it can be, after both limits have had their turns.
    fn decision(&self) -> Option<Decision> {
        if self.is_crowded {
            return self.crowded_decision();
        }
        let [of_base, of_other] = &self.rates;
        let upwards = self.is_upwards();
        let (low, high) = if upwards { (of_base, of_other) } else { (of_other, of_base) };
        let Some([mean, geometric]) = low.gains_of(high) else {
            // Nothing is answered, and another limit would change nothing.
            return Some(Decision::Stay);
        };
        let worth = WORTH * (self.other as f64 / self.base as f64).ln().abs();
        let seems = |gain: Gain, errors| gain.log > RISE_SEEN && gain.is_above(worth, errors);
        let is_looked_at_again = of_base.turns >= 2.0 || of_base.spent_ns >= AGAIN_NS_MAX;
        let is_known = self.base > INITIAL || is_looked_at_again;
        let is_likely = seems(mean, LIKELY_MEAN) || seems(geometric, LIKELY);
        if self.is_first && is_known && is_likely && self.other < MAX {
            return Some(Decision::Double);
        }
        if high.mean_ns().is_some_and(|mean_ns| mean_ns < CHEAP_NS) {
            return self.cheap_decision(mean);
        }
        let certain = if upwards { CERTAIN } else { LIKELY };
        let high_wins = mean.is_above(worth, certain) || geometric.is_above(worth, certain);
        let low_wins = geometric.is_below(worth, CERTAIN) && !high_wins;
        let (other_wins, base_wins) =
            if upwards { (high_wins, low_wins) } else { (low_wins, high_wins) };
        let is_settled = of_other.turns >= TURNS_MIN;
        if other_wins && is_settled {
            return Some(Decision::Move);
        }
        let is_over = of_other.turns >= TURNS_MAX[usize::from(upwards && !self.is_first)];
        let stays = base_wins && (is_settled || !upwards) || is_over;
        stays.then_some(Decision::Stay)
    }

    /// Decides where places cost next to nothing, by what the higher limit gains: it wins if it
    /// answers more, once that is known, and the lower one only if it surely does.
    fn cheap_decision(&self, gain: Gain) -> Option<Decision> {
        let turns = self.rates[Turn::Other as usize].turns;
        let is_known = gain.error <= ERROR_CHEAP || turns >= TURNS_CHEAP;
        let is_more = gain.is_above(0.0, if is_known { LIKELY } else { CERTAIN });
        let is_less = gain.is_below(0.0, CERTAIN);
        if turns < TURNS_MIN || !(is_more || is_less || is_known) {
            return None;
        }
        Some(match (self.is_upwards(), is_more, is_less) {
            (true, true, _) if self.is_first && self.other < MAX => Decision::Double,
            (true, true, _) | (false, _, true) => Decision::Move,
            _ => Decision::Stay,
        })
    }

    /// Returns the time that one turn of a lower limit will cost if it is too low, nanoseconds: by
    /// then each place of the step would have answered as many as each of those that are left, and
    /// one more before the turn.
    fn cost_of_lower_ns(&self, base: usize, shift: u32) -> f64 {
        let step = (base >> shift).max(1);
        let next = Self { turn: Turn::Other, ..Self::new(base, (base - step).max(1), shift) };
        let each = next.turn_length() / next.other as f64 + 1.0;
        let [of_base, _] = &self.rates;
        of_base.answer_ns() * each * step as f64
    }

    /// Returns the time that the other limit has cost, nanoseconds.
    fn lost_ns(&self) -> f64 {
        let [of_base, of_other] = &self.rates;
        let rates = of_base.log_rate().zip(of_other.log_rate());
        rates.map_or(0.0, |(base, other)| of_other.spent_ns * (1.0 - (other - base).exp()).max(0.0))
    }
}

/// Returns for how long a limit is held after what comparisons have cost, which is then paid.
fn hold_ns(lost_ns: &mut f64, max_ns: u64) -> u64 {
    ((HOLD_PER_LOST * std::mem::take(lost_ns)) as u64).clamp(HOLD_NS_MIN, max_ns)
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Auto {
    limit: usize,
    /// The comparison; `None` while the limit is held.
    comparison: Option<Comparison>,
    sample: Sample,
    /// Time since which the limit has been kept to: what was sent before does not count.
    since_ns: u64,
    /// True once a request that was sent under the limit has ended. Those that meet a server whose
    /// queue is still becoming longer do not count either.
    is_steady: bool,
    /// Times of the next comparison with a lower limit and with a higher one.
    lower_ns: u64,
    raise_ns: u64,
    /// Step of the next comparison with a lower limit, as a shift of the limit.
    lower_shift: u32,
    /// Time lost by comparisons with higher limits since the last hold.
    lost_raising_ns: f64,
    /// Time lost by comparisons with lower limits since all steps down were tried last.
    lost_lowering_ns: f64,
    /// Time from which half the limit may be tried because most clients go, and for how long it may
    /// not be when it has not won.
    crowded_ns: u64,
    crowded_after_ns: u64,
}

impl Auto {
    /// Creates the policy.
    #[must_use]
    pub fn new() -> Self {
        Self {
            limit: INITIAL,
            comparison: Some(Comparison::doubling(INITIAL, Rates::default())),
            sample: Sample::default(),
            since_ns: 0,
            is_steady: false,
            lower_ns: 0,
            lower_shift: 1,
            raise_ns: 0,
            lost_raising_ns: 0.0,
            lost_lowering_ns: 0.0,
            crowded_ns: 0,
            crowded_after_ns: CROWDED_NS_MIN,
        }
    }

    fn set_limit(&mut self, now_ns: u64, limit: usize) {
        self.limit = limit;
        self.restart_sample(now_ns);
    }

    fn restart_sample(&mut self, now_ns: u64) {
        self.sample = Sample::default();
        self.since_ns = now_ns;
        self.is_steady = false;
    }

    fn compare(&mut self, now_ns: u64, comparison: Comparison) {
        self.comparison = Some(comparison);
        self.set_limit(now_ns, comparison.limit());
    }

    /// Compares `base` with the limit a step lower.
    fn lower(&mut self, now_ns: u64, base: usize, shift: u32) {
        if base == 1 {
            self.lower_ns = now_ns + HOLD_NS_MIN;
            return self.raise(now_ns, base, SHIFT_UP);
        }
        self.compare(now_ns, Comparison::new(base, base - (base >> shift).max(1), shift));
    }

    /// Compares `base` with the limit a step higher.
    fn raise(&mut self, now_ns: u64, base: usize, shift: u32) {
        let other = (base + (base >> shift).max(1)).min(MAX);
        if other == base {
            return self.hold(now_ns, base);
        }
        self.compare(now_ns, Comparison::new(base, other, shift));
    }

    /// Returns whether most clients go before they are answered.
    fn is_crowded(&self, now_ns: u64) -> bool {
        let Sample { answered, departed, .. } = self.sample;
        let is_compared = self.comparison.is_some_and(|comparison| comparison.is_crowded);
        departed >= DEPARTED_MIN.max(self.limit as f64)
            && departed >= DEPARTED_EACH * (answered - departed)
            && self.limit > 1
            && !is_compared
            && now_ns >= self.crowded_ns
    }

    fn hold(&mut self, now_ns: u64, base: usize) {
        self.raise_ns = now_ns + hold_ns(&mut self.lost_raising_ns, RAISE_NS_MAX);
        self.comparison = None;
        self.set_limit(now_ns, base);
    }

    /// Ends a turn of a comparison.
    fn end_turn(&mut self, now_ns: u64, mut comparison: Comparison) {
        let spent_ns = now_ns.saturating_sub(self.since_ns);
        comparison.rates[comparison.turn as usize].add(&self.sample, spent_ns);
        let is_round = comparison.turn == Turn::Other;
        let is_bases = is_round || comparison.base_has_another_turn();
        comparison.turn = if is_bases { Turn::Base } else { Turn::Other };
        self.compare(now_ns, comparison);
        let [_, of_other] = &comparison.rates;
        let is_decided = is_round || comparison.is_first && of_other.turns > 0.0;
        let decision = if is_decided { comparison.decision() } else { None };
        if let Some(decision) = decision {
            self.end_comparison(now_ns, &comparison, decision);
        }
    }

    /// Goes on after a comparison.
    fn end_comparison(&mut self, now_ns: u64, comparison: &Comparison, decision: Decision) {
        let &Comparison { other, shift, rates, .. } = comparison;
        match (decision, comparison.is_upwards()) {
            (Decision::Double, _) => {
                self.compare(now_ns, Comparison::doubling(other, rates[Turn::Other as usize]));
            }
            (Decision::Move, true) if comparison.is_first && other < MAX => {
                self.compare(now_ns, Comparison::doubling(other, Rates::default()));
            }
            (Decision::Move, true) => {
                self.put_off_lower(now_ns, comparison, other, 1);
                self.raise(now_ns, other, shift.saturating_sub(1));
            }
            (Decision::Move, false) => {
                self.crowded_after_ns = CROWDED_NS_MIN;
                if comparison.is_crowded {
                    return self.lower(now_ns, other, shift);
                }
                self.put_off_lower(now_ns, comparison, other, shift);
                self.raise(now_ns, other, SHIFT_UP);
            }
            (Decision::Stay, true) => self.stop_raising(now_ns, comparison),
            (Decision::Stay, false) => self.stop_lowering(now_ns, comparison),
        }
    }

    /// Puts off the next step down until what a turn of it will cost, or the last one has, is a
    /// hundredth of what has been answered meanwhile.
    fn put_off_lower(&mut self, now_ns: u64, last: &Comparison, base: usize, shift: u32) {
        let cost_ns = last.lost_ns().max(last.cost_of_lower_ns(base, shift));
        self.lower_ns = now_ns + ((STEP_PER_LOST * cost_ns) as u64).min(STEP_NS_MAX);
        self.lower_shift = shift;
    }

    /// Goes on after a higher limit that did not win.
    fn stop_raising(&mut self, now_ns: u64, comparison: &Comparison) {
        let &Comparison { base, shift, is_first, .. } = comparison;
        self.lost_raising_ns += comparison.lost_ns();
        if is_first {
            self.put_off_lower(now_ns, comparison, base, 1);
            self.hold(now_ns, base);
        } else if shift < SHIFT_MAX {
            self.raise(now_ns, base, shift + 1);
        } else if now_ns >= self.lower_ns {
            self.lower(now_ns, base, self.lower_shift);
        } else {
            self.hold(now_ns, base);
        }
    }

    /// Goes on after a lower limit that did not win.
    fn stop_lowering(&mut self, now_ns: u64, comparison: &Comparison) {
        let &Comparison { base, shift, is_crowded, is_first, .. } = comparison;
        if is_crowded {
            self.crowded_ns = now_ns + self.crowded_after_ns;
            self.crowded_after_ns = (2 * self.crowded_after_ns).min(CROWDED_NS_MAX);
            if is_first {
                return self.compare(now_ns, Comparison::doubling(base, Rates::default()));
            }
            return self.raise(now_ns, base, SHIFT_UP);
        }
        self.lost_lowering_ns += comparison.lost_ns();
        if shift < SHIFT_MAX && base >> shift > 1 {
            self.put_off_lower(now_ns, comparison, base, shift + 1);
        } else {
            self.put_off_lower(now_ns, comparison, base, 1);
            self.lower_ns =
                self.lower_ns.max(now_ns + hold_ns(&mut self.lost_lowering_ns, LOWER_NS_MAX));
        }
        self.raise(now_ns, base, SHIFT_UP);
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
        let in_vain = self.sample.ended - self.sample.answered + self.sample.departed;
        let is_in_vain = match completion.outcome {
            Outcome::Refused => true,
            Outcome::Departed => completion.in_flight >= self.limit,
            Outcome::Answered | Outcome::Failed | Outcome::Abandoned => false,
        };
        let is_full =
            completion.is_contended || is_in_vain || in_vain > REFUSED_SHARE * self.sample.ended;
        if !is_full || completion.in_flight > self.limit {
            return self.restart_sample(now_ns);
        }
        let sent_ns = now_ns.saturating_sub(completion.took_ns);
        if completion.outcome == Outcome::Abandoned || sent_ns < self.since_ns {
            return;
        }
        if !self.is_steady {
            self.restart_sample(now_ns);
            self.is_steady = true;
            return;
        }
        self.sample.add(completion);
        if self.is_crowded(now_ns) {
            let spent_ns = now_ns.saturating_sub(self.since_ns);
            let is_first = self.comparison.is_some_and(|comparison| comparison.is_first);
            let sample = &self.sample;
            let comparison = Comparison::crowded(self.limit, is_first, sample, spent_ns);
            return self.compare(now_ns, comparison);
        }
        let length = self.comparison.map_or(TURN_MIN, |comparison| comparison.turn_length());
        if self.sample.answered < length {
            return;
        }
        match self.comparison {
            Some(comparison) => self.end_turn(now_ns, comparison),
            None if now_ns >= self.raise_ns => self.raise(now_ns, self.limit, SHIFT_UP),
            None if now_ns >= self.lower_ns => self.lower(now_ns, self.limit, self.lower_shift),
            None => self.restart_sample(now_ns),
        }
    }
}
