//! A scan as plain ASCII text: sentences, a table with a row per rate, and bars of goodput against
//! rate.

use std::fmt::Write;

use weir_stats::{Interval, coverage_max};

use super::point::{MeasuredPoint, PointPurpose};
use super::search::SearchResult;
use super::summary::{Estimate, KeptGoodput, RateSummary, ScanSummary};

/// Columns to the left of a bar: mark, rate and goodput.
const BAR_LEFT: usize = 25;
/// The shortest length of a full bar, even if the text becomes wider than asked for.
const BAR_MIN: usize = 10;

impl SearchResult {
    /// Returns the search_result as one sentence.
    pub fn sentence(&self) -> String {
        let per_s = |rate: &f64| format!("{}/s", figure(*rate));
        match self {
            SearchResult::Unfinished => "the scan was not finished: there is no knee yet".into(),
            SearchResult::Knee { held, failed } => {
                let (held, failed) = (per_s(held), per_s(failed));
                format!("the knee is at {held}: the server held it, and did not hold {failed}")
            }
            SearchResult::ClientLimit { held: Some(held), invalid, reason } => format!(
                "the server was not saturated: the client's limit is {} (at {}: {reason})",
                per_s(held),
                per_s(invalid)
            ),
            SearchResult::ClientLimit { held: None, invalid, reason } => {
                let limit = per_s(invalid);
                format!(
                    "the server was not saturated: the client's limit is below {limit} ({reason})"
                )
            }
            SearchResult::RateMax { held } => {
                format!("the server was not saturated: it held {}, the most tried", per_s(held))
            }
            SearchResult::NothingHeld { lowest } => {
                format!("the server held no rate, not even {}", per_s(lowest))
            }
        }
    }
}

impl MeasuredPoint {
    /// Returns a line for a point that has just ended, without a newline.
    pub fn to_text(&self) -> String {
        let (point, result) = (&self.point, &self.result);
        let end = match (&result.invalid, self.held) {
            (Some(reason), _) => format!("INVALID: {reason}"),
            (None, true) => "held".into(),
            (None, false) => "not held".into(),
        };
        format!(
            "{} {:>9}/s: goodput {:>9}/s, p99 {}, errors {} %: {end}",
            point.purpose.name(),
            figure(point.rate),
            figure(result.goodput_per_s),
            or_dash(result.response_p99_ns.map(|p99_ns| format!("{} ms", ms(p99_ns)))),
            percent(result.error_share()),
        )
    }
}

impl ScanSummary {
    /// Returns the whole summary for a terminal: the search_result, the table, the errors, the
    /// bars. Bars fit lines of `width` columns; the table takes about 100.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        self.write_head(&mut out);
        self.write_table(&mut out);
        self.write_notes(&mut out);
        self.write_bars(&mut out, width);
        out
    }

    // Writing into a String cannot fail.
    fn write_head(&self, out: &mut String) {
        let plan = &self.plan;
        let seconds = plan.duration_ns as f64 / 1e9;
        let (points, seed) = (self.points, plan.seed);
        let _ = writeln!(out, "weir load scan: {points} points of {seconds} s, seed {seed}");
        let _ = writeln!(out, "  {}", self.search_result.sentence());
        if let Some(peak) = &self.peak {
            let (goodput, rate) = (replies(&peak.goodput), figure(peak.rate));
            let _ = writeln!(out, "  peak goodput {goodput} replies/s, at {rate}/s");
        }
        for KeptGoodput { multiple, rate, of_peak } in &self.kept {
            let (kept, rate) = (share(of_peak), figure(*rate));
            let _ =
                writeln!(out, "  kept at {multiple:.2} x the knee ({rate}/s): {kept} of the peak");
        }
        if let Some(rate) = self.errors_from {
            let _ = writeln!(out, "  errors from {}/s on", figure(rate));
        }
    }

    fn write_table(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\n  {:>9} {:>6} {:>10} {:>21} {:>8} {:>9} {:>9} {:>7}  held",
            "rate/s", "x knee", "goodput/s", "interval", "% peak", "p50 ms", "p99 ms", "% error"
        );
        for row in &self.rows {
            let multiple = self.knee().map(|knee| format!("{:.2}", row.rate / knee));
            let interval = row.goodput.and_then(|goodput| goodput.interval);
            let of_peak = row.of_peak.map(|of_peak| percent(of_peak.value));
            let _ = writeln!(
                out,
                "{} {:>9} {:>6} {:>10} {:>21} {:>8} {:>9} {:>9} {:>7}  {}",
                self.mark(row),
                figure(row.rate),
                or_dash(multiple),
                or_dash(row.goodput.map(|goodput| figure(goodput.value))),
                or_dash(interval.map(|interval| range(interval, figure))),
                or_dash(of_peak),
                or_dash(row.response_p50_ns.map(ms)),
                or_dash(row.response_p99_ns.map(ms)),
                percent(row.error_share()),
                held(row),
            );
        }
    }

    fn write_notes(&self, out: &mut String) {
        let repeated = self.rows.iter().any(|row| row.purpose == PointPurpose::Repeat);
        if repeated {
            let n = self.plan.repetitions;
            let most = 100.0 * coverage_max(n as usize);
            let _ =
                writeln!(out, "\n  intervals: 95 % bootstrap of the median over {n} repetitions");
            if most < 95.0 {
                let _ = writeln!(out, "  ({n} values cannot make one worth more than {most:.0} %)");
            }
        }
        let erring = |row: &&RateSummary| row.errors.total() > 0;
        if self.rows.iter().any(|row| erring(&row)) {
            let _ = writeln!(out, "\n  errors by kind, % of requests");
        }
        for row in self.rows.iter().filter(erring) {
            let _ = writeln!(out, "  {:>9}  {}", figure(row.rate), kinds(row));
        }
    }

    fn write_bars(&self, out: &mut String, width: usize) {
        let full = width.saturating_sub(BAR_LEFT).max(BAR_MIN);
        let goodput = |row: &RateSummary| row.goodput.map_or(0.0, |goodput| goodput.value);
        let highest = self.rows.iter().map(goodput).fold(0.0, f64::max);
        let _ = writeln!(out, "\n  {:>9} {:>10}  * is the knee", "rate/s", "goodput/s");
        for row in &self.rows {
            let length = full as f64 * goodput(row) / highest.max(f64::MIN_POSITIVE);
            let fill = if row.valid > 0 { "#" } else { "?" };
            let bar = fill.repeat(length.round() as usize);
            let (mark, rate) = (self.mark(row), figure(row.rate));
            let _ = writeln!(out, "{mark} {rate:>9} {:>10} |{bar}", figure(goodput(row)));
        }
    }

    fn mark(&self, row: &RateSummary) -> char {
        if self.knee() == Some(row.rate) { '*' } else { ' ' }
    }
}

/// Returns how often the rate was held, and the reason if the client was the limit.
fn held(row: &RateSummary) -> String {
    let counts = format!("{} of {}", row.held, row.points);
    match &row.invalid {
        Some(reason) => format!("{counts}, {} INVALID: {reason}", row.points - row.valid),
        None => counts,
    }
}

fn kinds(row: &RateSummary) -> String {
    let happened = row.errors.rows().filter(|(_, count)| *count > 0);
    let kind = |(name, count): (&str, u64)| {
        let share = count as f64 / row.requests.max(1) as f64;
        format!("{name} {count} ({} %)", percent(share))
    };
    happened.map(kind).collect::<Vec<_>>().join(", ")
}

fn replies(goodput: &Estimate) -> String {
    with_interval(goodput, figure)
}

fn share(of_peak: &Estimate) -> String {
    with_interval(of_peak, |share| format!("{} %", percent(share)))
}

fn with_interval(estimate: &Estimate, show: impl Fn(f64) -> String) -> String {
    let value = show(estimate.value);
    match estimate.interval {
        Some(interval) => format!("{value} [{}]", range(interval, show)),
        None => value,
    }
}

fn range(interval: Interval, show: impl Fn(f64) -> String) -> String {
    format!("{} .. {}", show(interval.low), show(interval.high))
}

/// Formats a rate: with one decimal below 100, otherwise whole.
fn figure(rate: f64) -> String {
    if rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn ms(time_ns: u64) -> String {
    format!("{:.2}", time_ns as f64 / 1e6)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}
