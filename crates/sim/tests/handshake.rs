//! Handshakes end to end: which clients get in, which only believe they did, and when the others
//! retry.

use weir_accept::{
    Decision, Limit, PhaseOutcome, Policy, PolicyConfig, PolicyName, Signals, SynDecision, View,
};
use weir_sim::{
    ArrivalPattern, Class, Costs, Distribution, MILLI_NS, SECOND_NS, Scenario, Statistics, Step,
};
use weir_sim::{run, run_with};

fn scenario(backlog: u32) -> Scenario {
    let limit = Limit::Auto;
    Scenario {
        policy: PolicyConfig { name: PolicyName::Limit, limit, backlog, ..PolicyConfig::default() },
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(MILLI_NS) }],
        duration_ns: 10 * SECOND_NS,
        measured_from_ns: 0,
        ..Scenario::default()
    }
}

/// Returns a scenario with a single burst of a hundred clients.
fn hundred_at_once(backlog: u32) -> Scenario {
    let at = |from_ns, rate| Step { from_ns, rate };
    Scenario {
        pattern: ArrivalPattern::Bursts(100),
        load: vec![at(0, 10_000.0), at(15 * MILLI_NS, 0.0)],
        timeout_ns: 8 * SECOND_NS,
        ..scenario(backlog)
    }
}

/// A policy that admits no connections before a given time, and keeps the loop awake: a loop that
/// sleeps admits all.
struct Closed {
    until_ns: u64,
    due_ns: u64,
}

impl Policy for Closed {
    fn decide(&mut self, now_ns: u64, _: &View, _: &Signals) -> Decision {
        self.due_ns = now_ns;
        let share = if now_ns < self.until_ns { 1.0 } else { 0.0 };
        Decision { syn: SynDecision::Random(share), ..Decision::accept(100) }
    }

    fn finished(&mut self, _: u64, _: &PhaseOutcome) {}

    fn due_ns(&self) -> Option<u64> {
        Some(self.due_ns)
    }
}

fn filtered(scenario: &Scenario, until_ns: u64) -> Statistics {
    let costs = Costs { wait: 100_000, ..scenario.costs };
    run_with(&Scenario { costs, ..scenario.clone() }, 1, || {
        Box::new(Closed { until_ns, due_ns: 0 })
    })
}

#[test]
fn a_dropped_request_is_repeated_when_the_kernel_says() {
    let linear = hundred_at_once(4096);
    let mut doubling = linear.clone();
    doubling.rules.syn_linear_timeouts = 0;
    // The clients come at 10 ms.
    for (scenario, seconds) in [(&linear, [1, 2, 3, 4]), (&doubling, [1, 3, 3, 7])] {
        for (until_s, expected_s) in [0, 1, 2, 3].into_iter().zip(seconds) {
            let until_ns = until_s * SECOND_NS + 500 * MILLI_NS;
            let statistics = filtered(scenario, until_ns);
            assert_eq!(statistics.total.good, 100);
            let shortest_ns = statistics.response.min();
            let expected_ns = expected_s * SECOND_NS;
            assert!((expected_ns..expected_ns + 10 * MILLI_NS).contains(&shortest_ns));
        }
    }
}

#[test]
fn a_full_accept_queue_answers_nobody_else() {
    let mut scenario = hundred_at_once(20);
    scenario.pattern = ArrivalPattern::Constant;
    scenario.load[1].from_ns = 10 * MILLI_NS;
    let statistics = run(&scenario, 1);
    // Twenty-one find room, and as many as were taken out while the others came.
    let at_once = statistics.goodput_between(0, SECOND_NS);
    assert!((30.0..33.0).contains(&at_once), "{at_once}");
    assert_eq!(statistics.drops.overflows_ack, 0);
    assert_eq!(statistics.total.good, statistics.total.offered);
    assert!(statistics.response.max() > SECOND_NS);
}

#[test]
fn over_a_long_way_the_queue_fills_behind_the_requests() {
    let mut scenario = hundred_at_once(20);
    scenario.rtt = Distribution::Fixed(100 * MILLI_NS);
    scenario.rules.syncookies = true;
    let statistics = run(&scenario, 1);
    // All requests are answered, for the accept queue is empty until the third ACKs come.
    assert_eq!(statistics.drops.overflows, statistics.drops.overflows_ack);
    assert!(statistics.drops.overflows_ack > 70);
    assert_eq!(statistics.total.good, 100);
    // Data sent again after 300 ms fills the queue again, long before a SYN-ACK is sent again.
    let retried = statistics.goodput_between(300 * MILLI_NS, 800 * MILLI_NS) / 2.0;
    assert!(retried >= 21.0, "{retried}");
}

#[test]
fn a_syn_queue_is_as_long_as_its_backlog_unless_there_are_cookies() {
    let mut scenario = hundred_at_once(20);
    scenario.rtt = Distribution::Fixed(100 * MILLI_NS);
    let cookies = run(&scenario, 1);
    assert_eq!((cookies.drops.cookies, cookies.drops.request_queue_full_drops), (79, 0));
    scenario.rules.syncookies = false;
    let none = run(&scenario, 1);
    assert_eq!(none.drops.cookies, 0);
    assert!(none.drops.request_queue_full_drops >= 79);
    assert_eq!(none.drops.overflows_ack, 0);
}

#[test]
fn the_server_works_for_those_who_have_gone() {
    let mut scenario = hundred_at_once(4096);
    scenario.timeout_ns = 50 * MILLI_NS;
    let statistics = run(&scenario, 1);
    assert_eq!((statistics.loops.replies, statistics.loops.accepted), (100, 100));
    assert!((40..55).contains(&statistics.total.good), "{:?}", statistics.total);
}

#[test]
fn a_client_that_goes_before_the_answer_leaves_nothing_behind() {
    let mut scenario = hundred_at_once(4096);
    scenario.rtt = Distribution::Fixed(300 * MILLI_NS);
    scenario.timeout_ns = 200 * MILLI_NS;
    let statistics = run(&scenario, 1);
    assert_eq!((statistics.total.timed_out, statistics.loops.accepted), (100, 0));
}

#[test]
fn packets_faster_than_a_core_can_drop_are_lost() {
    let scenario = Scenario {
        load: vec![Step { from_ns: 0, rate: 1_000_000.0 }],
        duration_ns: 500 * MILLI_NS,
        ..scenario(64)
    };
    let drops = run(&scenario, 1).drops;
    assert!(drops.lost > 10_000);
    let share = drops.packets_ns as f64 / 500e6;
    assert!((0.85..0.92).contains(&share), "{share}");
}
