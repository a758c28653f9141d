//! A pool: each thread accepts as many connections as the policy allows, serves them one after the
//! other, and accepts again when all are served (the script of Knot-C's threads, pariag-accept
//! section 3.3). There each thread keeps what it accepted. Here an idle thread takes connections
//! that no thread has begun, so that none waits behind a client that is slow, or only keeps its
//! connection open, while threads have nothing to do.
//!
//! One thread at a time holds the accept lock and waits for the listeners; the others wait for the
//! lock, so that one connection wakes one thread (Apache serialises its accepts for that reason).
//! The thread releases it before it serves the first connection it accepted.
//!
//! The group's first thread serves no connection: it keeps the time and answers the main thread.
//! When the server stops, it takes the lock and accepts the rest, and the pool serves what it is
//! handed.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Condvar;
use weir_dispatch::readiness::Token;
use weir_sys::poll::POLLIN;

use super::acceptor::measure_threads;
use super::listener_poll::ListenerPoll;
use super::park::{Wait, WakeReason};
use super::shared_worker::SharedWorker;
use super::thread_pool::Id;
use crate::control::Phase;

/// Runs a thread of the pool, which accepts nothing before the server serves.
pub(super) fn run_thread(shared: &SharedWorker, id: Id) {
    shared.control.await_start();
    let mut listeners = ListenerPoll::new(&[&shared.listener_waker]);
    while let Some((token, reason)) = next(shared, &mut listeners) {
        shared.serve_connection(token, reason);
    }
    let wake = Arc::new(Condvar::new());
    while let Some(token) = shared.park(id, &wake, None) {
        shared.serve_connection(token, WakeReason::First);
    }
}

/// Runs the first thread until the server stops. Pending connections are then accepted, and the
/// listeners closed.
pub(super) fn run_timekeeper(shared: &SharedWorker) {
    let mut measured = 0;
    loop {
        let timeout = shared.with_lock(|worker| worker.sleep_time(false));
        let waker = &shared.control.waker;
        let reason = Wait::new(waker.as_fd().as_raw_fd(), POLLIN, timeout).sleep();
        if shared.control.phase() > Phase::Run {
            return close_listeners(shared);
        }
        measured = measure_threads(shared, measured);
        shared.with_lock(|worker| {
            worker.timekeeper_woke();
            if reason == WakeReason::Ready {
                worker.handle_wakeup();
            }
            worker.poll_policies();
            worker.handle_timers();
        });
    }
}

/// Takes the accept lock, so that no thread waits for a listener that is closed.
fn close_listeners(shared: &SharedWorker) {
    shared.listener_waker.wake();
    let _guard = shared.accept_lock.lock();
    shared.with_lock_when_caught_up(|worker| {
        worker.model.acceptors_serve = false;
        worker.handle_wakeup();
    });
}

/// Returns the next connection to serve, accepted earlier or now; `None` once accepting has ended.
fn next(shared: &SharedWorker, listeners: &mut ListenerPoll) -> Option<(Token, WakeReason)> {
    let accepted = shared.with_lock(|worker| worker.model.accepted.pop_front());
    accepted.or_else(|| accept(shared, listeners))
}

/// Takes the accept lock, and waits for a connection to accept.
fn accept(shared: &SharedWorker, listeners: &mut ListenerPoll) -> Option<(Token, WakeReason)> {
    let _guard = shared.accept_lock.lock();
    loop {
        let accepted = shared.with_lock(|worker| {
            let timeout = (!worker.core.deferred.is_empty()).then_some(Duration::ZERO);
            listeners.plan(worker, timeout);
            worker.model.accepted.pop_front()
        });
        if accepted.is_some() || shared.is_closing() {
            return accepted;
        }
        listeners.wait();
        if listeners.was_woken(0) {
            shared.listener_waker.clear();
        }
        shared.with_lock_when_caught_up(|worker| worker.accept_phase(&listeners.result));
    }
}
