//! The accept-phase: as many as the policy allows, each judged before anything of it is read, and
//! room made for them. The same for every architecture. What a policy decides by is its own affair,
//! and how a connection is served the architecture's.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use weir_accept::{Decision, Look, Order, Outcome, Refusal, View};
use weir_dispatch::readiness::Token;
use weir_sys::listener::{self, Arrival};
use weir_sys::{is_exhaustion, socket};

use super::{Architecture, Tenant};

/// How long accepting rests when there are no descriptors and nobody to take one from.
const ACCEPT_REST_NS: u64 = 100_000_000;

/// Idle connections closed at once to get descriptors back.
const EVICTED_AT_ONCE: usize = 32;

/// Slots looked at for each connection that has to be closed to make room.
const LOOKED_AT_EACH: usize = 32;

/// One that was accepted and waits to be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    token: Token,
    /// When its request came, as far as that is known.
    since_ns: u64,
}

/// What is to become of one that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its request came at this time, or it was not asked.
    Serve { since_ns: u64 },
    /// It would get its reply too late.
    Refuse,
    /// Its client has gone.
    Drop,
}

/// An accept-phase as it goes.
pub(crate) struct AcceptPhase {
    pub(super) decision: Decision,
    pub(super) outcome: Outcome,
    /// Accepted in order to be served.
    pub(super) taken: u64,
    /// No refusal begins after this: those to be served come after them, and have half of the time.
    refuse_until_ns: u64,
    /// Some are refused unseen in this phase.
    refuses: bool,
    /// The time is up, and the one that is still to be served is served however long it waited.
    owes_one: bool,
}

impl AcceptPhase {
    pub(super) fn new(decision: Decision, now_ns: u64) -> Self {
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
    pub(super) fn goes_on(&mut self, clock_ns: impl FnOnce() -> u64) -> bool {
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

/// What every architecture does alike about connections that come and go.
pub(crate) trait Accepting: Architecture {
    /// One accept-phase of one listener: as many as the policy allows.
    fn accept(&mut self, index: usize) -> Outcome {
        let Some(mut phase) = self.begin_accepting(index) else { return Outcome::default() };
        self.accept_more(index, &mut phase);
        self.end_accepting(index, phase)
    }

    /// Accepts, by a call each, for as long as the phase goes on.
    fn accept_more(&mut self, index: usize, phase: &mut AcceptPhase) {
        while self.takes_more() && self.accept_one(index, phase) {}
    }

    /// One accept of a phase, if the policy allows another. Whether the phase goes on.
    fn accept_one(&mut self, index: usize, phase: &mut AcceptPhase) -> bool {
        if !self.goes_on(phase) {
            return false;
        }
        let Some(listener) = self.floor().listeners.get(index) else { return false };
        match socket::accept(listener.fd()) {
            Ok((fd, peer)) => {
                self.receive(fd, peer, phase);
                // There may have been nothing to serve it with.
                self.floor().paused_until_ns.is_none()
            }
            Err(error) => self.bear(index, &error, phase),
        }
    }

    /// Whether a phase allows another accept.
    fn goes_on(&mut self, phase: &mut AcceptPhase) -> bool {
        let owed_ns =
            if Self::SERVES_LATER { phase.taken.saturating_mul(phase.decision.each_ns) } else { 0 };
        phase.goes_on(|| self.floor().service.read_clock_ns() + owed_ns)
    }

    /// Accepts others in the place of one that was closed, where that is wanted.
    fn accept_after_close(&mut self) {
        if self.floor().service.config.strategy.accept_on_close {
            (0..self.floor().listeners.len()).for_each(|index| {
                self.accept(index);
            });
        }
    }

    /// An accept-phase, as the policy wants it; none while nobody is accepted.
    fn begin_accepting(&mut self, index: usize) -> Option<AcceptPhase> {
        if self.floor().paused_until_ns.is_some() || index >= self.floor().listeners.len() {
            return None;
        }
        let decision = self.decide(index, true);
        self.floor().service.counters.accept_phases.one();
        Some(AcceptPhase::new(decision, self.floor().service.now_ns()))
    }

    /// Tells the policy how the phase went.
    fn end_accepting(&mut self, index: usize, phase: AcceptPhase) -> Outcome {
        let floor = self.floor();
        let now_ns = floor.service.now_ns();
        if let Some(listener) = floor.listeners.get_mut(index) {
            listener.finished(now_ns, &phase.outcome);
        }
        floor.someone_waits |= !phase.outcome.drained && phase.decision.order == Order::Oldest;
        let has_room = floor.table.open() < floor.table.open_max();
        self.watch_listeners(has_room);
        phase.outcome
    }

    /// An accept failed. Whether the phase goes on.
    fn bear(&mut self, index: usize, error: &io::Error, phase: &mut AcceptPhase) -> bool {
        if error.kind() == io::ErrorKind::WouldBlock {
            phase.outcome.drained = true;
            self.floor().service.counters.accept_would_block.one();
            self.nobody_waits(index);
            false
        } else if is_exhaustion(error) {
            self.relieve(error);
            Self::CLOSES_AT_ONCE && self.floor().paused_until_ns.is_none()
        } else if socket::is_lost_connection(error) {
            self.floor().service.counters.accept_aborted.one();
            true
        } else {
            self.rest(error);
            false
        }
    }

    /// Asks the policy of a listener, and does what concerns more than this phase. `knocked`:
    /// somebody waits there.
    fn decide(&mut self, index: usize, knocked: bool) -> Decision {
        self.note_waited();
        let floor = self.floor();
        let (now_ns, view) = (floor.service.now_ns(), floor.view());
        let Some(listener) = floor.listeners.get_mut(index) else { return Decision::default() };
        let rounds_since = listener.rounds_since(floor.rounds, knocked);
        listener.decide(now_ns, &View { rounds_since, ..view }, &mut floor.service.counters);
        let decision = listener.decision;
        floor.service.pressure = floor.listeners.iter().any(|each| each.decision.pressure);
        if decision.evict > 0 {
            self.make_room(decision.evict as usize, decision.silence_ns);
        }
        decision
    }

    /// Asks those policies whose time has come though nobody knocked.
    fn consult(&mut self) {
        let now_ns = self.floor().service.now_ns();
        for index in 0..self.floor().listeners.len() {
            if self.floor().listeners[index].due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                self.decide(index, false);
                self.floor().listeners[index].finished(now_ns, &Outcome::default());
            }
        }
    }

    /// What ends the accept-phases of a round: policies whose time has come, and those held.
    fn end_accept_phase(&mut self) {
        self.consult();
        if !self.floor().held.is_empty() {
            self.serve_held();
        }
    }

    /// Judges one that was accepted, and begins to serve it, or does not.
    fn receive(&mut self, fd: OwnedFd, peer: SocketAddr, phase: &mut AcceptPhase) {
        phase.outcome.accepted += 1;
        let floor = self.floor();
        floor.service.counters.accepted.one();
        if phase.is_excess() {
            phase.outcome.refused += 1;
            floor.service.counters.refused_excess.one();
            return self.refuse(fd, peer);
        }
        let arrival = if phase.looks() { listener::arrival(fd.as_fd()).ok() } else { None };
        match phase.judge(floor.service.now_ns(), arrival) {
            Fate::Serve { since_ns } => {
                phase.taken += 1;
                let tenant = Self::Tenant::new(fd, peer, &floor.service);
                self.welcome(tenant, phase.decision.order, since_ns);
            }
            Fate::Refuse => {
                phase.outcome.refused += 1;
                floor.service.counters.refused_stale.one();
                self.refuse(fd, peer);
            }
            Fate::Drop => {
                phase.outcome.refused += 1;
                floor.service.counters.departed.one();
                socket::close(fd);
            }
        }
    }

    /// Begins to serve one that was accepted, or holds it until there is time.
    fn welcome(&mut self, tenant: Self::Tenant, order: Order, since_ns: u64) {
        let Some(slot) = self.enter(tenant) else { return };
        let floor = self.floor();
        if order == Order::Newest {
            floor.held.push_back(Held { token: floor.table.token(slot), since_ns });
            floor.service.counters.held_max.raise(floor.held.len() as u64);
        } else {
            let at_once = floor.service.config.strategy.eager_read;
            self.begin(slot, at_once);
        }
    }

    /// Gives a connection a slot; closes it when there is none.
    fn enter(&mut self, tenant: Self::Tenant) -> Option<u32> {
        let floor = self.floor();
        match floor.table.insert(tenant) {
            Ok(slot) => {
                floor.note_open();
                Some(slot)
            }
            Err(tenant) => {
                tenant.close(&mut floor.service);
                None
            }
        }
    }

    /// Refuses one that was accepted, as the operator wants it.
    fn refuse(&mut self, fd: OwnedFd, peer: SocketAddr) {
        let service = &mut self.floor().service;
        match service.config.setting.refusal {
            Refusal::Kernel | Refusal::Rst => {
                socket::reset_on_close(fd.as_fd());
                socket::close(fd);
            }
            Refusal::Fin => {
                // A close with bytes unread would be a reset.
                let _ = socket::read_slice(fd.as_fd(), &mut service.scratch);
                socket::close(fd);
            }
            Refusal::Status503 => {
                let tenant = Self::Tenant::new(fd, peer, service);
                let Some(slot) = self.enter(tenant) else { return };
                self.refuse_with_503(slot);
            }
        }
    }

    /// Refuses one that has a slot. Its close is no service.
    fn refuse_with_503(&mut self, slot: u32) {
        self.floor().served = self.floor().served.wrapping_sub(1);
        self.turn_away(slot);
    }

    /// Refuses those held that have become stale. If nobody newer waits it serves the others, the
    /// newest first, for as long as the policy lets an accept-phase take.
    fn serve_held(&mut self) {
        let Some(until_ns) = self.sift_held() else { return };
        while self.serve_newest()
            && !self.has_in_hand()
            && self.floor().service.read_clock_ns() < until_ns
        {}
    }

    /// Refuses those held that have become stale. Until when the others are served; `None` when
    /// somebody newer waits.
    fn sift_held(&mut self) -> Option<u64> {
        let began_ns = self.floor().service.now_ns();
        let decision = self.floor().decision();
        let stale_before_ns =
            decision.stale_ns.map_or(0, |stale_ns| began_ns.saturating_sub(stale_ns));
        while let Some(oldest) = self.floor().held.front().copied()
            && oldest.since_ns < stale_before_ns
        {
            self.floor().held.pop_front();
            self.refuse_open(oldest.token);
        }
        let until_ns = decision.until_ns.unwrap_or(began_ns);
        (!self.floor().someone_waits).then_some(until_ns)
    }

    /// Begins to serve the newest held. Whether there was one.
    fn serve_newest(&mut self) -> bool {
        let Some(newest) = self.floor().held.pop_back() else { return false };
        if self.floor().table.is_current(newest.token) {
            self.begin(newest.token.slot, true);
        }
        true
    }

    /// Refuses a connection that has a slot.
    fn refuse_open(&mut self, token: Token) {
        let floor = self.floor();
        if !floor.table.is_current(token) {
            return;
        }
        floor.service.counters.refused_stale.one();
        let refusal = floor.service.config.setting.refusal;
        if refusal == Refusal::Status503 {
            return self.refuse_with_503(token.slot);
        }
        if refusal != Refusal::Fin
            && let Some(tenant) = floor.table.conn(token.slot)
        {
            tenant.reset_on_close();
        }
        // Its close is no service.
        floor.served = floor.served.wrapping_sub(1);
        self.close(token.slot);
    }

    /// What becomes of a request on an open connection under pressure: it may have waited too long,
    /// and nobody may wait for it any more.
    fn judge_open(&mut self, token: Token) -> Fate {
        let floor = self.floor();
        let (now_ns, decision) = (floor.service.now_ns(), floor.decision());
        let is_kept = floor.table.conn(token.slot).is_some_and(|conn| conn.is_kept());
        let arrival = if is_kept { self.arrival(token.slot) } else { None };
        AcceptPhase::new(decision, now_ns).judge(now_ns, arrival)
    }

    /// Under pressure, whether the connection that is ready is served; if not, it is refused or
    /// closed.
    fn is_worth_serving(&mut self, token: Token) -> bool {
        if !self.floor().service.pressure {
            return true;
        }
        match self.judge_open(token) {
            Fate::Serve { .. } => return true,
            Fate::Refuse => self.refuse_open(token),
            Fate::Drop => {
                self.floor().service.counters.departed.one();
                self.close(token.slot);
            }
        }
        false
    }

    /// Closes connections that wait for their client: idle ones first, then those that have said
    /// nothing whole for too long. Goes on next time where it ended.
    fn make_room(&mut self, count: usize, silence_ns: u64) {
        let floor = self.floor();
        let now_ns = floor.service.now_ns();
        let (mut idle, mut silent) = (Vec::new(), Vec::new());
        let mut last = floor.hand;
        for (slot, conn) in floor.table.walk(floor.hand, LOOKED_AT_EACH * count) {
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
        floor.hand = last + 1;
        let before = floor.table.open();
        silent.truncate(count - idle.len());
        idle.into_iter().for_each(|slot| self.dismiss(slot));
        silent.into_iter().for_each(|slot| self.close(slot));
        let floor = self.floor();
        floor.service.counters.evicted_idle.add((before - floor.table.open()) as u64);
    }

    /// No descriptor or no memory for another connection: what is open goes on, the idle make room.
    fn relieve(&mut self, error: &io::Error) {
        let floor = self.floor();
        floor.service.counters.accept_failed.one();
        floor.service.store.release_descriptors();
        let idle = floor.table.find(floor.hand, EVICTED_AT_ONCE, |conn| conn.is_kept());
        floor.hand = idle.last().map_or(0, |slot| slot + 1);
        let before = floor.table.open();
        idle.into_iter().for_each(|slot| self.dismiss(slot));
        let evicted = before - self.floor().table.open();
        self.floor().service.counters.evicted_idle.add(evicted as u64);
        if evicted == 0 {
            self.rest(error);
        } else {
            self.floor()
                .tell(&format!("cannot accept: {error}; {evicted} idle connection(s) closed"));
        }
    }

    /// Accepts nobody for a while, or until a connection closes.
    fn rest(&mut self, error: &io::Error) {
        self.floor().paused_until_ns = Some(self.floor().service.now_ns() + ACCEPT_REST_NS);
        self.watch_listeners(false);
        self.floor().tell(&format!("cannot accept, resting: {error}"));
    }

    /// Takes a connection out of its slot, and makes room for another known.
    fn vacate(&mut self, slot: u32) -> Option<(Self::Tenant, Token)> {
        let floor = self.floor();
        let vacated = floor.table.remove(slot)?;
        floor.served = floor.served.wrapping_add(1);
        floor.paused_until_ns = None;
        self.watch_listeners(true);
        Some(vacated)
    }

    fn watch_listeners(&mut self, wanted: bool) {
        let wanted = wanted && self.floor().paused_until_ns.is_none() && self.has_hands();
        for index in 0..self.floor().listeners.len() {
            if self.floor().listeners[index].watched == wanted {
                continue;
            }
            match self.watch(index, wanted) {
                Ok(()) => self.floor().listeners[index].watched = wanted,
                // Want of memory: tried again when the pause is over.
                Err(_) => {
                    let now_ns = self.floor().service.now_ns();
                    self.floor().paused_until_ns = Some(now_ns + ACCEPT_REST_NS);
                }
            }
        }
    }
}
