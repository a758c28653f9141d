//! The accept-phase as the policy decides it: signals, the decision, what is set by it, and what
//! the policy hears. Accepts nobody.
//!
//! A round sees one time, that of the end of its wait, wherever it does not read the clock again:
//! the policy is asked and told at that time.

use weir_accept::{Decision, Order, Outcome, Signals, Wanted};

use super::Step;
use super::connection::End;
use crate::conns::{Conn, Token};
use crate::world::World;

/// An accept-phase under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Phase {
    /// What was decided, until the next phase.
    pub(super) decision: Decision,
    pub(super) outcome: Outcome,
    /// Accepted in order to be served.
    pub(super) taken: u64,
    /// Some are refused unseen in it.
    pub(super) refuses: bool,
    /// The time is up, and the one that is still to be served is served however long it waited.
    pub(super) owes_one: bool,
}

impl World<'_> {
    /// Asks a policy whose time has come though nobody knocked.
    pub(super) fn consult(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        if state.policy.due_ns().is_some_and(|due_ns| due_ns <= state.clock_ns) {
            state.steps.push(Step::Knock { accepts: false });
        }
    }

    pub(super) fn knock(&mut self, core: u32, accepts: bool) -> (Step, u64) {
        let state = &mut self.cores[core as usize];
        let wanted =
            state.policy.wants(state.clock_ns, &state.view(self.scenario.open_max, accepts));
        let costs = &self.scenario.costs;
        let queue_ns = if wanted.queue { costs.tcp_info } else { 0 };
        let drops_ns = if wanted.drops { costs.meminfo } else { 0 };
        (Step::Decide(wanted, accepts), queue_ns + drops_ns)
    }

    pub(super) fn decide(&mut self, core: u32, wanted: Wanted, accepts: bool) {
        let state = &mut self.cores[core as usize];
        let signals = Signals {
            queue: wanted.queue.then(|| state.listener.queued()),
            drops: wanted.drops.then_some(state.listener.drops),
        };
        let view = state.view(self.scenario.open_max, accepts);
        let decision = state.policy.decide(state.clock_ns, &view, &signals);
        let loops = &mut self.statistics.loops;
        loops.decisions += 1;
        loops.overloaded += u64::from(state.policy.is_overloaded());
        if accepts {
            state.accepted_round = state.rounds;
        }
        let refuses = decision.refuse > 0;
        state.phase = Phase { decision, refuses, ..Phase::default() };
        state.steps.push(Step::Finish { accepts });
        if accepts {
            loops.accept_phases += 1;
            state.steps.push(Step::Accept);
        }
        if decision.evict > 0 {
            state.steps.push(Step::Evict);
        }
        if decision.gate != state.gate {
            state.steps.push(Step::Gate(decision.gate));
        }
        let configured = self.scenario.setting.backlog;
        let bounded = |backlog: u32| backlog.clamp(1, configured.max(1));
        let backlog = decision.backlog.map_or(configured, bounded);
        if backlog != state.listener.backlog {
            state.steps.push(Step::Backlog(backlog));
        }
    }

    pub(super) fn set_backlog(&mut self, core: u32, backlog: u32) {
        self.statistics.loops.listens += 1;
        self.cores[core as usize].listener.listen(backlog);
    }

    pub(super) fn set_gate(&mut self, core: u32, gate: f64) {
        self.statistics.loops.gates += 1;
        self.cores[core as usize].gate = gate;
    }

    /// Connections that wait for their client make room: those idle longest, then the silent.
    pub(super) fn evict(&mut self, core: u32) {
        let Phase { decision, .. } = self.cores[core as usize].phase;
        for _ in 0..decision.evict {
            let silent_since_ns = self.now_ns.saturating_sub(decision.silence_ns);
            let idle = self.longest_waiting(core, false, u64::MAX);
            let Some(token) = idle.or_else(|| self.longest_waiting(core, true, silent_since_ns))
            else {
                return;
            };
            self.statistics.loops.evicted += 1;
            self.cores[core as usize].steps.push(Step::Close(token, End::Evicted));
        }
    }

    /// Takes out the connection that has waited longest, if it began to before `before_ns`.
    fn longest_waiting(&mut self, core: u32, silent: bool, before_ns: u64) -> Option<Token> {
        loop {
            let state = &mut self.cores[core as usize];
            let queue = if silent { &mut state.silent } else { &mut state.idle };
            let (token, waits_ns) = *queue.front()?;
            if waits_ns >= before_ns {
                return None;
            }
            queue.pop_front();
            if self.conns.get(token).is_some_and(|conn| is_still_waiting(conn, waits_ns, silent)) {
                return Some(token);
            }
        }
    }

    /// The listening socket leaves the interest set when there is no room.
    pub(super) fn finish_cost_ns(&self, core: u32) -> u64 {
        let state = &self.cores[core as usize];
        let leaves = state.watched && state.open >= self.scenario.open_max;
        if leaves { self.scenario.costs.epoll_ctl } else { 0 }
    }

    pub(super) fn finish(&mut self, core: u32, accepts: bool) {
        let state = &mut self.cores[core as usize];
        let Phase { decision, outcome, .. } = state.phase;
        if accepts {
            state.someone_waits |= !outcome.drained && decision.order == Order::Oldest;
            state.watched = state.open < self.scenario.open_max;
        }
        state.policy.finished(state.clock_ns, &outcome);
    }
}

/// Whether a connection has waited since then for its client.
pub(super) fn is_still_waiting(conn: &Conn, since_ns: u64, silent: bool) -> bool {
    let socket = &conn.socket;
    socket.is_waiting() && socket.waits_ns == since_ns && (socket.answered == 0) == silent
}
