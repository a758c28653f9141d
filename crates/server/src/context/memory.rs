//! The memory budget of the whole server: how full it is, and so what has to give way. What gives
//! way, and how, is in [`crate::worker`].
//!
//! What is compared with the budget is the account of all memory (`weir_sys::heap`), which one load
//! of a number tells. What has to give way comes in an order, each with a share of the budget from
//! which on it does: first what only saves time, last what is being served.

use std::sync::{Arc, Mutex, PoisonError};

use weir_stats::Counters;
use weir_sys::heap::{self, Part};
use weir_sys::waker::Waker;

/// Shares of the budget from which on the levels hold, in percent: those of [`MemoryLevel`] after
/// the first.
const LEVELS_PERCENT: [u64; 5] = [80, 85, 90, 95, 100];

/// Share of the budget down to which caches give back, in percent.
const CACHES_TO_PERCENT: u64 = 75;

/// Time between two wake-ups of other loops, nanoseconds.
const WAKE_NS: u64 = 20_000_000;

/// State of the budget, and with it what gives way. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemoryLevel {
    /// There is enough.
    #[default]
    Ample,
    /// Caches give back, and nothing more is stored.
    Caches,
    /// Idle connections are closed, and others after their reply.
    Idle,
    /// New connections are refused, and those that wait for their client are closed.
    Connections,
    /// Requests on open connections are refused.
    Requests,
    /// A connection that is to be served is closed instead.
    Full,
}

impl MemoryLevel {
    const ALL: [Self; LEVELS_PERCENT.len()] =
        [Self::Caches, Self::Idle, Self::Connections, Self::Requests, Self::Full];
}

/// The budget, as a loop sees it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    limit_bytes: Option<u64>,
    /// Bytes from which on there is not enough.
    ample_bytes: u64,
    /// Wakers of all loops: one that sleeps may have something to give back.
    loops: Arc<Mutex<Vec<Arc<Waker>>>>,
    /// Waker of this loop.
    own: Option<Arc<Waker>>,
    /// Time before which this loop wakes no others, nanoseconds.
    next_wake_ns: u64,
    /// Level as of the start of the iteration.
    pub(crate) level: MemoryLevel,
}

impl MemoryBudget {
    /// Creates the budget of a server; without a limit everything is ample.
    pub(crate) fn new(limit_bytes: Option<u64>) -> Self {
        Self {
            limit_bytes,
            ample_bytes: limit_bytes.map_or(u64::MAX, |limit| percent(limit, LEVELS_PERCENT[0])),
            loops: Arc::default(),
            own: None,
            next_wake_ns: 0,
            level: MemoryLevel::Ample,
        }
    }

    /// Returns the budget as a loop with this waker sees it.
    pub(crate) fn of_loop(&self, waker: &Arc<Waker>) -> Self {
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.push(Arc::clone(waker));
        Self { own: Some(Arc::clone(waker)), ..self.clone() }
    }

    /// Returns the level now.
    #[inline]
    pub(crate) fn level_now(&self) -> MemoryLevel {
        let used = heap::bytes();
        if used < self.ample_bytes { MemoryLevel::Ample } else { self.level_of(used) }
    }

    /// Returns the level at which `used` bytes are in use.
    #[cold]
    fn level_of(&self, used: u64) -> MemoryLevel {
        let Some(limit) = self.limit_bytes else { return MemoryLevel::Ample };
        let rows = MemoryLevel::ALL.into_iter().zip(LEVELS_PERCENT);
        let reached = rows.take_while(|(_, share)| used >= percent(limit, *share));
        reached.last().map_or(MemoryLevel::Ample, |(level, _)| level)
    }

    /// Returns the bytes that caches are to give back now, so that there is room again.
    pub(crate) fn excess_bytes(&self) -> u64 {
        self.limit_bytes
            .map_or(0, |limit| heap::bytes().saturating_sub(percent(limit, CACHES_TO_PERCENT)))
    }

    /// Wakes the other loops, so that they give back what they have, if that was not done a moment
    /// ago.
    pub(crate) fn wake_others(&mut self, now_ns: u64) {
        if now_ns < self.next_wake_ns {
            return;
        }
        self.next_wake_ns = now_ns + WAKE_NS;
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = |waker: &Arc<Waker>| {
            self.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, waker))
        };
        loops.iter().filter(|waker| !is_own(waker)).for_each(|waker| waker.wake());
    }

    /// Sets the statistics of memory, which all loops share.
    #[inline]
    pub(crate) fn note(&self, counters: &mut Counters) {
        let parts = [
            Part::Connections,
            Part::Buffers,
            Part::Tls,
            Part::Content,
            Part::Listings,
            Part::Upstreams,
            Part::Clients,
            Part::Stacks,
        ];
        counters.set_memory(
            [self.limit_bytes.unwrap_or(0), heap::bytes()],
            parts.map(heap::bytes_of),
        );
    }
}

fn percent(whole: u64, percent: u64) -> u64 {
    // In this order a limit may be any number.
    whole / 100 * percent + whole % 100 * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gives_way_comes_in_an_order() {
        let budget = MemoryBudget::new(Some(1000));
        let levels = [0, 799, 800, 850, 900, 949, 950, 999, 1000, u64::MAX];
        let found = levels.map(|used| budget.level_of(used));
        use MemoryLevel::*;
        let wanted =
            [Ample, Ample, Caches, Idle, Connections, Connections, Requests, Requests, Full, Full];
        assert_eq!(found, wanted);
        assert!(Caches < Idle && Requests < Full);
    }

    #[test]
    fn without_a_limit_there_is_always_enough() {
        let budget = MemoryBudget::new(None);
        assert_eq!((budget.level_now(), budget.excess_bytes()), (MemoryLevel::Ample, 0));
        assert_eq!(budget.level_of(u64::MAX), MemoryLevel::Ample);
    }

    #[test]
    fn a_share_of_any_limit_is_exact_enough() {
        assert_eq!([percent(1000, 75), percent(199, 80)], [750, 159]);
        assert!(percent(u64::MAX, 100) > u64::MAX - 100);
    }
}
