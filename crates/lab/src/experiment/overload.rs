//! What an experiment's file says of overload: a spike of the load, clients beside it, figures
//! along time. Reading only; nothing here knows how any of it is made or drawn.

use serde::{Deserialize, Serialize};

use super::{At, Place};

/// A load that steps up and down again. The sweep's rate is that of the spike.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SpikeSpec {
    /// The rate before and after, in the sweep's unit.
    pub base: f64,
    /// How long it is measured before, seconds, at scale 1.
    pub before_s: f64,
    /// How long the spike lasts, seconds.
    pub for_s: f64,
    /// How long it is measured after, seconds.
    pub after_s: f64,
}

impl SpikeSpec {
    /// How long all of it is measured, seconds, at scale 1.
    pub fn duration_s(&self) -> f64 {
        self.before_s + self.for_s + self.after_s
    }
}

/// Clients beside the load: those that mean no good or know no better, and those that ask for what
/// nobody else does.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BesideSpec {
    /// What they do.
    pub kind: BesideKind,
    /// How many times as many as the load's sessions begin a second; not given where the sweep's
    /// values say how many do.
    #[serde(default)]
    pub factor: Option<f64>,
    /// How long each holds on to its connection, seconds; by default as long as the load waits.
    #[serde(default)]
    pub hold_s: Option<f64>,
    /// cold: the set of files they ask for, a workload `files-COUNTxKIBk`.
    #[serde(default)]
    pub workload: Option<String>,
    /// The addresses they come from, of those the clients have: where there are no more, half.
    #[serde(default = "one")]
    pub addresses: u32,
}

fn one() -> u32 {
    1
}

/// A neighbour on the server's processors, such as another tenant of the machine: busy for a while,
/// then idle, over and over, at the priority of the server.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NeighbourSpec {
    /// The share of each processor that it takes, percent.
    pub percent: u32,
    /// Processor time that it takes at a stretch, milliseconds.
    pub burst_ms: u32,
}

/// What a client beside the load does.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum BesideKind {
    /// Connects and says nothing.
    Mute,
    /// Sends its request one byte a second.
    Slow,
    /// Sends a whole request, waits a short time, gives up and begins again at once: so many of
    /// them that they begin `factor` times as often as the load if none gets an answer.
    Reconnect,
    /// Gets one reply, and comes back for a second on the same connection at the end of its hold.
    KeepAlive,
    /// Asks for a file of a set of its own, any of them as likely as any other.
    Cold,
}

impl BesideKind {
    /// Every kind there is.
    pub const ALL: [Self; 5] =
        [Self::Mute, Self::Slow, Self::Reconnect, Self::KeepAlive, Self::Cold];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mute => "mute",
            Self::Slow => "slow",
            Self::Reconnect => "reconnect",
            Self::KeepAlive => "keep-alive",
            Self::Cold => "cold",
        }
    }
}

/// Two figures of a sweep along time, at one of its values: replies a second, and response times.
/// A line for each server, and a grey one for what was offered.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimelineFigure {
    /// What the figures' ids begin with.
    pub id: String,
    /// What they show.
    pub title: String,
    /// The sweep they are drawn from: one with `timeline-ms`.
    pub sweep: String,
    /// Ids of the servers drawn; none means the sweep's.
    #[serde(default)]
    pub servers: Vec<String>,
    /// At which of the sweep's values: `last`, `first`, or one of them.
    #[serde(default = "last")]
    pub at: At,
    /// What a reader should know when looking at them.
    #[serde(default)]
    pub note: String,
}

fn last() -> At {
    At::Named(Place::Last)
}

impl TimelineFigure {
    /// The ids of its figures: replies, and response times.
    pub fn ids(&self) -> [String; 2] {
        [format!("{}-replies", self.id), format!("{}-response", self.id)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_called_in_files_as_it_calls_itself() {
        for kind in BesideKind::ALL {
            let read = format!("kind = \"{}\"\nfactor = 2", kind.name());
            assert_eq!(toml::from_str::<BesideSpec>(&read).unwrap().kind, kind);
        }
    }
}
