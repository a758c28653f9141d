//! Storms of TLS handshakes: what is left of the goodput when more clients than can be served begin
//! with one, and of clients that were there before.

mod trial;

use trial::{Faults, WINDOW_NS, goodput_of_attainable};
use weir_sim::{
    Class, ClientKind, Distribution, Group, MILLI_NS, SECOND_NS, Scenario, Sessions, Statistics,
    Step, Tls, run,
};

/// Handshakes as measured: with a new key exchange, and resumed.
const TLS: Tls = Tls { full_ns: 250_000, resumed_ns: 60_000, end_ns: 40_000, resumed_share: 0.0 };

const MIXED: Tls = Tls { resumed_share: 0.5, ..TLS };
const RESUMED: Tls = Tls { resumed_share: 1.0, ..TLS };
const SLOW: Tls = Tls { full_ns: 2_000_000, ..TLS };

/// Returns a scenario with one small request for each connection.
fn storm(tls: Tls, load: f64) -> Scenario {
    let scenario = Scenario {
        tls: Some(tls),
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(10_000) }],
        duration_ns: 4 * SECOND_NS,
        measured_from_ns: 2 * SECOND_NS,
        window_ns: WINDOW_NS,
        ..Scenario::default()
    };
    scenario.loaded(load)
}

#[test]
fn the_goodput_of_new_clients_is_kept_in_a_storm() {
    let mut faults = Faults::default();
    for (name, tls) in [("full", TLS), ("mixed", MIXED), ("resumed", RESUMED), ("slow", SLOW)] {
        for load in [2.0, 4.0, 10.0] {
            let scenario = storm(tls, load);
            let statistics = run(&scenario, 1);
            let goodput = goodput_of_attainable(&scenario, &statistics);
            faults.at_least(0.97, goodput, "goodput", &(name, load));
            let p99_ms = statistics.response.value_at_quantile(0.99) as f64 / 1e6;
            faults.at_most(100.0, p99_ms, "p99, ms,", &(name, load));
        }
    }
}

#[test]
fn nobody_is_refused_below_saturation() {
    let mut faults = Faults::default();
    for load in [0.5, 0.8] {
        for eager in [true, false] {
            let scenario = Scenario { eager, ..storm(TLS, load) }.loaded(load);
            let good = run(&scenario, 1).total.good_share();
            faults.at_least(0.999, good, "good share", &(load, eager));
        }
    }
}

#[test]
fn later_reads_change_little() {
    let mut faults = Faults::default();
    for load in [2.0, 10.0] {
        let scenario = Scenario { eager: false, ..storm(TLS, 1.0) }.loaded(load);
        let goodput = goodput_of_attainable(&scenario, &run(&scenario, 1));
        faults.at_least(0.95, goodput, "goodput", &load);
    }
}

#[test]
fn distant_clients_fare_the_same() {
    let mut faults = Faults::default();
    let rtt = Distribution::Fixed(50 * MILLI_NS);
    for load in [2.0, 4.0, 10.0] {
        let scenario = Scenario { rtt, timeout_ns: 2 * SECOND_NS, ..storm(TLS, load) };
        let goodput = goodput_of_attainable(&scenario, &run(&scenario, 1));
        faults.at_least(0.9, goodput, "goodput", &load);
    }
}

/// Returns the statistics of a hundred clients that come in the first second, stay, and think for
/// 20 ms before each request, while a storm of `load` times what the server can take begins with
/// the third, from as many addresses. Those are the honest clients, and these the reconnecting
/// ones.
fn beside(tls: Tls, load: f64) -> Statistics {
    let keeping = Sessions {
        requests: (100_000, 100_000),
        think: Distribution::Exponential(20 * MILLI_NS),
        closes_one_in: 0,
    };
    let scenario = storm(tls, 1.0);
    let rate = scenario.load[0].rate;
    let open = Group {
        addresses: (0x0b00_0001, 100),
        sessions: Some(keeping),
        begins_ns: (0, SECOND_NS),
        ..Group::new(ClientKind::Honest, 100.0 / rate)
    };
    let others = Group {
        addresses: (0x0a00_0001, 100),
        begins_ns: (2 * SECOND_NS, u64::MAX),
        ..Group::new(ClientKind::Reconnecting, load.max(0.001))
    };
    let scenario = Scenario {
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(60_000) }],
        groups: vec![open, others],
        load: vec![Step { from_ns: 0, rate }],
        duration_ns: 6 * SECOND_NS,
        measured_from_ns: 3 * SECOND_NS,
        ..scenario
    };
    run(&scenario, 1)
}

#[test]
fn open_connections_are_served_in_a_storm() {
    let mut faults = Faults::default();
    for (name, tls) in [("full", TLS), ("resumed", RESUMED), ("slow", SLOW)] {
        let open = |statistics: &Statistics| statistics.kinds[ClientKind::Honest as usize];
        let alone = open(&beside(tls, 0.0));
        for load in [1.0, 4.0, 10.0] {
            let statistics = beside(tls, load);
            let good = open(&statistics).good_share();
            faults.at_least(0.99, good, "good share of open connections", &(name, load));
            // Each reply comes some milliseconds later, and the next request after it. In the first
            // 200 ms nothing may be refused, and at 50,000 connections a second some clients who
            // were there before lose patience.
            let bound = if load > 4.0 && tls == RESUMED { 0.45 } else { 0.7 };
            let kept = open(&statistics).good as f64 / alone.good as f64;
            faults.at_least(bound, kept, "goodput of open connections", &(name, load));
            let others = statistics.kinds[ClientKind::Reconnecting as usize].good;
            faults.at_least(100.0, others as f64, "replies to others", &(name, load));
        }
    }
}
