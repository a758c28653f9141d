//! The accept-phase on a ring, with an exact number of accepts. One accept waits at each listener.
//! When it completes, the policy decides, and as many more connections as it allows are accepted by
//! a chain of accepts that do not wait: the first that finds the queue empty ends the chain.
//! Without a limit, one multishot accept is used while there are slots for all that it may bring.
//! If a policy inspects connections before they are served, or their time in the queue is asked
//! for, each is accepted by a call of its own, as in the event loop.
//!
//! Knows nothing of requests.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weir_accept::{AcceptPhase, Decision, Inspect, Limit, Order};
use weir_dispatch::readiness::Token;
use weir_sys::poll::POLLIN;
use weir_sys::ring::server::{
    AcceptTarget, AcceptWait, Completion, ECANCELED, Handle, Op, Returned, Then,
};
use weir_sys::{is_exhaustion, socket};

use super::connection::RingConnection;
use super::listener_accepts::ListenerAccepts;
use super::model::{Ring, RingWorker};
use super::user_data::{Data, Kind};
use crate::config::Config;
use crate::context::WorkerContext;
use crate::worker::Model;
use crate::worker::core::LoopCore;
use crate::worker::listener::Listener;

/// Maximum number of accepts in a chain; if the policy allows more, another chain of the same phase
/// follows.
const CHAIN_MAX: u64 = 64;

/// Length of one wait for the end of an operation at a listener that is closed.
const END_WAIT: Duration = Duration::from_millis(20);

/// Returns whether a phase takes every connection in order of arrival. (Its time limit is checked
/// between chains: an accept by the kernel takes a microsecond, and no connection is served
/// meanwhile.) The kernel can be asked about a connection by its descriptor only, which one
/// accepted into a slot does not have.
fn is_plain(decision: &Decision, config: &Config) -> bool {
    let looks_at_none = decision.inspect == Inspect::None && !config.accept_queue_times;
    let counts_none = config.client_limits.is_none_or(|limits| limits.each.connections.is_none());
    looks_at_none && counts_none && decision.order == Order::Oldest && decision.refuse == 0
}

/// Returns whether the addresses of clients are of use, which a multishot accept does not tell: to
/// the log, to upstreams, to rules of sites, to limits of clients, or to know who may send a
/// header of the PROXY protocol.
fn must_know_peers(context: &WorkerContext) -> bool {
    let config = &context.config;
    let by_rule = config.sites.is_some() || config.proxy_protocol_in;
    let counts = context.clients.is_some();
    context.log.is_some() || context.upstreams.is_some() || by_rule || counts
}

/// Returns whether there is a slot for each connection that the queues can hold, one more each than
/// their bound (listen(2)). A multishot accept takes them all before the loop sees one, and those
/// for which the kernel finds no slot are lost.
fn has_room_for_queues(core: &LoopCore<RingConnection>) -> bool {
    let queue_max = (core.context.config.listenq.unsigned_abs() as usize).saturating_add(1);
    core.table.free() >= queue_max.saturating_mul(core.listeners.len())
}

/// Number of slots promised to connections that have not come.
fn promised(core: &LoopCore<RingConnection>) -> usize {
    core.table.taken() - core.table.open_count()
}

/// Returns whether multishot accepts are to be used.
fn takes_many(core: &LoopCore<RingConnection>) -> bool {
    let config = &core.context.config;
    let strategy = &config.strategy;
    strategy.accept_limit == Limit::Inf
        && strategy.accept_policy == weir_accept::PolicyName::Limit
        && !must_know_peers(&core.context)
        && core.listeners.iter().all(|listener| is_plain(&listener.decision, config))
        && has_room_for_queues(core)
}

impl RingWorker {
    /// Starts an operation at each watched listener that has none under way.
    pub(super) fn start_accepts(&mut self) {
        let takes_many = takes_many(&self.core);
        if self.end_others(takes_many) {
            return;
        }
        for index in 0..self.core.listeners.len() {
            let is_busy = self.model.accept_ops.get(index).is_none_or(ListenerAccepts::is_busy);
            if !is_busy && self.core.listeners[index].watched {
                self.start_accept(index, takes_many);
            }
        }
    }

    /// Ends the waiting accepts of the other kind: multishot ones are used at all listeners, or at
    /// none. Returns whether some of them have not ended. The slot that the kernel chooses for a
    /// multishot accept may be one that another listener's accept was promised, and one of the two
    /// connections would be lost.
    fn end_others(&mut self, takes_many: bool) -> bool {
        let mut is_left = takes_many && promised(&self.core) > 0;
        for index in 0..self.model.accept_ops.len() {
            let Some(ops) = self.model.accept_ops.get(index) else { break };
            if ops.waiting.is_none() || ops.is_many == takes_many {
                continue;
            }
            is_left |= ops.is_many;
            if !ops.is_cancelled {
                self.cancel_accept(index);
            }
        }
        is_left
    }

    fn start_accept(&mut self, index: usize, takes_many: bool) {
        let core = &mut self.core;
        let Ring { ring, accept_ops, .. } = &mut self.model;
        let (listener, Some(ops)) = (&core.listeners[index], accept_ops.get_mut(index)) else {
            return;
        };
        let generation = index as u32;
        let data = |kind, slot| Data::of(kind, Token { slot, generation });
        ops.end_wait();
        // Without a free slot nothing can be accepted; room is made when a connection arrives. Nor
        // is the last slot promised to one listener of several, to which none may come.
        let has_slot_for_each = core.table.free() + promised(core) >= core.listeners.len();
        let may_promise = core.table.free() > 0 && has_slot_for_each;
        ops.waiting = if !is_plain(&listener.decision, &core.context.config) || !may_promise {
            Some(ring.poll(listener.shared_fd(), POLLIN as u32, data(Kind::ListenerReady, 0)))
        } else if takes_many {
            ops.is_many = true;
            Some(ring.accept_many(listener.shared_fd(), data(Kind::AcceptMany, 0)))
        } else if let Some(token) = core.table.promise() {
            let slot = token.slot - core.table.reserved();
            let data = data(Kind::Accept, token.slot);
            let wait =
                if ops.was_drained { AcceptWait::PollFirst } else { AcceptWait::AfterAttempt };
            let target = AcceptTarget::Slot(slot);
            let op = ring.accept(listener.shared_fd(), target, wait, Then::OnSuccess, data);
            let data = Data::of(Kind::Receive, token);
            ops.receive = Some(ring.receive(Handle::Slot(slot), false, data));
            Some(op)
        } else {
            None
        };
    }

    /// Cancels the operation that waits at a listener. It may still bring a connection.
    pub(super) fn cancel_accept(&mut self, index: usize) {
        if let Some(ops) = self.model.accept_ops.get_mut(index)
            && let Some(op) = ops.waiting
        {
            ops.is_cancelled = true;
            self.model.ring.cancel(op, Then::Nothing);
        }
    }

    /// Ends multishot accepts before a drain, which accepts by calls what is left in the queues:
    /// the kernel may have chosen the slot that such a connection would get.
    pub(super) fn end_many_before_drain(&mut self) {
        if !self.accepts_many() {
            return;
        }
        for index in 0..self.model.accept_ops.len() {
            self.end_waiting(index);
        }
        self.sort();
        while let Some(completion) = self.model.arrived.pop_front() {
            self.handle_arrival(&completion);
        }
        self.end_phases();
    }

    /// Returns whether a multishot accept is under way.
    pub(super) fn accepts_many(&self) -> bool {
        self.model.accept_ops.iter().any(|ops| ops.is_many)
    }

    /// Ends the operation that waits at a listener, and closes the listener: while the operation
    /// holds it, connects would still succeed, and one would wake this loop and not that of a
    /// successor. What has completed meanwhile is left to the next iteration: the first bytes of a
    /// connection come after the accept-phase that brings it.
    pub(super) fn cancel_and_close(&mut self, listener: Listener) {
        self.end_waiting((listener.token.slot - crate::worker::core::FIRST_LISTENER) as usize);
        listener.close();
    }

    /// Cancels the operation that waits at a listener, and waits for its end.
    fn end_waiting(&mut self, index: usize) {
        let waits = self.model.accept_ops.get(index).is_some_and(|ops| ops.waiting.is_some());
        self.cancel_accept(index);
        self.hand_over();
        // The kernel turns a limited number of wake-ups into completions at a time. If a wait
        // brings none, the operation ends later, as the loop goes on.
        let mut may_end = waits;
        while may_end && !self.has_wait_ended(index) {
            let taken = self.model.completions.len();
            if let Err(error) = self.model.ring.wait(Some(END_WAIT)) {
                self.handle_ring_error(&error);
            }
            self.model.ring.take(&mut self.model.completions);
            may_end = self.model.completions.len() > taken;
        }
    }

    /// Returns whether the end of the operation that waits at a listener is among the completions
    /// that were not sorted yet.
    fn has_wait_ended(&self, index: usize) -> bool {
        self.model.completions.iter().any(|completion| {
            let is_arrival = Data::kind_of(completion.data).is_some_and(Kind::is_arrival);
            let owner = Data::owner(completion.data).generation;
            is_arrival && !completion.more && owner as usize == index
        })
    }

    /// Handles a completion at a listener.
    pub(super) fn handle_arrival(&mut self, completion: &Completion) {
        let Token { slot, generation } = Data::owner(completion.data);
        let index = generation as usize;
        let kind = Data::kind_of(completion.data);
        if kind == Some(Kind::ListenerReady) || (kind == Some(Kind::AcceptMany) && !completion.more)
        {
            self.clear_wait(index);
        }
        match kind {
            Some(Kind::ListenerReady) if completion.result >= 0 => {
                self.accept(index);
            }
            Some(Kind::Accept) => self.accepted(index, slot, completion),
            Some(Kind::AcceptMany) => self.accepted_many(index, completion),
            _ => {}
        }
    }

    fn clear_wait(&mut self, index: usize) {
        if let Some(ops) = self.model.accept_ops.get_mut(index) {
            ops.end_wait();
        }
    }

    /// Handles the end of an accept into a promised slot: the one that waited, or one of a chain.
    fn accepted(&mut self, index: usize, slot: u32, completion: &Completion) {
        let Some(ops) = self.model.accept_ops.get_mut(index) else { return };
        let is_first = ops.chain == 0;
        if is_first {
            ops.end_wait();
        } else {
            ops.chain -= 1;
        }
        let phase = ops.phase.take();
        let receive = ops.receive.take().filter(|_| is_first);
        let result = completion.outcome();
        if is_first && completion.failed_with(ECANCELED) {
            return self.core.table.release(slot);
        }
        let phase = phase.or_else(|| self.begin_accept_phase(index));
        let mut phase = phase.unwrap_or_else(|| self.unlimited_phase());
        let peer = match completion.returned {
            Returned::Peer(peer) => peer,
            _ => socket::UNKNOWN_PEER,
        };
        match result {
            Ok(_) => self.fulfil(index, (slot, receive), peer, &mut phase),
            Err(error) => {
                self.core.table.release(slot);
                self.handle_failed_accept(index, &error, &mut phase);
            }
        }
        let queue_empty = !completion.nonempty;
        self.continue_phase(index, phase, queue_empty);
    }

    /// Returns a phase for a connection that no policy has decided about: accepting has ended, or
    /// is paused.
    fn unlimited_phase(&self) -> AcceptPhase {
        AcceptPhase::new(Decision::default(), self.core.context.now_ns())
    }

    fn handle_failed_accept(&mut self, index: usize, error: &io::Error, phase: &mut AcceptPhase) {
        let is_cancelled = error.raw_os_error() == Some(ECANCELED);
        if let Some(ops) = self.model.accept_ops.get_mut(index) {
            ops.is_drained |= is_cancelled || error.kind() == io::ErrorKind::WouldBlock;
        }
        if !is_cancelled {
            self.handle_accept_error(index, error, phase);
        }
    }

    /// Continues a phase when one of its accepts has ended: with another chain, or with its end.
    fn continue_phase(&mut self, index: usize, mut phase: AcceptPhase, queue_empty: bool) {
        let has_listener = index < self.core.listeners.len();
        let Some(ops) = self.model.accept_ops.get_mut(index).filter(|_| has_listener) else {
            return;
        };
        if ops.chain > 0 {
            ops.phase = Some(phase);
            return;
        }
        ops.is_drained |= queue_empty;
        let is_drained = std::mem::take(&mut ops.is_drained);
        ops.was_drained = is_drained;
        let is_paused = self.core.paused_until_ns.is_some();
        if is_drained || is_paused || !self.may_continue(&mut phase) {
            phase.outcome.drained = is_drained;
        } else if is_plain(&phase.decision, &self.core.context.config) {
            self.begin_chain(index, phase);
            return;
        } else {
            self.accept_more(index, &mut phase);
        }
        self.finish_accept_phase(index, phase);
    }

    /// Begins a chain of as many accepts as the phase allows, each tried only if the one before
    /// brought a connection.
    fn begin_chain(&mut self, index: usize, phase: AcceptPhase) {
        let core = &mut self.core;
        let Ring { ring, accept_ops, .. } = &mut self.model;
        let (listener, Some(ops)) = (&core.listeners[index], accept_ops.get_mut(index)) else {
            return;
        };
        let left = phase.left().min(CHAIN_MAX);
        let slots: Vec<_> = (0..left).map_while(|_| core.table.promise()).collect();
        let mut rest = slots.len() as u64;
        for Token { slot, .. } in slots {
            rest -= 1;
            let then = if rest == 0 { Then::Nothing } else { Then::OnSuccess };
            let data = Data::of(Kind::Accept, Token { slot, generation: index as u32 });
            let target = AcceptTarget::Slot(slot - core.table.reserved());
            ring.accept(listener.shared_fd(), target, AcceptWait::Never, then, data);
            ops.chain += 1;
        }
        if ops.chain > 0 {
            ops.phase = Some(phase);
        } else {
            self.finish_accept_phase(index, phase);
        }
    }

    /// Handles a completion of a multishot accept.
    fn accepted_many(&mut self, index: usize, completion: &Completion) {
        if completion.failed_with(ECANCELED) {
            return;
        }
        let phase = self.model.accept_ops.get_mut(index).and_then(|ops| ops.phase.take());
        let phase = phase.or_else(|| self.begin_accept_phase(index));
        let mut phase = phase.unwrap_or_else(|| self.unlimited_phase());
        match completion.outcome() {
            Ok(ring_slot) => {
                let slot = ring_slot + self.core.table.reserved();
                self.free_closing_slot(slot);
                let conn = RingConnection::in_slot(socket::UNKNOWN_PEER, &self.core.context);
                match self.core.table.claim(slot, conn) {
                    Ok(slot) => self.admitted(index, slot, &mut phase),
                    // The slot is in use, which the kernel cannot have chosen.
                    Err(_) => {
                        self.model.ring.close(ring_slot, Then::Nothing, Data::ignored());
                    }
                }
            }
            // The table is full: accepting continues when a connection has closed.
            Err(error) if is_exhaustion(&error) && self.core.table.free() == 0 => {}
            Err(error) => self.handle_failed_accept(index, &error, &mut phase),
        }
        if let Some(ops) = self.model.accept_ops.get_mut(index) {
            ops.is_drained = !completion.nonempty;
            ops.phase = Some(phase);
        }
    }

    /// Frees a slot that the kernel has reused before the close at the end of its chain was
    /// handled: that completion is in a queue, or about to be.
    fn free_closing_slot(&mut self, slot: u32) {
        for is_last in [false, true] {
            Ring::serve(self, slot);
            if is_last || self.core.table.conn(slot).is_none() {
                return;
            }
            self.hand_over();
            self.sort();
        }
    }

    /// Ends the accept-phases of multishot accepts, which last as long as an iteration.
    pub(super) fn end_phases(&mut self) {
        // Ahead of what the work-phase submits: meanwhile the kernel accepts on, into slots that
        // may be the last.
        if !takes_many(&self.core) {
            self.end_others(false);
        }
        for index in 0..self.core.listeners.len() {
            let Some(ops) = self.model.accept_ops.get_mut(index).filter(|ops| ops.chain == 0)
            else {
                continue;
            };
            let is_drained = ops.is_drained;
            if let Some(mut phase) = ops.phase.take() {
                ops.is_drained = false;
                phase.outcome.drained = is_drained;
                self.finish_accept_phase(index, phase);
            }
        }
    }

    /// Puts a connection into its promised slot, with the receive linked behind its accept.
    fn fulfil(
        &mut self,
        index: usize,
        (slot, receive): (u32, Option<Op>),
        peer: SocketAddr,
        phase: &mut AcceptPhase,
    ) {
        let mut conn = RingConnection::in_slot(peer, &self.core.context);
        conn.receive = receive;
        self.core.table.fulfil(slot, conn);
        self.admitted(index, slot, phase);
    }

    fn admitted(&mut self, index: usize, slot: u32, phase: &mut AcceptPhase) {
        // A plain phase refuses no connection.
        phase.judge(self.core.context.now_ns(), None);
        self.note_accepted(index);
        self.core.note_open();
        let peer = self.core.table.conn(slot).map_or(socket::UNKNOWN_PEER, |conn| conn.peer());
        if !self.refuse_begun_for_memory(slot, peer) {
            self.core.accepted += 1;
            self.core.begun += 1;
            Ring::begin(self, slot, true);
        }
    }
}
