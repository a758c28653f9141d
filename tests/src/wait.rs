//! Waiting for a condition. Not for showing that something is fast: the limit only turns a hang
//! into a failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time a test waits for anything before it counts as a hang.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Guard that sets a flag when it is dropped, by a failure as well: threads that look at the flag
/// end, and so does the scope that waits for them.
#[must_use]
pub struct WhenDone<'a>(pub &'a AtomicBool);

impl Drop for WhenDone<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until `condition` holds; panics with `what` after [`TIMEOUT`].
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(TIMEOUT, what, condition);
}

/// Like [`until`], with another limit: for what takes seconds on a processor shared with other
/// work.
pub fn until_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "waited in vain until {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Tries `attempt` until it succeeds, and returns its result; panics with `what` and the last error
/// after [`TIMEOUT`].
pub fn until_ok<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(result) => return result,
            Err(error) => {
                assert!(start.elapsed() < TIMEOUT, "waited in vain until {what}: {error}");
            }
        }
        sleep(Duration::from_millis(5));
    }
}
