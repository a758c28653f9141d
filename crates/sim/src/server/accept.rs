//! Accepting: the limits of the accept-phase, the verdict on each connection, and the order in
//! which deferred connections are served.

use weir_accept::{Arrival, Order, Verdict};

use super::core::{CloseReason, Step};
use crate::connections::{NEVER, SocketState, Token};
use crate::simulation::Simulation;

/// Resolution of the ages the kernel reports: its tick.
const TICK_NS: u64 = 4_000_000;

impl Simulation<'_> {
    /// Begins another accept, if the phase allows one.
    pub(super) fn accept(&mut self, core: u32) -> Option<(Step, u64)> {
        let state = &mut self.cores[core as usize];
        if state.phase.decision.order == Order::Oldest && state.handshakes_fill() {
            state.phase.take_no_more();
        }
        if !state.phase.may_continue(false, || self.now_ns) {
            return None;
        }
        let costs = &self.scenario.costs;
        Some(match state.listener.accept_queue.pop_front() {
            Some(token) => (Step::Accepted(token), costs.accept),
            None => (Step::Blocked, costs.would_block),
        })
    }

    pub(super) fn blocked(&mut self, core: u32) {
        self.statistics.loops.would_block += 1;
        self.cores[core as usize].phase.outcome.drained = true;
    }

    pub(super) fn accepted(&mut self, core: u32, token: Token) {
        self.statistics.loops.accepted += 1;
        let state = &mut self.cores[core as usize];
        state.known.accepted += 1;
        state.filter.accepted();
        state.steps.push(Step::Accept);
        if state.phase.inspects() {
            return state.steps.push(Step::Inspect(token));
        }
        let verdict = state.phase.judge(state.clock_ns, None);
        self.judged(core, token, verdict);
    }

    /// Judges a connection after the kernel was asked how long its request has waited and whether
    /// the client is still there.
    pub(super) fn inspected(&mut self, core: u32, token: Token) {
        let arrival = self.arrival(token);
        let state = &mut self.cores[core as usize];
        let verdict = state.phase.judge(state.clock_ns, arrival);
        self.judged(core, token, verdict);
    }

    fn judged(&mut self, core: u32, token: Token, verdict: Verdict) {
        let loops = &mut self.statistics.loops;
        let step = match verdict {
            Verdict::Admit { since_ns } => Step::Admit(token, since_ns),
            Verdict::Excess => {
                loops.refused += 1;
                Step::Refuse(token)
            }
            Verdict::Stale | Verdict::Unfair => {
                loops.stale += 1;
                Step::Refuse(token)
            }
            Verdict::Departed => {
                loops.departed += 1;
                Step::Close(token, CloseReason::Departed)
            }
        };
        if !matches!(verdict, Verdict::Admit { .. }) {
            self.record_refusal(core, token);
        }
        self.cores[core as usize].steps.push(step);
    }

    /// Returns the kernel's knowledge of a connection.
    pub(super) fn arrival(&mut self, token: Token) -> Option<Arrival> {
        let socket = &self.conns.get(token)?.socket;
        let spoken = socket.data_ns != NEVER;
        let age_ns =
            if spoken { (self.now_ns / TICK_NS - socket.data_ns / TICK_NS) * TICK_NS } else { 0 };
        Some(Arrival { age_ns, departed: socket.has_fin, spoken, rtt_ns: socket.rtt_ns })
    }

    /// Admits a connection to be served, or closes it for want of room.
    pub(super) fn admit(&mut self, core: u32, token: Token, since_ns: u64) {
        let state = &mut self.cores[core as usize];
        if state.known.open >= self.scenario.open_max {
            return state.steps.push(Step::Close(token, CloseReason::NoRoom));
        }
        state.known.open += 1;
        self.statistics.loops.open_max =
            self.statistics.loops.open_max.max(state.known.open as u64);
        let Some(conn) = self.conns.get(token) else { return };
        conn.socket.accepted_ns = self.now_ns;
        if state.phase.decision.order == Order::Newest {
            conn.socket.state = SocketState::Deferred;
            let (source, share) = (conn.client.source, state.phase.decision.order_share);
            state.deferred.push(self.now_ns, token, since_ns, source, share);
        } else {
            conn.socket.state = SocketState::Open;
            state.known.begun += 1;
            let eager = self.scenario.eager;
            state.steps.push(if eager { Step::Serve(token) } else { Step::Watch(token) });
        }
    }

    /// Handles deferred connections: refuses the stale, then serves the newest, and others until
    /// the phase's time is up. Serves none while newer connections wait to be accepted.
    pub(super) fn serve_deferred(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        let decision = &state.phase.decision;
        let stale_before_ns =
            decision.stale_ns.map_or(0, |stale_ns| state.clock_ns.saturating_sub(stale_ns));
        if !state.queue_left {
            let until_ns = decision.until_ns.unwrap_or(state.clock_ns);
            state.steps.push(Step::ServeNewest(until_ns, true));
        }
        while let Some(token) = self.cores[core as usize].deferred.pop_stale(stale_before_ns) {
            self.statistics.loops.stale += 1;
            self.cores[core as usize].steps.push(Step::Refuse(token));
            self.record_refusal(core, token);
        }
    }

    pub(super) fn serve_newest(&mut self, core: u32, until_ns: u64, first: bool) {
        let state = &mut self.cores[core as usize];
        if !first && self.now_ns >= until_ns || state.tls_budget.is_spent() {
            return;
        }
        let Some(newest) = state.deferred.pop_newest() else { return };
        state.known.begun += 1;
        if let Some(conn) = self.conns.get(newest) {
            conn.socket.state = SocketState::Open;
        }
        state.steps.extend([Step::ServeNewest(until_ns, false), Step::Serve(newest)]);
    }
}
