//! Describes the application behind the servers of a sweep, and what happens to it, for readers.

use crate::experiment::{
    DisturbanceKind, DisturbanceSpec, ServiceLaw, Sweep, UpstreamKind, UpstreamSpec,
};
use crate::plan;

/// Returns parts of the sentence that describes a sweep. `scale` is the run's.
pub(super) fn describe(sweep: &Sweep, scale: f64) -> Vec<String> {
    let application = sweep.upstream.as_ref().map(application);
    let disturbance = sweep.disturbance.map(|spec| disturbance(sweep, &spec, scale));
    application.into_iter().chain(disturbance).collect()
}

/// Describes the application behind the servers.
fn application(spec: &UpstreamSpec) -> String {
    let UpstreamSpec { workers, mean_us, burn_us, servers, .. } = spec;
    let ms = |us: u32| f64::from(us) / 1e3;
    let program = match spec.kind {
        UpstreamKind::Weir => "weir serve --arch processes",
        other => other.name(),
    };
    let each = if **servers == 1 { String::new() } else { format!("{servers} times ") };
    let workers = if **workers == 1 { "a worker".to_owned() } else { format!("{workers} workers") };
    let law = match spec.law {
        ServiceLaw::Fixed => "a fixed service time of",
        ServiceLaw::Exponential => "exponential service times with a mean of",
        ServiceLaw::HeavyTailed => {
            "log-normal service times, deviation three means, with a mean of"
        }
    };
    let limit = spec.cpu_percent.map(|percent| format!(", at most {percent} % of a processor"));
    format!(
        "each server is a proxy of {each}{program} with {workers}, {law} {} ms, of which {} ms \
         processor time{}",
        ms(**mean_us),
        ms(**burn_us),
        limit.unwrap_or_default()
    )
}

/// Describes what happens to the application.
fn disturbance(sweep: &Sweep, spec: &DisturbanceSpec, scale: f64) -> String {
    let shorter = plan::scaled(sweep, scale).1 / sweep.duration_s();
    let [before_s, for_s] = [spec.before_s, spec.for_s].map(|s| (*s * shorter * 1e3).round() / 1e3);
    let last = sweep.upstream.as_ref().is_some_and(|upstream| *upstream.servers > 1);
    let it = if last { "the last of them" } else { "it" };
    let happens = match (spec.kind, spec.times) {
        (DisturbanceKind::Slow, Some(times)) => {
            format!("has its limit on processor time divided by {times}")
        }
        (DisturbanceKind::Slow, None) => "keeps its limit on processor time".to_owned(),
        (DisturbanceKind::Death, _) => "is killed and started again at the end".to_owned(),
    };
    format!("{before_s} s after the begin, for {for_s} s, {it} {happens}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    const TEXT: &str = r#"
title = "T"
question = "Q?"
[[server]]
id = "one"
label = "weir"
kind = "weir"
[[sweep]]
id = "up"
x = "rate"
values = [5]
upstream = { kind = "gunicorn", workers = 4, mean-us = 20000, burn-us = 500 }
"#;

    #[test]
    fn an_application_and_what_happens_to_it_are_parts_of_a_sentence() {
        let said =
            |text: &str| describe(&Experiment::parse(text).unwrap().sweep[0], 0.1).join("; ");
        let fixed = "each server is a proxy of gunicorn with 4 workers, a fixed service time of \
                     20 ms, of which 0.5 ms processor time";
        assert_eq!(said(TEXT), fixed);
        let text = TEXT
            .replace("gunicorn", "weir")
            .replace("workers = 4", "workers = 1")
            .replace("burn-us = 500", "law = \"heavy-tailed\", cpu-percent = 60, servers = 2");
        let slow = "disturbance = { kind = \"slow\", before-s = 1, for-s = 0.5, times = 3 }";
        let expected = "each server is a proxy of 2 times weir serve --arch processes with a \
                        worker, log-normal service times, deviation three means, with a mean of \
                        20 ms, of which 0 ms processor time, at most 60 % of a processor; 0.3 s \
                        after the begin, for 0.15 s, the last of them has its limit on processor \
                        time divided by 3";
        assert_eq!(said(&format!("{text}{slow}\n")), expected);
        let death = "disturbance = { kind = \"death\", before-s = 1, for-s = 0.5 }";
        let dies = "; 0.3 s after the begin, for 0.15 s, it is killed and started again at the end";
        assert_eq!(said(&format!("{TEXT}{death}\n")), format!("{fixed}{dies}"));
    }
}
