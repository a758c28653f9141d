//! Tests of the metrics: names, units, labels and what is derived.

use std::collections::BTreeSet;

use weir_stats::page::Owner;

use super::*;
use crate::fixtures::{Page, this_thread};

fn counted(name: &str, help: &str, value: u64, is_max: bool) -> Named {
    Named { name: name.into(), help: help.into(), value: Some(value), is_max }
}

fn text_of(counters: &[Named]) -> String {
    let mut metrics = Vec::new();
    counters.iter().for_each(|counter| add(&mut metrics, counter));
    text_format::text(&metrics)
}

#[test]
fn times_are_seconds_sizes_bytes_and_counters_totals() {
    let text = text_of(&[
        counted("cpu_user_ns", "user time of the loops, nanoseconds", 1_500_000_000, false),
        counted("helper_ns_max", "maximum time, nanoseconds", 2_000_000, true),
        counted("bytes_out", "bytes written", 7, false),
        counted("open_max", "maximum number of open connections", 3, true),
        counted("proxy_cache_bytes", "size of the stored replies, bytes", 5, false),
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
fn a_limit_that_is_none_is_infinite() {
    let text = |limit| text_of(&[counted(LIMIT, "", limit, true)]);
    assert!(text(8).ends_with("\nweir_upstream_limit 8\n"));
    for no_limit in [NO_LIMIT, NO_LIMIT + 8, 2 * NO_LIMIT] {
        assert!(text(no_limit).ends_with("\nweir_upstream_limit +Inf\n"), "{no_limit}");
    }
}

#[test]
fn every_counter_of_the_table_has_a_name_of_its_own() {
    let all: Vec<Named> =
        weir_stats::TABLE.iter().map(|row| counted(row.name, row.help, 1, row.is_max())).collect();
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
    let refusals = REFUSALS.iter().map(|(name, _)| name);
    for name in refusals.chain(&STATES).chain([&LIMIT]).chain(&NOT_OPEN).chain(&BEGUN) {
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
        (&[("accepted", 1), ("closed", 2)], 0),
    ] {
        let page = Page::new(1);
        page.publish(0, &this_thread(), counters);
        let total = page.observed().snapshot().unwrap().total();
        assert_eq!(open_connections(&total), Some(open), "{counters:?}");
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
    let text = text(&snapshot, Some(&ProcessUsage { fds: 7, ..ProcessUsage::default() }));
    assert!(text.contains("\nweir_loops 1\n") && text.contains("\nprocess_open_fds 7\n"));
    assert!(text.contains("\nweir_open_connections 0\n"));
    assert!(!text.contains("process_cpu_seconds_total"), "it is not known");
    assert!(text.contains("weir_build_info{version=\""), "{text}");
}
