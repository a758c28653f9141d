//! What an experiment's file says: servers, sweeps, figures, tables. Reading and judging text only;
//! nothing here knows how a point is run or drawn.

mod arch;
mod overload;
pub(crate) mod probe;
mod valid;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::paper::Claim;

pub use overload::{BesideKind, BesideSpec, NeighbourSpec, SpikeSpec, TimelineFigure};
pub use probe::ProbeSpec;

/// An experiment: one TOML file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// What it is called in a list and at the head of its page.
    pub title: String,
    /// The question it answers, one sentence.
    pub question: String,
    /// The set-up and what differs from the paper's, in paragraphs parted by empty lines.
    #[serde(default)]
    pub about: String,
    /// The paper it is from: the key of a file of `experiments/papers`.
    #[serde(default)]
    pub paper: Option<String>,
    /// Settings of both network namespaces, such as `net.ipv4.tcp_syncookies = 0`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, i64>,
    /// The servers under test.
    pub server: Vec<ServerSpec>,
    /// What is measured.
    pub sweep: Vec<Sweep>,
    /// What is drawn from it.
    #[serde(default)]
    pub figure: Vec<Figure>,
    /// What is drawn of it along time.
    #[serde(default)]
    pub timeline: Vec<TimelineFigure>,
    /// What is tabulated from it.
    #[serde(default)]
    pub table: Vec<Table>,
    /// One metric of many servers at a glance.
    #[serde(default)]
    pub matrix: Vec<Matrix>,
    /// What is expected of it, where no paper claims anything.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

impl Experiment {
    /// Reads an experiment's file and judges it.
    ///
    /// # Errors
    /// One sentence that names the place: what TOML or the fields do not allow, a name that nothing
    /// has, a number out of range, settings that contradict each other.
    pub fn parse(text: &str) -> Result<Self, String> {
        valid::texts(text)?;
        let experiment = read(text)?;
        valid::check(&experiment)?;
        Ok(experiment)
    }

    /// The indices of the servers of a sweep: those `named`, else the sweep's, else all.
    pub fn servers_of(&self, sweep: &Sweep, named: &[String]) -> Vec<usize> {
        let named = if named.is_empty() { &sweep.servers } else { named };
        if named.is_empty() {
            return (0..self.server.len()).collect();
        }
        named.iter().filter_map(|id| self.server.iter().position(|one| one.id == *id)).collect()
    }
}

impl Sweep {
    /// The index of a value of the sweep, to a billionth.
    pub fn index_of(&self, x: f64) -> Option<usize> {
        self.values.iter().position(|value| (value - x).abs() <= 1e-9 * value.abs().max(1.0))
    }

    /// How long a point is measured, seconds, at scale 1.
    pub fn duration_s(&self) -> f64 {
        let load_s = self.spike.map_or(self.load.duration_s, |spike| spike.duration_s());
        self.probe.map_or(load_s, |probe| probe.seconds)
    }
}

/// Reads TOML; an error is a line number and a sentence.
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

/// Which program serves.
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
    /// haproxy(1): answers by itself, or passes on what a `weir serve` behind it says.
    Haproxy,
    /// apache2(8), event MPM.
    Apache,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Weir, Self::Nginx, Self::H2o, Self::Lighttpd, Self::Haproxy, Self::Apache];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Nginx => "nginx",
            Self::H2o => "h2o",
            Self::Lighttpd => "lighttpd",
            Self::Haproxy => "haproxy",
            Self::Apache => "apache",
        }
    }
}

/// A server under test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerSpec {
    /// Its name in sweeps, figures and claims.
    pub id: String,
    /// Its name in legends.
    pub label: String,
    /// The program.
    pub kind: Kind,
    /// weir: options of `weir serve`, as on a command line. Others: directives put into the
    /// rendered configuration, at the place of those about the whole server.
    #[serde(default)]
    pub options: Vec<String>,
    /// weir: its architecture, by the name that `--arch` has for it; by default the program's.
    #[serde(default)]
    pub arch: Option<String>,
    /// weir: what is set about that, as `pool=1000`.
    #[serde(default)]
    pub arch_options: Vec<String>,
    /// The listen backlog; by default the program's own.
    #[serde(default)]
    pub backlog: Option<u32>,
    /// Microseconds of processor time burnt for each request: weir only; wins over the sweep's.
    #[serde(default)]
    pub burn_us: Option<u32>,
    /// Whether replies are compressed on the fly: nginx, h2o, lighttpd, haproxy, apache only.
    #[serde(default)]
    pub gzip: bool,
    /// Makes it a proxy of a `weir serve` on the same processors, which burns so many microseconds
    /// for each request: nginx, h2o, haproxy only.
    #[serde(default)]
    pub proxy_burn_us: Option<u32>,
    /// Memory it may have, MiB, the page cache of its files included; by default all there is.
    #[serde(default)]
    pub memory_mib: Option<u32>,
    /// Reads a second that it gets of the disk its files are on; by default all there are.
    #[serde(default)]
    pub disk_reads_per_s: Option<u32>,
    /// The row it is in in a matrix; by default one of its own, called as it is.
    #[serde(default)]
    pub row: Option<String>,
    /// What distinguishes it there from others of its row.
    #[serde(default)]
    pub column: String,
}

#[cfg(test)]
impl ServerSpec {
    /// One that is told nothing.
    pub(crate) fn plain(kind: Kind) -> Self {
        let text = format!("id = \"it\"\nlabel = \"it\"\nkind = \"{}\"", kind.name());
        toml::from_str(&text).unwrap()
    }
}

/// What varies along a sweep.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Sessions begun a second.
    Rate,
    /// Idle connections beside the load.
    Idle,
    /// Persistent connections that share the rate.
    Conns,
    /// Clients beside the load that begin a second.
    Beside,
}

/// What a rate is a number of.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum RateUnit {
    /// Sessions a second.
    #[default]
    PerSecond,
    /// Multiples of the capacity of the sweep's `reference` server, measured first: one axis for
    /// all.
    Reference,
    /// Multiples of each server's own capacity, measured first.
    Own,
}

/// Who makes the load.
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
}

impl Generator {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Weir, Self::Httperf, Self::Wrk];
}

/// Connections of the closed loop that measures a capacity, when a sweep names no other number.
pub const CAPACITY_CONNECTIONS: u32 = 64;

/// Points to measure: servers times values, repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sweep {
    /// Its name in figures and claims.
    pub id: String,
    /// Ids of its servers; none means all.
    #[serde(default)]
    pub servers: Vec<String>,
    /// What varies.
    pub x: Axis,
    /// Its values, ascending.
    pub values: Vec<f64>,
    /// What rates are numbers of.
    #[serde(default)]
    pub rate_unit: RateUnit,
    /// The server whose capacity is 1, with `rate-unit = "reference"`.
    #[serde(default)]
    pub reference: Option<String>,
    /// The rate, where `x` is something else; without it the loop is closed (`closed`).
    #[serde(default)]
    pub rate: Option<f64>,
    /// Connections of the closed loop that measures a capacity: enough to keep the server busy, and
    /// not so many that one with an overload control refuses some.
    #[serde(default = "capacity_connections")]
    pub capacity_connections: u32,
    /// How often each point is measured, at scale 1.
    #[serde(default = "three")]
    pub repetitions: u32,
    /// Whether weir counts and times its system calls, and others' are counted by strace in one
    /// more, unmeasured, run of each point.
    #[serde(default)]
    pub calls: bool,
    /// Microseconds of processor time weir burns for each request.
    #[serde(default)]
    pub burn_us: u32,
    /// The length of the bins, milliseconds, in which what came of the load is kept along time.
    #[serde(default)]
    pub timeline_ms: Option<u32>,
    /// Steps the load up and down again: `x` is the rate between.
    #[serde(default)]
    pub spike: Option<SpikeSpec>,
    /// Clients beside the load.
    #[serde(default)]
    pub beside: Option<BesideSpec>,
    /// A neighbour on the server's processors.
    #[serde(default)]
    pub neighbour: Option<NeighbourSpec>,
    /// Instead of a server and a load, the event mechanism by itself.
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

/// A load, but for what the sweep varies.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LoadSpec {
    /// Who makes it.
    pub generator: Generator,
    /// A workload of `weir load files`, or `page-40k`, a page of 40 KiB of text.
    pub workload: String,
    /// How long is measured, seconds, at scale 1; with a spike that says so itself.
    pub duration_s: f64,
    /// How long, before that, is not.
    pub warmup_s: f64,
    /// The longest without progress, seconds.
    pub timeout_s: f64,
    /// Idle connections beside it.
    pub idle: u32,
    /// Persistent connections that share the rate.
    pub conns: Option<u32>,
    /// Connections of a closed loop.
    pub closed: Option<u32>,
    /// Requests of a connection.
    pub requests_per_conn: Option<u32>,
    /// The law of arrivals: constant, poisson, uniform.
    pub arrivals: Option<String>,
    /// Classes of requests, some cheap and some dear, drawn by their shares: weir servers and `weir
    /// load` only, with a workload of one file. Takes the place of the sweep's `burn-us`.
    pub mix: Vec<Class>,
    /// More options of `weir load`, httperf or wrk.
    pub options: Vec<String>,
}

impl LoadSpec {
    /// The size of the files of specweb99, MiB, where the options say.
    pub fn mb(&self) -> Option<&str> {
        let mut words = self.options.iter().map(String::as_str);
        words.find_map(|word| word.strip_prefix("--mb")).and_then(|rest| match rest {
            "" => words.next(),
            _ => rest.strip_prefix('='),
        })
    }
}

/// A class of requests of a mix.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Class {
    /// Which share of the requests is of it, 0 to 1.
    pub share: f64,
    /// Microseconds of processor time that weir burns for each.
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

/// A figure: metrics of a sweep's servers along its values. A line for each server and metric.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// Its id in file names: `fig-4.12`. With a paper, the paper's own figure.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The sweep it is drawn from.
    pub sweep: String,
    /// Ids of the servers drawn; none means the sweep's.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Names of metrics (`metrics::all`). They share an axis, so they share a unit.
    pub y: Vec<String>,
    /// Whether the axis of `y` is logarithmic.
    #[serde(default)]
    pub y_log: bool,
    /// Whether the axis of x is logarithmic.
    #[serde(default)]
    pub x_log: bool,
    /// What a reader should know when looking at it.
    #[serde(default)]
    pub note: String,
}

/// A table: a row a server, a column a metric, at one or more values of the sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// Its id, such as `table-4.1`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The sweep it is made from.
    pub sweep: String,
    /// Ids of its servers; none means the sweep's.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Names of metrics.
    pub columns: Vec<String>,
    /// Which values of the sweep: `last`, `first`, or a number among them.
    #[serde(default = "last")]
    pub at: Vec<At>,
    /// What a reader should know when looking at it.
    #[serde(default)]
    pub note: String,
}

/// A table of one metric: rows and columns are the servers' own, and each sweep has its columns.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Matrix {
    /// Its id.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The metric.
    pub metric: String,
    /// Where its cells are from.
    pub of: Vec<Cells>,
    /// What a reader should know when looking at it.
    #[serde(default)]
    pub note: String,
}

/// Columns of a matrix.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cells {
    /// The sweep.
    pub sweep: String,
    /// What it is called above its columns.
    pub label: String,
    /// Which value of the sweep.
    #[serde(default = "highest")]
    pub at: At,
}

fn highest() -> At {
    At::Named(Place::Last)
}

fn last() -> Vec<At> {
    vec![At::Named(Place::Last)]
}

/// A place along a sweep.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(untagged)]
pub enum At {
    /// A value of the sweep, in the sweep's unit.
    Value(f64),
    /// A named one.
    Named(Place),
}

/// A place that is known by name.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The lowest value.
    First,
    /// The highest value.
    Last,
    /// Where the server's median of replies a second is highest.
    Peak,
}
