//! The first thread of a group: accepts, hands each connection to a thread of its own, keeps the
//! time and answers the main thread. It serves no connection.
//!
//! It begins an accept-phase only when the connections accepted in the last one have had their
//! first service. A thread that accepts whenever it runs would move the whole queue into the
//! server, with a thread for each connection. So the queue stays in the kernel, where its length is
//! known and refusing is cheap, and the time between two accept-phases is the work-phase that the
//! policies know.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Condvar;
use weir_dispatch::readiness::Token;

use super::listener_poll::ListenerPoll;
use super::model::{GroupWorker, ThreadGroup};
use super::park::WakeReason;
use super::shared_worker::SharedWorker;
use super::thread_pool::{Id, ThreadUsage};
use super::thread_spawner::ThreadSpawner;
use crate::context::close_reason::CloseReason;
use crate::worker::{Model, Worker};

/// Time for which an idle thread is kept.
const IDLE_THREAD_MAX: Duration = Duration::from_secs(10);

/// Index of the main thread's waker among those that interrupt the acceptor; the other is the
/// group's own.
const MAIN_WAKER: usize = 0;

/// Accepts until the server stops. `starts`: threads may be started for accepted connections.
pub(super) fn run_acceptor(shared: &SharedWorker, spawner: &mut ThreadSpawner, starts: bool) {
    let mut listeners = ListenerPoll::new(&[&shared.control.waker, &shared.listener_waker]);
    let mut measured = 0;
    while shared.with_lock(|worker| plan(worker, &mut listeners)) {
        listeners.wait();
        shared.listener_waker.clear();
        measured = measure_threads(shared, measured);
        let unassigned =
            shared.with_lock_when_caught_up(|worker| run_iteration(worker, &listeners));
        for token in unassigned {
            start_thread_for(shared, spawner, token, starts);
        }
        spawner.join_ended();
    }
}

/// Closes every connection, ends the threads, and reports the counters.
pub(super) fn end(shared: &SharedWorker, spawner: ThreadSpawner) {
    shared.with_lock(|worker| {
        worker.core.context.draining = true;
        let all = worker.core.table.find(0, usize::MAX, |_| true);
        all.into_iter().for_each(|slot| ThreadGroup::close(worker, slot, CloseReason::Drained));
    });
    spawner.shutdown();
    shared.with_lock(Worker::end);
}

/// Measures the usage of all threads if a report is requested after request `measured`, and returns
/// the number of the last request. There may be many threads, so they are measured without the
/// lock.
pub(super) fn measure_threads(shared: &SharedWorker, measured: u64) -> u64 {
    let report_request = shared.control.report_request();
    if report_request > measured {
        measure(shared);
    }
    report_request
}

fn measure(shared: &SharedWorker) {
    let live = shared.with_lock(|worker| worker.model.threads.live.clone());
    let usage = live.into_iter().map(|(id, thread)| (id, ThreadUsage::of(thread))).collect();
    shared.with_lock(|worker| {
        worker.model.threads.usage_by_id = usage;
        let live = &worker.model.threads.live;
        worker.model.threads.usage_by_id.retain(|id, _| live.contains_key(id));
    });
}

fn plan(worker: &mut GroupWorker, listeners: &mut ListenerPoll) -> bool {
    let timeout = worker.sleep_time(true);
    listeners.plan(worker, timeout);
    !worker.core.is_over()
}

/// Runs one iteration. Returns the connections that need a new thread.
fn run_iteration(worker: &mut GroupWorker, listeners: &ListenerPoll) -> Vec<Token> {
    worker.timekeeper_woke();
    if listeners.was_woken(MAIN_WAKER) {
        worker.handle_wakeup();
    }
    worker.accept_phase(&listeners.result);
    worker.handle_timers();
    worker.assign()
}

/// Starts a thread for a connection. If none is available, accepting pauses, and the connection
/// waits.
fn start_thread_for(
    shared: &SharedWorker,
    spawner: &mut ThreadSpawner,
    token: Token,
    starts: bool,
) {
    if !starts {
        return shared.with_lock(|worker| worker.requeue(token));
    }
    if let Err(error) = spawner.spawn(move |shared, id| run_thread(shared, id, token)) {
        let error = io::Error::other(format!("no thread is available: {error}"));
        shared.with_lock(|worker| {
            worker.requeue(token);
            worker.pause_after_error(&error);
        });
    }
}

/// Runs a thread: serves one connection, and then others, until there is none for
/// [`IDLE_THREAD_MAX`].
fn run_thread(shared: &SharedWorker, id: Id, first: Token) {
    let wake = Arc::new(Condvar::new());
    let mut next = Some(first);
    while let Some(token) = next {
        shared.serve_connection(token, WakeReason::First);
        next = shared.park(id, &wake, Some(IDLE_THREAD_MAX));
    }
}
