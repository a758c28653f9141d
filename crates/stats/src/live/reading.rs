//! A reading: the statistics of a server at one time, by their names.

use crate::Counters;
use crate::page::{Named, Snapshot, UpstreamState};

/// The statistics of a server at one time.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Time of the reading, nanoseconds of CLOCK_MONOTONIC.
    pub taken_ns: u64,
    /// Time since the server's start, seconds.
    pub elapsed_s: f64,
    /// Delay target of overload control, nanoseconds; 0 if it is not known.
    pub target_ns: u64,
    /// Statistics of all loops together.
    pub total: Part,
    /// Statistics of each worker, with its index.
    pub workers: Vec<(u64, Part)>,
    /// State of each upstream.
    pub upstreams: Vec<UpstreamState>,
}

/// Statistics of all loops, or of one worker.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The counters; those that the page does not have are 0.
    pub counters: Counters,
    /// Processor time, nanoseconds; `None` if the kernel did not tell.
    pub cpu_ns: Option<u64>,
}

impl Reading {
    /// Takes the reading from a copy of the page.
    pub fn of(snapshot: &Snapshot) -> Self {
        let workers = snapshot.workers().into_iter();
        Self {
            taken_ns: snapshot.taken_ns,
            elapsed_s: snapshot.elapsed_s(),
            target_ns: snapshot.layout.description.target_ns,
            total: Part::of(&snapshot.total()),
            workers: workers.map(|(worker, named)| (worker, Part::of(&named))).collect(),
            upstreams: snapshot.upstreams(),
        }
    }
}

impl Part {
    fn of(named: &[Named]) -> Self {
        let value = |name: &str| named.iter().find(|row| row.name == name)?.value;
        let cpu_ns = value("cpu_user_ns").zip(value("cpu_system_ns")).map(|(a, b)| a + b);
        Self { counters: Snapshot::counters(named), cpu_ns }
    }
}

/// Returns the number of open connections of clients. A connection that was to be answered with
/// 503, and for which no slot was free, is subtracted twice.
pub fn open_connections(counters: &Counters) -> u64 {
    // Those that were begun although the second sum has them: they are still open, or are counted
    // as closed too.
    let begun = [
        counters.turned_away,
        counters.end_stale,
        counters.end_unfair,
        counters.end_departed,
        counters.end_client_limit,
        counters.end_memory_refused,
        counters.accepted,
    ];
    let not_open = [
        counters.closed,
        counters.departed,
        counters.refused_excess,
        counters.refused_stale,
        counters.refused_unfair,
        counters.refused_client_connections,
        counters.refused_memory,
        counters.refused_memory_requests,
    ];
    let sum = |all: &[crate::Counter]| {
        all.iter().fold(0, |sum: u64, counter| sum.saturating_add(counter.get()))
    };
    sum(&begun).saturating_sub(sum(&not_open))
}
