//! What is shown of a run: text, JSON, a line a second, a line a request, an HdrHistogram log, and
//! a live view.
//!
//! Every format is made from the same [`Run`], so that none says more than another about what it
//! was. An INVALID run says so in each, and a closed loop is labelled. Nothing here opens files,
//! knows terminals, or measures: it renders what it is given.

pub mod hdr;
mod httperf;
pub mod json;
pub mod live;
pub mod ndjson;
mod second;
pub mod text;

#[cfg(test)]
mod made_up;

use crate::audit::Verdict;
use crate::condition::Judged;
use crate::measure::Outcome;

/// What was run, in the words of whoever ran it. Times are nanoseconds; 0 is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Whom it loaded.
    pub url: String,
    /// When starts happened, such as `constant, 1000/s`, or `16 connections`.
    pub arrivals: String,
    /// Whether starts waited for replies.
    pub closed: bool,
    /// How long the schedule was.
    pub duration_ns: u64,
    /// How long, of its beginning, nothing was measured.
    pub warmup_ns: u64,
    /// What each arrival did.
    pub workload: String,
    /// The longest without progress.
    pub timeout_ns: u64,
    /// The longest from the planned start.
    pub deadline_ns: u64,
    /// Driving threads.
    pub threads: usize,
    /// What all chance was drawn from.
    pub seed: u64,
    /// Shapes of connections beside the arrivals', such as `1000 idle connections`.
    pub shapes: Vec<String>,
    /// The command as it was given.
    pub command: String,
    /// The version that ran it.
    pub version: String,
    /// When it began, RFC 3339.
    pub date: String,
}

impl Description {
    /// `open` or `closed`.
    pub fn loop_name(&self) -> &'static str {
        loop_name(self.closed)
    }
}

/// A run that is over, and all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What was run.
    pub what: &'a Description,
    /// What was measured.
    pub outcome: &'a Outcome,
    /// Whether that is the server's doing.
    pub verdict: &'a Verdict,
    /// The conditions it was held against.
    pub conditions: &'a [Judged],
}

fn loop_name(closed: bool) -> &'static str {
    if closed { "closed" } else { "open" }
}

/// How long starts were planned for, nanoseconds: the schedule, or as far as the run came.
fn schedule_ns(outcome: &Outcome) -> u64 {
    let end_ns = if outcome.interrupted { outcome.elapsed_ns } else { u64::MAX };
    outcome.planned_ns.min(end_ns)
}

/// How often a second; 0 of no time, so that no output ever shows an infinity.
fn per_s(count: u64, time_ns: u64) -> f64 {
    ratio(count as f64 * 1e9, time_ns as f64)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn ms(time_ns: u64) -> f64 {
    time_ns as f64 / 1e6
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_schedule_is_as_long_as_the_run() {
        let mut outcome = Outcome { planned_ns: 10, elapsed_ns: 4, ..Outcome::default() };
        assert_eq!(schedule_ns(&outcome), 10);
        outcome.interrupted = true;
        assert_eq!(schedule_ns(&outcome), 4);
    }
}
