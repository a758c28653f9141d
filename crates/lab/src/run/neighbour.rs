//! A noisy neighbour on the server's processors: a thread on each alternates between busy bursts
//! and sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_sys::process::{pin_thread, thread_cpu_clock_ns};

use crate::experiment::NeighbourSpec;

/// Maximum deviation of the share from the requested one; beyond it the experiment is a different
/// one.
const SHARE_TOLERANCE: f64 = 0.03;

/// A running neighbour. Dropping it ends it.
pub(super) struct Neighbour {
    spec: NeighbourSpec,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<std::io::Result<f64>>>,
}

impl Neighbour {
    /// Starts a thread on each of these processors.
    ///
    /// # Errors
    /// Returns a message if a thread cannot be created.
    pub(super) fn start(spec: NeighbourSpec, cpus: &[usize]) -> Result<Self, String> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut neighbour = Self { spec, is_over, threads: Vec::new() };
        for &cpu in cpus {
            let is_over = Arc::clone(&neighbour.is_over);
            let thread = thread::Builder::new()
                .name("neighbour".to_owned())
                .spawn(move || live(spec, cpu, &is_over))
                .map_err(|error| format!("no neighbour: {error}"))?;
            neighbour.threads.push(thread);
        }
        Ok(neighbour)
    }

    /// Stops the neighbour.
    ///
    /// # Errors
    /// Returns a message if a thread could not be pinned, or its share was not the requested one.
    pub(super) fn end(mut self) -> Result<(), String> {
        self.is_over.store(true, Ordering::Relaxed);
        let wanted = f64::from(*self.spec.percent) / 100.0;
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(std::io::Error::other("it panicked")));
            let share = ended.map_err(|error| format!("neighbour: {error}"))?;
            if (share - wanted).abs() > SHARE_TOLERANCE {
                return Err(format!(
                    "the neighbour took {:.0} % of a processor and not {} %",
                    share * 100.0,
                    self.spec.percent
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Runs a thread of the neighbour; returns the share of the processor that it took.
fn live(spec: NeighbourSpec, cpu: usize, is_over: &AtomicBool) -> std::io::Result<f64> {
    pin_thread(cpu)?;
    let burst_ns = u64::from(*spec.burst_ms) * 1_000_000;
    let period_ns = burst_ns * 100 / u64::from(*spec.percent);
    let (began, began_cpu_ns) = (Instant::now(), thread_cpu_clock_ns());
    let mut periods = 0;
    while !is_over.load(Ordering::Relaxed) {
        let until_ns = thread_cpu_clock_ns() + burst_ns;
        while thread_cpu_clock_ns() < until_ns {
            std::hint::spin_loop();
        }
        periods += 1;
        let next = began + Duration::from_nanos(period_ns * periods);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let took_ns = thread_cpu_clock_ns() - began_cpu_ns;
    Ok(took_ns as f64 / began.elapsed().as_nanos() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Bounded;

    #[test]
    fn a_neighbour_on_no_processor_moves_in_and_out() {
        let spec = NeighbourSpec { percent: Bounded::of::<30>(), burst_ms: Bounded::of::<1>() };
        assert_eq!(Neighbour::start(spec, &[]).unwrap().end(), Ok(()));
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        let spec = NeighbourSpec { percent: Bounded::of::<30>(), burst_ms: Bounded::of::<1>() };
        let neighbour = Neighbour::start(spec, &[100_000]).unwrap();
        assert!(neighbour.end().unwrap_err().starts_with("neighbour: "));
    }
}
