//! Random laws: independent gaps, added up. No precision is lost over hours: whole nanoseconds are
//! added as integers, and the fraction of each gap is carried over to the next.
//!
//! The generator does not use the seed as given, because the workload's draws use the same seed and
//! must be independent of these.

use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::units::NS_PER_S;

/// Combined with the seed to separate these draws from others with the same seed.
const STREAM: u64 = u64::from_be_bytes(*b"arrivals");

#[derive(Clone, Debug)]
pub(super) struct Gaps {
    law: Law,
    chance: Xoshiro256PlusPlus,
    at_ns: u64,
    /// Fraction of a nanosecond by which the current time is past `at_ns`; 0 to 1.
    fraction_ns: f64,
}

#[derive(Clone, Debug)]
enum Law {
    Exponential { mean_ns: f64 },
    Uniform { shortest_ns: f64, width_ns: f64 },
}

impl Gaps {
    pub(super) fn exponential(rate: f64, seed: u64) -> Self {
        Self::new(Law::Exponential { mean_ns: NS_PER_S / rate }, seed)
    }

    pub(super) fn uniform(shortest_s: f64, longest_s: f64, seed: u64) -> Self {
        let shortest_ns = shortest_s * NS_PER_S;
        Self::new(Law::Uniform { shortest_ns, width_ns: longest_s * NS_PER_S - shortest_ns }, seed)
    }

    fn new(law: Law, seed: u64) -> Self {
        let chance = Xoshiro256PlusPlus::seed_from_u64(seed ^ STREAM);
        Self { law, chance, at_ns: 0, fraction_ns: 0.0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        let past_ns = self.fraction_ns + self.gap_ns();
        let whole_ns = past_ns as u64;
        self.at_ns = self.at_ns.saturating_add(whole_ns);
        self.fraction_ns = past_ns - whole_ns as f64;
        self.at_ns
    }

    fn gap_ns(&mut self) -> f64 {
        match self.law {
            Law::Exponential { mean_ns } => mean_ns * self.chance.sample::<f64, _>(Exp1),
            Law::Uniform { shortest_ns, width_ns } => {
                shortest_ns + width_ns * self.chance.random::<f64>()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 100_000;

    fn gaps_s(mut law: Gaps) -> Vec<f64> {
        let mut last_ns = 0;
        let mut gap = || {
            let start_ns = law.next();
            (start_ns - std::mem::replace(&mut last_ns, start_ns)) as f64 / NS_PER_S
        };
        (0..DRAWS).map(|_| gap()).collect()
    }

    fn mean_and_variance(draws: &[f64]) -> (f64, f64) {
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let square = |draw: &f64| (draw - mean).powi(2);
        (mean, draws.iter().map(square).sum::<f64>() / draws.len() as f64)
    }

    /// Returns the Kolmogorov-Smirnov statistic, multiplied by the root of the number of draws:
    /// above 1.63 one time in a hundred if the draws follow `share_below`.
    fn kolmogorov_smirnov(mut draws: Vec<f64>, share_below: impl Fn(f64) -> f64) -> f64 {
        draws.sort_by(f64::total_cmp);
        let count = draws.len() as f64;
        let apart = draws.iter().enumerate().map(|(rank, draw)| {
            let expected = share_below(*draw);
            (expected - rank as f64 / count).max((rank + 1) as f64 / count - expected)
        });
        apart.fold(0.0, f64::max) * count.sqrt()
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let draws = gaps_s(Gaps::exponential(1000.0, 1));
        let (mean, variance) = mean_and_variance(&draws);
        assert!((mean / 1e-3 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance / 1e-6 - 1.0).abs() < 0.03, "{variance}");
        let distance = kolmogorov_smirnov(draws, |gap| 1.0 - (-gap * 1000.0).exp());
        assert!(distance < 1.63, "{distance}");
    }

    #[test]
    fn poisson_counts_scatter_like_poisson() {
        let mut law = Gaps::exponential(1000.0, 1);
        let mut counts = [0.0; 100];
        let starts = std::iter::from_fn(|| Some((law.next() / 1_000_000_000) as usize));
        starts.take_while(|second| *second < 100).for_each(|second| counts[second] += 1.0);
        // Chi-square with 100 degrees of freedom: 99 % between 67 and 140.
        let chi_square: f64 = counts.iter().map(|count: &f64| (count - 1000.0).powi(2)).sum();
        let chi_square = chi_square / 1000.0;
        assert!((67.0..140.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn uniform_gaps_fill_their_range_evenly() {
        let draws = gaps_s(Gaps::uniform(0.5e-3, 1.5e-3, 1));
        assert!(draws.iter().all(|gap| (0.499_999e-3..1.500_001e-3).contains(gap)));
        let (mean, variance) = mean_and_variance(&draws);
        assert!((mean / 1e-3 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance * 12.0 / 1e-6 - 1.0).abs() < 0.03, "{variance}");
        let distance = kolmogorov_smirnov(draws, |gap| ((gap - 0.5e-3) / 1e-3).clamp(0.0, 1.0));
        assert!(distance < 1.63, "{distance}");
    }

    #[test]
    fn fractions_of_a_nanosecond_are_not_lost() {
        let mut law = Gaps::uniform(2.5e-9, 2.5e-9, 1);
        let starts: Vec<u64> = (0..4).map(|_| law.next()).collect();
        assert_eq!(starts, [2, 5, 7, 10]);
        law.at_ns = 1 << 62;
        assert_eq!([law.next(), law.next()], [(1 << 62) + 2, (1 << 62) + 5]);
    }

    #[test]
    fn a_gap_too_long_to_hold_is_the_end_of_time() {
        let mut law = Gaps::exponential(f64::MIN_POSITIVE, 1);
        assert_eq!([law.next(), law.next()], [u64::MAX; 2]);
    }
}
