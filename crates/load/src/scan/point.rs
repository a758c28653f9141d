//! A point of a scan: the run it asks for, its result, and whether the server held the rate. Points
//! are independent of each other.

use super::plan::ScanPlan;
use crate::measure::{Errors, RunOutcome, SecondSummary};

/// The purpose of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointPurpose {
    /// Search for the knee.
    Search,
    /// Accurate measurement of a rate, by several repetitions.
    Repeat,
}

impl PointPurpose {
    /// Returns the name used in every output.
    pub fn name(self) -> &'static str {
        match self {
            PointPurpose::Search => "search",
            PointPurpose::Repeat => "repeat",
        }
    }
}

/// A run requested by a scan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Purpose of the point.
    pub purpose: PointPurpose,
    /// Arrivals per second.
    pub rate: f64,
    /// Number of the try at this rate, or of the round of repetitions, from 0.
    pub repetition: u32,
    /// MeasuredPoint time, nanoseconds.
    pub duration_ns: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointResult {
    /// Arrivals planned per second, which by chance may differ from the rate.
    pub planned_per_s: f64,
    /// Requests of these arrivals per second: the goodput of a server that holds the rate. By
    /// chance sessions may be longer or shorter than on average.
    pub due_per_s: f64,
    /// Requests begun within the planned time, per second of it.
    pub started_per_s: f64,
    /// Goodput: complete replies within the planned time (and their deadline), per second of it.
    pub goodput_per_s: f64,
    /// Requests planned, and those of sessions that an error cut short.
    pub requests: u64,
    /// Failed requests, by kind.
    pub errors: Errors,
    /// Median response time, nanoseconds; `None` without replies, as the next two.
    pub response_p50_ns: Option<u64>,
    /// 99th percentile of the response time, nanoseconds.
    pub response_p99_ns: Option<u64>,
    /// Longest response time, nanoseconds.
    pub response_max_ns: Option<u64>,
    /// 99th percentile of the lag, nanoseconds.
    pub lag_p99_ns: u64,
    /// CPU share of this client's busiest thread in its busiest second, 0 to 1.
    pub cpu_share: f64,
    /// The reason why the run says nothing about the server: the client was the limit.
    pub invalid: Option<String>,
}

impl PointResult {
    /// Creates the result of a run, with the audit's reason if it was invalid. Goodput is the good
    /// replies that come within the planned time, to whichever request. A run therefore needs a
    /// warm-up longer than a response, so that as many requests are in flight at the beginning as
    /// at the end.
    pub fn of(outcome: &RunOutcome, invalid: Option<String>) -> Self {
        let per_s = |amount: f64| amount / (outcome.planned_ns.max(1) as f64 / 1e9);
        let (counts, response) = (&outcome.counts, &outcome.times.response);
        let busiest = outcome.threads.iter().map(|thread| thread.busiest);
        Self {
            planned_per_s: per_s(counts.arrivals as f64),
            due_per_s: per_s(counts.due as f64),
            started_per_s: per_s(started_in_time(outcome)),
            goodput_per_s: per_s(outcome.good_in_schedule as f64),
            requests: counts.planned + counts.abandoned,
            errors: counts.errors,
            response_p50_ns: response.known_at(0.5),
            response_p99_ns: response.known_at(0.99),
            response_max_ns: response.known_at(1.0),
            lag_p99_ns: outcome.times.lag.at(0.99),
            cpu_share: busiest.fold(0.0, f64::max),
            invalid,
        }
    }

    /// Returns failed requests as a share of all, 0 to 1.
    pub fn error_share(&self) -> f64 {
        self.errors.total() as f64 / self.requests.max(1) as f64
    }

    /// Returns whether the server held the rate: enough goodput, few errors, and the response time
    /// within the plan's limit. False for an invalid run, for one without arrivals, and, with a
    /// limit, for one without a response time.
    pub(super) fn holds(&self, plan: &ScanPlan) -> bool {
        self.invalid.is_none()
            && self.due_per_s > 0.0
            && self.goodput_per_s >= plan.goodput_min * self.due_per_s
            && self.error_share() <= plan.errors_max
            && (plan.p99_ns_max == 0
                || self.response_p99_ns.is_some_and(|p99_ns| p99_ns <= plan.p99_ns_max))
    }
}

/// Returns the number of requests started within the planned time. A second that is only partly
/// within it counts in proportion.
fn started_in_time(outcome: &RunOutcome) -> f64 {
    let mut left_ns = outcome.planned_ns;
    let mut part = |second: &SecondSummary| {
        let inside_ns = left_ns.min(second.length_ns);
        left_ns -= inside_ns;
        second.counts.started as f64 * inside_ns as f64 / second.length_ns.max(1) as f64
    };
    outcome.seconds.iter().map(&mut part).sum()
}

/// A point and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPoint {
    /// The run requested.
    pub point: Point,
    /// Its result.
    pub result: PointResult,
    /// True if the server held the rate.
    pub held: bool,
}

impl MeasuredPoint {
    /// Returns whether the run is valid, that is, says something about the server.
    pub fn valid(&self) -> bool {
        self.result.invalid.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Counts, ErrorKind};

    fn result(goodput_per_s: f64, errors: usize) -> PointResult {
        let response_p99_ns = Some(10);
        let mut result = PointResult { goodput_per_s, response_p99_ns, ..PointResult::default() };
        (result.planned_per_s, result.due_per_s, result.requests) = (100.0, 100.0, 500);
        (0..errors).for_each(|_| result.errors.count(ErrorKind::Reset));
        result
    }

    #[test]
    fn a_rate_is_held_with_goodput_without_errors_and_in_time() {
        let plan = ScanPlan { p99_ns_max: 10, ..ScanPlan::default() };
        assert!(result(98.0, 5).holds(&plan));
        assert!(!result(97.9, 0).holds(&plan));
        assert!(!result(99.0, 6).holds(&plan));
        assert!(!PointResult { response_p99_ns: Some(11), ..result(100.0, 0) }.holds(&plan));
        assert!(!PointResult { invalid: Some("lag".into()), ..result(100.0, 0) }.holds(&plan));
        assert!(!PointResult::default().holds(&plan));
        // Without replies there is no time within a limit, even where no goodput is asked for.
        let silent = PointResult { response_p99_ns: None, ..result(0.0, 0) };
        let undemanding = ScanPlan { goodput_min: 0.0, ..plan };
        assert!(!silent.holds(&undemanding));
        assert!(silent.holds(&ScanPlan { p99_ns_max: 0, ..undemanding }));
    }

    #[test]
    fn an_arrival_of_several_requests_is_held_with_all_their_replies() {
        let sevens = |goodput_per_s| PointResult { due_per_s: 700.0, ..result(goodput_per_s, 0) };
        assert!(sevens(690.0).holds(&ScanPlan::default()));
        assert!(!sevens(600.0).holds(&ScanPlan::default()));
    }

    #[test]
    fn goodput_is_the_good_replies_within_the_planned_time_whenever_they_were_asked_for() {
        let second = |replies, length_ns| SecondSummary {
            length_ns,
            counts: Counts { replies, started: 2 * replies, ..Counts::default() },
            ..SecondSummary::default()
        };
        let outcome = RunOutcome {
            counts: Counts { arrivals: 50, due: 350, ..Counts::default() },
            planned_ns: 2_500_000_000,
            replies_in_schedule: 300,
            good_in_schedule: 250,
            seconds: vec![
                second(100, 1_000_000_000),
                second(90, 1_000_000_000),
                second(120, 1_000_000_000),
                second(999, 700_000_000),
            ],
            ..RunOutcome::default()
        };
        let result = PointResult::of(&outcome, None);
        assert_eq!((result.goodput_per_s, result.started_per_s), (100.0, 200.0));
        assert_eq!((result.planned_per_s, result.due_per_s), (20.0, 140.0));
    }
}
