//! Random draws that several workloads make.

use std::f64::consts::TAU;

use rand::{Rng, RngExt};

/// Returns the sums of the shares up to each.
pub(super) fn cumulative(shares: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |share: &f64| {
        sum += share;
        sum
    };
    shares.iter().map(add).collect()
}

/// Returns the index of the interval into which `point` (0 to 1) falls; the last one if rounding
/// left the sum short of it.
pub(super) fn pick(cumulative: &[f64], point: f64) -> u32 {
    let index = cumulative.partition_point(|&sum| sum <= point);
    index.min(cumulative.len().saturating_sub(1)) as u32
}

/// Draws from the standard normal distribution (Box and Muller, 1958).
pub(super) fn normal(chance: &mut impl Rng) -> f64 {
    let (radius, angle): (f64, f64) = (1.0 - chance.random::<f64>(), chance.random());
    (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
}
