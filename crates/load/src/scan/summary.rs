//! ScanSummary of a scan: a row per rate, the knee, the peak, and the share of it that is kept past
//! the knee.
//!
//! A rate that was repeated is judged by its repetitions alone. The tries of the search are few,
//! and each was chosen by the results before it, which makes them a biased sample.

use weir_stats::{Bootstrap, Interval, median, ratios};

use super::plan::{ScanPlan, round_rate};
use super::point::{MeasuredPoint, PointPurpose, PointResult};
use super::search::{self, SearchResult};
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
pub struct RateSummary {
    /// Arrivals per second.
    pub rate: f64,
    /// PointPurpose of the points that count: repetitions, or tries of the search.
    pub purpose: PointPurpose,
    /// Number of points.
    pub points: usize,
    /// Number of valid points.
    pub valid: usize,
    /// Number of points at which the server held the rate.
    pub held: usize,
    /// Goodput, replies per second.
    pub goodput: Option<Estimate>,
    /// Goodput as a share of the peak's in the same round, 0 to 1 or slightly above; `None` if no
    /// point is valid.
    pub of_peak: Option<Estimate>,
    /// Median response time, nanoseconds; the median over the points with replies, as the next.
    /// `None` without any.
    pub response_p50_ns: Option<u64>,
    /// 99th percentile of the response time, nanoseconds.
    pub response_p99_ns: Option<u64>,
    /// Longest response time of all points, nanoseconds.
    pub response_max_ns: Option<u64>,
    /// Requests due, over all points.
    pub requests: u64,
    /// Failed requests by kind, over all points.
    pub errors: Errors,
    /// The reason of the first invalid point.
    pub invalid: Option<String>,
}

impl RateSummary {
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
    /// The goodput, replies per second.
    pub goodput: Estimate,
}

/// The share of the peak that is kept at a rate past the knee.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptGoodput {
    /// The rate as a multiple of the knee.
    pub multiple: f64,
    /// The rate, arrivals per second.
    pub rate: f64,
    /// The share of the peak's goodput, 0 to 1.
    pub of_peak: Estimate,
}

/// All results of a scan.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanSummary {
    /// The parameters of the scan.
    pub plan: ScanPlan,
    /// Number of points run.
    pub points: usize,
    /// The knee, or the reason why there is none.
    pub search_result: SearchResult,
    /// A row per rate, ascending.
    pub rows: Vec<RateSummary>,
    /// The highest goodput of the rates repeated, or of those tried if none was repeated; `None` if
    /// there were no replies.
    pub peak: Option<Peak>,
    /// The share of the peak kept at twice the knee and at the highest rate; empty without a knee.
    pub kept: Vec<KeptGoodput>,
    /// The lowest rate at which a valid point had errors, arrivals per second.
    pub errors_from: Option<f64>,
}

impl ScanSummary {
    /// Summarizes the points; `base` is the knee for which the repetitions were planned.
    pub(super) fn of(plan: &ScanPlan, measured: &[MeasuredPoint], base: Option<f64>) -> Self {
        let rates = search::rates(measured);
        let mut rows: Vec<RateSummary> =
            rates.iter().map(|rate| row(plan, measured, *rate)).collect();
        let peak = peak(&rows);
        for row in &mut rows {
            row.of_peak = peak.and_then(|peak| of_peak(plan, measured, row, peak));
        }
        let search_result = search::search_result(plan, measured);
        let erring = rows.iter().find(|row| row.valid > 0 && row.errors.total() > 0);
        Self {
            plan: plan.clone(),
            points: measured.len(),
            kept: kept(plan, &search_result, &rows, base),
            errors_from: erring.map(|row| row.rate),
            search_result,
            rows,
            peak,
        }
    }

    /// Returns the knee, arrivals per second, if there is one.
    pub fn knee(&self) -> Option<f64> {
        knee(&self.search_result)
    }
}

fn knee(search_result: &SearchResult) -> Option<f64> {
    if let SearchResult::Knee { held, .. } = search_result { Some(*held) } else { None }
}

fn row(plan: &ScanPlan, measured: &[MeasuredPoint], rate: f64) -> RateSummary {
    let all = search::deciding_points(measured, rate);
    let valid: Vec<&MeasuredPoint> = all.iter().copied().filter(|point| point.valid()).collect();
    let used = if valid.is_empty() { &all } else { &valid };
    let each = |of: fn(&PointResult) -> f64| -> Vec<f64> {
        used.iter().map(|point| of(&point.result)).collect()
    };
    let times_ns = |of: fn(&PointResult) -> Option<u64>| -> Vec<f64> {
        used.iter().filter_map(|point| of(&point.result)).map(|time_ns| time_ns as f64).collect()
    };
    let middle_ns = |of| median(&times_ns(of)).map(|time_ns| time_ns as u64);
    let mut errors = Errors::default();
    used.iter().for_each(|point| errors.add(&point.result.errors));
    let purpose = all.first().map_or(PointPurpose::Search, |point| point.point.purpose);
    let mut goodput = estimate(plan, &each(|result| result.goodput_per_s));
    if let (PointPurpose::Search, Some(goodput)) = (purpose, &mut goodput) {
        goodput.interval = None;
    }
    RateSummary {
        rate,
        purpose,
        points: all.len(),
        valid: valid.len(),
        held: all.iter().filter(|point| point.held).count(),
        goodput,
        of_peak: None,
        response_p50_ns: middle_ns(|result| result.response_p50_ns),
        response_p99_ns: middle_ns(|result| result.response_p99_ns),
        response_max_ns: used.iter().filter_map(|point| point.result.response_max_ns).max(),
        requests: used.iter().map(|point| point.result.requests).sum(),
        errors,
        invalid: all.iter().find_map(|point| point.result.invalid.clone()),
    }
}

fn estimate(plan: &ScanPlan, sample: &[f64]) -> Option<Estimate> {
    let bootstrap = Bootstrap { seed: plan.seed, ..Bootstrap::default() };
    median(sample).map(|value| Estimate { value, interval: bootstrap.median(sample) })
}

fn peak(rows: &[RateSummary]) -> Option<Peak> {
    let highest = |purpose| {
        // The last of equals is the greatest, so the lowest rate comes last.
        let valid = rows.iter().rev().filter(|row| row.purpose == purpose && row.valid > 0);
        valid
            .filter_map(|row| row.goodput.map(|goodput| Peak { rate: row.rate, goodput }))
            .filter(|peak| peak.goodput.value > 0.0)
            .max_by(|one, other| one.goodput.value.total_cmp(&other.goodput.value))
    };
    highest(PointPurpose::Repeat).or_else(|| highest(PointPurpose::Search))
}

/// Returns a row's goodput as a share of the peak's: round by round if both were repeated,
/// otherwise the ratio of the medians, which has no interval.
fn of_peak(
    plan: &ScanPlan,
    measured: &[MeasuredPoint],
    row: &RateSummary,
    peak: Peak,
) -> Option<Estimate> {
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
fn pairs(measured: &[MeasuredPoint], rate: f64, other: f64) -> Vec<(f64, f64)> {
    let repeated = |rate| {
        measured.iter().filter(move |MeasuredPoint { point, .. }| {
            point.rate == rate && point.purpose == PointPurpose::Repeat
        })
    };
    let valid = |rate| repeated(rate).filter(|point| point.valid());
    let same_round = |one: &MeasuredPoint| {
        let mut others = valid(other);
        let found = others.find(|each| each.point.repetition == one.point.repetition)?;
        Some((one.result.goodput_per_s, found.result.goodput_per_s))
    };
    valid(rate).filter_map(same_round).collect()
}

fn kept(
    plan: &ScanPlan,
    search_result: &SearchResult,
    rows: &[RateSummary],
    base: Option<f64>,
) -> Vec<KeptGoodput> {
    let (Some(knee), Some(base)) = (knee(search_result), base) else { return Vec::new() };
    let mut multiples = vec![2.0, plan.to];
    multiples.dedup();
    let at = |multiple: &f64| {
        let rate = round_rate(base * multiple);
        let row = rows.iter().find(|row| row.rate == rate && row.valid > 0)?;
        let repeated = row.purpose == PointPurpose::Repeat && rate > knee;
        let of_peak = row.of_peak.filter(|_| repeated)?;
        Some(KeptGoodput { multiple: rate / knee, rate, of_peak })
    };
    multiples.iter().filter_map(at).collect()
}
