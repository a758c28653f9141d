//! The parameters of a scan, and the rates that they have repeated.

use serde::Serialize;

/// The parameters of a scan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScanPlan {
    /// Rate at which the search begins, arrivals per second.
    pub from: f64,
    /// Highest rate to try, arrivals per second.
    pub rate_max: f64,
    /// Highest rate to repeat, as a multiple of the knee.
    pub to: f64,
    /// Multiples of the knee to repeat, none above `to`; 1 and `to` are always repeated.
    pub multiples: Vec<f64>,
    /// Number of repetitions of each rate.
    pub repetitions: u32,
    /// MeasuredPoint time of a point, nanoseconds.
    pub duration_ns: u64,
    /// Smallest goodput with which a rate is held, as a share of the requests due, 0 to 1.
    pub goodput_min: f64,
    /// Largest share of failed requests, 0 to 1, with which a rate is held.
    pub errors_max: f64,
    /// Largest 99th percentile of the response time with which a rate is held, nanoseconds; 0 is no
    /// limit.
    pub p99_ns_max: u64,
    /// Seed of the order of repetitions, and of the bootstrap intervals.
    pub seed: u64,
}

impl Default for ScanPlan {
    fn default() -> Self {
        Self {
            from: 100.0,
            rate_max: 10_000_000.0,
            to: 4.0,
            multiples: vec![1.0, 1.25, 1.5, 2.0, 3.0, 4.0],
            repetitions: 3,
            duration_ns: 5_000_000_000,
            goodput_min: 0.98,
            errors_max: 0.01,
            p99_ns_max: 0,
            seed: 1,
        }
    }
}

impl ScanPlan {
    /// Checks the parameters; an error is a sentence about the first one that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let rules = [
            (positive(self.from), "a scan begins at a rate above 0"),
            (positive(self.rate_max), "a scan ends at a rate above 0"),
            (self.from <= self.rate_max, "a scan cannot begin beyond its highest rate"),
            (self.to.is_finite() && self.to >= 1.0, "a scan goes to 1 times the knee or further"),
            (
                self.multiples.iter().all(|each| positive(*each)),
                "multiples of the knee are numbers above 0",
            ),
            (
                self.multiples.iter().all(|each| *each <= self.to),
                "multiples of the knee (--multiples) are not above how far the scan goes (--to)",
            ),
            (self.repetitions > 0, "a scan repeats each rate once or more"),
            (self.duration_ns > 0, "a point of a scan takes some time"),
            (
                share(self.goodput_min),
                "the smallest goodput is a share of the requests due, from 0 to 1",
            ),
            (share(self.errors_max), "the share of errors is from 0 to 1"),
        ];
        let broken = rules.into_iter().find(|(kept, _)| !kept);
        broken.map_or(Ok(()), |(_, sentence)| Err(sentence.into()))
    }

    /// Returns the rates to repeat for a knee at `knee`, ascending.
    pub(super) fn repeated(&self, knee: f64) -> Vec<f64> {
        let mut multiples = self.multiples.clone();
        multiples.extend([1.0, self.to]);
        multiples.sort_unstable_by(f64::total_cmp);
        let mut rates: Vec<f64> = multiples.iter().map(|each| round_rate(knee * each)).collect();
        rates.dedup();
        rates.retain(|rate| *rate <= self.rate_max);
        rates
    }
}

/// Rounds a rate to whole arrivals per second where that changes it by 0.5 % or less.
pub(super) fn round_rate(rate: f64) -> f64 {
    if rate >= 100.0 { rate.round() } else { rate }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_and_the_farthest_point_are_always_repeated() {
        let rates =
            |to, multiples| ScanPlan { to, multiples, ..ScanPlan::default() }.repeated(1000.0);
        assert_eq!(rates(2.5, vec![1.5, 2.5]), [1000.0, 1500.0, 2500.0]);
        assert_eq!(rates(1.0, vec![0.5]), [500.0, 1000.0]);
    }
}
