//! The model against known results: queueing theory, and invariances of its own.

use weir_accept::{Limit, PolicyConfig, PolicyName};
use weir_sim::{
    ArrivalPattern, Class, ClientKind, Costs, Distribution, Group, MILLI_NS, SECOND_NS, Scenario,
};
use weir_sim::{Sessions, Step, run};

fn fixed(limit: Limit) -> PolicyConfig {
    PolicyConfig { name: PolicyName::Limit, limit, ..PolicyConfig::default() }
}

/// Returns a single-server queue with a mean service time of a millisecond; nothing else has a
/// cost.
fn queue(service: Distribution, load: f64) -> Scenario {
    Scenario {
        policy: fixed(Limit::Count(1)),
        costs: Costs::FREE,
        classes: vec![Class { weight: 1.0, service }],
        load: vec![Step { from_ns: 0, rate: 1000.0 * load }],
        duration_ns: 200 * SECOND_NS,
        timeout_ns: 100 * SECOND_NS,
        ..Scenario::default()
    }
}

/// Returns the mean response time, milliseconds.
fn response_ms(scenario: &Scenario) -> f64 {
    run(scenario, 1).response.mean() / 1e6
}

#[test]
fn fixed_work_waits_as_long_as_pollaczek_and_khinchine_say() {
    for load in [0.3, 0.5, 0.8] {
        let expected = 1.0 + load / (2.0 * (1.0 - load));
        let response = response_ms(&queue(Distribution::Fixed(MILLI_NS), load));
        assert!((response / expected - 1.0).abs() < 0.04, "{load}: {response}, not {expected}");
    }
}

#[test]
fn exponential_work_waits_as_long_as_a_birth_death_process_says() {
    for load in [0.3, 0.5, 0.8] {
        let expected = 1.0 / (1.0 - load);
        let response = response_ms(&queue(Distribution::Exponential(MILLI_NS), load));
        assert!((response / expected - 1.0).abs() < 0.05, "{load}: {response}, not {expected}");
    }
}

#[test]
fn arrivals_at_equal_distances_wait_for_nobody() {
    let mut scenario = queue(Distribution::Fixed(MILLI_NS), 0.9);
    scenario.pattern = ArrivalPattern::Constant;
    assert!((response_ms(&scenario) - 1.0).abs() < 0.01);
    // Five at once, one after the other: two others before each, on average.
    scenario.pattern = ArrivalPattern::Bursts(5);
    assert!((response_ms(&scenario) - 3.0).abs() < 0.01);
}

#[test]
fn a_request_takes_two_round_trips() {
    let mut scenario = queue(Distribution::Fixed(MILLI_NS), 0.01);
    scenario.pattern = ArrivalPattern::Constant;
    scenario.rtt = Distribution::Fixed(70 * MILLI_NS);
    assert!((response_ms(&scenario) - 141.0).abs() < 0.2);
}

/// Returns a scenario that mixes all features.
fn mixed() -> Scenario {
    let group = Group::new;
    Scenario {
        policy: fixed(Limit::Auto),
        cores: 3,
        classes: vec![
            Class { weight: 9.0, service: Distribution::Exponential(50_000) },
            Class { weight: 1.0, service: Distribution::Fixed(MILLI_NS) },
        ],
        sessions: Sessions {
            requests: (1, 5),
            think: Distribution::Exponential(20 * MILLI_NS),
            closes_one_in: 1,
        },
        groups: vec![
            group(ClientKind::Honest, 1.0),
            group(ClientKind::Mute, 0.1),
            group(ClientKind::Slow, 0.1),
            group(ClientKind::Reconnecting, 0.2),
        ],
        rtt: Distribution::Uniform(0, 50 * MILLI_NS),
        duration_ns: 3 * SECOND_NS,
        ..Scenario::default()
    }
    .loaded(1.5)
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let scenario = mixed();
    assert_eq!(run(&scenario, 1), run(&scenario, 1));
    assert_ne!(run(&scenario, 1), run(&scenario, 2));
}

#[test]
fn two_policies_meet_the_same_clients() {
    let one = mixed();
    let other = Scenario { policy: fixed(Limit::Inf), ..one.clone() };
    let offered = |scenario| {
        let statistics = run(scenario, 1);
        [statistics.kinds[1].offered, statistics.kinds[2].offered]
    };
    assert_eq!(offered(&one), offered(&other));
}

#[test]
fn every_request_has_one_fate() {
    let mut scenario = mixed();
    scenario.measured_from_ns = 0;
    scenario.load.push(Step { from_ns: SECOND_NS, rate: 0.0 });
    scenario.duration_ns = 30 * SECOND_NS;
    let statistics = run(&scenario, 1);
    let share = statistics.total;
    assert!(share.offered > 1000 && share.timed_out > 0);
    assert_eq!(share.offered, share.good + share.refused + share.timed_out);
    let windows = statistics.windows.iter().map(|window| window.share.good);
    assert_eq!(windows.sum::<u64>(), share.good);
}

#[test]
fn the_capacity_is_what_a_saturated_server_serves() {
    for (eager, requests) in [(true, 1), (true, 20), (false, 1), (false, 20)] {
        let scenario = Scenario {
            policy: PolicyConfig { backlog: 64, ..fixed(Limit::Count(16)) },
            eager,
            sessions: Sessions {
                requests: (requests, requests),
                think: Distribution::Fixed(0),
                closes_one_in: 1,
            },
            timeout_ns: 10 * SECOND_NS,
            ..Scenario::default()
        }
        .loaded(1.2);
        let share = run(&scenario, 1).goodput() / scenario.capacity();
        assert!((0.93..1.05).contains(&share), "{eager} {requests}: {share}");
    }
}
