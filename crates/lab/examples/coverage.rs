//! Prints how often the bootstrap interval of a median contains the true median, by the number of
//! values: for symmetric and for skewed noise, beside the most that any interval within the values
//! can have. A second table is of the share that a server keeps of its own peak, where the peak is
//! chosen by the same values. The tables of docs/lab.md are its output.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_stats::{Bootstrap, coverage_max, median, quantile};

/// Number of samples for each row: a standard error of 0.3 points at a coverage of 90 %.
const TRIALS: u64 = 10_000;

/// Resamples of each interval; the lab takes 2000, which changes no row by a point.
const RESAMPLES: usize = 500;

/// Number of sweeps for each row of the second table: a standard error of 0.9 points at 80 %.
const SWEEPS: u32 = 2000;

/// Standard deviation of the noise that the values of a round share, and of that of each of them.
const NOISE: f64 = 0.03;

/// Goodput at the last value of a sweep, as a share of the highest.
const KEPT: f64 = 0.9;

fn main() {
    println!("| n | at best | normal noise | exponential noise |\n|---|---|---|---|");
    for n in [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30] {
        let most = 100.0 * coverage_max(n);
        let (even, skewed) = (coverage(n, normal, 0.0), coverage(n, exponential, 2_f64.ln()));
        println!("| {n} | {most:.1} % | {even:.0} % | {skewed:.0} % |");
    }
    println!("\n| n | one peak | mean | five values as high | mean |\n|---|---|---|---|---|");
    for n in [5, 6, 8] {
        let [peak, plateau] = [&[0.5, 1.0, 0.8][..], &[1.0; 5]].map(|values| kept(n, values));
        let cells = |(covered, mean): (f64, f64)| format!("{covered:.0} % | {mean:.0} %");
        println!("| {n} | {} | {} |", cells(peak), cells(plateau));
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

/// Returns the share of sweeps, in percent, whose interval contains what is truly kept of the peak,
/// and the mean of what they say, in percent. A sweep has `n` rounds of these values and of a last
/// one.
fn kept(n: usize, values: &[f64]) -> (f64, f64) {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(n as u64);
    let tail = (1.0 - Bootstrap::default().confidence) / 2.0;
    let (mut covered, mut sum) = (0.0, 0.0);
    for _ in 0..SWEEPS {
        let rounds: Vec<Vec<f64>> = (0..n).map(|_| round(values, &mut chance)).collect();
        let said = share_kept(&rounds.iter().collect::<Vec<_>>());
        let mut resample = || -> f64 {
            let drawn = (0..n).map(|_| &rounds[chance.random_range(0..n)]);
            share_kept(&drawn.collect::<Vec<_>>())
        };
        let resampled: Vec<f64> = (0..RESAMPLES).map(|_| resample()).collect();
        let end = |share| quantile(&resampled, share).unwrap_or(said);
        let (low, high) = (end(tail).min(said), end(1.0 - tail).max(said));
        covered += f64::from((low..=high).contains(&KEPT));
        sum += said;
    }
    let sweeps = f64::from(SWEEPS);
    (100.0 * covered / sweeps, 100.0 * sum / sweeps)
}

/// Draws a round: goodput at each value of a sweep, and at a last one past the peak.
fn round(values: &[f64], chance: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let shared = 1.0 + NOISE * normal(chance);
    let noisy = |value: &f64| value * shared * (1.0 + NOISE * normal(chance));
    values.iter().chain([&KEPT]).map(noisy).collect()
}

/// Returns the median share, over rounds, of goodput at the last value, of that at the value where
/// its median is highest.
fn share_kept(rounds: &[&Vec<f64>]) -> f64 {
    let of = |value: usize| middle(rounds.iter().map(|round| round[value]));
    let count = rounds.first().copied().map_or(0, Vec::len);
    let medians: Vec<f64> = (0..count).map(of).collect();
    let peak = (0..count).max_by(|&one, &other| medians[one].total_cmp(&medians[other]));
    middle(rounds.iter().filter_map(|round| Some(round.last()? / round[peak?])))
}

fn middle(numbers: impl Iterator<Item = f64>) -> f64 {
    median(&numbers.collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// Draws from the standard normal distribution (Box and Muller 1958).
fn normal(chance: &mut Xoshiro256PlusPlus) -> f64 {
    let (first, second): (f64, f64) = (chance.random(), chance.random());
    (-2.0 * (1.0 - first).ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}

fn exponential(chance: &mut Xoshiro256PlusPlus) -> f64 {
    -(1.0 - chance.random::<f64>()).ln()
}
