//! Intrinsic cost of event mechanisms: the time per wait, per event and per membership against the
//! number of idle members.
//!
//! A cell is a mechanism with given numbers of idle and active members. A round writes a byte to
//! each active connection, waits until all are reported, and reads them. The processor time of the
//! same writes and reads without a mechanism, measured alternately on similar connections, is
//! subtracted; the rest is the mechanism's, including its kernel part. Printing is left to the
//! caller.

mod costs;
mod measure;
mod plan;
mod sockets;

use std::io;

pub use costs::{CellCosts, CellError, CellResult, Sample, Spread};
pub use plan::{Amount, Cell, Plan};
pub use sockets::{ConnectionPool, Kind, Rendezvous, hold};

/// Measures a plan with the connections of a pool, of which [`Plan::connections`] are needed. Runs
/// in the calling thread, round-robin over the cells, so that drift of the machine affects all of
/// them alike.
pub fn run(plan: &Plan, pool: &mut ConnectionPool) -> Vec<CellResult> {
    let mut cells: Vec<_> = plan.cells().into_iter().map(|cell| (cell, Vec::new(), None)).collect();
    for _ in 0..plan.repetitions {
        for (cell, samples, error) in &mut cells {
            if error.is_some() {
                continue;
            }
            match measure::sample(cell, pool, plan.amount) {
                Ok(sample) => samples.push(sample),
                Err(why) => *error = Some(why),
            }
        }
    }
    cells.into_iter().map(|(cell, samples, error)| outcome(cell, &samples, error)).collect()
}

fn outcome(cell: Cell, samples: &[Sample], error: Option<CellError>) -> CellResult {
    let none = || CellError::Failed(io::Error::other("it was not measured"));
    let found = match error {
        Some(error) => Err(error),
        None => CellCosts::of(samples).ok_or_else(none),
    };
    CellResult { cell, found }
}

/// Maximum number of idle members in a plan with `active` active ones, for a process limited to
/// `open_files` descriptors.
pub fn idle_max(open_files: u64, active: usize) -> usize {
    let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
    open_files.saturating_sub(sockets::other_descriptors(active))
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

#[cfg(test)]
mod tests;
