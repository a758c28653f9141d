//! Validation of days and of the figures of their samples.

use super::references::drawn;
use super::rules::must;
use crate::experiment::{Axis, CpuMode, Experiment, RateUnit, ScatterFigure, ServerSpec, Sweep};
use crate::workload::DAY;

/// Validates the day of a sweep, if it has one.
pub(super) fn sweep<'a>(
    sweep: &Sweep,
    servers: impl Iterator<Item = &'a ServerSpec>,
) -> Result<(), String> {
    let Sweep { id, load, .. } = sweep;
    let place = |why: &str| format!("sweep {id}: a day {why}");
    if sweep.day.is_none() {
        return must(load.workload != DAY, || {
            format!("sweep {id}: load.workload day is for a sweep with a day")
        });
    }
    must(load.workload == DAY, || place("is load.workload \"day\""))?;
    must(load.generator.is_weir(), || place("needs weir load to replay it"))?;
    let per_second = sweep.x == Axis::Rate && sweep.rate_unit == RateUnit::PerSecond;
    must(per_second, || place("has its mean rate, per second, as x"))?;
    must(sweep.spike.is_none() && load.arrivals.is_none() && load.mix.is_empty(), || {
        place("says itself when its requests arrive and what they are")
    })?;
    must(*load.warmup_s == 0.0, || place("begins at midnight: load.warmup-s is 0"))?;
    must(*load.cooldown_s == 0.0, || place("ends at midnight: load.cooldown-s is 0"))?;
    let beside = sweep.background_load.as_ref().and_then(|spec| spec.factor);
    must(beside.is_none_or(|factor| *factor == 1.0), || {
        place("has clients beside it as its requests come: beside.factor is 1")
    })?;
    must(sweep.disturbance.is_none(), || place("has no disturbance"))?;
    must(*sweep.burn_us == 0, || place("asks for whole paths, so nothing is burnt"))?;
    for server in servers {
        must(server.weir().is_some_and(|weir| weir.burn_us.is_none()), || {
            place(&format!("is sampled by weir's own statistics: {} has none, or burns", server.id))
        })?;
    }
    Ok(())
}

/// Validates a figure of samples.
pub(super) fn figure(experiment: &Experiment, figure: &ScatterFigure) -> Result<(), String> {
    let place = format!("scatter {}", figure.id);
    let sweep = drawn(experiment, &place, &figure.sweep, &figure.servers)?;
    must(sweep.day.is_some(), || format!("{place}: sweep {} has no day", sweep.id))?;
    must(!figure.y.is_empty(), || format!("{place}: `y` names nothing"))?;
    let twice = |mode: &CpuMode| figure.y.iter().filter(|other| *other == mode).count() > 1;
    must(!figure.y.iter().any(twice), || format!("{place}: `y` names one twice"))?;
    must(figure.above.is_finite() && figure.above >= 0.0, || {
        format!("{place}: above {} is no request rate", figure.above)
    })
}

#[cfg(test)]
mod tests {
    use crate::experiment::one_weir;
    use crate::validation::tests::{refuses, said_of};

    const GOOD: &str = one_weir!(
        r#"
[[sweep]]
id = "day"
x = "rate"
values = [100]
day = { samples = 96 }
beside = { kind = "mute", factor = 1, hold-s = 0.2 }
[sweep.load]
workload = "day"
warmup-s = 0
[[scatter]]
id = "fig-10"
title = "F"
sweep = "day"
y = ["idle", "user"]
"#
    );

    #[test]
    fn errors_in_a_day_are_reported() {
        assert_eq!(said_of(GOOD, "", ""), "");
        let cases = [
            ("workload = \"day\"", "workload = \"2k\"", "sweep day: a day is load.workload"),
            ("day = { samples = 96 }", "", "load.workload day is for a sweep with a day"),
            ("samples = 96", "samples = 1", "samples: 1 is not 2 to 1440"),
            ("x = \"rate\"", "x = \"idle\"\nrate = 5", "a day has its mean rate, per second, as x"),
            ("warmup-s = 0", "warmup-s = 1", "a day begins at midnight"),
            ("warmup-s = 0", "warmup-s = 0\ncooldown-s = 1", "a day ends at midnight"),
            ("warmup-s = 0", "warmup-s = 0\narrivals = \"poisson\"", "says itself when"),
            ("factor = 1,", "factor = 2,", "beside.factor is 1"),
            ("samples = 96 }", "samples = 96 }\nburn-us = 5", "so nothing is burnt"),
            ("kind = \"weir\"", "kind = \"nginx\"", "sampled by weir's own statistics: one has"),
        ];
        refuses(GOOD, &cases);
    }

    #[test]
    fn errors_in_a_figure_of_samples_are_reported() {
        let cases = [
            ("sweep = \"day\"\ny", "sweep = \"x\"\ny", "scatter fig-10: there is no sweep x"),
            ("[\"idle\", \"user\"]", "[]", "scatter fig-10: `y` names nothing"),
            ("[\"idle\", \"user\"]", "[\"idle\", \"idle\"]", "`y` names one twice"),
            ("[\"idle\", \"user\"]", "[\"busy\"]", "unknown variant `busy`"),
            ("title = \"F\"", "title = \"F\"\nabove = -1.0", "above -1 is no request rate"),
        ];
        refuses(GOOD, &cases);
    }
}
