//! Checks that any part of an experiment file may need.

use crate::metrics;

/// Maximum processor time that `weir serve` burns per request, in microseconds.
pub(super) const BURN_US_MAX: u32 = 1_000_000;

pub(super) fn must(kept: bool, says: impl FnOnce() -> String) -> Result<(), String> {
    if kept { Ok(()) } else { Err(says()) }
}

pub(super) fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// Checks that ids are unique and plain: they become parts of file names and table rows.
pub(super) fn unique<'a>(what: &str, ids: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = Vec::new();
    for id in ids {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
        must(!id.is_empty() && id.bytes().all(plain), || {
            format!("{what} `{id}`: an id is letters, digits and any of . - _ +")
        })?;
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
