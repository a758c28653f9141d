//! The lock around a group, and the waits for conditions inside it. Knows nothing of what is done
//! with the group.
//!
//! One thread at a time has the group. Its work there, a turn of a connection or an accept-phase,
//! makes no call that waits for a client. No thread sleeps with the lock held: waits for a socket
//! or a disk happen outside, and waits for other threads release it (Condvar).
//!
//! A connection that yields hands the lock to the thread that has waited longest: a lock that is
//! free for a moment only is found taken by threads that first have to wake.
//!
//! The lock makes a group's counters, cache and policies one, as a loop's are. It costs
//! parallelism: a group does one thing at a time, so there are as many groups as processors, each
//! on its own (`--workers`, `--cpus`). The lock is then rarely contended: only when its holder lost
//! the processor in the middle of a turn, which is counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use weir_dispatch::readiness::Token;
use weir_sys::profile;
use weir_sys::waker::Waker;

use super::crew::Id;
use super::group::Group;
use super::wait::{News, Rest};
use crate::control::{Control, Phase};

/// A group behind its lock.
pub(super) struct Monitor {
    group: Mutex<Group>,
    /// Notified when the group has become calm.
    calm: Arc<Condvar>,
    /// Held by the one thread of a pool that may wait for the listeners and accept.
    pub(super) accept_turn: Mutex<()>,
    /// Interrupts the wait for the listeners.
    pub(super) knock: Arc<Waker>,
    pub(super) control: Arc<Control>,
}

impl Monitor {
    pub(super) fn new(group: Group, knock: Arc<Waker>, control: Arc<Control>) -> Self {
        let (group, calm) = (Mutex::new(group), Arc::new(Condvar::new()));
        Self { group, calm, accept_turn: Mutex::new(()), knock, control }
    }

    /// Runs `act` with the group.
    pub(super) fn turn<T>(&self, act: impl FnOnce(&mut Group) -> T) -> T {
        let mut group = self.enter();
        let result = act(&mut group);
        self.exit(group);
        result
    }

    /// Gives a connection its turn, and returns what it does next. If it yields, the thread that
    /// has waited longest gets the group first.
    pub(super) fn serve(&self, token: Token, news: News) -> Rest {
        let mut group = self.enter();
        let rest = group.take_turn(token, news);
        self.exit_by(group, |group| match rest {
            Rest::Yield => MutexGuard::unlock_fair(group),
            _ => drop(group),
        });
        rest
    }

    /// Runs `act` with the group once that is calm.
    pub(super) fn turn_when_calm<T>(&self, act: impl FnOnce(&mut Group) -> T) -> T {
        let mut group = self.enter();
        group.calm_awaited += 1;
        while !group.is_calm() {
            group.depart();
            self.calm.wait(&mut group);
            group.arrive();
        }
        group.calm_awaited -= 1;
        let result = act(&mut group);
        self.exit(group);
        result
    }

    /// Waits for a connection to serve, for at most `patience`. `None` if none came, or the group
    /// has ended.
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
            job = await_job(&mut group, id, wake, until);
        }
        self.exit(group);
        job
    }

    /// Returns whether a thread of a pool is to stop accepting.
    pub(super) fn is_closing(&self) -> bool {
        self.control.phase() > Phase::Run || self.turn(|group| group.crew.is_over)
    }

    /// Takes the lock. A thread that panicked in its turn has reported it; the group is as it left
    /// it.
    fn enter(&self) -> MutexGuard<'_, Group> {
        let free = self.group.try_lock();
        let is_taken = free.is_none();
        let mut group = free.unwrap_or_else(|| self.group.lock());
        group.arrive();
        group.floor.service.counters.lock_contended.add(is_taken.into());
        group
    }

    fn exit(&self, group: MutexGuard<'_, Group>) {
        self.exit_by(group, drop);
    }

    /// Releases the lock, and then wakes the threads to be woken: a thread woken earlier finds it
    /// taken.
    fn exit_by<'m>(
        &'m self,
        mut group: MutexGuard<'m, Group>,
        unlock: impl FnOnce(MutexGuard<'m, Group>),
    ) {
        profile::drain_into(&mut group.floor.calls);
        let wakes = std::mem::take(&mut group.crew.wakes);
        let is_calm = group.calm_awaited > 0 && group.is_calm();
        group.depart();
        unlock(group);
        for wake in wakes {
            wake.notify_one();
        }
        if is_calm {
            self.calm.notify_all();
        }
    }
}

/// Waits until a parked thread gets a connection, its time is up, or the group ends.
fn await_job(
    group: &mut MutexGuard<'_, Group>,
    id: Id,
    wake: &Condvar,
    until: Option<Instant>,
) -> Option<Token> {
    loop {
        let left =
            until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        group.depart();
        match left {
            Duration::MAX => wake.wait(group),
            left => drop(wake.wait_for(group, left)),
        }
        group.arrive();
        let job = group.crew.job(id);
        if job.is_some() || group.crew.is_over || left.is_zero() {
            group.crew.unpark(id);
            return job;
        }
    }
}
