//! Experiment files: servers, sweeps, figures and tables. Only parsing and validation; running
//! points and drawing figures happen elsewhere.

mod arch;
mod overload;
pub(crate) mod probe;
mod validation;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::paper::Claim;

pub use overload::{
    BackgroundLoadKind, BackgroundLoadSpec, NeighbourSpec, SpikeSpec, TimelineFigure,
};
pub use probe::ProbeSpec;

/// An experiment: one TOML file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Title in lists and at the head of the page.
    pub title: String,
    /// The question the experiment answers, one sentence.
    pub question: String,
    /// The set-up and its differences from the paper's, as paragraphs separated by empty lines.
    #[serde(default)]
    pub about: String,
    /// The paper it comes from: the key of a file in `experiments/papers`.
    #[serde(default)]
    pub paper: Option<String>,
    /// Kernel settings of both network namespaces, such as `net.ipv4.tcp_syncookies = 0`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, i64>,
    /// The servers under test.
    pub server: Vec<ServerSpec>,
    /// The sweeps to measure.
    pub sweep: Vec<Sweep>,
    /// Figures drawn from the sweeps.
    #[serde(default)]
    pub figure: Vec<Figure>,
    /// Figures drawn over time.
    #[serde(default)]
    pub timeline: Vec<TimelineFigure>,
    /// Tables made from the sweeps.
    #[serde(default)]
    pub table: Vec<Table>,
    /// Tables of a single metric across servers.
    #[serde(default)]
    pub matrix: Vec<Matrix>,
    /// The experiment's own claims: results expected where no paper claims anything.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

impl Experiment {
    /// Parses and validates an experiment file.
    ///
    /// # Errors
    /// Returns one sentence that names the place: invalid TOML or fields, an undefined name, a
    /// number out of range, contradictory settings.
    pub fn parse(text: &str) -> Result<Self, String> {
        validation::texts(text)?;
        let experiment = read(text)?;
        validation::check(&experiment)?;
        Ok(experiment)
    }

    /// Returns the indices of the servers of a sweep: `named` if not empty, else the sweep's own,
    /// else all.
    pub fn servers_of(&self, sweep: &Sweep, named: &[String]) -> Vec<usize> {
        let named = if named.is_empty() { &sweep.servers } else { named };
        if named.is_empty() {
            return (0..self.server.len()).collect();
        }
        named.iter().filter_map(|id| self.server.iter().position(|one| one.id == *id)).collect()
    }
}

impl Sweep {
    /// Returns the index of a value of the sweep, matched to within a billionth.
    pub fn index_of(&self, x: f64) -> Option<usize> {
        self.values.iter().position(|value| (value - x).abs() <= 1e-9 * value.abs().max(1.0))
    }

    /// Returns the measured duration of a point at scale 1, in seconds.
    pub fn duration_s(&self) -> f64 {
        let load_s = self.spike.map_or(self.load.duration_s, |spike| spike.duration_s());
        self.probe.map_or(load_s, |probe| probe.seconds)
    }
}

/// Deserializes TOML. An error is a sentence, with its line number where TOML tells one.
pub(crate) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let says = error.message().trim().replace('\n', ", ");
        let upto = error.span().and_then(|span| text.get(..span.start));
        match upto {
            Some(upto) => format!("line {}: {says}", upto.matches('\n').count() + 1),
            None => says,
        }
    })
}

/// The server program.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `weir serve` of this binary.
    Weir,
    /// nginx(8).
    Nginx,
    /// h2o(1).
    H2o,
    /// lighttpd(8).
    Lighttpd,
    /// haproxy(1): answers requests itself, or proxies a `weir serve` behind it.
    Haproxy,
    /// apache2(8), event MPM.
    Apache,
    /// The bare loop of this source tree: one fixed reply, no parser, no files.
    Bare,
}

impl Kind {
    /// All server programs.
    pub const ALL: [Self; 7] = [
        Self::Weir,
        Self::Nginx,
        Self::H2o,
        Self::Lighttpd,
        Self::Haproxy,
        Self::Apache,
        Self::Bare,
    ];

    /// Returns its name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Nginx => "nginx",
            Self::H2o => "h2o",
            Self::Lighttpd => "lighttpd",
            Self::Haproxy => "haproxy",
            Self::Apache => "apache",
            Self::Bare => "bare",
        }
    }
}

/// A server under test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerSpec {
    /// Name in sweeps, figures and claims.
    pub id: String,
    /// Name in legends.
    pub label: String,
    /// The program.
    pub kind: Kind,
    /// weir: options of `weir serve`, as on a command line. Others: directives inserted into the
    /// rendered configuration at the server-wide level.
    #[serde(default)]
    pub options: Vec<String>,
    /// weir: architecture, as named by `--arch`; defaults to the program's own.
    #[serde(default)]
    pub arch: Option<String>,
    /// weir: options of the architecture, such as `pool=1000`.
    #[serde(default)]
    pub arch_options: Vec<String>,
    /// Listen backlog; defaults to the program's own.
    #[serde(default)]
    pub backlog: Option<u32>,
    /// Processor time burnt per request, in microseconds: weir only; overrides the sweep's.
    #[serde(default)]
    pub burn_us: Option<u32>,
    /// True to compress replies on the fly: nginx, h2o, lighttpd, haproxy, apache only.
    #[serde(default)]
    pub gzip: bool,
    /// Makes the server a proxy of a `weir serve` on the same processors, which burns this many
    /// microseconds per request: nginx, h2o, haproxy only.
    #[serde(default)]
    pub proxy_burn_us: Option<u32>,
    /// Memory limit in MiB, including the page cache of its files; unlimited by default.
    #[serde(default)]
    pub memory_mib: Option<u32>,
    /// Limit on reads per second from the disk that holds its files; unlimited by default.
    #[serde(default)]
    pub disk_reads_per_s: Option<u32>,
    /// Its row in a matrix; defaults to a row of its own, named by its label.
    #[serde(default)]
    pub row: Option<String>,
    /// Its column within that row, which sets it apart from the row's other servers.
    #[serde(default)]
    pub column: String,
}

#[cfg(test)]
impl ServerSpec {
    /// Creates a specification with default settings.
    pub(crate) fn plain(kind: Kind) -> Self {
        let text = format!("id = \"it\"\nlabel = \"it\"\nkind = \"{}\"", kind.name());
        toml::from_str(&text).unwrap()
    }
}

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

/// Default number of connections of the closed loop that measures a capacity.
pub const CAPACITY_CONNECTIONS: u32 = 64;

/// Points to measure: each server at each value, repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sweep {
    /// Name in figures and claims.
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
    #[serde(default)]
    pub reference: Option<String>,
    /// The rate, if `x` is another quantity; without it the loop is closed (`load.closed`).
    #[serde(default)]
    pub rate: Option<f64>,
    /// Connections of the closed loop that measures a capacity: enough to keep the server busy, few
    /// enough that a server with overload control refuses none.
    #[serde(default = "capacity_connections")]
    pub capacity_connections: u32,
    /// Repetitions of each point, at scale 1.
    #[serde(default = "three")]
    pub repetitions: u32,
    /// True to count system calls. Weir counts and times its own; those of other servers are
    /// counted by strace in one additional, unmeasured run of each point.
    #[serde(default)]
    pub calls: bool,
    /// Processor time that weir burns per request, in microseconds.
    #[serde(default)]
    pub burn_us: u32,
    /// True to use points at which the load generator was the limit: for sweeps that measure the
    /// generator, or what a reply costs the server at any rate.
    #[serde(default)]
    pub client_may_limit: bool,
    /// Length in milliseconds of the bins in which the load's outcome is recorded over time.
    #[serde(default)]
    pub timeline_ms: Option<u32>,
    /// Steps the load up and down again; `x` is the rate during the spike.
    #[serde(default)]
    pub spike: Option<SpikeSpec>,
    /// Additional clients alongside the load.
    #[serde(default, rename = "beside")]
    pub background_load: Option<BackgroundLoadSpec>,
    /// A competing process on the server's processors.
    #[serde(default)]
    pub neighbour: Option<NeighbourSpec>,
    /// Measures the event mechanism alone, without a server or a load.
    #[serde(default)]
    pub probe: Option<ProbeSpec>,
    /// The load.
    #[serde(default)]
    pub load: LoadSpec,
}

fn capacity_connections() -> u32 {
    CAPACITY_CONNECTIONS
}

fn three() -> u32 {
    3
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
            arrivals: None,
            mix: Vec::new(),
            options: Vec::new(),
        }
    }
}

/// A figure: metrics of a sweep's servers against its values, one line per server and metric.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// Id in file names, such as `fig-4.12`; with a paper, the paper's own figure.
    pub id: String,
    /// Title of the figure.
    pub title: String,
    /// The sweep it is drawn from.
    pub sweep: String,
    /// Ids of the servers drawn; empty means all of the sweep's.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Names of metrics (`metrics::all`). They share an axis, so they must share a unit.
    pub y: Vec<String>,
    /// True for a logarithmic y axis.
    #[serde(default)]
    pub y_log: bool,
    /// True for a logarithmic x axis.
    #[serde(default)]
    pub x_log: bool,
    /// Note to the reader of the figure.
    #[serde(default)]
    pub note: String,
}

/// A table with a row per server and a column per metric, at one or more values of the sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// Id, such as `table-4.1`.
    pub id: String,
    /// Title of the table.
    pub title: String,
    /// The sweep it is made from.
    pub sweep: String,
    /// Ids of its servers; empty means all of the sweep's.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Names of metrics.
    pub columns: Vec<String>,
    /// Values of the sweep: `last`, `first`, or a number among them.
    #[serde(default = "last")]
    pub at: Vec<At>,
    /// Note to the reader of the table.
    #[serde(default)]
    pub note: String,
}

/// A table of one metric. Servers define its rows and columns; each sweep adds its own columns.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Matrix {
    /// Id.
    pub id: String,
    /// Title of the table.
    pub title: String,
    /// The metric.
    pub metric: String,
    /// Sweeps that supply its cells.
    pub of: Vec<Cells>,
    /// The server whose value in the same sweep and round each value is divided by.
    #[serde(default)]
    pub relative_to: Option<String>,
    /// Note to the reader of the table.
    #[serde(default)]
    pub note: String,
}

/// The columns of a matrix that come from one sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cells {
    /// The sweep.
    pub sweep: String,
    /// Heading above the columns.
    pub label: String,
    /// The value of the sweep to show.
    #[serde(default = "highest")]
    pub at: At,
}

fn highest() -> At {
    At::Named(Position::Last)
}

fn last() -> Vec<At> {
    vec![At::Named(Position::Last)]
}

/// A position along a sweep.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(untagged)]
pub enum At {
    /// A value of the sweep, in the sweep's unit.
    Value(f64),
    /// A named position.
    Named(Position),
}

/// A named position along a sweep.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Position {
    /// The lowest value.
    First,
    /// The highest value.
    Last,
    /// The value with the server's highest median of replies per second.
    Peak,
}
