//! The statistics as metrics.
//!
//! Counters are `weir_NAME_total`, high-water marks and present states `weir_NAME`; times are
//! seconds and sizes bytes. Counters that divide a whole are one metric with a label: replies by
//! `code`, connections closed and refusals by `reason`.

use weir_stats::page::{Named, Snapshot, State};

use crate::help;
use crate::process::ProcessUsage;
use crate::text_format::{self, Kind, Metric};

/// Refusals by their counter: what was refused, and why. A request or connection is counted by one
/// of these at most, but for SYNs: a client repeats one that was dropped, so that it may be counted
/// several times, and its connection be accepted or refused in the end.
const REFUSALS: [(&str, &str); 6] = [
    ("syn_dropped", "syn_filter"),
    ("refused_excess", "queue_too_long"),
    ("refused_stale", "waited_too_long"),
    ("refused_unfair", "share_used_up"),
    ("upstream_excess", "upstream_queue_too_long"),
    ("upstream_stale", "upstream_waited_too_long"),
];

/// Help of the refusals.
const REFUSALS_HELP: &str = "connections and requests refused because of load, by reason; of \
     syn_filter it is SYNs, which a client repeats until it is admitted or gives up";

/// Counters whose names in the table are not those that metrics have.
const RENAMED: [(&str, &str); 2] = [("bytes_in", "received_bytes"), ("bytes_out", "sent_bytes")];

/// Counters that tell a present state, which may fall.
const STATES: [&str; 1] = ["proxy_cache_bytes"];

/// The sum of the limits of upstreams, each of which is [`NO_LIMIT`] if it is `inf`.
const LIMIT: &str = "upstream_limit";

/// Number that stands for no limit.
const NO_LIMIT: u64 = u32::MAX as u64;

/// Counters of connections that were accepted and are not open: closed, or let go.
const NOT_OPEN: [&str; 5] =
    ["closed", "departed", "refused_excess", "refused_stale", "refused_unfair"];

/// Counters of connections that [`NOT_OPEN`] has although they were begun: they are still open, or
/// are counted as closed too.
const BEGUN: [&str; 4] = ["turned_away", "end_stale", "end_unfair", "end_departed"];

/// Nanoseconds of a second.
const NS: f64 = 1e9;

/// Returns the metrics of a server in the text format of Prometheus.
pub(crate) fn text(snapshot: &Snapshot, process: Option<&ProcessUsage>) -> String {
    let counters = snapshot.total();
    let mut metrics = Vec::new();
    counters.iter().for_each(|counter| add(&mut metrics, counter));
    metrics.extend(open_connections(&counters).map(|open| {
        let help = "open connections of clients";
        Metric::plain("weir_open_connections", help, Kind::Gauge, open as f64)
    }));
    metrics.extend(of_the_build(snapshot));
    metrics.extend(process.into_iter().flat_map(of_the_process));
    text_format::text(&metrics)
}

/// Adds a counter: to the metric that it is a part of, or as one of its own. One that the kernel
/// did not tell, and one that is counted at the end, is left out.
fn add(metrics: &mut Vec<Metric>, counter: &Named) {
    let Some(value) = counter.value else { return };
    if counter.name.ends_with("_at_exit") {
        return;
    }
    let Some((name, help, label)) = part_of(counter) else {
        return metrics.push(of_its_own(counter, value));
    };
    let sample = (Some(label), value as f64);
    match metrics.iter_mut().find(|metric| metric.name == name) {
        Some(metric) => metric.samples.push(sample),
        None => metrics.push(Metric {
            name: name.into(),
            help: help.into(),
            kind: Kind::Counter,
            samples: vec![sample],
        }),
    }
}

type Part = (&'static str, &'static str, (&'static str, String));

/// Returns the metric that a counter is a part of: its name, its help and the label.
fn part_of(counter: &Named) -> Option<Part> {
    let refusal = REFUSALS.iter().find(|(name, _)| *name == counter.name);
    if let Some((_, reason)) = refusal {
        return Some(("weir_refusals_total", REFUSALS_HELP, ("reason", (*reason).to_owned())));
    }
    if let Some(class) = counter.name.strip_prefix("status_") {
        let help = "replies, by class of their status";
        return Some(("weir_responses_total", help, ("code", class.to_owned())));
    }
    let reason = counter.name.strip_prefix("end_").map(str::to_owned);
    let reason = reason.or_else(|| {
        let limit = counter.name.strip_prefix("timeout_")?;
        Some(format!("timeout_{limit}"))
    })?;
    Some(("weir_connections_closed_total", "connections closed, by reason", ("reason", reason)))
}

fn of_its_own(counter: &Named, value: u64) -> Metric {
    let renamed = RENAMED.iter().find(|(name, _)| *name == counter.name);
    let name = renamed.map_or(counter.name.as_str(), |(_, name)| name);
    let is_state = counter.is_max || STATES.contains(&name);
    let kind = if is_state { Kind::Gauge } else { Kind::Counter };
    let has_no_limit = name == LIMIT && value >= NO_LIMIT;
    let value = if has_no_limit { f64::INFINITY } else { value as f64 };
    let (name, value) = match (name.strip_suffix("_ns"), name.strip_suffix("_ns_max")) {
        (Some(time), _) => (format!("{time}_seconds"), value / NS),
        (_, Some(time)) => (format!("{time}_max_seconds"), value / NS),
        (None, None) => (name.to_owned(), value),
    };
    let suffix = if kind == Kind::Counter { "_total" } else { "" };
    let help = help::of(&counter.name, &counter.help);
    Metric::plain(&format!("weir_{name}{suffix}"), &help, kind, value)
}

/// Returns the number of open connections; `None` if the page has not what is needed. A connection
/// that was to be answered with 503, and for which no slot was free, is subtracted twice.
fn open_connections(counters: &[Named]) -> Option<u64> {
    let value = |name: &&str| counters.iter().find(|counter| counter.name == *name)?.value;
    let sum = |names: &[&str]| {
        names.iter().map(value).try_fold(0_u64, |sum, value| Some(sum.saturating_add(value?)))
    };
    let accepted = value(&"accepted")?.saturating_add(sum(&BEGUN)?);
    Some(accepted.saturating_sub(sum(&NOT_OPEN)?))
}

fn of_the_build(snapshot: &Snapshot) -> [Metric; 3] {
    let description = &snapshot.layout.description;
    let version = description.program.split_whitespace().last().unwrap_or_default().to_owned();
    let serves = |state, pid| state == State::Live && pid != 0;
    let loops = snapshot.loops.iter().filter(|each| serves(each.owner.state, each.owner.pid));
    let started_s = description.started_unix_ns as f64 / NS;
    let gauge = |name: &str, help: &str, value| Metric::plain(name, help, Kind::Gauge, value);
    [
        Metric {
            name: "weir_build_info".into(),
            help: "version of the server; always 1".into(),
            kind: Kind::Gauge,
            samples: vec![(Some(("version", version)), 1.0)],
        },
        gauge("weir_loops", "loops, or child processes, that serve", loops.count() as f64),
        gauge("process_start_time_seconds", "start of the server, since 1970", started_s),
    ]
}

fn of_the_process(usage: &ProcessUsage) -> Vec<Metric> {
    let cpu = "user and system time of the server, child processes included";
    let counters = usage
        .cpu_s
        .map(|seconds| Metric::plain("process_cpu_seconds_total", cpu, Kind::Counter, seconds));
    let most = usage.fds_max.map(|most| ("process_max_fds", "limit on descriptors", most));
    let gauges = [
        ("process_resident_memory_bytes", "resident memory", usage.resident_bytes),
        ("process_virtual_memory_bytes", "address space", usage.virtual_bytes),
        ("process_open_fds", "open descriptors", usage.fds),
    ];
    let gauges = gauges.into_iter().chain(most).map(|(name, help, value)| {
        let help = format!("{help}, summed over the server's processes");
        Metric::plain(name, &help, Kind::Gauge, value as f64)
    });
    counters.into_iter().chain(gauges).collect()
}

#[cfg(test)]
mod tests;
