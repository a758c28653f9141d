//! The part of the connection machine that passes the gate of sites, and waits while a password is
//! verified. The thread that does so wakes nobody: the connection looks again when its deadline
//! comes, which every architecture has, and which is soon beside what a hash takes.

use std::ops::ControlFlow;

use weir_http1::Request;

use super::{Action, Connection, Flow, State};
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::http::gate::{Arriving, Desk, Gate, PasswordWait};

/// Time after which a password that is being verified is asked about again, nanoseconds.
const ASK_AGAIN_NS: u64 = 5_000_000;

impl Connection {
    /// Finds the rule for a request, and whether it may pass; `Break` if that is not known yet.
    pub(super) fn pass_gate(
        &mut self,
        request: &Request<'_>,
        input: &[u8],
        context: &mut WorkerContext,
    ) -> ControlFlow<Flow> {
        let (head, _) = input.split_at(request.head_len);
        let (peer, verified) = (self.peer, self.verified);
        let arriving = Arriving { request, head, peer, client: &self.client, verified };
        let Some(desk) = Desk::of(context) else { return ControlFlow::Continue(()) };
        match arriving.judge(desk) {
            Gate::Ruled(ruling) => {
                self.ruling = Some(ruling);
                ControlFlow::Continue(())
            }
            // Replies to earlier requests are sent first; it is verified when this is asked again.
            Gate::Waits(_) if self.output.is_some() => {
                self.begin_reply(context);
                ControlFlow::Break(ControlFlow::Continue(()))
            }
            Gate::Waits(verification) => {
                self.state = State::Verify(PasswordWait {
                    verification,
                    verified: None,
                    received_ns: context.now_ns(),
                    has_client_ended: false,
                });
                self.ask_later(context);
                ControlFlow::Break(ControlFlow::Break(self.action()))
            }
        }
    }

    /// Asks whether a password has been verified.
    pub(super) fn expire_verification(&mut self, context: &WorkerContext) -> Action {
        if self.request_deadline_ns(context) <= context.now_ns() {
            return self.close_for(CloseReason::RequestTimeout);
        }
        if let State::Verify(wait) = &mut self.state {
            wait.verified = wait.verification.outcome();
            if wait.verified.is_some() {
                self.deadline_ns = self.request_deadline_ns(context);
                return self.action();
            }
        }
        self.ask_later(context);
        self.action()
    }

    fn ask_later(&mut self, context: &WorkerContext) {
        let again_ns = context.now_ns() + ASK_AGAIN_NS;
        self.deadline_ns = again_ns.min(self.request_deadline_ns(context));
    }
}
