//! A worker whose connections are served in the blocking style, from accept through hand-over to
//! close, by threads that share it. Nothing here locks: the caller has the worker to itself, by
//! means of a lock where there are threads, and without one in a process that serves alone.
//!
//! A connection is waited for by its own thread, in poll(2) and outside the lock. No other thread
//! may close that descriptor meanwhile: its number could be another connection's before the thread
//! looks again. To close such a connection, a thread takes it out of its slot, shuts its socket
//! down, which wakes the waiting thread, and leaves the socket among the orphaned ones. The woken
//! thread finds that its token is no longer current, and closes the socket. The thread of a
//! connection that pauses waits for no descriptor: the socket is closed at once, and the thread
//! finds that later.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use weir_dispatch::readiness::{Interest, Token};
use weir_sys::socket;
use weir_sys::waker::Waker;

use super::park::{PollResult, WakeReason};
use super::thread_pool::{Id, ThreadPool};
use crate::context::close_reason::CloseReason;
use crate::http::connection::Action;
use crate::http::socket_connection::SocketConnection;
use crate::worker::listener::Listener;
use crate::worker::{Model, Worker};

/// Time without use of a group after which all its threads count as asleep, nanoseconds.
const SWITCH_NS: u64 = 100_000;

/// A worker served by a group of threads.
pub(crate) type GroupWorker = Worker<ThreadGroup>;

/// State shared by the threads of a group.
pub(crate) struct ThreadGroup {
    /// True if the thread that accepts a connection serves it, at once where reads are eager.
    /// Otherwise each connection is handed to a thread.
    pub(crate) acceptors_serve: bool,
    /// Accepted connections, to be served by the thread that accepted them or handed over.
    pub(crate) accepted: VecDeque<(Token, WakeReason)>,
    /// The threads, if there are any.
    pub(super) threads: ThreadPool,
    /// Connections handed to a thread that has not served them yet.
    pub(super) unserved: HashSet<Token>,
    /// Number of threads that wait until the group has caught up.
    pub(super) awaiting_catch_up: u32,
    /// Wakes the thread that waits for the listeners when the set of watched ones changes.
    listener_waker: Option<Arc<Waker>>,
    /// Sockets of connections closed by a thread other than their own, until their own releases
    /// them.
    pub(super) orphaned_sockets: HashMap<Token, OwnedFd>,
    /// Slot of the connection that is being served.
    pub(super) serving: Option<u32>,
    /// Connections served since the last accept-phase, and the time at which that ended.
    pub(super) served: u64,
    phase_ended_ns: u64,
    /// True if the last accept-phase left connections pending, as far as it knows.
    pub(crate) undrained: bool,
    /// Time at which the group was last left, nanoseconds.
    left_ns: u64,
    /// Time at which the timekeeping thread wakes next, nanoseconds.
    timekeeper_wake_ns: u64,
}

impl Model for ThreadGroup {
    type Connection = SocketConnection;

    /// False: a connection is closed by the thread that waits for it.
    const CLOSES_AT_ONCE: bool = false;

    fn begin(worker: &mut Worker<Self>, slot: u32, at_once: bool) {
        let serves_now = at_once && worker.model.acceptors_serve;
        if !(serves_now && Self::serve(worker, slot)) {
            worker.enqueue(slot, if serves_now { WakeReason::Tried } else { WakeReason::First });
        }
    }

    fn serve(worker: &mut Worker<Self>, slot: u32) -> bool {
        let Some(conn) = worker.core.table.conn(slot) else { return false };
        let action = conn.proceed(&mut worker.core.context);
        close_if_over(worker, slot, action)
    }

    fn refuse_with_503(worker: &mut Worker<Self>, slot: u32) {
        let Some(conn) = worker.core.table.conn(slot) else { return };
        let action = conn.refuse_with_503(&mut worker.core.context);
        if !close_if_over(worker, slot, action) && worker.model.serving != Some(slot) {
            worker.enqueue(slot, WakeReason::Tried);
        }
    }

    /// Handles a deadline unknown to the connection's thread: no thread waits for the connection
    /// yet, or the deadline was moved during the wait, which happens only to connections that have
    /// never sent anything.
    fn expire(worker: &mut Worker<Self>, slot: u32) {
        let Some(conn) = worker.core.table.conn(slot) else { return };
        if conn.registered.is_some() && conn.has_received_bytes() {
            return;
        }
        let action = conn.expire(&mut worker.core.context);
        if !close_if_over(worker, slot, action) {
            worker.arm(slot);
        }
    }

    fn close(worker: &mut Worker<Self>, slot: u32, reason: CloseReason) {
        let Some((conn, token)) = worker.vacate(slot) else { return };
        let is_waited_for = conn.registered.is_some_and(|interest| interest != Interest::Nothing);
        let fd = conn.into_fd(reason, &mut worker.core.context);
        if is_waited_for {
            socket::shutdown_both(fd.as_fd());
            worker.model.orphaned_sockets.insert(token, fd);
        } else {
            socket::close(fd);
        }
        if worker.core.drained_by_ns.is_some() && worker.core.table.open_count() == 0 {
            worker.core.control.waker.wake();
        }
    }

    /// Closes an idle connection, but leaves a request that has arrived to the connection's thread,
    /// which is about to wake.
    fn close_idle(worker: &mut Worker<Self>, slot: u32, reason: CloseReason) {
        let Some(conn) = worker.core.table.conn(slot) else { return };
        if conn.is_idle() && !socket::has_unread(conn.fd()) {
            Self::close(worker, slot, reason);
        }
    }

    /// Returns whether to accept another connection. With eager reads, a thread that serves what it
    /// accepts stops at the first connection it must wait for, except in a drain: another would
    /// wait behind it, however long that takes.
    fn takes_more(worker: &Worker<Self>) -> bool {
        let context = &worker.core.context;
        let is_eager = worker.model.acceptors_serve && context.config.strategy.eager_read;
        !is_eager || worker.model.accepted.is_empty() || context.draining
    }

    fn has_unserved(&self) -> bool {
        !(self.unserved.is_empty() && self.accepted.is_empty())
    }

    fn watch_listener(worker: &mut Worker<Self>, _: usize, _: bool) -> io::Result<()> {
        if let Some(waker) = &worker.model.listener_waker {
            waker.wake();
        }
        Ok(())
    }

    fn close_listener(_: &mut Worker<Self>, listener: Listener) {
        listener.close();
    }

    fn count(worker: &mut Worker<Self>) {
        let threads_max = worker.model.threads.threads_max();
        worker.core.context.counters.threads_max.raise(threads_max);
    }

    fn measure(worker: &mut Worker<Self>) {
        worker.core.context.other_threads = worker.model.threads.usage();
    }
}

fn close_if_over(worker: &mut GroupWorker, slot: u32, action: Action) -> bool {
    let Action::Close(reason) = action else { return false };
    ThreadGroup::close(worker, slot, reason);
    true
}

impl ThreadGroup {
    pub(crate) fn new(acceptors_serve: bool, listener_waker: Option<Arc<Waker>>) -> Self {
        Self {
            acceptors_serve,
            accepted: VecDeque::new(),
            threads: ThreadPool::default(),
            unserved: HashSet::new(),
            awaiting_catch_up: 0,
            listener_waker,
            orphaned_sockets: HashMap::new(),
            serving: None,
            served: 0,
            phase_ended_ns: 0,
            undrained: false,
            left_ns: 0,
            timekeeper_wake_ns: 0,
        }
    }

    /// Returns whether every accepted connection has been served once, and every closed one
    /// released. Until then accepting waits, so that the queue grows where the policy sees it.
    pub(super) fn has_caught_up(&self) -> bool {
        self.unserved.is_empty() && self.orphaned_sockets.is_empty()
    }
}

impl GroupWorker {
    /// Begins a use of the group: reads the time, and counts a longer gap since the last use as
    /// sleep.
    pub(crate) fn enter(&mut self) {
        self.core.context.tick();
        // A switch between threads, or a wake-up, takes a while as well.
        if self.core.context.now_ns() > self.model.left_ns.saturating_add(SWITCH_NS) {
            self.core.note_sleep(self.model.left_ns);
        }
    }

    /// Ends a use of the group, and publishes what it has changed.
    pub(crate) fn leave(&mut self) {
        if self.core.publisher.has_changed(&self.core.context.counters) {
            self.publish();
        }
        self.model.left_ns = self.core.context.read_clock_ns();
    }

    /// Adds the calling thread to the group. The greatest number of threads is published at once:
    /// a group that no client comes to would not publish it before it ends.
    pub(super) fn join_thread(&mut self, id: Id) {
        let threads_max = self.model.threads.threads_max();
        self.model.threads.join(id);
        if self.model.threads.threads_max() > threads_max {
            self.publish();
        }
    }

    /// Returns how long the timekeeping thread may sleep now. `deferred`: deferred connections keep
    /// it from sleeping.
    pub(super) fn sleep_time(&mut self, deferred: bool) -> Option<Duration> {
        let sleep = if deferred { self.core.sleep_max() } else { self.core.due_in() };
        let now_ns = self.core.context.now_ns();
        self.model.timekeeper_wake_ns =
            sleep.map_or(u64::MAX, |sleep| now_ns + sleep.as_nanos() as u64);
        sleep
    }

    /// Notes that the timekeeping thread is awake.
    pub(super) fn timekeeper_woke(&mut self) {
        self.model.timekeeper_wake_ns = 0;
    }

    /// Runs one iteration of the acceptor: accepts at ready listeners, as the policies allow, and
    /// begins to serve deferred connections.
    pub(crate) fn accept_phase(&mut self, poll: &PollResult) {
        self.note_iteration(poll);
        self.core.accepts_pending = false;
        self.model.undrained = false;
        for &index in &poll.listeners {
            let outcome = self.accept(index);
            self.model.undrained |= outcome.accepted > 0 && !outcome.drained;
        }
        self.end_accept_phase();
        self.model.phase_ended_ns = self.core.context.read_clock_ns();
        self.model.served = 0;
        self.wake_timekeeper();
    }

    /// Hands connections to parked threads. Returns those left over, for which the caller starts
    /// new threads.
    pub(super) fn assign(&mut self) -> Vec<Token> {
        let retried = if self.core.paused_until_ns.is_none() {
            std::mem::take(&mut self.model.threads.waiting)
        } else {
            VecDeque::new()
        };
        let mut unassigned = Vec::new();
        for token in
            retried.into_iter().chain(self.model.accepted.drain(..).map(|(token, _)| token))
        {
            if !self.core.table.is_current(token) {
                continue;
            }
            self.model.unserved.insert(token);
            if !self.model.threads.give(token) {
                unassigned.push(token);
            }
        }
        unassigned
    }

    /// Queues a connection for which no thread is available.
    pub(super) fn requeue(&mut self, token: Token) {
        self.model.unserved.remove(&token);
        self.model.threads.waiting.push_back(token);
        self.arm(token.slot);
    }

    /// Removes and returns a connection that waits for a thread.
    pub(super) fn next_waiting(&mut self) -> Option<Token> {
        self.model.threads.waiting.pop_front()
    }

    /// Arms the timer of a connection that no thread waits for.
    pub(super) fn arm(&mut self, slot: u32) {
        let Some(conn) = self.core.table.conn(slot) else { return };
        self.core.timers.arm(slot, conn.deadline_ns());
    }

    /// Wakes the timekeeping thread if something is due before it would wake.
    pub(super) fn wake_timekeeper(&mut self) {
        let due_ns = self.core.upkeep_ns();
        if let Some(due_ns) = due_ns.filter(|&due_ns| due_ns < self.model.timekeeper_wake_ns) {
            self.model.timekeeper_wake_ns = due_ns;
            self.core.control.waker.wake();
        }
    }

    /// Records the connections served since the last accept-phase as the work-phase, if connections
    /// were waiting for its end.
    fn note_iteration(&mut self, poll: &PollResult) {
        let core = &mut self.core;
        core.iterations += poll.iterations;
        core.context.counters.getevents_calls.add(poll.iterations);
        core.context.counters.getevents_ready.add(poll.ready);
        core.work_items = if poll.was_pending { self.model.served } else { 0 };
        core.work_ns = match core.work_items {
            0 | 1 => 0,
            _ => core.context.now_ns().saturating_sub(self.model.phase_ended_ns),
        };
        core.served += self.model.served;
        core.served_ns += core.work_ns;
    }

    /// Queues a connection for a thread: this one or another.
    fn enqueue(&mut self, slot: u32, reason: WakeReason) {
        let token = self.core.table.token(slot);
        self.model.accepted.push_back((token, reason));
    }
}
