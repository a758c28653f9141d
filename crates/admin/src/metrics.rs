//! The statistics as metrics, in the text format of Prometheus (version 0.0.4).
//!
//! Counters are `weir_NAME_total`, high-water marks and present states `weir_NAME`; times are
//! seconds and sizes bytes. Counters that divide a whole are one metric with a label: replies by
//! `code`, connections closed and refusals by `reason`.

use std::fmt::Write;

use weir_stats::page::{Named, Snapshot};

use super::process::ProcessUsage;

/// Media type of the format.
pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Refusals by their counter: what was refused, and why. Each request or connection is counted by
/// one of these at most.
const REFUSALS: [(&str, &str); 6] = [
    ("syn_dropped", "syn_filter"),
    ("refused_excess", "queue_too_long"),
    ("refused_stale", "waited_too_long"),
    ("refused_unfair", "share_used_up"),
    ("upstream_excess", "upstream_queue_too_long"),
    ("upstream_stale", "upstream_waited_too_long"),
];

/// Counters whose names in the table are not those that metrics have.
const RENAMED: [(&str, &str); 2] = [("bytes_in", "received_bytes"), ("bytes_out", "sent_bytes")];

/// Counters that tell a present state, which may fall.
const STATES: [&str; 1] = ["proxy_cache_bytes"];

/// Nanoseconds of a second.
const NS: f64 = 1e9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// A metric.
#[derive(Debug)]
struct Metric {
    name: String,
    help: String,
    kind: Kind,
    /// Values, each with its label.
    samples: Vec<(Option<(&'static str, String)>, f64)>,
}

/// Returns the metrics of a server.
pub(super) fn text(snapshot: &Snapshot, process: Option<&ProcessUsage>) -> String {
    let mut metrics = Vec::new();
    for counter in snapshot.total() {
        add(&mut metrics, &counter);
    }
    let description = &snapshot.layout.description;
    let version = description.program.split_whitespace().last().unwrap_or_default().to_owned();
    metrics.push(Metric {
        name: "weir_build_info".into(),
        help: "version of the server; always 1".into(),
        kind: Kind::Gauge,
        samples: vec![(Some(("version", version)), 1.0)],
    });
    let started_s = description.started_unix_ns as f64 / NS;
    let mut plain = |name: &str, help: &str, kind: Kind, value: f64| {
        let samples = vec![(None, value)];
        metrics.push(Metric { name: name.into(), help: help.into(), kind, samples });
    };
    plain("weir_loops", "loops, or child processes, that serve", Kind::Gauge, {
        snapshot.loops.len() as f64
    });
    plain("process_start_time_seconds", "start, since 1970", Kind::Gauge, started_s);
    if let Some(usage) = process {
        let cpu = "user and system time of this process";
        plain("process_cpu_seconds_total", cpu, Kind::Counter, usage.cpu_s);
        let resident = usage.resident_bytes as f64;
        plain("process_resident_memory_bytes", "resident memory", Kind::Gauge, resident);
        let size = usage.virtual_bytes as f64;
        plain("process_virtual_memory_bytes", "address space", Kind::Gauge, size);
        plain("process_open_fds", "open descriptors", Kind::Gauge, usage.fds as f64);
        if let Some(most) = usage.fds_max {
            plain("process_max_fds", "limit on descriptors", Kind::Gauge, most as f64);
        }
    }
    written(&metrics)
}

/// Adds a counter: to the metric that it is a part of, or as one of its own. One that the kernel
/// did not tell, and one that is counted at the end, is left out.
fn add(metrics: &mut Vec<Metric>, counter: &Named) {
    let Some(value) = counter.value else { return };
    if counter.name.ends_with("_at_exit") {
        return;
    }
    let Some((name, help, label, value)) = part_of(counter, value) else {
        return metrics.push(of_its_own(counter, value));
    };
    let label = Some(label);
    match metrics.iter_mut().find(|metric| metric.name == name) {
        Some(metric) => metric.samples.push((label, value)),
        None => metrics.push(Metric {
            name: name.into(),
            help: help.into(),
            kind: Kind::Counter,
            samples: vec![(label, value)],
        }),
    }
}

type Part = (&'static str, &'static str, (&'static str, String), f64);

/// Returns the metric that a counter is a part of: its name and help, the label, and the value.
fn part_of(counter: &Named, value: u64) -> Option<Part> {
    let value = value as f64;
    let refusal = REFUSALS.iter().find(|(name, _)| *name == counter.name);
    if let Some((_, reason)) = refusal {
        let help = "connections and requests refused because of load, by reason";
        return Some(("weir_refusals_total", help, ("reason", (*reason).to_owned()), value));
    }
    if let Some(class) = counter.name.strip_prefix("status_") {
        let help = "replies, by class of their status";
        return Some(("weir_responses_total", help, ("code", class.to_owned()), value));
    }
    let reason = counter.name.strip_prefix("end_").map(str::to_owned);
    let reason = reason.or_else(|| {
        let limit = counter.name.strip_prefix("timeout_")?;
        Some(format!("timeout_{limit}"))
    })?;
    let help = "connections closed, by reason";
    Some(("weir_connections_closed_total", help, ("reason", reason), value))
}

fn of_its_own(counter: &Named, value: u64) -> Metric {
    let renamed = RENAMED.iter().find(|(name, _)| *name == counter.name);
    let name = renamed.map_or(counter.name.as_str(), |(_, name)| name);
    let is_state = counter.is_max || STATES.contains(&name);
    let kind = if is_state { Kind::Gauge } else { Kind::Counter };
    let (name, value) = match (name.strip_suffix("_ns"), name.strip_suffix("_ns_max")) {
        (Some(time), _) => (format!("{time}_seconds"), value as f64 / NS),
        (_, Some(time)) => (format!("{time}_max_seconds"), value as f64 / NS),
        (None, None) => (name.to_owned(), value as f64),
    };
    let suffix = if kind == Kind::Counter { "_total" } else { "" };
    Metric {
        name: format!("weir_{name}{suffix}"),
        help: counter.help.replace(", nanoseconds", "").replace(", bytes", ""),
        kind,
        samples: vec![(None, value)],
    }
}

fn written(metrics: &[Metric]) -> String {
    let mut text = String::with_capacity(metrics.len() * 160);
    for Metric { name, help, kind, samples } in metrics {
        let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing into a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (label, value) in samples {
            let _ = match label {
                None => writeln!(text, "{name} {value}"),
                Some((key, of)) => {
                    let of = of.replace('\\', "\\\\").replace('"', "\\\"");
                    writeln!(text, "{name}{{{key}=\"{of}\"}} {value}")
                }
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn counted(name: &str, help: &str, value: u64, is_max: bool) -> Named {
        Named { name: name.into(), help: help.into(), value: Some(value), is_max }
    }

    fn text_of(counters: &[Named]) -> String {
        let mut metrics = Vec::new();
        counters.iter().for_each(|counter| add(&mut metrics, counter));
        written(&metrics)
    }

    #[test]
    fn times_are_seconds_sizes_bytes_and_counters_totals() {
        let text = text_of(&[
            counted("cpu_user_ns", "user time of the loops, nanoseconds", 1_500_000_000, false),
            counted("accept_queue_ns_max", "maximum time, nanoseconds", 2_000_000, true),
            counted("bytes_out", "bytes written", 7, false),
            counted("open_max", "maximum number of open connections", 3, true),
            counted("proxy_cache_bytes", "size of the stored replies, bytes", 5, false),
        ]);
        let expected = "\
            # HELP weir_cpu_user_seconds_total user time of the loops\n\
            # TYPE weir_cpu_user_seconds_total counter\n\
            weir_cpu_user_seconds_total 1.5\n\
            # HELP weir_accept_queue_max_seconds maximum time\n\
            # TYPE weir_accept_queue_max_seconds gauge\n\
            weir_accept_queue_max_seconds 0.002\n\
            # HELP weir_sent_bytes_total bytes written\n\
            # TYPE weir_sent_bytes_total counter\n\
            weir_sent_bytes_total 7\n\
            # HELP weir_open_max maximum number of open connections\n\
            # TYPE weir_open_max gauge\n\
            weir_open_max 3\n\
            # HELP weir_proxy_cache_bytes size of the stored replies\n\
            # TYPE weir_proxy_cache_bytes gauge\n\
            weir_proxy_cache_bytes 5\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn parts_of_a_whole_are_one_metric_with_a_label() {
        let text = text_of(&[
            counted("status_2xx", "", 5, false),
            counted("replies", "replies", 6, false),
            counted("status_5xx", "", 1, false),
            counted("end_finished", "", 2, false),
            counted("timeout_idle", "", 3, false),
            counted("upstream_stale", "", 4, false),
        ]);
        let parts = "weir_responses_total{code=\"2xx\"} 5\nweir_responses_total{code=\"5xx\"} 1\n";
        assert!(text.contains(parts), "{text}");
        assert!(text.contains("weir_connections_closed_total{reason=\"timeout_idle\"} 3\n"));
        assert!(text.contains("weir_refusals_total{reason=\"upstream_waited_too_long\"} 4\n"));
    }

    #[test]
    fn every_counter_of_the_table_has_a_name_of_its_own() {
        let all: Vec<Named> = weir_stats::TABLE
            .iter()
            .map(|row| counted(row.name, row.help, 1, row.is_max()))
            .collect();
        let text = text_of(&all);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<&str> = samples.filter_map(|line| line.split(' ').next()).collect();
        let at_exit = all.iter().filter(|row| row.name.ends_with("_at_exit")).count();
        assert_eq!(names.len(), all.len() - at_exit);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        for name in names {
            let name = name.split('{').next().unwrap();
            assert!(name.starts_with("weir_") && name.chars().all(is_plain), "{name}");
            assert!(!name.contains("_ns") && !name.ends_with("_total_total"), "{name}");
        }
        for refused in REFUSALS {
            assert!(all.iter().any(|row| row.name == refused.0), "{refused:?}");
        }
    }
}
