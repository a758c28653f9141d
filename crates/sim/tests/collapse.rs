//! Collapse of a fixed accept-limit past saturation, as measured: with a long accept queue it
//! serves clients that have gone.

use weir_accept::{Limit, PolicyConfig, PolicyName};
use weir_sim::{Class, Distribution, SECOND_NS, Scenario, run};

/// Returns goodput as a share of the capacity, with `work_ns` per request, a client timeout of 500
/// ms and a connection per request.
fn goodput(limit: Limit, backlog: u32, eager: bool, work_ns: u64, load: f64) -> f64 {
    let scenario = Scenario {
        policy: PolicyConfig { name: PolicyName::Limit, limit, backlog, ..PolicyConfig::default() },
        eager,
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(work_ns) }],
        measured_from_ns: 0,
        ..Scenario::default()
    }
    .loaded(load);
    assert_eq!(scenario.duration_ns, 10 * SECOND_NS);
    run(&scenario, 1).goodput() / scenario.capacity()
}

#[test]
fn a_long_queue_collapses_whatever_the_limit() {
    for limit in [Limit::Count(1), Limit::Count(10), Limit::Inf, Limit::Auto] {
        for load in [2.0, 10.0] {
            let share = goodput(limit, 4096, true, 600_000, load);
            assert!(share < 0.4, "{limit} at {load}: {share}");
        }
    }
}

#[test]
fn a_short_queue_holds() {
    for load in [2.0, 10.0] {
        let share = goodput(Limit::Count(10), 64, true, 600_000, load);
        assert!(share > 0.9, "at {load}: {share}");
    }
}

#[test]
fn below_saturation_all_are_served() {
    for (limit, backlog) in [(Limit::Count(1), 4096), (Limit::Inf, 64), (Limit::Auto, 4096)] {
        let share = goodput(limit, backlog, true, 600_000, 0.7);
        assert!((0.67..0.73).contains(&share), "{limit}: {share}");
    }
}

#[test]
fn a_queue_of_a_quarter_second_holds_unless_the_server_takes_it_all_in() {
    let bounded = goodput(Limit::Count(10), 4096, false, 10_000, 2.0);
    let unbounded = goodput(Limit::Inf, 4096, false, 10_000, 2.0);
    assert!(bounded > 0.8, "{bounded}");
    assert!(unbounded < bounded / 2.0, "{unbounded} and {bounded}");
}
