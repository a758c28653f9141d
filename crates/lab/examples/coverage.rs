//! Prints how often the bootstrap interval of a median contains the true median, by the number of
//! values: for symmetric and for skewed noise, beside the most that any interval within the values
//! can have. The table of docs/lab.md is its output.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_stats::{Bootstrap, coverage_max};

/// Number of samples for each row: a standard error of 0.3 points at a coverage of 90 %.
const TRIALS: u64 = 10_000;

/// Resamples of each interval; the lab takes 2000, which changes no row by a point.
const RESAMPLES: usize = 500;

fn main() {
    println!("| n | at best | normal noise | exponential noise |\n|---|---|---|---|");
    for n in [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30] {
        let most = 100.0 * coverage_max(n);
        let (even, skewed) = (coverage(n, normal, 0.0), coverage(n, exponential, 2_f64.ln()));
        println!("| {n} | {most:.1} % | {even:.0} % | {skewed:.0} % |");
    }
}

/// Returns the share of samples, in percent, whose interval contains the true median.
fn coverage(n: usize, draw: fn(&mut Xoshiro256PlusPlus) -> f64, median: f64) -> f64 {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(n as u64);
    let contains = |seed: &u64| {
        let sample: Vec<f64> = (0..n).map(|_| draw(&mut chance)).collect();
        let bootstrap = Bootstrap { resamples: RESAMPLES, seed: *seed, ..Bootstrap::default() };
        let interval = bootstrap.median(&sample);
        interval.is_some_and(|interval| interval.low <= median && median <= interval.high)
    };
    (1..=TRIALS).filter(contains).count() as f64 * 100.0 / TRIALS as f64
}

/// Draws from the standard normal distribution (Box and Muller 1958).
fn normal(chance: &mut Xoshiro256PlusPlus) -> f64 {
    let (first, second): (f64, f64) = (chance.random(), chance.random());
    (-2.0 * (1.0 - first).ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}

fn exponential(chance: &mut Xoshiro256PlusPlus) -> f64 {
    -(1.0 - chance.random::<f64>()).ln()
}
