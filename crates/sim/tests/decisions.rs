//! Effect of each part of a decision on the clients; the policies here are scripts.

use std::cell::RefCell;
use std::rc::Rc;

use weir_accept::{
    Decision, Inspect, Limit, Order, PhaseOutcome, Policy, PolicyConfig, PolicyName, Refusal,
};
use weir_accept::{Signals, SynDecision, View, Wanted};
use weir_sim::{
    ArrivalPattern, Class, ClientKind, Costs, Distribution, Group, MILLI_NS, SECOND_NS, Scenario,
    Sessions,
};
use weir_sim::{Statistics, Step, run, run_with};

type Log = Rc<RefCell<Vec<(View, Signals, PhaseOutcome)>>>;

/// A policy that decides by a function of the time and the view, and records what it is told.
struct Script<F> {
    decide: F,
    due_every_ns: Option<u64>,
    due_ns: Option<u64>,
    told: (View, Signals),
    log: Log,
}

impl<F: FnMut(u64, &View) -> Decision> Policy for Script<F> {
    fn wants(&mut self, _: u64, _: &View) -> Wanted {
        Wanted { queue: true }
    }

    fn decide(&mut self, now_ns: u64, view: &View, signals: &Signals) -> Decision {
        self.told = (*view, *signals);
        self.due_ns = self.due_every_ns.map(|every_ns| now_ns + every_ns);
        (self.decide)(now_ns, view)
    }

    fn finished(&mut self, _: u64, outcome: &PhaseOutcome) {
        let (view, signals) = self.told;
        self.log.borrow_mut().push((view, signals, *outcome));
    }

    fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

type Told = Vec<(View, Signals, PhaseOutcome)>;

fn play(
    scenario: &Scenario,
    due_every_ns: Option<u64>,
    decide: impl FnMut(u64, &View) -> Decision + Clone + 'static,
) -> (Statistics, Told) {
    let log = Log::default();
    let statistics = run_with(scenario, 1, || {
        let (decide, log) = (decide.clone(), Rc::clone(&log));
        let told = (View::default(), Signals::default());
        Box::new(Script { decide, due_every_ns, due_ns: None, told, log })
    });
    (statistics, log.take())
}

/// Returns a scenario with requests of 1 ms, a client timeout of 500 ms, twice the capacity, for
/// three seconds.
fn overloaded() -> Scenario {
    Scenario {
        policy: PolicyConfig { name: PolicyName::Limit, ..PolicyConfig::default() },
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(MILLI_NS) }],
        duration_ns: 3 * SECOND_NS,
        measured_from_ns: 0,
        ..Scenario::default()
    }
    .loaded(2.0)
}

/// Returns the same scenario with a single burst of 100 connections.
fn burst_of_100() -> Scenario {
    let mut scenario = overloaded();
    scenario.pattern = ArrivalPattern::Bursts(100);
    let at = |from_ns, rate| Step { from_ns, rate };
    scenario.load = vec![at(0, 10_000.0), at(15 * MILLI_NS, 0.0)];
    scenario
}

#[test]
fn an_accept_limit_alone_is_the_policy_that_is_called_so() {
    let mut scenario = overloaded();
    scenario.policy.limit = Limit::Count(7);
    let (mut played, _) = play(&scenario, None, |_, view| Decision::accept(view.room().min(7)));
    // The script's signals cost time, which is all the difference there is.
    scenario.costs.tcp_info = 0;
    assert_ne!(played, run(&scenario, 1));
    played = play(&scenario, None, |_, view| Decision::accept(view.room().min(7))).0;
    assert_eq!(played, run(&scenario, 1));
}

#[test]
fn the_filter_drops_its_share_before_any_queue() {
    let syn = SynDecision::Random(0.6);
    let scenario = overloaded().loaded(4.0);
    let (statistics, _) =
        play(&scenario, None, move |_, _| Decision { syn, ..Decision::accept(4) });
    let drops = statistics.drops;
    let filtered = drops.filtered as f64 / statistics.total.offered as f64;
    // A client that was not let in has no time to ask again.
    assert!((0.57..0.63).contains(&filtered), "{filtered}");
    assert_eq!((drops.overflows, statistics.loops.filters), (0, 1));
}

#[test]
fn tokens_bound_the_queue_from_near_and_far_and_no_handshake_ends_in_vain() {
    let share_ns = MILLI_NS;
    let tokens = move |_, _: &View| Decision {
        syn: SynDecision::Tokens { window: 20, spare_window: 20, reserve: 0, share_ns },
        inspect: Inspect::First,
        ..Decision::accept(4)
    };
    for (rtt_ms, longest) in [(0, 30), (2, 40), (50, 60)] {
        let rtt = Distribution::Fixed(rtt_ms * MILLI_NS);
        let scenario = Scenario { rtt, duration_ns: 6 * SECOND_NS, ..overloaded() }.loaded(4.0);
        let (statistics, told) = play(&scenario, None, tokens);
        let later = &told[told.len() / 2..];
        let queues = || later.iter().filter_map(|(_, signals, _)| signals.queue);
        assert!(queues().all(|queue| queue < longest), "{rtt_ms}: {:?}", queues().max());
        assert_eq!((statistics.drops.overflows, statistics.loops.filters), (0, 1));
        let syns = later.last().and_then(|(_, signals, _)| signals.syns).unwrap();
        assert!(syns.dropped.abs_diff(statistics.drops.filtered) < 100, "{syns:?}");
        assert!(syns.ended_part > 0.9, "{syns:?}");
        let good = statistics.goodput_between(3 * SECOND_NS, 6 * SECOND_NS);
        assert!(good > 0.97 * scenario.capacity(), "{rtt_ms}: {good}");
    }
}

/// A policy that has a filter take tokens with every other decision, and is alert, or never is.
struct EveryOther {
    is_alert: bool,
    decisions: u64,
}

impl Policy for EveryOther {
    fn decide(&mut self, _: u64, _: &View, _: &Signals) -> Decision {
        self.decisions += 1;
        let guard = SynDecision::Guard { window: u32::MAX, each_ns: 0 };
        let syn = if self.decisions.is_multiple_of(2) { SynDecision::Open } else { guard };
        Decision { syn, ..Decision::accept(1) }
    }

    fn finished(&mut self, _: u64, _: &PhaseOutcome) {}

    fn is_alert(&self) -> bool {
        self.is_alert
    }
}

#[test]
fn a_filter_that_takes_tokens_stays_while_the_policy_is_alert() {
    let changes = |is_alert| {
        let policy = || -> Box<dyn Policy> { Box::new(EveryOther { is_alert, decisions: 0 }) };
        run_with(&overloaded(), 1, policy).loops.filters
    };
    assert_eq!(changes(true), 1);
    assert!(changes(false) > 100, "{}", changes(false));
}

#[test]
fn reserved_tokens_reach_sources_that_ask_for_little() {
    let of = |reserve| {
        let syn = SynDecision::Tokens { window: 20, spare_window: 20, reserve, share_ns: MILLI_NS };
        let tokens = move |_, _: &View| Decision { syn, ..Decision::accept(4) };
        let many = Group { addresses: (1 << 8, 200), ..Group::new(ClientKind::Honest, 1.0) };
        let few = Group { addresses: (2 << 24, 5), ..Group::new(ClientKind::Slow, 9.0) };
        let costs = Costs::FREE;
        let scenario = Scenario { groups: vec![many, few], costs, ..overloaded() }.loaded(0.4);
        let scenario = Scenario { stay_ns: MILLI_NS, ..scenario };
        let (statistics, _) = play(&scenario, None, tokens);
        (statistics.kinds[0].good_share(), statistics.drops.filtered)
    };
    let ((kept, dropped), (not_kept, _)) = (of(10), of(0));
    assert!(dropped > 100 && kept > 0.99, "{kept} of the many, {dropped} dropped");
    assert!(not_kept < kept, "{not_kept}");
}

#[test]
fn the_backlog_bounds_the_queue_and_the_wait_in_it() {
    let short = |_, _: &View| Decision { backlog: Some(9), ..Decision::accept(1) };
    let (statistics, told) = play(&overloaded(), None, short);
    let later = &told[told.len() / 2..];
    assert!(later.iter().all(|(_, signals, _)| signals.queue <= Some(10)));
    assert!(later.iter().any(|(_, signals, _)| signals.queue == Some(10)));
    assert!(statistics.sojourn.value_at_quantile(0.99) < 13 * MILLI_NS);
    assert!(statistics.drops.overflows > 0 && statistics.loops.listens == 1);
}

#[test]
fn a_backlog_is_never_longer_than_what_was_configured() {
    let mut scenario = overloaded();
    scenario.policy.backlog = 20;
    let long = |_, _: &View| Decision { backlog: Some(4000), ..Decision::accept(1) };
    let (statistics, _) = play(&scenario, None, long);
    assert_eq!(statistics.loops.listens, 0);
}

#[test]
fn the_oldest_are_refused_before_others_are_served() {
    let refuse = |_, _: &View| Decision { refuse: 30, ..Decision::accept(100) };
    let mut scenario = burst_of_100();
    scenario.policy.refusal = Refusal::Rst;
    let (statistics, told) = play(&scenario, None, refuse);
    // The burst is met by a phase that began with its first connection.
    let (_, _, outcome) = told[0];
    assert_eq!((outcome.accepted, outcome.refused, outcome.drained), (100, 30, true));
    let total = statistics.total;
    assert_eq!((total.offered, total.good, total.refused), (100, 70, 30));
}

#[test]
fn those_who_waited_too_long_are_refused_when_they_are_looked_at() {
    for (inspect, good) in
        [(Inspect::All, 15..30), (Inspect::None, 100..101), (Inspect::First, 100..101)]
    {
        let stale = move |_, _: &View| Decision {
            inspect,
            stale_ns: Some(20 * MILLI_NS),
            ..Decision::accept(100)
        };
        let (statistics, told) = play(&burst_of_100(), None, stale);
        let total = statistics.total;
        assert!(good.contains(&total.good), "{inspect:?}: {total:?}");
        assert_eq!(total.refused, 100 - total.good);
        let ages = (inspect != Inspect::None).then_some(0);
        assert_eq!(told[0].2.age_min_ns, ages);
    }
}

#[test]
fn those_whose_client_has_gone_are_dropped_when_they_are_looked_at() {
    let mut scenario = overloaded();
    scenario.timeout_ns = 100 * MILLI_NS;
    let play = |drop_departed| {
        let decide = move |_, _: &View| Decision {
            inspect: Inspect::All,
            drop_departed,
            ..Decision::accept(1)
        };
        play(&scenario, None, decide).0
    };
    let (kept, dropped) = (play(false), play(true));
    assert_eq!(kept.loops.departed, 0);
    assert!(dropped.loops.departed > 1000);
    assert!(dropped.total.good > 3 * kept.total.good);
}

#[test]
fn the_newest_are_served_first_and_the_oldest_held_refused() {
    let newest = |_, _: &View| Decision {
        inspect: Inspect::All,
        order: Order::Newest,
        stale_ns: Some(40 * MILLI_NS),
        ..Decision::accept(1000)
    };
    let (statistics, told) = play(&overloaded(), None, newest);
    let (good, capacity) = (statistics.goodput(), overloaded().capacity());
    assert!(good > 0.75 * capacity, "{good} of {capacity}");
    assert!(statistics.loops.stale > 500);
    assert!(told.iter().any(|(view, _, _)| view.deferred > 5));
    assert!(statistics.sojourn.max() < 70 * MILLI_NS);
}

#[test]
fn no_accept_begins_when_time_is_up_but_the_first() {
    let timed = |now_ns, _: &View| Decision {
        until_ns: Some(now_ns + 3 * MILLI_NS),
        ..Decision::accept(1000)
    };
    let (_, told) = play(&overloaded(), None, timed);
    assert!(told.iter().all(|(_, _, outcome)| outcome.accepted <= 4));
    let none = |_, _: &View| Decision { until_ns: Some(0), ..Decision::accept(1000) };
    let (_, told) = play(&overloaded(), None, none);
    assert!(told.iter().all(|(_, _, outcome)| outcome.accepted == 1));
}

#[test]
fn a_loop_that_goes_to_sleep_opens_everything_before() {
    // Whoever is let in keeps the loop awake for a while, in which nobody is.
    let closed = |_, _: &View| Decision {
        syn: SynDecision::Random(1.0),
        backlog: Some(1),
        ..Decision::accept(1)
    };
    let (statistics, _) = play(&overloaded(), None, closed);
    assert!(statistics.drops.filtered > 100, "{:?}", statistics.drops);
    assert!(statistics.total.good > 500, "{:?}", statistics.total);
    assert!(statistics.loops.refused_idle > 0, "the policy was no good, and nobody noticed");
}

#[test]
fn a_policy_is_asked_when_it_is_due_though_nobody_is_at_the_listener() {
    let scenario = Scenario { load: vec![], ..overloaded() };
    let (_, told) = play(&scenario, None, |_, _| Decision::accept(1));
    assert_eq!(told.len(), 0);
    let mut scenario = burst_of_100();
    scenario.duration_ns = SECOND_NS;
    let (_, told) = play(&scenario, Some(10 * MILLI_NS), |_, _| Decision::accept(100));
    assert!(told.len() > 80, "{}", told.len());
}

/// Returns a scenario with sessions of ten requests, a tenth of a second apart.
fn sessions() -> Scenario {
    let mut scenario = overloaded();
    scenario.sessions = Sessions {
        requests: (10, 10),
        think: Distribution::Fixed(100 * MILLI_NS),
        closes_one_in: 1,
    };
    scenario.loaded(0.5)
}

#[test]
fn pressure_closes_after_each_reply_and_clients_come_again() {
    let pressed = |_, _: &View| Decision { pressure: true, ..Decision::accept(1) };
    let (statistics, _) = play(&sessions(), None, pressed);
    assert!(statistics.loops.accepted - statistics.loops.replies <= 1);
    assert_eq!(statistics.total.refused, 0);
    let (kept, _) = play(&sessions(), None, |_, _| Decision::accept(1));
    assert!(kept.loops.accepted * 5 < kept.loops.replies);
}

#[test]
fn under_pressure_requests_that_waited_too_long_are_refused() {
    let pressed = |_, _: &View| Decision {
        inspect_open: true,
        stale_ns: Some(12 * MILLI_NS),
        ..Decision::accept(100)
    };
    let lazy = Scenario { eager: false, ..overloaded() };
    let (statistics, _) = play(&lazy, None, pressed);
    assert!(statistics.loops.stale > 100, "{:?}", statistics.loops);
}

#[test]
fn those_that_wait_for_their_client_make_room() {
    let mut scenario = overloaded().loaded(0.4);
    scenario.groups.push(Group::new(ClientKind::Mute, 0.5));
    scenario.open_max = 100;
    let (statistics, _) = play(&scenario, None, |_, view| Decision::accept(view.room().min(1)));
    assert!(statistics.total.good_share() > 0.97, "{:?}", statistics.total);
    assert!(statistics.loops.evicted > 300);
}

#[test]
fn a_view_tells_what_the_last_iteration_did() {
    let (_, told) = play(&overloaded(), None, |_, _| Decision::accept(1));
    // Read eagerly, they are served in the accept-phase, one after the other.
    assert!(told.iter().all(|(view, _, _)| view.open == 0 && view.work_items == 0));
    let begun: Vec<_> = told.iter().map(|(view, _, _)| view.begun).collect();
    assert!(begun.iter().enumerate().all(|(phase, begun)| phase as u64 == *begun));
    assert!(told.iter().rev().take(100).all(|(view, _, _)| view.iterations_since == 1));
    let lazy = Scenario { eager: false, ..overloaded() };
    let (_, told) = play(&lazy, None, |_, _| Decision::accept(10));
    assert!(told.iter().any(|(view, _, _)| view.work_items >= 10));
    assert!(told.iter().any(|(view, _, _)| view.work_ns > 9 * MILLI_NS));
}

#[test]
fn a_refusal_costs_what_its_kind_costs_and_a_client_may_come_again() {
    for refusal in [Refusal::Rst, Refusal::Fin, Refusal::Status503] {
        let mut scenario = burst_of_100();
        scenario.policy.refusal = refusal;
        scenario.groups = vec![Group::new(ClientKind::Reconnecting, 1.0)];
        let refuse = |_, _: &View| Decision { refuse: 1, ..Decision::accept(1) };
        let (statistics, _) = play(&scenario, None, refuse);
        let total = statistics.total;
        // The last of them, when it is alone, is the oldest each time.
        assert_eq!((total.offered, total.good), (100, 99), "{refusal}");
        assert!(statistics.loops.refused > 90, "{refusal}");
    }
}
