//! A single setting under changing load: a spike and its aftermath, bursts, expensive requests
//! among cheap ones, sessions, clients that send nothing or reconnect at once, and controls turned
//! off.

mod trial;

use trial::{Faults, WINDOW_NS, goodput_of_attainable};
use weir_accept::{Control, Controls, PolicyConfig, PolicyName, Refusal};
use weir_sim::{
    ArrivalPattern, Class, ClientKind, Distribution, Group, MILLI_NS, SECOND_NS, Scenario,
};
use weir_sim::{Sessions, Statistics, Step, run};

/// Returns a scenario with requests of 600 µs, a client timeout of 500 ms, and one near core.
fn plain() -> Scenario {
    Scenario {
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(600_000) }],
        window_ns: WINDOW_NS,
        duration_ns: 4 * SECOND_NS,
        ..Scenario::default()
    }
}

/// Asserts that goodput is at least a share `bound` of the attainable, at each load.
fn assert_goodput(bound: f64, what: &str, scenario: &Scenario, loads: &[f64]) {
    let mut faults = Faults::default();
    for load in loads {
        let scenario = scenario.clone().loaded(*load);
        let goodput = goodput_of_attainable(&scenario, &run(&scenario, 1));
        faults.at_least(bound, goodput, what, load);
    }
}

const SPIKE_NS: u64 = SECOND_NS;
const SPIKE_END_NS: u64 = 2 * SECOND_NS;

/// Returns a load of 70 % of the capacity, with a second at ten times the capacity.
fn spike(service_ns: u64, timeout_ns: u64, rtt_ns: u64) -> Scenario {
    let mut scenario = Scenario {
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(service_ns) }],
        timeout_ns,
        rtt: Distribution::Fixed(rtt_ns),
        duration_ns: 5 * SECOND_NS,
        measured_from_ns: 0,
        ..plain()
    };
    let at = |from_ns, load| Step { from_ns, rate: load * scenario.capacity() };
    scenario.load = vec![at(0, 0.7), at(SPIKE_NS, 10.0), at(SPIKE_END_NS, 0.7)];
    scenario
}

/// Returns the time from the end of the spike to the first window as good as those before it, ms.
fn recovery_ms(scenario: &Scenario, statistics: &Statistics) -> f64 {
    let usual = 0.7 * scenario.capacity() * WINDOW_NS as f64 / 1e9;
    let enough = usual - 3.0 * usual.sqrt();
    let after = statistics.between(SPIKE_END_NS, scenario.duration_ns);
    let bad = after.iter().take_while(|window| (window.share.good as f64) < enough).count();
    bad as f64 * WINDOW_NS as f64 / 1e6
}

#[test]
fn a_spike_is_over_when_it_ends() {
    let mut faults = Faults::default();
    for service_ns in [100_000, 600_000, 5 * MILLI_NS] {
        for (timeout_ms, rtt_ms) in [(500, 0), (500, 20), (2_000, 0), (2_000, 200)] {
            let scenario = spike(service_ns, timeout_ms * MILLI_NS, rtt_ms * MILLI_NS);
            let statistics = run(&scenario, 1);
            let place = (service_ns, timeout_ms, rtt_ms);
            let during = statistics.goodput_between(SPIKE_NS + 300 * MILLI_NS, SPIKE_END_NS);
            // Over a long way the first seconds of a spike are lost in part.
            let bound = match rtt_ms {
                0..10 => 0.8,
                10..100 => 0.5,
                _ => 0.3,
            };
            faults.at_least(bound, during / scenario.capacity(), "during the spike", &place);
            let recovery_ms = recovery_ms(&scenario, &statistics);
            let bound_ms = if rtt_ms < 10 { 200.0 } else { 400.0 + 2.0 * rtt_ms as f64 };
            faults.at_most(bound_ms, recovery_ms, "recovery, ms,", &place);
            let after = statistics.goodput_between(SPIKE_END_NS + SECOND_NS, 5 * SECOND_NS);
            faults.at_least(0.9, after / (0.7 * scenario.capacity()), "a second later", &place);
        }
    }
}

/// Returns a load of ten times the capacity, in which all clients pause three times.
fn pauses(service_ns: u64, pause_ms: u64) -> Scenario {
    let mut scenario = Scenario {
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(service_ns) }],
        measured_from_ns: SECOND_NS,
        ..plain()
    };
    let rate = 10.0 * scenario.capacity();
    let at = |from_ms, rate| Step { from_ns: from_ms * MILLI_NS, rate };
    let pause = |from_ms| [at(from_ms, 0.0), at(from_ms + pause_ms, rate)];
    scenario.load = [1_500, 2_500, 3_500].into_iter().flat_map(pause).collect();
    scenario.load.insert(0, at(0, rate));
    scenario
}

#[test]
fn clients_that_pause_in_an_overload_do_not_flood_a_loop_that_has_just_slept() {
    let mut faults = Faults::default();
    for service_ns in [20_000, 50_000, 100_000] {
        let steady = run(&pauses(service_ns, 0), 1);
        for pause_ms in [3, 10, 15] {
            let scenario = pauses(service_ns, pause_ms);
            let statistics = run(&scenario, 1);
            let place = (service_ns, pause_ms);
            let sojourn_ms = statistics.sojourn.value_at_quantile(0.999) as f64 / 1e6;
            faults.at_most(50.0, sojourn_ms, "p999 sojourn, ms,", &place);
            // The first wave is let in whole; nothing that comes later is accepted in vain.
            let stale = statistics.loops.stale - steady.loops.stale;
            faults.at_most(0.0, stale as f64, "stale", &place);
            let kept = statistics.goodput() / steady.goodput();
            faults.at_least(0.98, kept, "goodput of a steady load's", &place);
        }
    }
}

#[test]
fn a_burst_that_can_be_served_in_time_is_served() {
    let mut faults = Faults::default();
    for size in [10, 50, 200] {
        let scenario = Scenario { pattern: ArrivalPattern::Bursts(size), ..plain() }.loaded(0.6);
        let statistics = run(&scenario, 1);
        faults.at_least(0.95, statistics.total.good_share(), "bursts", &size);
    }
}

#[test]
fn dear_requests_are_treated_like_cheap_ones() {
    let mut faults = Faults::default();
    let cheap = Class { weight: 0.9, service: Distribution::Exponential(100_000) };
    let dear = Class { weight: 0.1, service: Distribution::Exponential(3 * MILLI_NS) };
    for load in [2.0, 4.0] {
        let scenario = Scenario { classes: vec![cheap, dear], ..plain() }.loaded(load);
        let statistics = run(&scenario, 1);
        let goodput = goodput_of_attainable(&scenario, &statistics);
        faults.at_least(0.9, goodput, "goodput", &load);
        let fairness = Statistics::fairness(&statistics.classes);
        faults.at_least(0.98, fairness, "fairness among classes", &load);
    }
}

#[test]
fn sessions_are_taken_in_only_as_far_as_they_can_be_served() {
    for (requests, think_ms) in [(5, 20), (20, 50)] {
        let think = Distribution::Exponential(think_ms * MILLI_NS);
        let scenario = Scenario {
            sessions: Sessions { requests: (requests, requests), think, closes_one_in: 1 },
            duration_ns: 8 * SECOND_NS,
            measured_from_ns: 3 * SECOND_NS,
            ..plain()
        };
        assert_goodput(0.85, "goodput of sessions", &scenario, &[0.7, 2.0, 4.0]);
    }
}

#[test]
fn later_reads_and_replies_change_nothing() {
    let scenario = Scenario { eager: false, ..plain() };
    assert_goodput(0.93, "goodput", &scenario, &[0.7, 2.0, 4.0, 10.0]);
}

#[test]
fn mute_and_slow_clients_take_no_room_from_others() {
    let group = Group::new;
    let groups = vec![
        group(ClientKind::Honest, 1.0),
        group(ClientKind::Mute, 0.3),
        group(ClientKind::Slow, 0.1),
    ];
    let scenario = Scenario { groups, open_max: 500, ..plain() };
    assert_goodput(0.9, "goodput of honest clients", &scenario, &[0.6]);
    assert_goodput(0.6, "goodput of honest clients", &scenario, &[2.0]);
}

#[test]
fn every_refusal_holds_against_clients_that_come_again_at_once() {
    let mut faults = Faults::default();
    for refusal in [Refusal::Kernel, Refusal::Rst, Refusal::Fin, Refusal::Status503] {
        let groups =
            [ClientKind::Honest, ClientKind::Reconnecting].map(|kind| Group::new(kind, 0.5));
        let policy = PolicyConfig { refusal, ..PolicyConfig::default() };
        let rtt = Distribution::Fixed(20 * MILLI_NS);
        let scenario = Scenario { policy, groups: groups.to_vec(), rtt, ..plain() }.loaded(1.5);
        let statistics = run(&scenario, 1);
        let goodput = goodput_of_attainable(&scenario, &statistics);
        let (by_kernel, bound) = (refusal == Refusal::Kernel, 0.6);
        faults.at_least(if by_kernel { 0.9 } else { bound }, goodput, "goodput", &refusal);
        if by_kernel {
            // Who is never answered has nothing to be quicker at.
            let fairness = Statistics::fairness(&[statistics.kinds[0], statistics.kinds[3]]);
            faults.at_least(0.98, fairness, "fairness among clients", &refusal);
        }
    }
}

#[test]
fn no_control_is_indispensable() {
    for control in Control::all() {
        let controls = Controls::ALL.without(control);
        let scenario =
            Scenario { policy: PolicyConfig { controls, ..PolicyConfig::default() }, ..plain() };
        let what = format!("goodput without {}", control.spelling());
        assert_goodput(0.85, &what, &scenario, &[2.0, 10.0]);
    }
}

#[test]
fn without_controls_it_is_the_accept_limit() {
    let sessions = Sessions {
        requests: (1, 5),
        think: Distribution::Exponential(20 * MILLI_NS),
        closes_one_in: 1,
    };
    for (load, eager) in [(0.5, true), (2.0, true), (0.9, false), (4.0, false)] {
        let scenario = Scenario { eager, cores: 2, sessions, ..plain() }.loaded(load);
        let with = |policy| run(&Scenario { policy, ..scenario.clone() }, 1);
        let none = with(PolicyConfig { controls: Controls::NONE, ..PolicyConfig::default() });
        let limit = with(PolicyConfig { name: PolicyName::Limit, ..PolicyConfig::default() });
        assert!(none == limit, "load {load}, eager {eager}");
    }
}
