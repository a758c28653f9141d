//! An artificial run for the tests of every format.

use std::time::{Duration, SystemTime};

use super::{RunDescription, RunReport};
use crate::audit::{AuditInput, Verdict, audit};
use crate::condition::Condition;
use crate::measure::{
    Counts, ErrorKind, Interval, RunOutcome, SecondSummary, ThreadCpu, Timestamps,
};

const MS: u64 = 1_000_000;

/// Twelve seconds: 1,000 planned and started, 990 replies in 5.3 ms, ten errors. The warm-up before
/// them: 100 started, 99 replies, one error.
pub(super) fn outcome() -> RunOutcome {
    let mut outcome = RunOutcome {
        counts: counts(),
        whole_run: whole_run(),
        planned_ns: 10_000 * MS,
        elapsed_ns: 12_000 * MS,
        open_max: 42,
        open_limit: 1_000,
        threads: vec![ThreadCpu {
            user_ns: 1_000 * MS,
            system_ns: 2_000 * MS,
            busiest: 0.5,
            while_planned: 0.3,
            run_delay: None,
        }],
        ..RunOutcome::default()
    };
    let timestamps = Timestamps {
        planned_ns: 0,
        started_ns: 20_000,
        connected_ns: 220_000,
        secured_ns: 0,
        sent_ns: 300_000,
        first_byte_ns: 4_300_000,
        last_byte_ns: 5_300_000,
    };
    for _ in 0..990 {
        outcome.times.record(&timestamps);
        outcome.times.connect.record(200_000);
        outcome.times.lag.record(20_000);
        outcome.lifetimes.record(6 * MS);
    }
    outcome.seconds = (0..12).map(second).collect();
    outcome
}

fn counts() -> Counts {
    let mut counts = Counts {
        planned: 1_000,
        arrivals: 1_000,
        started: 1_000,
        sent: 998,
        connects: 1_000,
        connected: 998,
        replies: 990,
        statuses: [0, 980, 0, 10, 0],
        bytes_out: 62 * 998,
        bytes_in: 1_184 * 990,
        head_bytes_in: 184 * 990,
        ..Counts::default()
    };
    let kinds = [
        (ErrorKind::ReplyTimeout, 4),
        (ErrorKind::Deadline, 1),
        (ErrorKind::ConnectRefused, 2),
        (ErrorKind::Reset, 1),
        (ErrorKind::ClosedEarly, 1),
        (ErrorKind::BadReply, 1),
    ];
    for (kind, count) in kinds {
        (0..count).for_each(|_| counts.errors.count(kind));
    }
    counts
}

fn whole_run() -> Counts {
    let mut counts = Counts {
        planned: 100,
        started: 100,
        connects: 100,
        connected: 100,
        replies: 99,
        background_opened: 100,
        ..Counts::default()
    };
    counts.errors.count(ErrorKind::ReplyTimeout);
    counts.add(&self::counts());
    counts
}

fn second(second: u64) -> SecondSummary {
    let replies = [100, 80, 45][second as usize / 5];
    let counts = Counts { planned: 100, started: 100, replies, ..Counts::default() };
    SecondSummary {
        second,
        length_ns: 1_000 * MS,
        counts,
        response_p50_ns: Some(5 * MS),
        response_p99_ns: Some(6 * MS),
        response_max_ns: Some(7 * MS),
        lag_p99_ns: Some(20_000),
        open: 12,
        cpu_ns: 250 * MS,
    }
}

/// A second of the run.
pub(super) fn interval(second: u64) -> Interval {
    let mut interval = Interval {
        second,
        length_ns: 1_000 * MS,
        open: 12,
        cpu_ns: 250 * MS,
        ..Interval::default()
    };
    interval.counts.planned = 100;
    interval.counts.started = 100;
    interval.counts.replies = 98;
    interval.counts.errors.count(ErrorKind::ReplyTimeout);
    for time_ms in 1..=98 {
        interval.response.record(time_ms * MS);
        interval.lag.record(20_000);
    }
    interval
}

/// A second in which the client ran out of descriptors.
pub(super) fn invalid_interval(second: u64) -> Interval {
    let mut interval = interval(second);
    interval.counts.errors.count(ErrorKind::FdUnavail);
    interval
}

pub(super) fn input(closed: bool) -> AuditInput {
    AuditInput { closed, threads: 1, ports: 28_232, descriptors: 1_000, ..AuditInput::default() }
}

pub(super) fn description(closed: bool) -> RunDescription {
    RunDescription {
        url: "http://127.0.0.1:8000/".into(),
        arrivals: if closed { "16 connections" } else { "constant, 100/s" }.into(),
        closed,
        duration_ns: 10_000 * MS,
        warmup_ns: 0,
        cooldown_ns: 0,
        workload: "one-byte".into(),
        timeout_ns: 5_000 * MS,
        deadline_ns: 0,
        threads: 1,
        seed: 7,
        tls: None,
        connections: vec!["100 idle connections".into()],
        command: "weir load --rate 100 http://127.0.0.1:8000/".into(),
        version: "0.1.0".into(),
        began: SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045),
    }
}

pub(super) fn verdict(closed: bool, outcome: &RunOutcome) -> Verdict {
    audit(&input(closed), outcome)
}

/// Renders the report of an outcome, with these failure conditions.
pub(super) fn rendered<T>(
    closed: bool,
    outcome: &RunOutcome,
    conditions: &[&str],
    render: impl FnOnce(&RunReport<'_>) -> T,
) -> T {
    let result = |text: &&str| Condition::parse(text).unwrap().result(outcome);
    let conditions: Vec<_> = conditions.iter().map(result).collect();
    let (description, verdict) = (&description(closed), &verdict(closed, outcome));
    render(&RunReport { description, outcome, verdict, conditions: &conditions })
}

/// The run with one start that found no descriptor.
pub(super) fn invalid_outcome() -> RunOutcome {
    let mut outcome = outcome();
    outcome.counts.errors.count(ErrorKind::FdUnavail);
    outcome
}
