//! The accept-phase: accepts connections up to the policy's limit, judges each before any of it is
//! read, and makes room for them. Shared by all architectures. The policy decides on criteria of
//! its own, and the architecture decides how a connection is served.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use weir_accept::{AcceptPhase, Decision, Order, PhaseOutcome, Refusal, Verdict, View};
use weir_dispatch::readiness::Token;
use weir_sys::listener;
use weir_sys::{is_exhaustion, socket};

use super::{Architecture, Tenant};
use crate::close_reason::CloseReason;
use crate::conn::Spare;

/// Pause in accepting after an error, such as a lack of descriptors with no connection to evict,
/// nanoseconds.
const ACCEPT_REST_NS: u64 = 100_000_000;

/// Pause in accepting when every slot is taken and no connection can be evicted, nanoseconds.
const CROWDED_REST_NS: u64 = 20_000_000;

/// Maximum number of connections evicted at once to make room.
const EVICTED_AT_ONCE: usize = 32;

/// Maximum number of connections sampled when looking for the longest-waiting ones to evict.
const LOOKED_AT: usize = 512;

/// Accepting, refusing and evicting, shared by all architectures.
pub(crate) trait Accepting: Architecture {
    /// Runs an accept-phase of one listener, up to the policy's limit.
    fn accept(&mut self, index: usize) -> PhaseOutcome {
        let Some(mut phase) = self.begin_accepting(index) else { return PhaseOutcome::default() };
        self.accept_more(index, &mut phase);
        self.end_accepting(index, phase)
    }

    /// Accepts with one call per connection until the phase ends.
    fn accept_more(&mut self, index: usize, phase: &mut AcceptPhase) {
        while self.takes_more() && self.accept_one(index, phase) {}
    }

    /// Makes one accept of a phase, if the policy allows another; returns whether to continue.
    fn accept_one(&mut self, index: usize, phase: &mut AcceptPhase) -> bool {
        if !self.goes_on(phase) {
            return false;
        }
        let Some(listener) = self.floor().listeners.get(index) else { return false };
        match socket::accept(listener.fd()) {
            Ok((fd, peer)) => {
                self.receive(index, fd, peer, phase);
                // There may have been nothing to serve it with.
                self.floor().paused_until_ns.is_none()
            }
            Err(error) => self.bear(index, &error, phase),
        }
    }

    /// Returns whether the phase allows another accept.
    fn goes_on(&mut self, phase: &mut AcceptPhase) -> bool {
        phase.may_continue(Self::SERVES_LATER, || self.floor().service.read_clock_ns())
    }

    /// Accepts further connections in place of a closed one, if `accept_on_close` is set.
    fn accept_after_close(&mut self) {
        if self.floor().service.config.strategy.accept_on_close {
            (0..self.floor().listeners.len()).for_each(|index| {
                self.accept(index);
            });
        }
    }

    /// Begins an accept-phase with the policy's decision; `None` while accepting is paused.
    fn begin_accepting(&mut self, index: usize) -> Option<AcceptPhase> {
        if self.floor().paused_until_ns.is_some() || index >= self.floor().listeners.len() {
            return None;
        }
        if self.is_full() && self.make_room(EVICTED_AT_ONCE) == 0 {
            self.rest(CROWDED_REST_NS);
            return None;
        }
        let decision = self.decide(index, true);
        self.floor().service.counters.accept_phases.one();
        Some(AcceptPhase::new(decision, self.floor().service.now_ns()))
    }

    /// Reports the outcome of a phase to the policy.
    fn end_accepting(&mut self, index: usize, phase: AcceptPhase) -> PhaseOutcome {
        let floor = self.floor();
        let now_ns = floor.service.now_ns();
        if let Some(listener) = floor.listeners.get_mut(index) {
            listener.finished(now_ns, &phase.outcome);
        }
        floor.someone_waits |= !phase.outcome.drained && phase.decision.order == Order::Oldest;
        self.watch_listeners(true);
        phase.outcome
    }

    /// Handles an accept error; returns whether to continue the phase.
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
            self.rest_for(error);
            false
        }
    }

    /// Asks a listener's policy for a decision, and applies the parts that affect more than this
    /// phase. `knocked`: a connection is pending there.
    fn decide(&mut self, index: usize, knocked: bool) -> Decision {
        let floor = self.floor();
        let (now_ns, view) = (floor.service.now_ns(), floor.view());
        let Some(listener) = floor.listeners.get_mut(index) else { return Decision::default() };
        let rounds_since = listener.rounds_since(floor.rounds, knocked);
        listener.decide(now_ns, &View { rounds_since, ..view }, &mut floor.service.counters);
        let decision = listener.decision;
        floor.note_decisions();
        decision
    }

    /// Asks the policies whose time has come although their listener is not ready.
    fn consult(&mut self) {
        let now_ns = self.floor().service.now_ns();
        for index in 0..self.floor().listeners.len() {
            if self.floor().listeners[index].due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                self.decide(index, false);
                self.floor().listeners[index].finished(now_ns, &PhaseOutcome::default());
            }
        }
    }

    /// Ends the accept-phases of a round: consults the policies that are due, and serves deferred
    /// connections.
    fn end_accept_phase(&mut self) {
        self.consult();
        if !self.floor().deferred.is_empty() {
            self.serve_deferred();
        }
    }

    /// Judges an accepted connection, and then begins to serve it, refuses it or drops it.
    fn receive(&mut self, index: usize, fd: OwnedFd, peer: SocketAddr, phase: &mut AcceptPhase) {
        self.note_accepted(index);
        let floor = self.floor();
        let arrival = if phase.inspects() {
            listener::arrival(fd.as_fd()).ok().map(into_arrival)
        } else {
            None
        };
        let verdict = phase.judge(floor.service.now_ns(), arrival);
        if let Verdict::Admit { since_ns } = verdict {
            let tenant = Self::Tenant::new(fd, peer, &floor.service);
            return self.admit(tenant, phase.decision, since_ns);
        }
        floor.note_refusal();
        let counters = &mut floor.service.counters;
        match verdict {
            Verdict::Departed => {
                counters.departed.one();
                return socket::close(fd);
            }
            Verdict::Excess => counters.refused_excess.one(),
            _ => counters.refused_stale.one(),
        }
        self.refuse(fd, peer);
    }

    /// Records that a listener has delivered a connection.
    fn note_accepted(&mut self, index: usize) {
        let floor = self.floor();
        floor.service.counters.accepted.one();
        floor.accepted += 1;
        if let Some(listener) = floor.listeners.get_mut(index) {
            listener.accepted();
        }
    }

    /// Begins to serve an accepted connection, or defers it until there is time.
    fn admit(&mut self, tenant: Self::Tenant, decision: Decision, since_ns: u64) {
        let source = tenant.peer().ip().into();
        let Some(slot) = self.enter(tenant) else { return };
        let floor = self.floor();
        if decision.order == Order::Newest {
            let (now_ns, token) = (floor.service.now_ns(), floor.table.token(slot));
            floor.deferred.push(now_ns, token, since_ns, source, decision.order_share);
            floor.service.counters.deferred_max.raise(floor.deferred.len() as u64);
        } else {
            floor.begun += 1;
            let at_once = floor.service.config.strategy.eager_read;
            self.begin(slot, at_once);
        }
    }

    /// Gives a connection a slot; closes it if none is free.
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

    /// Refuses an accepted connection in the configured way.
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
                self.turn_away(slot);
            }
        }
    }

    /// Refuses deferred connections that have become stale. If no newer connection is pending,
    /// serves the others, newest first, for as long as the policy lets an accept-phase take.
    fn serve_deferred(&mut self) {
        let Some(until_ns) = self.sift_deferred() else { return };
        while self.serve_newest()
            && !self.has_in_hand()
            && self.floor().service.read_clock_ns() < until_ns
        {}
    }

    /// Refuses deferred connections that have become stale. Returns the time until which the others
    /// are served; `None` if a newer connection is pending.
    fn sift_deferred(&mut self) -> Option<u64> {
        let began_ns = self.floor().service.now_ns();
        let decision = self.floor().decision();
        let stale_before_ns =
            decision.stale_ns.map_or(0, |stale_ns| began_ns.saturating_sub(stale_ns));
        while let Some(token) = self.floor().deferred.pop_stale(stale_before_ns) {
            self.refuse_open(token, CloseReason::Stale);
        }
        let until_ns = decision.until_ns.unwrap_or(began_ns);
        (!self.floor().someone_waits).then_some(until_ns)
    }

    /// Begins to serve the newest deferred connection; returns whether there was one.
    fn serve_newest(&mut self) -> bool {
        let Some(newest) = self.floor().deferred.pop_newest() else { return false };
        if self.floor().table.is_current(newest) {
            self.floor().begun += 1;
            self.begin(newest.slot, true);
        }
        true
    }

    /// Refuses a connection that has a slot.
    fn refuse_open(&mut self, token: Token, reason: CloseReason) {
        let floor = self.floor();
        if !floor.table.is_current(token) {
            return;
        }
        floor.note_refusal();
        match reason {
            CloseReason::Unfair => floor.service.counters.refused_unfair.one(),
            _ => floor.service.counters.refused_stale.one(),
        }
        let refusal = floor.service.config.setting.refusal;
        if refusal == Refusal::Status503 {
            return self.turn_away(token.slot);
        }
        floor.note_close(token.slot, reason);
        if refusal != Refusal::Fin
            && let Some(tenant) = floor.table.conn(token.slot)
        {
            tenant.reset_on_close();
        }
        self.close(token.slot);
    }

    /// Judges a request on an open connection: it may have waited too long, its source may have
    /// used up its share, or its client may have gone.
    fn judge_open(&mut self, token: Token, decision: Decision) -> Verdict {
        let floor = self.floor();
        let now_ns = floor.service.now_ns();
        let new = floor.table.conn(token.slot).filter(|conn| conn.is_idle());
        let peer = new.map(|conn| conn.peer());
        let arrival = peer.and_then(|_| self.arrival(token.slot));
        let service = &mut self.floor().service;
        let is_fair = |_| peer.is_none_or(|peer| service.has_a_share(peer));
        AcceptPhase::judge_open(decision, now_ns, arrival.map(into_arrival), is_fair)
    }

    /// Returns whether a ready connection is to be served; otherwise refuses or closes it.
    fn is_worth_serving(&mut self, token: Token) -> bool {
        let Some(decision) = self.floor().judges else { return true };
        match self.judge_open(token, decision) {
            Verdict::Admit { .. } => return true,
            Verdict::Departed => {
                let floor = self.floor();
                floor.note_refusal();
                floor.service.counters.departed.one();
                floor.note_close(token.slot, CloseReason::Departed);
                self.close(token.slot);
            }
            Verdict::Unfair => self.refuse_open(token, CloseReason::Unfair),
            Verdict::Stale | Verdict::Excess => self.refuse_open(token, CloseReason::Stale),
        }
        false
    }

    /// Returns whether there is no slot for another connection.
    fn is_full(&mut self) -> bool {
        let table = &self.floor().table;
        table.open() >= table.open_max()
    }

    /// Closes up to `count` connections that can be spared, the least valuable and longest waiting
    /// first, from a sample that continues where the last one ended. Returns the number closed. The
    /// cause is lack of room, not load.
    fn make_room(&mut self, count: usize) -> usize {
        let floor = self.floor();
        let mut spare: Vec<(Spare, u64, u32)> = Vec::new();
        let now_ns = floor.service.now_ns();
        let mut last = floor.hand;
        for (slot, conn) in floor.table.walk(floor.hand, usize::MAX) {
            last = slot;
            spare.extend(conn.spare(now_ns).map(|(spare, since_ns)| (spare, since_ns, slot)));
            if spare.len() == LOOKED_AT {
                break;
            }
        }
        floor.hand = last + 1;
        let before = floor.table.open();
        spare.sort_unstable();
        // A part of those there are: who was sampled among few may not have waited long.
        let count = count.min(spare.len().div_ceil(4));
        for (spare, _, slot) in spare.into_iter().take(count) {
            if spare == Spare::Kept { self.dismiss(slot) } else { self.close(slot) }
        }
        let floor = self.floor();
        let evicted = before - floor.table.open();
        floor.service.counters.evicted.add(evicted as u64);
        evicted
    }

    /// Handles a lack of descriptors or memory for another connection: open connections continue,
    /// and some that can be spared are closed.
    fn relieve(&mut self, error: &io::Error) {
        let floor = self.floor();
        floor.service.counters.accept_failed.one();
        floor.service.store.release_descriptors();
        let evicted = self.make_room(EVICTED_AT_ONCE);
        if evicted == 0 {
            self.rest_for(error);
        } else {
            self.floor()
                .tell(&format!("cannot accept: {error}; {evicted} waiting connection(s) closed"));
        }
    }

    /// Pauses accepting after an error, and reports the reason.
    fn rest_for(&mut self, error: &io::Error) {
        self.rest(ACCEPT_REST_NS);
        self.floor().tell(&format!("cannot accept, resting: {error}"));
    }

    /// Pauses accepting for `rest_ns`, or until a connection closes.
    fn rest(&mut self, rest_ns: u64) {
        self.floor().paused_until_ns = Some(self.floor().service.now_ns() + rest_ns);
        self.watch_listeners(false);
    }

    /// Takes a connection out of its slot, and resumes accepting.
    fn vacate(&mut self, slot: u32) -> Option<(Self::Tenant, Token)> {
        let floor = self.floor();
        let vacated = floor.table.remove(slot)?;
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
                Ok(()) => {
                    let floor = self.floor();
                    floor.listeners[index].set_watched(wanted, floor.rounds);
                }
                // Want of memory: tried again when the pause is over.
                Err(_) => {
                    let now_ns = self.floor().service.now_ns();
                    self.floor().paused_until_ns = Some(now_ns + ACCEPT_REST_NS);
                }
            }
        }
    }
}

/// Converts the kernel's data on an arrival to the type that policies use.
fn into_arrival(told: listener::Arrival) -> weir_accept::Arrival {
    let listener::Arrival { age_ns, departed, spoken, rtt_ns } = told;
    weir_accept::Arrival { age_ns, departed, spoken, rtt_ns }
}
