//! Experiments as their files describe them: servers, sweeps, loads, figures and tables. Plain
//! types; validation, running points and drawing figures happen elsewhere.

mod claim;
mod day;
mod figure;
pub(crate) mod file;
mod load;
mod overload;
mod precision;
mod probe;
mod server;
mod sweep;
mod units;
mod upstream;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use claim::{Claim, Quantity, Sum};
pub use day::{CpuMode, DaySpec, ScatterFigure};
pub use figure::{At, Cells, Figure, Matrix, Position, Table, TimelineFigure};
pub use load::{Arrivals, Generator, LoadSpec, Pace, RequestClass};
pub use overload::{BackgroundLoadKind, BackgroundLoadSpec, NeighbourSpec, SpikeSpec};
pub use precision::{MAX_ROUNDS, PRECISION_ROUNDS_MIN, Precision};
pub use probe::ProbeSpec;
pub(crate) use probe::{has_mechanism, mechanism_options};
pub use server::{
    BareSettings, EnvoySettings, FileServerSettings, H2oSettings, HaproxySettings, Kind, Program,
    ProxySettings, ServerSpec, SinkSettings, TlsKey, WeirSettings,
};
pub use sweep::{Axis, CAPACITY_CONNECTIONS, RateUnit, Sweep};
pub use units::{
    Bounded, BurnUs, Count, Fraction, Percent, ProxyBurnUs, Rate, Seconds, SecondsOrNone,
};
pub use upstream::{DisturbanceKind, DisturbanceSpec, ServiceLaw, UpstreamKind, UpstreamSpec};

/// An experiment: one TOML file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Title in lists and at the head of the page.
    #[serde(deserialize_with = "units::filled")]
    pub title: String,
    /// The question the experiment answers, one sentence.
    pub question: String,
    /// The set-up and its differences from the paper's, as paragraphs separated by empty lines.
    #[serde(default)]
    pub about: String,
    /// The paper it comes from: the key of a file in `experiments/papers`.
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
    /// Figures of the samples of days.
    #[serde(default)]
    pub scatter: Vec<ScatterFigure>,
    /// Tables made from the sweeps.
    #[serde(default)]
    pub table: Vec<Table>,
    /// Tables of a single metric across servers.
    #[serde(default)]
    pub matrix: Vec<Matrix>,
    /// The experiment's own claims: results expected where no paper claims anything.
    #[serde(default)]
    pub claim: Vec<Claim>,
    /// Metrics of this experiment that its paper, whose claims stand elsewhere, has claims about.
    #[serde(skip)]
    pub metrics_of_paper: Vec<String>,
}

impl Experiment {
    /// Returns the indices of the servers of a sweep: `named` if not empty, else the sweep's own,
    /// else all.
    pub fn servers_of(&self, sweep: &Sweep, named: &[String]) -> Vec<usize> {
        let named = if named.is_empty() { &sweep.servers } else { named };
        if named.is_empty() {
            return (0..self.server.len()).collect();
        }
        named.iter().filter_map(|id| self.server.iter().position(|one| one.id == *id)).collect()
    }

    /// Returns the metrics that are shown or claimed, its paper's claims included.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        let of_paper = self.metrics_of_paper.iter().map(String::as_str);
        self.shown().chain(self.claimed()).chain(of_paper)
    }

    /// Returns whether SYNs at the link are among what is shown or claimed here. They are counted
    /// only then, because every packet pays for it.
    pub fn wants_syns(&self) -> bool {
        self.shown().chain(self.claimed()).any(|metric| metric.contains("syn_rate"))
    }

    /// Returns the metrics of its own claims.
    fn claimed(&self) -> impl Iterator<Item = &str> {
        self.claim.iter().flat_map(Claim::quantities).map(|one| one.metric.as_str())
    }

    /// Returns the metrics of its figures, tables and matrices.
    fn shown(&self) -> impl Iterator<Item = &str> {
        let drawn = self.figure.iter().flat_map(|figure| &figure.y);
        let listed = self.table.iter().flat_map(|table| &table.columns);
        let crossed = self.matrix.iter().map(|matrix| &matrix.metric);
        let named = drawn.chain(listed).chain(crossed).map(String::as_str);
        named.chain(self.timeline.iter().flat_map(|_| TimelineFigure::METRICS))
    }
}

/// The text of an experiment of one weir, up to the server's own settings, with more behind it.
#[cfg(test)]
macro_rules! one_weir {
    ($rest:literal) => {
        concat!(
            "title = \"T\"\nquestion = \"Q?\"\n",
            "[[server]]\nid = \"one\"\nlabel = \"weir\"\nkind = \"weir\"",
            $rest
        )
    };
}

#[cfg(test)]
pub(crate) use one_weir;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syns_are_wanted_where_they_are_shown_or_claimed() {
        let sweep = "\n[[sweep]]\nid = \"up\"\nx = \"rate\"\nvalues = [1, 2]\n";
        let table =
            "[[table]]\nid = \"t\"\ntitle = \"T\"\nsweep = \"up\"\ncolumns = [\"METRIC\"]\n";
        let wants = |metric: &str| {
            let text = [one_weir!(""), sweep, &table.replace("METRIC", metric)].concat();
            Experiment::parse(&text).unwrap().wants_syns()
        };
        assert!(wants("syn_rate") && !wants("drops_rate"));
        let claim = r#"
            [[claim]]
            id = "more"
            figure = "more"
            text = "More."
            where = "here"
            sweep = "up"
            top = { metric = "syn_rate", server = "one", at = 2 }
            bottom = { metric = "reply_rate", server = "one", at = 2 }
            above = 1.0
        "#;
        let claimed = Experiment::parse(&[one_weir!(""), sweep, claim].concat()).unwrap();
        assert!(claimed.wants_syns());
    }
}
