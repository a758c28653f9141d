//! Intrinsic cost of event mechanisms: the time per wait, per event and per membership against the
//! number of idle members.
//!
//! A cell is a mechanism with given numbers of idle and active members. A round writes a byte to
//! each active connection, waits until all are reported, and reads them. The processor time of the
//! same writes and reads without a mechanism, measured alternately on similar connections, is
//! subtracted; the rest is the mechanism's, including its kernel part. Printing is left to the
//! caller.

mod measure;
mod sockets;

use std::io;
use std::time::Duration;

use crate::readiness::Name;
use crate::readiness::settings::Settings;
pub use sockets::{Kind, Meeting, Shelf, hold};

/// Measurement plan: every mechanism with every combination of idle and active members.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The mechanisms.
    pub mechanisms: Vec<(Name, Settings)>,
    /// Numbers of idle members.
    pub idle: Vec<usize>,
    /// Numbers of active members, each 1 or more.
    pub active: Vec<usize>,
    /// Number of measurements of each cell; the repetitions of all cells are interleaved.
    pub repetitions: u32,
    /// Amount of each cell measured in one repetition.
    pub amount: Amount,
}

/// Stop condition of a repetition of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Number of rounds, rounded up to a whole batch.
    Rounds(u64),
    /// Total time, including the rounds without a mechanism.
    Time(Duration),
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The mechanism.
    pub mechanism: Name,
    /// Settings of the mechanism.
    pub settings: Settings,
    /// Members that never have an event.
    pub idle: usize,
    /// Members that have one event per round.
    pub active: usize,
}

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
pub struct Figures {
    /// Time per wait.
    pub wait_ns: Spread,
    /// Time per event.
    pub event_ns: Spread,
    /// Time per socket that is added, removed and closed, beyond the close of a socket that was no
    /// member. Includes work that the mechanism defers to its next wait.
    pub member_ns: Spread,
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
pub enum Trouble {
    /// The kernel does not have the mechanism, or forbids it.
    Impossible(io::Error),
    /// The measurement failed.
    Failed(io::Error),
}

/// A cell and its result.
#[derive(Debug)]
pub struct Outcome {
    /// The cell measured.
    pub cell: Cell,
    /// Figures, or the reason why there are none.
    pub found: Result<Figures, Trouble>,
}

/// Measures a plan with the connections of a shelf, of which [`Plan::connections`] are needed. Runs
/// in the calling thread, round-robin over the cells, so that drift of the machine affects all of
/// them alike.
pub fn run(plan: &Plan, shelf: &mut Shelf) -> Vec<Outcome> {
    let mut cells: Vec<_> = plan.cells().into_iter().map(|cell| (cell, Vec::new(), None)).collect();
    for _ in 0..plan.repetitions {
        for (cell, samples, trouble) in &mut cells {
            if trouble.is_some() {
                continue;
            }
            match measure::sample(cell, shelf, plan.amount) {
                Ok(sample) => samples.push(sample),
                Err(why) => *trouble = Some(why),
            }
        }
    }
    cells.into_iter().map(|(cell, samples, trouble)| outcome(cell, &samples, trouble)).collect()
}

fn outcome(cell: Cell, samples: &[Sample], trouble: Option<Trouble>) -> Outcome {
    let none = || Trouble::Failed(io::Error::other("it was not measured"));
    let found = match trouble {
        Some(trouble) => Err(trouble),
        None => Figures::of(samples).ok_or_else(none),
    };
    Outcome { cell, found }
}

impl Plan {
    /// The cells of the plan, grouped by number of idle members.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &idle in &self.idle {
            for &active in &self.active {
                cells.extend(self.mechanisms.iter().map(|(mechanism, settings)| Cell {
                    mechanism: *mechanism,
                    settings: settings.clone(),
                    idle,
                    active,
                }));
            }
        }
        cells
    }

    /// Number of connections that the plan's shelf needs; their far ends are in another process.
    pub fn connections(&self) -> usize {
        let most = |of: &[usize]| of.iter().copied().max().unwrap_or(0);
        sockets::connections(most(&self.idle), most(&self.active))
    }
}

/// Maximum number of idle members in a plan with `active` active ones, for a process limited to
/// `open_files` descriptors.
pub fn idle_max(open_files: u64, active: usize) -> usize {
    let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
    open_files.saturating_sub(sockets::others(active))
}

/// Raises the limit of open descriptors as far as possible, and returns it.
pub fn open_limit() -> u64 {
    weir_sys::process::raise_open_files()
}

/// Restricts the calling thread to one processor.
///
/// # Errors
/// EINVAL when the processor does not exist or may not be used.
pub fn pin(cpu: usize) -> io::Result<()> {
    weir_sys::process::pin_thread(cpu)
}

impl Figures {
    /// Computes the figures of a cell from its repetitions; `None` if there are none.
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum();
        Some(Self {
            wait_ns: Spread::of(samples.iter().map(|one| one.spent_ns / one.waits as f64))?,
            event_ns: Spread::of(samples.iter().map(|one| one.spent_ns / one.events as f64))?,
            member_ns: Spread::of(samples.iter().map(|one| one.member_ns))?,
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

#[cfg(test)]
mod tests;
