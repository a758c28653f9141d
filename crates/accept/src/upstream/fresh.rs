//! As many wait as can be answered within the delay target, and the newest goes first once the
//! oldest has waited for a part of it: its client is the one most likely to be still there.

use super::queue_policy::QueuePolicy;

/// Divisor of the delay target: the wait of the oldest beyond which the newest goes first.
const NEWEST_FIRST_PART: u64 = 2;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    target_ns: u64,
}

impl Fresh {
    /// Creates the policy.
    #[must_use]
    pub fn new(target_ns: u64) -> Self {
        Self { target_ns }
    }
}

impl QueuePolicy for Fresh {
    fn takes_newest(&self, oldest_waited_ns: u64) -> bool {
        oldest_waited_ns > self.target_ns / NEWEST_FIRST_PART
    }

    fn waiting_max(&self, in_time: usize) -> usize {
        in_time
    }
}
