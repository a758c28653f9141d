//! Loads, as an experiment file describes them.

use serde::{Deserialize, Serialize};

/// The load generator.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// `weir load` of this binary.
    #[default]
    Weir,
    /// httperf(1): open loop.
    Httperf,
    /// wrk(1): closed loop.
    Wrk,
    /// ab(1): closed loop.
    Ab,
}

impl Generator {
    /// All load generators.
    pub const ALL: [Self; 4] = [Self::Weir, Self::Httperf, Self::Wrk, Self::Ab];
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
    pub duration_s: f64,
    /// Warm-up in seconds before the measured part. Generators other than `weir load` are run for
    /// it once before.
    pub warmup_s: f64,
    /// Longest time without progress, in seconds.
    pub timeout_s: f64,
    /// Idle connections alongside it.
    pub idle: u32,
    /// Persistent connections that share the rate.
    pub conns: Option<u32>,
    /// Connections of a closed loop.
    pub closed: Option<u32>,
    /// Requests per connection.
    pub requests_per_conn: Option<u32>,
    /// True to keep the connections of a closed loop open for its whole length.
    pub keep_alive: bool,
    /// Arrival process: constant, poisson or uniform.
    pub arrivals: Option<String>,
    /// Classes of cheap and expensive requests, drawn by their shares: weir servers and `weir load`
    /// only, with a workload of one file. Replaces the sweep's `burn-us`.
    pub mix: Vec<RequestClass>,
    /// Additional options of `weir load` or httperf.
    pub options: Vec<String>,
}

impl LoadSpec {
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
    pub share: f64,
    /// Processor time that weir burns per request, in microseconds.
    pub burn_us: u32,
}

impl Default for LoadSpec {
    fn default() -> Self {
        Self {
            generator: Generator::Weir,
            workload: "one-packet".to_owned(),
            duration_s: 3.0,
            warmup_s: 1.0,
            timeout_s: 1.0,
            idle: 0,
            conns: None,
            closed: None,
            requests_per_conn: None,
            keep_alive: false,
            arrivals: None,
            mix: Vec::new(),
            options: Vec::new(),
        }
    }
}
