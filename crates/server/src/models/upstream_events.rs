//! Events at the upstreams of a loop: on connections to servers, ends of waits, deadlines. Knows
//! not how a connection is then served.

use weir_accept::upstream::{Granted, Outcome};
use weir_dispatch::readiness::Token;

use super::readiness_driver::{Driven, TokenOwner, owner};
use crate::http::background;
use crate::upstream::shared::{Grant, Whose};
use crate::worker::{Model, Worker};

/// Model whose connections forward requests.
pub(crate) trait Forwarding: Model {
    /// Tells the kernel what has changed about connections to upstreams, unless that is done once
    /// for all before the next wait.
    fn settle_upstreams(worker: &mut Worker<Self>);
}

impl<D: Driven> Forwarding for D {
    fn settle_upstreams(worker: &mut Worker<Self>) {
        worker.model.driver().settle_upstreams(&mut worker.core);
    }
}

impl<D: Driven> Worker<D> {
    /// Returns the connection that an event concerns: for one of an upstream, that of the client
    /// whose request it carries; and whether it was one of an upstream. A request without a client
    /// is served here.
    pub(super) fn client_of(&mut self, token: Token) -> (Token, bool) {
        let TokenOwner::Upstream(upstream) = owner(&self.core.table, token) else {
            return (token, false);
        };
        let upstreams = self.core.context.upstreams.as_mut();
        let client = upstreams.and_then(|upstreams| upstreams.sockets.ready(upstream));
        let in_background = client.filter(|client| background::owns(*client));
        if let Some(request) = in_background {
            background::proceed(request, &mut self.core.context);
        }
        if client.is_none() || in_background.is_some() {
            // One that was idle has been closed.
            self.model.driver().settle_upstreams(&mut self.core);
        }
        (client.unwrap_or(token), true)
    }
}

impl<M: Forwarding> Worker<M> {
    /// Takes what other loops have handed out to this one.
    pub(super) fn take_upstream_mail(&mut self) {
        if let Some(upstreams) = &mut self.core.context.upstreams {
            upstreams.take_mail();
        }
    }

    /// Ends the wait of a request for a place at an upstream. Returns the connection of its client,
    /// which is to be served; `None` if no wait is over. Requests without a client are served here.
    pub(super) fn next_granted(&mut self) -> Option<Token> {
        loop {
            let grant = self.core.context.upstreams.as_mut()?.next_grant()?;
            let Grant { upstream, granted } = grant;
            let &Whose { token, serial, .. } = granted.whose();
            let refusal = match granted {
                Granted::Place(_) => None,
                Granted::Refusal(_, reason) => Some(reason),
                Granted::Recall(_) => {
                    background::recall(token, serial, &mut self.core.context);
                    M::settle_upstreams(self);
                    continue;
                }
            };
            let now_ns = self.core.context.now_ns();
            let conn = self.core.table.conn_of(token);
            let forward = conn.and_then(|conn| conn.forwarded());
            if forward.is_some_and(|forward| forward.end_wait(serial, refusal, now_ns)) {
                return Some(token);
            }
            if background::end_wait(serial, refusal, &mut self.core.context) {
                M::settle_upstreams(self);
                continue;
            }
            // Its client has gone since.
            if let (None, Some(upstreams)) = (refusal, &mut self.core.context.upstreams) {
                upstreams.complete(upstream, 0, Outcome::Abandoned, now_ns);
            }
        }
    }

    /// Ends the wait of a request for the reply to another. Returns the connection of its client,
    /// which is to be served; `None` if no wait is over.
    pub(super) fn next_landed(&mut self) -> Option<Token> {
        loop {
            let landing = self.core.context.upstreams.as_mut()?.next_landing()?;
            let conn = self.core.table.conn_of(landing.token);
            if conn.is_some_and(|conn| conn.end_follow(landing)) {
                return Some(landing.token);
            }
        }
    }

    /// Does what is due at the upstreams.
    pub(super) fn poll_upstreams(&mut self) {
        let now_ns = self.core.context.now_ns();
        let is_due = self.core.context.upstreams_due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        let upstreams = self.core.context.upstreams.as_mut();
        if let Some(upstreams) = upstreams.filter(|_| is_due) {
            upstreams.poll(now_ns);
            background::poll(&mut self.core.context);
            M::settle_upstreams(self);
        }
        self.core.shed_for_upstream();
    }
}
