//! Estimates from small samples: median, mean, quantiles, and bootstrap intervals around them. Pure
//! and seeded: the same sample and seed give the same interval.
//!
//! A sample that is empty or contains a NaN or an infinity has no estimate: every function here
//! then returns `None`.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end, not below the lower.
    pub high: f64,
}

/// Returns the arithmetic mean.
pub fn mean(sample: &[f64]) -> Option<f64> {
    usable(sample).then(|| mean_of(sample))
}

/// Returns the middle value, or the mean of the two middle ones.
pub fn median(sample: &[f64]) -> Option<f64> {
    quantile(sample, 0.5)
}

/// Returns the value that a share `q` (0 to 1) of the sample does not exceed: definition 7 of
/// Hyndman and Fan (1996), linear between the two values around position `q * (n - 1)` of the
/// sorted sample.
pub fn quantile(sample: &[f64], q: f64) -> Option<f64> {
    if usable(sample) { quantile_extended(sample, q) } else { None }
}

/// Returns the same of a sample that may have infinite values, which lie beyond all others. `None`
/// for an empty sample, or one with a value that is no number.
pub fn quantile_extended(sample: &[f64], q: f64) -> Option<f64> {
    let is_number = |value: &f64| !value.is_nan();
    if sample.is_empty() || !sample.iter().all(is_number) || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let mut sorted = sample.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(quantile_of(&sorted, q))
}

/// Divides the first of each pair by the second. Also returns `None` if a ratio is not finite
/// (division by 0).
pub fn ratios(pairs: &[(f64, f64)]) -> Option<Vec<f64>> {
    let ratios: Vec<f64> = pairs.iter().map(|(above, below)| above / below).collect();
    usable(&ratios).then_some(ratios)
}

/// Returns the maximum confidence, 0 to 1, of any interval within the values of a sample of `n`:
/// the probability that the true median of a continuous distribution lies between the smallest and
/// the largest of them. 0.5 for 2 values, 0.75 for 3, 0.94 for 5. A bootstrap interval is such an
/// interval, so with fewer than 6 values none reaches 95 %, whatever confidence was requested.
pub fn coverage_max(n: usize) -> f64 {
    if n < 2 { 0.0 } else { 1.0 - 2.0 * 0.5_f64.powf(n as f64) }
}

/// Percentile bootstrap (Efron 1979): draws many samples from the sample with replacement and takes
/// the middle share of their statistics. A single value says nothing about variation, so it has no
/// interval; for the limits of small samples see [`coverage_max`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// Number of samples drawn.
    pub resamples: usize,
    /// The middle share, between 0 and 1.
    pub confidence: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Bootstrap {
    /// Creates a bootstrap of 2000 resamples with a confidence of 95 %.
    fn default() -> Self {
        Self { resamples: 2000, confidence: 0.95, seed: 1 }
    }
}

impl Bootstrap {
    /// Returns an interval for the mean.
    pub fn mean(&self, sample: &[f64]) -> Option<Interval> {
        self.interval(sample, |drawn| mean_of(drawn))
    }

    /// Returns an interval for the median.
    pub fn median(&self, sample: &[f64]) -> Option<Interval> {
        self.interval(sample, |drawn| {
            drawn.sort_unstable_by(f64::total_cmp);
            quantile_of(drawn, 0.5)
        })
    }

    /// Returns an interval for the median of the ratios of pairs. Each pair has the two values of
    /// one round, so an effect of the round on both cancels out in their ratio.
    pub fn ratio(&self, pairs: &[(f64, f64)]) -> Option<Interval> {
        self.median(&ratios(pairs)?)
    }

    fn interval(&self, sample: &[f64], statistic: impl Fn(&mut [f64]) -> f64) -> Option<Interval> {
        let sane = self.confidence > 0.0 && self.confidence < 1.0;
        if !usable(sample) || sample.len() < 2 || !sane {
            return None;
        }
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut drawn = vec![0.0; sample.len()];
        let statistics: Vec<f64> = (0..self.resamples)
            .map(|_| {
                drawn.iter_mut().for_each(|value| *value = pick(sample, &mut chance));
                statistic(&mut drawn)
            })
            .collect();
        let tail = (1.0 - self.confidence) / 2.0;
        let low = quantile(&statistics, tail)?;
        Some(Interval { low, high: quantile(&statistics, 1.0 - tail)? })
    }
}

fn usable(sample: &[f64]) -> bool {
    !sample.is_empty() && sample.iter().all(|value| value.is_finite())
}

fn mean_of(sample: &[f64]) -> f64 {
    sample.iter().sum::<f64>() / sample.len() as f64
}

fn quantile_of(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    // Between two infinities there is no difference to take a part of.
    if below.is_infinite() { below } else { below + (above - below) * position.fract() }
}

/// Picks a value uniformly: the high word of a product, with a bias below `n / 2^64`.
fn pick(sample: &[f64], chance: &mut Xoshiro256PlusPlus) -> f64 {
    let index = (u128::from(chance.next_u64()) * sample.len() as u128) >> 64;
    sample[index as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(chance: &mut Xoshiro256PlusPlus) -> f64 {
        (chance.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the share of 300 samples of 24 whose interval contains the true value.
    fn coverage(
        draw: impl Fn(&mut Xoshiro256PlusPlus) -> f64,
        interval: impl Fn(&Bootstrap, &[f64]) -> Option<Interval>,
        truth: f64,
    ) -> f64 {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(7);
        let held = (0..300)
            .filter(|seed| {
                let sample: Vec<f64> = (0..24).map(|_| draw(&mut chance)).collect();
                let bootstrap = Bootstrap { resamples: 500, seed: *seed, ..Default::default() };
                let Interval { low, high } = interval(&bootstrap, &sample).unwrap();
                low <= truth && truth <= high
            })
            .count();
        held as f64 / 300.0
    }

    #[test]
    fn quantiles_are_those_of_finite_values_and_infinite_beyond_them() {
        let sample = [3.0, 1.0, 2.0, 10.0];
        for share in [0.0, 0.025, 0.5, 0.8, 1.0] {
            assert_eq!(quantile_extended(&sample, share), quantile(&sample, share));
        }
        let infinite = f64::INFINITY;
        assert_eq!(quantile_extended(&[infinite, 1.0, infinite], 0.5), Some(infinite));
        assert_eq!(quantile_extended(&[1.0, infinite, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile_extended(&[1.0, infinite], 0.5), Some(infinite));
        assert_eq!(quantile_extended(&[-infinite, 1.0], 0.5), Some(-infinite));
        assert_eq!(quantile_extended(&[], 0.5), None);
    }

    #[test]
    fn a_95_percent_interval_holds_the_truth_about_so_often() {
        let normal =
            |chance: &mut Xoshiro256PlusPlus| (0..12).map(|_| uniform(chance)).sum::<f64>() - 6.0;
        let exponential = |chance: &mut Xoshiro256PlusPlus| -(1.0 - uniform(chance)).ln();
        for share in [
            coverage(normal, Bootstrap::mean, 0.0),
            coverage(normal, Bootstrap::median, 0.0),
            coverage(exponential, Bootstrap::mean, 1.0),
            coverage(exponential, Bootstrap::median, 2.0_f64.ln()),
        ] {
            assert!((0.88..=0.99).contains(&share), "{share}");
        }
    }

    #[test]
    fn the_middle_is_found_between_and_on_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[10.0, 20.0, 30.0], 0.25), Some(15.0));
        assert_eq!(quantile(&[10.0, 20.0], 1.0), Some(20.0));
        assert_eq!(mean(&[1.0, 2.0, 6.0]), Some(3.0));
    }

    #[test]
    fn no_value_is_no_estimate_and_one_value_no_interval() {
        let bootstrap = Bootstrap::default();
        assert_eq!((mean(&[]), median(&[]), quantile(&[], 0.5)), (None, None, None));
        assert_eq!((bootstrap.mean(&[]), bootstrap.median(&[5.0])), (None, None));
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(bootstrap.median(&[1.0, 3.0]), Some(Interval { low: 1.0, high: 3.0 }));
        assert_eq!(bootstrap.mean(&[2.0, 2.0]), Some(Interval { low: 2.0, high: 2.0 }));
        assert_eq!([1, 2, 3].map(coverage_max), [0.0, 0.5, 0.75]);
    }

    #[test]
    fn nan_infinity_and_senseless_shares_are_refused() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let sample = [1.0, bad, 2.0];
            assert_eq!((mean(&sample), quantile(&sample, 0.5)), (None, None));
            assert_eq!(Bootstrap::default().mean(&sample), None);
            assert_eq!(quantile(&[1.0, 2.0], bad), None);
        }
        for confidence in [0.0, 1.0, f64::NAN] {
            let bootstrap = Bootstrap { confidence, ..Default::default() };
            assert_eq!(bootstrap.mean(&[1.0, 2.0]), None);
        }
        let none = Bootstrap { resamples: 0, ..Default::default() };
        assert_eq!(none.mean(&[1.0, 2.0]), None);
    }

    #[test]
    fn a_ratio_within_rounds_is_free_of_the_rounds_effect() {
        let rounds = [(50.0, 100.0), (500.0, 1000.0), (5.0, 10.0)];
        assert_eq!(Bootstrap::default().ratio(&rounds), Some(Interval { low: 0.5, high: 0.5 }));
        assert_eq!(ratios(&[(1.0, 4.0)]), Some(vec![0.25]));
        assert_eq!((ratios(&[]), ratios(&[(1.0, 0.0)]), ratios(&[(0.0, 0.0)])), (None, None, None));
    }

    #[test]
    fn the_seed_alone_decides_the_interval() {
        let sample: Vec<f64> = (0..9).map(|i| f64::from(i * i)).collect();
        let of = |seed| Bootstrap { resamples: 50, seed, ..Default::default() }.mean(&sample);
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }
}
