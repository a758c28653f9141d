//! Forwarded requests without a client: one whose client has left while others wait for the reply,
//! one that brings a stored reply up to date, and one that the server still works for.
//!
//! A server that has been sent a request works for it to the end, as a rule, though the client has
//! gone. Its place given to another would have the server hold more requests than the limit, and
//! what it does would be hidden from the policy that finds the limit. So a request whose client
//! leaves keeps its place, and its connection, until the reply begins; but not for much longer than
//! the client has waited, because a server that holds a request open on purpose may end it when its
//! connection is closed. How long that is, and how many may do so, the admission decides.
//!
//! The same goes where the reply may be stored, and where the cache asks for itself: a part of a
//! server that hangs would take all places otherwise. While others wait for the reply, the request
//! does not lose its place for want of a client, but counts again and again as one whose client
//! leaves now: they may leave, too, and nobody is told when the last one does.

use weir_accept::upstream::{Outcome, Reason};
use weir_dispatch::readiness::{Interest, Token};
use weir_http1::Request;
use weir_http1::forward::ReplyPart;

use super::course::Course;
use super::forward_failure::{Failure, Limit};
use super::response::RequestInfo;
use super::upstream_io::{exchange, outcome_of, receive_reply, try_elsewhere};
use crate::context::WorkerContext;
use crate::context::forwarded::{Background, CachePart, Forward, Place};
use crate::context::output::Output;

/// Part of the time limit of the first byte, as its divisor, that counts as the wait of a client
/// where there never was one: the admission then lets the place be kept for as long as that limit
/// says, and for a quarter of it where nothing ends and too many keep theirs.
const OWN_WAIT_PART: u64 = 16;

/// Result of moving bytes until nothing moves.
#[derive(Clone, Copy)]
enum Progress {
    Waits,
    /// All that is wanted of the reply has arrived.
    Done {
        /// True if nobody waited for it any more.
        has_departed: bool,
    },
    Failed(Failure),
    /// It keeps its place no longer, though the server may answer yet.
    GivenUp,
}

/// Begins to forward a request that a client's gives rise to, and has no client itself. Its fields
/// tell the server what those of the client's own would: the reply may depend on that, and is for
/// those to come who ask the same.
pub(super) fn begin(
    request: &Request<'_>,
    head: &[u8],
    course: Course,
    part: CachePart,
    context: &mut WorkerContext,
) {
    let token = context.background.vacant();
    let client = std::mem::replace(&mut context.serving, token);
    let info = RequestInfo {
        peer: course.peer,
        client: None,
        is_tls: course.is_tls,
        began_ns: context.now_ns(),
        is_retry: false,
        fetches: 0,
        body_incomplete: false,
        is_last: false,
        endpoints: None,
        ruling: None,
    };
    let part = Some(Box::new(part));
    let forward = Forward::begin(request, head, info, course.upstream, part, context);
    advance(token, Box::new(forward), context);
    context.serving = client;
}

/// Takes over a request whose client has left.
pub(super) fn adopt(forward: Box<Forward>, context: &mut WorkerContext) {
    let token = context.background.vacant();
    adopt_as(token, forward, context);
}

fn adopt_as(token: Token, mut forward: Box<Forward>, context: &mut WorkerContext) {
    forward.client_rate = None;
    if let (Some(slot), Some(upstreams)) = (forward.socket, &mut context.upstreams) {
        upstreams.sockets.set_client(slot, token);
    }
    let client = std::mem::replace(&mut context.serving, token);
    advance(token, forward, context);
    context.serving = client;
}

impl Forward {
    /// Gives up the request, because its connection is closed; or has it go on without a client.
    pub(super) fn abandon(self: Box<Self>, context: &mut WorkerContext) {
        let has_returned = self.place == Place::Returned;
        if !has_returned && self.exchange.status() == 0 {
            context.counters.upstream_departed.one();
        }
        if self.place == Place::Unasked {
            // The rest of its content will not come.
            self.give_up(context);
        } else if self.is_worked_for(context) {
            self.depart(context);
        } else if !has_returned && self.outlives_client(context) {
            adopt(self, context);
        } else {
            self.give_up(context);
        }
    }

    /// Gives up the request: its place, and its connection to the server.
    pub(super) fn give_up(mut self: Box<Self>, context: &mut WorkerContext) {
        self.release(Outcome::Abandoned, context);
        self.give_up_flight(context);
    }

    /// Has the request go on without a client until the reply begins, or is stored for others.
    fn depart(mut self: Box<Self>, context: &mut WorkerContext) {
        let token = context.background.vacant();
        self.keep_place(token, context);
        adopt_as(token, self, context);
    }

    /// Has the request keep its place without a client, as if that left now, for as long as the
    /// admission says.
    fn keep_place(&mut self, token: Token, context: &mut WorkerContext) {
        let (upstream, serial, now_ns) = (self.upstream, self.serial, context.now_ns());
        let first_byte_ns = context.config.upstreams[upstream].timeouts.first_byte_ns;
        let least_ns = if self.is_own { first_byte_ns.div_ceil(OWN_WAIT_PART) } else { 1 };
        let waited_ns = now_ns.saturating_sub(self.arrived_ns).max(least_ns);
        let Some(upstreams) = &mut context.upstreams else { return };
        if let Some(before) = self.departure.take() {
            upstreams.end_departure(upstream, before);
        }
        self.departure = Some(upstreams.depart(upstream, token, serial, waited_ns, now_ns));
    }

    /// Has the request lose its place no longer: its reply has begun, and is to be stored.
    fn keep_to_the_end(&mut self, context: &WorkerContext) {
        if let (Some(departure), Some(upstreams)) = (&mut self.departure, &context.upstreams)
            && departure.until_ns < u64::MAX
        {
            upstreams.end_departure(self.upstream, *departure);
            departure.until_ns = u64::MAX;
        }
    }

    /// Returns whether its client has gone, and nobody else waits for the reply.
    pub(super) fn has_departed(&self, context: &WorkerContext) -> bool {
        self.departure.is_some() && !self.is_own && !self.is_followed(context)
    }

    /// Returns whether the server has the whole request, has not begun to reply but for interim
    /// replies (RFC 9110 section 15.2), and may have a limited number of them.
    fn is_worked_for(&self, context: &WorkerContext) -> bool {
        let is_sent = self.request_taken() && self.exchange.is_sent();
        let upstreams = context.upstreams.as_ref();
        self.place == Place::Has
            && is_sent
            && self.socket.is_some()
            && self.exchange.status() == 0
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

/// Ends the requests whose deadline has come: the server's, or that of a place that is kept. One
/// whose connect takes too long goes to another server.
pub(crate) fn poll(context: &mut WorkerContext) {
    while let Some((token, mut forward)) = context.background.take_due(context.now_ns()) {
        match forward.late(0, context) {
            Some(Failure::Timeout(Limit::Connect)) if try_elsewhere(&mut forward, context) => {
                context.serving = token;
                advance(token, forward, context);
            }
            Some(failure) => end(forward, Progress::Failed(failure), context),
            None => match deadline_ns(&forward, context) {
                // A limit of a connect may have grown since.
                later_ns if later_ns > context.now_ns() => {
                    context.background.put(token, forward, later_ns);
                }
                _ => lose_place(token, forward, context),
            },
        }
    }
}

/// Ends a request that loses its place, if it has not ended since.
pub(crate) fn recall(token: Token, serial: u64, context: &mut WorkerContext) {
    if let Some(forward) = context.background.take_numbered(token, serial) {
        lose_place(token, forward, context);
    }
}

/// Ends a request that loses its place, unless others wait for its reply, or that has begun since
/// and is being stored.
fn lose_place(token: Token, mut forward: Box<Forward>, context: &mut WorkerContext) {
    let is_kept = forward.departure.is_some_and(|departure| departure.until_ns == u64::MAX);
    if !is_kept {
        if !forward.is_followed(context) {
            return end(forward, Progress::GivenUp, context);
        }
        forward.keep_place(token, context);
    }
    let deadline_ns = deadline_ns(&forward, context);
    context.background.put(token, forward, deadline_ns);
}

/// Gives up all requests, because the loop ends: the places are for those of other loops.
pub(crate) fn give_up_all(context: &mut WorkerContext) {
    for forward in context.background.take_all() {
        forward.give_up(context);
    }
}

fn advance(token: Token, mut forward: Box<Forward>, context: &mut WorkerContext) {
    let mut output = context.take_output();
    let progress = drive(&mut forward, &mut output, context);
    context.give_output(output);
    match progress {
        Progress::Waits => {
            if forward.departure.is_none() && forward.is_worked_for(context) {
                forward.keep_place(token, context);
            }
            let deadline_ns = deadline_ns(&forward, context);
            context.background.put(token, forward, deadline_ns);
        }
        ended => end(forward, ended, context),
    }
}

/// Returns when it is looked at again, nanoseconds: when the server is late, or the place is kept
/// no longer.
fn deadline_ns(forward: &Forward, context: &WorkerContext) -> u64 {
    let until_ns = forward.departure.map_or(u64::MAX, |departure| departure.until_ns);
    forward.deadline_ns(context).min(until_ns)
}

fn drive(forward: &mut Forward, output: &mut Output, context: &mut WorkerContext) -> Progress {
    match forward.place {
        Place::Refused(reason) => return Progress::Failed(Failure::Refused(reason)),
        Place::Unavailable => return Progress::Failed(Failure::Unavailable),
        Place::Waits(_) => return Progress::Waits,
        Place::Unasked => return Progress::GivenUp,
        Place::Has | Place::Returned => {}
    }
    // Others who wait for the reply may have been told of it by its end.
    let has_departed = forward.has_departed(context);
    // No client holds it back, but it ends where what is stored ends.
    loop {
        let awaited = forward.awaits_first_byte();
        let exchanged = exchange(forward, context, |forward, context| {
            let received = receive_reply(forward, output, context);
            output.bytes.clear();
            output.written = 0;
            received
        });
        let moved = match exchanged {
            Ok(moved) => moved,
            Err(failure) => return Progress::Failed(failure),
        };
        // One whose client has gone may also switch protocols.
        let is_answered = forward.exchange.status() >= 101;
        if forward.exchange.part() == ReplyPart::Done || is_answered && !forward.is_copying() {
            return Progress::Done { has_departed };
        }
        if is_answered {
            forward.keep_to_the_end(context);
        }
        if !moved {
            watch(forward, context);
            return Progress::Waits;
        }
        forward.note_moved(awaited, context);
    }
}

/// Decides what the connection to the server is waited for.
fn watch(forward: &Forward, context: &mut WorkerContext) {
    let is_sent = forward.exchange.is_sent();
    let interest = if is_sent { Interest::Read } else { Interest::Write };
    if let (Some(slot), Some(upstreams)) = (forward.socket, &mut context.upstreams) {
        upstreams.sockets.want(slot, interest);
    }
}

fn end(mut forward: Box<Forward>, progress: Progress, context: &mut WorkerContext) {
    let has_departed = matches!(progress, Progress::Done { has_departed: true });
    match progress {
        Progress::GivenUp => return forward.give_up(context),
        // Not counted: no client is refused anything.
        Progress::Failed(failure @ Failure::Refused(_)) => {
            forward.release(failure.outcome(), context);
        }
        Progress::Failed(failure) => forward.release_failed(failure, context),
        Progress::Waits | Progress::Done { .. } => {
            forward.store_reply(context);
            let outcome = match outcome_of(forward.exchange.status()) {
                Outcome::Answered if has_departed => Outcome::Departed,
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
