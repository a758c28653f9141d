//! Checks that any part of an experiment file may need.

use crate::metrics;

pub(super) fn must(kept: bool, says: impl FnOnce() -> String) -> Result<(), String> {
    if kept { Ok(()) } else { Err(says()) }
}

/// Checks that ids are unique.
pub(super) fn unique<'a>(what: &str, ids: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = Vec::new();
    for id in ids {
        must(!seen.contains(&id), || format!("{what} {id}: two have this id"))?;
        seen.push(id);
    }
    Ok(())
}

/// Checks that a metric exists.
pub(crate) fn known_metric(metric: &str) -> Result<(), String> {
    metrics::find(metric).map(|_| ()).ok_or_else(|| format!("there is no metric {metric}"))
}

/// Returns the units of the named metrics.
pub(super) fn known_metrics(
    place: &str,
    field: &str,
    names: &[String],
) -> Result<Vec<&'static str>, String> {
    must(!names.is_empty(), || format!("{place}: `{field}` names no metric"))?;
    let mut units = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let info = metrics::find(name);
        units.push(info.ok_or_else(|| format!("{place}: there is no metric {name}"))?.unit);
        must(!names[..index].contains(name), || format!("{place}: {name} is named twice"))?;
    }
    Ok(units)
}
