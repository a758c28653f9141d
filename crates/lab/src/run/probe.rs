//! Measures a point of a sweep without a load: runs `weir probe` on the server's side and reads its
//! figures.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::runner::Runner;
use super::wait::POLL_INTERVAL;
use crate::environment::{Environment, Side};
use crate::experiment::{Experiment, ProbeSpec, mechanism_options};
use crate::measure::{self, Measured, Sample, identity};
use crate::plan::Step;
use crate::process_group::ProcessGroup;
use crate::record::{Line, LoadResult, Point, ProbeResult, ServerResult};
use crate::time::utc_now;

/// Time limit of a probe beyond the measured time: it opens connections, and registers them anew
/// for each repetition.
const PATIENCE: Duration = Duration::from_secs(60);

/// A JSON line printed by a probe.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Figures(ProbeResult),
    Impossible { mechanism: String, impossible: String },
    Failed { failed: String },
}

impl Runner {
    pub(super) fn probe(
        &self,
        environment: &dyn Environment,
        experiment: &Experiment,
        step: &Step,
        spec: &ProbeSpec,
        stop: &AtomicBool,
    ) -> Result<Line, String> {
        let server = &experiment.server[step.server];
        let mut words = vec!["probe".to_owned(), "--json".to_owned()];
        words.extend(mechanism_options(&server.options));
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        option("--idle", step.key.x.to_string());
        option("--active", spec.active.to_string());
        option("--seconds", step.duration_s.to_string());
        let (began, at) = (utc_now(), Instant::now());
        let before = Sample::take(environment, &[], None, None)?;
        let mut command = environment.command(Side::Server, self.weir(server).as_os_str());
        command.args(&words);
        let latest = at + PATIENCE + Duration::from_secs_f64(2.0 * step.duration_s);
        let result = figures(&self.output(environment, command, latest, stop)?)?;
        let after = Sample::take(environment, &[], None, None)?;
        let Measured { kernel, .. } = measure::between(&before, &after);
        let mut point = Point {
            key: step.key.clone(),
            began,
            took_s: at.elapsed().as_secs_f64(),
            load: LoadResult { generator: "none".to_owned(), valid: true, ..LoadResult::default() },
            server: ServerResult {
                version: self.version(server),
                command: format!("weir {}", words.join(" ")),
                ..ServerResult::default()
            },
            kernel,
            probe: Some(result),
            ..Point::default()
        };
        point.flags = identity::flags(&point);
        Ok(Line::Point(Box::new(point)))
    }

    /// Runs a command to its end and returns its output.
    fn output(
        &self,
        environment: &dyn Environment,
        command: Command,
        latest: Instant,
        stop: &AtomicBool,
    ) -> Result<String, String> {
        let group = ProcessGroup::start(environment, command, self.work(), "probe")?;
        while !group.ended_within(POLL_INTERVAL) {
            if stop.load(Ordering::Relaxed) {
                return Err("stopped".to_owned());
            }
            if Instant::now() > latest {
                return Err("the probe did not come to its end".to_owned());
            }
        }
        let (said, last_output) = (group.stdout(), group.last_output());
        let status = group.end()?;
        // If it printed a line, the line itself reports the failure.
        if status.success() || !said.is_empty() { Ok(said) } else { Err(last_output) }
    }
}

/// Parses the line of a probe of one cell.
fn figures(said: &str) -> Result<ProbeResult, String> {
    let line = said.lines().next().unwrap_or_default();
    match serde_json::from_str(line) {
        Ok(Said::Figures(figures)) => Ok(figures),
        Ok(Said::Impossible { mechanism, impossible }) => {
            Err(format!("{mechanism} is not possible here: {impossible}"))
        }
        Ok(Said::Failed { failed }) => Err(format!("the probe failed: {failed}")),
        Err(error) => Err(format!("the probe's figures cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_figures_or_a_reason() {
        let spread = "{\"min\": 1, \"median\": 2.5, \"max\": 3}";
        let line = format!(
            "{{\"mechanism\": \"poll\", \"kind\": \"tcp\", \"idle\": 5, \"active\": 2, \
             \"repetitions\": 5, \"rounds\": 10, \"waits\": 10, \"events\": 20, \
             \"wait_ns\": {spread}, \"event_ns\": {spread}, \"member_ns\": {spread}}}"
        );
        let read = figures(&line).unwrap();
        assert_eq!((read.active, read.events, read.wait_ns.median), (2, 20, 2.5));
        assert_eq!(read.search_ns, None);
        let searched =
            line.replace("\"wait_ns\"", &format!("\"search_ns\": {spread}, \"wait_ns\""));
        assert_eq!(figures(&searched).unwrap().search_ns.map(|search| search.max), Some(3.0));
        let why = |line: &str| figures(line).unwrap_err();
        let impossible = why("{\"mechanism\": \"x\", \"idle\": 5, \"impossible\": \"no call\"}");
        assert_eq!(impossible, "x is not possible here: no call");
        assert_eq!(why("{\"mechanism\": \"x\", \"failed\": \"no\"}"), "the probe failed: no");
        assert!(why("").contains("cannot be read"));
    }
}
