//! TLS handshakes in the loop: the work before the server's answer, its share of an iteration, and
//! the account that the policy is told.

use super::core::{Core, Step};
use crate::connections::{TlsState, Token};
use crate::events::Answer;
use crate::rng::Draw;
use crate::simulation::Simulation;

impl Core {
    /// Returns whether new connections stay in the queue, because handshakes have used up their
    /// share of this iteration, or those of earlier connections wait for it.
    pub(super) fn handshakes_fill(&self) -> bool {
        self.tls_budget.is_spent() || self.known.tls.waiting > 0
    }
}

impl Simulation<'_> {
    /// Has a connection wait if its handshake would begin, and those of this iteration have had
    /// their share. Returns whether it waits.
    pub(super) fn yields(&mut self, core: u32, token: Token) -> bool {
        let state = &mut self.cores[core as usize];
        let waits = state.tls_budget.is_spent()
            && self.conns.get(token).is_some_and(|conn| conn.socket.awaits_handshake());
        if waits {
            state.yielded.push(token);
        }
        waits
    }

    fn resumes(&self, session: u64, connects: u32) -> bool {
        let share = self.scenario.tls.map_or(0.0, |tls| tls.resumed_share);
        self.request_rng.draw(Draw::Handshake, session, connects) < share
    }

    /// Returns the work before the server's answer in a handshake, nanoseconds.
    pub(super) fn handshake_begin_ns(&self, session: u64, connects: u32) -> u64 {
        let resumes = self.resumes(session, connects);
        self.scenario.tls.map_or(0, |tls| if resumes { tls.resumed_ns } else { tls.full_ns })
    }

    /// Ends a service that was for a handshake: answers, or counts the end that has come with a
    /// request. Returns whether that was all.
    pub(super) fn handshake_served(&mut self, core: u32, token: Token) -> bool {
        let Some(conn) = self.conns.get(token).filter(|conn| conn.socket.has_request) else {
            return false;
        };
        let (session, connects) = (conn.client.session, conn.client.connects);
        let state = &mut self.cores[core as usize];
        match conn.socket.tls {
            TlsState::Over => false,
            TlsState::Awaited => {
                let spent_ns = self.now_ns - state.serve_began_ns;
                conn.socket.tls = TlsState::Answered(spent_ns);
                (conn.socket.has_request, conn.socket.has_bytes) = (false, false);
                state.known.tls.spent_ns += spent_ns;
                state.known.tls.steps += 1;
                state.tls_budget.spend(spent_ns);
                state.steps.push(Step::Watch(token));
                self.answer(token, Answer::Handshake);
                true
            }
            TlsState::Answered(spent_ns) => {
                conn.socket.tls = TlsState::Over;
                let end_ns = self.scenario.tls.map_or(0, |tls| tls.end_ns);
                state.known.tls.spent_ns += end_ns;
                state.tls_budget.spend(end_ns);
                let resumes = self.resumes(session, connects);
                let tls = &mut self.cores[core as usize].known.tls;
                let kind = if resumes { &mut tls.resumed } else { &mut tls.full };
                kind.add(spent_ns + end_ns);
                false
            }
        }
    }
}
