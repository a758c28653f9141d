//! Results of a probe: samples of a cell, and the costs computed from them.

use std::io;

use super::plan::Cell;

/// A repetition of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Rounds measured.
    pub rounds: u64,
    /// Calls of the mechanism in these rounds: one call need not report all ready members.
    pub waits: u64,
    /// Bytes read: one per active member and round.
    pub events: u64,
    /// Processor time of the rounds, less that of as many rounds without a mechanism, nanoseconds.
    pub spent_ns: f64,
    /// Processor time to add and remove a member, nanoseconds.
    pub member_ns: f64,
    /// Processor time to search the result of a wait, nanoseconds; `None` for a mechanism whose
    /// waits have none to search.
    pub search_ns: Option<f64>,
}

/// Minimum, median and maximum of several values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// Median; for an even number of values, the mean of the middle two.
    pub median: f64,
    /// Maximum.
    pub max: f64,
}

/// Results of a cell, nanoseconds of processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellCosts {
    /// Time per wait.
    pub wait_ns: Spread,
    /// Time per event.
    pub event_ns: Spread,
    /// Time per socket that is added, removed and closed, beyond the close of a socket that was no
    /// member. Includes work that the mechanism defers to its next wait.
    pub member_ns: Spread,
    /// Part of a wait in which its result is searched in user mode, where there is such a part.
    pub search_ns: Option<Spread>,
    /// Number of repetitions measured.
    pub repetitions: usize,
    /// Rounds in all repetitions.
    pub rounds: u64,
    /// Waits in all repetitions.
    pub waits: u64,
    /// Events in all repetitions.
    pub events: u64,
}

/// Reason why a cell has no figures.
#[derive(Debug)]
pub enum CellError {
    /// The kernel does not have the mechanism, or forbids it.
    Impossible(io::Error),
    /// The measurement failed.
    Failed(io::Error),
}

/// A cell and its result.
#[derive(Debug)]
pub struct CellResult {
    /// The cell measured.
    pub cell: Cell,
    /// CellCosts, or the reason why there are none.
    pub found: Result<CellCosts, CellError>,
}

impl CellCosts {
    /// Computes the figures of a cell from its repetitions; `None` if there are none.
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum();
        Some(Self {
            wait_ns: Spread::of(samples.iter().map(|one| one.spent_ns / one.waits as f64))?,
            event_ns: Spread::of(samples.iter().map(|one| one.spent_ns / one.events as f64))?,
            member_ns: Spread::of(samples.iter().map(|one| one.member_ns))?,
            search_ns: Spread::of(samples.iter().filter_map(|one| one.search_ns)),
            repetitions: samples.len(),
            rounds: sum(|one| one.rounds),
            waits: sum(|one| one.waits),
            events: sum(|one| one.events),
        })
    }
}

impl Spread {
    /// Computes the spread of some values; `None` if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values.get((values.len() - 1) / 2)?, values.get(values.len() / 2)?);
        Some(Self { min, median: low.midpoint(*high), max })
    }
}
