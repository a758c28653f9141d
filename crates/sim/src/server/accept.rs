//! Accepting: those to be refused first, then those to be served, each looked at if the policy
//! wants, and the order in which those held are served. Knows nothing of what serving is.

use weir_accept::{Look, Order};

use super::Step;
use super::connection::End;
use crate::conns::{NEVER, Seat, Token};
use crate::world::World;

/// The kernel's tick, to which it tells ages.
const TICK_NS: u64 = 4_000_000;

impl World<'_> {
    /// One accept, if another is allowed.
    pub(super) fn accept(&mut self, core: u32) -> Option<(Step, u64)> {
        let state = &mut self.cores[core as usize];
        let phase = &mut state.phase;
        if let Some(until_ns) = phase.decision.until_ns
            && phase.outcome.accepted > 0
        {
            if self.now_ns >= until_ns {
                phase.owes_one = phase.refuses && phase.taken == 0;
                if !phase.owes_one {
                    return None;
                }
            }
            let half_ns = state.clock_ns + until_ns.saturating_sub(state.clock_ns) / 2;
            if self.now_ns >= half_ns {
                phase.decision.refuse = phase.decision.refuse.min(phase.outcome.refused);
            }
        }
        let decision = &phase.decision;
        if phase.outcome.refused >= decision.refuse && phase.taken >= decision.budget {
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
        let loops = &mut self.statistics.loops;
        let state = &mut self.cores[core as usize];
        let phase = &mut state.phase;
        let decision = &phase.decision;
        loops.accepted += 1;
        let is_excess = phase.outcome.refused < decision.refuse;
        let looks = match decision.look {
            Look::Nobody => false,
            Look::First => phase.taken == 0,
            Look::Each => true,
        };
        phase.outcome.accepted += 1;
        state.steps.push(Step::Accept);
        if is_excess {
            loops.refused += 1;
            phase.outcome.refused += 1;
            state.steps.push(Step::Refuse(token));
        } else {
            state.steps.push(if looks { Step::Look(token) } else { Step::Welcome(token, None) });
        }
    }

    /// The kernel has told how long the request has waited and whether the client is still there.
    pub(super) fn looked(&mut self, core: u32, token: Token) {
        let age_ns = self.age_ns(token);
        let Some(socket) = self.conns.get(token).map(|conn| conn.socket) else { return };
        let state = &mut self.cores[core as usize];
        let (outcome, decision) = (&mut state.phase.outcome, &state.phase.decision);
        let loops = &mut self.statistics.loops;
        if decision.drop_departed && socket.has_fin {
            loops.departed += 1;
            outcome.refused += 1;
            return state.steps.push(Step::Close(token, End::Departed));
        }
        outcome.rtt_ns = outcome.rtt_ns.or(Some(socket.rtt_ns));
        outcome.age_first_ns = outcome.age_first_ns.or(age_ns);
        outcome.age_min_ns = [outcome.age_min_ns, age_ns].into_iter().flatten().min();
        let is_stale =
            age_ns.zip(decision.stale_ns).is_some_and(|(age_ns, stale_ns)| age_ns > stale_ns);
        if is_stale && !state.phase.owes_one {
            loops.stale += 1;
            outcome.refused += 1;
            return state.steps.push(Step::Refuse(token));
        }
        state.steps.push(Step::Welcome(token, age_ns));
    }

    /// How long a request has waited, to the kernel's tick.
    pub(super) fn age_ns(&mut self, token: Token) -> Option<u64> {
        let socket = &self.conns.get(token)?.socket;
        let spoke = socket.data_ns != NEVER;
        spoke.then(|| (self.now_ns / TICK_NS - socket.data_ns / TICK_NS) * TICK_NS)
    }

    /// One that is to be served has a place now, if there is one.
    pub(super) fn welcome(&mut self, core: u32, token: Token, age_ns: Option<u64>) {
        let state = &mut self.cores[core as usize];
        state.phase.taken += 1;
        if state.open >= self.scenario.open_max {
            return state.steps.push(Step::Close(token, End::NoRoom));
        }
        state.open += 1;
        self.statistics.loops.open_max = self.statistics.loops.open_max.max(state.open as u64);
        let Some(conn) = self.conns.get(token) else { return };
        conn.socket.accepted_ns = self.now_ns;
        conn.socket.since_ns = state.clock_ns.saturating_sub(age_ns.unwrap_or(0));
        if state.phase.decision.order == Order::Newest {
            conn.socket.seat = Seat::Held;
            state.held.push_back(token);
        } else {
            conn.socket.seat = Seat::Open;
            let eager = self.scenario.eager;
            state.steps.push(if eager { Step::Serve(token) } else { Step::Watch(token) });
        }
    }

    /// Those held: the stale are refused, and then the newest is served, and others until the time
    /// that the phase was given; none while somebody newer waits to be accepted.
    pub(super) fn hold(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        let decision = &state.phase.decision;
        let stale_before_ns =
            decision.stale_ns.map_or(0, |stale_ns| state.clock_ns.saturating_sub(stale_ns));
        if !state.someone_waits {
            let until_ns = decision.until_ns.unwrap_or(state.clock_ns);
            state.steps.push(Step::HeldNewest(until_ns, true));
        }
        while let Some(oldest) = state.held.front().copied() {
            let is_stale = |since_ns| since_ns < stale_before_ns;
            if !self.conns.get(oldest).is_some_and(|conn| is_stale(conn.socket.since_ns)) {
                break;
            }
            state.held.pop_front();
            self.statistics.loops.stale += 1;
            state.steps.push(Step::Refuse(oldest));
        }
    }

    pub(super) fn serve_newest(&mut self, core: u32, until_ns: u64, first: bool) {
        let state = &mut self.cores[core as usize];
        if !first && self.now_ns >= until_ns {
            return;
        }
        let Some(newest) = state.held.pop_back() else { return };
        if let Some(conn) = self.conns.get(newest) {
            conn.socket.seat = Seat::Open;
        }
        state.steps.extend([Step::HeldNewest(until_ns, false), Step::Serve(newest)]);
    }
}
