//! The lock around a worker, and the waits for conditions inside it.
//!
//! One thread at a time has the worker. Serving a connection once or running an accept-phase makes
//! no call that waits for a client. No thread sleeps with the lock held: waits for a socket or a
//! disk happen outside, and waits for other threads release it (Condvar).
//!
//! A connection that yields hands the lock to the thread that has waited longest: a lock that is
//! free for a moment only is found taken by threads that first have to wake.
//!
//! The lock makes a worker's counters, cache and policies one, as a loop's are. It costs
//! parallelism: a worker does one thing at a time, so there are as many groups as processors, each
//! on its own (`--workers`, `--cpus`). The lock is then rarely contended: only when its holder lost
//! the processor while it held it, which is counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use weir_dispatch::readiness::Token;
use weir_sys::profile;
use weir_sys::waker::Waker;

use super::model::GroupWorker;
use super::park::{Park, WakeReason};
use super::thread_pool::Id;
use crate::control::{Control, Phase};

/// A worker behind its lock.
pub(super) struct SharedWorker {
    worker: Mutex<GroupWorker>,
    /// Notified when the worker has caught up.
    caught_up: Arc<Condvar>,
    /// Held by the one thread of a pool that may wait for the listeners and accept.
    pub(super) accept_lock: Mutex<()>,
    /// Interrupts the wait for the listeners.
    pub(super) listener_waker: Arc<Waker>,
    pub(super) control: Arc<Control>,
}

impl SharedWorker {
    pub(super) fn new(
        worker: GroupWorker,
        listener_waker: Arc<Waker>,
        control: Arc<Control>,
    ) -> Self {
        let (worker, caught_up) = (Mutex::new(worker), Arc::new(Condvar::new()));
        Self { worker, caught_up, accept_lock: Mutex::new(()), listener_waker, control }
    }

    /// Runs `act` with the worker, under the lock.
    pub(super) fn with_lock<T>(&self, act: impl FnOnce(&mut GroupWorker) -> T) -> T {
        let mut worker = self.lock();
        let result = act(&mut worker);
        self.unlock(worker);
        result
    }

    /// Serves a connection once, and returns what its thread does next. If it yields, the thread
    /// that has waited longest gets the worker first.
    fn serve(&self, token: Token, reason: WakeReason) -> Park {
        let mut worker = self.lock();
        let park = worker.serve_once(token, reason);
        self.unlock_by(worker, |worker| match park {
            Park::Yield => MutexGuard::unlock_fair(worker),
            _ => drop(worker),
        });
        park
    }

    /// Serves a connection to its end: with the lock while it makes progress, and without it during
    /// the waits.
    pub(super) fn serve_connection(&self, token: Token, mut reason: WakeReason) {
        loop {
            match self.serve(token, reason) {
                Park::Wait(wait) => reason = wait.sleep(),
                Park::Yield => {
                    // The threads that wait may need this thread's processor.
                    std::thread::yield_now();
                    reason = WakeReason::Resumed;
                }
                Park::Fetch(fetch) => {
                    fetch.run();
                    reason = WakeReason::Fetched;
                }
                Park::Gone => return,
            }
        }
    }

    /// Runs `act` with the worker once its group has caught up.
    pub(super) fn with_lock_when_caught_up<T>(&self, act: impl FnOnce(&mut GroupWorker) -> T) -> T {
        let mut worker = self.lock();
        worker.model.awaiting_catch_up += 1;
        while !worker.model.has_caught_up() {
            worker.leave();
            self.caught_up.wait(&mut worker);
            worker.enter();
        }
        worker.model.awaiting_catch_up -= 1;
        let result = act(&mut worker);
        self.unlock(worker);
        result
    }

    /// Waits for a connection to serve, for at most `timeout`. `None` if none came, or the worker
    /// has ended.
    pub(super) fn park(
        &self,
        id: Id,
        wake: &Arc<Condvar>,
        timeout: Option<Duration>,
    ) -> Option<Token> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut worker = self.lock();
        let mut job = worker.next_waiting();
        if job.is_none() && !worker.model.threads.is_over {
            worker.model.threads.park(id, wake);
            job = await_job(&mut worker, id, wake, until);
        }
        self.unlock(worker);
        job
    }

    /// Returns whether a thread of a pool is to stop accepting.
    pub(super) fn is_closing(&self) -> bool {
        self.control.phase() > Phase::Run || self.with_lock(|worker| worker.model.threads.is_over)
    }

    /// Takes the lock, even after a thread panicked while it held it.
    fn lock(&self) -> MutexGuard<'_, GroupWorker> {
        let free = self.worker.try_lock();
        let is_taken = free.is_none();
        let mut worker = free.unwrap_or_else(|| self.worker.lock());
        worker.enter();
        worker.core.context.counters.lock_contended.add(is_taken.into());
        worker
    }

    fn unlock(&self, worker: MutexGuard<'_, GroupWorker>) {
        self.unlock_by(worker, drop);
    }

    /// Releases the lock, and then wakes the threads to be woken: a thread woken earlier finds it
    /// taken.
    fn unlock_by<'m>(
        &'m self,
        mut worker: MutexGuard<'m, GroupWorker>,
        unlock: impl FnOnce(MutexGuard<'m, GroupWorker>),
    ) {
        profile::drain_into(&mut worker.core.calls);
        let wakes = std::mem::take(&mut worker.model.threads.wakes);
        let has_caught_up = worker.model.awaiting_catch_up > 0 && worker.model.has_caught_up();
        worker.leave();
        unlock(worker);
        for wake in wakes {
            wake.notify_one();
        }
        if has_caught_up {
            self.caught_up.notify_all();
        }
    }
}

/// Waits until a parked thread gets a connection, its time is up, or the worker ends.
fn await_job(
    worker: &mut MutexGuard<'_, GroupWorker>,
    id: Id,
    wake: &Condvar,
    until: Option<Instant>,
) -> Option<Token> {
    loop {
        let left =
            until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        worker.leave();
        match left {
            Duration::MAX => wake.wait(worker),
            left => drop(wake.wait_for(worker, left)),
        }
        worker.enter();
        let job = worker.model.threads.job(id);
        if job.is_some() || worker.model.threads.is_over || left.is_zero() {
            worker.model.threads.unpark(id);
            return job;
        }
    }
}
