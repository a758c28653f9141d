//! httperf: an open loop. It rounds the times it prints to a tenth of a millisecond. Knows no other
//! generator.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Job, Said, Tally};
use crate::bench::process::CommandLine;

/// As `weir load` by default.
const TIMEOUT_S: u32 = 5;

/// What httperf said.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::bench::load) struct Report {
    pub(in crate::bench::load) connections: u64,
    pub(in crate::bench::load) replies: u64,
    pub(in crate::bench::load) took_s: f64,
    pub(in crate::bench::load) errors: u64,
    /// Replies that are neither 2xx nor 3xx.
    pub(in crate::bench::load) bad_status: u64,
    /// A connection's mean life, from its start to its end.
    pub(in crate::bench::load) connection_ms: f64,
    /// First byte sent to first byte received, mean.
    pub(in crate::bench::load) response_ms: f64,
    /// First to last byte received, mean.
    pub(in crate::bench::load) transfer_ms: f64,
}

pub(super) fn command_line(job: &Job, rate: f64, to: SocketAddr, seconds: u32) -> CommandLine {
    let connections = (rate * f64::from(seconds)).round() as u64;
    let mut arguments = vec![
        format!("--server={}", to.ip()),
        format!("--port={}", to.port()),
        format!("--uri={}", job.path),
        format!("--rate={rate}"),
        format!("--num-conns={connections}"),
        "--num-calls=1".to_owned(),
        format!("--timeout={TIMEOUT_S}"),
    ];
    if !job.keep {
        // httperf itself makes a line end of the two characters.
        arguments.push("--add-header=Connection: close\\n".to_owned());
    }
    CommandLine { program: "httperf".into(), arguments }
}

impl Report {
    /// Reads what httperf printed.
    pub(super) fn parse(output: &str) -> Result<Self> {
        let figure = |line: &str, name: &str| {
            after(output, line, name).with_context(|| format!("httperf said no {line} {name}"))
        };
        let status = |class: &str| figure("Reply status:", class);
        Ok(Self {
            connections: figure("Total:", "connections")? as u64,
            replies: figure("Total:", "replies")? as u64,
            took_s: figure("Total:", "test-duration")?,
            errors: figure("Errors:", "total")? as u64,
            bad_status: (status("1xx=")? + status("4xx=")? + status("5xx=")?) as u64,
            connection_ms: figure("Connection time [ms]:", "avg")?,
            response_ms: figure("Reply time [ms]:", "response")?,
            transfer_ms: figure("Reply time [ms]:", "transfer")?,
        })
    }

    pub(super) fn tally(self) -> Tally {
        Tally {
            replies: self.replies,
            errors: self.errors + self.bad_status,
            took_s: self.took_s,
            said: Said::Httperf(self),
        }
    }
}

/// The number behind `name` in the first line that starts with `line`.
fn after(output: &str, line: &str, name: &str) -> Option<f64> {
    let rest = output.lines().find_map(|text| text.strip_prefix(line))?;
    let (_, rest) = rest.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
pub(in crate::bench::load) mod tests {
    use super::super::Pace;
    use super::super::tests::{job, shown};
    use super::*;

    pub(in crate::bench::load) const OUTPUT: &str = "\
Maximum connect burst length: 1

Total: connections 1000 requests 1000 replies 990 test-duration 1.998 s

Connection rate: 500.5 conn/s (2.0 ms/conn, <=90 concurrent connections)
Connection time [ms]: min 40.1 avg 40.3 max 42.0 median 40.5 stddev 0.2
Connection time [ms]: connect 0.1
Reply rate [replies/s]: min 0.0 avg 0.0 max 0.0 stddev 0.0 (0 samples)
Reply time [ms]: response 20.1 transfer 20.0
Reply status: 1xx=0 2xx=987 3xx=0 4xx=3 5xx=0
Errors: total 10 client-timo 10 socket-timo 0 connrefused 0 connreset 0
Errors: fd-unavail 0 addrunavail 0 ftab-full 0 other 0
";

    pub(in crate::bench::load) fn report() -> Report {
        Report::parse(OUTPUT).unwrap()
    }

    #[test]
    fn connections_are_as_many_as_the_rate_makes() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let line = shown(&command_line(&job(Pace::Open(2000.0), false), 2000.0, to, 5));
        assert!(line.contains("--rate=2000 --num-conns=10000 --num-calls=1"), "{line}");
        assert!(line.ends_with("--add-header=Connection: close\\n"), "{line}");
    }

    #[test]
    fn the_report_is_read() {
        let report = report();
        assert!((report.response_ms - 20.1).abs() < 1e-9);
        assert!((report.transfer_ms - 20.0).abs() < 1e-9);
        assert!((report.connection_ms - 40.3).abs() < 1e-9);
        let tally = report.tally();
        assert_eq!((tally.replies, tally.errors), (990, 13));
        assert!(Report::parse("Total: connections 5\n").is_err());
    }
}
