//! A step with everything worked out that its server and its load must be told.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::experiment::{ServerSpec, Sweep};
use crate::plan::{Spike, Step};

/// Where on a sweep, against which server, with what load.
pub(super) struct Place<'a> {
    pub step: &'a Step,
    pub sweep: &'a Sweep,
    pub server: &'a ServerSpec,
    /// The document root.
    pub root: PathBuf,
    pub address: SocketAddr,
    /// Sessions a second; none for a closed loop.
    pub rate: Option<f64>,
    pub spike: Option<Spike>,
    pub idle: u32,
    pub conns: Option<u32>,
    /// What stands before the workload's paths.
    pub prefix: String,
    pub seed: u64,
}

impl Place<'_> {
    /// How long after what is measured the load may still be busy: its last requests' timeouts,
    /// one after the other on a connection, and closing what it holds.
    pub(super) fn patience(&self) -> Duration {
        let hold_s = self.sweep.beside.as_ref().and_then(|beside| beside.hold_s).unwrap_or(0.0);
        Duration::from_secs_f64(20.0 * self.sweep.load.timeout_s.max(1.0) + hold_s + 20.0)
    }
}
