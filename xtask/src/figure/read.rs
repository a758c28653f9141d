//! The lines of a result as figures need them: what each contestant spent, and on which machine.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::spread::Spread;

/// What the time of the server's core is divided by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cost {
    /// Requests.
    OfRequests,
    /// 10^6 bytes, heads too.
    OfMegabytes,
}

/// The results of a case.
#[derive(Debug)]
pub(super) struct Case {
    /// What each contestant spent, µs, over the runs that count; in the order of the lines.
    pub(super) servers: Vec<(String, Spread)>,
    /// The least number of runs behind a spread.
    pub(super) runs: usize,
    pub(super) machine: Machine,
}

/// What the results were measured with.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Machine {
    pub(super) date: String,
    pub(super) cores: usize,
    pub(super) cpu_model: String,
    pub(super) virtual_machine: bool,
    pub(super) kernel: String,
}

#[derive(Deserialize)]
struct Line {
    contestant: String,
    flags: Vec<String>,
    measured: Option<Measured>,
    setup: Machine,
}

#[derive(Deserialize)]
struct Measured {
    core_busy_s: f64,
    wrk: Counts,
}

#[derive(Deserialize)]
struct Counts {
    requests: u64,
    bytes: u64,
}

/// The results that `text`, JSON line by line, holds. Runs that do not count are left out, and so
/// is a contestant without one that does.
pub(super) fn case(text: &str, cost: Cost) -> Result<Case> {
    let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Line>, _>>()?;
    let machine = lines.first().context("no runs")?.setup.clone();
    let mut names: Vec<&str> = Vec::new();
    for line in &lines {
        if !names.contains(&line.contestant.as_str()) {
            names.push(&line.contestant);
        }
    }
    let (mut servers, mut runs) = (Vec::new(), usize::MAX);
    for name in names {
        let own = lines.iter().filter(|line| line.contestant == name);
        let costs: Vec<f64> = own.filter_map(|line| line.cost_us(cost)).collect();
        let count = costs.len();
        if let Some(spread) = Spread::of(costs) {
            servers.push((name.to_owned(), spread));
            runs = runs.min(count);
        }
    }
    Ok(Case { servers, runs, machine })
}

impl Line {
    fn cost_us(&self, cost: Cost) -> Option<f64> {
        let measured = self.measured.as_ref().filter(|_| self.flags.is_empty())?;
        let done = match cost {
            Cost::OfRequests => measured.wrk.requests as f64,
            Cost::OfMegabytes => measured.wrk.bytes as f64 / 1e6,
        };
        (done > 0.0).then(|| measured.core_busy_s * 1e6 / done)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A line of results: 1000 requests, 2000 MB.
    pub(in crate::figure) fn line(contestant: &str, busy_s: f64, flags: &str) -> String {
        format!(
            r#"{{"case":"x","contestant":"{contestant}","round":1,"flags":{flags},"measured":
{{"core_busy_s":{busy_s},"wrk":{{"requests":1000,"bytes":2000000000}}}},"setup":
{{"date":"2026-01-02","cores":2,"cpu_model":"Intel(R) X","virtual_machine":true,
"kernel":"6.1.2-x"}}}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn costs_are_those_of_the_runs_that_count() {
        let lines = [
            line("b", 0.004, "[]"),
            line("a", 0.001, "[]"),
            line("b", 0.002, "[]"),
            line("a", 9.0, r#"["3 timeouts"]"#),
            line("c", 9.0, r#"["3 timeouts"]"#),
        ];
        let text = lines.join("\n");
        let case = case(&text, Cost::OfRequests).unwrap();
        assert_eq!((case.runs, case.machine.cores), (1, 2));
        let costs: Vec<_> = case.servers.iter().map(|(name, s)| (&**name, s.median)).collect();
        assert_eq!(costs, [("b", 3.0), ("a", 1.0)]);
        let (_, of_bytes) = &super::case(&text, Cost::OfMegabytes).unwrap().servers[0];
        assert_eq!((of_bytes.least, of_bytes.most), (1.0, 2.0));
    }

    #[test]
    fn nothing_to_read_is_an_error() {
        assert!(case("", Cost::OfRequests).is_err());
        assert!(case("{}\n", Cost::OfRequests).is_err());
    }
}
