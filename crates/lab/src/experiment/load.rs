//! Loads, as an experiment file describes them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use weir_packet::path::PathLaw;

use super::units::{BurnUs, Count, Fraction, Seconds, SecondsOrNone};

/// The load generator.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// `weir load` of this binary, on the kernel's TCP.
    #[default]
    Weir,
    /// `weir load` of this binary with a TCP of its own: in namespaces only.
    Packet,
    /// httperf(1): open loop.
    Httperf,
    /// wrk(1): closed loop.
    Wrk,
    /// ab(1): closed loop.
    Ab,
    /// h2load(1), in HTTP/1.1: closed loop.
    H2load,
}

impl Generator {
    /// All load generators.
    pub const ALL: [Self; 6] =
        [Self::Weir, Self::Packet, Self::Httperf, Self::Wrk, Self::Ab, Self::H2load];

    /// Returns whether it makes closed loops alone.
    pub fn is_closed_loop(self) -> bool {
        matches!(self, Self::Wrk | Self::Ab | Self::H2load)
    }

    /// Returns whether it loads servers with TLS.
    pub fn speaks_tls(self) -> bool {
        self.is_weir() || matches!(self, Self::Wrk | Self::H2load)
    }

    /// Returns whether it is `weir load`, with either TCP.
    pub fn is_weir(self) -> bool {
        matches!(self, Self::Weir | Self::Packet)
    }
}

/// Trigger of the sessions of a load: a schedule, or the end of another.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(from = "Count")]
pub enum Pace {
    /// A schedule: an open loop.
    #[default]
    Open,
    /// The end of the one before, on each of this many connections: a closed loop.
    Closed(Count),
}

impl From<Count> for Pace {
    fn from(connections: Count) -> Self {
        Self::Closed(connections)
    }
}

impl Pace {
    /// Returns the connections of a closed loop.
    pub fn closed(self) -> Option<u32> {
        match self {
            Self::Open => None,
            Self::Closed(connections) => Some(*connections),
        }
    }
}

/// An arrival process.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Evenly spaced.
    Constant,
    /// Exponentially distributed gaps.
    Poisson,
    /// Uniformly distributed gaps.
    Uniform,
}

impl Arrivals {
    /// Returns its name in experiment files and for `weir load`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
            Self::Uniform => "uniform",
        }
    }
}

/// A load, except for the quantity varied by the sweep.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LoadSpec {
    /// The load generator.
    pub generator: Generator,
    /// A workload of `weir load files`; `page-40k`, a page of 40 KiB of text; or `file-KIBk`, a
    /// file of a size.
    pub workload: String,
    /// Measured duration in seconds, at scale 1; not given with a spike, which has its own.
    pub duration_s: Seconds,
    /// Warm-up in seconds before the measured part. Generators other than `weir load` are run for
    /// it once before.
    pub warmup_s: SecondsOrNone,
    /// Time in seconds for which the load goes on after the measured part: of `weir load` alone.
    pub cooldown_s: SecondsOrNone,
    /// Longest time without progress, in seconds.
    pub timeout_s: Seconds,
    /// Idle connections alongside it.
    pub idle: u32,
    /// Persistent connections that share the rate.
    pub conns: Option<Count>,
    /// Its loop: closed if `closed` gives a number of connections, else open.
    #[serde(rename = "closed")]
    pub pace: Pace,
    /// Requests per connection.
    pub requests_per_conn: Option<Count>,
    /// True to keep the connections of a closed loop open for its whole length.
    pub keep_alive: bool,
    /// Arrival process of an open loop; constant by default.
    pub arrivals: Option<Arrivals>,
    /// Classes of cheap and expensive requests, drawn by their shares: weir servers and `weir load`
    /// only, with a workload of one file. Replaces the sweep's `burn-us`.
    pub mix: Vec<RequestClass>,
    /// Paths of the clients, as `weir load --path` takes them: of generator packet alone.
    #[serde(deserialize_with = "path_law")]
    pub path: Option<PathLaw>,
    /// Longest time that received packets wait to be handled together, microseconds: of generator
    /// packet alone. Its packets are then left to the processors that send them.
    pub coalesce_us: Option<Count>,
    /// Additional options of `weir load`, httperf or h2load.
    pub options: Vec<String>,
}

/// Reads a law of paths.
fn path_law<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathLaw>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

impl LoadSpec {
    /// Returns whether its generator makes a number of requests and ends with the last of them,
    /// however long that takes: h2load does with a connection for each.
    pub fn is_counted(&self) -> bool {
        self.generator == Generator::H2load && !self.keep_alive && self.requests_per_conn.is_none()
    }

    /// Returns the size of the specweb99 files in MiB, if the options set it.
    pub fn mb(&self) -> Option<&str> {
        let mut words = self.options.iter().map(String::as_str);
        words.find_map(|word| word.strip_prefix("--mb")).and_then(|rest| match rest {
            "" => words.next(),
            _ => rest.strip_prefix('='),
        })
    }
}

/// A class of requests in a mix.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RequestClass {
    /// Share of the requests in this class, 0 to 1.
    pub share: Fraction,
    /// Processor time that weir burns per request, in microseconds.
    pub burn_us: BurnUs,
}

impl Default for LoadSpec {
    fn default() -> Self {
        Self {
            generator: Generator::Weir,
            workload: "one-packet".to_owned(),
            duration_s: Seconds::THREE,
            warmup_s: SecondsOrNone::ONE,
            cooldown_s: SecondsOrNone::NONE,
            timeout_s: Seconds::ONE,
            idle: 0,
            conns: None,
            pace: Pace::Open,
            requests_per_conn: None,
            keep_alive: false,
            arrivals: None,
            mix: Vec::new(),
            path: None,
            coalesce_us: None,
            options: Vec::new(),
        }
    }
}

#[cfg(test)]
impl RequestClass {
    /// Creates a class; fails if a number is out of its range.
    pub(crate) fn of(share: f64, burn_us: u32) -> Self {
        let (share, burn_us) = (Fraction::try_from(share), BurnUs::try_from(burn_us));
        Self { share: share.unwrap(), burn_us: burn_us.unwrap() }
    }
}
