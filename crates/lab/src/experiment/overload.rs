//! Overload settings of an experiment file: load spikes, additional clients, figures over time.
//! Generating the load and drawing happen elsewhere.

use serde::{Deserialize, Serialize};

use super::units::{Bounded, Rate, Seconds};

/// A load that steps up and down again. The sweep's rate is the rate of the spike.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SpikeSpec {
    /// Rate before and after the spike, in the sweep's unit.
    pub base: Rate,
    /// Measured time before the spike, in seconds, at scale 1.
    pub before_s: Seconds,
    /// Duration of the spike, in seconds.
    pub for_s: Seconds,
    /// Measured time after the spike, in seconds.
    pub after_s: Seconds,
}

impl SpikeSpec {
    /// Returns the total measured duration in seconds, at scale 1.
    pub fn duration_s(&self) -> f64 {
        *self.before_s + *self.for_s + *self.after_s
    }
}

/// Additional clients alongside the load: malicious or misbehaving ones, and ones that request
/// files that the load does not.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BackgroundLoadSpec {
    /// Their behaviour.
    pub kind: BackgroundLoadKind,
    /// Their start rate as a multiple of the load's session rate; absent if the sweep's values set
    /// it.
    pub factor: Option<Rate>,
    /// Time in seconds for which each holds its connection; defaults to the load's timeout.
    pub hold_s: Option<Seconds>,
    /// cold: the file set they request, a workload `files-COUNTxKIBk`.
    pub workload: Option<String>,
    /// Number of the client side's addresses that they use; at most half of them.
    #[serde(default = "one")]
    pub addresses: u32,
}

fn one() -> u32 {
    1
}

/// A neighbour on the server's processors, such as another tenant of the machine. It alternates
/// between busy and idle, at the priority of the server.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NeighbourSpec {
    /// Share of each processor that it takes, in percent: the scheduler gives it no more than 45.
    pub percent: Bounded<1, 45>,
    /// Processor time per burst, in milliseconds: short, so that a point has many of them.
    pub burst_ms: Bounded<1, 200>,
}

/// The behaviour of an additional client.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundLoadKind {
    /// Connects and sends nothing.
    Mute,
    /// Sends its request at one byte per second.
    Slow,
    /// Sends a whole request, waits a short time, gives up and reconnects at once. There are enough
    /// of them to start `factor` times as often as the load if none gets a reply.
    Reconnect,
    /// Gets one reply, and sends a second request on the same connection at the end of its hold.
    KeepAlive,
    /// Requests files from a set of its own, each with equal probability.
    Cold,
    /// Requests the load's file without the prefix that costs time: of a proxy, the file itself.
    Files,
}

impl BackgroundLoadKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Mute, Self::Slow, Self::Reconnect, Self::KeepAlive, Self::Cold, Self::Files];

    /// Returns its name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mute => "mute",
            Self::Slow => "slow",
            Self::Reconnect => "reconnect",
            Self::KeepAlive => "keep-alive",
            Self::Cold => "cold",
            Self::Files => "files",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_called_in_files_as_it_calls_itself() {
        for kind in BackgroundLoadKind::ALL {
            let read = format!("kind = \"{}\"\nfactor = 2", kind.name());
            assert_eq!(toml::from_str::<BackgroundLoadSpec>(&read).unwrap().kind, kind);
        }
    }
}
