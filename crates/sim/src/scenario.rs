//! Scenarios: the clients, the machine, the server, its policy and the duration of a run. Plain
//! data.

use std::iter;

use weir_accept::{PolicyConfig, Source};

use crate::costs::Costs;
use crate::neighbour::Neighbour;
use crate::rules::Rules;
use crate::time::{MILLI_NS, SECOND_NS};

/// Probability distribution of a time, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Constant.
    Fixed(u64),
    /// Exponential, with this mean.
    Exponential(u64),
    /// Uniform between two times.
    Uniform(u64, u64),
}

impl Distribution {
    /// Returns the mean, nanoseconds.
    pub fn mean_ns(self) -> f64 {
        match self {
            Self::Fixed(ns) | Self::Exponential(ns) => ns as f64,
            Self::Uniform(low, high) => (low + high) as f64 / 2.0,
        }
    }

    /// Returns the mean square.
    fn mean_square(self) -> f64 {
        match self {
            Self::Fixed(ns) => (ns as f64).powi(2),
            Self::Exponential(ns) => 2.0 * (ns as f64).powi(2),
            Self::Uniform(low, high) => {
                let (low, high) = (low as f64, high as f64);
                (low * low + low * high + high * high) / 3.0
            }
        }
    }

    /// Returns the time that a uniform number in [0, 1) maps to.
    pub(crate) fn at(self, uniform: f64) -> u64 {
        match self {
            Self::Fixed(ns) => ns,
            Self::Exponential(ns) => (-(1.0 - uniform).ln() * ns as f64) as u64,
            Self::Uniform(low, high) => low + (uniform * (high - low) as f64) as u64,
        }
    }
}

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Share of all sessions, relative to the other classes.
    pub weight: f64,
    /// Work of the server per request, without the calls.
    pub service: Distribution,
}

/// Behaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// Connects, sends requests, waits until its timeout, and leaves.
    Honest,
    /// Connects and sends nothing.
    Mute,
    /// Sends a byte per second, and never a complete request.
    Slow,
    /// Like honest, but reconnects at once after a refusal.
    Reconnecting,
    /// Sends a SYN from an address without a host.
    Spoofed,
}

impl ClientKind {
    /// All kinds, in the order of the variants.
    pub const ALL: [Self; 5] =
        [Self::Honest, Self::Mute, Self::Slow, Self::Reconnecting, Self::Spoofed];

    /// Returns whether the client wants a reply.
    pub fn asks(self) -> bool {
        matches!(self, Self::Honest | Self::Reconnecting)
    }
}

/// A group of clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Behaviour of the group's clients.
    pub kind: ClientKind,
    /// Sessions of this group per session of the scenario's rate.
    pub ratio: f64,
    /// First address of the group (IPv4, as a number), and the number of addresses.
    pub addresses: (u32, u32),
    /// Shape of the group's sessions; `None` uses the scenario's.
    pub sessions: Option<Sessions>,
    /// Time from which, and until which, its sessions begin, nanoseconds.
    pub begins_ns: (u64, u64),
}

impl Group {
    /// Creates a group of clients with one address.
    pub fn new(kind: ClientKind, ratio: f64) -> Self {
        Self { kind, ratio, addresses: (0x0a00_0001, 1), sessions: None, begins_ns: (0, u64::MAX) }
    }

    /// Returns the address that a uniform number in [0, 1) maps to.
    pub(crate) fn source(&self, uniform: f64) -> Source {
        let (first, count) = self.addresses;
        Source::v4(first.wrapping_add((uniform * f64::from(count)) as u32))
    }
}

/// Arrival pattern of sessions at a given rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalPattern {
    /// Independent arrivals.
    Poisson,
    /// Arrivals at equal intervals.
    Constant,
    /// Bursts of this many sessions, at equal intervals.
    Bursts(u32),
}

/// A rate and its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Start of the step.
    pub from_ns: u64,
    /// Sessions per second.
    pub rate: f64,
}

/// Shape of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sessions {
    /// Minimum and maximum number of requests, uniformly distributed.
    pub requests: (u32, u32),
    /// Think time between a reply and the next request.
    pub think: Distribution,
    /// Number of sessions of which one closes its connection at the end; with 0 none does, and the
    /// server may.
    pub closes_one_in: u32,
}

impl Sessions {
    /// Returns the mean number of requests per session.
    pub fn requests_mean(&self) -> f64 {
        f64::from(self.requests.0 + self.requests.1) / 2.0
    }
}

/// TLS on every connection: the client's first data begins a handshake, and its first request comes
/// with the end of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tls {
    /// Work of the server, nanoseconds, before it answers in a full handshake.
    pub full_ns: u64,
    /// Work of the server, nanoseconds, before it answers in a resumed handshake.
    pub resumed_ns: u64,
    /// Work of the server at the end of either, nanoseconds.
    pub end_ns: u64,
    /// Share of the handshakes that are resumed.
    pub resumed_share: f64,
}

impl Tls {
    /// Returns the mean work of the server for a handshake, nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        let (full_ns, resumed_ns) = (self.full_ns as f64, self.resumed_ns as f64);
        full_ns + (resumed_ns - full_ns) * self.resumed_share + self.end_ns as f64
    }
}

/// A scenario. The default is an honest client per millisecond, with one request each that takes a
/// tenth of that, for ten seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The policy and its controls; each core has a policy of its own.
    pub policy: PolicyConfig,
    /// Cores, each with a loop and a listening socket (SO_REUSEPORT).
    pub cores: u32,
    /// True if a connection is read, and answered, when it is accepted.
    pub eager: bool,
    /// A competing process on each core.
    pub neighbour: Option<Neighbour>,
    /// Maximum number of open connections per core.
    pub open_max: usize,
    /// Timeout from the accept to the first complete request, nanoseconds.
    pub header_timeout_ns: u64,
    /// Timeout between two requests, nanoseconds.
    pub idle_timeout_ns: u64,
    /// Classes of requests; at least one.
    pub classes: Vec<Class>,
    /// Shape of the sessions.
    pub sessions: Sessions,
    /// TLS, if it is spoken.
    pub tls: Option<Tls>,
    /// Groups of clients.
    pub groups: Vec<Group>,
    /// Arrival pattern of sessions.
    pub pattern: ArrivalPattern,
    /// Rate of sessions over time; zero before the first step.
    pub load: Vec<Step>,
    /// Client timeout without progress: for the connection, then for each reply.
    pub timeout_ns: u64,
    /// Lifetime of a mute or slow client.
    pub stay_ns: u64,
    /// Distribution of the round trip time; drawn per connection.
    pub rtt: Distribution,
    /// Kernel settings.
    pub rules: Rules,
    /// Costs of each step.
    pub costs: Costs,
    /// Simulated time.
    pub duration_ns: u64,
    /// Start of the measurement; earlier events do not count towards the totals.
    pub measured_from_ns: u64,
    /// Length of a statistics window.
    pub window_ns: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            policy: PolicyConfig::default(),
            cores: 1,
            eager: true,
            neighbour: None,
            open_max: 100_000,
            header_timeout_ns: 10 * SECOND_NS,
            idle_timeout_ns: 60 * SECOND_NS,
            classes: vec![Class { weight: 1.0, service: Distribution::Fixed(100_000) }],
            sessions: Sessions {
                requests: (1, 1),
                think: Distribution::Fixed(0),
                closes_one_in: 1,
            },
            tls: None,
            groups: vec![Group::new(ClientKind::Honest, 1.0)],
            pattern: ArrivalPattern::Poisson,
            load: vec![Step { from_ns: 0, rate: 1000.0 }],
            timeout_ns: 500 * MILLI_NS,
            stay_ns: 30 * SECOND_NS,
            rtt: Distribution::Fixed(0),
            rules: Rules::default(),
            costs: Costs::default(),
            duration_ns: 10 * SECOND_NS,
            measured_from_ns: SECOND_NS,
            window_ns: 100 * MILLI_NS,
        }
    }
}

impl Scenario {
    /// Returns the parameters of each core's policy.
    pub fn policy_config(&self) -> PolicyConfig {
        PolicyConfig { eager: self.eager, ..self.policy }
    }

    /// Returns the mean work per request, nanoseconds.
    pub fn service_mean_ns(&self) -> f64 {
        self.service_mean_of(Distribution::mean_ns)
    }

    /// Returns the standard deviation of the work per request, nanoseconds.
    pub fn service_deviation_ns(&self) -> f64 {
        (self.service_mean_of(Distribution::mean_square) - self.service_mean_ns().powi(2))
            .max(0.0)
            .sqrt()
    }

    fn service_mean_of(&self, of: impl Fn(Distribution) -> f64) -> f64 {
        let weights: f64 = self.classes.iter().map(|class| class.weight).sum();
        let sum: f64 = self.classes.iter().map(|class| class.weight * of(class.service)).sum();
        sum / weights
    }

    /// Returns the requests per second that all cores together can serve, when no other traffic
    /// arrives.
    pub fn capacity(&self) -> f64 {
        f64::from(self.cores) * 1e9 / self.served_ns()
    }

    /// Sets a steady load of `times` [`Scenario::capacity`].
    #[must_use]
    pub fn loaded(mut self, times: f64) -> Self {
        let rate = times * self.capacity() / self.sessions.requests_mean();
        self.load = vec![Step { from_ns: 0, rate }];
        self
    }

    /// Returns the replies per second that are attainable at a rate of requests, if each request
    /// that is not served costs a core no more than the drops of its SYNs by a full queue, for as
    /// long as its client retries. A SYN filter may drop them for less:
    /// [`Scenario::attainable_filtered`].
    pub fn attainable(&self, requests_rate: f64) -> f64 {
        self.left_by_drops(requests_rate, self.costs.syn_dropped as f64 * self.syns())
    }

    /// Returns the replies per second that are attainable in the time of the measurement, at a rate
    /// of requests that is the same from the start, if each request that is not served costs a core
    /// no more than the drops of its SYNs by a filter. Those count that come in that time: clients
    /// who wait for longer than the run have not sent all of theirs.
    pub fn attainable_filtered(&self, requests_rate: f64) -> f64 {
        self.left_by_drops(requests_rate, self.costs.syn_filtered as f64 * self.syns_measured())
    }

    /// Returns the replies per second that are attainable if the drops of a client's SYNs cost a
    /// core `dropped_ns` in all.
    fn left_by_drops(&self, requests_rate: f64, dropped_ns: f64) -> f64 {
        let refused_ns = dropped_ns / self.sessions.requests_mean();
        let served_ns = self.served_ns();
        let each = requests_rate / f64::from(self.cores);
        let served = (1e9 - each * refused_ns) / (served_ns - refused_ns);
        f64::from(self.cores) * served.clamp(0.0, each)
    }

    /// Returns the mean time that a request takes of a core, nanoseconds, everything counted.
    pub(crate) fn served_ns(&self) -> f64 {
        let requests = self.sessions.requests_mean();
        let handshake_ns = self.tls.map_or(0.0, |tls| tls.mean_ns() + self.handshake_calls_ns());
        handshake_ns / requests + self.costs.served_ns(self.service_mean_ns(), requests, self.eager)
    }

    /// Returns the cost of the calls and packets of a TLS handshake, nanoseconds.
    fn handshake_calls_ns(&self) -> f64 {
        let costs = &self.costs;
        let is_watched = !self.eager || self.sessions.requests_mean() > 1.0;
        let watch = if is_watched { 0 } else { costs.epoll_ctl };
        (costs.read + costs.write + costs.data + watch) as f64
    }

    /// Returns the number of SYNs a client sends within its timeout.
    fn syns(&self) -> f64 {
        self.syn_times_ns().count() as f64
    }

    /// Returns the number of SYNs that come in the time of the measurement, for each client that
    /// comes in it, if none is let in.
    fn syns_measured(&self) -> f64 {
        let (from_ns, until_ns) = (self.measured_from_ns, self.duration_ns);
        let come_ns = |at_ns: u64| until_ns.saturating_sub(from_ns.max(at_ns));
        let sum_ns: u64 = self.syn_times_ns().map(come_ns).sum();
        sum_ns as f64 / until_ns.saturating_sub(from_ns).max(1) as f64
    }

    /// Returns the times of the SYNs that a client sends within its timeout, from the first one,
    /// nanoseconds.
    fn syn_times_ns(&self) -> impl Iterator<Item = u64> {
        let (rules, timeout_ns) = (self.rules, self.timeout_ns);
        let gaps_ns = (1..=rules.syn_retries).map(move |n| rules.syn_gap_ns(n));
        let again_ns = gaps_ns.scan(0, |at_ns: &mut u64, gap_ns| {
            *at_ns += gap_ns;
            Some(*at_ns)
        });
        iter::once(0).chain(again_ns.take_while(move |at_ns| *at_ns < timeout_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_has_the_mean_it_says() {
        for law in [
            Distribution::Fixed(100),
            Distribution::Exponential(100_000),
            Distribution::Uniform(50, 150),
        ] {
            let draws = (0..10_000).map(|n| law.at((f64::from(n) + 0.5) / 1e4) as f64);
            let mean = draws.sum::<f64>() / 1e4;
            assert!((mean / law.mean_ns() - 1.0).abs() < 0.01, "{law:?}: {mean}");
        }
    }

    #[test]
    fn a_client_sends_the_syns_that_its_timeout_leaves_time_for() {
        let mut scenario = Scenario { timeout_ns: 4 * SECOND_NS, ..Scenario::default() };
        assert_eq!(scenario.syns(), 4.0);
        scenario.rules.syn_linear_timeouts = 0;
        assert_eq!(scenario.syns(), 3.0);
    }

    #[test]
    fn syns_count_as_far_as_they_come_while_it_is_measured() {
        let counted = |timeout_s, from_ms, until_ms| {
            let scenario = Scenario {
                timeout_ns: timeout_s * SECOND_NS,
                measured_from_ns: from_ms * MILLI_NS,
                duration_ns: until_ms * MILLI_NS,
                ..Scenario::default()
            };
            scenario.syns_measured()
        };
        assert_eq!(counted(1, 5_000, 9_000), 1.0);
        assert_eq!(counted(2, 5_000, 9_000), 2.0);
        assert_eq!(counted(10, 500, 1_500), 1.5);
        // The first three come all the while, the fourth for half of it.
        assert_eq!(counted(10, 2_000, 4_000), 3.5);
        assert_eq!(counted(10, 20_000, 30_000), 7.0);
    }

    #[test]
    fn the_cost_of_refusals_reduces_what_can_be_served() {
        let scenario = Scenario::default();
        let capacity = scenario.capacity();
        assert_eq!(scenario.attainable(capacity / 2.0), capacity / 2.0);
        assert!((scenario.attainable(capacity) / capacity - 1.0).abs() < 1e-9);
        let ten = scenario.attainable(10.0 * capacity) / capacity;
        assert!((0.7..0.9).contains(&ten), "{ten}");
        assert_eq!(scenario.attainable(1e9), 0.0);
    }

    #[test]
    fn a_filter_leaves_more_to_be_served_than_a_full_queue() {
        let scenario = Scenario::default();
        let capacity = scenario.capacity();
        assert!((scenario.attainable_filtered(capacity) / capacity - 1.0).abs() < 1e-9);
        let ten = scenario.attainable_filtered(10.0 * capacity) / capacity;
        assert!((0.89..0.91).contains(&ten), "{ten}");
    }

    #[test]
    fn the_kinds_are_in_the_order_of_their_variants() {
        assert!(ClientKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
    }
}
