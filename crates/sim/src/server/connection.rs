//! A connection in the loop: read and answered, watched, refused, closed. Of the policy it uses the
//! last decision only.

use weir_accept::{Refusal, Share, Source};

use super::core::{CloseReason, Core, Step};
use crate::connections::{Conn, NEVER, SocketState, TlsState, Token};
use crate::events::{Answer, Event};
use crate::rng::Draw;
use crate::simulation::Simulation;

impl Core {
    /// Charges a source for a request on a persistent connection. Returns whether the reply must
    /// close it: under pressure, or because the source has exceeded its share.
    fn is_over(&mut self, now_ns: u64, source: Source) -> bool {
        let decision = &self.phase.decision;
        let Some(Share { each_ns, weight }) = decision.share else { return decision.pressure };
        let claim = self.shares.claim(now_ns, source, each_ns, weight);
        self.shares.grant(claim);
        decision.pressure || !claim.is_fair
    }
}

impl Simulation<'_> {
    /// Returns the cost of a work item: a read, the request's own work, and a write, at once or
    /// later.
    pub(super) fn serve_cost_ns(&mut self, token: Token) -> Option<u64> {
        let (request_rng, scenario) = (self.request_rng, self.scenario);
        let costs = &scenario.costs;
        let Conn { client, socket, .. } = self.conns.get(token)?;
        self.cores[socket.core as usize].serve_began_ns = self.now_ns;
        if socket.replying {
            return Some(costs.write);
        }
        if socket.awaits_handshake() {
            let (session, connects) = (client.session, client.connects);
            return Some(costs.read + self.handshake_begin_ns(session, connects) + costs.write);
        }
        if !socket.has_request {
            return Some(costs.read);
        }
        let uniform = request_rng.draw(Draw::Service, client.session, client.request);
        let service_ns = scenario.classes[client.class as usize].service.at(uniform);
        let reply_ns = if scenario.eager { costs.write } else { costs.epoll_ctl };
        let is_first = matches!(socket.tls, TlsState::Answered(_));
        let end_ns = scenario.tls.filter(|_| is_first).map_or(0, |tls| tls.end_ns);
        Some(costs.read + end_ns + service_ns + reply_ns)
    }

    pub(super) fn served(&mut self, core: u32, token: Token) {
        let eager = self.scenario.eager;
        if self.handshake_served(core, token) {
            return;
        }
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        let (had_request, had_bytes) = (socket.has_request, socket.has_bytes);
        socket.has_bytes = false;
        if socket.replying || had_request && eager {
            return self.reply(core, token);
        }
        if had_request {
            // Writable at once, and reported so by the next wait.
            socket.replying = true;
            socket.has_request = false;
            socket.ready = true;
            self.cores[core as usize].ready.push(token);
        } else if socket.has_fin && !had_bytes {
            self.cores[core as usize].steps.push(Step::Close(token, CloseReason::Ended));
        } else {
            self.cores[core as usize].steps.push(Step::Watch(token));
        }
    }

    fn reply(&mut self, core: u32, token: Token) {
        let state = &mut self.cores[core as usize];
        let Some(Conn { client, socket, .. }) = self.conns.get(token) else { return };
        socket.replying = false;
        socket.has_request = false;
        socket.waits_ns = NEVER;
        socket.answered += 1;
        // It said so, and closes as the server does.
        let asked = client.requests == 1 && client.sessions.closes_one_in == 1;
        let refused = state.is_over(self.now_ns, client.source) && !asked;
        let closes = asked || refused;
        let sojourn_ns = self.now_ns - socket.data_ns;
        self.statistics.reply_written(self.now_ns, sojourn_ns);
        state.steps.push(if closes {
            Step::Close(token, CloseReason::Replied)
        } else {
            Step::Watch(token)
        });
        self.answer(token, Answer::Reply { closes });
        if refused {
            self.statistics.loops.closed_by_load += 1;
            self.record_refusal(core, token);
        }
    }

    /// Returns the cost of watching: one call for a new member of the interest set, or for one
    /// whose interest was in writing.
    pub(super) fn watch_cost_ns(&mut self, token: Token) -> u64 {
        let eager = self.scenario.eager;
        let changes =
            |conn: &mut Conn| !conn.socket.registered || !eager && conn.socket.answered > 0;
        let costs = &self.scenario.costs;
        if self.conns.get(token).is_some_and(changes) { costs.epoll_ctl } else { 0 }
    }

    /// Starts waiting for the client, unless there is something to read already.
    pub(super) fn watch(&mut self, core: u32, token: Token) {
        let state = &mut self.cores[core as usize];
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        socket.registered = true;
        let waited = std::mem::replace(&mut socket.waits_ns, self.now_ns);
        let silent = socket.answered == 0;
        socket.deadline_ns = if silent {
            socket.accepted_ns + self.scenario.header_timeout_ns
        } else {
            self.now_ns + self.scenario.idle_timeout_ns
        };
        if socket.is_readable() {
            socket.waits_ns = waited;
            socket.ready = true;
            state.ready.push(token);
            return;
        }
        if !std::mem::replace(&mut socket.timed, true) {
            self.events.push(socket.deadline_ns, Event::Deadline(token));
        }
        if silent && waited != NEVER {
            // A byte now and then does not make it wait anew.
            socket.waits_ns = waited;
            return;
        }
        // It can make room for another.
        state.watched = true;
        let queue = if silent { &mut state.silent } else { &mut state.idle };
        queue.push_back((token, self.now_ns));
        if queue.len() > 64 + 2 * state.known.open {
            queue.retain(|(token, since_ns)| {
                let still = |conn: &mut Conn| conn.socket.has_waited_since(*since_ns, silent);
                self.conns.get(*token).is_some_and(still)
            });
        }
    }

    pub(crate) fn deadline(&mut self, token: Token) {
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        socket.timed = false;
        if !socket.is_waiting() {
            return;
        }
        if socket.deadline_ns > self.now_ns {
            socket.timed = true;
            return self.events.push(socket.deadline_ns, Event::Deadline(token));
        }
        let core = socket.core;
        self.cores[core as usize].expired.push(token);
        self.wake_loop(core);
    }

    pub(super) fn check_deadlines(&mut self, core: u32) {
        let expired = std::mem::take(&mut self.cores[core as usize].expired);
        for token in expired {
            if self.conns.get(token).is_some_and(|conn| conn.socket.is_waiting()) {
                self.statistics.loops.expired += 1;
                self.cores[core as usize].steps.push(Step::Close(token, CloseReason::Expired));
            }
        }
    }

    pub(super) fn refuse_cost_ns(&self) -> u64 {
        let costs = &self.scenario.costs;
        match self.scenario.policy.refusal {
            Refusal::Kernel | Refusal::Rst => costs.refuse_rst,
            Refusal::Fin => costs.refuse_fin,
            Refusal::Status503 => costs.refuse_503,
        }
    }

    pub(super) fn refuse(&mut self, core: u32, token: Token) {
        let answer = match self.scenario.policy.refusal {
            Refusal::Kernel | Refusal::Rst => Answer::Rst,
            Refusal::Fin => Answer::Fin,
            Refusal::Status503 => Answer::Unavailable,
        };
        self.answer(token, answer);
        self.release(core, token);
    }

    /// Returns the cost of closing a connection and, if that makes room again, of registering the
    /// listening socket.
    pub(super) fn close_cost_ns(&self, core: u32) -> u64 {
        let costs = &self.scenario.costs;
        let returns = !self.cores[core as usize].watched;
        costs.close + if returns { costs.epoll_ctl } else { 0 }
    }

    pub(super) fn close(&mut self, core: u32, token: Token, end: CloseReason) {
        if end != CloseReason::Replied {
            self.answer(token, Answer::Fin);
        }
        self.release(core, token);
    }

    fn release(&mut self, core: u32, token: Token) {
        let state = &mut self.cores[core as usize];
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        if matches!(socket.state, SocketState::Deferred | SocketState::Open) {
            state.known.open -= 1;
            state.watched = true;
            match socket.tls {
                TlsState::Over => {}
                TlsState::Awaited => state.known.tls.in_vain.add(0),
                TlsState::Answered(spent_ns) => state.known.tls.in_vain.add(spent_ns),
            }
        }
        socket.state = SocketState::Closed;
        self.conns.tidy(token);
    }
}
