//! The accept queue, with an exact number of accepts. One accept waits at each listener. When it
//! completes, the policy is asked, and as many more connections as it allows are accepted by a
//! chain of accepts that do not wait: the first that finds the queue empty ends the chain. Without
//! a limit, one multishot accept is used. If a policy looks at connections before they are served,
//! each is accepted by a call of its own, as in the event loop.
//!
//! Knows nothing of what is served.

use std::io;
use std::net::SocketAddr;

use weir_accept::{AcceptPhase, Decision, Inspect, Limit, Order};
use weir_dispatch::readiness::Token;
use weir_sys::poll::POLLIN;
use weir_sys::ring::server::{
    AcceptTarget, AcceptWait, Completion, ECANCELED, Handle, Op, Returned, Then,
};
use weir_sys::{is_exhaustion, socket};

use super::RingLoop;
use super::data::{Data, Kind};
use super::tenant::Ringed;
use crate::arch::Architecture;
use crate::arch::accepting::Accepting;
use crate::arch::listener::Listener;

/// Maximum number of accepts in a chain; if the policy allows more, another chain of the same phase
/// follows.
const CHAIN_MAX: u64 = 64;

/// Operations under way at a listener.
#[derive(Default)]
pub(super) struct Door {
    /// The operation that waits for connections.
    waits: Option<Op>,
    /// First receive of the connection that the waiting accept will bring.
    receive: Option<Op>,
    /// Accepts of the chain that have not ended.
    chain: u64,
    /// True if accepts of the chain found the queue empty, or were not tried.
    is_drained: bool,
    /// True if the last phase left no connection pending.
    is_forsaken: bool,
    /// The accept-phase in progress.
    phase: Option<AcceptPhase>,
}

impl Door {
    /// Returns whether its operations may still bring connections.
    pub(super) fn is_busy(&self) -> bool {
        self.waits.is_some() || self.is_chained()
    }

    /// Returns whether accepts are under way that end at once.
    pub(super) fn is_chained(&self) -> bool {
        self.chain > 0
    }
}

/// Returns whether a phase takes every connection in order of arrival. (Its time limit is checked
/// between chains: an accept by the kernel takes a microsecond, and no connection is served
/// meanwhile.)
fn is_plain(decision: &Decision) -> bool {
    decision.inspect == Inspect::None && decision.order == Order::Oldest && decision.refuse == 0
}

impl RingLoop {
    /// Starts an operation at each watched listener that has none under way.
    pub(super) fn open_doors(&mut self) {
        for index in 0..self.floor.listeners.len() {
            let is_busy = self.doors.get(index).is_none_or(Door::is_busy);
            if !is_busy && self.floor.listeners[index].watched {
                self.open_door(index);
            }
        }
    }

    fn open_door(&mut self, index: usize) {
        let Self { floor, ring, doors, .. } = self;
        let (listener, Some(door)) = (&floor.listeners[index], doors.get_mut(index)) else {
            return;
        };
        let generation = index as u32;
        let data = |kind, slot| Data::of(kind, Token { slot, generation });
        // Without a slot for it nobody can be accepted, and room is made when somebody comes.
        door.waits = if !is_plain(&listener.decision) || floor.table.free() == 0 {
            Some(ring.poll(listener.shared_fd(), POLLIN as u32, data(Kind::Knock, 0)))
        } else if floor.service.config.strategy.accept_limit == Limit::Inf
            && floor.service.config.strategy.accept_policy == weir_accept::Name::Limit
            && floor.service.log.is_none()
        {
            Some(ring.accept_many(listener.shared_fd(), data(Kind::AcceptMany, 0)))
        } else if let Some(token) = floor.table.promise() {
            let slot = token.slot - floor.table.reserved();
            let data = data(Kind::Accept, token.slot);
            let patience =
                if door.is_forsaken { AcceptWait::PollFirst } else { AcceptWait::AfterAttempt };
            let place = AcceptTarget::Slot(slot);
            let op = ring.accept(listener.shared_fd(), place, patience, Then::OnSuccess, data);
            let data = Data::of(Kind::Receive, token);
            door.receive = Some(ring.receive(Handle::Slot(slot), false, data));
            Some(op)
        } else {
            None
        };
    }

    /// Cancels the operation that waits at a listener. A connection may still come of it.
    pub(super) fn disarm(&mut self, index: usize) {
        if let Some(op) = self.doors.get(index).and_then(|door| door.waits) {
            self.ring.cancel(op, Then::Nothing);
        }
    }

    /// Cancels the operation that waits at a listener, and closes it: otherwise connects would go
    /// on to succeed.
    pub(super) fn leave_listener(&mut self, listener: Listener) {
        self.disarm((listener.token.slot - crate::arch::floor::FIRST_LISTENER) as usize);
        self.hand_over();
        self.sort();
        listener.close();
    }

    /// Handles a completion at a listener.
    pub(super) fn arrive(&mut self, completion: &Completion) {
        let Token { slot, generation } = Data::whose(completion.data);
        let index = generation as usize;
        let kind = Data::kind_of(completion.data);
        if kind == Some(Kind::Knock) || (kind == Some(Kind::AcceptMany) && !completion.more) {
            self.unlatch(index);
        }
        match kind {
            Some(Kind::Knock) if completion.result >= 0 => {
                self.accept(index);
            }
            Some(Kind::Accept) => self.accepted(index, slot, completion),
            Some(Kind::AcceptMany) => self.accepted_many(index, completion),
            _ => {}
        }
    }

    fn unlatch(&mut self, index: usize) {
        if let Some(door) = self.doors.get_mut(index) {
            door.waits = None;
        }
    }

    /// Handles the end of an accept into a promised slot: the one that waited, or one of a chain.
    fn accepted(&mut self, index: usize, slot: u32, completion: &Completion) {
        let Some(door) = self.doors.get_mut(index) else { return };
        let is_first = door.chain == 0;
        if is_first {
            door.waits = None;
        } else {
            door.chain -= 1;
        }
        let phase = door.phase.take();
        let receive = door.receive.take().filter(|_| is_first);
        let result = completion.outcome();
        if is_first && completion.failed_with(ECANCELED) {
            return self.floor.table.release(slot);
        }
        let phase = phase.or_else(|| self.begin_accepting(index));
        let mut phase = phase.unwrap_or_else(|| self.uninvited());
        let peer = match completion.returned {
            Returned::Peer(peer) => peer,
            _ => socket::UNKNOWN_PEER,
        };
        match result {
            Ok(_) => self.fulfil(index, (slot, receive), peer, &mut phase),
            Err(error) => {
                self.floor.table.release(slot);
                self.bear_accept(index, &error, &mut phase);
            }
        }
        let nobody_more = !completion.nonempty;
        self.go_on(index, phase, nobody_more);
    }

    /// Returns a phase for a connection that no policy has decided about: accepting has ended, or
    /// is paused.
    fn uninvited(&self) -> AcceptPhase {
        AcceptPhase::new(Decision::default(), self.floor.service.now_ns())
    }

    fn bear_accept(&mut self, index: usize, error: &io::Error, phase: &mut AcceptPhase) {
        let is_cancelled = error.raw_os_error() == Some(ECANCELED);
        if let Some(door) = self.doors.get_mut(index) {
            door.is_drained |= is_cancelled || error.kind() == io::ErrorKind::WouldBlock;
        }
        if !is_cancelled {
            self.bear(index, error, phase);
        }
    }

    /// Continues a phase when one of its accepts has ended: with another chain, or with its end.
    fn go_on(&mut self, index: usize, mut phase: AcceptPhase, nobody_more: bool) {
        let has_listener = index < self.floor.listeners.len();
        let Some(door) = self.doors.get_mut(index).filter(|_| has_listener) else { return };
        if door.chain > 0 {
            door.phase = Some(phase);
            return;
        }
        door.is_drained |= nobody_more;
        let is_drained = std::mem::take(&mut door.is_drained);
        door.is_forsaken = is_drained;
        let rests = self.floor.paused_until_ns.is_some();
        if is_drained || rests || !self.goes_on(&mut phase) {
            phase.outcome.drained = is_drained;
        } else if is_plain(&phase.decision) {
            self.begin_chain(index, phase);
            return;
        } else {
            self.accept_more(index, &mut phase);
        }
        self.end_accepting(index, phase);
    }

    /// Begins a chain of as many accepts as the phase allows, each tried only if the one before
    /// brought a connection.
    fn begin_chain(&mut self, index: usize, phase: AcceptPhase) {
        let Self { floor, ring, doors, .. } = self;
        let (listener, Some(door)) = (&floor.listeners[index], doors.get_mut(index)) else {
            return;
        };
        let left = phase.left().min(CHAIN_MAX);
        let slots: Vec<_> = (0..left).map_while(|_| floor.table.promise()).collect();
        let mut rest = slots.len() as u64;
        for Token { slot, .. } in slots {
            rest -= 1;
            let then = if rest == 0 { Then::Nothing } else { Then::OnSuccess };
            let data = Data::of(Kind::Accept, Token { slot, generation: index as u32 });
            let place = AcceptTarget::Slot(slot - floor.table.reserved());
            ring.accept(listener.shared_fd(), place, AcceptWait::Never, then, data);
            door.chain += 1;
        }
        if door.chain > 0 {
            door.phase = Some(phase);
        } else {
            self.end_accepting(index, phase);
        }
    }

    /// Handles a completion of a multishot accept.
    fn accepted_many(&mut self, index: usize, completion: &Completion) {
        let phase = self.doors.get_mut(index).and_then(|door| door.phase.take());
        let phase = phase.or_else(|| self.begin_accepting(index));
        let mut phase = phase.unwrap_or_else(|| self.uninvited());
        match completion.outcome() {
            Ok(ring_slot) => {
                let slot = ring_slot + self.floor.table.reserved();
                self.free_leaving(slot);
                let ringed = Ringed::in_slot(socket::UNKNOWN_PEER, &self.floor.service);
                match self.floor.table.claim(slot, ringed) {
                    Ok(slot) => self.admitted(index, slot, &mut phase),
                    // Whoever has the slot has it of us: it cannot be the kernel's to give.
                    Err(_) => drop(self.ring.close(ring_slot, Then::Nothing, Data::ignored())),
                }
            }
            // A full table: others may come when one of them has gone.
            Err(error) if is_exhaustion(&error) && self.floor.table.free() == 0 => {}
            Err(error) if error.raw_os_error() == Some(ECANCELED) => {}
            Err(error) => self.bear_accept(index, &error, &mut phase),
        }
        if let Some(door) = self.doors.get_mut(index) {
            door.is_drained = !completion.nonempty;
            door.phase = Some(phase);
        }
    }

    /// Frees a slot that the kernel has reused before the close at the end of its chain was seen:
    /// that completion is in a queue, or about to be.
    fn free_leaving(&mut self, slot: u32) {
        for is_last in [false, true] {
            self.serve(slot);
            if is_last || self.floor.table.conn(slot).is_none() {
                return;
            }
            self.hand_over();
            self.sort();
        }
    }

    /// Ends the phases that last as long as a round.
    pub(super) fn end_phases(&mut self) {
        for index in 0..self.floor.listeners.len() {
            let Some(door) = self.doors.get_mut(index).filter(|door| door.chain == 0) else {
                continue;
            };
            let is_drained = door.is_drained;
            if let Some(mut phase) = door.phase.take() {
                door.is_drained = false;
                phase.outcome.drained = is_drained;
                self.end_accepting(index, phase);
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
        let mut ringed = Ringed::in_slot(peer, &self.floor.service);
        ringed.receive = receive;
        self.floor.table.fulfil(slot, ringed);
        self.admitted(index, slot, phase);
    }

    fn admitted(&mut self, index: usize, slot: u32, phase: &mut AcceptPhase) {
        // A phase that takes whoever comes refuses nobody.
        phase.judge(self.floor.service.now_ns(), None);
        self.note_accepted(index);
        self.floor.begun += 1;
        self.floor.note_open();
        self.begin(slot, true);
    }
}
