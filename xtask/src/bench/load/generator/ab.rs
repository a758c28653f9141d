//! ab, of the Apache HTTP server: a closed loop in HTTP/1.0. Knows no other generator.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Job, Said, Tally};
use crate::bench::process::CommandLine;

/// More requests a second than there will be: ab wants a number, and makes room for so many.
const PER_S_MAX: u64 = 200_000;

/// How long ab waits for a socket before it gives up, seconds.
const TIMEOUT_S: u32 = 10;

/// What ab counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::bench::load) struct Report {
    complete: u64,
    failed: u64,
    not_2xx: u64,
    took_s: f64,
}

pub(super) fn command_line(
    job: &Job,
    connections: u32,
    to: SocketAddr,
    seconds: u32,
) -> CommandLine {
    // -n after -t, which would set it.
    let mut arguments = vec![
        "-q".to_owned(),
        format!("-s{TIMEOUT_S}"),
        format!("-c{connections}"),
        format!("-t{seconds}"),
        format!("-n{}", u64::from(seconds) * PER_S_MAX),
    ];
    if job.keep {
        arguments.push("-k".to_owned());
    }
    arguments.push(format!("http://{to}{}", job.path));
    CommandLine { program: "ab".into(), arguments }
}

impl Report {
    /// Reads what ab printed.
    pub(super) fn parse(output: &str) -> Result<Self> {
        let number = |name: &str| -> Option<f64> {
            let rest = output.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let needed = |name: &str| number(name).with_context(|| format!("ab said no {name}"));
        Ok(Self {
            complete: needed("Complete requests:")? as u64,
            failed: needed("Failed requests:")? as u64,
            // The line is there only when there are any.
            not_2xx: number("Non-2xx responses:").unwrap_or(0.0) as u64,
            took_s: needed("Time taken for tests:")?,
        })
    }

    pub(super) fn tally(self) -> Tally {
        Tally {
            replies: self.complete,
            errors: self.failed + self.not_2xx,
            took_s: self.took_s,
            said: Said::Ab(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pace;
    use super::super::tests::{job, shown};
    use super::*;

    #[test]
    fn connections_are_kept_when_they_are_to_be() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let line = |keep| shown(&command_line(&job(Pace::Closed(64), keep), 64, to, 2));
        assert_eq!(line(true), "ab -q -s10 -c64 -t2 -n400000 -k http://127.0.0.1:9/1.bin");
        assert!(!line(false).contains("-k"));
    }

    #[test]
    fn the_report_is_read() {
        let report = "Time taken for tests:   2.003 seconds\nComplete requests:      4000\n\
                      Failed requests:        3\nNon-2xx responses:      2\n";
        let tally = Report::parse(report).unwrap().tally();
        assert_eq!((tally.replies, tally.errors), (4000, 5));
        assert!((tally.took_s - 2.003).abs() < 1e-9);
        assert!(Report::parse("Complete requests: 5\n").is_err());
    }
}
