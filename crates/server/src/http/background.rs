//! Forwarded requests without a client: one whose client has left while others wait for the reply,
//! one that brings a stored reply up to date, and one that the server still works for.
//!
//! A server that has been sent a request works for it to the end, as a rule, though the client has
//! gone. Its place given to another would have the server hold more requests than the limit, and
//! what it does would be hidden from the policy that finds the limit. So a request whose client
//! leaves keeps its place, and its connection, until the reply begins; but not for much longer than
//! the client has waited, because a server that holds a request open on purpose may end it when its
//! connection is closed.

use weir_accept::upstream::{Outcome, Reason};
use weir_dispatch::readiness::{Interest, Token};
use weir_http1::Request;
use weir_http1::forward::ReplyPart;
use weir_sys::socket;

use super::forward_failure::{Failure, Limit};
use super::response::RequestInfo;
use super::upstream_io::{connect, outcome_of, receive_reply, send_request, try_again};
use crate::context::WorkerContext;
use crate::context::forwarded::{Background, CachePart, Forward, Place};
use crate::context::output::Output;

/// Time for which a request keeps its place, as a multiple of the time that its client has waited.
/// The limit in flight may be so many times too high and yet be found out.
const PLACE_KEPT_EACH: u64 = 16;

/// Result of moving bytes until nothing moves.
#[derive(Clone, Copy)]
enum Progress {
    Waits,
    /// All that is wanted of the reply has arrived.
    Done,
    Failed(Failure),
}

/// Begins to forward a request without a client.
pub(super) fn begin(
    request: &Request<'_>,
    head: &[u8],
    upstream: usize,
    part: CachePart,
    context: &mut WorkerContext,
) {
    let token = context.background.vacant();
    let client = std::mem::replace(&mut context.serving, token);
    let info = RequestInfo {
        peer: socket::UNKNOWN_PEER,
        began_ns: context.now_ns(),
        is_retry: false,
        fetches: 0,
        body_incomplete: false,
        endpoints: None,
    };
    let forward = Forward::begin(request, head, info, upstream, Some(Box::new(part)), context);
    advance(token, Box::new(forward), context);
    context.serving = client;
}

/// Takes over a request whose client has left.
pub(super) fn adopt(mut forward: Box<Forward>, context: &mut WorkerContext) {
    forward.client_rate = None;
    let token = context.background.vacant();
    if let (Some(slot), Some(upstreams)) = (forward.socket, &mut context.upstreams) {
        upstreams.sockets.set_client(slot, token);
    }
    let client = std::mem::replace(&mut context.serving, token);
    advance(token, forward, context);
    context.serving = client;
}

impl Forward {
    /// Gives up the request, because its connection is closed; or has it go on without a client.
    pub(super) fn abandon(mut self: Box<Self>, context: &mut WorkerContext) {
        if self.place != Place::Returned {
            if self.outlives_client(context) {
                return adopt(self, context);
            }
            context.counters.upstream_departed.one();
            if self.is_worked_for(context) {
                let now_ns = context.now_ns();
                let waited_ns = now_ns.saturating_sub(self.placed_ns);
                self.departed_until_ns = Some(now_ns + waited_ns * PLACE_KEPT_EACH);
                self.give_up_flight(context);
                return adopt(self, context);
            }
        }
        self.release(Outcome::Abandoned, context);
        self.give_up_flight(context);
    }

    /// Returns whether the server has the whole request, has not begun to reply, and may have a
    /// limited number of them.
    fn is_worked_for(&self, context: &WorkerContext) -> bool {
        let is_sent = self.request_taken() && self.exchange.unsent().is_empty();
        let upstreams = context.upstreams.as_ref();
        self.place == Place::Has
            && is_sent
            && self.socket.is_some()
            && self.exchange.is_unanswered()
            && upstreams.is_some_and(|upstreams| upstreams.is_limited(self.upstream))
    }
}

/// Lets a request make as much progress as it can, after its upstream was reported ready.
pub(crate) fn proceed(token: Token, context: &mut WorkerContext) {
    context.serving = token;
    if let Some(forward) = context.background.take(token) {
        advance(token, forward, context);
    }
}

/// Records the end of a request's wait for a place; returns false if none of these waited.
pub(crate) fn end_wait(serial: u64, refusal: Option<Reason>, context: &mut WorkerContext) -> bool {
    let Some(token) = context.background.find(serial) else { return false };
    let Some(mut forward) = context.background.take(token) else { return false };
    let ended = forward.end_wait(serial, refusal, context.now_ns());
    context.serving = token;
    advance(token, forward, context);
    ended
}

/// Ends the requests whose deadline has come.
pub(crate) fn poll(context: &mut WorkerContext) {
    while let Some(forward) = context.background.take_due(context.now_ns()) {
        end(forward, Progress::Failed(Failure::Timeout(Limit::Whole)), context);
    }
}

fn advance(token: Token, mut forward: Box<Forward>, context: &mut WorkerContext) {
    let mut output = context.take_output();
    let progress = drive(&mut forward, &mut output, context);
    context.give_output(output);
    match progress {
        Progress::Waits => {
            let until_ns = forward.departed_until_ns.unwrap_or(u64::MAX);
            let deadline_ns = forward.deadline_ns(context).min(until_ns);
            context.background.put(token, forward, deadline_ns);
        }
        ended => end(forward, ended, context),
    }
}

fn drive(forward: &mut Forward, output: &mut Output, context: &mut WorkerContext) -> Progress {
    match forward.place {
        Place::Refused(reason) => return Progress::Failed(Failure::Refused(reason)),
        Place::Unavailable => return Progress::Failed(Failure::Unavailable),
        Place::Waits(_) => return Progress::Waits,
        Place::Has | Place::Returned => {}
    }
    // No client holds it back, but it ends where what is stored ends.
    loop {
        if forward.socket.is_none()
            && let Err(failure) = connect(forward, context)
        {
            return Progress::Failed(failure);
        }
        let sent = send_request(forward, context);
        let received = receive_reply(forward, output, context);
        output.bytes.clear();
        output.written = 0;
        let moved = match (sent, received) {
            (Ok(sent), Ok(received)) => sent || received,
            (Err(_), Ok(true)) => true,
            (_, Err(Failure::Malformed)) => return Progress::Failed(Failure::Malformed),
            (Err(failure), _) | (_, Err(failure)) if forward.departed_until_ns.is_some() => {
                return Progress::Failed(failure);
            }
            _ => match try_again(forward, context) {
                Ok(()) => continue,
                Err(failure) => return Progress::Failed(failure),
            },
        };
        // One whose client has gone may also switch protocols.
        let is_answered = forward.exchange.status() >= 101;
        if forward.exchange.part() == ReplyPart::Done || is_answered && !forward.is_copying() {
            return Progress::Done;
        }
        if !moved {
            watch(forward, context);
            return Progress::Waits;
        }
        forward.moved_ns = context.now_ns();
    }
}

/// Decides what the connection to the server is waited for.
fn watch(forward: &Forward, context: &mut WorkerContext) {
    let is_sent = forward.exchange.unsent().is_empty();
    let interest = if is_sent { Interest::Read } else { Interest::Write };
    if let (Some(slot), Some(upstreams)) = (forward.socket, &mut context.upstreams) {
        upstreams.sockets.want(slot, interest);
    }
}

fn end(mut forward: Box<Forward>, progress: Progress, context: &mut WorkerContext) {
    match progress {
        Progress::Failed(_) if forward.departed_until_ns.is_some() => {
            forward.release(Outcome::Abandoned, context);
        }
        Progress::Failed(failure) => {
            forward.release(Outcome::Failed, context);
            failure.count(context);
        }
        _ => {
            forward.store_reply(context);
            let outcome = match outcome_of(forward.exchange.status()) {
                Outcome::Answered if forward.departed_until_ns.is_some() => Outcome::Departed,
                outcome => outcome,
            };
            forward.release(outcome, context);
        }
    }
    forward.give_up_flight(context);
}

/// Returns whether a token is one of a request without a client.
pub(crate) fn owns(token: Token) -> bool {
    Background::is_token(token)
}
