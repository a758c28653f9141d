//! The work-phase: serves the connections that were reported as ready, one after the other.

use weir_accept::{AcceptPhase, Share, Verdict};

use super::core::{CloseReason, Step};
use crate::connections::{Conn, SocketState, TlsState, Token};
use crate::simulation::Simulation;

impl Simulation<'_> {
    /// Begins the turn of a ready connection, unless it was closed since; it may be looked at
    /// first.
    pub(super) fn work(&mut self, token: Token) -> Option<(Step, u64)> {
        let Conn { socket, .. } = self.conns.get(token)?;
        if socket.state != SocketState::Open {
            return None;
        }
        let core = socket.core;
        // A handshake that has been answered always goes on, and so does a reply.
        let goes_on = socket.replying || matches!(socket.tls, TlsState::Answered(_));
        let state = &mut self.cores[core as usize];
        let spent_ns = self.now_ns - state.work_began_ns;
        if state.phase.decision.work_max_ns.is_some_and(|max_ns| spent_ns >= max_ns) {
            state.steps.push(Step::Work(token));
            self.cut_work(core);
            return None;
        }
        socket.ready = false;
        state.known.ready -= 1;
        if self.yields(core, token) {
            return None;
        }
        let state = &mut self.cores[core as usize];
        state.working += 1;
        if state.phase.decision.inspect_open && !goes_on {
            return Some((Step::WorkInspect(token), self.scenario.costs.tcp_info));
        }
        let cost_ns = self.serve_cost_ns(token)?;
        Some((Step::Serve(token), cost_ns))
    }

    /// Cuts the work-phase: runs the accept-phase of another iteration, then the rest of the work.
    fn cut_work(&mut self, core: u32) {
        self.work_ends(core);
        let state = &mut self.cores[core as usize];
        state.working = 0;
        state.iterations += 1;
        state.clock_ns = self.now_ns;
        state.queue_left = false;
        state.known.tls.waiting = state.yielded.len() as u64;
        state.tls_budget.begin_round();
        let accepts = state.watched && state.listener.queued() > 0;
        state.steps.extend([Step::WorkBegin, Step::ServeDeferred, Step::AskPolicy { accepts }]);
    }

    pub(super) fn work_inspected(&mut self, core: u32, token: Token) {
        let arrival = self.arrival(token);
        let source = self.conns.get(token).map(|conn| conn.client.source);
        let state = &mut self.cores[core as usize];
        let (decision, now_ns) = (state.phase.decision, state.clock_ns);
        let shares = &mut state.shares;
        let is_fair = |share: Share| {
            source.is_none_or(|source| {
                shares.claim(now_ns, source, share.each_ns, share.weight).is_fair
            })
        };
        let loops = &mut self.statistics.loops;
        let (step, count) = match AcceptPhase::judge_open(decision, now_ns, arrival, is_fair) {
            Verdict::Admit { .. } => return state.steps.push(Step::Serve(token)),
            Verdict::Departed => (Step::Close(token, CloseReason::Departed), &mut loops.departed),
            Verdict::Unfair => (Step::Refuse(token), &mut loops.unfair),
            Verdict::Stale | Verdict::Excess => (Step::Refuse(token), &mut loops.stale),
        };
        *count += 1;
        state.steps.push(step);
        self.record_refusal(core, token);
    }

    pub(super) fn work_begins(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        state.work_began_ns = self.now_ns;
        state.tls_before = state.known.tls;
    }

    pub(super) fn work_ends(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        state.known.tls.note_work(state.tls_before);
        state.known.work_items = state.working;
        // One alone keeps nobody waiting.
        let spent_ns = self.now_ns - state.work_began_ns;
        state.known.work_ns = if state.known.work_items > 1 { spent_ns } else { 0 };
        state.known.served += state.known.work_items;
        state.known.served_ns += spent_ns;
        self.statistics.loops.work_phases += u64::from(state.known.work_items > 0);
    }
}
