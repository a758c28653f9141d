//! State that the threads of a run share: whether it is to stop, and which of them are done with
//! the load. Those that are keep their background connections open until all are.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The state of a run.
pub(super) struct RunState {
    /// Set to stop all threads.
    pub(super) stop: AtomicBool,
    /// Number of threads with load under way.
    under_way: AtomicUsize,
    /// End of the load of the threads that are done, nanoseconds on the run's clock.
    ended_ns: AtomicU64,
}

impl RunState {
    /// Creates the state of a run of this many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            under_way: AtomicUsize::new(threads),
            ended_ns: AtomicU64::new(0),
        }
    }

    /// Returns whether the run is to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes that a thread has no load under way any more. Each calls it once.
    pub(super) fn end_one(&self, now_ns: u64) {
        self.ended_ns.fetch_max(now_ns, Ordering::Relaxed);
        self.under_way.fetch_sub(1, Ordering::Release);
    }

    /// Returns whether a thread has load under way, and is not to stop.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0 && !self.is_stopped()
    }

    /// Returns the end of the load of the threads that are done, nanoseconds on the run's clock.
    pub(super) fn ended_ns(&self) -> u64 {
        self.ended_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_the_load_of_its_last_thread_or_when_it_is_stopped() {
        let run = RunState::new(2);
        run.end_one(7);
        assert!(run.is_under_way());
        run.end_one(5);
        assert_eq!((run.is_under_way(), run.ended_ns()), (false, 7));
        let run = RunState::new(2);
        run.stop.store(true, Ordering::Relaxed);
        assert!(run.is_stopped() && !run.is_under_way());
    }
}
