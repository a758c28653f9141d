//! Metrics of the clients beside a load; they have no value without such clients.

use super::metric::{Metric, metric, ratio};
use crate::record::{LoadResult, Point};

/// The metrics of this module.
pub(super) const TABLE: &[Metric] = &[
    metric(
        "beside.started_rate",
        "requests started beside the load",
        "requests/s",
        "Of the clients beside the load: requests begun, a second",
        |p| load(p)?.started_per_s,
    ),
    metric(
        "beside.connect_rate",
        "connections made beside the load",
        "connections/s",
        "Of the clients beside the load: connections that were there, a second",
        |p| rate(p, |load| load.connected),
    ),
    metric(
        "beside.reply_rate",
        "replies beside the load",
        "replies/s",
        "Of the clients beside the load: whole replies a second, whatever their status",
        |p| load(p).map(|load| load.replies_per_s),
    ),
    metric(
        "beside.error_rate",
        "errors beside the load",
        "errors/s",
        "Of the clients beside the load: requests that ended in an error, a second",
        |p| rate(p, |load| Some(load.errors.values().sum())),
    ),
    metric(
        "beside.open_max",
        "connections open at once beside the load",
        "connections",
        "Of the clients beside the load: the most they had open at once",
        |p| load(p)?.open_max.map(|open| open as f64),
    ),
];

fn load(point: &Point) -> Option<&LoadResult> {
    point.background_load.as_ref().map(|background_load| &background_load.load)
}

fn rate(point: &Point, of: fn(&LoadResult) -> Option<u64>) -> Option<f64> {
    let load = load(point)?;
    ratio(of(load)? as f64, load.window_s)
}

#[cfg(test)]
mod tests {
    use crate::measure::fixtures;
    use crate::metrics::value;

    #[test]
    fn they_are_of_the_other_clients_and_a_second() {
        let point = fixtures::crowded();
        let wanted = [
            ("beside.started_rate", 1500.0),
            ("beside.connect_rate", 1400.0),
            ("beside.reply_rate", 250.0),
            ("beside.error_rate", 1250.0),
            ("beside.open_max", 60.0),
        ];
        for (name, wanted) in wanted {
            assert_eq!(value(&point, name), Some(wanted), "{name}");
        }
    }
}
