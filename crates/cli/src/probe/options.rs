//! The options of `weir probe`, each defined once: name, help, parser, default.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::options::mechanisms;
use crate::values;

/// Maximum number of active members: each takes several descriptors.
const ACTIVE_MAX: u64 = 4096;

/// Measure what each event mechanism costs on this kernel, by itself.
///
/// In each cell a number of idle and a number of active connections are members. In each round
/// every active one is sent a byte, waited for and read; the processor time of the same sending and
/// reading without a mechanism is subtracted. The rest is divided by waits and by events.
#[derive(Debug, Args)]
pub(crate) struct ProbeOptions {
    /// The mechanism to measure; may be repeated. By default all
    #[arg(long, value_name = "NAME", value_parser = mechanisms())]
    pub mechanism: Vec<String>,

    /// An option of the mechanisms that have it, as name=number; may be repeated
    #[arg(long, value_name = "NAME=N")]
    pub mechanism_option: Vec<String>,

    /// Members that never have an event
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',',
          default_value = "0,1000,5000,10000,15000", value_parser = clap::value_parser!(u32))]
    pub idle: Vec<u32>,

    /// Members that have an event each round
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_value = "1,16",
          value_parser = clap::value_parser!(u32).range(1..=ACTIVE_MAX as i64))]
    pub active: Vec<u32>,

    /// How long each cell is measured, all repetitions together
    #[arg(long, value_name = "TIME", default_value = "0.2", value_parser = values::limit,
          conflicts_with = "rounds")]
    pub seconds: Duration,

    /// How many rounds of each cell are measured in each repetition, instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,

    /// How often each cell is measured; the repetitions of all cells take turns
    #[arg(long, value_name = "N", default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,

    /// What the connections are
    #[arg(long, value_name = "KIND", default_value = "tcp")]
    pub kind: Kind,

    /// Run on this processor only
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,

    /// Print a JSON line for each cell
    #[arg(long)]
    pub json: bool,

    /// Hold the far ends of a probe's connections
    #[arg(long, value_name = "PLACE", hide = true)]
    pub hold: Option<String>,
}

/// Type of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// TCP over the loopback
    Tcp,
    /// A Unix stream socket
    Unix,
}
