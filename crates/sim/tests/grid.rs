//! A single setting over a grid of scenarios: loads up to twenty times the capacity, requests from
//! ten microseconds to fifty milliseconds, client timeouts from a tenth of a second to ten seconds,
//! clients near and far, one core and hundreds.
//!
//! Each corner is a server that is never told what it serves. The load is steady; changing load is
//! tested in `changes.rs`.

mod trial;

use trial::{Faults, WINDOW_NS, goodput_of_attainable, requests_rate};
use weir_accept::TARGET_NS;
use weir_sim::{Class, Distribution, MILLI_NS, SECOND_NS, Scenario, Statistics, run};

/// A point of the grid.
#[derive(Clone, Copy, Debug)]
struct Corner {
    load: f64,
    service_ns: u64,
    timeout_ns: u64,
    rtt_ns: u64,
    cores: u32,
}

/// Length of a run in clients, but no shorter than a policy needs to settle.
const CLIENTS: f64 = 100_000.0;
const SHORTEST_NS: u64 = 1_500 * MILLI_NS;

/// The same minimum for clients that notice decisions with a delay.
const SHORTEST_AWAY_NS: u64 = 2 * SECOND_NS;

/// Distant clients retransmit dropped packets for seconds. The measurement starts after that, in
/// runs with at most this many clients.
const CLIENTS_FAR: f64 = 500_000.0;
const FAR_NS: u64 = 100 * MILLI_NS;

/// Round trip time from which clients notice decisions with a delay.
const AWAY_NS: u64 = 10 * MILLI_NS;

impl Corner {
    fn scenario(self) -> Scenario {
        let scenario = Scenario {
            cores: self.cores,
            classes: vec![Class { weight: 1.0, service: Distribution::Fixed(self.service_ns) }],
            timeout_ns: self.timeout_ns,
            rtt: Distribution::Fixed(self.rtt_ns),
            window_ns: WINDOW_NS,
            ..Scenario::default()
        };
        let scenario = scenario.loaded(self.load);
        let rate = scenario.load[0].rate;
        let duration_ns = if self.is_far() { 6 * SECOND_NS } else { self.near_ns(rate) };
        let duration_ns = duration_ns.max(400 * self.service_ns);
        let measured_ns = (duration_ns / 2).min(2 * SECOND_NS + 200 * self.service_ns);
        Scenario { duration_ns, measured_from_ns: duration_ns - measured_ns, ..scenario }
    }

    fn near_ns(self, rate: f64) -> u64 {
        let clients_ns = (CLIENTS / rate * 1e9) as u64;
        let shortest_ns = if self.is_away() { SHORTEST_AWAY_NS } else { SHORTEST_NS };
        clients_ns.clamp(shortest_ns, 3 * SECOND_NS + 400 * self.service_ns)
    }

    fn is_far(self) -> bool {
        self.rtt_ns >= FAR_NS
    }

    /// Returns whether the corner is tested: a flood must leave enough of a core to measure, and
    /// the outcome must show in a run of affordable length.
    fn is_on_trial(self, scenario: &Scenario) -> bool {
        let clients = scenario.load[0].rate * scenario.duration_ns as f64 / 1e9;
        let part = scenario.attainable(requests_rate(scenario)) / scenario.capacity();
        part >= 0.4 && !(self.is_far() && clients > CLIENTS_FAR) && !self.is_beyond()
    }

    /// Returns whether the corner is out of reach: twenty times the capacity from far away, with
    /// clients that leave after five round trips. It does not hold there, because nothing is
    /// refused in the first 200 ms.
    fn is_beyond(self) -> bool {
        self.load > 10.0 && self.is_away() && self.timeout_ns <= 5 * self.rtt_ns
    }

    /// Returns whether a client that finds a queue of the target's length, or of a few requests,
    /// can be served in time.
    fn is_feasible(self) -> bool {
        2 * self.timeout_ns >= 3 * self.rtt_ns + 14 * self.service_ns + 5 * TARGET_NS
    }

    /// Returns whether a few requests already make a queue of the target's length.
    fn is_coarse(self) -> bool {
        8 * self.service_ns >= TARGET_NS
    }

    /// Returns whether clients notice decisions with a considerable delay.
    fn is_away(self) -> bool {
        self.rtt_ns >= AWAY_NS
    }

    /// Returns the minimum goodput, as a share of the attainable. Near the capacity a short queue
    /// runs dry by chance, and a queue of few requests does so whenever the filter is what keeps it
    /// short; over a long path a decision takes effect late; and in a flood `attainable` ignores
    /// packets in flight at the time of refusal.
    fn goodput_min(self, part_attainable: f64) -> f64 {
        match self.load {
            _ if self.service_ns >= TARGET_NS => 0.75,
            load if load < 1.0 => 0.95,
            load if load <= 1.5 && self.is_coarse() => 0.8,
            load if load > 4.0 && self.is_far() => 0.5,
            _ if self.is_far() => 0.8,
            _ if self.is_coarse() && self.is_away() => 0.8,
            _ if self.is_coarse() => 0.85,
            load if load <= 1.5 => 0.9,
            _ if part_attainable < 0.85 && self.is_away() => 0.8,
            _ if part_attainable < 0.85 => 0.85,
            load if load > 10.0 && self.is_away() => 0.9,
            _ => 0.93,
        }
    }

    /// Returns the maximum sojourn: a few targets, or a few requests; over a long path also what
    /// arrives before the decision takes effect, which in a flood is a lot.
    fn sojourn_max_ms(self) -> f64 {
        let targets = match self.load {
            load if load >= 10.0 && (self.is_away() || load > 10.0) => 16,
            load if load <= 1.5 && self.is_coarse() => 8,
            load if load <= 1.0 => 4,
            _ => 3,
        };
        let services = if self.is_coarse() { 10 } else { 7 };
        (targets * TARGET_NS + 2 * self.rtt_ns + services * self.service_ns) as f64 / 1e6
    }

    /// Returns the maximum relative variation of goodput from one tenth of a second to another.
    fn oscillation_max(self, part_attainable: f64) -> f64 {
        match part_attainable {
            _ if self.is_far() => 0.85,
            part if part < 0.85 && self.is_away() => 0.6,
            part if part < 0.85 => 0.3,
            _ if self.is_away() => 0.3,
            _ => 0.2,
        }
    }
}

/// Asserts that the default setting meets the bounds in each of the corners.
fn assert_holds(corners: impl IntoIterator<Item = Corner>) {
    let mut faults = Faults::default();
    for corner in corners {
        let scenario = corner.scenario();
        if !corner.is_on_trial(&scenario) {
            continue;
        }
        judge(corner, &scenario, &run(&scenario, 1), &mut faults);
    }
}

fn judge(corner: Corner, scenario: &Scenario, statistics: &Statistics, faults: &mut Faults) {
    let sojourn_ms = statistics.sojourn.value_at_quantile(0.99) as f64 / 1e6;
    faults.at_most(corner.sojourn_max_ms(), sojourn_ms, "p99 sojourn, ms,", &corner);
    if !corner.is_feasible() {
        return;
    }
    // Below saturation chance makes what is offered, above it what can be served is certain.
    let goodput = match corner.load {
        load if load < 1.0 => statistics.total.good_share(),
        _ => goodput_of_attainable(scenario, statistics),
    };
    let part = scenario.attainable(requests_rate(scenario)) / scenario.capacity();
    faults.at_least(corner.goodput_min(part), goodput, "goodput", &corner);
    if statistics.cores.iter().all(|core| core.good >= 100) {
        let fairness = Statistics::fairness(&statistics.cores);
        // A core that has run dry is flooded for a while; so far away that is seen in the mean.
        let bound = if corner.is_away() && corner.load >= 4.0 { 0.85 } else { 0.95 };
        faults.at_least(bound, fairness, "fairness among cores", &corner);
    }
    // Fewer in a window are chance.
    if corner.load >= 1.5 && statistics.goodput() * WINDOW_NS as f64 / 1e9 >= 50.0 {
        let from_ns = scenario.measured_from_ns;
        let swing = statistics.oscillation(from_ns, scenario.duration_ns);
        faults.at_most(corner.oscillation_max(part), swing, "oscillation", &corner);
    }
    if corner.load < 1.0 && !corner.is_coarse() {
        faults.at_most(0.0, turned_away(statistics), "turned away with room", &corner);
    }
}

/// Returns the number of connections refused or dropped.
fn turned_away(statistics: &Statistics) -> f64 {
    let (loops, drops) = (&statistics.loops, &statistics.drops);
    (loops.refused + loops.stale + loops.unfair + drops.filtered + drops.listen_drops) as f64
}

const LOADS: [f64; 8] = [0.5, 0.8, 1.0, 1.5, 2.0, 4.0, 10.0, 20.0];
const SERVICES_NS: [u64; 5] = [10_000, 100_000, 600_000, 5 * MILLI_NS, 50 * MILLI_NS];

/// Returns corners for all loads and service times, with one timeout, round trip time and number of
/// cores.
fn plane(timeout_ms: u64, rtt_ms: u64, cores: u32) -> impl Iterator<Item = Corner> {
    let (timeout_ns, rtt_ns) = (timeout_ms * MILLI_NS, rtt_ms * MILLI_NS);
    LOADS.into_iter().flat_map(move |load| {
        let corner = move |service_ns| Corner { load, service_ns, timeout_ns, rtt_ns, cores };
        SERVICES_NS.into_iter().map(corner)
    })
}

#[test]
fn it_holds_for_clients_without_patience() {
    assert_holds(plane(100, 0, 1).chain(plane(100, 20, 1)));
}

#[test]
fn it_holds_for_clients_of_half_a_second() {
    assert_holds(plane(500, 0, 1).chain(plane(500, 20, 1)).chain(plane(500, 200, 1)));
}

#[test]
fn it_holds_for_clients_of_two_seconds() {
    assert_holds(plane(2_000, 0, 1).chain(plane(2_000, 200, 1)));
}

#[test]
fn it_holds_for_clients_of_ten_seconds() {
    assert_holds(plane(10_000, 0, 1).chain(plane(10_000, 20, 1)));
    assert_holds(plane(10_000, 200, 1));
}

#[test]
fn it_holds_on_four_cores() {
    // At twenty times, and 100 µs a request, a loop that sleeps for a moment lets in 3,000 at once,
    // and how often that befalls a core in its first second is chance.
    let all = plane(500, 0, 4).chain(plane(2_000, 20, 4));
    assert_holds(all.filter(|corner| corner.load < 20.0));
}

#[test]
fn it_holds_on_hundreds_of_cores() {
    let corner = |load, service_ns| Corner {
        load,
        service_ns,
        timeout_ns: 500 * MILLI_NS,
        rtt_ns: MILLI_NS,
        cores: 256,
    };
    assert_holds([corner(0.8, 600_000), corner(2.0, 600_000), corner(4.0, 5_000_000)]);
}

#[test]
fn ten_million_requests_a_second_find_each_core_by_itself() {
    let corner =
        Corner { load: 1.0, service_ns: 10_000, timeout_ns: 500 * MILLI_NS, rtt_ns: 0, cores: 256 };
    let mut scenario = corner.scenario();
    scenario.load[0].rate = 1e7;
    scenario.duration_ns = 50 * MILLI_NS;
    scenario.measured_from_ns = 25 * MILLI_NS;
    let statistics = run(&scenario, 1);
    let mut faults = Faults::default();
    faults.at_least(0.99, Statistics::fairness(&statistics.cores), "fairness", &corner);
    // The first fifty milliseconds are those in which the queues fill.
    faults.at_least(0.6, statistics.goodput() / scenario.capacity(), "goodput", &corner);
}
