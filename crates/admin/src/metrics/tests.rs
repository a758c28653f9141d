//! Tests of the metrics: names, units, labels and what is derived.

use std::collections::BTreeSet;

use weir_stats::Merge;
use weir_stats::page::Owner;

use super::*;
use crate::fixtures::{Page, this_thread};

fn counted(name: &str, help: &str, value: u64, merge: Merge) -> Named {
    Named { name: name.into(), help: help.into(), value: Some(value), merge }
}

fn total(name: &str, help: &str, value: u64) -> Named {
    counted(name, help, value, Merge::Sum)
}

fn text_of(counters: &[Named]) -> String {
    let mut metrics = Vec::new();
    counters.iter().for_each(|counter| add(&mut metrics, counter));
    text_format::text(&metrics)
}

#[test]
fn times_are_seconds_sizes_bytes_and_counters_totals() {
    let text = text_of(&[
        total("cpu_user_ns", "user time of the loops, nanoseconds", 1_500_000_000),
        counted("helper_ns_max", "maximum time, nanoseconds", 2_000_000, Merge::Max),
        total("bytes_out", "bytes written", 7),
        counted("open_max", "maximum number of open connections", 3, Merge::Max),
        counted("proxy_cache_bytes", "size of the stored replies, bytes", 5, Merge::SumNow),
        counted("share_ppm", "share, per million", 250_000, Merge::Max),
    ]);
    let expected = "\
        # HELP weir_cpu_user_seconds_total user time of the loops\n\
        # TYPE weir_cpu_user_seconds_total counter\n\
        weir_cpu_user_seconds_total 1.5\n\
        # HELP weir_helper_max_seconds maximum time\n\
        # TYPE weir_helper_max_seconds gauge\n\
        weir_helper_max_seconds 0.002\n\
        # HELP weir_sent_bytes_total bytes written\n\
        # TYPE weir_sent_bytes_total counter\n\
        weir_sent_bytes_total 7\n\
        # HELP weir_open_max maximum number of open connections\n\
        # TYPE weir_open_max gauge\n\
        weir_open_max 3\n\
        # HELP weir_proxy_cache_bytes size of the stored replies\n\
        # TYPE weir_proxy_cache_bytes gauge\n\
        weir_proxy_cache_bytes 5\n\
        # HELP weir_share_ratio share\n\
        # TYPE weir_share_ratio gauge\n\
        weir_share_ratio 0.25\n";
    assert_eq!(text, expected);
}

#[test]
fn parts_of_a_whole_are_one_metric_with_a_label() {
    let text = text_of(&[
        total("status_2xx", "", 5),
        total("replies", "replies", 6),
        total("status_5xx", "", 1),
        total("end_finished", "", 2),
        total("timeout_idle", "", 3),
        total("upstream_stale", "", 4),
    ]);
    let parts = "weir_responses_total{code=\"2xx\"} 5\nweir_responses_total{code=\"5xx\"} 1\n";
    assert!(text.contains(parts), "{text}");
    assert!(text.contains("weir_connections_closed_total{reason=\"timeout_idle\"} 3\n"));
    assert!(text.contains("weir_refusals_total{reason=\"upstream_waited_too_long\"} 4\n"));
}

#[test]
fn each_upstream_has_its_state_and_one_without_a_limit_an_infinite_one() {
    let state = |name: &str, limit, waiting| UpstreamState {
        name: name.into(),
        servers: 2,
        limit,
        waiting,
        ..UpstreamState::default()
    };
    let text = text_format::text(&of_upstreams(&[state("a", Some(8), 1), state("b", None, 0)]));
    let limits =
        "weir_upstream_limit{upstream=\"a\"} 8\nweir_upstream_limit{upstream=\"b\"} +Inf\n";
    assert!(text.contains(limits), "{text}");
    assert!(
        text.contains(
            "# TYPE weir_upstream_waiting gauge\nweir_upstream_waiting{upstream=\"a\"} 1\n"
        )
    );
    assert!(text.contains("weir_upstream_servers_down{upstream=\"b\"} 0\n"));
    assert!(of_upstreams(&[]).is_empty());
}

#[test]
fn every_counter_of_the_table_has_a_name_of_its_own() {
    let all: Vec<Named> =
        weir_stats::TABLE.iter().map(|row| counted(row.name, row.help, 1, row.merge)).collect();
    let text = text_of(&all);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = samples.filter_map(|line| line.split(' ').next()).collect();
    let at_exit = all.iter().filter(|row| row.name.ends_with("_at_exit")).count();
    assert_eq!(names.len(), all.len() - at_exit - OF_UPSTREAMS.len());
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    for name in names {
        let name = name.split('{').next().unwrap();
        assert!(name.starts_with("weir_") && name.chars().all(is_plain), "{name}");
        assert!(!name.contains("_ns") && !name.ends_with("_total_total"), "{name}");
    }
    for name in REFUSALS.iter().map(|row| &row.counter).chain(&OF_UPSTREAMS) {
        assert!(all.iter().any(|row| row.name == *name), "{name}");
    }
}

#[test]
fn a_connection_is_open_from_its_accept_until_it_is_closed_or_let_go() {
    for (counters, open) in [
        (&[("accepted", 5)][..], 5),
        (&[("accepted", 5), ("closed", 5)], 0),
        // Let go as they were accepted: they are not begun, and not closed.
        (&[("accepted", 5), ("refused_excess", 1), ("refused_stale", 1), ("departed", 1)], 2),
        // Answered with 503: open, and then closed.
        (&[("accepted", 5), ("refused_stale", 2), ("turned_away", 2), ("closed", 1)], 4),
        // Refused or left after they were begun.
        (&[("accepted", 5), ("refused_stale", 1), ("end_stale", 1), ("closed", 1)], 4),
        (&[("accepted", 5), ("refused_unfair", 1), ("end_unfair", 1), ("closed", 1)], 4),
        (&[("accepted", 5), ("departed", 1), ("end_departed", 1), ("closed", 1)], 4),
        // Beyond the limit of its client: reset, and answered with 503.
        (
            &[
                ("accepted", 5),
                ("refused_client_connections", 1),
                ("end_client_limit", 1),
                ("closed", 1),
            ],
            4,
        ),
        (
            &[
                ("accepted", 5),
                ("refused_client_connections", 1),
                ("turned_away", 1),
                ("closed", 1),
            ],
            4,
        ),
        // Refused for lack of memory: by a reset, with 503, and after they were begun.
        (&[("accepted", 5), ("refused_memory", 1)], 4),
        (&[("accepted", 5), ("refused_memory", 1), ("turned_away", 1), ("closed", 1)], 4),
        (&[("accepted", 5), ("refused_memory_requests", 1), ("turned_away", 1), ("closed", 1)], 4),
        (&[("accepted", 5), ("refused_memory", 1), ("end_memory_refused", 1), ("closed", 1)], 4),
        (&[("accepted", 1), ("closed", 2)], 0),
    ] {
        let page = Page::new(1);
        page.publish(0, &this_thread(), counters);
        let total = page.observed().snapshot().unwrap().total();
        assert_eq!(open_connections(&Snapshot::counters(&total)), open, "{counters:?}");
    }
}

#[test]
fn loops_are_those_that_live() {
    let page = Page::new(4);
    let live = this_thread();
    let ended = Owner { state: State::Ended, ..live };
    let sum = Owner { pid: 0, tid: 0, ..live };
    for (slot, owner) in [live, ended, sum].iter().enumerate() {
        page.publish(slot, owner, &[]);
    }
    let snapshot = page.observed().snapshot().unwrap();
    let usage = ProcessUsage { fds: Some(7), ..ProcessUsage::default() };
    let text = text(&snapshot, Some(&usage));
    assert!(text.contains("\nweir_loops 1\n") && text.contains("\nprocess_open_fds 7\n"));
    assert!(text.contains("\nweir_open_connections 0\n"));
    for unknown in ["process_cpu_seconds_total", "process_max_fds"] {
        assert!(!text.contains(unknown), "{unknown} is not known");
    }
    assert!(text.contains("weir_build_info{version=\""), "{text}");
}

#[test]
fn the_manual_says_which_counters_have_another_name() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admin.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    for (counter, metric) in RENAMED {
        for name in [format!("`{counter}`"), format!("`weir_{metric}_total`")] {
            assert!(manual.contains(&name), "{name}");
        }
    }
}
