//! Backends: what a run is of.

use rand_distr::{Distribution as _, Exp1, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::upstream::UpstreamConfig;

/// Law of the work that a request is. The mean is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Always the same.
    Fixed,
    /// Exponential.
    Exponential,
    /// Log-normal with a standard deviation of three times the mean.
    HeavyTailed,
}

impl Service {
    pub(super) fn draw(self, random: &mut Xoshiro256PlusPlus) -> f64 {
        match self {
            Self::Fixed => 1.0,
            Self::Exponential => Exp1.sample(random),
            Self::HeavyTailed => {
                LogNormal::from_mean_cv(1.0, 3.0).map_or(1.0, |l| l.sample(random))
            }
        }
    }
}

/// A way to share the workers among the requests in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sharing {
    /// A worker serves one request at a time; the others wait, the oldest first.
    OneEach,
    /// All are served at the same time, by as many processors as there are workers. Each request in
    /// flight beyond these takes this part of what they can do.
    All {
        /// Part of the capacity lost to each.
        loss_each: f64,
    },
}

/// A time in which the server can do less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairment {
    /// Begin and end, nanoseconds.
    pub during_ns: (u64, u64),
    /// Factor by which a request that begins then takes longer.
    pub slowness: f64,
    /// Workers that are gone.
    pub workers_lost: usize,
}

/// A way to treat the SYNs that clients send again because they were dropped: a second later, and
/// then each time after twice as long (RFC 6298 section 5.5), until they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retransmission {
    /// They are like any other.
    Alike,
    /// They pass by a limit of their own.
    Behind,
}

/// A backend and its clients.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Number of workers.
    pub workers: usize,
    /// Way in which requests share them.
    pub sharing: Sharing,
    /// Requests in flight beyond which it answers 503 itself, at once.
    pub refuses_beyond: usize,
    /// Law of the service time.
    pub service: Service,
    /// Mean service time, nanoseconds.
    pub service_ns: f64,
    /// Requests per second, Poisson.
    pub rate: f64,
    /// Time at which their rate changes, nanoseconds, and the factor.
    pub change: Option<(u64, f64)>,
    /// Time after which a client leaves, nanoseconds. The server answers its request all the same.
    pub patience_ns: u64,
    /// Part of the requests that are of the high class.
    pub high_share: f64,
    /// Part of the requests that the server never replies to. They occupy no worker.
    pub hung_share: f64,
    /// A time in which it can do less.
    pub impairment: Option<Impairment>,
    /// Admission to it.
    pub admission: UpstreamConfig,
    /// True if each request is a connection's only one, and SYNs are dropped by
    /// [`weir_accept::upstream::Shedding`].
    pub sheds: bool,
    /// Rule by which a client whose SYN was dropped sends it again; `None`: it does not.
    pub retransmission: Option<Retransmission>,
    /// Time that each refusal takes of the processors, nanoseconds, where requests share them
    /// ([`Sharing::All`]): the proxy runs on the same ones.
    pub refusal_ns: u64,
    /// Duration, nanoseconds.
    pub duration_ns: u64,
    /// Seed.
    pub seed: u64,
}

impl Backend {
    /// Creates a backend of workers that serve one request at a time, asked for `overload` times
    /// what they can do, for a minute.
    #[must_use]
    pub fn new(workers: usize, service: Service, service_ns: f64, overload: f64) -> Self {
        Self {
            workers,
            sharing: Sharing::OneEach,
            refuses_beyond: usize::MAX,
            service,
            service_ns,
            rate: overload * workers as f64 * 1e9 / service_ns,
            change: None,
            patience_ns: u64::MAX,
            high_share: 0.0,
            hung_share: 0.0,
            impairment: None,
            admission: UpstreamConfig::default(),
            sheds: false,
            retransmission: None,
            refusal_ns: 0,
            duration_ns: 60_000_000_000,
            seed: 7,
        }
    }

    /// Returns the rate of the requests at a time, per second.
    pub(super) fn rate_at(&self, now_ns: u64) -> f64 {
        let factor = self.change.filter(|(at_ns, _)| now_ns >= *at_ns).map_or(1.0, |(_, by)| by);
        self.rate * factor
    }
}
