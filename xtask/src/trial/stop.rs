//! The end of a server: told to stop, it must end well, and what it counted must agree with itself
//! and with what its clients saw.

use anyhow::{Context, Error, Result};
use serde::Deserialize;
use serde_json::Value;
use weir_lab::servers::StopResult;

/// Counters of a server, as far as they are shown.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Counted {
    pub(crate) accepted: u64,
    pub(crate) closed: u64,
    pub(crate) open_max: u64,
    pub(crate) replies: u64,
    /// Above zero also when the load ended in the middle of replies.
    pub(crate) replies_cut: u64,
    pub(crate) status_4xx: u64,
    pub(crate) status_5xx: u64,
    /// Times the kernel's queue of notices overflowed, under a mechanism that has one.
    #[serde(default)]
    pub(crate) event_overflows: u64,
    #[serde(default)]
    pub(crate) event_notices: u64,
    #[serde(default)]
    pub(crate) event_swept: u64,
    #[serde(default)]
    pub(crate) event_stale: u64,
    #[serde(default)]
    pub(crate) event_coalesced: u64,
    #[serde(default)]
    pub(crate) event_checked: u64,
    accept_failed: u64,
    accept_phases: u64,
    c_avg: f64,
    accept_rate: f64,
}

/// Returns what a stopped server counted and what is wrong with that, in words. Its clients have
/// seen `seen` replies.
pub(crate) fn check(stopped: &StopResult, seen: u64) -> Result<(Counted, Vec<String>)> {
    stopped.how.clone().map_err(Error::msg)?;
    let stats = stopped.stats.as_ref().context("the statistics were not written")?;
    let (counted, elapsed_s) = read(stats).context("the statistics")?;
    let wrong = counted.wrong(elapsed_s, seen);
    Ok((counted, wrong))
}

fn read(stats: &Value) -> Result<(Counted, f64)> {
    let elapsed_s = stats.get("elapsed_s").and_then(Value::as_f64).context("no elapsed_s")?;
    let total = stats.get("total").context("no total")?;
    Ok((Counted::deserialize(total)?, elapsed_s))
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
        let stats = serde_json::from_str(&STATS.replace(old, new)).unwrap();
        let (counted, elapsed_s) = read(&stats).unwrap();
        counted.wrong(elapsed_s, 30)
    }

    #[test]
    fn a_server_that_agrees_with_itself_passes() {
        assert_eq!(wrong("", ""), Vec::<String>::new());
    }

    #[test]
    fn counters_that_do_not_add_up_are_reported() {
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
        assert!(read(&serde_json::json!({ "elapsed_s": 1.0 })).is_err());
    }
}
