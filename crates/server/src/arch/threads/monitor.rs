//! The lock around a group, and the ways to wait for something inside it. Knows nothing of what is
//! done with the group.
//!
//! One thread at a time has the group: what it does there, a turn of a connection or an
//! accept-phase, makes no call that waits for a client. Nobody sleeps with the lock: who waits for
//! a socket or for a disk does so outside, who waits for others gives it up (Condvar).
//!
//! The lock is what makes a group's counters, cache and policies one, as a loop's are. It costs the
//! parallelism: a group does one thing at a time, so that there are as many groups as processors,
//! each on its own (`--workers`, `--cpus`). There the lock is rarely taken when somebody wants it:
//! only when its holder lost the processor in the middle of a turn, which is counted.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use weir_dispatch::readiness::Token;
use weir_sys::event::Bell;
use weir_sys::profile;

use super::crew::Id;
use super::group::Group;
use crate::control::{Control, Phase};

/// A group behind its lock.
pub(super) struct Monitor {
    group: Mutex<Group>,
    /// Notified when the group has become calm.
    calm: Arc<Condvar>,
    /// Whoever has it may wait for the listeners and accept: one thread of a pool.
    pub(super) accept_turn: Mutex<()>,
    /// Calls away whoever waits for the listeners.
    pub(super) knock: Arc<Bell>,
    pub(super) control: Arc<Control>,
}

impl Monitor {
    pub(super) fn new(group: Group, knock: Arc<Bell>, control: Arc<Control>) -> Self {
        let (group, calm) = (Mutex::new(group), Arc::new(Condvar::new()));
        Self { group, calm, accept_turn: Mutex::new(()), knock, control }
    }

    /// Does something with the group.
    pub(super) fn turn<T>(&self, act: impl FnOnce(&mut Group) -> T) -> T {
        let mut group = self.enter();
        let result = act(&mut group);
        self.exit(group);
        result
    }

    /// Does something with the group once it is calm.
    pub(super) fn turn_when_calm<T>(&self, act: impl FnOnce(&mut Group) -> T) -> T {
        let mut group = self.enter();
        group.calm_awaited += 1;
        while !group.is_calm() {
            group.depart();
            group = self.calm.wait(group).unwrap_or_else(PoisonError::into_inner);
            group.arrive();
        }
        group.calm_awaited -= 1;
        let result = act(&mut group);
        self.exit(group);
        result
    }

    /// Waits for a connection to serve, for no longer than `patience`. `None` when none came, or it
    /// is over.
    pub(super) fn park(
        &self,
        id: Id,
        wake: &Arc<Condvar>,
        patience: Option<Duration>,
    ) -> Option<Token> {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut group = self.enter();
        let mut job = group.next_waiting();
        if job.is_none() && !group.crew.is_over {
            group.crew.park(id, wake);
            (group, job) = self.await_job(group, id, wake, until);
        }
        self.exit(group);
        job
    }

    fn await_job<'m>(
        &'m self,
        mut group: MutexGuard<'m, Group>,
        id: Id,
        wake: &Condvar,
        until: Option<Instant>,
    ) -> (MutexGuard<'m, Group>, Option<Token>) {
        loop {
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            group.depart();
            group = match left {
                Duration::MAX => wake.wait(group).unwrap_or_else(PoisonError::into_inner),
                left => wake.wait_timeout(group, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            group.arrive();
            let job = group.crew.job(id);
            if job.is_some() || group.crew.is_over || left.is_zero() {
                group.crew.unpark(id);
                return (group, job);
            }
        }
    }

    /// Whether a thread of a pool accepts nobody any more.
    pub(super) fn is_closing(&self) -> bool {
        self.control.phase() > Phase::Run || self.turn(|group| group.crew.is_over)
    }

    /// A thread that panicked in its turn has said so; the group is what it left.
    fn enter(&self) -> MutexGuard<'_, Group> {
        let (mut group, taken) = match self.group.try_lock() {
            Ok(group) => (group, false),
            Err(TryLockError::Poisoned(poisoned)) => (poisoned.into_inner(), false),
            Err(TryLockError::WouldBlock) => {
                (self.group.lock().unwrap_or_else(PoisonError::into_inner), true)
            }
        };
        group.arrive();
        group.floor.service.counters.lock_contended.add(taken.into());
        group
    }

    /// Wakes who is to wake when the lock is free: one that wakes earlier finds it taken.
    fn exit(&self, mut group: MutexGuard<'_, Group>) {
        profile::hand_over(&mut group.floor.calls);
        let wakes = std::mem::take(&mut group.crew.wakes);
        let is_calm = group.calm_awaited > 0 && group.is_calm();
        group.depart();
        drop(group);
        wakes.iter().for_each(|wake| wake.notify_one());
        if is_calm {
            self.calm.notify_all();
        }
    }
}
