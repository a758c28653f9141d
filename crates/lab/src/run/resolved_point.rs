//! A step with all parameters resolved for its server and its load.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::environment::{Environment, Side};
use crate::experiment::{ServerSpec, Sweep};
use crate::generators::{Replay, Spike};
use crate::plan::{Disturbance, Step};

/// The place on a sweep, the server and the load.
pub(super) struct ResolvedPoint<'a> {
    pub environment: &'a dyn Environment,
    /// Set when the run is to end.
    pub stop: &'a AtomicBool,
    pub step: &'a Step,
    pub sweep: &'a Sweep,
    pub server: &'a ServerSpec,
    /// The document root.
    pub root: PathBuf,
    pub address: SocketAddr,
    /// Sessions per second; `None` for a closed loop.
    pub rate: Option<f64>,
    pub spike: Option<Spike>,
    pub disturbance: Option<Disturbance>,
    /// The log to replay, if the load is a day.
    pub replay: Option<Replay>,
    pub idle: u32,
    pub conns: Option<u32>,
    /// Prefix of the workload's paths.
    pub prefix: String,
    pub seed: u64,
    /// True to count the SYNs that reach the server's link.
    pub counts_syns: bool,
}

/// Longest run of a load that makes a number of requests, as a multiple of its window, for each
/// processor of the client, on which it has a thread at most. A thread has 40,000 of them for each
/// second of the window at most, for which a server has time that answers 1000/s.
const COUNTED_RUN_MAX: f64 = 40.0;

impl ResolvedPoint<'_> {
    /// Returns the time for which the load may stay busy after the measured window: the timeouts of
    /// its last requests, in sequence on a connection, and closing the connections it holds. One
    /// that makes a number of requests makes more than fit into the window, and ends when it has.
    pub(super) fn patience(&self) -> Duration {
        let load = &self.sweep.load;
        let threads_max = self.environment.cpus(Side::Client).len().max(1) as f64;
        let counted = if load.is_counted() { COUNTED_RUN_MAX * threads_max } else { 0.0 };
        let hold_s = self.sweep.background_load.as_ref().and_then(|spec| spec.hold_s);
        let hold_s = hold_s.map_or(0.0, |hold_s| *hold_s);
        let ends_s = 20.0 * load.timeout_s.max(1.0) + hold_s + 20.0;
        Duration::from_secs_f64(ends_s + counted * self.step.duration_s)
    }
}
