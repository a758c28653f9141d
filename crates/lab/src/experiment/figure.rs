//! Figures and tables of an experiment file, and places along a sweep.

use serde::{Deserialize, Serialize};

use super::units::id;

/// A figure: metrics of a sweep's servers against its values, one line per server and metric.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// Id in file names, such as `fig-4.12`; with a paper, the paper's own figure.
    #[serde(deserialize_with = "id")]
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
    #[serde(deserialize_with = "id")]
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
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// Title of the table.
    pub title: String,
    /// The metric.
    pub metric: String,
    /// Sweeps that supply its cells.
    pub of: Vec<Cells>,
    /// The server whose value in the same sweep and round each value is divided by, but for the
    /// columns that name another.
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
    /// The server that these columns are relative to, if it is not that of the matrix.
    pub relative_to: Option<String>,
}

impl Matrix {
    /// Returns the server that the columns of a sweep are relative to; `None` if they are not.
    pub fn base<'a>(&'a self, cells: &'a Cells) -> Option<&'a String> {
        cells.relative_to.as_ref().or(self.relative_to.as_ref())
    }
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
    /// The value with the server's highest median of goodput.
    Peak,
}

/// Two figures of a sweep over time, at one of its values: replies per second, and response times.
/// Each has a line per server, and a grey one for the offered load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimelineFigure {
    /// Common prefix of the figures' ids.
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// Title of the figures.
    pub title: String,
    /// The sweep they are drawn from; it must set `timeline-ms`.
    pub sweep: String,
    /// Ids of the servers drawn; empty means all of the sweep's.
    #[serde(default)]
    pub servers: Vec<String>,
    /// The value of the sweep to draw: `last`, `first`, or one of its values.
    #[serde(default = "highest")]
    pub at: At,
    /// Note to the reader of the figures.
    #[serde(default)]
    pub note: String,
}

impl TimelineFigure {
    /// Metrics whose validity decides on the points of the two figures: replies, and response
    /// times.
    pub const METRICS: [&str; 2] = ["reply_rate", "response_p50"];

    /// Returns the ids of the two figures: replies, and response times.
    pub fn ids(&self) -> [String; 2] {
        [format!("{}-replies", self.id), format!("{}-response", self.id)]
    }
}
