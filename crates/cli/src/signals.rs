//! SIGINT and SIGTERM: the first asks a run to stop and report its results so far, a second one
//! ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Time within which signals count as one: timeout(1) sends two, to the process and to its group.
const TOGETHER: Duration = Duration::from_millis(250);

/// Flag that is set when the operator asks to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Starts listening for signals.
    ///
    /// # Errors
    /// A sentence, if signal handlers cannot be installed.
    pub(crate) fn listen() -> Result<Self, String> {
        let blame = |error| format!("cannot listen to signals: {error}");
        let stop = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(blame)?;
        let wanted = Arc::clone(&stop.0);
        let listen = move || {
            signals.forever().next();
            wanted.store(true, Ordering::Relaxed);
            thread::sleep(TOGETHER);
            signals.pending().for_each(drop);
            if let Some(signal) = signals.forever().next() {
                // As a shell tells it.
                std::process::exit(128 + signal);
            }
        };
        thread::Builder::new().name("signals".into()).spawn(listen).map_err(blame)?;
        Ok(stop)
    }

    /// Returns the flag that is set on a signal.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Returns whether a signal has been received.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_come_together_ask_for_a_stop() {
        let stop = Stop::listen().unwrap();
        assert!(!stop.is_wanted());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        while !stop.is_wanted() {
            thread::yield_now();
        }
    }
}
