//! The overload control against a small model of a server: what it judges to be an overload, and
//! how it reacts. Whether that pays off is tested with the simulator.

use super::*;
use crate::fixtures::{FakeServer, Load, Phase, config};
use crate::{Limit, PolicyName};

const MS: u64 = 1_000_000;
const SERVICE_NS: u64 = 500_000;

/// Returns the load of an eager server that takes half a millisecond per connection, at `percent`
/// of its capacity.
fn load(percent: u64) -> Load {
    let gap_ns = SERVICE_NS * 100 / percent;
    Load { gap_ns, step_ns: SERVICE_NS, eager: true, ..Load::default() }
}

fn run(load: Load, config: &PolicyConfig, ms: u64) -> (FakeServer, Vec<Phase>, bool) {
    let mut fake = FakeServer::new(load);
    fake.tells = true;
    let mut policy = config.policy();
    let phases = fake.run(policy.as_mut(), ms * MS);
    (fake, phases, policy.is_overloaded())
}

fn adaptive(load: Load, ms: u64) -> (FakeServer, Vec<Phase>, bool) {
    run(load, &config(PolicyName::Adaptive), ms)
}

#[test]
fn below_saturation_it_is_a_limit_of_one() {
    let (_, phases, overloaded) = adaptive(load(60), 2_000);
    assert!(!overloaded);
    // The first wait for the kernel's word is the only guess.
    let more = phases.iter().filter(|phase| phase.decision.budget > 1).count();
    assert!(more <= 1, "{more}");
    assert!(phases.iter().all(|phase| phase.decision.backlog.is_none() && phase.refused == 0));
}

#[test]
fn a_burst_is_served_whole() {
    let burst = Load { burst: 500, ..load(30) };
    let (fake, phases, overloaded) = adaptive(burst, 1_000);
    assert!(!overloaded && fake.drops == 0);
    assert_eq!(phases.iter().map(|phase| phase.refused).sum::<u64>(), 0);
    assert!(fake.closed >= 500 + 590, "{}", fake.closed);
}

#[test]
fn past_saturation_nobody_waits_much_longer_than_the_target() {
    for percent in [200, 400, 1_000] {
        let (fake, phases, overloaded) = adaptive(load(percent), 4_000);
        assert!(overloaded && fake.drops > 0, "{percent}");
        let late = &phases[phases.len() / 2..];
        let waited = late.iter().filter_map(|phase| phase.waited_max_ns).max().unwrap();
        assert!(waited < 30 * MS, "{percent}: {waited}");
        // It never runs dry: a connection each half millisecond, but for what accepting costs.
        assert!(fake.closed > 7_500, "{percent}: {}", fake.closed);
    }
}

#[test]
fn the_window_is_what_can_be_served_within_the_target() {
    for percent in [150, 400, 1_000] {
        let (_, phases, _) = adaptive(load(percent), 3_000);
        let windows = phases[phases.len() / 2..].iter().map(|phase| phase.decision.syn);
        // 20 ms of half a millisecond and an accept each.
        let fits = |syn| match syn {
            SynDecision::Tokens { window, .. } => (15..=60).contains(&window),
            _ => false,
        };
        let odd: Vec<_> = windows.into_iter().filter(|syn| !fits(*syn)).take(4).collect();
        assert!(odd.is_empty(), "{percent}: {odd:?}");
    }
}

#[test]
fn the_random_filter_drops_what_is_too_much() {
    let config = PolicyConfig { syn_filter: SynFilter::Random, ..config(PolicyName::Adaptive) };
    let dropped = |percent| {
        let (_, phases, _) = run(load(percent), &config, 4_000);
        let late = &phases[phases.len() / 2..];
        let share = |phase: &Phase| match phase.decision.syn {
            SynDecision::Random(share) => share,
            _ => 0.0,
        };
        late.iter().map(share).sum::<f64>() / late.len() as f64
    };
    for (percent, least, most) in [(130, 0.1, 0.4), (400, 0.6, 0.85), (1_000, 0.85, 0.95)] {
        let share = dropped(percent);
        assert!((least..most).contains(&share), "{percent}: {share}");
    }
}

#[test]
fn a_control_that_is_off_is_not_in_any_decision() {
    let off = |control| {
        let controls = Controls::ALL.without(control);
        run(load(500), &PolicyConfig { controls, ..config(PolicyName::Adaptive) }, 1_000).1
    };
    let is_open = |phase: &Phase| phase.decision.syn == SynDecision::Open;
    assert!(off(Control::SynFilter).iter().all(is_open));
    assert!(off(Control::SynFilter).iter().any(|phase| phase.decision.backlog.is_some()));
    let neither = Controls::ALL.without(Control::Backlog).without(Control::SynFilter);
    let neither = PolicyConfig { controls: neither, ..config(PolicyName::Adaptive) };
    let unbounded = |phase: &Phase| phase.decision.backlog.is_none();
    assert!(run(load(500), &neither, 1_000).1.iter().all(unbounded));
    assert!(off(Control::Stale).iter().all(|phase| phase.decision.stale_ns.is_none()));
    assert!(off(Control::Departed).iter().all(|phase| !phase.decision.drop_departed));
    assert!(off(Control::Budget).iter().all(|phase| phase.decision.until_ns.is_none()));
    let newest = |phase: &Phase| phase.decision.order == Order::Newest;
    assert!(!off(Control::Newest).iter().any(newest));
    assert!(adaptive(load(500), 1_000).1.iter().any(newest));
}

#[test]
fn with_every_control_off_it_is_the_ramp() {
    for percent in [50, 100, 300] {
        let none = PolicyConfig { controls: Controls::NONE, ..config(PolicyName::Adaptive) };
        let ramp = PolicyConfig { limit: Limit::Auto, ..config(PolicyName::Limit) };
        let (ours, phases, _) = run(load(percent), &none, 1_000);
        let (theirs, as_phases, _) = run(load(percent), &ramp, 1_000);
        assert_eq!(ours.closed, theirs.closed);
        assert_eq!(phases.len(), as_phases.len());
        assert!(phases.iter().zip(&as_phases).all(|(a, b)| a.decision == b.decision));
    }
}

#[test]
fn refusing_by_hand_leaves_little_to_the_kernel() {
    let by_hand = PolicyConfig { refusal: Refusal::Rst, ..config(PolicyName::Adaptive) };
    let (_, phases, overloaded) = run(load(300), &by_hand, 1_000);
    assert!(overloaded);
    let windows = || {
        phases.iter().filter_map(|phase| match phase.decision.syn {
            SynDecision::Tokens { window, .. } => Some(window),
            _ => None,
        })
    };
    assert!(windows().all(|window| window >= 240), "{:?}", windows().min());
    assert!(phases.iter().any(|phase| phase.decision.refuse > 0));
}

#[test]
fn where_the_kernel_tells_nothing_the_stale_are_refused_all_the_same() {
    let mut fake = FakeServer::new(load(300));
    let mut policy = config(PolicyName::Adaptive).policy();
    let phases = fake.run(policy.as_mut(), 3_000 * MS);
    assert!(policy.is_overloaded());
    assert!(phases.iter().map(|phase| phase.refused).sum::<u64>() > 0);
}

#[test]
fn when_it_is_over_everything_is_as_before() {
    let mut fake = FakeServer::new(load(400));
    fake.tells = true;
    let mut policy = config(PolicyName::Adaptive).policy();
    fake.run(policy.as_mut(), 1_000 * MS);
    assert!(policy.is_overloaded());
    fake.load.gap_ns = 2 * SERVICE_NS;
    let phases = fake.run(policy.as_mut(), 1_500 * MS);
    assert!(!policy.is_overloaded() && policy.due_ns().is_none());
    let last = phases.last().unwrap().decision;
    assert!(!last.refuses());
}

/// Returns the decisions for a loop that serves ten work items of a millisecond each in each
/// work-phase, with these numbers of ready connections.
fn with_work_in_hand(ready: &[u64], saturated: bool) -> Vec<Decision> {
    let mut policy = Adaptive::new(&config(PolicyName::Adaptive));
    let mut view =
        View { open: 90, open_max: 100, work_items: 10, work_ns: 10 * MS, ..View::default() };
    let decide = |(phase, ready): (u64, &u64)| {
        view = View { ready: *ready, saturated, ..view };
        let decision = policy.decide(phase * 10 * MS, &view, &Signals::default());
        (view.served, view.served_ns) = (view.served + 10, view.served_ns + 10 * MS);
        decision
    };
    (0..).zip(ready).map(decide).collect()
}

#[test]
fn work_in_hand_that_does_not_get_less_is_an_overload() {
    let ready = [[10; 4], [50; 4], [50; 4], [50; 4], [10; 4]].concat();
    let decisions = with_work_in_hand(&ready, true);
    let begun = decisions.iter().position(|decision| decision.pressure).unwrap();
    assert!((8..=12).contains(&begun), "{begun}");
    let decision = decisions[begun];
    assert!(decision.inspect_open && decision.drop_departed && decision.stale_ns.is_some());
    assert!(!decisions[16..].iter().any(|decision| decision.pressure || decision.inspect_open));
    assert!(!with_work_in_hand(&ready, false).iter().any(Decision::refuses));
    let falls: Vec<_> = (0..20).map(|phase| 240 - 10 * phase).collect();
    assert!(!with_work_in_hand(&falls, true).iter().any(Decision::refuses));
}

#[test]
fn a_work_phase_is_cut_so_that_others_are_heard() {
    let decision = with_work_in_hand(&[10], false)[0];
    assert_eq!(decision.work_max_ns, Some(10 * MS));
}
