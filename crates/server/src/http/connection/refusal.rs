//! The part of the connection machine that refuses: a request that cannot be read, or is not to be
//! answered, and a connection for which there is no time.

use std::cell::OnceCell;
use std::ops::ControlFlow;

use weir_http1::{Request, Status};

use super::{Action, Connection, Flow};
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::http::response::{self, Refused};

impl Connection {
    /// Checks whether a request may be answered: by the limits of its client, and by the rules of
    /// sites. `Break` if it may not, or not yet.
    #[inline]
    pub(super) fn pass_checks(
        &mut self,
        request: &Request<'_>,
        input: &[u8],
        context: &mut WorkerContext,
    ) -> ControlFlow<Flow> {
        if request.is_https && !self.is_secured(context) {
            context.counters.refused_requests.one();
            let refused = Refused::Request(request);
            return ControlFlow::Break(self.refuse(Status::BAD_REQUEST, refused, context));
        }
        if context.clients.is_some() {
            self.charge_client(request, input, context)?;
        }
        // A password is not asked for where others may read it.
        let by_rule = context.config.sites.is_some()
            && !response::must_use_tls(request, self.peer, self.is_tls, context);
        if by_rule { self.pass_gate(request, input, context) } else { ControlFlow::Continue(()) }
    }

    /// Returns whether a request for an https resource may come by this connection (RFC 9110
    /// section 7.4): it is secured, or that of a trusted proxy.
    fn is_secured(&self, context: &WorkerContext) -> bool {
        self.is_tls || context.config.trusts_peer(self.peer)
    }

    /// Refuses the connection with a 503, whether a request has arrived or not.
    pub(crate) fn refuse_with_503(&mut self, context: &mut WorkerContext) -> Action {
        context.counters.turned_away.one();
        self.set_close_reason(CloseReason::TurnedAway);
        self.refuse_and_close(Status::SERVICE_UNAVAILABLE, context)
    }

    /// Answers a request that is refused. Bytes after it cannot be trusted to be a request.
    pub(super) fn refuse(
        &mut self,
        status: Status,
        refused: Refused<'_, '_>,
        context: &mut WorkerContext,
    ) -> Flow {
        self.set_close_reason(CloseReason::Refused);
        let mut output = self.output.take().unwrap_or_else(|| context.take_output());
        response::refuse(status, refused, self.request_info(), context, &mut output);
        self.output = Some(output);
        self.begin_reply(context);
        ControlFlow::Continue(())
    }

    /// Replaces any output by a refusal with `status`, and closes. No request is being answered, so
    /// that it has nothing of the site of the last one.
    pub(super) fn refuse_and_close(
        &mut self,
        status: Status,
        context: &mut WorkerContext,
    ) -> Action {
        self.ruling = None;
        self.client = OnceCell::new();
        if let Some(output) = self.output.take() {
            context.give_output(output);
        }
        let input = std::mem::take(&mut self.input);
        let unread = input.get(self.taken..).unwrap_or_default();
        let step = self.refuse(status, Refused::Unread(unread), context);
        self.taken = input.len();
        self.input = input;
        match step {
            ControlFlow::Continue(()) => self.run(context),
            ControlFlow::Break(action) => action,
        }
    }
}
