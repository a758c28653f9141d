//! Days in an experiment file: a load that replays an access log, sampled as it goes, and the
//! figures drawn of the samples.

use serde::{Deserialize, Serialize};

use super::units::{Bounded, Count, id};

/// A load that replays the log of a day in the duration of a point. The sweep's rate is its mean.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DaySpec {
    /// Number of samples, of equal length: 96 are quarter-hours.
    pub samples: Bounded<2, 1440>,
    /// Number of objects that the made-up log may name.
    pub objects: Count,
}

impl Default for DaySpec {
    fn default() -> Self {
        Self { samples: Bounded::of::<96>(), objects: Count::of::<5000>() }
    }
}

/// A figure with a point for each sample of a day, and a line through each cloud of them; beside
/// it a table of the lines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScatterFigure {
    /// Id of the figure; that of the table has `-lines` behind it.
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// Title of both.
    pub title: String,
    /// The sweep they are drawn from; it must have a day.
    pub sweep: String,
    /// Ids of the servers drawn; empty means all of the sweep's.
    #[serde(default)]
    pub servers: Vec<String>,
    /// The shares of processor time drawn.
    #[serde(default = "idle_and_kernel")]
    pub y: Vec<CpuMode>,
    /// Lowest request rate of the samples used, per second.
    #[serde(default)]
    pub above: f64,
    /// Note to the reader.
    #[serde(default)]
    pub note: String,
}

impl ScatterFigure {
    /// Returns the ids of the figure and of the table.
    pub fn ids(&self) -> [String; 2] {
        [self.id.clone(), format!("{}-lines", self.id)]
    }
}

fn idle_and_kernel() -> Vec<CpuMode> {
    vec![CpuMode::Idle, CpuMode::Kernel]
}

/// A share of the time of the server's processors.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum CpuMode {
    /// What the server's processes left.
    Idle,
    /// System time of the server's processes.
    Kernel,
    /// User time of the server's processes.
    User,
}

impl CpuMode {
    /// Returns its name in files and legends.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}
