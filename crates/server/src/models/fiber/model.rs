//! State shared by the fibers of a thread, with the waiting fibers. It is borrowed only between two
//! switches: a fiber that waits holds no borrow. Nothing here switches to a fiber.

use std::collections::VecDeque;
use std::io;

use weir_dispatch::readiness::{Mechanism, Token};
use weir_sys::fiber_stack::FiberStack;

use super::run_queue::RunQueue;
use super::scheduler::FiberId;
use super::stacks::Stacks;
use crate::context::close_reason::CloseReason;
use crate::http::connection::Action;
use crate::http::connection_io::ConnectionIo;
use crate::http::socket_connection::SocketConnection;
use crate::models::readiness_driver::{Driven, ReadinessDriver, TokenOwner, owner};
use crate::stat_page;
use crate::worker::core::Work;
use crate::worker::listener::Listener;
use crate::worker::phase_times::LoopPhase;
use crate::worker::{Model, Worker};

/// Pause after which the kernel is asked again for a stack that it had no memory for, nanoseconds.
const STACK_PAUSE_NS: u64 = 100_000_000;

/// A connection to be served by a fiber.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub token: Token,
    /// True if it is read now instead of when it is ready.
    pub at_once: bool,
}

/// A fiber to be created.
pub(super) struct NewFiber {
    pub stack: FiberStack,
    pub task: Task,
}

/// State shared by the fibers of a thread.
pub(crate) struct FiberModel<M> {
    pub(super) driver: ReadinessDriver<M>,
    run_queue: RunQueue,
    /// Listeners with a pending connection.
    ready_listeners: VecDeque<usize>,
    /// True with a fixed number of fibers; otherwise there is one per connection.
    has_pool: bool,
    /// Connections accepted in a pool and not yet taken by a fiber.
    accepted: VecDeque<Task>,
    /// Connections accepted without a pool, for each of which a fiber is created.
    new_fibers: Vec<NewFiber>,
    stacks: Stacks,
    /// Connections that yielded in earlier iterations and may resume in this one.
    resumable: usize,
    /// Work of this iteration so far.
    work: Work,
    /// True once every fiber is to end.
    is_over: bool,
}

impl<M: Mechanism> Model for FiberModel<M> {
    type Connection = SocketConnection;

    fn begin(worker: &mut Worker<Self>, slot: u32, at_once: bool) {
        let task = Task { token: worker.core.table.token(slot), at_once };
        if worker.model.has_pool {
            return worker.model.accepted.push_back(task);
        }
        match worker.model.stacks.take() {
            Ok(stack) => worker.model.new_fibers.push(NewFiber { stack, task }),
            Err(error) => worker.close_without_stack(slot, &error),
        }
    }

    fn serve(worker: &mut Worker<Self>, slot: u32) -> bool {
        worker.act(slot, SocketConnection::proceed)
    }

    fn refuse_with_503(worker: &mut Worker<Self>, slot: u32) {
        worker.act(slot, SocketConnection::refuse_with_503);
    }

    fn expire(worker: &mut Worker<Self>, slot: u32) {
        let Some(conn) = worker.core.table.conn(slot) else { return };
        let is_watched = conn.registered.is_some();
        // In a pool it may wait for its fiber, which then arms its deadline, and not for its
        // client. One that has a fiber need not be watched: it may wait for an upstream alone.
        if !worker.model.has_pool || is_watched || worker.model.run_queue.has_waiting_at_slot(slot)
        {
            worker.act(slot, SocketConnection::expire);
        }
    }

    fn close(worker: &mut Worker<Self>, slot: u32, reason: CloseReason) {
        if worker.forget_and_close(slot, reason) {
            // Its fiber finds it closed.
            worker.model.run_queue.wake_at_slot(slot);
        }
    }

    fn listener_drained(worker: &mut Worker<Self>, index: usize) {
        worker.model.driver.listener_drained(&worker.core, index);
    }

    fn watch_listener(worker: &mut Worker<Self>, index: usize, wanted: bool) -> io::Result<()> {
        worker.model.driver.watch_listener(&worker.core, index, wanted)
    }

    fn close_listener(worker: &mut Worker<Self>, listener: Listener) {
        worker.model.driver.close_listener(listener);
    }

    fn can_accept(&self) -> bool {
        !self.has_pool || self.run_queue.has_waiting_at_listeners()
    }

    fn count(worker: &mut Worker<Self>) {
        worker.model.driver.count(&mut worker.core);
    }
}

impl<M: Mechanism> Driven for FiberModel<M> {
    type Mechanism = M;

    fn driver(&mut self) -> &mut ReadinessDriver<M> {
        &mut self.driver
    }
}

impl<M> FiberModel<M> {
    pub(super) fn new(driver: ReadinessDriver<M>, stacks: Stacks, has_pool: bool) -> Self {
        Self {
            driver,
            run_queue: RunQueue::default(),
            ready_listeners: VecDeque::new(),
            has_pool,
            accepted: VecDeque::new(),
            new_fibers: Vec::new(),
            stacks,
            resumable: 0,
            work: Work::default(),
            is_over: false,
        }
    }
}

/// Operations of the thread between two switches.
impl<M: Mechanism> Worker<FiberModel<M>> {
    /// Polls the mechanism, and makes the fibers that waited for ready connections runnable: first
    /// the accepting fiber, then the others in the order reported.
    pub(super) fn getevents_phase(&mut self) {
        if self.model.has_pool {
            self.watch_listeners(true);
        }
        self.model.driver.getevents_phase(&mut self.core);
        self.core.enter_phase(LoopPhase::Work);
        self.model.resumable = self.model.driver.yielded();
        self.model.work = Work::default();
        self.model.ready_listeners.clear();
        let mut ready = std::mem::take(&mut self.model.driver.ready);
        ready.iter().for_each(|&token| self.note_ready(token));
        self.model.driver.take_fetched(&mut ready);
        if self.must_accept() {
            self.wake_acceptor();
        }
        ready.drain(..).for_each(|token| self.wake(token));
        self.model.driver.ready = ready;
        while let Some(token) = self.next_granted().or_else(|| self.next_landed()) {
            self.run_fiber_of(token);
        }
        self.note_runnable();
    }

    /// Answers the waker, or notes a listener with a pending connection.
    fn note_ready(&mut self, token: Token) {
        match owner(&self.core.table, token) {
            TokenOwner::Waker => self.handle_waker(),
            TokenOwner::Listener(index) => self.model.ready_listeners.push_back(index),
            TokenOwner::Connection | TokenOwner::Upstream(_) => {}
        }
    }

    fn handle_waker(&mut self) {
        self.handle_wakeup();
        self.model.driver.waker_cleared();
        self.take_upstream_mail();
        // A drain accepts pending connections outside any fiber.
        (0..self.model.accepted.len()).for_each(|_| self.wake_acceptor());
    }

    /// Returns whether there is work for an accepting fiber.
    fn must_accept(&self) -> bool {
        let core = &self.core;
        let now_ns = core.context.now_ns();
        let is_due = |listener: &Listener| listener.due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        !self.model.ready_listeners.is_empty()
            || !core.deferred.is_empty()
            || core.listeners.iter().any(is_due)
    }

    /// Makes the fiber that waits for the connection runnable, or for one of an upstream that of
    /// its client. A connection without a fiber is being refused, and is served here.
    fn wake(&mut self, token: Token) {
        let (token, _) = self.client_of(token);
        if self.model.driver.may_be_served(&mut self.core, token) {
            self.run_fiber_of(token);
        }
    }

    fn run_fiber_of(&mut self, token: Token) {
        if !self.model.run_queue.wake_at_slot(token.slot) {
            FiberModel::serve(self, token.slot);
        }
    }

    fn wake_acceptor(&mut self) {
        self.model.run_queue.wake_at_listeners(self.core.iterations);
    }

    fn note_runnable(&mut self) {
        let runnable = self.model.run_queue.runnable() as u64;
        let counters = &mut self.core.context.counters;
        counters.fibers_runnable.add(runnable);
        counters.fibers_runnable_max.raise(runnable);
    }

    /// Returns the next fiber to run. Once all ready fibers have run, yielded connections resume.
    pub(super) fn next(&mut self) -> Option<FiberId> {
        if self.core.is_long(&mut self.model.work) {
            self.cut_work();
        }
        let mut fiber = self.model.run_queue.next();
        while fiber.is_none() && self.model.resumable > 0 {
            self.model.resumable -= 1;
            let token = self.model.driver.resume_next(&mut self.core)?;
            self.run_fiber_of(token);
            fiber = self.model.run_queue.next();
        }
        let fiber = fiber?;
        self.core.context.counters.fiber_switches.one();
        self.publish_after(stat_page::SERVED);
        Some(fiber)
    }

    /// Runs the other phases of an iteration in the middle of long work; an accepting fiber runs
    /// next.
    fn cut_work(&mut self) {
        self.core.cut_work(self.model.work, self.model.run_queue.runnable());
        self.model.driver.note_waiting_handshakes(&mut self.core);
        self.model.work = Work::default();
        self.handle_waker();
        let mut fetched = Vec::new();
        self.model.driver.take_fetched(&mut fetched);
        fetched.into_iter().for_each(|token| self.wake(token));
        self.handle_timers();
        let listeners = self.core.listeners.iter().enumerate();
        self.model.ready_listeners.clear();
        self.model
            .ready_listeners
            .extend(listeners.filter(|(_, listener)| listener.watched).map(|(index, _)| index));
        if self.must_accept() {
            self.model.run_queue.wake_first_at_listeners(self.core.iterations);
        }
    }

    /// Returns a fiber to be created, the last one first: each is then put before the others.
    pub(super) fn next_new_fiber(&mut self) -> Option<NewFiber> {
        self.model.new_fibers.pop()
    }

    /// Puts a new fiber at the front of the run queue; `alive` fibers exist.
    pub(super) fn fiber_started(&mut self, fiber: FiberId, alive: usize) {
        self.model.run_queue.push_front(fiber);
        self.note_spawned(alive);
    }

    /// Makes a new fiber wait for a connection to accept; `alive` fibers exist.
    pub(super) fn acceptor_started(&mut self, fiber: FiberId, alive: usize) {
        self.model.run_queue.wait_at_listeners(fiber, 0);
        self.note_spawned(alive);
    }

    fn note_spawned(&mut self, alive: usize) {
        let counters = &mut self.core.context.counters;
        counters.fibers_begun.one();
        counters.fibers_max.raise(alive as u64);
    }

    /// Counts a fiber that has ended, and takes back its stack.
    pub(super) fn fiber_ended(&mut self, stack: FiberStack) {
        self.core.context.counters.fibers_ended.one();
        self.core.deferred_until_ns = None;
        self.model.stacks.give_back(stack);
    }

    /// Takes a stack for a fiber.
    ///
    /// # Errors
    /// ENOMEM: [`Stacks::take`].
    pub(super) fn take_stack(&mut self) -> io::Result<FiberStack> {
        self.model.stacks.take()
    }

    /// Ends an iteration in which every runnable fiber has run.
    pub(super) fn end_iteration(&mut self) {
        self.core.note_work(self.model.work);
    }

    /// Makes each fiber end when it is next switched to.
    pub(super) fn end_fibers(&mut self) {
        self.model.is_over = true;
        self.model.new_fibers.clear();
    }

    /// Refuses an accepted connection for which there is no stack, and pauses accepting until
    /// others have ended.
    fn close_without_stack(&mut self, slot: u32, error: &io::Error) {
        if let Some(conn) = self.core.table.conn(slot) {
            conn.reset_on_close();
        }
        FiberModel::close(self, slot, CloseReason::Failed);
        self.free_descriptors(error);
        if self.core.paused_until_ns.is_none() {
            self.pause_after_error(error);
        }
    }
}

/// Operations of a fiber between two switches.
impl<M: Mechanism> Worker<FiberModel<M>> {
    /// Returns whether fibers are to end.
    pub(super) fn is_over(&self) -> bool {
        self.model.is_over
    }

    /// Registers a fiber about to wait until a connection is ready or closed.
    pub(super) fn wait_for(&mut self, token: Token, fiber: FiberId) {
        self.model.run_queue.wait_at_slot(token.slot, fiber);
    }

    /// Registers a fiber about to wait for a connection to accept; keeps it runnable if some are
    /// already accepted.
    pub(super) fn wait_at_listeners(&mut self, fiber: FiberId) {
        if self.model.accepted.is_empty() {
            self.model.run_queue.wait_at_listeners(fiber, self.core.iterations);
        } else {
            self.model.run_queue.push_back(fiber);
        }
    }

    /// Registers a fiber about to wait until the fibers yet to be created have run.
    pub(super) fn run_after_new_fibers(&mut self, fiber: FiberId) {
        self.model.run_queue.push_front(fiber);
    }

    /// Returns whether the last accepted connection is to be served before another is accepted.
    pub(super) fn last_is_read_at_once(&self) -> bool {
        self.model.new_fibers.last().is_some_and(|new| new.task.at_once)
    }

    /// Returns whether a deferred connection can be served now: handshakes have not used up their
    /// share of the iteration, and there is a stack. Without one the loop may sleep until one is
    /// given back, or until the kernel is asked again. A pause in accepting does not matter to the
    /// connection: it has its slot and its descriptor, which others may wait for.
    pub(super) fn may_serve_deferred(&mut self) -> bool {
        self.core.deferred_until_ns = None;
        if self.core.context.tls_budget.is_spent() {
            return false;
        }
        let has_one = self.model.stacks.has_one();
        if !has_one && !self.core.deferred.is_empty() {
            self.core.deferred_until_ns = Some(self.core.context.now_ns() + STACK_PAUSE_NS);
        }
        has_one
    }

    /// Returns a listener with a pending connection, each once per iteration.
    pub(super) fn next_ready_listener(&mut self) -> Option<usize> {
        self.model.ready_listeners.pop_front()
    }

    /// Takes a connection already accepted, or runs one accept-phase and takes all it accepted.
    /// Wakes another accepting fiber if more are pending.
    pub(super) fn take_accepted(&mut self) -> VecDeque<Task> {
        if let Some(task) = self.model.accepted.pop_front() {
            return VecDeque::from([task]);
        }
        let Some(index) = self.next_ready_listener() else { return VecDeque::new() };
        let outer = self.core.enter_phase(LoopPhase::Accept);
        let outcome = self.accept(index);
        self.core.enter_phase(outer);
        if outcome.accepted > 0 && !outcome.drained {
            self.model.ready_listeners.push_back(index);
        }
        if !self.model.ready_listeners.is_empty() {
            self.wake_acceptor();
        }
        std::mem::take(&mut self.model.accepted)
    }

    /// Begins to serve a connection taken by a fiber; returns whether it is still open.
    pub(super) fn begin_task(&mut self, task: Task) -> bool {
        let Task { token, at_once } = task;
        if self.is_open(token) {
            if at_once {
                FiberModel::serve(self, token.slot);
            } else {
                self.settle(token.slot, Action::Read);
            }
        }
        self.is_open(token)
    }

    /// Serves a ready connection; returns whether it is still open.
    pub(super) fn work(&mut self, token: Token) -> bool {
        if !self.is_open(token) {
            return false;
        }
        if self.model.work.items == 0 {
            self.model.work = self.core.begin_work(1 + self.model.run_queue.runnable());
        }
        self.model.work.items += 1;
        if self.admit_request(token) && FiberModel::serve(self, token.slot) {
            self.accept_after_close();
        }
        self.is_open(token)
    }

    fn is_open(&self, token: Token) -> bool {
        !self.model.is_over && self.core.table.is_current(token)
    }
}
