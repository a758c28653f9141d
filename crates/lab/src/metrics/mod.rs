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
mod families;
mod mechanism;
mod probe;
mod relative;
mod timeline;

use std::borrow::Cow;

use crate::measure::identity;
use crate::measure::kernel::{Drops, classify};
use crate::record::{CallsRun, CoreTime, Point, Times};
pub use relative::{Base, RelativeMetric, relative};

/// A metric of the table.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in experiments' files.
    pub name: &'static str,
    /// Its name on an axis.
    pub label: &'static str,
    /// Its unit; empty for a pure number.
    pub unit: &'static str,
    /// Its meaning.
    pub help: &'static str,
    of: fn(&Point) -> Option<f64>,
}

/// Label, unit and meaning of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    /// Its name on an axis.
    pub label: Cow<'static, str>,
    /// Its unit; empty for a pure number.
    pub unit: &'static str,
    /// Its meaning.
    pub help: Cow<'static, str>,
}

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
    ("calls.NAME.rate", "1/s", "system calls of that name a second"),
    ("calls.NAME.per_reply", "", "system calls of that name for each reply"),
    ("calls.NAME.mean_us", "us", "how long one takes, mean"),
    ("counter.NAME.rate", "1/s", "how fast a counter of weir's statistics moves"),
    (
        "class.N.reply_rate",
        "replies/s",
        "of a mix: requests of its class N, from 1, that became replies and no refusals, a second",
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
    let families = ["response_", "service_", "connect_"];
    families.iter().any(|family| name.starts_with(family)) || timeline::is_of_times(name)
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
        None => relative::find(name).or_else(|| families::find(name)),
    }
}

/// Returns the value of `calls.NAME.per_reply` if the calls were counted from outside. The rest of
/// the family has no value then: times were not measured, and the rates are those of a traced
/// server.
pub fn calls_value(run: &CallsRun, name: &str) -> Option<f64> {
    families::calls_value(run, name)
}

const fn metric(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    help: &'static str,
    of: fn(&Point) -> Option<f64>,
) -> Metric {
    Metric { name, label, unit, help, of }
}

/// Returns every metric that belongs to no family.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let background_load = background_load::TABLE.iter().chain(probe::TABLE);
    TABLE
        .iter()
        .chain(client::TABLE)
        .chain(mechanism::TABLE)
        .chain(arch::TABLE)
        .chain(timeline::TABLE)
        .chain(background_load)
}

/// Metrics of a load, its server and the kernel, over the whole measured window.
const TABLE: &[Metric] = &[
    metric(
        "reply_rate",
        "replies",
        "replies/s",
        "Whole replies a second, as the client counts them",
        |p| Some(p.load.replies_per_s),
    ),
    metric(
        "goodput",
        "goodput",
        "replies/s",
        "Whole replies a second that are no refusals (2xx, 3xx), as the client counts them",
        goodput,
    ),
    metric(
        "refused_rate",
        "refusals",
        "1/s",
        "Requests refused so that the client knew (a reset, a close, 4xx, 5xx), a second",
        |p| {
            let refused = of_kinds(p, REFUSALS) + p.load.replies_refused as f64;
            ratio(refused, p.load.window_s)
        },
    ),
    metric(
        "timeout_rate",
        "requests that waited in vain",
        "1/s",
        "Requests that the client gave up after its timeout, a second",
        |p| ratio(of_kinds(p, TIMEOUTS), p.load.window_s),
    ),
    metric(
        "session_rate",
        "sessions",
        "sessions/s",
        "Sessions whose every reply came, a second, over the time to the last reply",
        |p| p.load.sessions_per_s,
    ),
    metric(
        "started_rate",
        "requests started",
        "requests/s",
        "Requests the client started, a second",
        |p| p.load.started_per_s,
    ),
    metric("error_rate", "errors", "errors/s", "Requests that ended in an error, a second", |p| {
        ratio(errors(p), p.load.window_s)
    }),
    metric(
        "error_share",
        "errors of requests ended",
        "%",
        "Of the requests that ended, those in error",
        error_share,
    ),
    metric(
        "response_mean",
        "response time, mean",
        "ms",
        "From the planned start to the last byte: mean",
        |p| response(p, |t| Some(t.mean_us)),
    ),
    metric(
        "response_p50",
        "response time, median",
        "ms",
        "From the planned start to the last byte: half are no longer",
        |p| response(p, |t| t.p50_us),
    ),
    metric(
        "response_p90",
        "response time, 90th percentile",
        "ms",
        "From the planned start to the last byte: 90 % are no longer",
        |p| response(p, |t| t.p90_us),
    ),
    metric(
        "response_p99",
        "response time, 99th percentile",
        "ms",
        "From the planned start to the last byte: 99 % are no longer",
        |p| response(p, |t| t.p99_us),
    ),
    metric(
        "response_max",
        "response time, longest",
        "ms",
        "From the planned start to the last byte: the longest",
        |p| response(p, |t| t.max_us),
    ),
    metric(
        "connect_mean",
        "connect time, mean",
        "ms",
        "From the actual start to the connection: mean",
        |p| connect(p, |t| Some(t.mean_us)),
    ),
    metric(
        "connect_p50",
        "connect time, median",
        "ms",
        "From the actual start to the connection: half are no longer",
        |p| connect(p, |t| t.p50_us),
    ),
    metric(
        "connect_p99",
        "connect time, 99th percentile",
        "ms",
        "From the actual start to the connection: 99 % are no longer",
        |p| connect(p, |t| t.p99_us),
    ),
    metric(
        "service_mean",
        "service time, mean",
        "ms",
        "From the actual start to the last byte: mean",
        |p| service(p, |t| Some(t.mean_us)),
    ),
    metric(
        "service_p50",
        "service time, median",
        "ms",
        "From the actual start to the last byte: half are no longer",
        |p| service(p, |t| t.p50_us),
    ),
    metric(
        "service_p99",
        "service time, 99th percentile",
        "ms",
        "From the actual start to the last byte: 99 % are no longer",
        |p| service(p, |t| t.p99_us),
    ),
    metric(
        "reply_share",
        "requests that became replies",
        "%",
        "Of what was planned, what became whole replies",
        reply_share,
    ),
    metric(
        "core_busy",
        "core time, not idle",
        "%",
        "Of the server's processors' time: neither idle nor taken by the host",
        |p| core(p, CoreTime::busy_s),
    ),
    metric(
        "core_user",
        "core time, user",
        "%",
        "Of the server's processors' time: programs",
        |p| core(p, |time| time.user_s),
    ),
    metric(
        "core_system",
        "core time, system",
        "%",
        "Of the server's processors' time: the kernel for programs",
        |p| core(p, |time| time.system_s),
    ),
    metric(
        "core_softirq",
        "core time, softirq",
        "%",
        "Of the server's processors' time: packets, mostly; a lower bound",
        |p| core(p, |time| time.softirq_s),
    ),
    metric("core_idle", "core time, idle", "%", "Of the server's processors' time: idle", |p| {
        core(p, |time| time.idle_s)
    }),
    metric(
        "core_us_per_reply",
        "core time a reply",
        "us",
        "Time the server's processors were not idle, for each reply; without what the host took",
        core_us_per_reply,
    ),
    metric(
        "server_cpu",
        "processor time of the server's processes",
        "%",
        "User and system time of its processes alone, of one processor",
        server_cpu,
    ),
    metric(
        "server_us_per_reply",
        "processor time of the server a reply",
        "us",
        "User and system time of its processes alone, for each reply: exact where that of the \
         processors is sampled at ticks, but without the packets handled beside them",
        server_us_per_reply,
    ),
    metric(
        "server_rss",
        "memory of the server",
        "MiB",
        "The most its processes had resident, summed: shared pages count in each",
        server_rss,
    ),
    metric(
        "c_avg",
        "connections an accept-phase (C_avg)",
        "connections",
        "Connections accepted an accept-phase (pariag eq. 4.1)",
        |p| counted_ratio(p, "accepted", "accept_phases"),
    ),
    metric(
        "accept_phases",
        "accept-phases (N_phases)",
        "phases",
        "Accept-phases while the load was measured",
        |p| counted(p, "accept_phases"),
    ),
    metric("accept_phase_rate", "accept-phases a second", "1/s", "Accept-phases a second", |p| {
        counted_rate(p, "accept_phases")
    }),
    metric(
        "accepted",
        "connections accepted",
        "connections",
        "Connections accepted while the load was measured",
        |p| counted(p, "accepted"),
    ),
    metric(
        "accept_rate",
        "connections accepted a second",
        "1/s",
        "N_phases · C_avg / t (pariag eq. 4.1)",
        |p| counted_rate(p, "accepted"),
    ),
    metric(
        "getevents_rate",
        "waits a second (getevents rate)",
        "1/s",
        "Calls of the event mechanism a second: select rate",
        |p| counted_rate(p, "getevents_calls"),
    ),
    metric(
        "fds_per_call",
        "descriptors a wait",
        "descriptors",
        "Descriptors a wait returns, mean",
        |p| counted_ratio(p, "getevents_ready", "getevents_calls"),
    ),
    metric(
        "fd_rate",
        "descriptors returned a second (fd-rate)",
        "1/s",
        "Waits a second times descriptors a wait",
        |p| counted_rate(p, "getevents_ready"),
    ),
    metric(
        "open_mean",
        "connections open, mean",
        "connections",
        "Connections open in a loop, mean over the accepts",
        |p| counted_ratio(p, "open_at_accept", "accepted"),
    ),
    metric(
        "open_max",
        "connections open, most",
        "connections",
        "The most open at once in a loop, since the server began",
        |p| mark(p, "open_max"),
    ),
    metric(
        "work_items_mean",
        "connections served a work-phase, mean",
        "connections",
        "Connections served a work-phase, mean",
        |p| counted_ratio(p, "work_items", "work_phases"),
    ),
    metric(
        "work_items_max",
        "connections served a work-phase, most",
        "connections",
        "The most served in one work-phase, since the server began",
        |p| mark(p, "work_items_max"),
    ),
    metric(
        "accept_would_block_rate",
        "accepts that found nobody",
        "1/s",
        "Accepts that failed with EWOULDBLOCK, a second",
        |p| counted_rate(p, "accept_would_block"),
    ),
    metric(
        "read_would_block_rate",
        "reads that found nothing",
        "1/s",
        "Reads that failed with EWOULDBLOCK, a second",
        |p| counted_rate(p, "read_would_block"),
    ),
    metric(
        "gone_before_read_rate",
        "clients gone before the first read",
        "1/s",
        "Connections whose client had gone before its first byte was read, a second",
        |p| counted_rate(p, "gone_before_read"),
    ),
    metric(
        "drops_rate",
        "connections dropped by the kernel",
        "1/s",
        "Drops of all kinds, a second (ListenDrops)",
        |p| drops(p, |drops| drops.all),
    ),
    metric(
        "accept_queue_full_rate",
        "drops: accept queue full",
        "1/s",
        "At the SYN or at the third ACK, which share a counter, a second (ListenOverflows)",
        |p| drops(p, |drops| drops.accept_queue_full),
    ),
    metric(
        "syn_queue_full_rate",
        "drops: SYN queue full",
        "1/s",
        "Without cookies, a second (TCPReqQFullDrop)",
        |p| drops(p, |drops| drops.syn_queue_full),
    ),
    metric(
        "drop_request_rate",
        "drops: DropRequest",
        "1/s",
        "SYN queue three quarters full, a second: what of ListenDrops nothing else explains",
        |p| drops(p, |drops| drops.drop_request),
    ),
    metric(
        "syn_queue_drops_rate",
        "drops: no room in the SYN queue",
        "1/s",
        "Whether it was full or three quarters full, a second: ListenDrops less ListenOverflows",
        |p| drops(p, |drops| drops.syn_queue_full + drops.drop_request),
    ),
    metric(
        "cookie_rate",
        "SYN cookies",
        "1/s",
        "SYN queue full and a cookie sent: nothing is dropped, a second (TCPReqQFullDoCookies)",
        |p| drops(p, |drops| drops.cookies),
    ),
];

/// Returns `above / below`; `None` unless `below` is positive.
fn ratio(above: f64, below: f64) -> Option<f64> {
    (below > 0.0).then(|| above / below)
}

/// The generators' names for errors in which a server refuses a connection, or ends one without a
/// whole reply.
const REFUSALS: &[&str] =
    &["connect-refused", "connect-reset", "reset", "closed-early", "connrefused", "connreset"];

/// The generators' names for timeouts.
const TIMEOUTS: &[&str] = &[
    "connect-timeout",
    "send-timeout",
    "reply-timeout",
    "deadline",
    "client-timo",
    "socket-timo",
    "timeout",
];

fn of_kinds(point: &Point, kinds: &[&str]) -> f64 {
    let errors = point.load.errors.iter();
    let counted = errors.filter(|(kind, _)| kinds.contains(&kind.as_str()));
    counted.map(|(_, count)| *count).sum::<u64>() as f64
}

/// Returns the goodput. If the generator does not report it, refusals are assumed to be in time as
/// often as other replies.
fn goodput(point: &Point) -> Option<f64> {
    let load = &point.load;
    let share = ratio(load.replies_refused as f64, load.replies as f64).unwrap_or(0.0);
    let all = Some(load.replies_per_s).filter(|all| *all > 0.0 || load.window_s > 0.0);
    load.good_per_s.or_else(|| Some(all? * (1.0 - share)))
}

fn errors(point: &Point) -> f64 {
    point.load.errors.values().sum::<u64>() as f64
}

fn error_share(point: &Point) -> Option<f64> {
    let errors = errors(point);
    ratio(100.0 * errors, errors + point.load.replies as f64)
}

fn reply_share(point: &Point) -> Option<f64> {
    let load = &point.load;
    match (load.planned_per_s, point.rate, load.sessions_per_s) {
        (Some(planned), _, _) => ratio(100.0 * load.replies_per_s, planned),
        (None, Some(planned), Some(sessions)) => ratio(100.0 * sessions, planned),
        _ => None,
    }
}

fn ms(times: Option<&Times>, of: fn(&Times) -> Option<f64>) -> Option<f64> {
    times.filter(|times| times.count > 0).and_then(of).map(|us| us / 1000.0)
}

fn response(point: &Point, of: fn(&Times) -> Option<f64>) -> Option<f64> {
    ms(point.load.response.as_ref(), of)
}

fn connect(point: &Point, of: fn(&Times) -> Option<f64>) -> Option<f64> {
    ms(point.load.connect.as_ref(), of)
}

fn service(point: &Point, of: fn(&Times) -> Option<f64>) -> Option<f64> {
    ms(point.load.service.as_ref(), of)
}

/// Returns a part of the time of the server's processors, %.
fn core(point: &Point, of: fn(&CoreTime) -> f64) -> Option<f64> {
    let time = &point.cores.server;
    ratio(100.0 * of(time), time.total_s())
}

/// Returns the processor time per reply, computed from rates because the load and the processors
/// are measured over slightly different windows.
fn core_us_per_reply(point: &Point) -> Option<f64> {
    let cores = &point.cores.server;
    let busy = ratio(cores.busy_s(), point.kernel.window_s).filter(|_| cores.total_s() > 0.0)?;
    ratio(1e6 * busy, point.load.replies_per_s)
}

fn server_cpu(point: &Point) -> Option<f64> {
    let server = &point.server;
    let used_s = server.cpu_user_s + server.cpu_system_s;
    ratio(100.0 * used_s, point.kernel.window_s).filter(|_| server.processes > 0)
}

fn server_us_per_reply(point: &Point) -> Option<f64> {
    ratio(1e4 * server_cpu(point)?, point.load.replies_per_s)
}

fn server_rss(point: &Point) -> Option<f64> {
    let bytes = point.server.rss_max_bytes;
    (bytes > 0).then(|| bytes as f64 / f64::from(1 << 20))
}

/// Returns the growth of one of the server's counters. A server answers only between its phases: if
/// it is stuck in one it answers too late, and what it then reports covers another window.
fn counted(point: &Point, name: &str) -> Option<f64> {
    let counted = &point.server.counted;
    let (of_server, window_s) = (counted.get("elapsed_s")?, point.kernel.window_s);
    counted.get(name).copied().filter(|_| identity::same_time(*of_server, window_s))
}

/// Returns the growth of a counter per second, by the server's clock.
fn counted_rate(point: &Point, name: &str) -> Option<f64> {
    ratio(counted(point, name)?, counted(point, "elapsed_s")?)
}

fn counted_ratio(point: &Point, above: &str, below: &str) -> Option<f64> {
    ratio(counted(point, above)?, counted(point, below)?)
}

/// Returns a high-water mark over the server's whole lifetime.
fn mark(point: &Point, name: &str) -> Option<f64> {
    point.server.counted_whole.get(name).copied()
}

fn drops(point: &Point, of: fn(&Drops) -> u64) -> Option<f64> {
    ratio(of(&classify(&point.kernel)) as f64, point.kernel.window_s)
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
    fn what_was_not_measured_has_no_value() {
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
        assert_eq!(find("no_such_metric"), None);
    }

    #[test]
    fn what_did_not_happen_is_nought() {
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
        about("core_user", 20.0);
        about("core_system", 45.0);
        about("core_softirq", 7.5);
        about("core_idle", 25.0);
        about("core_us_per_reply", 500.0);
        about("server_cpu", 40.0);
        about("server_us_per_reply", 40.0 * 500.0 / 75.0);
        about("server_rss", 8.0);
    }

    #[test]
    fn the_papers_figures_follow_from_the_counters() {
        let wanted = [
            ("c_avg", 2.0),
            ("accept_phases", 1500.0),
            ("accept_phase_rate", 750.0),
            ("accepted", 3000.0),
            ("accept_rate", 1500.0),
            ("getevents_rate", 3000.0),
            ("fds_per_call", 1.5),
            ("fd_rate", 4500.0),
            ("open_mean", 10.0),
            ("open_max", 50.0),
            ("work_items_mean", 4.0),
            ("work_items_max", 20.0),
            ("accept_would_block_rate", 50.0),
            ("drops_rate", 20.0),
            ("accept_queue_full_rate", 10.0),
            ("syn_queue_full_rate", 5.0),
            ("drop_request_rate", 5.0),
            ("syn_queue_drops_rate", 10.0),
            ("cookie_rate", 2.0),
        ];
        for (name, wanted) in wanted {
            assert_eq!(of(name), Some(wanted), "{name}");
        }
    }
}
