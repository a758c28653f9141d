//! Summary of a scan: a row per rate, the knee, the peak, and the share of it that is kept past the
//! knee.
//!
//! A rate that was repeated is judged by its repetitions alone. The tries of the search are few,
//! and each was chosen by the results before it, which makes them a biased sample.

use weir_stats::{Bootstrap, Interval, median, ratios};

use super::search::{self, Finding};
use super::{Measured, Plan, PointResult, Stage};
use crate::measure::Errors;

/// A median with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median over the repetitions.
    pub value: f64,
    /// The 95 % bootstrap interval; `None` for a single point, and for the tries of a search. The
    /// best coverage of so few repetitions is [`weir_stats::coverage_max`].
    pub interval: Option<Interval>,
}

/// All points at a rate. Figures are of the valid points, or of the invalid ones if none is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Arrivals per second.
    pub rate: f64,
    /// Stage of the points that count: repetitions, or tries of the search.
    pub stage: Stage,
    /// Number of points.
    pub points: usize,
    /// Number of valid points.
    pub valid: usize,
    /// Number of points at which the server held the rate.
    pub held: usize,
    /// Replies per second.
    pub goodput: Option<Estimate>,
    /// Goodput as a share of the peak's in the same round, 0 to 1 or slightly above; `None` if no
    /// point is valid.
    pub of_peak: Option<Estimate>,
    /// Median response time, nanoseconds; the median over the points, as the next.
    pub response_p50_ns: u64,
    /// 99th percentile of the response time, nanoseconds.
    pub response_p99_ns: u64,
    /// Longest response time of all points, nanoseconds.
    pub response_max_ns: u64,
    /// Requests due, over all points.
    pub requests: u64,
    /// Failed requests by kind, over all points.
    pub errors: Errors,
    /// The reason of the first invalid point.
    pub invalid: Option<String>,
}

impl Row {
    /// Returns failed requests as a share of those due, 0 to 1.
    pub fn error_share(&self) -> f64 {
        self.errors.total() as f64 / self.requests.max(1) as f64
    }
}

/// The highest goodput; if several rates have the same, the lowest of these rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The rate at which it was measured, arrivals per second.
    pub rate: f64,
    /// Replies per second.
    pub goodput: Estimate,
}

/// The share of the peak that is kept at a rate past the knee.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// The rate as a multiple of the knee.
    pub multiple: f64,
    /// The rate, arrivals per second.
    pub rate: f64,
    /// The share of the peak's goodput, 0 to 1.
    pub of_peak: Estimate,
}

/// All results of a scan.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The parameters of the scan.
    pub plan: Plan,
    /// Number of points run.
    pub points: usize,
    /// The knee, or the reason why there is none.
    pub finding: Finding,
    /// A row per rate, ascending.
    pub rows: Vec<Row>,
    /// The highest goodput of the rates repeated, or of those tried if none was repeated; `None` if
    /// there were no replies.
    pub peak: Option<Peak>,
    /// The share of the peak kept at twice the knee and at the highest rate; empty without a knee.
    pub kept: Vec<Kept>,
    /// The lowest rate at which a valid point had errors, arrivals per second.
    pub errors_from: Option<f64>,
}

impl Summary {
    /// Summarizes the points; `base` is the knee for which the repetitions were planned.
    pub(super) fn of(plan: &Plan, measured: &[Measured], base: Option<f64>) -> Self {
        let rates = search::rates(measured);
        let mut rows: Vec<Row> = rates.iter().map(|rate| row(plan, measured, *rate)).collect();
        let peak = peak(&rows);
        for row in &mut rows {
            row.of_peak = peak.and_then(|peak| of_peak(plan, measured, row, peak));
        }
        let finding = search::finding(plan, measured);
        let erring = rows.iter().find(|row| row.valid > 0 && row.errors.total() > 0);
        Self {
            plan: plan.clone(),
            points: measured.len(),
            kept: kept(plan, &finding, &rows, base),
            errors_from: erring.map(|row| row.rate),
            finding,
            rows,
            peak,
        }
    }

    /// Returns the knee, arrivals per second, if there is one.
    pub fn knee(&self) -> Option<f64> {
        knee(&self.finding)
    }
}

fn knee(finding: &Finding) -> Option<f64> {
    if let Finding::Knee { held, .. } = finding { Some(*held) } else { None }
}

fn row(plan: &Plan, measured: &[Measured], rate: f64) -> Row {
    let all = search::judges(measured, rate);
    let valid: Vec<&Measured> = all.iter().copied().filter(|point| point.valid()).collect();
    let used = if valid.is_empty() { &all } else { &valid };
    let each = |of: fn(&PointResult) -> f64| -> Vec<f64> {
        used.iter().map(|point| of(&point.result)).collect()
    };
    let middle_ns = |of| median(&each(of)).unwrap_or(0.0) as u64;
    let mut errors = Errors::default();
    used.iter().for_each(|point| errors.add(&point.result.errors));
    let stage = all.first().map_or(Stage::Search, |point| point.point.stage);
    let mut goodput = estimate(plan, &each(|result| result.replies_per_s));
    if let (Stage::Search, Some(goodput)) = (stage, &mut goodput) {
        goodput.interval = None;
    }
    Row {
        rate,
        stage,
        points: all.len(),
        valid: valid.len(),
        held: all.iter().filter(|point| point.held).count(),
        goodput,
        of_peak: None,
        response_p50_ns: middle_ns(|result| result.response_p50_ns as f64),
        response_p99_ns: middle_ns(|result| result.response_p99_ns as f64),
        response_max_ns: used.iter().map(|point| point.result.response_max_ns).max().unwrap_or(0),
        requests: used.iter().map(|point| point.result.requests).sum(),
        errors,
        invalid: all.iter().find_map(|point| point.result.invalid.clone()),
    }
}

fn estimate(plan: &Plan, sample: &[f64]) -> Option<Estimate> {
    let bootstrap = Bootstrap { seed: plan.seed, ..Bootstrap::default() };
    median(sample).map(|value| Estimate { value, interval: bootstrap.median(sample) })
}

fn peak(rows: &[Row]) -> Option<Peak> {
    let highest = |stage| {
        // The last of equals is the greatest, so the lowest rate comes last.
        let valid = rows.iter().rev().filter(|row| row.stage == stage && row.valid > 0);
        valid
            .filter_map(|row| row.goodput.map(|goodput| Peak { rate: row.rate, goodput }))
            .filter(|peak| peak.goodput.value > 0.0)
            .max_by(|one, other| one.goodput.value.total_cmp(&other.goodput.value))
    };
    highest(Stage::Repeat).or_else(|| highest(Stage::Search))
}

/// Returns a row's goodput as a share of the peak's: round by round if both were repeated,
/// otherwise the ratio of the medians, which has no interval.
fn of_peak(plan: &Plan, measured: &[Measured], row: &Row, peak: Peak) -> Option<Estimate> {
    if row.valid == 0 {
        return None;
    }
    let shares = ratios(&pairs(measured, row.rate, peak.rate));
    let paired = shares.and_then(|shares| estimate(plan, &shares));
    paired.or_else(|| {
        let value = row.goodput?.value / peak.goodput.value;
        value.is_finite().then_some(Estimate { value, interval: None })
    })
}

/// Returns the goodput at two rates in each round in which both points are valid.
fn pairs(measured: &[Measured], rate: f64, other: f64) -> Vec<(f64, f64)> {
    let repeated = |rate| {
        measured.iter().filter(move |Measured { point, .. }| {
            point.rate == rate && point.stage == Stage::Repeat
        })
    };
    let valid = |rate| repeated(rate).filter(|point| point.valid());
    let same_round = |one: &Measured| {
        let mut others = valid(other);
        let found = others.find(|each| each.point.repetition == one.point.repetition)?;
        Some((one.result.replies_per_s, found.result.replies_per_s))
    };
    valid(rate).filter_map(same_round).collect()
}

fn kept(plan: &Plan, finding: &Finding, rows: &[Row], base: Option<f64>) -> Vec<Kept> {
    let (Some(knee), Some(base)) = (knee(finding), base) else { return Vec::new() };
    let mut multiples = vec![2.0, plan.to];
    multiples.dedup();
    let at = |multiple: &f64| {
        let rate = search::round(base * multiple);
        let row = rows.iter().find(|row| row.rate == rate && row.valid > 0)?;
        let repeated = row.stage == Stage::Repeat && rate > knee;
        let of_peak = row.of_peak.filter(|_| repeated)?;
        Some(Kept { multiple: rate / knee, rate, of_peak })
    };
    multiples.iter().filter_map(at).collect()
}
