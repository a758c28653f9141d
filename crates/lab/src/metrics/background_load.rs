//! Metrics of the clients beside a load; they have no value without such clients.

use super::metric::{metrics, ratio};
use crate::record::{LoadResult, Point};

metrics! {
    "beside.started_rate", "requests started beside the load", "requests/s",
        |p| load(p)?.started_per_s,
        "Of the clients beside the load: requests begun, per second";
    "beside.connect_rate", "connections made beside the load", "connections/s",
        |p| rate(p, |load| load.connected),
        "Of the clients beside the load: connections that were there, per second";
    "beside.reply_rate", "replies beside the load", "replies/s",
        |p| load(p).map(|load| load.replies_per_s),
        "Of the clients beside the load: whole replies per second, whatever their status";
    "beside.error_rate", "errors beside the load", "errors/s",
        |p| rate(p, |load| Some(load.errors.values().sum())),
        "Of the clients beside the load: requests that ended in an error, per second";
    "beside.response_p50", "response time beside the load, median", "ms",
        |p| load(p)?.good_response?.p50_us.map(|us| us / 1e3),
        "Of the clients beside the load, replies of 2xx and 3xx: from the planned start to the \
         last byte, half are no longer";
    "beside.response_p99", "response time beside the load, 99th percentile", "ms",
        |p| load(p)?.good_response?.p99_us.map(|us| us / 1e3),
        "Of the clients beside the load, replies of 2xx and 3xx: from the planned start to the \
         last byte, 99 % are no longer";
    "beside.open_max", "connections open at once beside the load", "connections",
        |p| load(p)?.open_max.map(|open| open as f64),
        "Of the clients beside the load: the most they had open at once";
}

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
            ("beside.response_p50", 4.0),
            ("beside.response_p99", 8.0),
        ];
        for (name, wanted) in wanted {
            assert_eq!(value(&point, name), Some(wanted), "{name}");
        }
    }
}
