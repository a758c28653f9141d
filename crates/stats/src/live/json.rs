//! The history as JSON: what the live page reads.

use serde_json::{Map, Value, json};

use super::history::History;
use super::refusals::REFUSALS;
use super::sample::Sample;
use crate::page::UpstreamState;

/// A column of the history.
type Column = (&'static str, fn(&Sample) -> Option<f64>);

/// Numbers of a sample by their names: rates are per second, times milliseconds.
const COLUMNS: [Column; 18] = [
    ("elapsed_s", |sample| Some(sample.elapsed_s)),
    ("offered", |sample| Some(sample.offered())),
    ("answered", |sample| Some(sample.answered)),
    ("failed", |sample| Some(sample.failed)),
    ("limited", |sample| Some(sample.limited())),
    ("departed", |sample| Some(sample.departed)),
    ("accepted", |sample| Some(sample.accepted)),
    ("forwarded", |sample| Some(sample.forwarded)),
    ("upstream_failed", |sample| Some(sample.upstream_failed)),
    ("log_lost", |sample| Some(sample.log_lost)),
    ("overloaded", |sample| Some(sample.overloaded)),
    ("queued_ms", |sample| Some(sample.queued_s? * 1e3)),
    ("cpus", |sample| sample.cpus),
    ("open", |sample| Some(sample.open as f64)),
    ("queue", |sample| Some(sample.queue as f64)),
    ("backlog", |sample| Some(sample.backlog as f64)),
    ("in_flight", |sample| Some(sample.in_flight as f64)),
    ("waiting", |sample| Some(sample.waiting as f64)),
];

impl Sample {
    /// Returns the numbers by their names; `refused` has those of each reason.
    pub fn to_json(&self) -> Value {
        let mut map: Map<String, Value> =
            COLUMNS.iter().map(|(name, value)| ((*name).into(), number(value(self)))).collect();
        let refused = REFUSALS.iter().zip(self.refused);
        let refused: Map<_, _> =
            refused.map(|(row, rate)| (row.reason.into(), number(Some(rate)))).collect();
        map.insert("refused".into(), refused.into());
        map.into()
    }
}

impl History {
    /// Returns the sentence, the condition, the last sample in total, of each loop and of each
    /// upstream, and the samples from number `since` on, by columns: `first` is the number of the
    /// first of them, `next` that of the next one.
    pub fn to_json(&self, since: u64) -> Map<String, Value> {
        let sentence = self.sentence();
        let loops = self.workers().into_iter().map(|(worker, sample)| {
            let mut numbers = sample.to_json();
            numbers["loop"] = worker.into();
            numbers
        });
        let upstreams = self.upstreams().iter().map(UpstreamState::to_json);
        let now = json!({
            "total": self.last().map(Sample::to_json),
            "loops": loops.collect::<Vec<_>>(),
            "upstreams": upstreams.collect::<Vec<_>>(),
        });
        let reasons = REFUSALS.map(|row| json!({ "reason": row.reason, "words": row.words }));
        let whole = json!({
            "sentence": sentence.text,
            "condition": sentence.condition.name(),
            "now": now,
            "history": self.columns(since),
            "reasons": reasons,
        });
        let Value::Object(map) = whole else { return Map::new() };
        map
    }

    fn columns(&self, since: u64) -> Value {
        let oldest = self.taken() - self.samples().len() as u64;
        let first = since.clamp(oldest, self.taken());
        let samples = || self.samples().skip((first - oldest) as usize);
        let mut map: Map<String, Value> = COLUMNS
            .iter()
            .map(|(name, value)| {
                let numbers = samples().map(|sample| number(value(sample)));
                ((*name).into(), numbers.collect::<Vec<_>>().into())
            })
            .collect();
        let refused = REFUSALS.iter().enumerate().map(|(index, row)| {
            let numbers = samples().map(|sample| number(Some(sample.refused[index])));
            (row.reason.into(), numbers.collect::<Vec<_>>().into())
        });
        map.insert("refused".into(), refused.collect::<Map<_, _>>().into());
        map.insert("first".into(), first.into());
        map.insert("next".into(), self.taken().into());
        map.into()
    }
}

/// Returns a number to a tenth, or to a thousandth below 10.
fn number(value: Option<f64>) -> Value {
    let Some(value) = value else { return Value::Null };
    let scale = if value < 10.0 { 1e3 } else { 10.0 };
    let rounded = (value * scale).round() / scale;
    // Whole numbers are shorter without their fraction.
    if rounded.fract() == 0.0 { json!(rounded as i64) } else { json!(rounded) }
}
