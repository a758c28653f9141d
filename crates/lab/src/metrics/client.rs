//! Metrics of the client: how well it kept its plan, and the processor time and memory that its
//! load cost it.

use super::metric::{core_us_per_reply, metrics, ms, ratio};
use crate::record::{ClientResult, Point};

metrics! {
    "lag_p50", "lag of the client, median", "ms", |p| ms(p.load.lag.as_ref(), |t| t.p50_us),
        "From the planned to the actual start: half are no longer";
    "lag_p99", "lag of the client, 99th percentile", "ms",
        |p| ms(p.load.lag.as_ref(), |t| t.p99_us),
        "From the planned to the actual start: 99 % are no longer";
    "lag_p999", "lag of the client, 99.9th percentile", "ms",
        |p| ms(p.load.lag.as_ref(), |t| t.p999_us),
        "From the planned to the actual start: 99.9 % are no longer";
    "lag_max", "lag of the client, longest", "ms", |p| ms(p.load.lag.as_ref(), |t| t.max_us),
        "From the planned to the actual start: the longest";
    "started_share", "requests started of those planned", "%",
        |p| ratio(100.0 * p.load.started_per_s?, p.load.planned_per_s?),
        "Of the requests planned, those that the client started";
    "client_open_max", "connections open at the client, most", "connections",
        |p| p.load.open_max.map(|open| open as f64),
        "The most the client had open at once";
    "client_core_busy", "client's core time, not idle", "%",
        |p| Some(100.0 * p.cores.client.busy_share()?),
        "Of the client's processors' time, the part in which they had something to do, by the \
         idle counter";
    "client_core_us_per_reply", "client's core time a reply", "us",
        |p| core_us_per_reply(p, &p.cores.client),
        "Time the client's processors had something to do, for each reply, by the idle counter";
    "client_us_per_reply", "processor time of the client a reply", "us", us_per_reply,
        "User and system time of the load generator's processes alone, for each reply";
    "client_rss", "memory of the client", "MiB",
        |p| client(p).map(|client| client.rss_max_bytes as f64 / f64::from(1 << 20)),
        "The most the load generator's processes had resident, summed";
    "client_rss_grown", "growth of the client's memory", "%", rss_grown,
        "What the load generator's processes had resident more at the end of the time measured \
         than at its beginning";
}

fn rss_grown(point: &Point) -> Option<f64> {
    let ClientResult { rss_begin_bytes, rss_end_bytes, .. } = client(point)?;
    let grown = *rss_end_bytes as f64 - *rss_begin_bytes as f64;
    ratio(100.0 * grown, *rss_begin_bytes as f64)
}

fn client(point: &Point) -> Option<&ClientResult> {
    point.client.as_ref()
}

fn us_per_reply(point: &Point) -> Option<f64> {
    let client = client(point)?;
    let used = ratio(client.cpu_s(), point.kernel.window_s)?;
    ratio(1e6 * used, point.load.replies_per_s)
}

#[cfg(test)]
mod tests {
    use crate::measure::fixtures;
    use crate::metrics::value;

    #[test]
    fn the_cost_of_a_load_is_per_reply_and_of_its_processes() {
        let mut point = fixtures::point();
        let about = |point: &_, name: &str, wanted: f64| {
            let got = value(point, name).unwrap();
            assert!((got - wanted).abs() < 1e-9, "{name}: {got}");
        };
        about(&point, "lag_p999", 0.25);
        about(&point, "started_share", 100.0);
        about(&point, "client_core_busy", 90.0);
        about(&point, "client_core_us_per_reply", 600.0);
        about(&point, "client_us_per_reply", 1600.0 / 3.0);
        about(&point, "client_rss", 4.0);
        about(&point, "client_rss_grown", 50.0);
        point.client = None;
        for name in ["client_us_per_reply", "client_rss", "client_rss_grown"] {
            assert_eq!(value(&point, name), None);
        }
    }
}
