//! The statistics as metrics.
//!
//! Counters are `weir_NAME_total`, high-water marks and present states `weir_NAME`; times are
//! seconds, sizes bytes and shares ratios. Counters that divide a whole are one metric with a
//! label: replies by `code`, connections closed and refusals by `reason`. The state of upstreams is
//! that of each, by `upstream`.

use weir_stats::live::{REFUSALS, open_connections};
use weir_stats::page::{Named, Snapshot, State, UpstreamState};

use crate::help;
use crate::process::ProcessUsage;
use crate::text_format::{self, Kind, Metric};

/// Help of the refusals.
const REFUSALS_HELP: &str = "connections and requests refused because of load, by reason; of \
     syn_filter and upstream_syn_filter it is SYNs, which a client repeats";

/// Counters whose names in the table are not those that metrics have.
const RENAMED: [(&str, &str); 2] = [("bytes_in", "received_bytes"), ("bytes_out", "sent_bytes")];

/// Present states of all upstreams together, which metrics have for each.
const OF_UPSTREAMS: [&str; 4] =
    ["upstream_limit", "upstream_in_flight", "upstream_waiting", "upstream_servers_down"];

/// Nanoseconds of a second.
const NS: f64 = 1e9;

/// Ends of the names of counters, what metrics have instead, and the divisor.
const UNITS: [(&str, &str, f64); 3] =
    [("_ns", "_seconds", NS), ("_ns_max", "_max_seconds", NS), ("_ppm", "_ratio", 1e6)];

/// Returns the metrics of a server in the text format of Prometheus.
pub(crate) fn text(snapshot: &Snapshot, process: Option<&ProcessUsage>) -> String {
    let counters = snapshot.total();
    let mut metrics = Vec::new();
    counters.iter().for_each(|counter| add(&mut metrics, counter));
    metrics.extend(of_upstreams(&snapshot.upstreams()));
    let open = open_connections(&Snapshot::counters(&counters)) as f64;
    let help = "open connections of clients";
    metrics.push(Metric::plain("weir_open_connections", help, Kind::Gauge, open));
    metrics.extend(of_the_build(snapshot));
    metrics.extend(process.into_iter().flat_map(of_the_process));
    text_format::text(&metrics)
}

/// Adds a counter: to the metric that it is a part of, or as one of its own. One that the kernel
/// did not tell, one that is counted at the end, and one that each upstream has are left out.
fn add(metrics: &mut Vec<Metric>, counter: &Named) {
    let Some(value) = counter.value else { return };
    if counter.name.ends_with("_at_exit") || OF_UPSTREAMS.contains(&&*counter.name) {
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
    if let Some(refusal) = REFUSALS.iter().find(|row| row.counter == counter.name) {
        let label = ("reason", refusal.reason.to_owned());
        return Some(("weir_refusals_total", REFUSALS_HELP, label));
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
    let kind = if counter.merge.is_counter() { Kind::Counter } else { Kind::Gauge };
    let found = UNITS.iter().find_map(|(end, unit, scale)| {
        Some((format!("{}{unit}", name.strip_suffix(end)?), value as f64 / scale))
    });
    let (name, value) = found.unwrap_or_else(|| (name.to_owned(), value as f64));
    let suffix = if kind == Kind::Counter { "_total" } else { "" };
    let help = help::of(&counter.name, &counter.help);
    Metric::plain(&format!("weir_{name}{suffix}"), &help, kind, value)
}

/// Returns the state of each upstream; nothing if there is none.
fn of_upstreams(upstreams: &[UpstreamState]) -> Vec<Metric> {
    let gauge = |name: &str, help: &str, value: fn(&UpstreamState) -> f64| {
        let samples = upstreams.iter().map(|each| {
            let label = ("upstream", each.name.clone());
            (Some(label), value(each))
        });
        let (name, help) = (format!("weir_upstream_{name}"), help.into());
        Metric { name, help, kind: Kind::Gauge, samples: samples.collect() }
    };
    if upstreams.is_empty() {
        return Vec::new();
    }
    vec![
        gauge("limit", "maximum number of requests in flight, as of now", |each| {
            each.limit.map_or(f64::INFINITY, |limit| limit as f64)
        }),
        gauge("in_flight", "requests in flight", |each| each.in_flight as f64),
        gauge("waiting", "requests that wait for a place", |each| each.waiting as f64),
        gauge("servers", "servers of the upstream", |each| each.servers as f64),
        gauge("servers_down", "servers that their checks find down", |each| {
            each.servers_down as f64
        }),
    ]
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
    let gauges = [
        ("process_resident_memory_bytes", "resident memory", Some(usage.resident_bytes)),
        ("process_virtual_memory_bytes", "address space", Some(usage.virtual_bytes)),
        ("process_open_fds", "open descriptors", usage.fds),
        ("process_max_fds", "limit on descriptors", usage.fds_max),
    ];
    let gauges = gauges.into_iter().filter_map(|(name, help, value)| {
        let help = format!("{help}, summed over the server's processes");
        Some(Metric::plain(name, &help, Kind::Gauge, value? as f64))
    });
    counters.into_iter().chain(gauges).collect()
}

#[cfg(test)]
mod tests;
