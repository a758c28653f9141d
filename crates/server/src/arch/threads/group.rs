//! A group: one floor shared by the threads that serve its connections, from accept through
//! hand-over to close. Knows nothing of locks: the caller has the group to itself, by means of a
//! lock where there are threads, and without one in a process that serves alone.
//!
//! A connection is waited for by its own thread, in poll(2) and outside the lock. No other thread
//! may close that descriptor meanwhile: its number could be another connection's before the thread
//! looks again. To close such a connection, a thread takes it out of its slot, shuts its socket
//! down, which wakes the waiting thread, and leaves the socket in the estate. The woken thread
//! finds that its token is no longer current, and closes the socket it inherits.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use weir_dispatch::readiness::Token;
use weir_sys::socket;
use weir_sys::waker::Waker;

use super::crew::Crew;
use super::doors::Knocks;
use super::wait::News;
use crate::arch::Architecture;
use crate::arch::accepting::Accepting;
use crate::arch::floor::Floor;
use crate::arch::listener::Listener;
use crate::link::{Link, Next};

/// Time without use of a group after which all its threads count as asleep, nanoseconds.
const SWITCH_NS: u64 = 100_000;

/// State shared by the threads of a group.
pub(crate) struct Group {
    pub(crate) floor: Floor<Link>,
    /// True if the thread that accepts a connection serves it, at once where reads are eager.
    /// Otherwise each connection is handed to a thread.
    pub(crate) serves: bool,
    /// Accepted connections, to be served by the thread that accepted them or handed over.
    pub(crate) begun: VecDeque<(Token, News)>,
    /// The threads, if there are any.
    pub(super) crew: Crew,
    /// Connections handed to a thread that have not had their first turn.
    pub(super) fresh: HashSet<Token>,
    /// Number of threads that wait for the group to be calm.
    pub(super) calm_awaited: u32,
    /// Rung when the set of watched listeners changes, for the thread that waits for them.
    knock: Option<Arc<Waker>>,
    /// Sockets of connections closed by a thread other than their own, until their own releases
    /// them.
    pub(super) estate: HashMap<Token, OwnedFd>,
    /// Slot of the connection that has its turn.
    pub(super) turn: Option<u32>,
    /// Turns since the last accept-phase, and the time at which that ended.
    pub(super) turns: u64,
    phase_ended_ns: u64,
    /// True if the last accept-phase left connections pending, as far as it knows.
    pub(crate) undrained: bool,
    /// Time at which the group was last left, nanoseconds.
    left_ns: u64,
    /// Time at which the timekeeping thread wakes next, nanoseconds.
    wakes_ns: u64,
}

impl Architecture for Group {
    type Tenant = Link;

    /// False: a connection that is waited for is closed by the thread that waits.
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

    /// Handles a deadline that the connection's thread does not know of: no thread waits for the
    /// connection yet, or the deadline was moved during the wait, as happens only to connections
    /// that have never sent anything.
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
            self.floor.control.bell.wake();
        }
    }

    /// Closes an idle connection, but leaves a request that has arrived to the connection's thread,
    /// which is about to wake.
    fn dismiss(&mut self, slot: u32) {
        let Some(link) = self.floor.table.conn(slot) else { return };
        if link.is_idle() && !socket::has_unread(link.fd()) {
            self.close(slot);
        }
    }

    /// Returns whether to accept another connection. With eager reads, a thread that serves what it
    /// accepts stops at the first connection it must wait for, except in a drain: another would
    /// wait behind it, however long that takes.
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
            knock.wake();
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
    pub(crate) fn new(floor: Floor<Link>, serves: bool, knock: Option<Arc<Waker>>) -> Self {
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

    /// Begins a use of the group: reads the time, and counts a longer gap since the last use as
    /// sleep.
    pub(crate) fn arrive(&mut self) {
        self.floor.service.tick();
        // From one thread to the next, or from its sleep to its work, takes a while as well.
        if self.floor.service.now_ns() > self.left_ns.saturating_add(SWITCH_NS) {
            self.floor.note_sleep(self.left_ns);
        }
    }

    /// Ends a use of the group.
    pub(crate) fn depart(&mut self) {
        self.left_ns = self.floor.service.read_clock_ns();
    }

    /// Returns how long the timekeeping thread may sleep now. `deferred`: deferred connections keep
    /// it from sleeping.
    pub(super) fn sleep(&mut self, deferred: bool) -> Option<Duration> {
        let sleep = if deferred { self.floor.sleep_max() } else { self.floor.due_in() };
        let now_ns = self.floor.service.now_ns();
        self.wakes_ns = sleep.map_or(u64::MAX, |sleep| now_ns + sleep.as_nanos() as u64);
        sleep
    }

    /// Notes that the timekeeping thread is awake.
    pub(super) fn keeper_woke(&mut self) {
        self.wakes_ns = 0;
    }

    /// Runs one round of the acceptor: accepts at ready listeners, as the policies allow, and
    /// begins to serve deferred connections.
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

    /// Returns whether every connection begun has had its turn, and every closed one has been
    /// released. Until then accepting waits, so that the queue grows where the policy sees it.
    pub(super) fn is_calm(&self) -> bool {
        self.fresh.is_empty() && self.estate.is_empty()
    }

    /// Hands connections to parked threads. Returns those left over, for which the caller starts
    /// new threads.
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

    /// Queues a connection for which no thread is available.
    pub(super) fn put_off(&mut self, token: Token) {
        self.fresh.remove(&token);
        self.crew.waiting.push_back(token);
        self.arm(token.slot);
    }

    /// Removes and returns a connection that waits for a thread.
    pub(super) fn next_waiting(&mut self) -> Option<Token> {
        self.crew.waiting.pop_front()
    }

    /// Arms the timer of a connection that no thread waits for.
    pub(super) fn arm(&mut self, slot: u32) {
        let Some(link) = self.floor.table.conn(slot) else { return };
        self.floor.timers.arm(slot, link.deadline_ns());
    }

    /// Wakes the timekeeping thread if something is due before it would wake.
    pub(super) fn call_timekeeper(&mut self) {
        let due_ns = self.floor.upkeep_ns();
        if let Some(due_ns) = due_ns.filter(|&due_ns| due_ns < self.wakes_ns) {
            self.wakes_ns = due_ns;
            self.floor.control.bell.wake();
        }
    }

    /// Records the turns since the last accept-phase as the work-phase, if connections were waiting
    /// for its end.
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

    /// Queues a connection for a thread: this one or another.
    fn hand_out(&mut self, slot: u32, news: News) {
        let token = self.floor.table.token(slot);
        self.begun.push_back((token, news));
    }
}
