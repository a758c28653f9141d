//! The load generators that are compared: how each is told the same load, and what each says of it.
//! Knows no case, and no server.

mod ab;
mod httperf;
mod weir;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::Serialize;

pub(super) use self::weir::Report as Weir;
use super::client::Ended;
use crate::bench::process::CommandLine;
use crate::bench::wrk;

/// A load generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Generator {
    /// `weir load`, of this executable.
    Weir(PathBuf),
    Wrk,
    Ab,
    Httperf,
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    /// The target, with its slash.
    pub(super) path: String,
    pub(super) pace: Pace,
    /// Whether connections are kept; else each request has one of its own.
    pub(super) keep: bool,
    /// More options, for `weir load` only.
    pub(super) options: Vec<String>,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// Closed loop: so many connections, each asking again when it has been answered.
    Closed(u32),
    /// Open loop: so many a second.
    Open(f64),
}

/// What a generator counted.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tally {
    /// Whole replies.
    pub(super) replies: u64,
    /// Requests that ended otherwise, and replies that are neither 2xx nor 3xx.
    pub(super) errors: u64,
    /// How long it took, by the generator's clock, in seconds.
    pub(super) took_s: f64,
    pub(super) said: Said,
}

/// What a generator said, in its own terms.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Said {
    Weir(Box<weir::Report>),
    Wrk(wrk::Outcome),
    Ab(ab::Report),
    Httperf(httperf::Report),
}

impl Generator {
    /// The name in the results.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Weir(_) => "weir load",
            Self::Wrk => "wrk",
            Self::Ab => "ab",
            Self::Httperf => "httperf",
        }
    }

    /// How the generator is told to do `job` for so many seconds; its files go to `folder`.
    pub(super) fn command_line(
        &self,
        job: &Job,
        to: SocketAddr,
        seconds: u32,
        folder: &Path,
    ) -> Result<CommandLine> {
        Ok(match (self, job.pace) {
            (Self::Weir(program), _) => weir::command_line(program, job, to, seconds, folder),
            (Self::Wrk, Pace::Closed(connections)) => {
                let load = wrk::Load { path: job.path.clone(), connections, close: !job.keep };
                wrk::counting(&load, to, seconds, folder)?
            }
            (Self::Ab, Pace::Closed(connections)) => {
                ab::command_line(job, connections, to, seconds)
            }
            (Self::Httperf, Pace::Open(rate)) => httperf::command_line(job, rate, to, seconds),
            _ => bail!("{} cannot do {:?}", self.name(), job.pace),
        })
    }

    /// What the generator said when it ended.
    pub(super) fn tally(&self, ended: &Ended, folder: &Path) -> Result<Tally> {
        // weir load says 3 of a run that it limited itself: here that is a figure like others.
        let fine =
            ended.code == Some(0) || (matches!(self, Self::Weir(_)) && ended.code == Some(3));
        if !fine {
            bail!("{} ended with {:?}: {}", self.name(), ended.code, ended.last_words());
        }
        match self {
            Self::Weir(_) => weir::Report::read(folder).map(weir::Report::tally),
            Self::Wrk => wrk::parse(&ended.stdout).map(of_wrk),
            Self::Ab => ab::Report::parse(&ended.stdout).map(ab::Report::tally),
            Self::Httperf => httperf::Report::parse(&ended.stdout).map(httperf::Report::tally),
        }
    }
}

fn of_wrk(outcome: wrk::Outcome) -> Tally {
    let wrk::Outcome { connect_errors, read_errors, write_errors, timeouts, bad_status, .. } =
        outcome;
    Tally {
        replies: outcome.requests,
        errors: connect_errors + read_errors + write_errors + timeouts + bad_status,
        took_s: outcome.duration_us as f64 / 1e6,
        said: Said::Wrk(outcome),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::bench::load) use super::httperf::tests::report as httperf_report;
    pub(in crate::bench::load) use super::weir::tests::report;

    pub(super) fn job(pace: Pace, keep: bool) -> Job {
        Job { path: "/1.bin".to_owned(), pace, keep, options: Vec::new() }
    }

    pub(super) fn shown(line: &CommandLine) -> String {
        format!("{} {}", line.program.display(), line.arguments.join(" "))
    }

    fn ended(code: i32) -> Ended {
        Ended { code: Some(code), stdout: "json {}".to_owned(), ..Ended::default() }
    }

    #[test]
    fn a_generator_that_cannot_do_a_job_is_not_asked_to() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let folder = tempfile::tempdir().unwrap();
        let can = |generator: &Generator, pace| {
            generator.command_line(&job(pace, false), to, 1, folder.path()).is_ok()
        };
        let weir = Generator::Weir("weir".into());
        for pace in [Pace::Closed(1), Pace::Open(1.0)] {
            assert!(can(&weir, pace));
            assert_eq!(can(&Generator::Wrk, pace), pace == Pace::Closed(1));
            assert_eq!(can(&Generator::Ab, pace), pace == Pace::Closed(1));
            assert_eq!(can(&Generator::Httperf, pace), pace == Pace::Open(1.0));
        }
    }

    #[test]
    fn a_generator_that_fails_is_an_error_with_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let ended = Ended { stderr: "no such option\n".to_owned(), ..ended(2) };
        let error = Generator::Ab.tally(&ended, folder.path()).unwrap_err().to_string();
        assert!(error.contains("no such option"), "{error}");
    }

    #[test]
    fn whatever_wrk_counts_as_wrong_is_an_error() {
        let outcome = wrk::Outcome {
            requests: 7,
            duration_us: 500_000,
            timeouts: 1,
            bad_status: 2,
            ..wrk::Outcome::default()
        };
        let tally = of_wrk(outcome);
        assert_eq!((tally.replies, tally.errors), (7, 3));
        assert!((tally.took_s - 0.5).abs() < 1e-9);
    }
}
