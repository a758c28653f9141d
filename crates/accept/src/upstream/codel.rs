//! Controlled delay and adaptive LIFO, as at Facebook (Maurer, "Fail at Scale", ACM Queue 13(8),
//! 2015). Once the queue has not been empty for an interval, the newest goes first, and what has
//! waited for longer than the target is dropped when its turn comes. For comparison: it drops
//! requests while a place is free for them.

use super::queue_policy::{Asked, QueuePolicy};

/// Interval within which the queue must have been empty, nanoseconds: the article's N.
const INTERVAL_NS: u64 = 100_000_000;

/// Maximum wait otherwise, nanoseconds: the article's M.
const TARGET_NS: u64 = 5_000_000;

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codel {
    /// Times of the last arrival, and of the last one that found the queue empty, nanoseconds.
    arrived_ns: u64,
    empty_ns: u64,
}

impl Codel {
    /// Creates the policy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn is_overloaded(&self) -> bool {
        self.arrived_ns > self.empty_ns + INTERVAL_NS
    }
}

impl QueuePolicy for Codel {
    fn admits(&mut self, now_ns: u64, _asked: Asked, waiting: usize) -> bool {
        self.arrived_ns = now_ns;
        if waiting == 0 {
            self.empty_ns = now_ns;
        }
        true
    }

    fn takes_newest(&self, _oldest_waited_ns: u64) -> bool {
        self.is_overloaded()
    }

    fn drops(&mut self, _now_ns: u64, waited_ns: u64) -> bool {
        self.is_overloaded() && waited_ns > TARGET_NS
    }

    fn waiting_max(&self, _in_time: usize) -> usize {
        usize::MAX
    }
}
