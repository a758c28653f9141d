//! The configuration of a run: target addresses, arrivals, workload, duration and limits. Plain
//! values without behaviour.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::schedule::Arrivals;
use crate::session::{Requests, Source};

/// The configuration of a run. Times are nanoseconds; for an optional limit, 0 means none.
#[derive(Clone)]
pub struct Config {
    /// Target addresses. Connections use them round-robin.
    pub addresses: Vec<SocketAddr>,
    /// The pace of arrivals: open or closed loop.
    pub pace: Pace,
    /// Duration of the arrivals; `u64::MAX / 4` for a run that ends with its sessions.
    pub duration_ns: u64,
    /// Maximum number of arrivals; 0 is no limit.
    pub arrivals_max: u64,
    /// Warm-up at the start of the duration, which is not measured.
    pub warmup_ns: u64,
    /// The sessions that arrivals carry out.
    pub workload: Arc<dyn Workload>,
    /// The bytes of the requests that sessions name.
    pub requests: Arc<Requests>,
    /// Number of persistent connections shared by all requests, over all threads; 0: each arrival
    /// opens its own. A request takes a free connection, or waits for one.
    pub shared_conns: usize,
    /// True if connections outlive their sessions: the next session of a shared or closed-loop
    /// connection continues on the same socket.
    pub keep_open: bool,
    /// Number of connections that stay idle; each is reopened when the server closes it.
    pub idle: usize,
    /// Number of connections that repeatedly send a request slowly.
    pub slow_senders: usize,
    /// Number of connections that repeatedly read a reply slowly.
    pub slow_readers: usize,
    /// Rate of the slow senders and readers, bytes per second.
    pub slow_rate: u64,
    /// Send rate of the load's own requests, bytes per second. `Some(0)`: connect, but never send;
    /// `None`: send at full speed.
    pub send_rate: Option<u64>,
    /// Rate at which idle and slow connections are opened, connections per second.
    pub background_rate: f64,
    /// The longest wait without progress: on connect, on send, for the first and for each further
    /// byte of a reply.
    pub timeout_ns: u64,
    /// The longest time from the planned start to the last byte; 0 is no limit.
    pub deadline_ns: u64,
    /// Source addresses, used round-robin; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// True if connections are closed by a reset, which leaves no TIME_WAIT on either side.
    pub reset: bool,
    /// Maximum number of open connections, over all threads; 0: as many as there are descriptors.
    pub conns_max: usize,
    /// Number of driving threads.
    pub threads: usize,
    /// Processors to which the threads are pinned, round-robin; empty: not pinned.
    pub cpus: Vec<usize>,
    /// Seed of all random draws.
    pub seed: u64,
    /// True if each request's six clocks are passed to [`Watch::requests`].
    pub each: bool,
}

impl Config {
    /// Returns the destination and source of connection number `turn`. Successive numbers go
    /// through all pairs, so that every port of every source is usable towards every destination.
    pub(crate) fn pair(&self, turn: usize) -> Option<(SocketAddr, Option<IpAddr>)> {
        let destinations = self.addresses.len().max(1);
        let address = self.addresses.get(turn % destinations)?;
        let source = self.sources.get(turn / destinations % self.sources.len().max(1));
        Some((*address, source.copied()))
    }
}

/// The pace of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Open loop: arrivals follow the schedule, whatever the server does.
    Open(Arrivals),
    /// Closed loop: this many connections, each of which starts its next session when the last one
    /// ends.
    Closed(usize),
}

/// Creates the session sources, one per thread.
pub trait Workload: Send + Sync {
    /// Creates a source of sessions that takes its random draws from `seed`. All threads get the
    /// same seed: what an arrival does depends on its number alone, not on the thread that runs it.
    fn source(&self, seed: u64) -> Box<dyn Source>;
}

/// A completed request, for consumers that want each one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its six clocks.
    pub clocks: crate::measure::Clocks,
    /// Its number in the request table.
    pub request: crate::session::RequestId,
    /// The reply's status, or the kind of error.
    pub end: Result<u16, crate::measure::ErrorKind>,
}

/// Observes a run in progress; called from the thread that called [`crate::run`].
pub trait Watch {
    /// Receives a second that all threads have completed.
    fn second(&mut self, interval: &crate::measure::Interval);

    /// Receives completed requests, in no particular order, if [`Config::each`] is set.
    fn requests(&mut self, samples: &[Sample]);

    /// Returns whether the run is to stop now; called several times per second.
    fn stop(&mut self) -> bool {
        false
    }
}
