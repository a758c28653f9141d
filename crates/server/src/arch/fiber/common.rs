//! What the fibers of a thread share, and who of them waits for what. Borrowed between two
//! switches only: whoever waits holds no borrow. Makes no switch, and knows no script.

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

/// A connection that a fiber is to serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub token: Token,
    /// It is read now, and not when it is ready.
    pub at_once: bool,
}

/// A fiber to be made.
pub(super) struct Birth {
    pub stack: DefaultStack,
    pub task: Task,
}

/// What the fibers of a thread share.
pub(super) struct Common<M> {
    pub watched: Watched<M>,
    turns: Turns,
    /// Listeners where somebody waits.
    knocked: VecDeque<usize>,
    /// Fibers are as many as at the start; else there is one for each connection.
    has_pool: bool,
    /// Accepted in a pool, and nobody's yet.
    taken: VecDeque<Task>,
    /// Accepted otherwise: each gets a fiber.
    births: Vec<Birth>,
    stacks: Stacks,
    /// Connections that let others go first in earlier rounds, and may go on in this one.
    resumable: usize,
    /// This round's work so far.
    work: Work,
    /// Every fiber ends when it sees this.
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

/// What the thread does between two switches.
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

    /// Asks who is ready, and gives each fiber that waited for one of them its turn: first whoever
    /// accepts, then the others as the mechanism reported them.
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

    /// The bell is answered, and whoever knocks is noted.
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

    /// Whether there is something for whoever accepts.
    fn must_accept(&self) -> bool {
        let floor = &self.watched.floor;
        let now_ns = floor.service.now_ns();
        let is_due = |listener: &Listener| listener.due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        !self.knocked.is_empty() || !floor.deferred.is_empty() || floor.listeners.iter().any(is_due)
    }

    /// The fiber that waits for a connection has its turn. One that has no fiber was refused.
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

    /// The fiber whose turn it is. When all that are ready have had theirs, those go on that have
    /// let others go first.
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

    /// The other phases of a round in the middle of work that takes long: whoever accepts has the
    /// next turn.
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

    /// A fiber to be made, the youngest first: each is then put before the others.
    pub(super) fn next_birth(&mut self) -> Option<Birth> {
        self.births.pop()
    }

    /// A fiber was made, and has the next turn. So many are alive.
    pub(super) fn admit(&mut self, fiber: FiberId, alive: usize) {
        self.turns.put_first(fiber);
        self.note_begun(alive);
    }

    /// A fiber was made, and waits for somebody to accept. So many are alive.
    pub(super) fn employ(&mut self, fiber: FiberId, alive: usize) {
        self.turns.wait_at_listeners(fiber, 0);
        self.note_begun(alive);
    }

    fn note_begun(&mut self, alive: usize) {
        let counters = &mut self.watched.floor.service.counters;
        counters.fibers_begun.one();
        counters.fibers_max.raise(alive as u64);
    }

    /// A fiber has ended.
    pub(super) fn bury(&mut self, stack: DefaultStack) {
        self.watched.floor.service.counters.fibers_ended.one();
        self.stacks.give(stack);
    }

    /// A stack for a fiber.
    ///
    /// # Errors
    /// ENOMEM: mmap(2).
    pub(super) fn take_stack(&mut self) -> io::Result<DefaultStack> {
        self.stacks.take()
    }

    /// Every fiber has had its turn.
    pub(super) fn end_round(&mut self) {
        self.watched.floor.note_work(self.work);
    }

    /// From now on each fiber ends when it is switched to.
    pub(super) fn end_fibers(&mut self) {
        self.is_over = true;
        self.births.clear();
    }

    /// A connection was accepted for which there is no stack: it is refused, and accepting rests
    /// until some have ended.
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

/// What a fiber does between two switches.
impl<M: Mechanism> Common<M> {
    /// Whether fibers end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// A fiber is about to wait until a connection is ready, or gone.
    pub(super) fn wait_for(&mut self, token: Token, fiber: FiberId) {
        self.turns.wait_at_slot(token.slot, fiber);
    }

    /// A fiber is about to wait until there is somebody to accept, unless somebody was accepted.
    pub(super) fn wait_at_listeners(&mut self, fiber: FiberId) {
        if self.taken.is_empty() {
            self.turns.wait_at_listeners(fiber, self.watched.floor.rounds);
        } else {
            self.turns.put_last(fiber);
        }
    }

    /// A fiber is about to wait until the fibers just to be made have had their turn.
    pub(super) fn give_way(&mut self, fiber: FiberId) {
        self.turns.put_first(fiber);
    }

    /// Whether the last accepted is to be served before another is accepted.
    pub(super) fn is_urgent(&self) -> bool {
        self.births.last().is_some_and(|birth| birth.task.at_once)
    }

    /// A listener where somebody waits; each once a round.
    pub(super) fn next_knock(&mut self) -> Option<usize> {
        self.knocked.pop_front()
    }

    /// One accept-phase, and whom it took. The next fiber has its turn when more wait.
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

    /// A fiber's first act with a connection. Whether there is more to do.
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

    /// Serves a connection that is ready. Whether there is more to do.
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
