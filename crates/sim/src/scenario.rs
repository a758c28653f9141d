//! What is simulated: the clients, the machine, the server and its policy, and for how long. Plain
//! data; knows nothing of how it is played.

use weir_accept::{Controls, Limit, Name, Refusal, Setting, Source, SynFilter, TARGET_NS};

use crate::costs::Costs;
use crate::kernel::Rules;
use crate::neighbour::Neighbour;
use crate::{MILLI_NS, SECOND_NS};

/// The law of a time, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Always the same.
    Fixed(u64),
    /// Exponential, by its mean.
    Exponential(u64),
    /// Uniform between two.
    Uniform(u64, u64),
}

impl Law {
    /// The mean, nanoseconds.
    pub fn mean_ns(self) -> f64 {
        match self {
            Self::Fixed(ns) | Self::Exponential(ns) => ns as f64,
            Self::Uniform(low, high) => (low + high) as f64 / 2.0,
        }
    }

    /// The time that a uniform number in [0, 1) stands for.
    pub(crate) fn at(self, uniform: f64) -> u64 {
        match self {
            Self::Fixed(ns) => ns,
            Self::Exponential(ns) => (-(1.0 - uniform).ln() * ns as f64) as u64,
            Self::Uniform(low, high) => low + (uniform * (high - low) as f64) as u64,
        }
    }
}

/// One class of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Its part of all sessions, relative to the other classes.
    pub weight: f64,
    /// What a request takes of the server, without the calls.
    pub service: Law,
}

/// What a client is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Connects, asks, waits for as long as its patience, and goes.
    Honest,
    /// Connects and says nothing.
    Mute,
    /// Says a byte a second, and never a whole request.
    Slow,
    /// Honest, but connects again at once when it is refused.
    Reconnecting,
    /// Sends a connection request from an address where nobody is.
    Spoofed,
}

impl Kind {
    /// Every kind, in the order of the variants.
    pub const ALL: [Self; 5] =
        [Self::Honest, Self::Mute, Self::Slow, Self::Reconnecting, Self::Spoofed];

    /// Whether it wants a reply.
    pub fn asks(self) -> bool {
        matches!(self, Self::Honest | Self::Reconnecting)
    }
}

/// A group of clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// What they are like.
    pub kind: Kind,
    /// Their sessions begun for each one of the scenario's rate.
    pub ratio: f64,
    /// The first of their addresses (IPv4, as a number), and how many there are.
    pub addresses: (u32, u32),
    /// What their sessions consist of; `None` is the scenario's.
    pub sessions: Option<Sessions>,
}

impl Group {
    /// Clients of one address.
    pub fn new(kind: Kind, ratio: f64) -> Self {
        Self { kind, ratio, addresses: (0x0a00_0001, 1), sessions: None }
    }

    /// The address that a uniform number in [0, 1) stands for.
    pub(crate) fn source(&self, uniform: f64) -> Source {
        let (first, count) = self.addresses;
        Source::v4(first.wrapping_add((uniform * f64::from(count)) as u32))
    }
}

/// When sessions begin, at a given rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Independently of each other.
    Poisson,
    /// At equal distances.
    Constant,
    /// So many at once, at equal distances.
    Bursts(u32),
}

/// A rate and when it begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// From this time on.
    pub from_ns: u64,
    /// Sessions a second.
    pub rate: f64,
}

/// What a session consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sessions {
    /// The fewest requests and the most; each number between is as likely.
    pub requests: (u32, u32),
    /// Between a reply and the next request.
    pub think: Law,
    /// One in so many closes its connection in the end; 0: none does, and the server may.
    pub closes_one_in: u32,
}

impl Sessions {
    /// Requests a session, mean.
    pub fn requests_mean(&self) -> f64 {
        f64::from(self.requests.0 + self.requests.1) / 2.0
    }
}

/// A scenario. The default is an honest client each millisecond, a request each of a tenth of that,
/// for ten seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The policy and what it may use; each core has one of its own.
    pub setting: Setting,
    /// Cores, each with a loop and a listening socket (SO_REUSEPORT).
    pub cores: u32,
    /// A connection is read, and answered, when it is accepted.
    pub eager: bool,
    /// Somebody else on each core.
    pub neighbour: Option<Neighbour>,
    /// The most connections a core may have open.
    pub open_max: usize,
    /// From the accept to the first whole request, nanoseconds.
    pub header_timeout_ns: u64,
    /// Between two requests, nanoseconds.
    pub idle_timeout_ns: u64,
    /// The requests; at least one class.
    pub classes: Vec<Class>,
    /// The sessions.
    pub sessions: Sessions,
    /// The clients.
    pub groups: Vec<Group>,
    /// When sessions begin.
    pub pattern: Pattern,
    /// How many, over time; none before the first step.
    pub load: Vec<Step>,
    /// How long a client waits without progress: for the connection, then for each reply.
    pub timeout_ns: u64,
    /// How long a mute or slow client stays.
    pub stay_ns: u64,
    /// The round trip time, of each connection.
    pub rtt: Law,
    /// The kernel's settings.
    pub rules: Rules,
    /// What everything costs.
    pub costs: Costs,
    /// How long is simulated.
    pub duration_ns: u64,
    /// What comes before is not part of the totals.
    pub measured_from_ns: u64,
    /// The length of a window of the statistics.
    pub window_ns: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            setting: Setting {
                name: Name::Adaptive,
                limit: Limit::Auto,
                target_ns: TARGET_NS,
                controls: Controls::ALL,
                refusal: Refusal::default(),
                backlog: 4096,
                syn_filter: SynFilter::Tokens,
                eager: true,
            },
            cores: 1,
            eager: true,
            neighbour: None,
            open_max: 100_000,
            header_timeout_ns: 10 * SECOND_NS,
            idle_timeout_ns: 60 * SECOND_NS,
            classes: vec![Class { weight: 1.0, service: Law::Fixed(100_000) }],
            sessions: Sessions { requests: (1, 1), think: Law::Fixed(0), closes_one_in: 1 },
            groups: vec![Group::new(Kind::Honest, 1.0)],
            pattern: Pattern::Poisson,
            load: vec![Step { from_ns: 0, rate: 1000.0 }],
            timeout_ns: 500 * MILLI_NS,
            stay_ns: 30 * SECOND_NS,
            rtt: Law::Fixed(0),
            rules: Rules::default(),
            costs: Costs::default(),
            duration_ns: 10 * SECOND_NS,
            measured_from_ns: SECOND_NS,
            window_ns: 100 * MILLI_NS,
        }
    }
}

impl Scenario {
    /// The setting of each core's policy.
    pub fn setting(&self) -> Setting {
        Setting { eager: self.eager, ..self.setting }
    }

    /// The mean work of a request, nanoseconds.
    pub fn service_mean_ns(&self) -> f64 {
        let weights: f64 = self.classes.iter().map(|class| class.weight).sum();
        let sum: f64 =
            self.classes.iter().map(|class| class.weight * class.service.mean_ns()).sum();
        sum / weights
    }

    /// Requests a second that all cores together can serve, when nobody else knocks.
    pub fn capacity(&self) -> f64 {
        f64::from(self.cores) * 1e9 / self.served_ns()
    }

    /// A steady load, so many times [`Scenario::capacity`].
    #[must_use]
    pub fn loaded(mut self, times: f64) -> Self {
        let rate = times * self.capacity() / self.sessions.requests_mean();
        self.load = vec![Step { from_ns: 0, rate }];
        self
    }

    /// Replies a second that are possible at a rate of requests, when each that is not served costs
    /// a core no more than a full queue's dropping of its connection requests, for as long as its
    /// client asks. A gate may drop them for less.
    pub fn attainable(&self, requests_rate: f64) -> f64 {
        let sessions = self.sessions.requests_mean();
        let refused_ns = self.costs.syn_dropped as f64 * self.syns() / sessions;
        let served_ns = self.served_ns();
        let each = requests_rate / f64::from(self.cores);
        let served = (1e9 - each * refused_ns) / (served_ns - refused_ns);
        f64::from(self.cores) * served.clamp(0.0, each)
    }

    fn served_ns(&self) -> f64 {
        let requests = self.sessions.requests_mean();
        self.costs.served_ns(self.service_mean_ns(), requests, self.eager)
    }

    /// How many connection requests a client makes within its patience.
    fn syns(&self) -> f64 {
        let gaps = (1..=self.rules.syn_retries).map(|n| self.syn_gap_ns(n));
        let sent = gaps.scan(0, |at_ns: &mut u64, gap_ns| {
            *at_ns += gap_ns;
            Some(*at_ns)
        });
        1.0 + sent.take_while(|at_ns| *at_ns < self.timeout_ns).count() as f64
    }

    /// How long a client's kernel waits after its connection request number `n`, from one.
    pub(crate) fn syn_gap_ns(&self, n: u8) -> u64 {
        SECOND_NS << n.saturating_sub(1 + self.rules.syn_linear_timeouts).min(20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_has_the_mean_it_says() {
        for law in [Law::Fixed(100), Law::Exponential(100_000), Law::Uniform(50, 150)] {
            let draws = (0..10_000).map(|n| law.at((f64::from(n) + 0.5) / 1e4) as f64);
            let mean = draws.sum::<f64>() / 1e4;
            assert!((mean / law.mean_ns() - 1.0).abs() < 0.01, "{law:?}: {mean}");
        }
    }

    #[test]
    fn connection_requests_are_repeated_each_second_and_then_less_often() {
        let mut scenario = Scenario::default();
        let gaps_s = |scenario: &Scenario| {
            (1..=6).map(|n| scenario.syn_gap_ns(n) / SECOND_NS).collect::<Vec<_>>()
        };
        assert_eq!(gaps_s(&scenario), [1, 1, 1, 1, 1, 2]);
        scenario.rules.syn_linear_timeouts = 0;
        assert_eq!(gaps_s(&scenario), [1, 2, 4, 8, 16, 32]);
        scenario.timeout_ns = 4 * SECOND_NS;
        assert_eq!(scenario.syns(), 3.0);
    }

    #[test]
    fn what_is_refused_takes_from_what_can_be_served() {
        let scenario = Scenario::default();
        let capacity = scenario.capacity();
        assert_eq!(scenario.attainable(capacity / 2.0), capacity / 2.0);
        assert!((scenario.attainable(capacity) / capacity - 1.0).abs() < 1e-9);
        let ten = scenario.attainable(10.0 * capacity) / capacity;
        assert!((0.7..0.9).contains(&ten), "{ten}");
        assert_eq!(scenario.attainable(1e9), 0.0);
    }

    #[test]
    fn the_kinds_are_in_the_order_of_their_variants() {
        assert!(Kind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
    }
}
