//! What an event mechanism costs by itself: the time of a wait, of an event and of a membership
//! against the number of idle members.
//!
//! A cell is a mechanism, so many idle members and so many active ones. A round writes a byte to
//! each active connection, waits until all are reported and reads them. The processor time of the
//! same writes and reads without a mechanism, measured in turn with them on like connections, is
//! taken off; what is left is the mechanism's, the kernel's part of it included. Nothing here
//! prints, and nothing here knows how a mechanism works.

mod measure;
mod sockets;

use std::io;
use std::time::Duration;

use crate::readiness::Name;
use crate::readiness::settings::Settings;
pub use sockets::{Kind, Meeting, Shelf, hold};

/// What to measure: every mechanism with every number of idle and of active members.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The mechanisms.
    pub mechanisms: Vec<(Name, Settings)>,
    /// Numbers of idle members.
    pub idle: Vec<usize>,
    /// Numbers of active members, each 1 or more.
    pub active: Vec<usize>,
    /// How often each cell is measured; the repetitions of all cells take turns.
    pub repetitions: u32,
    /// How much of a cell is measured in one repetition.
    pub amount: Amount,
}

/// When a repetition of a cell has been measured for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// After so many rounds, or the few more that make a batch whole.
    Rounds(u64),
    /// After so much time, the rounds without a mechanism included.
    Time(Duration),
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The mechanism.
    pub mechanism: Name,
    /// What is set about it.
    pub settings: Settings,
    /// Members that never have an event.
    pub idle: usize,
    /// Members that have one each round.
    pub active: usize,
}

/// One repetition of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Rounds measured.
    pub rounds: u64,
    /// Calls of the mechanism in them: one need not report all that are ready.
    pub waits: u64,
    /// Bytes taken in: the active members in each round.
    pub events: u64,
    /// Processor time of the rounds, less that of as many without a mechanism, nanoseconds.
    pub spent_ns: f64,
    /// Processor time of a member's coming and going, nanoseconds.
    pub member_ns: f64,
}

/// The smallest, the middle and the largest of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The middle one; of an even number the mean of the two.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

/// A cell's figures, nanoseconds of processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// For each wait.
    pub wait_ns: Spread,
    /// For each event.
    pub event_ns: Spread,
    /// For a socket that becomes a member, ceases to be one and is closed, beyond the close of one
    /// that was none. What a mechanism puts off until its next wait is in it.
    pub member_ns: Spread,
    /// How often it was measured.
    pub repetitions: usize,
    /// Rounds of all of them.
    pub rounds: u64,
    /// Waits of all of them.
    pub waits: u64,
    /// Events of all of them.
    pub events: u64,
}

/// Why a cell has no figures.
#[derive(Debug)]
pub enum Trouble {
    /// The kernel has no such mechanism, or forbids it.
    Impossible(io::Error),
    /// It went wrong.
    Failed(io::Error),
}

/// A cell, and what was found.
#[derive(Debug)]
pub struct Outcome {
    /// Which.
    pub cell: Cell,
    /// What.
    pub found: Result<Figures, Trouble>,
}

/// Measures a plan with the connections of a shelf: [`Plan::connections`] of them. Runs in the
/// calling thread, round-robin, so that what drifts on a machine meets all cells alike.
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
    /// The cells, those of one number of idle members together.
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

    /// How many connections its shelf needs, the other ends of which are elsewhere.
    pub fn connections(&self) -> usize {
        let most = |of: &[usize]| of.iter().copied().max().unwrap_or(0);
        sockets::connections(most(&self.idle), most(&self.active))
    }
}

/// The most idle members that a plan with so many active ones can have, when a process may have
/// `open_files` descriptors.
pub fn idle_max(open_files: u64, active: usize) -> usize {
    let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
    open_files.saturating_sub(sockets::others(active))
}

/// Raises the limit of open descriptors as far as it goes, and returns it.
pub fn open_limit() -> u64 {
    weir_sys::process::raise_open_files()
}

/// Has the calling thread run on one processor only.
///
/// # Errors
/// EINVAL when there is none of this number, or it may not be used.
pub fn pin(cpu: usize) -> io::Result<()> {
    weir_sys::process::pin_thread(cpu)
}

impl Figures {
    /// Of a cell's repetitions; none of none.
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
    /// Of some values; none of none.
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
