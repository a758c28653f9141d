//! A second of a run as JSON, common to the document and the line-by-line output.

use serde::{Serialize, Serializer};

use super::{per_s, ratio, seconds};
use crate::measure::{Errors, SecondSummary};

/// A second of a run; rates are over its own length. Times of which there were none are null.
#[derive(Serialize)]
pub(super) struct SecondFields {
    second: u64,
    length_s: f64,
    planned: u64,
    started: u64,
    replies: u64,
    replies_per_s: f64,
    /// TLS handshakes done; without TLS there is no such key, nor the next.
    #[serde(skip_serializing_if = "is_zero")]
    handshakes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    handshakes_resumed: u64,
    errors: ErrorsByKind,
    response_p50_us: Option<f64>,
    response_p99_us: Option<f64>,
    response_max_us: Option<f64>,
    lag_p99_us: Option<f64>,
    open: u64,
    /// Share of the driving threads' cores in use, 0 to 1.
    cpu_share: f64,
}

impl SecondFields {
    pub(super) fn new(second: &SecondSummary, threads: usize) -> Self {
        let counts = &second.counts;
        Self {
            second: second.second,
            length_s: seconds(second.length_ns),
            planned: counts.planned,
            started: counts.started,
            replies: counts.replies,
            replies_per_s: per_s(counts.replies, second.length_ns),
            handshakes: counts.handshakes,
            handshakes_resumed: counts.handshakes_resumed,
            errors: ErrorsByKind(counts.errors),
            response_p50_us: second.response_p50_ns.map(us),
            response_p99_us: second.response_p99_ns.map(us),
            response_max_us: second.response_max_ns.map(us),
            lag_p99_us: second.lag_p99_ns.map(us),
            open: second.open,
            cpu_share: ratio(second.cpu_ns as f64, second.length_ns as f64 * threads.max(1) as f64),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Counts of the kinds of errors that occurred, by name.
struct ErrorsByKind(Errors);

impl Serialize for ErrorsByKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.rows().filter(|(_, count)| *count > 0))
    }
}

pub(super) fn us(time_ns: u64) -> f64 {
    time_ns as f64 / 1e3
}
