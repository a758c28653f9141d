//! Validation of sweeps with a probe. Each error is one sentence.

use super::rules::must;
use crate::experiment::{Axis, Experiment, LoadSpec, RateUnit, Sweep, has_mechanism};

/// Validates a sweep with a probe.
pub(super) fn sweep(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    judged(experiment, sweep).map_err(|why| format!("sweep {}: {why}", sweep.id))
}

fn judged(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    let said = |says: &'static str| move || says.to_owned();
    must(sweep.x == Axis::Idle, said("a probe is along idle members: x is \"idle\""))?;
    let unloaded = sweep.rate.is_none() && sweep.load == LoadSpec::default();
    must(unloaded, said("a probe has no load, so neither rate nor load is given"))?;
    let background_load =
        sweep.spike.is_some() || sweep.background_load.is_some() || sweep.timeline_ms.is_some();
    must(!background_load, said("a probe has no load, so nothing is beside it or along its time"))?;
    let plain = sweep.rate_unit == RateUnit::PerSecond && !sweep.calls && *sweep.burn_us == 0;
    must(plain, said("a probe serves nobody, so rate-unit, calls and burn-us are not given"))?;
    for index in experiment.servers_of(sweep, &[]) {
        let Some(server) = experiment.server.get(index) else { continue };
        let named = server.weir().is_some() && has_mechanism(&server.options);
        must(named, || {
            format!("a probe is of weir servers with a --mechanism, and {} is none", server.id)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::one_weir;
    use crate::validation::tests::{refuses, said_of};

    const GOOD: &str = one_weir!(
        r#"
options = ["--mechanism", "poll"]
[[server]]
id = "other"
label = "other"
kind = "nginx"
[[sweep]]
id = "cost"
servers = ["one"]
x = "idle"
values = [0, 5]
[sweep.probe]
active = 16
[[figure]]
id = "f"
title = "F"
sweep = "cost"
y = ["probe_wait_ns"]
y-log = true
[[table]]
id = "t"
title = "T"
sweep = "cost"
columns = ["probe_wait_ns"]
at = ["first", 5]
"#
    );

    #[test]
    fn a_probe_needs_no_rate_and_lasts_as_long_as_it_says() {
        let experiment = Experiment::parse(GOOD).unwrap();
        assert_eq!(experiment.sweep[0].duration_s(), 0.25);
        assert_eq!(said_of(GOOD, "active = 16", "active = 1\nseconds = 3"), "");
    }

    #[test]
    fn errors_in_a_probe_are_reported() {
        let cases = [
            ("active = 16", "active = 0", "active: 0 is not 1 to 4096"),
            ("active = 16", "active = 1\nseconds = 0", "seconds: 0 is not a positive time"),
            ("active = 16", "rate = 1\nactive = 1", "unknown field `rate`"),
            ("values = [0, 5]", "values = [0.5]", "0.5 is not a number of connections"),
            ("x = \"idle\"\nvalues = [0, 5]", "x = \"rate\"\nvalues = [5]", "along idle members"),
            ("values = [0, 5]", "values = [0]\nrate = 5", "sweep cost: a probe has no load"),
            ("values = [0, 5]", "values = [0]\nload.closed = 5", "a probe has no load"),
            ("values = [0, 5]", "values = [0]\ntimeline-ms = 100", "nothing is beside it"),
            ("values = [0, 5]", "values = [0]\nrate-unit = \"own\"", "serves nobody"),
            ("values = [0, 5]", "values = [0]\ncalls = true", "serves nobody"),
            ("values = [0, 5]", "values = [0]\nburn-us = 3", "serves nobody"),
            ("servers = [\"one\"]", "", "and other is none"),
            ("at = [\"first\", 5]", "at = [\"peak\"]", "table t: a probe has no replies"),
            ("[\"--mechanism\", \"poll\"]", "[\"--caching=on\"]", "and one is none"),
        ];
        refuses(GOOD, &cases);
    }
}
