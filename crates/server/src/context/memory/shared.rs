//! What all loops of a process know together of the memory budget: who is to be told when more has
//! to give way, and how much of what was freed is still resident.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_sys::heap;
use weir_sys::proc::ResidentMemory;
use weir_sys::waker::Waker;

use super::level::MemoryLevel;

/// Time between two calls to the other loops.
pub(super) const CALL_PAUSE: Duration = Duration::from_millis(20);

/// Time after which all are called again though the level is no higher.
const CALL_AGAIN_PAUSE: Duration = Duration::from_millis(500);

/// Time between two times that memory goes back to the kernel, which takes the allocator's locks.
const TRIM_PAUSE: Duration = Duration::from_millis(50);

/// The part of the budget that all loops share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Wakers of all loops: one that sleeps may have something to give back.
    loops: Mutex<Vec<Arc<Waker>>>,
    /// Level that the loops were last called for.
    called: AtomicU8,
    called_at: LastTime,
    /// Number of calls to other processes.
    calls: AtomicU64,
    /// Highest level since the main thread last looked.
    highest: AtomicU8,
    /// What the kernel knows of this process; `None` where it does not tell, or several share the
    /// account.
    resident: Option<ResidentMemory>,
    /// Resident memory that is not in the account, at the start, bytes.
    base_bytes: u64,
    /// Memory that was freed and is still resident, as of the last measurement, bytes.
    free_bytes: AtomicU64,
    trimmed_at: LastTime,
}

impl Shared {
    /// Creates it. `resident`: what the kernel will be asked for.
    pub(super) fn new(resident: Option<ResidentMemory>) -> Self {
        heap::settle();
        let bytes = resident.as_ref().and_then(ResidentMemory::bytes).unwrap_or(0);
        Self {
            loops: Mutex::default(),
            called: AtomicU8::new(0),
            called_at: LastTime::new(),
            calls: AtomicU64::new(0),
            highest: AtomicU8::new(0),
            resident,
            base_bytes: bytes.saturating_sub(heap::bytes()),
            free_bytes: AtomicU64::new(0),
            trimmed_at: LastTime::new(),
        }
    }

    /// Adds the waker of a loop.
    pub(super) fn add_loop(&self, waker: &Arc<Waker>) {
        self.loops().push(Arc::clone(waker));
    }

    fn loops(&self) -> MutexGuard<'_, Vec<Arc<Waker>>> {
        // No code that holds the lock can leave the list half changed.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the other loops, and processes, if this level is above that of the last call; returns
    /// whether they know. They do not while the last call was a moment ago.
    pub(super) fn call_others(&self, level: MemoryLevel, own: Option<&Arc<Waker>>) -> bool {
        if level as u8 <= self.called.load(Ordering::Relaxed) {
            self.note_called(level);
            return true;
        }
        let may_call = self.called_at.passes(CALL_PAUSE);
        if may_call {
            self.note_called(level);
            self.call(own);
        }
        may_call
    }

    /// Calls all loops, and processes, if nobody has for a while.
    pub(super) fn call_again(&self) {
        if self.called_at.passes(CALL_AGAIN_PAUSE) {
            self.call(None);
        }
    }

    /// Calls all loops but one, and processes.
    pub(super) fn call(&self, own: Option<&Arc<Waker>>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let is_own = |waker: &Arc<Waker>| own.is_some_and(|own| Arc::ptr_eq(own, waker));
        self.loops().iter().filter(|waker| !is_own(waker)).for_each(|waker| waker.wake());
    }

    /// Records that all others know of a level.
    pub(super) fn note_called(&self, level: MemoryLevel) {
        self.called.store(level as u8, Ordering::Relaxed);
    }

    /// Number of calls to other processes.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Records a level, for the main thread.
    pub(super) fn note_level(&self, level: MemoryLevel) {
        self.highest.fetch_max(level as u8, Ordering::Relaxed);
    }

    /// Returns whether a level was reached since this was last asked.
    pub(super) fn take_reached(&self, level: MemoryLevel) -> bool {
        self.highest.swap(0, Ordering::Relaxed) >= level as u8
    }

    /// Memory that was freed and is still resident, as of the last measurement, bytes.
    #[inline]
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// Asks the kernel how much of what was freed is still resident, and gives it back if that is
    /// more than `free_bytes_max`, and more than `ample_bytes` are in use.
    pub(super) fn measure(&self, ample_bytes: u64, free_bytes_max: u64) {
        let mut free = self.resident_free_bytes();
        let is_short = heap::bytes().saturating_add(free.unwrap_or(0)) >= ample_bytes;
        let is_much = free.is_none_or(|free| free > free_bytes_max);
        if is_short && is_much && self.trimmed_at.passes(TRIM_PAUSE) {
            heap::trim();
            free = self.resident_free_bytes();
        }
        self.free_bytes.store(free.unwrap_or(0), Ordering::Relaxed);
    }

    fn resident_free_bytes(&self) -> Option<u64> {
        let resident = self.resident.as_ref()?.bytes()?;
        Some(resident.saturating_sub(self.base_bytes).saturating_sub(heap::bytes()))
    }
}

/// Time at which something was last done, by whichever loop.
#[derive(Debug)]
struct LastTime {
    start: Instant,
    /// Milliseconds since the start, and one; zero before the first time.
    after_ms: AtomicU64,
}

impl LastTime {
    fn new() -> Self {
        Self { start: Instant::now(), after_ms: AtomicU64::new(0) }
    }

    /// Returns whether it was longer ago than `pause`, and then records that it is done now.
    fn passes(&self, pause: Duration) -> bool {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (now_ms, last_ms) =
            (ms(self.start.elapsed()) + 1, self.after_ms.load(Ordering::Relaxed));
        let is_late = last_ms == 0 || now_ms >= last_ms.saturating_add(ms(pause));
        let set = |last, now| {
            self.after_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        is_late && set(last_ms, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use weir_sys::poll::{POLLIN, PollFd, poll};

    use super::*;

    #[test]
    fn others_are_called_once_for_a_level_and_again_when_it_has_been_lower() {
        let shared = Shared::new(None);
        let [own, other] = [(); 2].map(|()| Arc::new(Waker::new().unwrap()));
        [&own, &other].into_iter().for_each(|waker| shared.add_loop(waker));
        let mut calls = |level| {
            shared.called_at.after_ms.store(0, Ordering::Relaxed);
            let before = shared.calls();
            assert!(shared.call_others(level, Some(&own)));
            shared.calls() - before
        };
        use MemoryLevel::*;
        let levels = [Caches, Caches, Idle, Caches, Idle, Ample];
        assert_eq!(levels.map(&mut calls), [1, 0, 1, 0, 1, 0]);
        let watch =
            |waker: &Waker| PollFd { fd: waker.as_fd().as_raw_fd(), events: POLLIN, revents: 0 };
        let mut fds = [watch(&own), watch(&other)];
        poll(&mut fds, Some(Duration::ZERO)).unwrap();
        assert_eq!(fds.map(|fd| fd.revents != 0), [false, true]);
    }

    #[test]
    fn all_are_called_again_while_memory_is_short_but_not_at_once() {
        let shared = Shared::new(None);
        assert!(shared.call_others(MemoryLevel::Caches, None));
        shared.call_again();
        assert_eq!(shared.calls(), 1);
        shared.called_at.after_ms.store(0, Ordering::Relaxed);
        shared.call_again();
        assert_eq!(shared.calls(), 2);
    }

    #[test]
    fn a_level_is_not_lost_while_the_last_call_was_a_moment_ago() {
        let shared = Shared::new(None);
        assert!(shared.call_others(MemoryLevel::Caches, None));
        shared.called_at.after_ms.store(u64::MAX / 2, Ordering::Relaxed);
        assert!(!shared.call_others(MemoryLevel::Idle, None), "too early");
        shared.called_at.after_ms.store(0, Ordering::Relaxed);
        assert!(shared.call_others(MemoryLevel::Idle, None));
        assert_eq!(shared.calls(), 2);
    }

    #[test]
    fn the_highest_level_is_told_once() {
        let shared = Shared::new(None);
        shared.note_level(MemoryLevel::Connections);
        shared.note_level(MemoryLevel::Caches);
        let reached = [(); 2].map(|()| shared.take_reached(MemoryLevel::Idle));
        assert_eq!(reached, [true, false]);
    }
}
