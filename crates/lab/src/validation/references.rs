//! References between parts of an experiment file: names of servers and sweeps, and places along
//! a sweep.

use super::rules::must;
use crate::experiment::{At, Experiment, Position, Sweep};

pub(super) fn known_servers(
    experiment: &Experiment,
    place: &str,
    ids: &[String],
) -> Result<(), String> {
    for (index, id) in ids.iter().enumerate() {
        must(experiment.server.iter().any(|server| server.id == *id), || {
            format!("{place}: there is no server {id}")
        })?;
        must(!ids[..index].contains(id), || format!("{place}: server {id} is named twice"))?;
    }
    Ok(())
}

/// Returns the sweep of a figure or table, provided that it exists and includes the servers.
pub(super) fn drawn<'a>(
    experiment: &'a Experiment,
    place: &str,
    sweep: &str,
    servers: &[String],
) -> Result<&'a Sweep, String> {
    let found = experiment.sweep.iter().find(|one| one.id == sweep);
    let found = found.ok_or_else(|| format!("{place}: there is no sweep {sweep}"))?;
    known_servers(experiment, place, servers)?;
    for server in servers {
        must(found.servers.is_empty() || found.servers.contains(server), || {
            format!("{place}: sweep {sweep} does not measure server {server}")
        })?;
    }
    Ok(found)
}

pub(super) fn at_a_place(place: &str, sweep: &Sweep, at: At) -> Result<(), String> {
    match at {
        At::Value(x) => must(sweep.index_of(x).is_some(), || {
            format!("{place}: {x} is not a value of sweep {}", sweep.id)
        }),
        At::Named(named) => must(named != Position::Peak || sweep.probe.is_none(), || {
            format!("{place}: a probe has no replies, and so no peak")
        }),
    }
}
