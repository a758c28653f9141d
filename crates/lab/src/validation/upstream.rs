//! Validation of applications behind servers, and of what happens to them. Each error is one
//! sentence without the place.

use super::rules::must;
use crate::cgroup::CPU_PERCENT_MIN;
use crate::experiment::{
    DisturbanceKind, DisturbanceSpec, Experiment, Kind, ServerSpec, Sweep, UpstreamSpec,
};

/// Server programs that can be a proxy of an application.
const PROXIES: [Kind; 4] = [Kind::Weir, Kind::Nginx, Kind::Haproxy, Kind::Envoy];

pub(super) fn sweep(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    let servers = experiment.servers_of(sweep, &[]);
    let mut servers = servers.iter().filter_map(|index| experiment.server.get(*index));
    if let Some(spec) = &sweep.upstream {
        upstream(sweep, spec)?;
        servers.try_for_each(proxy)?;
    } else if let Some(envoy) = servers.find(|server| server.kind() == Kind::Envoy) {
        return Err(format!("server {} is a proxy, and there is no upstream", envoy.id));
    }
    sweep.disturbance.map_or(Ok(()), |spec| {
        disturbance(sweep, &spec).map_err(|why| format!("disturbance: {why}"))
    })
}

fn upstream(sweep: &Sweep, spec: &UpstreamSpec) -> Result<(), String> {
    must(*spec.burn_us <= *spec.mean_us, || {
        "upstream.burn-us is part of upstream.mean-us, and more than it".to_owned()
    })?;
    must(*sweep.burn_us == 0 && sweep.load.mix.is_empty() && sweep.probe.is_none(), || {
        "upstream says what a request takes, so burn-us, load.mix and probe do not".to_owned()
    })
}

fn proxy(server: &ServerSpec) -> Result<(), String> {
    let (id, kind) = (&server.id, server.kind());
    must(PROXIES.contains(&kind), || {
        format!("server {id}: {} is no proxy of an upstream", kind.name())
    })?;
    let says_itself = server.is_weir_proxy()
        || server.gzip()
        || server.proxy_burn_us().is_some()
        || server.weir().is_some_and(|weir| weir.burn_us.is_some());
    must(!says_itself, || format!("server {id} has an upstream of its own, or says what it burns"))
}

fn disturbance(sweep: &Sweep, spec: &DisturbanceSpec) -> Result<(), String> {
    let upstream = sweep.upstream.as_ref();
    let upstream = upstream.ok_or_else(|| "there is no upstream that it happens to".to_owned())?;
    must(sweep.spike.is_none(), || "a spike is enough".to_owned())?;
    let slow = spec.kind == DisturbanceKind::Slow;
    must(slow == spec.times.is_some(), || {
        "`times` says how much less of a processor a slow one has, and no other".to_owned()
    })?;
    must(!slow || upstream.cpu_percent.is_some(), || {
        "slow needs upstream.cpu-percent, of which there is to be less".to_owned()
    })?;
    let left = upstream.cpu_percent.zip(spec.times);
    let left = left.map(|(percent, times)| f64::from(*percent) / *times);
    must(left.is_none_or(|left| left >= CPU_PERCENT_MIN), || {
        format!("`times` leaves less than {CPU_PERCENT_MIN} % of a processor, the kernel's least")
    })?;
    must(*spec.before_s + *spec.for_s < sweep.duration_s(), || {
        "it is not over before the end of the load".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refuses, said_of};

    const GOOD: &str = r#"
title = "T"
question = "Q?"
[[server]]
id = "one"
label = "one"
kind = "weir"
[[server]]
id = "two"
label = "two"
kind = "haproxy"
in-flight = 3
[[server]]
id = "three"
label = "three"
kind = "envoy"
[[sweep]]
id = "up"
x = "rate"
values = [5]
upstream = { kind = "gunicorn", workers = 2, mean-us = 9000, burn-us = 500, cpu-percent = 50 }
disturbance = { kind = "slow", before-s = 1, for-s = 1, times = 3 }
"#;

    #[test]
    fn a_sweep_of_proxies_is_taken() {
        assert_eq!(said_of(GOOD, "", ""), "");
        assert_eq!(said_of(GOOD, "\"slow\", before-s = 1, for-s = 1, times = 3", DEATH), "");
        assert_eq!(said_of(GOOD, "times = 3", "times = 500"), "");
    }

    const DEATH: &str = "\"death\", before-s = 1, for-s = 1";

    #[test]
    fn errors_in_an_upstream_are_reported() {
        refuses(
            GOOD,
            &[
                ("burn-us = 500", "burn-us = 9001", "sweep up: upstream.burn-us is part of"),
                ("workers = 2", "workers = 0", "0 is not 1 to 1024"),
                ("kind = \"gunicorn\"", "kind = \"node\"", "unknown variant `node`"),
                ("kind = \"haproxy\"\nin-flight = 3", "kind = \"apache\"", "apache is no proxy"),
                ("in-flight = 3", "proxy-burn-us = 3", "server two has an upstream of its own"),
                ("kind = \"weir\"", "kind = \"weir\"\nburn-us = 3", "server one has an upstream"),
                ("values = [5]", "values = [5]\nburn-us = 5", "so burn-us, load.mix and probe do"),
            ],
        );
        let alone = "id = \"up\"\nx = \"rate\"\nvalues = [5]\n";
        let without = format!("{}{alone}", GOOD.split("id = \"up\"").next().unwrap());
        assert!(said_of(&without, "", "").contains("server three is a proxy, and there is no"));
    }

    #[test]
    fn errors_in_a_disturbance_are_reported() {
        refuses(
            GOOD,
            &[
                ("times = 3", "times = 0", "0 is not positive"),
                ("times = 3", "times = 501", "disturbance: `times` leaves less than 0.1 % of"),
                (", times = 3", "", "disturbance: `times` says"),
                (", cpu-percent = 50", "", "disturbance: slow needs upstream.cpu-percent"),
                ("for-s = 1", "for-s = 2", "disturbance: it is not over before the end"),
                ("\"slow\"", "\"death\"", "disturbance: `times` says"),
            ],
        );
    }
}
