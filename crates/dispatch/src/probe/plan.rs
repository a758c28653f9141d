//! Plan of a probe: its cells, and how much of each is measured.

use std::time::Duration;

use super::sockets;
use crate::readiness::MechanismName;
use crate::readiness::settings::Settings;

/// Measurement plan: every mechanism with every combination of idle and active members.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The mechanisms.
    pub mechanisms: Vec<(MechanismName, Settings)>,
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
    pub mechanism: MechanismName,
    /// Settings of the mechanism.
    pub settings: Settings,
    /// Members that never have an event.
    pub idle: usize,
    /// Members that have one event per round.
    pub active: usize,
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

    /// Number of connections that the plan's pool needs; their far ends are in another process.
    pub fn connections(&self) -> usize {
        let most = |of: &[usize]| of.iter().copied().max().unwrap_or(0);
        sockets::connections(most(&self.idle), most(&self.active))
    }
}
