//! Random scenarios, identified by seed, and the invariants of every run: no refusal while a loop
//! has spare time, no starvation, and overloads that end with the load that caused them.
//!
//! A scenario is a sequence of loads from a twentieth of the capacity to twenty times, with long
//! and short connections from near and far, bursts, floods, malicious clients and neighbours, and a
//! calm second at its end.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::{Refusal, SynFilter};

use crate::neighbour::Neighbour;
use crate::rng;
use crate::scenario::{
    ArrivalPattern, Class, ClientKind, Distribution, Group, Scenario, Sessions, Step,
};
use crate::statistics::Statistics;
use crate::time::{MILLI_NS, SECOND_NS};

/// Approximate maximum number of connections in a scenario: what a test can afford.
const CONNECTIONS_MAX: f64 = 40_000.0;

/// Duration of the calm at the end, and its load.
const CALM_NS: u64 = 1_200 * MILLI_NS;
const CALM_LOAD: f64 = 0.25;

/// Period in which at least one client has to be served, nanoseconds.
const STARVED_NS: u64 = 1_500 * MILLI_NS;

/// Time an overload may still refuse requests after the load has ended, in targets.
const RECOVERY_TARGETS: u64 = 3;

/// Time a loop has to be busy before it may refuse requests.
const BUSY_NS: u64 = 200 * MILLI_NS;

/// Returns the scenario of a seed.
pub fn scenario(seed: u64) -> Scenario {
    let mut filter_rng = rng::stream(seed, 0x5701);
    let mut scenario = Scenario { measured_from_ns: 0, ..Scenario::default() };
    draw_server(&mut filter_rng, &mut scenario);
    draw_clients(&mut filter_rng, &mut scenario);
    draw_load(&mut filter_rng, &mut scenario);
    scenario
}

fn one_of<T: Copy>(filter_rng: &mut Xoshiro256PlusPlus, values: &[T]) -> T {
    values[filter_rng.random_range(0..values.len())]
}

fn draw_server(filter_rng: &mut Xoshiro256PlusPlus, scenario: &mut Scenario) {
    scenario.cores = one_of(filter_rng, &[1, 1, 1, 2]);
    scenario.eager = one_of(filter_rng, &[true, true, false]);
    scenario.open_max = one_of(filter_rng, &[300, 2_000, 100_000, 100_000]);
    scenario.policy.backlog = one_of(filter_rng, &[128, 1_024, 4_096, 4_096]);
    scenario.policy.target_ns = one_of(filter_rng, &[5, 20, 20, 20, 80]) * MILLI_NS;
    let filters = [SynFilter::Tokens, SynFilter::Tokens, SynFilter::Random, SynFilter::None];
    scenario.policy.syn_filter = one_of(filter_rng, &filters);
    let refusals = [Refusal::Kernel, Refusal::Kernel, Refusal::Kernel, Refusal::Rst];
    scenario.policy.refusal = one_of(filter_rng, &refusals);
    scenario.rules.syncookies = one_of(filter_rng, &[true, true, true, false]);
    let slice_ns = one_of(filter_rng, &[3, 50]) * MILLI_NS;
    let neighbour = Neighbour { share: 0.3, burst_ns: 50 * MILLI_NS, slice_ns };
    scenario.neighbour = one_of(filter_rng, &[None, None, None, Some(neighbour)]);
}

fn draw_clients(filter_rng: &mut Xoshiro256PlusPlus, scenario: &mut Scenario) {
    let service_ns = one_of(filter_rng, &[10_000, 60_000, 200_000, 600_000, 2_000_000, 5_000_000]);
    let law = one_of(
        filter_rng,
        &[Distribution::Fixed(service_ns), Distribution::Exponential(service_ns)],
    );
    scenario.classes = vec![Class { weight: 0.9, service: law }];
    if filter_rng.random_range(0..3) == 0 {
        let expensive = Distribution::Exponential((8 * service_ns).min(20 * MILLI_NS));
        scenario.classes.push(Class { weight: 0.1, service: expensive });
    }
    let most = one_of(filter_rng, &[1, 1, 5, 20]);
    let think = Distribution::Exponential(one_of(filter_rng, &[0, 20, 200]) * MILLI_NS);
    let closes_one_in = one_of(filter_rng, &[1, 1, 20, 0]);
    scenario.sessions = Sessions { requests: (1, most), think, closes_one_in };
    scenario.timeout_ns = one_of(filter_rng, &[100, 500, 500, 900, 3_000]) * MILLI_NS;
    let far = Distribution::Uniform(0, 200 * MILLI_NS);
    let rtts = [0, 0, 1, 10, 40, 100].map(|ms| Distribution::Fixed(ms * MILLI_NS));
    scenario.rtt = if filter_rng.random_range(0..7) == 0 { far } else { one_of(filter_rng, &rtts) };
    let patterns = [
        ArrivalPattern::Poisson,
        ArrivalPattern::Poisson,
        ArrivalPattern::Bursts(24),
        ArrivalPattern::Bursts(200),
    ];
    scenario.pattern = one_of(filter_rng, &patterns);
    let addresses = (0x0a00_0001, one_of(filter_rng, &[1, 1, 16, 200]));
    scenario.groups = vec![Group { addresses, ..Group::new(ClientKind::Honest, 1.0) }];
    if filter_rng.random_range(0..3) == 0 {
        let kinds =
            [ClientKind::Mute, ClientKind::Slow, ClientKind::Reconnecting, ClientKind::Spoofed];
        let (kind, ratio) = (one_of(filter_rng, &kinds), one_of(filter_rng, &[0.3, 1.0, 5.0]));
        let addresses = if kind == ClientKind::Spoofed { (0, u32::MAX) } else { (0x0b00_0001, 9) };
        scenario.groups.push(Group { addresses, ..Group::new(kind, ratio) });
    }
}

fn draw_load(filter_rng: &mut Xoshiro256PlusPlus, scenario: &mut Scenario) {
    let per_load = scenario.capacity() / scenario.sessions.requests_mean();
    let ratios: f64 = scenario.groups.iter().map(|group| group.ratio).sum();
    let mut connections = CONNECTIONS_MAX;
    scenario.load.clear();
    let mut at_ns = 0;
    for _ in 0..filter_rng.random_range(2..6) {
        let load = one_of(filter_rng, &[0.05, 0.3, 0.7, 0.9, 1.0, 1.3, 2.0, 4.0, 10.0, 20.0]);
        let rate = load * per_load;
        let left_ns = connections / (rate * ratios) * 1e9;
        let span_ns = one_of(filter_rng, &[100, 300, 1_000, 2_000]) * MILLI_NS;
        let span_ns = span_ns.min(left_ns as u64).max(20 * MILLI_NS);
        connections -= rate * ratios * span_ns as f64 / 1e9;
        scenario.load.push(Step { from_ns: at_ns, rate });
        at_ns += span_ns;
        if connections < 0.0 {
            break;
        }
    }
    scenario.load.push(Step { from_ns: at_ns, rate: CALM_LOAD * per_load });
    scenario.duration_ns = at_ns + CALM_NS;
}

/// Returns the invariants that a run violates, in sentences; empty if it violates none.
pub fn faults(scenario: &Scenario, statistics: &Statistics) -> Vec<String> {
    let mut faults = Vec::new();
    let refused_idle = statistics.loops.refused_idle;
    if refused_idle > 0 {
        faults.push(format!("{refused_idle} refused while a loop had time"));
    }
    if let Some(from_ns) = starved_from(scenario, statistics) {
        faults.push(format!("nobody is served from {} ms on", from_ns / MILLI_NS));
    }
    if let Some(late_ns) = late_refusal(scenario, statistics) {
        faults.push(format!("somebody is refused {} ms after the load", late_ns / MILLI_NS));
    }
    faults
}

/// Returns the start of the first period in which no honest client is served, though many send
/// requests.
fn starved_from(scenario: &Scenario, statistics: &Statistics) -> Option<u64> {
    let windows = (STARVED_NS / scenario.window_ns) as usize;
    let stretches = statistics.windows.windows(windows);
    let is_starved = stretches.into_iter().position(|stretch| {
        let asked = stretch[..windows / 3].iter().map(|window| window.share.offered).sum::<u64>();
        let good = stretch.iter().map(|window| window.share.good).sum::<u64>();
        asked >= 100 && good == 0
    });
    is_starved.filter(|_| is_feasible(scenario)).map(|index| index as u64 * scenario.window_ns)
}

/// Returns whether a client that arrives when the queue is longest can be served in time.
fn is_feasible(scenario: &Scenario) -> bool {
    let Distribution::Fixed(rtt_ns) = scenario.rtt else { return false };
    // A flood fills the kernel's queue of requests, where it has no cookies, before any policy.
    let is_flooded = scenario.groups.iter().any(|group| group.kind == ClientKind::Spoofed);
    if is_flooded && !scenario.rules.syncookies {
        return false;
    }
    // Nor can any help who comes last in a burst that no queue holds.
    if let ArrivalPattern::Bursts(size) = scenario.pattern {
        let ratios = scenario.groups.iter().map(|group| group.ratio).sum::<f64>();
        if f64::from(size) * ratios > f64::from(scenario.policy.backlog) {
            return false;
        }
    }
    let burst_ns = (2 * burst_ns(scenario)).max(10 * scenario.service_mean_ns() as u64);
    scenario.timeout_ns > 3 * rtt_ns + burst_ns + 8 * scenario.policy.target_ns
}

/// Returns how long after the start of the calm the last request began that an earlier overload
/// refused, if that is too late. Clients that were refused, or that completed a handshake in vain,
/// retry, which is a new load; such runs are not judged.
fn late_refusal(scenario: &Scenario, statistics: &Statistics) -> Option<u64> {
    let calm_ns = scenario.load.last()?.from_ns;
    let rtt_ns = match scenario.rtt {
        Distribution::Fixed(ns) | Distribution::Exponential(ns) | Distribution::Uniform(_, ns) => {
            ns
        }
    };
    let is_plain = scenario.groups.len() == 1 && scenario.neighbour.is_none();
    let in_vain = statistics.drops.overflows_ack > 0;
    let comes_again = scenario.timeout_ns >= SECOND_NS || in_vain || !is_plain;
    let targets_ns = RECOVERY_TARGETS * scenario.policy.target_ns;
    let is_bursty = burst_ns(scenario) > targets_ns;
    let keeps = scenario.sessions.requests.1 > 1;
    // In its first 200 ms an overload fills the queue, and no connection may be refused.
    let before = scenario.load.len().checked_sub(2).map(|index| scenario.load[index]);
    let is_long = before.is_some_and(|step| step.from_ns + 600 * MILLI_NS <= calm_ns);
    // A loop that had time admits all connections until it has been busy for long enough.
    let was_open = statistics.open_at_last_step.contains(&true);
    let open_ns = if was_open { BUSY_NS } else { 0 };
    let bound_ns = targets_ns + 2 * rtt_ns + queue_ns(scenario) + open_ns;
    let before_calm = statistics.overloads.iter().filter(|overload| overload.began_ns < calm_ns);
    let refused_last_ns = before_calm.map(|overload| overload.refused_last_ns).max()?;
    let late_ns = refused_last_ns.saturating_sub(calm_ns);
    let is_judged = is_long && !comes_again && !is_bursty && !keeps;
    (is_judged && late_ns > bound_ns).then_some(late_ns)
}

/// Returns the longest time that the shortest queue kept may take, nanoseconds: twenty requests,
/// plus four standard deviations.
fn queue_ns(scenario: &Scenario) -> u64 {
    let deviation_ns = 20_f64.sqrt() * scenario.service_deviation_ns();
    (20.0 * scenario.service_mean_ns() + 4.0 * deviation_ns) as u64
}

/// Returns the work of a burst, nanoseconds.
fn burst_ns(scenario: &Scenario) -> u64 {
    match scenario.pattern {
        ArrivalPattern::Bursts(size) => u64::from(size) * scenario.service_mean_ns() as u64,
        ArrivalPattern::Poisson | ArrivalPattern::Constant => 0,
    }
}
