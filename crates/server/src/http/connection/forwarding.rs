//! The part of the connection machine that forwards requests, or has the cache answer them.

use std::ops::ControlFlow;
use std::sync::Arc;

use weir_cache::Stored;
use weir_http1::forward::{ReplyPart, max_forwards};
use weir_http1::{Method, Request, Status};

use super::{Action, Connection, Flow, State};
use crate::context::WorkerContext;
use crate::context::forwarded::{Answered, CachePart, END_WITH_REQUEST_NS, Forward};
use crate::context::refusals::RefusalCause;
use crate::http::cache_lookup::{self, Consulted};
use crate::http::course::Course;
use crate::http::forward_failure::{Failure, Limit};
use crate::http::response::{self, Instead, Refused};
use crate::http::upstream_io;
use crate::sites::ruling::Verdict;
use crate::upstream::shared::Landing;

/// Number of times that a request has come through this program from which it is not forwarded
/// again. Its name in Via is the same everywhere, and it may stand before and behind another proxy:
/// nobody has so many of them in a row, but a loop has.
const PASSES_MAX: usize = 10;

impl Connection {
    /// Forwards a request, if it is for an upstream, unless a stored reply answers it: that is
    /// returned, with what Cache-Status says. `None` if it is answered here.
    pub(super) fn route(
        &mut self,
        request: &Request<'_>,
        input: &[u8],
        context: &mut WorkerContext,
    ) -> ControlFlow<Flow, Option<(Arc<Stored>, &'static str)>> {
        if response::must_use_tls(request, self.peer, self.is_tls, context) {
            return ControlFlow::Continue(None);
        }
        // One that may go no further is answered here (RFC 9110 section 7.6.2).
        let (head, _) = input.split_at(request.head_len);
        let ends_here = request.method == Method::Options && max_forwards(head) == Some(0);
        let Some(upstream) = self.upstream_of(request, context).filter(|_| !ends_here) else {
            return ControlFlow::Continue(None);
        };
        if request.passes >= PASSES_MAX {
            return ControlFlow::Break(self.refuse_loop(request, upstream, context));
        }
        self.consult(request, input, upstream, context).map_continue(Some)
    }

    /// Refuses a request that goes round (RFC 5842 section 7.2).
    #[cold]
    fn refuse_loop(
        &mut self,
        request: &Request<'_>,
        upstream: usize,
        context: &mut WorkerContext,
    ) -> Flow {
        context.counters.refused_requests.one();
        let client = self.client.get().and_then(|client| client.address());
        let client = client.unwrap_or_else(|| self.peer.ip());
        context.log_refusal(client, || RefusalCause::Loop { upstream, passes: request.passes });
        self.refuse(Status::LOOP_DETECTED, Refused::Request(request), context)
    }

    /// Returns the upstream that a request is forwarded to; `None` if it is answered here.
    fn upstream_of(&self, request: &Request<'_>, context: &WorkerContext) -> Option<usize> {
        context.upstreams.as_ref()?;
        // A tunnel to anywhere, a mirror of fields that are not for everyone's eyes, and an order
        // to a cache.
        if matches!(request.method, Method::Connect | Method::Trace | Method::Purge) {
            return None;
        }
        let ruling = self.ruling.filter(|ruling| ruling.verdict == Verdict::Pass)?;
        context.config.rule(ruling.rule?)?.upstream()
    }

    /// Asks the cache about a request to an upstream; `Continue` with the stored reply that answers
    /// it, and with what Cache-Status says.
    fn consult(
        &mut self,
        request: &Request<'_>,
        input: &[u8],
        upstream: usize,
        context: &mut WorkerContext,
    ) -> ControlFlow<Flow, (Arc<Stored>, &'static str)> {
        let may_act = self.output.is_none();
        let (head, _) = input.split_at(request.head_len);
        let course = Course { upstream, is_tls: self.is_tls, peer: self.peer };
        ControlFlow::Break(
            match cache_lookup::consult(request, head, course, self.landing, may_act, context) {
                Consulted::Stored(stored, says) => return ControlFlow::Continue((stored, says)),
                Consulted::Forward(cache) => self.forward(request, input, upstream, cache, context),
                Consulted::Wait(wait) => {
                    self.deadline_ns = self.request_deadline_ns(context);
                    self.state = State::Follow(wait);
                    ControlFlow::Break(self.action())
                }
                Consulted::NotCached => self.answer_not_cached(request, context),
                Consulted::Later => {
                    self.begin_reply(context);
                    ControlFlow::Continue(())
                }
            },
        )
    }

    /// Answers a request that wants a stored reply only (RFC 9111 section 5.2.1.7).
    fn answer_not_cached(&mut self, request: &Request<'_>, context: &mut WorkerContext) -> Flow {
        let mut output = self.output.take().unwrap_or_else(|| context.take_output());
        let info = self.request_info();
        let instead = Instead {
            status: Status::GATEWAY_TIMEOUT,
            fields: b"Cache-Status: weir; detail=only-if-cached\r\n",
            close: response::closes_after(request, info, context),
            logged: context.logged(request, self.peer, info.client),
        };
        response::answer_instead(instead, Answered::of(request), info, context, &mut output);
        self.taken += request.head_len;
        self.is_charged = false;
        self.count_request(context);
        self.output = Some(output);
        self.begin_reply(context);
        ControlFlow::Continue(())
    }

    /// Records the end of a request's wait for the reply to another; returns false if it was
    /// another request that waited.
    pub(crate) fn end_follow(&mut self, landing: Landing) -> bool {
        if let State::Follow(wait) = &mut self.state { wait.end(landing) } else { false }
    }

    /// Handles the end of the client's side during a wait for the reply to another request, or for
    /// a password to be verified. Returns false if there is none, or the client has gone.
    pub(super) fn waits_after_end(&mut self, context: &WorkerContext) -> bool {
        let now_ns = context.now_ns();
        let Some((received_ns, has_client_ended)) = self.waiting() else { return false };
        *has_client_ended = now_ns.saturating_sub(*received_ns) <= END_WITH_REQUEST_NS;
        *has_client_ended
    }

    /// Returns, during such a wait, when the client last sent anything, nanoseconds, and whether it
    /// has ended its side.
    pub(super) fn waiting(&mut self) -> Option<(&mut u64, &mut bool)> {
        match &mut self.state {
            State::Follow(wait) => Some((&mut wait.received_ns, &mut wait.has_client_ended)),
            State::Verify(wait) => Some((&mut wait.received_ns, &mut wait.has_client_ended)),
            _ => None,
        }
    }

    /// Begins to forward a request. Replies to earlier requests are sent first.
    fn forward(
        &mut self,
        request: &Request<'_>,
        input: &[u8],
        upstream: usize,
        cache: Option<Box<CachePart>>,
        context: &mut WorkerContext,
    ) -> Flow {
        if self.output.is_some() {
            self.begin_reply(context);
            return ControlFlow::Continue(());
        }
        let (head, _) = input.split_at(request.head_len);
        self.landing = None;
        // A refusal at the upstream is told with who it is that asks.
        self.client.get_or_init(|| context.config.client(self.peer, head));
        let info = self.request_info();
        self.count_request(context);
        let close = response::closes_after(request, info, context);
        let mut forward = Forward::begin(request, head, info, upstream, cache, context);
        forward.close = close;
        self.taken += request.head_len;
        self.is_charged = false;
        self.deadline_ns = self.request_deadline_ns(context);
        self.state = State::Forward(Box::new(forward));
        ControlFlow::Break(Action::Forward)
    }

    /// Returns the request being forwarded.
    pub(crate) fn forwarded(&mut self) -> Option<&mut Forward> {
        if let State::Forward(forward) = &mut self.state { Some(forward) } else { None }
    }

    /// Takes out the request being forwarded. [`Connection::put_forward`], or its end, must follow.
    pub(in crate::http) fn take_forward(&mut self) -> Option<Box<Forward>> {
        if !matches!(self.state, State::Forward(_)) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Forward(forward) => Some(forward),
            _ => None,
        }
    }

    /// Puts back a request that is to be forwarded further.
    pub(in crate::http) fn put_forward(&mut self, forward: Box<Forward>, context: &WorkerContext) {
        let deadline_ns = self.pause_end_ns().unwrap_or_else(|| forward.deadline_ns(context));
        self.deadline_ns = deadline_ns.min(self.request_deadline_ns(context));
        self.state = State::Forward(forward);
    }

    /// Ends a forwarded request whose reply is complete, with so much content; what is left of it
    /// is in the output.
    pub(in crate::http) fn end_forward(
        &mut self,
        close: bool,
        request_taken: bool,
        body_bytes: u64,
        context: &WorkerContext,
    ) -> Action {
        self.body_incomplete = !request_taken;
        if let Some(output) = &mut self.output {
            output.close |= close || !request_taken;
            output.linger |= !request_taken;
            output.records.iter_mut().for_each(|record| record.body_bytes = body_bytes);
        }
        self.begin_reply(context);
        Action::Write
    }

    /// Ends a forwarded request that was answered here; the answer is in the output.
    pub(in crate::http) fn end_refusal(
        &mut self,
        request_taken: bool,
        context: &WorkerContext,
    ) -> Action {
        self.body_incomplete = !request_taken;
        self.begin_reply(context);
        Action::Write
    }

    /// Returns whether more of a forwarded request's content is taken, whatever of the reply waits.
    pub(crate) fn takes_content(&self) -> bool {
        let State::Forward(forward) = &self.state else { return false };
        // Once the reply is there, what is left of it is sent before anything else.
        forward.exchange.part() != ReplyPart::Done && forward.exchange.wants_client()
    }

    /// Ends a forwarded request at its deadline, or lets it go on.
    pub(super) fn expire_forward(
        &mut self,
        unacknowledged: Option<u64>,
        context: &mut WorkerContext,
    ) -> Action {
        let Some(mut forward) = self.take_forward() else { return self.action() };
        let taken_bytes = self.acknowledged(unacknowledged.unwrap_or(0));
        let is_late = self.request_deadline_ns(context) <= context.now_ns();
        if !is_late && self.is_paused() {
            if self.end_pause_if_over(context) {
                // In the pause nobody was waited for.
                forward.moved_ns = context.now_ns();
                (forward.client_rate, forward.client_wait) = (None, None);
            }
            self.put_forward(forward, context);
            return self.action();
        }
        let of_request = forward.late(taken_bytes, context);
        let Some(failure) = of_request.or_else(|| is_late.then(|| forward.overdue())) else {
            self.put_forward(forward, context);
            return self.action();
        };
        if failure == Failure::Timeout(Limit::Connect)
            && !is_late
            && upstream_io::try_elsewhere(&mut forward, context)
        {
            self.put_forward(forward, context);
            return Action::Forward;
        }
        let is_slow =
            matches!(failure, Failure::SlowClient(_) | Failure::Overdue { awaits_client: true });
        if is_slow {
            self.set_close_reason(failure.close_reason());
        }
        let is_clients = is_slow || of_request.is_none();
        if is_clients && forward.has_begun() && forward.outlives_client(context) {
            // The server is not late with the reply, and others wait for it.
            failure.count(context);
            forward.abandon(context);
            return self.close_for(failure.close_reason());
        }
        let request_taken = forward.request_taken();
        let mut output = self.output.take().unwrap_or_else(|| context.take_output());
        let ended = forward.fail(failure, self.request_info(), &mut output, context);
        self.output = Some(output);
        match ended {
            Ok(()) => self.end_refusal(request_taken, context),
            Err(reason) => self.close_for(reason),
        }
    }
}
