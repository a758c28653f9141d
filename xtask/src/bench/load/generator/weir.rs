//! `weir load`, by its options and its JSON report. Knows no other generator.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Job, Pace, Said, Tally};
use crate::bench::process::CommandLine;

const REPORT: &str = "weir.json";

/// The part of the report that is looked at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench::load) struct Report {
    pub(in crate::bench::load) verdict: Verdict,
    pub(in crate::bench::load) rates: Rates,
    pub(in crate::bench::load) counts: Counts,
    /// By kind.
    pub(in crate::bench::load) errors: BTreeMap<String, u64>,
    pub(in crate::bench::load) clocks: Clocks,
}

/// Whether the client kept its plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench::load) struct Verdict {
    pub(in crate::bench::load) valid: bool,
    pub(in crate::bench::load) reasons: Vec<String>,
    pub(in crate::bench::load) lag_p50_us: f64,
    pub(in crate::bench::load) lag_p99_us: f64,
    pub(in crate::bench::load) lag_p999_us: f64,
    pub(in crate::bench::load) lag_max_us: f64,
    /// Started of planned, 0 to 1; nothing in a closed loop.
    pub(in crate::bench::load) achieved_share: Option<f64>,
}

/// Per second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench::load) struct Rates {
    pub(in crate::bench::load) elapsed_s: f64,
    pub(in crate::bench::load) replies_per_s: f64,
}

/// Over the whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench::load) struct Counts {
    pub(in crate::bench::load) planned: u64,
    pub(in crate::bench::load) started: u64,
    pub(in crate::bench::load) replies: u64,
    pub(in crate::bench::load) errors: u64,
    pub(in crate::bench::load) statuses: BTreeMap<String, u64>,
    pub(in crate::bench::load) background_opened: u64,
    pub(in crate::bench::load) background_lost: u64,
}

/// What passed between the clocks of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench::load) struct Clocks {
    /// First byte sent to first byte received.
    pub(in crate::bench::load) wait: Times,
    /// First to last byte received.
    pub(in crate::bench::load) transfer: Times,
    /// Start to last byte received.
    pub(in crate::bench::load) service: Times,
}

/// A distribution, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench::load) struct Times {
    pub(in crate::bench::load) mean_us: f64,
    pub(in crate::bench::load) p50_us: f64,
    pub(in crate::bench::load) p99_us: f64,
}

pub(super) fn command_line(
    program: &Path,
    job: &Job,
    to: SocketAddr,
    seconds: u32,
    folder: &Path,
) -> CommandLine {
    let mut arguments = vec!["load".to_owned(), "--quiet".to_owned()];
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    option("--json", folder.join(REPORT).display().to_string());
    option("--duration", format!("{seconds}s"));
    match job.pace {
        Pace::Closed(connections) => option("--closed", connections.to_string()),
        Pace::Open(rate) => option("--rate", rate.to_string()),
    }
    if job.keep {
        option("--requests-per-conn", "inf".to_owned());
    }
    arguments.extend(job.options.iter().cloned());
    arguments.push(format!("http://{to}{}", job.path));
    CommandLine { program: program.to_owned(), arguments }
}

impl Report {
    /// Reads the report that a run wrote to `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let text = fs::read_to_string(folder.join(REPORT)).context("weir load wrote no report")?;
        serde_json::from_str(&text).context("weir load's report")
    }

    pub(super) fn tally(self) -> Tally {
        let status = |class: &str| self.counts.statuses.get(class).copied().unwrap_or(0);
        Tally {
            replies: self.counts.replies,
            errors: self.counts.errors + status("1xx") + status("4xx") + status("5xx"),
            took_s: self.rates.elapsed_s,
            said: Said::Weir(Box::new(self)),
        }
    }
}

#[cfg(test)]
pub(in crate::bench::load) mod tests {
    use super::super::tests::{job, shown};
    use super::*;
    use serde_json::json;

    pub(in crate::bench::load) fn report() -> Report {
        let times = |mean_us: f64| json!({ "mean_us": mean_us, "p50_us": 5.0, "p99_us": 9.0 });
        let report = json!({
            "verdict": {
                "valid": true, "reasons": [], "lag_p50_us": 5.0, "lag_p99_us": 50.0,
                "lag_p999_us": 90.0, "lag_max_us": 100.0, "achieved_share": 1.0, "more": 1,
            },
            "rates": { "elapsed_s": 2.0, "replies_per_s": 490.0 },
            "counts": {
                "planned": 1000, "started": 1000, "replies": 980, "errors": 20,
                "statuses": { "2xx": 970, "4xx": 10 },
                "background_opened": 0, "background_lost": 0,
            },
            "errors": { "reply-timeout": 20, "reset": 0 },
            "clocks": {
                "wait": times(20_100.0), "transfer": times(20_000.0), "service": times(40_300.0),
            },
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn the_options_say_the_pace_and_whether_connections_are_kept() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let line = |job: &Job| shown(&command_line(Path::new("weir"), job, to, 3, Path::new("/x")));
        let closed = line(&job(Pace::Closed(64), true));
        let expected = "weir load --quiet --json /x/weir.json --duration 3s --closed 64 \
                        --requests-per-conn inf http://127.0.0.1:9/1.bin";
        assert_eq!(closed, expected);
        let options = vec!["--idle".to_owned(), "5".to_owned()];
        let open = line(&Job { options, ..job(Pace::Open(2000.0), false) });
        assert!(open.ends_with(" --rate 2000 --idle 5 http://127.0.0.1:9/1.bin"), "{open}");
    }

    #[test]
    fn a_reply_of_an_error_status_is_an_error() {
        let tally = report().tally();
        assert_eq!((tally.replies, tally.errors), (980, 30));
    }

    #[test]
    fn a_report_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Report::read(folder.path()).is_err());
        fs::write(folder.path().join(REPORT), serde_json::to_string(&report()).unwrap()).unwrap();
        assert_eq!(Report::read(folder.path()).unwrap().counts.planned, 1000);
    }
}
