//! The accept-phase of the event loop: as many as the policy allows, each judged before anything of
//! it is read, and room made for them. What a policy decides by is its own affair.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use weir_accept::{Decision, Look, Order, Outcome, Refusal, View};
use weir_dispatch::readiness::{Interest, Mechanism, Token};
use weir_sys::listener::{self, Arrival};
use weir_sys::{is_exhaustion, socket};

use super::event_loop::EventLoop;
use crate::conn::{Conn, Next};

/// How long accepting rests when there are no descriptors and nobody to take one from.
const ACCEPT_REST_NS: u64 = 100_000_000;

/// Idle connections closed at once to get descriptors back.
const EVICTED_AT_ONCE: usize = 32;

/// Slots looked at for each connection that has to be closed to make room.
const LOOKED_AT_EACH: usize = 32;

/// One that was accepted and waits to be served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    token: Token,
    /// When its request came, as far as that is known.
    since_ns: u64,
}

/// What is to become of one that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its request came at this time, or it was not asked.
    Serve { since_ns: u64 },
    /// It would get its reply too late.
    Refuse,
    /// Its client has gone.
    Drop,
}

/// An accept-phase as it goes.
struct AcceptPhase {
    decision: Decision,
    outcome: Outcome,
    /// Accepted in order to be served.
    taken: u64,
    /// No refusal begins after this: those to be served come after them, and have half of the time.
    refuse_until_ns: u64,
    /// Some are refused unseen in this phase.
    refuses: bool,
    /// The time is up, and the one that is still to be served is served however long it waited.
    owes_one: bool,
}

impl AcceptPhase {
    fn new(decision: Decision, now_ns: u64) -> Self {
        let until_ns = decision.until_ns.unwrap_or(u64::MAX).max(now_ns);
        let refuse_until_ns = now_ns + (until_ns - now_ns) / 2;
        Self {
            decision,
            outcome: Outcome::default(),
            taken: 0,
            refuse_until_ns,
            refuses: decision.refuse > 0,
            owes_one: false,
        }
    }

    /// Whether another may be accepted; `clock_ns` is asked only when time matters.
    fn goes_on(&mut self, clock_ns: impl FnOnce() -> u64) -> bool {
        if let Some(until_ns) = self.decision.until_ns
            && self.outcome.accepted > 0
        {
            let now_ns = clock_ns();
            if now_ns >= until_ns {
                self.owes_one = self.refuses && self.taken == 0;
                if !self.owes_one {
                    return false;
                }
            }
            if now_ns >= self.refuse_until_ns {
                self.decision.refuse = self.decision.refuse.min(self.outcome.refused);
            }
        }
        self.is_excess() || self.taken < self.decision.budget
    }

    /// Whether the one just accepted is among the oldest, which are refused unseen.
    fn is_excess(&self) -> bool {
        self.outcome.refused < self.decision.refuse
    }

    /// Whether the kernel is asked about the one just accepted.
    fn looks(&self) -> bool {
        match self.decision.look {
            Look::Nobody => false,
            Look::First => self.taken == 0,
            Look::Each => true,
        }
    }

    fn note_age(&mut self, age_ns: u64) {
        let outcome = &mut self.outcome;
        outcome.age_first_ns.get_or_insert(age_ns);
        let least_ns = outcome.age_min_ns.map_or(age_ns, |least_ns| least_ns.min(age_ns));
        outcome.age_min_ns = Some(least_ns);
    }

    fn judge(&mut self, now_ns: u64, arrival: Option<Arrival>) -> Fate {
        let Some(arrival) = arrival else { return Fate::Serve { since_ns: now_ns } };
        self.outcome.rtt_ns.get_or_insert(arrival.rtt_ns);
        if self.decision.drop_departed && arrival.departed {
            return Fate::Drop;
        }
        let age_ns = if arrival.spoken { arrival.age_ns } else { 0 };
        if arrival.spoken {
            self.note_age(age_ns);
        }
        let is_stale = self.decision.stale_ns.is_some_and(|stale_ns| age_ns > stale_ns);
        if is_stale && !self.owes_one {
            return Fate::Refuse;
        }
        Fate::Serve { since_ns: now_ns.saturating_sub(age_ns) }
    }
}

impl<M: Mechanism> EventLoop<M> {
    /// One accept-phase of one listener: as many as the policy allows.
    pub(super) fn accept(&mut self, index: usize) -> Outcome {
        if self.paused_until_ns.is_some() || index >= self.listeners.len() {
            return Outcome::default();
        }
        let decision = self.decide(index, true);
        let mut phase = AcceptPhase::new(decision, self.service.now_ns());
        self.service.counters.accept_phases.one();
        while phase.goes_on(|| self.service.read_clock_ns()) {
            match socket::accept(self.listeners[index].fd()) {
                Ok((fd, peer)) => self.receive(fd, peer, &mut phase),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    phase.outcome.drained = true;
                    self.service.counters.accept_would_block.one();
                    let token = self.listeners[index].token;
                    self.mechanism.blocked(token, Interest::Accept);
                    break;
                }
                Err(error) if is_exhaustion(&error) => {
                    self.relieve(&error);
                    if self.paused_until_ns.is_some() {
                        break;
                    }
                }
                Err(error) if socket::is_lost_connection(&error) => {
                    self.service.counters.accept_aborted.one();
                }
                Err(error) => {
                    self.rest(&error);
                    break;
                }
            }
        }
        let now_ns = self.service.now_ns();
        self.listeners[index].finished(now_ns, &phase.outcome);
        self.someone_waits |= !phase.outcome.drained && phase.decision.order == Order::Oldest;
        self.watch_listeners(self.table.open() < self.table.open_max());
        phase.outcome
    }

    /// Asks the policy of a listener, and does what concerns more than this phase. `knocked`:
    /// somebody waits there.
    fn decide(&mut self, index: usize, knocked: bool) -> Decision {
        let now_ns = self.service.now_ns();
        let rounds_since = self.listeners[index].rounds_since(self.rounds, knocked);
        let view = View {
            open: self.table.open(),
            open_max: self.table.open_max(),
            rounds_since,
            closed: self.served,
            waited_ns: self.waited_ns,
            work_items: self.work_items,
            work_ns: self.work_ns,
            held: self.held.len(),
        };
        let listener = &mut self.listeners[index];
        listener.decide(now_ns, &view, &mut self.service.counters);
        let decision = listener.decision;
        self.service.pressure = self.listeners.iter().any(|each| each.decision.pressure);
        if decision.evict > 0 {
            self.make_room(decision.evict as usize, decision.silence_ns);
        }
        decision
    }

    /// Asks those policies whose time has come though nobody knocked.
    pub(super) fn consult(&mut self) {
        let now_ns = self.service.now_ns();
        for index in 0..self.listeners.len() {
            if self.listeners[index].due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                self.decide(index, false);
                self.listeners[index].finished(now_ns, &Outcome::default());
            }
        }
    }

    fn receive(&mut self, fd: OwnedFd, peer: SocketAddr, phase: &mut AcceptPhase) {
        phase.outcome.accepted += 1;
        self.service.counters.accepted.one();
        if phase.is_excess() {
            phase.outcome.refused += 1;
            self.service.counters.refused_excess.one();
            return self.refuse(fd, peer);
        }
        let arrival = if phase.looks() { listener::arrival(fd.as_fd()).ok() } else { None };
        match phase.judge(self.service.now_ns(), arrival) {
            Fate::Serve { since_ns } => {
                phase.taken += 1;
                self.welcome(Conn::new(fd, peer, &self.service), phase.decision.order, since_ns);
            }
            Fate::Refuse => {
                phase.outcome.refused += 1;
                self.service.counters.refused_stale.one();
                self.refuse(fd, peer);
            }
            Fate::Drop => {
                phase.outcome.refused += 1;
                self.service.counters.departed.one();
                socket::close(fd);
            }
        }
    }

    fn welcome(&mut self, conn: Conn, order: Order, since_ns: u64) {
        let Some(slot) = self.enter(conn) else { return };
        if order == Order::Newest {
            self.held.push_back(Held { token: self.table.token(slot), since_ns });
            self.service.counters.held_max.raise(self.held.len() as u64);
        } else if self.service.config.strategy.eager_read {
            self.serve(slot);
        } else {
            self.settle(slot, Next::Read);
        }
    }

    /// Gives a connection a slot; closes it when there is none.
    fn enter(&mut self, conn: Conn) -> Option<u32> {
        match self.table.insert(conn) {
            Ok(slot) => {
                let open = self.table.open() as u64;
                self.service.counters.open_at_accept.add(open);
                self.service.counters.open_max.raise(open);
                Some(slot)
            }
            Err(conn) => {
                conn.close(&mut self.service);
                None
            }
        }
    }

    /// Refuses one that was accepted, as the operator wants it.
    fn refuse(&mut self, fd: OwnedFd, peer: SocketAddr) {
        match self.service.config.setting.refusal {
            Refusal::Kernel | Refusal::Rst => {
                socket::reset_on_close(fd.as_fd());
                socket::close(fd);
            }
            Refusal::Fin => {
                // A close with bytes unread would be a reset.
                let _ = socket::read_slice(fd.as_fd(), &mut self.service.scratch);
                socket::close(fd);
            }
            Refusal::Status503 => {
                let conn = Conn::new(fd, peer, &self.service);
                let Some(slot) = self.enter(conn) else { return };
                self.turn_away(slot);
            }
        }
    }

    /// Answers one that has a slot with 503.
    fn turn_away(&mut self, slot: u32) {
        let Some(conn) = self.table.conn(slot) else { return };
        let next = conn.turn_away(&mut self.service);
        // Its close is no service.
        self.served = self.served.wrapping_sub(1);
        self.settle(slot, next);
    }

    /// Refuses those held that have become stale. If nobody newer waits it serves the others, the
    /// newest first, for as long as the policy lets an accept-phase take.
    pub(super) fn serve_held(&mut self) {
        let began_ns = self.service.now_ns();
        let decision = self.listeners.first().map(|first| first.decision).unwrap_or_default();
        let until_ns = decision.until_ns.unwrap_or(began_ns);
        let stale_before_ns =
            decision.stale_ns.map_or(0, |stale_ns| began_ns.saturating_sub(stale_ns));
        while let Some(oldest) = self.held.front().copied()
            && oldest.since_ns < stale_before_ns
        {
            self.held.pop_front();
            self.refuse_open(oldest.token);
        }
        if self.someone_waits {
            return;
        }
        while let Some(newest) = self.held.pop_back() {
            if self.table.is_current(newest.token) {
                self.serve(newest.token.slot);
            }
            if self.service.read_clock_ns() >= until_ns {
                break;
            }
        }
    }

    /// Refuses a connection that has a slot.
    pub(super) fn refuse_open(&mut self, token: Token) {
        if !self.table.is_current(token) {
            return;
        }
        self.service.counters.refused_stale.one();
        let refusal = self.service.config.setting.refusal;
        if refusal == Refusal::Status503 {
            return self.turn_away(token.slot);
        }
        if refusal != Refusal::Fin
            && let Some(conn) = self.table.conn(token.slot)
        {
            socket::reset_on_close(conn.fd());
        }
        // Its close is no service.
        self.served = self.served.wrapping_sub(1);
        self.close(token.slot);
    }

    /// What becomes of a request on an open connection under pressure: it may have waited too long,
    /// and nobody may wait for it any more.
    pub(super) fn judge_open(&mut self, token: Token) -> Fate {
        let now_ns = self.service.now_ns();
        let decision = self.listeners.first().map(|first| first.decision).unwrap_or_default();
        let idle = self.table.conn(token.slot).filter(|conn| conn.is_kept());
        let arrival = idle.and_then(|conn| listener::arrival(conn.fd()).ok());
        AcceptPhase::new(decision, now_ns).judge(now_ns, arrival)
    }

    /// Closes connections that wait for their client: idle ones first, then those that have said
    /// nothing whole for too long. Goes on next time where it ended.
    fn make_room(&mut self, count: usize, silence_ns: u64) {
        let now_ns = self.service.now_ns();
        let (mut idle, mut silent) = (Vec::new(), Vec::new());
        let mut last = self.hand;
        for (slot, conn) in self.table.walk(self.hand, LOOKED_AT_EACH * count) {
            last = slot;
            if conn.is_kept() {
                idle.push(slot);
            } else if conn.is_waiting() && now_ns.saturating_sub(conn.waits_since_ns()) > silence_ns
            {
                silent.push(slot);
            }
            if idle.len() == count {
                break;
            }
        }
        self.hand = last + 1;
        let before = self.table.open();
        silent.truncate(count - idle.len());
        idle.into_iter().for_each(|slot| self.dismiss(slot));
        silent.into_iter().for_each(|slot| self.close(slot));
        self.service.counters.evicted_idle.add((before - self.table.open()) as u64);
    }

    /// No descriptor or no memory for another connection: what is open goes on, the idle make room.
    fn relieve(&mut self, error: &std::io::Error) {
        self.service.counters.accept_failed.one();
        self.service.store.release_descriptors();
        let idle = self.table.find(self.hand, EVICTED_AT_ONCE, Conn::is_kept);
        self.hand = idle.last().map_or(0, |slot| slot + 1);
        let before = self.table.open();
        idle.into_iter().for_each(|slot| self.dismiss(slot));
        let evicted = before - self.table.open();
        self.service.counters.evicted_idle.add(evicted as u64);
        if evicted == 0 {
            self.rest(error);
        } else {
            self.tell(&format!("cannot accept: {error}; {evicted} idle connection(s) closed"));
        }
    }

    /// Accepts nobody for a while, or until a connection closes.
    fn rest(&mut self, error: &std::io::Error) {
        self.paused_until_ns = Some(self.service.now_ns() + ACCEPT_REST_NS);
        self.watch_listeners(false);
        self.tell(&format!("cannot accept, resting: {error}"));
    }

    /// Closes an idle connection, unless its next request has come: a close with bytes unread would
    /// be a reset, and could cost the client the reply it is still reading.
    pub(super) fn dismiss(&mut self, slot: u32) {
        self.serve(slot);
        if self.table.conn(slot).is_some_and(|conn| conn.is_idle()) {
            self.close(slot);
        }
    }

    pub(super) fn watch_listeners(&mut self, wanted: bool) {
        let wanted = wanted && self.paused_until_ns.is_none();
        for listener in self.listeners.iter_mut().filter(|listener| listener.watched != wanted) {
            let interest = if wanted { Interest::Accept } else { Interest::Nothing };
            match self.mechanism.change(listener.fd(), listener.token, interest) {
                Ok(()) => listener.watched = wanted,
                // Want of memory: tried again when the pause is over.
                Err(_) => {
                    self.paused_until_ns = Some(self.service.now_ns() + ACCEPT_REST_NS);
                }
            }
        }
    }
}
