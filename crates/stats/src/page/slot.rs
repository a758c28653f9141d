//! A slot: the numbers of one loop, or of one child process, and its single writer.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::words::Words;

/// Numbers before the counters of a slot: two cache lines.
pub const HEAD_WORDS: usize = 16;

/// Number of copies tried before a slot counts as busy. A publication takes a fraction of the time
/// of a copy, so that more are needed only while the writer does not run.
const TRIES: u32 = 64;

/// Indices of the numbers of a slot's head.
mod at {
    pub(super) const SEQUENCE: usize = 0;
    pub(super) const PUBLISHED_NS: usize = 1;
    pub(super) const STATE: usize = 2;
    pub(super) const WORKER: usize = 3;
    pub(super) const PID: usize = 4;
    pub(super) const TID: usize = 5;
    pub(super) const HAS_THREADS: usize = 6;
    pub(super) const USAGE: usize = 7;
}

/// State of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nobody writes it.
    #[default]
    Free,
    /// Its owner runs. Processor times and context switches are the kernel's to tell.
    Live,
    /// Its numbers are final, those that the kernel counts included.
    Ended,
}

/// Processor time and context switches of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User time, nanoseconds.
    pub user_ns: u64,
    /// System time, nanoseconds.
    pub system_ns: u64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
}

/// Returns the name of the threads that do the work of a worker besides its first: at most 15 bytes
/// (pthread_setname_np(3)) for a worker below 1000.
pub fn thread_name(worker: usize) -> String {
    format!("weir-thread-{worker}")
}

impl Usage {
    /// Returns the sum of two usages.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_add(other.user_ns),
            system_ns: self.system_ns.saturating_add(other.system_ns),
            voluntary: self.voluntary.saturating_add(other.voluntary),
            involuntary: self.involuntary.saturating_add(other.involuntary),
        }
    }
}

/// Owner of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// State of the slot.
    pub state: State,
    /// Index of the worker that the numbers belong to.
    pub worker: u64,
    /// Process id of the owner, as in /proc; 0 without a thread of its own.
    pub pid: u64,
    /// Thread id of the owner, as in /proc.
    pub tid: u64,
    /// True if other threads of the process, named after the worker, do its work.
    pub has_threads: bool,
    /// Usage of such threads that have ended.
    pub usage_of_ended: Usage,
}

/// Numbers of a slot at one publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotCopy {
    pub(super) owner: Owner,
    /// Time of the publication by the owner's clock, nanoseconds of CLOCK_MONOTONIC.
    pub(super) published_ns: u64,
    /// Counters, a count and a time for each call, and the upstreams.
    pub(super) values: Vec<u64>,
}

/// The writing side of a slot. Only one exists at a time.
#[derive(Clone, Copy, Debug)]
pub struct SlotWriter<'a> {
    words: &'a [AtomicU64],
}

impl<'a> SlotWriter<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Publishes numbers: the counters, and then the calls and the upstreams.
    #[inline]
    pub fn publish<const N: usize>(&self, published_ns: u64, counters: &[u64; N], rest: &[u64]) {
        self.write(|words| store_values(words, published_ns, counters, rest));
    }

    /// Publishes the last numbers of an owner, those that the kernel counts included.
    pub fn finish<const N: usize>(&self, published_ns: u64, counters: &[u64; N], rest: &[u64]) {
        self.write(|words| {
            store_values(words, published_ns, counters, rest);
            words[at::STATE].store(State::Ended as u64, Ordering::Relaxed);
        });
    }

    /// Replaces the owner, and keeps the numbers.
    pub fn set_owner(&self, owner: &Owner) {
        let usage = &owner.usage_of_ended;
        let usage = [usage.user_ns, usage.system_ns, usage.voluntary, usage.involuntary];
        self.write(|words| {
            let store = |index: usize, value| words[index].store(value, Ordering::Relaxed);
            store(at::STATE, owner.state as u64);
            store(at::WORKER, owner.worker);
            store(at::PID, owner.pid);
            store(at::TID, owner.tid);
            store(at::HAS_THREADS, owner.has_threads.into());
            (at::USAGE..).zip(usage).for_each(|(index, value)| store(index, value));
        });
    }

    /// Frees the slot, with all its numbers zero.
    pub fn free(&self) {
        self.write(|words| {
            words[1..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        });
    }

    /// Returns the counters, and then the rest, as their last writer left them. They may be of
    /// two publications if that writer was killed in the middle of one.
    pub fn values(&self) -> Vec<u64> {
        self.words[HEAD_WORDS..].iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[inline]
    fn write(&self, store: impl FnOnce(&[AtomicU64])) {
        let sequence = &self.words[at::SEQUENCE];
        // Odd already if the last writer was killed: still another number, and still odd.
        let odd = (sequence.load(Ordering::Relaxed) + 1) | 1;
        sequence.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        store(self.words);
        sequence.store(odd + 1, Ordering::Release);
    }
}

#[inline]
fn store_values<const N: usize>(
    words: &[AtomicU64],
    published_ns: u64,
    counters: &[u64; N],
    rest: &[u64],
) {
    words[at::PUBLISHED_NS].store(published_ns, Ordering::Relaxed);
    let Some((first, last)) = words[HEAD_WORDS..].split_at_checked(N) else { return };
    for (word, value) in first.iter().zip(counters) {
        word.store(*value, Ordering::Relaxed);
    }
    for (word, value) in last.iter().zip(rest) {
        word.store(*value, Ordering::Relaxed);
    }
}

/// Returns a copy of the slot that begins at an index, with `values` numbers behind its head, as of
/// one publication; `None` if every try met another.
pub(super) fn copy(words: &(impl Words + ?Sized), first: usize, values: usize) -> Option<SlotCopy> {
    for _ in 0..TRIES {
        let before = words.load(first + at::SEQUENCE)?;
        fence(Ordering::Acquire);
        if before % 2 == 1 {
            std::hint::spin_loop();
            continue;
        }
        let copy = copy_once(words, first, values)?;
        fence(Ordering::Acquire);
        if words.load(first + at::SEQUENCE)? == before {
            return Some(copy);
        }
    }
    None
}

fn copy_once(words: &(impl Words + ?Sized), first: usize, values: usize) -> Option<SlotCopy> {
    let number = |index: usize| words.load(first + index);
    let owner = Owner {
        state: match number(at::STATE)? {
            0 => State::Free,
            1 => State::Live,
            _ => State::Ended,
        },
        worker: number(at::WORKER)?,
        pid: number(at::PID)?,
        tid: number(at::TID)?,
        has_threads: number(at::HAS_THREADS)? != 0,
        usage_of_ended: Usage {
            user_ns: number(at::USAGE)?,
            system_ns: number(at::USAGE + 1)?,
            voluntary: number(at::USAGE + 2)?,
            involuntary: number(at::USAGE + 3)?,
        },
    };
    let published_ns = number(at::PUBLISHED_NS)?;
    let values = (0..values).map(|index| number(HEAD_WORDS + index)).collect::<Option<_>>()?;
    Some(SlotCopy { owner, published_ns, values })
}
