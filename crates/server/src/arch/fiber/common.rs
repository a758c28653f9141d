//! State shared by the fibers of a thread, with the waiting fibers. It is borrowed only between two
//! switches: a fiber that waits holds no borrow. Makes no switch, and knows no script.

use std::collections::VecDeque;
use std::io;

use corosensei::stack::DefaultStack;
use weir_dispatch::readiness::{Mechanism, Token};

use super::scheduler::FiberId;
use super::stacks::Stacks;
use super::turns::Turns;
use crate::arch::accepting::Accepting;
use crate::arch::floor::{Floor, Work};
use crate::arch::listener::Listener;
use crate::arch::watched::{Member, Watched};
use crate::arch::{Architecture, Housekeeping, Tenant};
use crate::close_reason::CloseReason;
use crate::link::{Link, Next};

/// A connection to be served by a fiber.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub token: Token,
    /// True if it is read now instead of when it is ready.
    pub at_once: bool,
}

/// A fiber to be created.
pub(super) struct Birth {
    pub stack: DefaultStack,
    pub task: Task,
}

/// State shared by the fibers of a thread.
pub(super) struct Common<M> {
    pub watched: Watched<M>,
    turns: Turns,
    /// Listeners with a pending connection.
    knocked: VecDeque<usize>,
    /// True with a fixed number of fibers; otherwise there is one per connection.
    has_pool: bool,
    /// Connections accepted in a pool and not yet taken by a fiber.
    taken: VecDeque<Task>,
    /// Connections accepted without a pool, for each of which a fiber is created.
    births: Vec<Birth>,
    stacks: Stacks,
    /// Connections that yielded in earlier rounds and may resume in this one.
    resumable: usize,
    /// Work of this round so far.
    work: Work,
    /// True once every fiber is to end.
    is_over: bool,
}

impl<M: Mechanism> Architecture for Common<M> {
    type Tenant = Link;

    fn floor(&mut self) -> &mut Floor<Link> {
        &mut self.watched.floor
    }

    fn begin(&mut self, slot: u32, at_once: bool) {
        let task = Task { token: self.watched.floor.table.token(slot), at_once };
        if self.has_pool {
            return self.taken.push_back(task);
        }
        match self.stacks.take() {
            Ok(stack) => self.births.push(Birth { stack, task }),
            Err(error) => self.do_without(slot, &error),
        }
    }

    fn serve(&mut self, slot: u32) -> bool {
        let next = self.watched.with(slot, Link::proceed);
        self.settle(slot, next);
        next == Some(Next::Close)
    }

    fn turn_away(&mut self, slot: u32) {
        let next = self.watched.with(slot, Link::turn_away);
        self.settle(slot, next);
    }

    fn expire(&mut self, slot: u32) {
        let is_unread =
            self.watched.floor.table.conn(slot).is_some_and(|link| link.registered.is_none());
        // In a pool it waits for its fiber, and not for its client.
        if !(self.has_pool && is_unread) {
            let next = self.watched.with(slot, Link::expire);
            self.settle(slot, next);
        }
    }

    fn close(&mut self, slot: u32) {
        let Some((link, token)) = self.vacate(slot) else { return };
        self.watched.forget(&link, token);
        link.close(&mut self.watched.floor.service);
        // Its fiber sees that it is gone.
        self.turns.wake_at_slot(slot);
    }

    fn nobody_waits(&mut self, index: usize) {
        self.watched.nobody_waits(index);
    }

    fn watch(&mut self, index: usize, wanted: bool) -> io::Result<()> {
        self.watched.watch(index, wanted)
    }

    fn leave(&mut self, listener: Listener) {
        self.watched.leave(listener);
    }

    fn has_hands(&self) -> bool {
        !self.has_pool || self.turns.has_hands()
    }

    fn count(&mut self) {
        self.watched.count();
    }
}

/// Operations of the thread between two switches.
impl<M: Mechanism> Common<M> {
    pub(super) fn new(watched: Watched<M>, stacks: Stacks, has_pool: bool) -> Self {
        Self {
            watched,
            turns: Turns::default(),
            knocked: VecDeque::new(),
            has_pool,
            taken: VecDeque::new(),
            births: Vec::new(),
            stacks,
            resumable: 0,
            work: Work::default(),
            is_over: false,
        }
    }

    /// Polls the mechanism, and makes the fibers that waited for ready connections runnable: first
    /// the accepting fiber, then the others in the order reported.
    pub(super) fn getevents_phase(&mut self) {
        if self.has_pool {
            self.watch_listeners(true);
        }
        self.watched.getevents_phase();
        self.resumable = self.watched.yielded();
        self.work = Work::default();
        self.knocked.clear();
        let mut ready = std::mem::take(&mut self.watched.ready);
        ready.iter().for_each(|&token| self.hear(token));
        self.watched.take_fetched(&mut ready);
        if self.must_accept() {
            self.wake_idle();
        }
        ready.drain(..).for_each(|token| self.wake(token));
        self.watched.ready = ready;
        self.note_runnable();
    }

    /// Answers the bell, or notes a listener with a pending connection.
    fn hear(&mut self, token: Token) {
        match self.watched.member(token) {
            Member::Bell => self.heed_bell(),
            Member::Listener(index) => self.knocked.push_back(index),
            Member::Connection => {}
        }
    }

    fn heed_bell(&mut self) {
        self.answer_bell();
        self.watched.bell_is_quiet();
        // Before the listeners were closed, those who waited were accepted, by no fiber.
        (0..self.taken.len()).for_each(|_| self.wake_idle());
    }

    /// Returns whether there is work for an accepting fiber.
    fn must_accept(&self) -> bool {
        let floor = &self.watched.floor;
        let now_ns = floor.service.now_ns();
        let is_due = |listener: &Listener| listener.due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        !self.knocked.is_empty() || !floor.deferred.is_empty() || floor.listeners.iter().any(is_due)
    }

    /// Makes the fiber that waits for a connection runnable. A connection without a fiber was
    /// refused, and is served here.
    fn wake(&mut self, token: Token) {
        if self.watched.is_served_when_ready(token) {
            self.run_fiber_of(token);
        }
    }

    fn run_fiber_of(&mut self, token: Token) {
        if !self.turns.wake_at_slot(token.slot) {
            self.serve(token.slot);
        }
    }

    fn wake_idle(&mut self) {
        self.turns.wake_at_listeners(self.watched.floor.rounds);
    }

    fn note_runnable(&mut self) {
        let runnable = self.turns.runnable() as u64;
        let counters = &mut self.watched.floor.service.counters;
        counters.fibers_runnable.add(runnable);
        counters.fibers_runnable_max.raise(runnable);
    }

    /// Returns the next fiber to run. Once all ready fibers have run, yielded connections resume.
    pub(super) fn next(&mut self) -> Option<FiberId> {
        if self.watched.floor.is_long(&mut self.work) {
            self.cut_work();
        }
        let mut fiber = self.turns.next();
        while fiber.is_none() && self.resumable > 0 {
            self.resumable -= 1;
            let token = self.watched.resume_next()?;
            self.run_fiber_of(token);
            fiber = self.turns.next();
        }
        let fiber = fiber?;
        self.watched.floor.service.counters.fiber_switches.one();
        Some(fiber)
    }

    /// Runs the other phases of a round in the middle of long work; an accepting fiber runs next.
    fn cut_work(&mut self) {
        self.watched.floor.cut_work(self.work, self.turns.runnable());
        self.work = Work::default();
        self.heed_bell();
        let mut fetched = Vec::new();
        self.watched.take_fetched(&mut fetched);
        fetched.into_iter().for_each(|token| self.wake(token));
        self.keep_time();
        let listeners = self.watched.floor.listeners.iter().enumerate();
        self.knocked.clear();
        self.knocked.extend(listeners.filter(|(_, one)| one.watched).map(|(index, _)| index));
        if self.must_accept() {
            self.turns.wake_first_at_listeners(self.watched.floor.rounds);
        }
    }

    /// Returns a fiber to be created, the youngest first: each is then put before the others.
    pub(super) fn next_birth(&mut self) -> Option<Birth> {
        self.births.pop()
    }

    /// Puts a new fiber at the front of the run queue; `alive` fibers exist.
    pub(super) fn admit(&mut self, fiber: FiberId, alive: usize) {
        self.turns.put_first(fiber);
        self.note_begun(alive);
    }

    /// Makes a new fiber wait for a connection to accept; `alive` fibers exist.
    pub(super) fn employ(&mut self, fiber: FiberId, alive: usize) {
        self.turns.wait_at_listeners(fiber, 0);
        self.note_begun(alive);
    }

    fn note_begun(&mut self, alive: usize) {
        let counters = &mut self.watched.floor.service.counters;
        counters.fibers_begun.one();
        counters.fibers_max.raise(alive as u64);
    }

    /// Counts a fiber that has ended, and takes back its stack.
    pub(super) fn bury(&mut self, stack: DefaultStack) {
        self.watched.floor.service.counters.fibers_ended.one();
        self.stacks.give(stack);
    }

    /// Takes a stack for a fiber.
    ///
    /// # Errors
    /// ENOMEM: mmap(2).
    pub(super) fn take_stack(&mut self) -> io::Result<DefaultStack> {
        self.stacks.take()
    }

    /// Ends a round in which every fiber has had its turn.
    pub(super) fn end_round(&mut self) {
        self.watched.floor.note_work(self.work);
    }

    /// Makes each fiber end when it is next switched to.
    pub(super) fn end_fibers(&mut self) {
        self.is_over = true;
        self.births.clear();
    }

    /// Refuses an accepted connection for which there is no stack, and pauses accepting until
    /// others have ended.
    fn do_without(&mut self, slot: u32, error: &io::Error) {
        if let Some(link) = self.watched.floor.table.conn(slot) {
            link.reset_on_close();
            link.note_close(CloseReason::Failed);
        }
        self.close(slot);
        self.relieve(error);
        if self.watched.floor.paused_until_ns.is_none() {
            self.rest_for(error);
        }
    }

    fn settle(&mut self, slot: u32, next: Option<Next>) {
        if next.is_some_and(|next| !self.watched.settle(slot, next)) {
            self.close(slot);
        }
    }
}

/// Operations of a fiber between two switches.
impl<M: Mechanism> Common<M> {
    /// Returns whether fibers are to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Registers a fiber about to wait until a connection is ready or closed.
    pub(super) fn wait_for(&mut self, token: Token, fiber: FiberId) {
        self.turns.wait_at_slot(token.slot, fiber);
    }

    /// Registers a fiber about to wait for a connection to accept; keeps it runnable if some are
    /// already accepted.
    pub(super) fn wait_at_listeners(&mut self, fiber: FiberId) {
        if self.taken.is_empty() {
            self.turns.wait_at_listeners(fiber, self.watched.floor.rounds);
        } else {
            self.turns.put_last(fiber);
        }
    }

    /// Registers a fiber about to wait until the fibers yet to be created have had their turn.
    pub(super) fn give_way(&mut self, fiber: FiberId) {
        self.turns.put_first(fiber);
    }

    /// Returns whether the last accepted connection is to be served before another is accepted.
    pub(super) fn is_urgent(&self) -> bool {
        self.births.last().is_some_and(|birth| birth.task.at_once)
    }

    /// Returns a listener with a pending connection, each once per round.
    pub(super) fn next_knock(&mut self) -> Option<usize> {
        self.knocked.pop_front()
    }

    /// Takes a connection already accepted, or runs one accept-phase and takes all it accepted.
    /// Wakes another accepting fiber if more are pending.
    pub(super) fn take_some(&mut self) -> VecDeque<Task> {
        if let Some(task) = self.taken.pop_front() {
            return VecDeque::from([task]);
        }
        let Some(index) = self.next_knock() else { return VecDeque::new() };
        let outcome = self.accept(index);
        if outcome.accepted > 0 && !outcome.drained {
            self.knocked.push_back(index);
        }
        if !self.knocked.is_empty() {
            self.wake_idle();
        }
        std::mem::take(&mut self.taken)
    }

    /// Begins to serve a connection taken by a fiber; returns whether it is still open.
    pub(super) fn meet(&mut self, task: Task) -> bool {
        let Task { token, at_once } = task;
        if self.is_open(token) {
            if at_once {
                self.serve(token.slot);
            } else {
                self.settle(token.slot, Some(Next::Read));
            }
        }
        self.is_open(token)
    }

    /// Serves a ready connection; returns whether it is still open.
    pub(super) fn work(&mut self, token: Token) -> bool {
        if !self.is_open(token) {
            return false;
        }
        if self.work.items == 0 {
            self.work = self.watched.floor.begin_work(1 + self.turns.runnable());
        }
        self.work.items += 1;
        if self.is_worth_serving(token) && self.serve(token.slot) {
            self.accept_after_close();
        }
        self.is_open(token)
    }

    fn is_open(&self, token: Token) -> bool {
        !self.is_over && self.watched.floor.table.is_current(token)
    }
}
