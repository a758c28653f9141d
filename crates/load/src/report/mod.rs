//! Reports of a run: text, JSON, one line per second or per request, an HdrHistogram log, and a
//! live view.
//!
//! Every format is made from the same [`RunReport`], so that all describe it alike. Each marks an
//! INVALID run and a closed loop. Reports render what they are given: they measure nothing and open
//! no files.

pub mod hdr;
mod httperf;
pub mod json;
pub mod live;
pub mod ndjson;
mod second;
pub mod text;

#[cfg(test)]
mod fixtures;

use std::time::SystemTime;

use humantime::Rfc3339Timestamp;

use crate::audit::Verdict;
use crate::condition::ConditionResult;
use crate::measure::RunOutcome;

/// The description of a run, as its operator specified it. Times are nanoseconds; 0 is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDescription {
    /// Target URL.
    pub url: String,
    /// Arrivals, such as `constant, 1000/s`, or `16 connections`.
    pub arrivals: String,
    /// True for a closed loop, in which starts wait for replies.
    pub closed: bool,
    /// Duration of the schedule.
    pub duration_ns: u64,
    /// Warm-up at the start of the schedule, which is not measured.
    pub warmup_ns: u64,
    /// Cool-down at its end, which is not either.
    pub cooldown_ns: u64,
    /// Name of the workload.
    pub workload: String,
    /// The longest wait without progress.
    pub timeout_ns: u64,
    /// The longest time from the planned start.
    pub deadline_ns: u64,
    /// Number of driving threads.
    pub threads: usize,
    /// Seed of all random draws.
    pub seed: u64,
    /// The TLS that was asked for, such as `TLS 1.3, sessions resumed`; `None` without TLS.
    pub tls: Option<String>,
    /// Connections beside those of the arrivals, such as `1000 idle connections`.
    pub connections: Vec<String>,
    /// Command line, as given.
    pub command: String,
    /// Version of the program.
    pub version: String,
    /// Start of the run, shown to the second (RFC 3339).
    pub began: SystemTime,
}

impl RunDescription {
    /// Returns `open` or `closed`.
    pub fn loop_name(&self) -> &'static str {
        loop_name(self.closed)
    }

    fn date(&self) -> Rfc3339Timestamp {
        humantime::format_rfc3339_seconds(self.began)
    }
}

/// A completed run, with everything known of it.
#[derive(Clone, Copy, Debug)]
pub struct RunReport<'a> {
    /// The description of the run.
    pub description: &'a RunDescription,
    /// The measurements.
    pub outcome: &'a RunOutcome,
    /// The audit's verdict: whether the figures describe the server.
    pub verdict: &'a Verdict,
    /// The results of the failure conditions.
    pub conditions: &'a [ConditionResult],
}

fn loop_name(closed: bool) -> &'static str {
    if closed { "closed" } else { "open" }
}

/// Returns the time for which starts were planned, nanoseconds: the schedule, or until the
/// interruption. It is 0 for starts that were all planned for one time, which have no rate: the
/// schedule of a trace ends a nanosecond after the last.
fn schedule_ns(outcome: &RunOutcome) -> u64 {
    let end_ns = if outcome.interrupted { outcome.elapsed_ns } else { u64::MAX };
    let planned_ns = if outcome.planned_ns > 1 { outcome.planned_ns } else { 0 };
    planned_ns.min(end_ns)
}

/// Returns `count` as a rate per second; 0 if no time passed, so that no output shows an infinity.
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
    fn starts_that_were_planned_for_one_time_have_no_rate() {
        let outcome = RunOutcome { planned_ns: 1, elapsed_ns: 5, ..RunOutcome::default() };
        assert_eq!(per_s(3, schedule_ns(&outcome)), 0.0);
    }

    #[test]
    fn an_interrupted_schedule_is_as_long_as_the_run() {
        let mut outcome = RunOutcome { planned_ns: 10, elapsed_ns: 4, ..RunOutcome::default() };
        assert_eq!(schedule_ns(&outcome), 10);
        outcome.interrupted = true;
        assert_eq!(schedule_ns(&outcome), 4);
    }
}
