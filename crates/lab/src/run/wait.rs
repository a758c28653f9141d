//! Waits that end early if the run is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::generators::RunningLoad;

/// Interval at which a wait checks whether it should end.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `instant`.
///
/// # Errors
/// Returns a message if `stop` is set meanwhile.
pub(super) fn sleep_until(instant: Instant, stop: &AtomicBool) -> Result<(), String> {
    loop {
        let left = instant.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
}

/// Waits for a load to end.
///
/// # Errors
/// Returns a message if `stop` is set meanwhile, or if `latest` passes.
pub(super) fn await_end(
    load: &mut RunningLoad,
    latest: Instant,
    stop: &AtomicBool,
) -> Result<(), String> {
    while !load.finished() {
        if stop.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        if Instant::now() > latest {
            return Err("the load generator did not come to its end".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
