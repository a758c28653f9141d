//! Sweeps of an experiment file: the points to measure.

use serde::{Deserialize, Serialize};

use super::day::DaySpec;
use super::load::LoadSpec;
use super::overload::{BackgroundLoadSpec, NeighbourSpec, SpikeSpec};
use super::precision::Precision;
use super::probe::ProbeSpec;
use super::units::{Bounded, BurnUs, Count, Rate, id};
use super::upstream::{DisturbanceSpec, UpstreamSpec};

/// The quantity varied by a sweep.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Sessions started per second.
    Rate,
    /// Idle connections alongside the load.
    Idle,
    /// Persistent connections that share the rate.
    Conns,
    /// Additional clients started per second alongside the load.
    #[serde(rename = "beside")]
    BackgroundLoad,
}

/// The unit of rates.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum RateUnit {
    /// Sessions per second.
    #[default]
    PerSecond,
    /// Multiples of the capacity of the sweep's `reference` server, measured first: one axis for
    /// all servers.
    Reference,
    /// Multiples of each server's own capacity, measured first.
    Own,
}

/// Default number of connections of the closed loop that measures a capacity.
pub const CAPACITY_CONNECTIONS: u32 = 64;

/// Points to measure: each server at each value, repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sweep {
    /// Name in figures and claims.
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// Ids of its servers; empty means all.
    #[serde(default)]
    pub servers: Vec<String>,
    /// The varied quantity.
    pub x: Axis,
    /// Values of that quantity, ascending.
    pub values: Vec<f64>,
    /// The unit of rates.
    #[serde(default)]
    pub rate_unit: RateUnit,
    /// The server whose capacity is 1, with `rate-unit = "reference"`.
    pub reference: Option<String>,
    /// The rate, if `x` is another quantity; without it the loop is closed (`load.closed`).
    pub rate: Option<Rate>,
    /// Connections of the closed loop that measures a capacity: enough to keep the server busy, few
    /// enough that a server with overload control refuses none.
    #[serde(default = "capacity_connections")]
    pub capacity_connections: Bounded<1, 1024>,
    /// Repetitions of each point, at scale 1.
    #[serde(default = "three")]
    pub repetitions: Count,
    /// The precision wanted: after the repetitions, further rounds go on until it is reached.
    pub precision: Option<Precision>,
    /// True to count system calls. Weir counts and times its own; those of other servers are
    /// counted by strace in one additional, unmeasured run of each point.
    #[serde(default)]
    pub calls: bool,
    /// Processor time that weir burns per request, in microseconds.
    #[serde(default = "nothing")]
    pub burn_us: BurnUs,
    /// True to use points at which the load generator was the limit: for sweeps that measure the
    /// generator, or what a reply costs the server at any rate.
    #[serde(default)]
    pub client_may_limit: bool,
    /// Length in milliseconds of the bins in which the load's outcome is recorded over time. Bins
    /// of only a few timer ticks mean nothing, and longer ones hide all detail.
    pub timeline_ms: Option<Bounded<10, 10_000>>,
    /// Steps the load up and down again; `x` is the rate during the spike.
    pub spike: Option<SpikeSpec>,
    /// Replays the log of a day in each point, and samples it; `x` is its mean rate.
    pub day: Option<DaySpec>,
    /// Additional clients alongside the load.
    #[serde(rename = "beside")]
    pub background_load: Option<BackgroundLoadSpec>,
    /// The application that every server of the sweep is a proxy of.
    pub upstream: Option<UpstreamSpec>,
    /// What happens to it in each point.
    pub disturbance: Option<DisturbanceSpec>,
    /// A competing process on the server's processors.
    pub neighbour: Option<NeighbourSpec>,
    /// Measures the event mechanism alone, without a server or a load.
    pub probe: Option<ProbeSpec>,
    /// The load.
    #[serde(default)]
    pub load: LoadSpec,
}

impl Sweep {
    /// Returns the index of a value of the sweep, matched to within a billionth.
    pub fn index_of(&self, x: f64) -> Option<usize> {
        self.values.iter().position(|value| (value - x).abs() <= 1e-9 * value.abs().max(1.0))
    }

    /// Returns the measured duration of a point at scale 1, in seconds.
    pub fn duration_s(&self) -> f64 {
        let load_s = self.spike.map_or(*self.load.duration_s, |spike| spike.duration_s());
        self.probe.map_or(load_s, |probe| *probe.seconds)
    }
}

fn capacity_connections() -> Bounded<1, 1024> {
    Bounded::of::<CAPACITY_CONNECTIONS>()
}

fn three() -> Count {
    Count::of::<3>()
}

fn nothing() -> BurnUs {
    BurnUs::of::<0>()
}
