//! A group: one floor, shared by the threads that serve its connections: how these come, are handed
//! out and go. Knows nothing of locks: whoever calls has the group to itself, which is a lock's
//! doing where there are threads, and nobody's where a process serves alone.
//!
//! A connection that waits is waited for by its own thread, in poll(2) and outside of the lock.
//! Nobody else may close that descriptor meanwhile: its number could be another connection's before
//! the thread looks again. Who closes such a connection takes it out of its slot, shuts its socket
//! down, which wakes the thread, and leaves the socket in the estate; the thread finds that its
//! token is no longer current, and closes what it inherits.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use weir_dispatch::readiness::Token;
use weir_sys::event::Bell;
use weir_sys::socket;

use super::crew::Crew;
use super::doors::Knocks;
use super::wait::News;
use crate::arch::Architecture;
use crate::arch::accepting::Accepting;
use crate::arch::floor::Floor;
use crate::arch::listener::Listener;
use crate::link::{Link, Next};

/// When nobody uses a group for longer, all its threads sleep, nanoseconds.
const SWITCH_NS: u64 = 100_000;

/// What the threads of a group share.
pub(crate) struct Group {
    pub(crate) floor: Floor<Link>,
    /// Whoever accepts a connection serves it, at once where reads are eager. Otherwise each is
    /// handed to a thread.
    pub(crate) serves: bool,
    /// Accepted, and to be served by whoever accepted them or handed over.
    pub(crate) begun: VecDeque<(Token, News)>,
    /// The threads, where there are some.
    pub(super) crew: Crew,
    /// Handed to a thread that has not had its first turn.
    pub(super) fresh: HashSet<Token>,
    /// How many wait for the group to be calm.
    pub(super) calm_awaited: u32,
    /// Rung when what the listeners are watched for changes, for the thread that watches them.
    knock: Option<Arc<Bell>>,
    /// The sockets of connections closed by others than their threads, until these let go of them.
    pub(super) estate: HashMap<Token, OwnedFd>,
    /// The connection that has its turn.
    pub(super) turn: Option<u32>,
    /// Turns since the last accept-phase, and when that ended.
    pub(super) turns: u64,
    phase_ended_ns: u64,
    /// The last accept-phase left some, as far as it knows.
    pub(crate) undrained: bool,
    /// When the group was last left alone.
    left_ns: u64,
    /// When the thread that keeps the time wakes next.
    wakes_ns: u64,
}

impl Architecture for Group {
    type Tenant = Link;

    /// One that its thread waits for is closed by that thread.
    const CLOSES_AT_ONCE: bool = false;

    fn floor(&mut self) -> &mut Floor<Link> {
        &mut self.floor
    }

    fn begin(&mut self, slot: u32, at_once: bool) {
        let tries = at_once && self.serves;
        if !(tries && self.serve(slot)) {
            self.hand_out(slot, if tries { News::Tried } else { News::First });
        }
    }

    fn serve(&mut self, slot: u32) -> bool {
        let Some(link) = self.floor.table.conn(slot) else { return false };
        let next = link.proceed(&mut self.floor.service);
        if next == Next::Close {
            self.close(slot);
        }
        next == Next::Close
    }

    fn turn_away(&mut self, slot: u32) {
        let Some(link) = self.floor.table.conn(slot) else { return };
        if link.turn_away(&mut self.floor.service) == Next::Close {
            self.close(slot);
        } else if self.turn != Some(slot) {
            self.hand_out(slot, News::Tried);
        }
    }

    /// For a deadline that its thread does not know of: none waits for the connection yet, or it
    /// was moved while one did, which only befalls those that have never said anything.
    fn expire(&mut self, slot: u32) {
        let Some(link) = self.floor.table.conn(slot) else { return };
        if link.registered.is_some() && link.was_heard() {
            return;
        }
        if link.expire(&mut self.floor.service) == Next::Close {
            self.close(slot);
        } else {
            self.arm(slot);
        }
    }

    fn close(&mut self, slot: u32) {
        let Some((link, token)) = self.vacate(slot) else { return };
        let is_waited_for = link.registered.is_some();
        let fd = link.part(&mut self.floor.service);
        if is_waited_for {
            socket::shutdown_both(fd.as_fd());
            self.estate.insert(token, fd);
        } else {
            socket::close(fd);
        }
        if self.floor.drained_by_ns.is_some() && self.floor.table.open() == 0 {
            self.floor.control.bell.ring();
        }
    }

    /// A request that has come is left to the connection's thread, which is about to wake.
    fn dismiss(&mut self, slot: u32) {
        let Some(link) = self.floor.table.conn(slot) else { return };
        if link.is_idle() && !socket::has_unread(link.fd()) {
            self.close(slot);
        }
    }

    /// Who serves what it accepts, and reads eagerly, has enough with the first that must be waited
    /// for: another would wait behind it, however long that is.
    fn takes_more(&self) -> bool {
        let Floor { service, .. } = &self.floor;
        let is_eager = self.serves && service.config.strategy.eager_read;
        !is_eager || self.begun.is_empty() || service.draining
    }

    fn has_in_hand(&self) -> bool {
        !(self.fresh.is_empty() && self.begun.is_empty())
    }

    fn nobody_waits(&mut self, _: usize) {}

    fn watch(&mut self, _: usize, _: bool) -> io::Result<()> {
        if let Some(knock) = &self.knock {
            knock.ring();
        }
        Ok(())
    }

    fn leave(&mut self, listener: Listener) {
        listener.close();
    }

    fn count(&mut self) {
        self.floor.service.others = self.crew.usage();
        self.floor.service.counters.threads_max.raise(self.crew.threads_max());
    }
}

impl Group {
    pub(crate) fn new(floor: Floor<Link>, serves: bool, knock: Option<Arc<Bell>>) -> Self {
        Self {
            floor,
            serves,
            begun: VecDeque::new(),
            crew: Crew::default(),
            fresh: HashSet::new(),
            calm_awaited: 0,
            knock,
            estate: HashMap::new(),
            turn: None,
            turns: 0,
            phase_ended_ns: 0,
            undrained: false,
            left_ns: 0,
            wakes_ns: 0,
        }
    }

    /// Somebody begins to use the group: the time is read, and what has passed since the group was
    /// last used counts as waiting.
    pub(crate) fn arrive(&mut self) {
        self.floor.service.tick();
        // From one thread to the next, or from its sleep to its work, takes a while as well.
        if self.floor.service.now_ns() > self.left_ns.saturating_add(SWITCH_NS) {
            self.floor.note_sleep(self.left_ns);
        }
    }

    /// Nobody uses the group for now.
    pub(crate) fn depart(&mut self) {
        self.left_ns = self.floor.service.read_clock_ns();
    }

    /// How long the thread that keeps the time may sleep now.
    pub(super) fn sleep(&mut self, deferred: bool) -> Option<Duration> {
        let sleep = if deferred { self.floor.sleep_max() } else { self.floor.due_in() };
        let now_ns = self.floor.service.now_ns();
        self.wakes_ns = sleep.map_or(u64::MAX, |sleep| now_ns + sleep.as_nanos() as u64);
        sleep
    }

    /// The thread that keeps the time is awake.
    pub(super) fn keeper_woke(&mut self) {
        self.wakes_ns = 0;
    }

    /// One round of whoever watches the listeners: accepts where somebody knocked, as the policies
    /// allow, and begins to serve those that are deferred.
    pub(crate) fn accept_phase(&mut self, knocks: &Knocks) {
        self.note_round(knocks);
        self.floor.someone_waits = false;
        self.undrained = false;
        for &index in &knocks.listeners {
            let outcome = self.accept(index);
            self.undrained |= outcome.accepted > 0 && !outcome.drained;
        }
        self.end_accept_phase();
        self.phase_ended_ns = self.floor.service.read_clock_ns();
        self.turns = 0;
        self.call_timekeeper();
    }

    /// Whether all that was begun has had its turn, and all that were closed have let go: until
    /// then whoever accepts waits. So the queue of those who wait grows where the policy sees it.
    pub(super) fn is_calm(&self) -> bool {
        self.fresh.is_empty() && self.estate.is_empty()
    }

    /// Hands out what was begun: to those who are parked, and what is left to new threads, which
    /// the caller starts.
    pub(super) fn assign(&mut self) -> Vec<Token> {
        let retried = if self.floor.paused_until_ns.is_none() {
            std::mem::take(&mut self.crew.waiting)
        } else {
            VecDeque::new()
        };
        let mut unmanned = Vec::new();
        for token in retried.into_iter().chain(self.begun.drain(..).map(|(token, _)| token)) {
            if !self.floor.table.is_current(token) {
                continue;
            }
            self.fresh.insert(token);
            if !self.crew.give(token) {
                unmanned.push(token);
            }
        }
        unmanned
    }

    /// No thread could be had for a connection: it waits until one is free, or can be had.
    pub(super) fn put_off(&mut self, token: Token) {
        self.fresh.remove(&token);
        self.crew.waiting.push_back(token);
        self.arm(token.slot);
    }

    /// A connection that waits for a thread.
    pub(super) fn next_waiting(&mut self) -> Option<Token> {
        self.crew.waiting.pop_front()
    }

    /// Has the timers look at a connection that no thread minds.
    pub(super) fn arm(&mut self, slot: u32) {
        let Some(link) = self.floor.table.conn(slot) else { return };
        self.floor.timers.arm(slot, link.deadline_ns());
    }

    /// Wakes the thread that keeps the time if something is due before it would wake.
    pub(super) fn call_timekeeper(&mut self) {
        let due_ns = self.floor.upkeep_ns();
        if let Some(due_ns) = due_ns.filter(|&due_ns| due_ns < self.wakes_ns) {
            self.wakes_ns = due_ns;
            self.floor.control.bell.ring();
        }
    }

    /// What took place since the last accept-phase is the work-phase, if somebody waited for its
    /// end.
    fn note_round(&mut self, knocks: &Knocks) {
        let floor = &mut self.floor;
        floor.rounds += knocks.rounds;
        floor.service.counters.getevents_calls.add(knocks.rounds);
        floor.service.counters.getevents_ready.add(knocks.ready);
        floor.work_items = if knocks.at_once { self.turns } else { 0 };
        floor.work_ns = match floor.work_items {
            0 | 1 => 0,
            _ => floor.service.now_ns().saturating_sub(self.phase_ended_ns),
        };
        floor.turns += self.turns;
        floor.turns_ns += floor.work_ns;
    }

    /// Leaves a connection to a thread: this one or another.
    fn hand_out(&mut self, slot: u32, news: News) {
        let token = self.floor.table.token(slot);
        self.begun.push_back((token, news));
    }
}
