//! Medians, ratios and peaks of repeated points, each with an interval. Takes numbers by round and
//! returns estimates, whatever the numbers measure.

use std::borrow::Cow;
use std::slice;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use weir_stats::{Bootstrap, median, quantile_extended as quantile};

use super::study::Rounds;
use crate::findings::Estimate;

/// Explanation for readers of how the intervals are computed and what they guarantee.
pub const INTERVALS: &str = "Each number is the median of the valid repetitions, and the interval \
    beside it a bootstrap interval of that median, 2000 resamples, 95 % asked for. An interval \
    within n values cannot be worth more than 1 - 2 / 2^n: 75 % for 3 repetitions, 94 % for 5, \
    97 % for 6; by simulation it is worth 87 to 94 % from 6 on. Two values make no interval: \
    their range is shown in its place, and decides nothing; a single one is its own value. ± is \
    half the width of the interval as a share of the median. Ratios and sums are taken within \
    rounds, so that what a round does to both does nothing to their ratio. Where a peak is chosen, \
    each resample draws whole rounds, chooses its own peak among their medians, and takes the \
    number there. That widens the interval by the choice and does not correct the median: a \
    maximum of medians is a little above the true peak, in each run alike. Of a server with about \
    one goodput at several values, what it kept of its peak is judged about one percent too low, \
    and its interval is worth 80 to 87 % with 5 to 8 rounds. Capacities are measured once for all \
    rounds: intervals at multiples of one leave its error out.";

/// Returns the median of a sample with its interval; `None` for an empty sample.
pub(super) fn estimate(sample: &[f64]) -> Option<Estimate> {
    let value = median(sample)?;
    let few = range(value, sample);
    if !few.has_interval() {
        return Some(few);
    }
    let interval = Bootstrap::default().median(sample);
    let (low, high) = interval.map_or((value, value), |interval| (interval.low, interval.high));
    Some(Estimate { low, high, ..few })
}

/// Returns a median between the ends of its sample: what is left to say of too few values for an
/// interval.
fn range(value: f64, sample: &[f64]) -> Estimate {
    let low = sample.iter().copied().fold(value, f64::min);
    let high = sample.iter().copied().fold(value, f64::max);
    Estimate { value, low, high, n: sample.len() as u32 }
}

/// The position along a sweep at which a number is taken.
#[derive(Clone, Debug)]
pub(super) enum Pick {
    /// At the value with this index.
    Fixed(usize),
    /// Where the median of these rounds is highest: goodput at each value of the sweep.
    Peak(Vec<Rounds>),
}

impl Pick {
    /// Returns the index of the value of the sweep, determined from these rounds alone.
    pub(super) fn index(&self, rounds: &[u32]) -> Option<usize> {
        match self {
            Self::Fixed(index) => Some(*index),
            Self::Peak(goodput) => peak(goodput, rounds),
        }
    }
}

/// A metric of a server along a sweep, and the position at which it is taken.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// The metric at each value of the sweep.
    pub(super) curve: Vec<Rounds>,
    /// The position.
    pub(super) pick: Pick,
    /// Place of the divisor of the number there, within rounds; `None` for the number itself.
    pub(super) base: Option<Base>,
}

/// Another place along the same curve, that a number is held against within rounds.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// The position.
    pub(super) pick: Pick,
    /// Factor applied to the ratio: 100 if it is in %.
    pub(super) factor: f64,
}

impl Side {
    /// Returns the index of the value of the sweep, determined from these rounds alone.
    pub(super) fn index(&self, rounds: &[u32]) -> Option<usize> {
        self.pick.index(rounds)
    }

    /// Returns the numbers by round; `None` if no value of the sweep qualifies. A round in which
    /// the base has no number, or 0, has none.
    fn at(&self, rounds: &[u32]) -> Option<Cow<'_, Rounds>> {
        let here = self.curve.get(self.index(rounds)?)?;
        let Some(Base { pick, factor }) = &self.base else { return Some(Cow::Borrowed(here)) };
        let base = self.curve.get(pick.index(rounds)?)?;
        let held = |(round, value): (&u32, &f64)| {
            let base = base.get(round).filter(|base| **base != 0.0)?;
            Some((*round, factor * value / base))
        };
        Some(Cow::Owned(here.iter().filter_map(held).collect()))
    }

    /// Returns all rounds that have a number at any value.
    pub(super) fn rounds(&self) -> Vec<u32> {
        let mut rounds: Vec<u32> = self.curve.iter().flat_map(|one| one.keys().copied()).collect();
        rounds.sort_unstable();
        rounds.dedup();
        rounds
    }
}

/// Returns the index with the highest median over these rounds; the first on a tie.
pub(super) fn peak(curve: &[Rounds], rounds: &[u32]) -> Option<usize> {
    let medians = curve.iter().enumerate().filter_map(|(index, values)| {
        let drawn: Vec<f64> =
            rounds.iter().filter_map(|round| values.get(round).copied()).collect();
        Some((index, median(&drawn)?))
    });
    medians.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(index, _)| index)
}

/// Returns the median of one side, or of its ratio to another within rounds, for figures and
/// tables: ratios to 0 are left out.
pub(super) fn of_sides(top: &Side, bottom: Option<&Side>) -> Option<Estimate> {
    let bottom: &[Side] = bottom.map_or(&[], slice::from_ref);
    Some(resampled(slice::from_ref(top), bottom, ByZero::LeftOut)?.estimate)
}

/// Returns the median of the sum of sides, or of its ratio to the sum of others, within rounds, for
/// claims; of no others if there are none. What is more than 0 is infinitely many times 0: if a
/// round without it were left out, so would be the very effect that is claimed. `None` if no round
/// has the values needed.
pub(super) fn of_sums(top: &[Side], bottom: &[Side]) -> Option<Compared> {
    resampled(top, bottom, ByZero::Infinite)
}

/// An estimate that a claim is judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compared {
    pub(super) estimate: Estimate,
    /// Number of rounds that are left out because both sums are 0 in them.
    pub(super) undefined: u32,
}

/// The treatment of ratios to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByZero {
    LeftOut,
    Infinite,
}

/// Returns the rounds in which every side has a number at any value.
pub(super) fn common_rounds(top: &[Side], bottom: &[Side]) -> Vec<u32> {
    let mut rounds = top.first().map(Side::rounds).unwrap_or_default();
    for side in top.iter().chain(bottom) {
        let others = side.rounds();
        rounds.retain(|round| others.contains(round));
    }
    rounds
}

/// Returns the ratio of two of these medians, each of a ratio or a sum within its own rounds, with
/// an interval: rounds of the two are drawn independently. `None` where either has no median, or
/// both are 0 or infinite.
pub(super) fn of_two(
    (top, bottom): (&[Side], &[Side]),
    (other_top, other_bottom): (&[Side], &[Side]),
) -> Option<Compared> {
    let Bootstrap { seed, .. } = Bootstrap::default();
    let one = Resamples::new(top, bottom, ByZero::Infinite, seed)?;
    let two = Resamples::new(other_top, other_bottom, ByZero::Infinite, seed.wrapping_add(1))?;
    let value = one.few.value / two.few.value;
    let ends = [one.few.low, one.few.high].map(|top| [top / two.few.low, top / two.few.high]);
    let all = ends.as_flattened().iter();
    let few = Estimate {
        value,
        low: all.clone().fold(value, |low, &end| low.min(end)),
        high: all.fold(value, |high, &end| high.max(end)),
        n: one.few.n.min(two.few.n),
    };
    let drawn = one.medians.iter().zip(&two.medians).map(|(one, two)| one / two);
    let medians = drawn.filter(|ratio| !ratio.is_nan()).collect();
    let undefined = one.undefined + two.undefined;
    (!value.is_nan()).then(|| Resamples { few, undefined, medians }.compared())
}

/// Returns the median with its interval.
fn resampled(top: &[Side], bottom: &[Side], by_zero: ByZero) -> Option<Compared> {
    Some(Resamples::new(top, bottom, by_zero, Bootstrap::default().seed)?.compared())
}

/// A median, and the medians of resamples. Each resample draws rounds and repeats the whole
/// computation on them, including the choice of a peak.
struct Resamples {
    /// The median between the ends of its sample.
    few: Estimate,
    undefined: u32,
    /// Empty where the sample is too small for an interval.
    medians: Vec<f64>,
}

impl Resamples {
    fn new(top: &[Side], bottom: &[Side], by_zero: ByZero, seed: u64) -> Option<Self> {
        let rounds = common_rounds(top, bottom);
        let Numbers { values, undefined } = numbers(top, bottom, &rounds, by_zero)?;
        let few = range(quantile(&values, 0.5)?, &values);
        if !few.has_interval() {
            return Some(Self { few, undefined, medians: Vec::new() });
        }
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut drawn = rounds.clone();
        let medians = (0..Bootstrap::default().resamples).filter_map(|_| {
            drawn.iter_mut().for_each(|round| *round = draw(&rounds, &mut chance));
            quantile(&numbers(top, bottom, &drawn, by_zero)?.values, 0.5)
        });
        Some(Self { few, undefined, medians: medians.collect() })
    }

    fn compared(&self) -> Compared {
        let Self { few, undefined, medians } = self;
        if !few.has_interval() {
            return Compared { estimate: *few, undefined: *undefined };
        }
        let tail = (1.0 - Bootstrap::default().confidence) / 2.0;
        let end = |share| quantile(medians, share).unwrap_or(few.value);
        // The maximum over many places may lie below nearly all of its resamples.
        let (low, high) = (end(tail).min(few.value), end(1.0 - tail).max(few.value));
        Compared { estimate: Estimate { low, high, ..*few }, undefined: *undefined }
    }
}

/// Numbers of rounds, each as often as its round was drawn.
#[derive(Debug, Default)]
struct Numbers {
    values: Vec<f64>,
    /// Number of rounds in which both sides of a ratio are 0.
    undefined: u32,
}

/// Returns the numbers of these rounds; `None` if a side has no value of the sweep to take them at.
fn numbers(top: &[Side], bottom: &[Side], rounds: &[u32], by_zero: ByZero) -> Option<Numbers> {
    let above = top.iter().map(|side| side.at(rounds)).collect::<Option<Vec<_>>>()?;
    let below = bottom.iter().map(|side| side.at(rounds)).collect::<Option<Vec<_>>>()?;
    let sum = |of: &[Cow<'_, Rounds>], round: &u32| -> Option<f64> {
        of.iter().map(|values| values.get(round).copied()).sum()
    };
    let mut numbers = Numbers::default();
    for round in rounds {
        let Some((top, bottom)) = sum(&above, round).zip(sum(&below, round)) else { continue };
        match (below.is_empty(), bottom == 0.0) {
            (true, _) => numbers.values.push(top),
            (false, false) => numbers.values.push(top / bottom),
            (false, true) if top == 0.0 => numbers.undefined += 1,
            // A divisor of -0 is 0 too, so the sign is that of what is divided.
            (false, true) if by_zero == ByZero::Infinite => {
                numbers.values.push(top * f64::INFINITY);
            }
            (false, true) => {}
        }
    }
    Some(numbers)
}

/// Draws one of the rounds uniformly, by the high word of a product.
fn draw(rounds: &[u32], chance: &mut Xoshiro256PlusPlus) -> u32 {
    let index = (u128::from(chance.next_u64()) * rounds.len() as u128) >> 64;
    rounds[index as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(values: &[f64]) -> Rounds {
        (0..).zip(values.iter().copied()).collect()
    }

    fn fixed(values: &[f64]) -> Side {
        Side { curve: vec![rounds(values)], pick: Pick::Fixed(0), base: None }
    }

    #[test]
    fn a_known_median_is_found_and_one_value_has_no_interval() {
        let three = estimate(&[30.0, 10.0, 20.0]).unwrap();
        assert_eq!((three.value, three.low, three.high, three.n), (20.0, 10.0, 30.0, 3));
        let two = estimate(&[10.0, 30.0]).unwrap();
        assert_eq!((two.value, two.low, two.high, two.n), (20.0, 10.0, 30.0, 2));
        assert_eq!((two.half_width(), three.half_width()), (None, Some(0.5)));
        let one = estimate(&[7.0]).unwrap();
        assert_eq!((one.value, one.low, one.high, one.n), (7.0, 7.0, 7.0, 1));
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn noise_of_a_round_cancels_in_a_ratio() {
        let top = fixed(&[110.0, 550.0, 22.0, 220.0]);
        let bottom = fixed(&[100.0, 500.0, 20.0, 200.0]);
        let ratio = of_sides(&top, Some(&bottom)).unwrap();
        assert!((ratio.low - 1.1).abs() < 1e-12 && (ratio.high - 1.1).abs() < 1e-12, "{ratio:?}");
        let crossed = fixed(&[200.0, 20.0, 500.0, 100.0]);
        let unpaired = of_sides(&top, Some(&crossed)).unwrap();
        assert!(unpaired.low < 0.1 && unpaired.high > 10.0, "{unpaired:?}");
    }

    #[test]
    fn only_common_rounds_make_ratios() {
        let top = Side {
            curve: vec![Rounds::from([(0, 4.0), (2, 6.0)])],
            pick: Pick::Fixed(0),
            base: None,
        };
        let bottom = Side {
            curve: vec![Rounds::from([(1, 1.0), (2, 3.0)])],
            pick: Pick::Fixed(0),
            base: None,
        };
        let ratio = of_sides(&top, Some(&bottom)).unwrap();
        assert_eq!((ratio.value, ratio.low, ratio.high, ratio.n), (2.0, 2.0, 2.0, 1));
    }

    #[test]
    fn a_claims_ratio_to_0_is_infinite_and_only_0_to_0_is_left_out() {
        let of = |top: &[f64], bottom: &[f64]| of_sums(&[fixed(top)], &[fixed(bottom)]);
        let all = of(&[5.0, 6.0, 7.0, 0.0], &[0.0, 0.0, -0.0, 0.0]).unwrap();
        let Estimate { value, low, high, n } = all.estimate;
        assert_eq!((value, low, high), (f64::INFINITY, f64::INFINITY, f64::INFINITY));
        assert_eq!((n, all.undefined), (3, 1));
        // An infinite value counts: without it the median would be 2.
        let some = of(&[1.0, 3.0, 7.0], &[1.0, 1.0, 0.0]).unwrap();
        let Estimate { value, low, high, n } = some.estimate;
        assert_eq!((value, low, high, n), (3.0, 1.0, f64::INFINITY, 3));
        let two = of(&[1.0, 7.0], &[1.0, 0.0]).unwrap().estimate;
        assert_eq!((two.value, two.low, two.high), (f64::INFINITY, 1.0, f64::INFINITY));
        assert_eq!(of(&[0.0, 0.0], &[0.0, 0.0]), None);
        // Without a divisor, 0 is a number as any other.
        let alone = of_sums(&[fixed(&[0.0, 0.0, 0.0])], &[]).unwrap();
        assert_eq!((alone.estimate.value, alone.estimate.n, alone.undefined), (0.0, 3, 0));
    }

    #[test]
    fn medians_of_two_experiments_are_divided_without_common_rounds() {
        let (top, bottom) = ([fixed(&[20.0, 42.0, 60.0])], [fixed(&[10.0, 20.0, 30.0])]);
        let later = |values: &[f64]| {
            let curve = vec![(7..).zip(values.iter().copied()).collect()];
            Side { curve, pick: Pick::Fixed(0), base: None }
        };
        let other = [later(&[4.0, 4.0, 4.0, 5.0])];
        let of = |other: &[Side]| of_two((&top, &bottom), (other, &[]));
        let Estimate { value, low, high, n } = of(&other).unwrap().estimate;
        assert_eq!((value, low, high, n), (0.5, 0.4, 0.525, 3));
        let two = of(&[later(&[4.0, 5.0])]).unwrap().estimate;
        assert_eq!((two.low, two.high, two.n), (2.0 / 5.0, 2.1 / 4.0, 2));
        assert_eq!(of(&[later(&[])]), None);
        // Drawn together, the same values would make 1 and nothing else.
        let noisy = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let own = of_two((&[fixed(&noisy)], &[]), (&[later(&noisy)], &[])).unwrap().estimate;
        assert!(own.low < 1.0 && own.value == 1.0 && own.high > 1.0, "{own:?}");
    }

    #[test]
    fn figures_and_tables_have_no_ratio_to_0() {
        let top = fixed(&[4.0, 6.0, 8.0]);
        assert_eq!(of_sides(&top, Some(&fixed(&[0.0, 0.0, 0.0]))), None);
        let ratio = of_sides(&top, Some(&fixed(&[0.0, 3.0, 4.0]))).unwrap();
        assert_eq!((ratio.value, ratio.low, ratio.high, ratio.n), (2.0, 2.0, 2.0, 2));
    }

    #[test]
    fn sums_are_taken_within_rounds_before_they_are_divided() {
        let top = [fixed(&[1.0, 20.0, 300.0]), fixed(&[2.0, 40.0, 600.0])];
        let bottom = [fixed(&[2.0, 40.0, 600.0]), fixed(&[4.0, 80.0, 1200.0])];
        let ratio = of_sums(&top, &bottom).unwrap().estimate;
        assert_eq!((ratio.value, ratio.low, ratio.high, ratio.n), (0.5, 0.5, 0.5, 3));
        let sum = of_sums(&top, &[]).unwrap().estimate;
        assert_eq!((sum.value, sum.low, sum.high), (60.0, 3.0, 900.0));
        let few = Side { curve: vec![Rounds::from([(2, 1.0)])], pick: Pick::Fixed(0), base: None };
        assert_eq!(of_sums(&[top[0].clone(), few], &[]).unwrap().estimate.value, 301.0);
        assert_eq!(of_sums(&[], &bottom), None);
    }

    #[test]
    fn the_peak_is_the_highest_median_and_the_choice_widens_its_interval() {
        let curve = vec![
            rounds(&[100.0, 100.0, 100.0]),
            rounds(&[90.0, 105.0, 130.0]),
            rounds(&[80.0, 104.0, 140.0]),
        ];
        let pick = Pick::Peak(curve.clone());
        let side = Side { curve: curve.clone(), pick, base: None };
        assert_eq!(side.index(&[0, 1, 2]), Some(1));
        assert_eq!(side.index(&[0, 0, 0]), Some(0));
        assert_eq!(side.index(&[2, 2, 2]), Some(2));
        let peak = of_sides(&side, None).unwrap();
        let here = of_sides(&Side { curve, pick: Pick::Fixed(1), base: None }, None).unwrap();
        assert_eq!((peak.value, here.value), (105.0, 105.0));
        assert_eq!((peak.low, peak.high), (100.0, 140.0));
        assert_eq!((here.low, here.high), (90.0, 130.0));
    }
}
