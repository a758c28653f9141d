//! The end of a server that was measured: told to stop, it must end well, and what it counted must
//! agree with itself and with what its clients saw.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::bench::process::Running;

/// What a server counted, as far as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Counted {
    pub(super) accepted: u64,
    pub(super) closed: u64,
    pub(super) open_max: u64,
    pub(super) replies: u64,
    /// Above zero also when the load ended in the middle of replies.
    pub(super) replies_cut: u64,
    pub(super) status_4xx: u64,
    pub(super) status_5xx: u64,
    /// Times the kernel's queue of notices overflowed, under a mechanism that has one.
    #[serde(default)]
    pub(super) event_overflows: u64,
    #[serde(default)]
    pub(super) event_notices: u64,
    #[serde(default)]
    pub(super) event_swept: u64,
    #[serde(default)]
    pub(super) event_stale: u64,
    #[serde(default)]
    pub(super) event_coalesced: u64,
    #[serde(default)]
    pub(super) event_checked: u64,
    accept_failed: u64,
    accept_phases: u64,
    c_avg: f64,
    accept_rate: f64,
}

/// Stops `server`, which writes its statistics to `stats`, and returns what it counted and what is
/// wrong with that, in words. Its clients have seen `seen` replies.
pub(super) fn run(mut server: Running, stats: &Path, seen: u64) -> Result<(Counted, Vec<String>)> {
    let status = server.stop()?;
    ensure!(status.success(), "{status}: {}", server.last_words());
    let text = fs::read_to_string(stats).context("the statistics were not written")?;
    let (counted, elapsed_s) = read(&text).context("the statistics")?;
    let wrong = counted.wrong(elapsed_s, seen);
    Ok((counted, wrong))
}

fn read(text: &str) -> Result<(Counted, f64)> {
    let mut json: Value = serde_json::from_str(text)?;
    let elapsed_s = json.get("elapsed_s").and_then(Value::as_f64).context("no elapsed_s")?;
    let total = json.get_mut("total").map(Value::take).context("no total")?;
    Ok((serde_json::from_value(total)?, elapsed_s))
}

impl Counted {
    fn wrong(&self, elapsed_s: f64, seen: u64) -> Vec<String> {
        let accepted = self.accepted as f64;
        // pariag-accept eq. 4.1, up to what floating point loses.
        let phases_give = self.accept_phases as f64 * self.c_avg;
        let equals_accepted = |value: f64| (value - accepted).abs() <= accepted * 1e-9;
        let rules = [
            (self.status_4xx == 0, format!("{} replies 4xx", self.status_4xx)),
            (self.status_5xx == 0, format!("{} replies 5xx", self.status_5xx)),
            (self.accept_failed == 0, format!("{} accepts failed", self.accept_failed)),
            (self.replies >= seen, format!("{} replies, but {seen} were seen", self.replies)),
            (
                self.closed == self.accepted,
                format!("{} connections accepted, {} closed", self.accepted, self.closed),
            ),
            (
                equals_accepted(phases_give) && equals_accepted(self.accept_rate * elapsed_s),
                format!("{accepted} accepted, but accept_phases · c_avg is {phases_give}"),
            ),
        ];
        rules.into_iter().filter(|(holds, _)| !holds).map(|(_, wrong)| wrong).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = r#"{"elapsed_s": 2.0, "loops": [], "total": {"accepted": 10, "closed": 10,
        "open_max": 4, "replies": 30, "replies_cut": 1, "status_4xx": 0, "status_5xx": 0,
        "accept_failed": 0, "accept_phases": 4, "c_avg": 2.5, "accept_rate": 5.0, "gone": 1}}"#;

    fn wrong(old: &str, new: &str) -> Vec<String> {
        let (counted, elapsed_s) = read(&STATS.replace(old, new)).unwrap();
        counted.wrong(elapsed_s, 30)
    }

    #[test]
    fn a_server_that_agrees_with_itself_passes() {
        assert_eq!(wrong("", ""), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_add_up_is_said() {
        assert_eq!(wrong("\"status_5xx\": 0", "\"status_5xx\": 2"), ["2 replies 5xx"]);
        assert_eq!(wrong("\"status_4xx\": 0", "\"status_4xx\": 1"), ["1 replies 4xx"]);
        assert_eq!(wrong("failed\": 0", "failed\": 3"), ["3 accepts failed"]);
        assert_eq!(wrong("replies\": 30", "replies\": 29"), ["29 replies, but 30 were seen"]);
        assert_eq!(wrong("closed\": 10", "closed\": 9"), ["10 connections accepted, 9 closed"]);
        let identity = ["10 accepted, but accept_phases · c_avg is 12.5"];
        assert_eq!(wrong("phases\": 4", "phases\": 5"), identity);
        assert_eq!(wrong("rate\": 5.0", "rate\": 4.0").len(), 1);
    }

    #[test]
    fn statistics_without_a_total_are_an_error() {
        assert!(read(r#"{"elapsed_s": 1.0}"#).is_err());
    }
}
