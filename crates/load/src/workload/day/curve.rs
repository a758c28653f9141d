//! The number of requests in each second of a day.
//!
//! The curve is that of a company's proxy (banga-scalable §6): the hour from ten to eleven has 1.8
//! times the mean rate, and 54 of the 96 quarter-hours have more than two thirds of it (2.6 million
//! requests a day; tables 3 to 5). Two harmonics of the day meet both. From one second to the next
//! the rate varies by a log-normal factor, so that the busiest second has about twice the rate of
//! its hour, as in table 3, and the requests of a second are Poisson.

use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::workload::draw::normal;

/// Seconds of a day.
const DAY_S: u32 = 86_400;

/// Amplitude, and hour of the maximum, of the first and the second harmonic.
const HARMONICS: [(f64, f64); 2] = [(0.85, 12.5), (0.2, 0.5)];

/// Deviation of the logarithm of the factor by which a second's rate differs from the curve.
const SECOND_SIGMA: f64 = 0.15;

/// Returns the number of requests in each second; together they are `requests`.
pub(super) fn counts(requests: u64, seed: u64) -> Vec<u64> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    let weights: Vec<f64> = (0..DAY_S)
        .map(|second| rate(f64::from(second)) * (SECOND_SIGMA * normal(&mut chance)).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let mut ends = Vec::with_capacity(weights.len());
    let mut sum = 0.0;
    ends.extend(weights.iter().map(|weight| {
        sum += weight / total;
        sum
    }));
    let mut counts = vec![0; weights.len()];
    // Uniform draws of the cumulated curve: Poisson in each second, given their sum.
    for _ in 0..requests {
        let point: f64 = chance.random();
        let second = ends.partition_point(|end| *end <= point);
        counts[second.min(weights.len() - 1)] += 1;
    }
    counts
}

/// Returns the rate at a second of the day, as a multiple of the mean.
fn rate(second: f64) -> f64 {
    let harmonic = |(order, (amplitude, hour)): (f64, (f64, f64))| {
        amplitude * (order * TAU * (second / 3600.0 - hour) / 24.0).cos()
    };
    1.0 + [1.0, 2.0].into_iter().zip(HARMONICS).map(harmonic).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARTER_S: usize = 900;

    #[test]
    fn the_curve_has_the_papers_peak_hour_and_its_busy_quarters() {
        let requests = 2_000_000;
        let counts = counts(requests, 1);
        assert_eq!(counts.iter().sum::<u64>(), requests);
        let mean = requests as f64 / 96.0;
        let quarters: Vec<f64> = counts
            .chunks(QUARTER_S)
            .map(|quarter| quarter.iter().sum::<u64>() as f64 / mean)
            .collect();
        let peak_hour = quarters[40..44].iter().sum::<f64>() / 4.0;
        assert!((1.75..1.9).contains(&peak_hour), "{peak_hour}");
        let busy = quarters.iter().filter(|quarter| **quarter > 2.0 / 3.0).count();
        assert!((52..=56).contains(&busy), "{busy}");
        let most = *counts.iter().max().unwrap() as f64 / (requests as f64 / f64::from(DAY_S));
        assert!((3.0..6.0).contains(&most), "busiest second: {most} times the mean");
    }

    #[test]
    fn a_day_of_few_requests_has_all_of_them() {
        assert_eq!(counts(3, 7).iter().sum::<u64>(), 3);
        assert_eq!(counts(0, 7).iter().sum::<u64>(), 0);
    }
}
