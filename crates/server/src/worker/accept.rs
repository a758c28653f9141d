//! The accept-phase: accepts connections up to the policy's limit. The policy decides how many, and
//! [`super::admission`] what becomes of each.

use std::io;

use weir_accept::{AcceptPhase, Decision, Order, PhaseOutcome, PolicyName, View};
use weir_sys::{is_exhaustion, socket};

use super::eviction::EVICTED_AT_ONCE;
use super::model::{Model, Worker};
use super::phase_times::LoopPhase;

/// Pause in accepting when every slot is taken and no connection can be evicted, nanoseconds.
const FULL_PAUSE_NS: u64 = 20_000_000;

impl<M: Model> Worker<M> {
    /// Runs an accept-phase of one listener, up to the policy's limit.
    pub(crate) fn accept(&mut self, index: usize) -> PhaseOutcome {
        let Some(mut phase) = self.begin_accept_phase(index) else {
            return PhaseOutcome::default();
        };
        self.accept_more(index, &mut phase);
        self.finish_accept_phase(index, phase)
    }

    /// Accepts with one call per connection until the phase ends.
    pub(crate) fn accept_more(&mut self, index: usize, phase: &mut AcceptPhase) {
        while M::takes_more(self) && self.accept_one(index, phase) {}
    }

    /// Makes one accept of a phase, if the policy allows another; returns whether to continue.
    pub(crate) fn accept_one(&mut self, index: usize, phase: &mut AcceptPhase) -> bool {
        // What is deferred begins no handshake yet, and what a drain leaves pending is reset.
        let is_draining = self.core.context.draining;
        let takes_in_order = phase.decision.order == Order::Oldest;
        if takes_in_order && !is_draining && self.core.handshakes_fill(index) {
            phase.take_no_more();
        }
        if !self.may_continue(phase) {
            return false;
        }
        // Slots may be promised to connections that have not come, which the policy cannot know.
        if self.core.table.free() == 0 && !self.make_room_for_another() {
            return false;
        }
        let Some(listener) = self.core.listeners.get(index) else { return false };
        match socket::accept(listener.fd()) {
            Ok((fd, peer)) => {
                self.judge_accepted(index, fd, peer, phase);
                // Accepting pauses if there is no thread or stack to serve it with.
                self.core.paused_until_ns.is_none()
            }
            Err(error) => self.handle_accept_error(index, &error, phase),
        }
    }

    /// Returns whether the phase allows another accept.
    pub(crate) fn may_continue(&mut self, phase: &mut AcceptPhase) -> bool {
        phase.may_continue(M::SERVES_LATER, || self.core.context.read_clock_ns())
    }

    /// Accepts further connections in place of a closed one, if `accept_on_close` is set.
    pub(crate) fn accept_after_close(&mut self) {
        if self.core.context.config.strategy.accept_on_close {
            let outer = self.core.enter_phase(LoopPhase::Accept);
            (0..self.core.listeners.len()).for_each(|index| {
                self.accept(index);
            });
            self.core.enter_phase(outer);
        }
    }

    /// Begins an accept-phase with the policy's decision; `None` while accepting is paused.
    pub(crate) fn begin_accept_phase(&mut self, index: usize) -> Option<AcceptPhase> {
        if self.core.paused_until_ns.is_some() || index >= self.core.listeners.len() {
            return None;
        }
        if self.is_full() && !self.make_room_for_another() {
            return None;
        }
        let mut decision = self.decide(index, true);
        if self.core.accepts_all && self.core.context.config.policy.name == PolicyName::Limit {
            decision.budget = self.core.view().room();
        }
        self.core.context.counters.accept_phases.one();
        Some(AcceptPhase::new(decision, self.core.context.now_ns()))
    }

    /// Makes room for another connection in a table that is full, and pauses accepting if there is
    /// none to be made. Returns whether there is.
    fn make_room_for_another(&mut self) -> bool {
        let evicted = self.make_room(EVICTED_AT_ONCE);
        let open_max = self.core.table.open_max();
        self.core.tell_with(|| {
            format!(
                "this loop's {open_max} connections are all open (--max-conns): {evicted} that \
                 waited were closed"
            )
        });
        if evicted == 0 {
            self.pause_accepting(FULL_PAUSE_NS);
        }
        evicted > 0
    }

    /// Reports the outcome of a phase to the policy.
    pub(crate) fn finish_accept_phase(&mut self, index: usize, phase: AcceptPhase) -> PhaseOutcome {
        let core = &mut self.core;
        let now_ns = core.context.now_ns();
        core.context.counters.accepts_max.raise(phase.outcome.accepted);
        if let Some(listener) = core.listeners.get_mut(index) {
            listener.end_phase(now_ns, &phase.outcome);
        }
        core.accepts_pending |= !phase.outcome.drained && phase.decision.order == Order::Oldest;
        self.watch_listeners(true);
        phase.outcome
    }

    /// Handles an accept error; returns whether to continue the phase.
    pub(crate) fn handle_accept_error(
        &mut self,
        index: usize,
        error: &io::Error,
        phase: &mut AcceptPhase,
    ) -> bool {
        if error.kind() == io::ErrorKind::WouldBlock {
            phase.outcome.drained = true;
            self.core.context.counters.accept_would_block.one();
            M::listener_drained(self, index);
            false
        } else if is_exhaustion(error) {
            self.free_descriptors(error);
            M::CLOSES_AT_ONCE && self.core.paused_until_ns.is_none()
        } else if socket::is_lost_connection(error) {
            self.core.context.counters.accept_aborted.one();
            true
        } else {
            self.pause_after_error(error);
            false
        }
    }

    /// Asks a listener's policy for a decision, and applies the parts that affect more than this
    /// phase. `is_ready`: a connection is pending there.
    pub(crate) fn decide(&mut self, index: usize, is_ready: bool) -> Decision {
        let core = &mut self.core;
        let (now_ns, view) = (core.context.now_ns(), core.view());
        let Some(listener) = core.listeners.get_mut(index) else { return Decision::default() };
        let iterations_since = listener.iterations_since(core.iterations, is_ready);
        let view = View { iterations_since, is_tls: listener.is_tls(), ..view };
        listener.decide(now_ns, &view, &mut core.context.counters);
        let decision = listener.decision;
        core.apply_decisions();
        decision
    }

    /// Asks the policies whose time has come although their listener is not ready.
    pub(crate) fn poll_policies(&mut self) {
        let now_ns = self.core.context.now_ns();
        for index in 0..self.core.listeners.len() {
            if self.core.listeners[index].due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                self.decide(index, false);
                self.core.listeners[index].end_phase(now_ns, &PhaseOutcome::default());
            }
        }
    }

    /// Ends the accept-phases of an iteration: consults the policies that are due, and serves
    /// deferred connections.
    pub(crate) fn end_accept_phase(&mut self) {
        self.poll_policies();
        if !self.core.deferred.is_empty() {
            self.serve_deferred();
        }
    }
}
