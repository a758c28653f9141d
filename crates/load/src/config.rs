//! What a run is told: whom to load, when, with what, for how long, within which limits. Plain
//! values; nothing here does anything.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::schedule::Arrivals;
use crate::session::{Requests, Source};

/// A run. Times are nanoseconds, and 0 is no limit where one is optional.
#[derive(Clone)]
pub struct Config {
    /// Whom to load. With several addresses, connections take them in turn.
    pub addresses: Vec<SocketAddr>,
    /// When arrivals happen.
    pub pace: Pace,
    /// How long arrivals go on; a quarter of all there is, `u64::MAX / 4`, for a run that ends with
    /// its sessions.
    pub duration_ns: u64,
    /// Arrivals at most; 0 is no limit.
    pub arrivals_max: u64,
    /// How long, of the duration's beginning, nothing is measured.
    pub warmup_ns: u64,
    /// What each arrival does.
    pub workload: Arc<dyn Workload>,
    /// The bytes of the requests that sessions name.
    pub requests: Arc<Requests>,
    /// Persistent connections that all requests share, over all threads; 0: each arrival opens its
    /// own. A request takes a connection that is free, or waits for one.
    pub shared_conns: usize,
    /// Connections outlive their sessions: the next session of a shared or closed-loop connection
    /// goes on where the last one ended.
    pub keep_open: bool,
    /// Connections opened and never used, and opened again when the server closes them.
    pub idle: usize,
    /// Connections that send their request slowly, over and over.
    pub slow_senders: usize,
    /// Connections that read their reply slowly, over and over.
    pub slow_readers: usize,
    /// How slowly, bytes a second.
    pub slow_rate: u64,
    /// How fast the load's own requests are sent, bytes a second; 0: never, the connection is there
    /// and says nothing; none: at once.
    pub send_rate: Option<u64>,
    /// How many idle and slow connections are opened a second.
    pub background_rate: f64,
    /// The longest without progress: connect, send, first and every further byte of a reply.
    pub timeout_ns: u64,
    /// The longest from the planned start to the last byte; 0 is no limit.
    pub deadline_ns: u64,
    /// Source addresses, taken in turn; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Connections are ended by a reset, which leaves no TIME_WAIT on either side.
    pub reset: bool,
    /// Connections open at once, over all threads, at most; 0: as many as there are descriptors.
    pub conns_max: usize,
    /// Driving threads.
    pub threads: usize,
    /// Processors the threads are pinned to, in turn; empty: not pinned.
    pub cpus: Vec<usize>,
    /// What all chance is drawn from.
    pub seed: u64,
    /// Whether each request's six clocks are handed to [`Watch::requests`].
    pub each: bool,
}

impl Config {
    /// The destination and the source of connection number `turn`. One by one they go through all
    /// pairs, so that every port of every source is of use towards every destination.
    pub(crate) fn pair(&self, turn: usize) -> Option<(SocketAddr, Option<IpAddr>)> {
        let destinations = self.addresses.len().max(1);
        let address = self.addresses.get(turn % destinations)?;
        let source = self.sources.get(turn / destinations % self.sources.len().max(1));
        Some((*address, source.copied()))
    }
}

/// When arrivals happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Open loop: as planned, whatever the server does.
    Open(Arrivals),
    /// Closed loop: this many connections, each starting its next session when the last is over.
    Closed(usize),
}

/// Makes the sources of sessions, one a thread.
pub trait Workload: Send + Sync {
    /// A source of sessions that draws its chance from `seed`. All threads get the same seed, and
    /// what an arrival does depends on its number alone, not on the thread that runs it.
    fn source(&self, seed: u64) -> Box<dyn Source>;
}

/// One request's end, for those who want each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its clocks.
    pub clocks: crate::measure::Clocks,
    /// Which request of the table.
    pub request: crate::session::RequestId,
    /// The reply's status, or what went wrong.
    pub end: Result<u16, crate::measure::ErrorKind>,
}

/// Looks on while a run goes on; called from the thread that called [`crate::run`].
pub trait Watch {
    /// A second has passed on all threads.
    fn second(&mut self, interval: &crate::measure::Interval);

    /// Requests that ended, in no order, when [`Config::each`] is set.
    fn requests(&mut self, samples: &[Sample]);

    /// Whether the run is to stop now; asked several times a second.
    fn stop(&mut self) -> bool {
        false
    }
}
