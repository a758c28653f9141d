//! Validation of sweeps: their values, their rates and their servers.

use super::references::known_servers;
use super::rules::must;
use super::{day, load, overload, probe, upstream};
use crate::experiment::{Axis, Experiment, Generator, Pace, RateUnit, Sweep};

pub(super) fn sweep(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    let id = &sweep.id;
    known_servers(experiment, &format!("sweep {id}"), &sweep.servers)?;
    values(sweep)?;
    precision(sweep)?;
    unit(experiment, sweep)?;
    match sweep.probe {
        Some(_) => probe::sweep(experiment, sweep)?,
        None => rates(sweep)?,
    }
    load::load(id, &sweep.load)?;
    overload::sweep(sweep)?;
    upstream::sweep(experiment, sweep).map_err(|why| format!("sweep {id}: {why}"))?;
    let servers = experiment.servers_of(sweep, &[]);
    let mut servers = servers.iter().filter_map(|index| experiment.server.get(*index));
    day::sweep(sweep, servers.clone())?;
    must(
        sweep.load.generator.speaks_tls() || !servers.clone().any(|one| one.tls().is_some()),
        || format!("sweep {id}: a server with TLS is for weir load, wrk and h2load"),
    )?;
    if !sweep.load.mix.is_empty() {
        return load::mix(sweep, servers);
    }
    must(*sweep.burn_us == 0 || servers.any(|one| one.weir().is_some()), || {
        format!("sweep {id}: burn-us needs a weir server, and none of its servers is")
    })
}

fn values(sweep: &Sweep) -> Result<(), String> {
    let Sweep { id, values, x, .. } = sweep;
    must(!values.is_empty(), || format!("sweep {id}: it has no values"))?;
    for value in values {
        // Curves over idle connections or additional clients begin at 0.
        let from_none = matches!(x, Axis::Idle | Axis::BackgroundLoad);
        let low = *value < 0.0 || (*value == 0.0 && !from_none);
        must(value.is_finite() && !low, || {
            format!("sweep {id}: the value {value} is not positive")
        })?;
        must(matches!(x, Axis::Rate | Axis::BackgroundLoad) || value.fract() == 0.0, || {
            format!("sweep {id}: {value} is not a number of connections")
        })?;
    }
    must(values.windows(2).all(|pair| pair[0] < pair[1]), || {
        format!("sweep {id}: its values do not ascend")
    })
}

fn precision(sweep: &Sweep) -> Result<(), String> {
    let Sweep { id, repetitions, .. } = sweep;
    let most = sweep.precision.map(|precision| *precision.max_rounds);
    must(most.is_none_or(|most| **repetitions <= most), || {
        format!("sweep {id}: it has {repetitions} repetitions, more than its max-rounds")
    })
}

fn unit(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    let id = &sweep.id;
    match (&sweep.reference, sweep.rate_unit) {
        (None, RateUnit::Reference) => {
            Err(format!("sweep {id}: rate-unit is \"reference\", and no reference is given"))
        }
        (Some(_), RateUnit::PerSecond | RateUnit::Own) => {
            Err(format!("sweep {id}: a reference needs rate-unit = \"reference\""))
        }
        (Some(server), _) if experiment.server.iter().all(|one| one.id != *server) => {
            Err(format!("sweep {id}: there is no server {server} to be its reference"))
        }
        _ => Ok(()),
    }
}

/// Checks that the loop is either open, with its rate given in one place, or closed, without a
/// rate.
fn rates(sweep: &Sweep) -> Result<(), String> {
    let Sweep { id, rate, load, .. } = sweep;
    if sweep.x == Axis::Rate {
        must(rate.is_none(), || format!("sweep {id}: x is the rate, so there is no other rate"))?;
        must(load.pace == Pace::Open, || {
            format!("sweep {id}: x is the rate, and a closed loop has none")
        })?;
    } else {
        must(rate.is_some() || load.pace != Pace::Open, || {
            format!("sweep {id}: it needs a rate, or load.closed")
        })?;
        must(rate.is_none() || load.pace == Pace::Open, || {
            format!("sweep {id}: it has a rate and a closed loop, which has none")
        })?;
    }
    must(!load.generator.is_closed_loop() || load.pace != Pace::Open, || {
        format!("sweep {id}: wrk, ab and h2load make closed loops, so they need load.closed")
    })?;
    must(load.generator != Generator::Httperf || load.pace == Pace::Open, || {
        format!("sweep {id}: httperf makes open loops, so load.closed is not for it")
    })?;
    must(sweep.x != Axis::Idle || load.idle == 0, || {
        format!("sweep {id}: x is the number of idle connections, so load.idle is not given")
    })?;
    must(sweep.x != Axis::Conns || load.conns.is_none(), || {
        format!("sweep {id}: x is the number of connections, so load.conns is not given")
    })
}
