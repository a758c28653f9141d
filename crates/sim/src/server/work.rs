//! The work-phase: those that were reported as ready, one after the other. Knows neither the
//! listening socket nor what serving is.

use super::Step;
use crate::conns::{Conn, Seat, Token};
use crate::world::World;

impl World<'_> {
    /// One that is ready has its turn, unless it was closed since; under pressure it is looked at.
    pub(super) fn work(&mut self, token: Token) -> Option<(Step, u64)> {
        let Conn { socket, .. } = self.conns.get(token)?;
        if socket.seat != Seat::Open {
            return None;
        }
        socket.ready = false;
        let (core, replying) = (socket.core, socket.replying);
        let state = &mut self.cores[core as usize];
        state.working += 1;
        if state.phase.decision.pressure && !replying {
            return Some((Step::WorkLook(token), self.scenario.costs.tcp_info));
        }
        let cost_ns = self.serve_cost_ns(token)?;
        Some((Step::Serve(token), cost_ns))
    }

    pub(super) fn work_looked(&mut self, core: u32, token: Token) {
        let age_ns = self.age_ns(token);
        let state = &mut self.cores[core as usize];
        let stale_ns = state.phase.decision.stale_ns;
        let stale = age_ns.zip(stale_ns).is_some_and(|(age, stale)| age > stale);
        self.statistics.loops.stale += u64::from(stale);
        state.steps.push(if stale { Step::Refuse(token) } else { Step::Serve(token) });
    }

    pub(super) fn work_ends(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        state.work_items = state.working;
        // One alone keeps nobody waiting.
        let spent_ns = self.now_ns - state.work_began_ns;
        state.work_ns = if state.work_items > 1 { spent_ns } else { 0 };
        self.statistics.loops.work_phases += u64::from(state.work_items > 0);
    }
}
