//! The policy's part of the accept-phase: signals, the decision, its effects, and the report to the
//! policy. Accepts no connections itself.
//!
//! An iteration uses one time, that of the end of its wait, wherever it does not read the clock
//! again: the policy is asked and told at that time.

use weir_accept::{AcceptPhase, Order, Signals, SynDecision, Wanted};

use super::core::{CloseReason, Step};
use crate::connections::Token;
use crate::simulation::Simulation;

/// Maximum number of connections closed at a time to make room.
const EVICTED_MAX: usize = 64;

impl Simulation<'_> {
    /// Asks a policy whose timer is due although the listener is not ready.
    pub(super) fn consult(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        if state.policy.due_ns().is_some_and(|due_ns| due_ns <= state.clock_ns) {
            state.steps.push(Step::AskPolicy { accepts: false });
        }
    }

    pub(super) fn ask_policy(&mut self, core: u32, accepts: bool) -> (Step, u64) {
        self.make_room(core);
        let state = &mut self.cores[core as usize];
        let wanted = state.policy.wants(state.clock_ns, &state.view(self.scenario, accepts));
        let queue_ns = if wanted.queue { self.scenario.costs.tcp_info } else { 0 };
        (Step::Decide(wanted, accepts), queue_ns)
    }

    pub(super) fn decide(&mut self, core: u32, wanted: Wanted, accepts: bool) {
        let state = &mut self.cores[core as usize];
        let queue = wanted.queue.then(|| state.listener.queued());
        state.filter.see(self.now_ns, queue);
        let signals = Signals { queue, syns: state.filter.syns() };
        let view = state.view(self.scenario, accepts);
        let was_overloaded = state.policy.is_overloaded();
        let decision = state.policy.decide(state.clock_ns, &view, &signals);
        let overloaded = state.policy.is_overloaded();
        let refused = was_overloaded || state.phase.decision.refuses();
        if !refused && (overloaded || decision.refuses()) {
            self.statistics.record_overload(core, self.now_ns);
        }
        if self.scenario.load.last().is_some_and(|step| self.now_ns < step.from_ns) {
            self.statistics.open_at_last_step[core as usize] = overloaded && !decision.refuses();
        }
        let loops = &mut self.statistics.loops;
        loops.decisions += 1;
        loops.overloaded += u64::from(overloaded);
        loops.overloads += u64::from(overloaded && !was_overloaded);
        if accepts {
            state.accepted_iteration = state.iterations;
        }
        state.phase = AcceptPhase::new(decision, state.clock_ns);
        state.steps.push(Step::Finish { accepts });
        if accepts {
            loops.accept_phases += 1;
            state.steps.push(Step::Accept);
        }
        self.set_filter(core, decision.syn);
        let state = &mut self.cores[core as usize];
        let configured = self.scenario.policy.backlog;
        let bounded = |backlog: u32| backlog.clamp(1, configured.max(1));
        let backlog = decision.backlog.map_or(configured, bounded);
        if backlog != state.listener.backlog {
            state.steps.push(Step::Backlog(backlog));
        }
    }

    /// Applies a decision to the SYN filter. A token filter is updated by a store; other changes
    /// are system calls.
    fn set_filter(&mut self, core: u32, syn: SynDecision) {
        let state = &mut self.cores[core as usize];
        let (queue, is_alert) = (state.listener.queued(), state.policy.is_alert());
        if state.filter.set(self.now_ns, syn, queue, is_alert) {
            self.statistics.loops.filters += 1;
            state.steps.push(Step::Filter);
        }
    }

    pub(super) fn set_backlog(&mut self, core: u32, backlog: u32) {
        self.statistics.loops.listens += 1;
        self.cores[core as usize].listener.backlog = backlog;
    }

    /// Makes room by closing connections that wait for their client: those idle longest, then those
    /// silent longest. That is no refusal on account of load.
    fn make_room(&mut self, core: u32) {
        let state = &self.cores[core as usize];
        if state.known.open < self.scenario.open_max {
            return;
        }
        for _ in 0..EVICTED_MAX.min(self.scenario.open_max) {
            let longest = self.longest_waiting(core, false);
            let Some(token) = longest.or_else(|| self.longest_waiting(core, true)) else { return };
            self.statistics.loops.evicted += 1;
            self.close(core, token, CloseReason::Evicted);
        }
    }

    /// Removes and returns the connection that has waited longest for its client.
    fn longest_waiting(&mut self, core: u32, silent: bool) -> Option<Token> {
        loop {
            let state = &mut self.cores[core as usize];
            let queue = if silent { &mut state.silent } else { &mut state.idle };
            let (token, waits_ns) = queue.pop_front()?;
            if self
                .conns
                .get(token)
                .is_some_and(|conn| conn.socket.has_waited_since(waits_ns, silent))
            {
                return Some(token);
            }
        }
    }

    /// Returns the cost of ending the phase: when there is no room and none can be made, the
    /// listening socket leaves the interest set.
    pub(super) fn finish_cost_ns(&self, core: u32) -> u64 {
        let state = &self.cores[core as usize];
        let is_full = state.known.open >= self.scenario.open_max;
        let leaves = state.watched && is_full && state.idle.is_empty() && state.silent.is_empty();
        if leaves { self.scenario.costs.epoll_ctl } else { 0 }
    }

    pub(super) fn finish(&mut self, core: u32, accepts: bool) {
        let state = &mut self.cores[core as usize];
        let AcceptPhase { decision, outcome, .. } = state.phase;
        if let Some(rtt_ns) = outcome.rtt_ns {
            state.filter.rtt(rtt_ns);
        }
        if accepts {
            state.queue_left |= !outcome.drained && decision.order == Order::Oldest;
            let can_make_room = !state.idle.is_empty() || !state.silent.is_empty();
            state.watched = state.known.open < self.scenario.open_max || can_make_room;
        }
        state.policy.finished(state.clock_ns, &outcome);
    }
}
