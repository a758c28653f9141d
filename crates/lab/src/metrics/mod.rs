//! Metrics: the quantities of a point that figures and tables can show, by name. One table holds
//! the name, label, unit and meaning of each, and the function that reads it from a record. Nothing
//! is measured or summarised here.
//!
//! A metric that was not measured has no value; 0 is a measurement. weir's counters are recorded
//! even if zero, so an absent one was not measured. The kernel's zeros are omitted: in a point with
//! a measured window, an absent one did not move.

mod arch;
mod background_load;
mod client;
mod day;
mod families;
mod mechanism;
mod metric;
mod phases;
mod probe;
mod relative;
mod standard;
mod timeline;

use crate::record::{CallsRun, Point, Wanted};

pub use metric::{Metric, MetricInfo};
pub use relative::{Base, RelativeMetric, of_points, relative};

/// A row of the table of all metrics.
#[derive(Clone, Debug)]
pub struct MetricRow {
    /// Its name, or the pattern of a family's names.
    pub name: String,
    /// Its unit; empty for a pure number.
    pub unit: String,
    /// Its meaning.
    pub help: String,
}

/// Returns every metric and family, in display order.
pub fn rows() -> impl Iterator<Item = MetricRow> {
    let row = |name: &str, unit: &str, help: &str| MetricRow {
        name: name.to_owned(),
        unit: unit.to_owned(),
        help: help.to_owned(),
    };
    let of_table = all().map(move |metric| row(metric.name, metric.unit, metric.help));
    let relative = relative::TABLE.iter().map(move |one| row(one.name, one.unit, one.help));
    of_table
        .chain(relative)
        .chain(FAMILIES.iter().map(move |(name, unit, help)| row(name, unit, help)))
}

/// The families, each with the pattern of its names.
const FAMILIES: [(&str, &str, &str); 10] = [
    ("calls.NAME.share", "%", "time within a system call, of the time measured; `total` is all"),
    ("calls.NAME.rate", "1/s", "system calls of that name per second"),
    ("calls.NAME.per_reply", "", "system calls of that name for each reply"),
    ("calls.NAME.mean_us", "us", "how long one takes, mean"),
    ("counter.NAME.rate", "1/s", "how fast a counter of weir's statistics moves"),
    (
        "class.N.reply_rate",
        "replies/s",
        "of a mix: requests per second of its class N, from 1, that became replies, no refusals",
    ),
    ("class.N.reply_share", "%", "of the requests of that class, those that became such replies"),
    ("class.N.response_p50", "ms", "half of the response times of that class are no longer"),
    ("class.N.response_p99", "ms", "99 % of the response times of that class are no longer"),
    (
        "kernel.NAME.rate",
        "1/s",
        "how fast a counter of the kernel's moves, such as `Tcp.PassiveOpens`",
    ),
];

/// Returns the value of a metric or of a member of a family, in its unit; `None` if it was not
/// measured or does not exist.
pub fn value(point: &Point, name: &str) -> Option<f64> {
    if point.probe.is_some() && !name.starts_with(probe::PREFIX) {
        return None;
    }
    let found = match all().find(|metric| metric.name == name) {
        Some(metric) => (metric.of)(point),
        None => families::value(point, name),
    };
    found.filter(|value| value.is_finite())
}

/// Returns whether a metric is a time measured by the client: a late client distorts times first.
pub fn is_of_times(name: &str) -> bool {
    let name = if name.starts_with("class.") { families::of_class(name) } else { name };
    let families = ["response_", "service_", "connect_", "beside.response_"];
    families.iter().any(|family| name.starts_with(family)) || timeline::is_of_times(name)
}

/// Returns the parts of a point that metrics depend on, besides its counts. Times of the clients
/// beside a load depend on those clients alone.
pub fn wanted<'a>(names: impl Iterator<Item = &'a str>) -> Wanted {
    let mut wanted = Wanted::default();
    for name in names {
        wanted.times |= is_of_times(name) && !name.starts_with("beside.");
        wanted.server_cores |= name.starts_with("core_");
        wanted.client_cores |= name.starts_with("client_core_");
    }
    wanted
}

/// Returns label, unit and meaning of a metric or of a member of a family; `None` if it does not
/// exist.
///
/// Families: `calls.NAME.share`, `.rate`, `.per_reply` and `.mean_us` with the name of a system
/// call or `total`; `counter.NAME.rate` with the name of one of the server's counters;
/// `kernel.NAME.rate` with a name as in [`crate::record::Kernel::moved`]; `class.N.reply_rate`,
/// `.reply_share`, `.response_p50` and `.response_p99` with the number of a class of a mix.
pub fn find(name: &str) -> Option<MetricInfo> {
    match all().find(|metric| metric.name == name) {
        Some(metric) => Some(MetricInfo {
            label: metric.label.into(),
            unit: metric.unit,
            help: metric.help.into(),
        }),
        None => relative::find(name).or_else(|| families::find(name)).or_else(|| retired(name)),
    }
}

/// Metrics of earlier versions with their labels, so that recorded experiments can still be drawn.
/// They have no values: they came from the kernel's ticks, which were wrong by up to a third.
const RETIRED: [(&str, &str); 4] = [
    ("core_user", "core time, user"),
    ("core_system", "core time, system"),
    ("core_softirq", "core time, softirq"),
    ("core_idle", "core time, idle"),
];

fn retired(name: &str) -> Option<MetricInfo> {
    let (_, label) = RETIRED.iter().find(|(retired, _)| *retired == name)?;
    let help = "No longer measured: the kernel's ticks were wrong by up to a third".into();
    Some(MetricInfo { label: (*label).into(), unit: "%", help })
}

/// Returns the value of `calls.NAME.per_reply` if the calls were counted from outside. The rest of
/// the family has no value then: times were not measured, and the rates are those of a traced
/// server.
pub fn calls_value(run: &CallsRun, name: &str) -> Option<f64> {
    families::calls_value(run, name)
}

/// Returns every metric that belongs to no family.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let background_load = background_load::TABLE.iter().chain(probe::TABLE);
    standard::TABLE
        .iter()
        .chain(phases::TABLE)
        .chain(client::TABLE)
        .chain(mechanism::TABLE)
        .chain(arch::TABLE)
        .chain(timeline::TABLE)
        .chain(day::TABLE)
        .chain(background_load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fixtures;
    use crate::record::{Cores, Kernel, LoadResult, ServerResult};

    fn of(name: &str) -> Option<f64> {
        value(&fixtures::point(), name)
    }

    #[test]
    fn every_metric_of_the_table_has_a_value_where_all_was_measured() {
        for metric in all() {
            let probed = metric.name.starts_with(probe::PREFIX);
            let point = if probed { fixtures::probed() } else { fixtures::crowded() };
            assert!(value(&point, metric.name).is_some(), "{}", metric.name);
            let info = find(metric.name).unwrap();
            assert_eq!((&*info.label, info.unit), (metric.label, metric.unit));
            assert!(!metric.help.is_empty() && metric.label.len() <= 60, "{}", metric.name);
        }
    }

    #[test]
    fn no_two_metrics_have_the_same_name_or_label() {
        let names: std::collections::BTreeSet<_> = all().map(|m| m.name).collect();
        let labels: std::collections::BTreeSet<_> = all().map(|m| m.label).collect();
        assert_eq!((names.len(), labels.len()), (all().count(), all().count()));
    }

    #[test]
    fn a_metric_that_was_not_measured_has_no_value() {
        let mut point = fixtures::point();
        point.load = LoadResult { window_s: 0.0, ..LoadResult::default() };
        (point.rate, point.client) = (None, None);
        point.server = ServerResult::default();
        point.kernel = Kernel::default();
        point.cores = Cores::default();
        for metric in all().filter(|metric| metric.name != "reply_rate") {
            assert_eq!(value(&point, metric.name), None, "{}", metric.name);
        }
        assert_eq!(value(&point, "no_such_metric"), None);
        assert_eq!(value(&point, "core_user"), None);
        assert!(find("core_user").unwrap().help.contains("No longer measured"));
        assert_eq!(find("no_such_metric"), None);
    }

    #[test]
    fn what_metrics_depend_on_is_wanted_of_their_points() {
        let wants = |name: &str| {
            let Wanted { times, server_cores, client_cores } = wanted([name].into_iter());
            [times, server_cores, client_cores]
        };
        for name in ["response_p99", "response_p99_grown", "class.1.response_p50", "connect_mean"] {
            assert_eq!(wants(name), [true, false, false], "{name}");
        }
        for name in ["core_busy", "core_us_per_reply", "core_us_per_reply_grown"] {
            assert_eq!(wants(name), [false, true, false], "{name}");
        }
        for name in ["client_core_busy", "client_core_us_per_reply"] {
            assert_eq!(wants(name), [false, false, true], "{name}");
        }
        for name in ["goodput_kept", "lag_p99", "timeline.goodput_min", "beside.response_p99"] {
            assert_eq!(wants(name), [false; 3], "{name}");
        }
        let both = wanted(["core_busy", "service_p50"].into_iter());
        assert_eq!(both, Wanted { times: true, server_cores: true, client_cores: false });
    }

    #[test]
    fn a_count_of_nothing_is_zero() {
        let mut point = fixtures::point();
        point.kernel.moved.clear();
        for name in ["drops_rate", "cookie_rate", "error_rate", "gone_before_read_rate"] {
            assert_eq!(value(&point, name), Some(0.0), "{name}");
        }
    }

    #[test]
    fn the_loads_metrics_are_in_their_units() {
        let wanted = [
            ("reply_rate", 1500.0),
            ("reply_share", 100.0),
            ("error_share", 0.0),
            ("response_mean", 1.0),
            ("response_p99", 4.0),
            ("response_max", 6.0),
            ("connect_p50", 0.2),
            ("service_p99", 2.0),
            ("lag_p99", 0.2),
            ("client_open_max", 60.0),
        ];
        for (name, wanted) in wanted {
            assert_eq!(of(name), Some(wanted), "{name}");
        }
        let mut point = fixtures::point();
        point.load.errors = [("reset".to_owned(), 600), ("connect-timeout".to_owned(), 400)].into();
        assert_eq!(value(&point, "error_rate"), Some(500.0));
        assert_eq!(value(&point, "error_share"), Some(25.0));
        point.load.planned_per_s = None;
        point.rate = Some(3000.0);
        assert_eq!(value(&point, "reply_share"), Some(50.0));
    }

    #[test]
    fn goodput_leaves_refusals_out_and_is_nought_where_nothing_came() {
        let mut point = fixtures::point();
        assert_eq!(value(&point, "goodput"), Some(1500.0));
        point.load.replies_refused = 1500;
        assert_eq!(value(&point, "goodput"), Some(750.0));
        point.load.good_per_s = Some(990.0);
        assert_eq!(value(&point, "goodput"), Some(990.0));
        point.load.errors = [("reset".to_owned(), 500), ("reply-timeout".to_owned(), 400)].into();
        assert_eq!(value(&point, "refused_rate"), Some(1000.0));
        assert_eq!(value(&point, "timeout_rate"), Some(200.0));
        point.load = LoadResult { window_s: 2.0, ..LoadResult::default() };
        assert_eq!(value(&point, "goodput"), Some(0.0));
    }

    #[test]
    fn core_time_is_of_the_processors_and_replies_pay_for_all_that_is_not_idle() {
        let about = |name: &str, wanted: f64| {
            let got = of(name).unwrap();
            assert!((got - wanted).abs() < 1e-9, "{name}: {got}");
        };
        about("core_busy", 75.0);
        about("core_us_per_reply", 500.0);
        about("server_cpu", 40.0);
        about("server_user", 10.0);
        about("server_system", 30.0);
        about("server_us_per_reply", 40.0 * 500.0 / 75.0);
        about("server_rss", 8.0);
    }

    #[test]
    fn a_sample_of_the_times_in_the_accept_queue_is_no_mean_of_all() {
        let mut point = fixtures::point();
        for counted in [&mut point.server.counted, &mut point.server.counted_whole] {
            *counted.get_mut("accept_queue_timed").unwrap() *= 0.5;
        }
        for name in ["accept_queue_mean", "accept_queue_max"] {
            assert_eq!(value(&point, name), None, "{name}");
        }
    }

    #[test]
    fn the_papers_figures_follow_from_the_counters() {
        let wanted = [
            ("c_avg", 2.0),
            ("accepts_per_wait", 0.5),
            ("accept_phases", 1500.0),
            ("accept_phase_rate", 750.0),
            ("accepted", 3000.0),
            ("accept_rate", 1500.0),
            ("getevents_rate", 3000.0),
            ("fds_per_call", 1.5),
            ("fd_rate", 4500.0),
            ("open_mean", 10.0),
            ("open_max", 50.0),
            ("accepts_max", 10.0),
            ("accept_queue_mean", 2.0),
            ("accept_queue_max", 30.0),
            ("work_items_mean", 4.0),
            ("work_items_max", 20.0),
            ("accept_would_block_rate", 50.0),
            ("syn_rate", 1700.0),
            ("drops_rate", 20.0),
            ("accept_queue_full_rate", 10.0),
            ("accept_queue_full_at_syn_rate", 7.0),
            ("listen_overflow_rate", 3.0),
            ("filter_drop_rate", 4.0),
            ("other_drop_rate", 1.0),
            ("syn_queue_full_rate", 5.0),
            ("drop_request_rate", 5.0),
            ("syn_queue_drops_rate", 10.0),
            ("softnet_drops", 10.0),
            ("softnet_drop_share", 0.05),
            ("cookie_rate", 2.0),
        ];
        for (name, wanted) in wanted {
            assert_eq!(of(name), Some(wanted), "{name}");
        }
    }
}
