//! A scan as JSON: an object for each point as it ends, and one for the whole scan. Only shares are
//! computed here.

use serde_json::{Map, Value, json};

use super::point::MeasuredPoint;
use super::search::SearchResult;
use super::summary::{Estimate, KeptGoodput, RateSummary, ScanSummary};
use crate::measure::Errors;

impl MeasuredPoint {
    /// Returns the point as an object: the plan, the result, `held`, and `invalid` (a reason or
    /// null).
    pub fn to_json(&self) -> Value {
        let (point, result) = (&self.point, &self.result);
        json!({
            "stage": point.purpose.name(),
            "rate": point.rate,
            "repetition": point.repetition,
            "duration_ns": point.duration_ns,
            "planned_per_s": result.planned_per_s,
            "due_per_s": result.due_per_s,
            "started_per_s": result.started_per_s,
            "goodput_per_s": result.goodput_per_s,
            "requests": result.requests,
            "errors": errors(&result.errors),
            "error_share": result.error_share(),
            "response_p50_ns": result.response_p50_ns,
            "response_p99_ns": result.response_p99_ns,
            "response_max_ns": result.response_max_ns,
            "lag_p99_ns": result.lag_p99_ns,
            "cpu_share": result.cpu_share,
            "held": self.held,
            "invalid": result.invalid,
        })
    }

    /// Returns the object of [`MeasuredPoint::to_json`] as a line of NDJSON, with its newline.
    pub fn to_line(&self) -> String {
        format!("{}\n", self.to_json())
    }
}

impl ScanSummary {
    /// Returns the scan as an object: `plan`, `points`, `search_result`, `peak`, `kept`,
    /// `errors_from`, `rows`. Unknown values are null. Shares are 0 to 1, rates are arrivals per
    /// second.
    pub fn to_json(&self) -> Value {
        json!({
            "plan": self.plan,
            "points": self.points,
            "finding": search_result(&self.search_result),
            "peak": self.peak.map(|peak| json!({
                "rate": peak.rate,
                "goodput_per_s": estimate(&peak.goodput),
            })),
            "kept": self.kept.iter().map(kept).collect::<Vec<_>>(),
            "errors_from": self.errors_from,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

fn search_result(search_result: &SearchResult) -> Value {
    let mut object = json!(search_result);
    object["text"] = search_result.sentence().into();
    object
}

fn kept(kept: &KeptGoodput) -> Value {
    json!({
        "multiple": kept.multiple,
        "rate": kept.rate,
        "of_peak": estimate(&kept.of_peak),
    })
}

fn row(row: &RateSummary) -> Value {
    json!({
        "rate": row.rate,
        "stage": row.purpose.name(),
        "points": row.points,
        "valid": row.valid,
        "held": row.held,
        "goodput_per_s": row.goodput.as_ref().map(estimate),
        "of_peak": row.of_peak.as_ref().map(estimate),
        "response_p50_ns": row.response_p50_ns,
        "response_p99_ns": row.response_p99_ns,
        "response_max_ns": row.response_max_ns,
        "requests": row.requests,
        "errors": errors(&row.errors),
        "error_share": row.error_share(),
        "invalid": row.invalid,
    })
}

fn estimate(estimate: &Estimate) -> Value {
    let interval = estimate.interval.map(|interval| json!([interval.low, interval.high]));
    json!({ "median": estimate.value, "interval": interval })
}

fn errors(errors: &Errors) -> Map<String, Value> {
    errors.rows().map(|(name, count)| (name.into(), count.into())).collect()
}
