//! The overload control against a server in small: what it takes for an overload, and what it does
//! about one. Whether that is worth anything is the simulator's question.

use super::*;
use crate::fake::{Fake, Load, Phase, setting};
use crate::{Limit, Name};

const MS: u64 = 1_000_000;
const SERVICE_NS: u64 = 500_000;

/// An eager server that takes half a millisecond a connection, `percent` of its capacity asked for.
fn load(percent: u64) -> Load {
    let gap_ns = SERVICE_NS * 100 / percent;
    Load { gap_ns, step_ns: SERVICE_NS, eager: true, ..Load::default() }
}

fn run(load: Load, setting: &Setting, ms: u64) -> (Fake, Vec<Phase>, bool) {
    let mut fake = Fake::new(load);
    fake.tells = true;
    let mut policy = setting.policy();
    let phases = fake.run(policy.as_mut(), ms * MS);
    (fake, phases, policy.is_overloaded())
}

fn adaptive(load: Load, ms: u64) -> (Fake, Vec<Phase>, bool) {
    run(load, &setting(Name::Adaptive), ms)
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
fn the_gate_drops_most_of_a_flood_and_none_of_a_little_too_much() {
    let gate = |percent| {
        let (_, phases, _) = adaptive(load(percent), 2_000);
        phases.last().unwrap().decision.gate
    };
    assert_eq!(gate(130), 0.0);
    assert!((0.6..0.8).contains(&gate(400)), "{}", gate(400));
    assert!((0.8..0.9).contains(&gate(1_000)), "{}", gate(1_000));
}

#[test]
fn a_control_that_is_off_is_not_in_any_decision() {
    let off = |control| {
        let controls = Controls::ALL.without(control);
        run(load(500), &Setting { controls, ..setting(Name::Adaptive) }, 1_000).1
    };
    assert!(off(Control::Gate).iter().all(|phase| phase.decision.gate == 0.0));
    assert!(off(Control::Backlog).iter().all(|phase| phase.decision.backlog.is_none()));
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
        let none = Setting { controls: Controls::NONE, ..setting(Name::Adaptive) };
        let ramp = Setting { limit: Limit::Auto, ..setting(Name::Limit) };
        let (ours, phases, _) = run(load(percent), &none, 1_000);
        let (theirs, as_phases, _) = run(load(percent), &ramp, 1_000);
        assert_eq!(ours.closed, theirs.closed);
        assert_eq!(phases.len(), as_phases.len());
        assert!(phases.iter().zip(&as_phases).all(|(a, b)| a.decision == b.decision));
    }
}

#[test]
fn refusing_by_hand_leaves_little_to_the_kernel() {
    let by_hand = Setting { refusal: Refusal::Rst, ..setting(Name::Adaptive) };
    let (_, phases, overloaded) = run(load(300), &by_hand, 1_000);
    assert!(overloaded);
    assert!(phases.iter().all(|phase| phase.decision.gate == 0.0));
    let backlogs = || phases.iter().filter_map(|phase| phase.decision.backlog);
    assert!(backlogs().all(|backlog| backlog >= 300), "{:?}", backlogs().min());
    assert!(phases.iter().any(|phase| phase.decision.refuse > 0));
}

#[test]
fn where_the_kernel_tells_nothing_the_stale_are_refused_all_the_same() {
    let mut fake = Fake::new(load(300));
    let mut policy = setting(Name::Adaptive).policy();
    let phases = fake.run(policy.as_mut(), 3_000 * MS);
    assert!(policy.is_overloaded());
    assert!(phases.iter().map(|phase| phase.refused).sum::<u64>() > 0);
}

#[test]
fn when_it_is_over_everything_is_as_before() {
    let mut fake = Fake::new(load(400));
    fake.tells = true;
    let mut policy = setting(Name::Adaptive).policy();
    fake.run(policy.as_mut(), 1_000 * MS);
    assert!(policy.is_overloaded());
    fake.load.gap_ns = 2 * SERVICE_NS;
    let phases = fake.run(policy.as_mut(), 1_500 * MS);
    assert!(!policy.is_overloaded() && policy.due_ns().is_none());
    let last = phases.last().unwrap().decision;
    assert!(last.backlog.is_none() && last.gate == 0.0 && last.stale_ns.is_none());
}

#[test]
fn room_is_made_only_where_there_is_hardly_any() {
    let evict = |open, open_max| {
        let view = View { open, open_max, ..View::default() };
        Adaptive::new(&setting(Name::Adaptive)).decide(MS, &view, &Signals::default()).evict
    };
    assert_eq!([evict(3, 4), evict(87, 100), evict(89, 100)], [0, 0, 1]);
    assert_eq!(evict(100_000, 100_000), 64);
}

#[test]
fn work_in_hand_comes_before_new_connections() {
    let mut policy = Adaptive::new(&setting(Name::Adaptive));
    let view =
        View { open: 90, open_max: 100, work_items: 50, work_ns: 30 * MS, ..View::default() };
    let decision = policy.decide(MS, &view, &Signals::default());
    assert_eq!((decision.budget, decision.evict), (1, 2));
    for phase in 1..=8_u64 {
        let view = View { work_ns: 50 * MS, ..view };
        assert!(!policy.decide(phase * 50 * MS, &view, &Signals::default()).pressure || phase == 8);
    }
    let calm = View { work_ns: 5 * MS, ..view };
    assert!(!policy.decide(500 * MS, &calm, &Signals::default()).pressure);
}
