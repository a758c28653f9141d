//! The memory budget of the whole server: how full it is, and so what has to give way. What gives
//! way, and how, is in [`crate::worker`].
//!
//! What is compared with the budget is the account of all memory (`weir_sys::heap`), which one load
//! of a number tells, and what the allocator keeps of freed memory, by the kernel's word. What has
//! to give way comes in an order, each with a share of the budget from which on it does: first what
//! only saves time, last what is being served.

mod level;
mod shared;
mod shortage;

use std::sync::Arc;

use weir_stats::Counters;
use weir_sys::heap::{self, Part};
use weir_sys::proc::ResidentMemory;
use weir_sys::waker::Waker;

pub(crate) use level::MemoryLevel;
use shared::{CALL_PAUSE, Shared};
pub(crate) use shortage::Shortage;

/// Part of the budget beyond which memory that was freed goes back to the kernel.
const FREE_PARTS: u64 = 32;

/// Time between two steps of giving way, nanoseconds: a busy loop goes round more often.
const STEP_NS: u64 = 1_000_000;

/// Time after which a loop without anything to give looks again while connections give way: it may
/// have some that did not wait for their client then, nanoseconds.
const RECHECK_NS: u64 = 1_000_000_000;

/// The budget, as a loop sees it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    limit_bytes: Option<u64>,
    /// Bytes from which on there is not enough.
    ample_bytes: u64,
    shared: Arc<Shared>,
    /// Waker of this loop.
    own: Option<Arc<Waker>>,
    /// True while this loop gives way, and keeps nothing that only saves time.
    gives_way: bool,
    /// Time before which the next step is not taken, unless the level rises, nanoseconds.
    next_step_ns: u64,
    /// Time of the next step though nothing happens, nanoseconds.
    due_ns: Option<u64>,
    /// Level as of the start of the iteration, or lower.
    level: MemoryLevel,
    /// Bytes that connections have come to hold and that were not charged yet.
    pub(crate) connections: i64,
    /// Bytes of kept buffers that were not charged yet.
    pub(crate) buffers: i64,
}

impl MemoryBudget {
    /// Creates the budget of a server, or of one of several processes; without a limit everything
    /// is ample.
    pub(crate) fn new(limit_bytes: Option<u64>) -> Self {
        Self {
            limit_bytes,
            ample_bytes: limit_bytes.map_or(u64::MAX, level::ample_bytes),
            shared: Arc::new(Shared::new(None)),
            own: None,
            gives_way: false,
            next_step_ns: 0,
            due_ns: None,
            level: MemoryLevel::Ample,
            connections: 0,
            buffers: 0,
        }
    }

    /// Creates the budget of a server that is this process alone, so that the kernel can be asked
    /// what the allocator keeps.
    pub(crate) fn of_process(limit_bytes: Option<u64>) -> Self {
        let resident = limit_bytes.and_then(|_| ResidentMemory::open().ok());
        Self { shared: Arc::new(Shared::new(resident)), ..Self::new(limit_bytes) }
    }

    /// Returns the budget as a loop with this waker sees it.
    pub(crate) fn of_loop(&self, waker: &Arc<Waker>) -> Self {
        self.shared.add_loop(waker);
        Self { own: Some(Arc::clone(waker)), ..self.clone() }
    }

    /// Returns the level now.
    #[inline]
    pub(crate) fn level_now(&self) -> MemoryLevel {
        let used = self.used_bytes();
        if used < self.ample_bytes { MemoryLevel::Ample } else { self.level_of(used) }
    }

    /// Returns the level at which `used` bytes are in use.
    #[cold]
    fn level_of(&self, used: u64) -> MemoryLevel {
        self.limit_bytes.map_or(MemoryLevel::Ample, |limit| MemoryLevel::of(used, limit))
    }

    /// Returns the level as of the start of the iteration.
    #[inline]
    pub(crate) fn level(&self) -> MemoryLevel {
        self.level
    }

    /// Records that the loop has slept, during which others may have given way.
    #[inline]
    pub(crate) fn note_woken(&mut self) {
        if self.level > MemoryLevel::Ample {
            self.level = self.level.min(self.level_now());
        }
    }

    /// Has the next step come at once if the level has risen since the last one. To be called where
    /// a thread or process waits for a connection that it has served.
    #[inline]
    pub(crate) fn note_served(&mut self, now_ns: u64) {
        if self.level_now() > self.level {
            self.due_ns = Some(now_ns);
        }
    }

    /// Records that there is enough, and nothing to be done.
    #[inline]
    pub(crate) fn note_ample(&mut self) {
        self.due_ns = None;
    }

    /// Returns whether this loop gives way: nothing more is kept to save time.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.gives_way
    }

    /// Returns whether this loop gives way, or is about to: for what may take much of the budget
    /// before the next step.
    pub(crate) fn is_short_now(&self) -> bool {
        self.gives_way || self.level_now() > MemoryLevel::Ample
    }

    /// Begins a step of giving way at this level; returns whether there is to be one now. Calls the
    /// other loops if they do not know of the level.
    pub(crate) fn begin_step(&mut self, level: MemoryLevel, now_ns: u64) -> bool {
        let is_higher = std::mem::replace(&mut self.level, level) < level;
        self.shared.note_level(level);
        if now_ns < self.next_step_ns && !is_higher {
            return false;
        }
        self.gives_way = true;
        self.next_step_ns = now_ns + STEP_NS;
        let others_know = self.shared.call_others(level, self.own.as_ref());
        self.due_ns = (!others_know).then(|| now_ns + CALL_PAUSE.as_nanos() as u64);
        true
    }

    /// Ends a step. `has_given`: there was something to give, so that there may be more.
    /// `may_have_more`: there will be with time.
    pub(crate) fn end_step(&mut self, has_given: bool, may_have_more: bool, now_ns: u64) {
        self.gives_way = self.level > MemoryLevel::Ample || has_given;
        let next_ns = match () {
            () if has_given => Some(self.next_step_ns),
            () if may_have_more => Some(now_ns + RECHECK_NS),
            () => None,
        };
        self.due_ns = [self.due_ns, next_ns].into_iter().flatten().min();
    }

    /// Returns when the next step is due though nothing happens, nanoseconds.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Returns the bytes that caches are to give back now, so that there is room again.
    pub(crate) fn excess_bytes(&self) -> u64 {
        let to_bytes = self.limit_bytes.map_or(u64::MAX, level::caches_to_bytes);
        self.used_bytes().saturating_sub(to_bytes)
    }

    /// Returns the budget and what is used of it, bytes.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.limit_bytes.unwrap_or(0), self.used_bytes())
    }

    /// Asks the kernel how much of what was freed is still resident, and gives it back if that is
    /// much and the budget nearly used up. To be called while there is not enough, and now and then
    /// besides.
    pub(crate) fn measure(&self) {
        if let Some(limit) = self.limit_bytes {
            self.shared.measure(self.ample_bytes, limit / FREE_PARTS);
        }
    }

    /// Returns whether connections have to give way, or had to since the last call.
    pub(crate) fn take_shortage(&self) -> bool {
        self.shared.note_level(self.level_now());
        self.shared.take_reached(MemoryLevel::Idle)
    }

    /// Calls all loops and processes again, now and then, while there is not enough: one that has
    /// nothing to give sleeps, so that what it knows of the others' knowledge may be out of date.
    pub(crate) fn call_again(&self) {
        if self.level_now() > MemoryLevel::Ample {
            self.shared.call_again();
        }
    }

    /// Calls all processes that share the budget, because one has found the level higher.
    pub(crate) fn call_processes(&self) {
        self.shared.note_level(self.level_now());
        self.shared.call(None);
    }

    /// Number of calls to other processes.
    pub(crate) fn calls(&self) -> u64 {
        self.shared.calls()
    }

    /// Records a call from another process, which needs none in return.
    pub(crate) fn note_called(&self) {
        self.shared.note_called(self.level_now());
    }

    /// Returns what is used of the budget, bytes: the account, and what the allocator keeps.
    #[inline]
    fn used_bytes(&self) -> u64 {
        heap::bytes() + self.shared.free_bytes()
    }

    /// Sets the statistics of memory, which all loops share.
    #[inline]
    pub(crate) fn note(&mut self, counters: &mut Counters) {
        heap::charge(Part::Connections, std::mem::take(&mut self.connections));
        heap::charge(Part::Buffers, std::mem::take(&mut self.buffers));
        let [used, parts @ ..] = heap::account();
        let totals = [self.limit_bytes.unwrap_or(0), used, self.shared.free_bytes()];
        counters.set_memory(totals, parts);
    }
}

/// Returns the part of `bytes` that falls to `part` of a whole.
pub(super) fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_there_is_always_enough() {
        let budget = MemoryBudget::new(None);
        assert_eq!((budget.level_now(), budget.excess_bytes()), (MemoryLevel::Ample, 0));
        assert_eq!(budget.level_of(u64::MAX), MemoryLevel::Ample);
    }

    #[test]
    fn a_loop_steps_while_it_has_something_to_give_and_then_sleeps() {
        let mut budget = MemoryBudget::new(Some(1000));
        assert!(budget.begin_step(MemoryLevel::Caches, 0) && budget.is_short());
        budget.end_step(true, false, 0);
        assert_eq!(budget.due_ns(), Some(STEP_NS));
        assert!(!budget.begin_step(MemoryLevel::Caches, STEP_NS - 1), "too early");
        assert!(budget.begin_step(MemoryLevel::Caches, STEP_NS));
        budget.end_step(false, false, STEP_NS);
        assert_eq!((budget.due_ns(), budget.is_short()), (None, true));
        assert!(budget.begin_step(MemoryLevel::Ample, 3 * STEP_NS));
        budget.end_step(true, false, 3 * STEP_NS);
        assert!(budget.is_short(), "caches give more than that");
        assert!(budget.begin_step(MemoryLevel::Ample, 4 * STEP_NS));
        budget.end_step(false, false, 4 * STEP_NS);
        assert_eq!((budget.due_ns(), budget.is_short()), (None, false));
    }

    #[test]
    fn a_level_that_rises_is_acted_upon_at_once_and_others_hear_of_it_later() {
        let mut budget = MemoryBudget::new(Some(1000));
        assert!(budget.begin_step(MemoryLevel::Caches, 0));
        assert!(budget.begin_step(MemoryLevel::Connections, 1));
        budget.end_step(false, true, 1);
        assert!(budget.due_ns().is_some_and(|due_ns| due_ns <= 1 + CALL_PAUSE.as_nanos() as u64));
    }

    #[test]
    fn a_share_of_any_limit_is_exact_enough() {
        assert_eq!([share(10, 1, 2), share(10, 0, 0), share(u64::MAX, 3, 3)], [5, 0, u64::MAX]);
    }
}
