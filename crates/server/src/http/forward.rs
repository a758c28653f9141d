//! A request that is forwarded to another server: its place at the upstream, its deadlines, and
//! what is answered when the upstream does not. [`Exchange`] reads and writes HTTP.

use std::net::IpAddr;

use weir_accept::upstream::{Arrived, Asked, Outcome, Reason};
use weir_http1::forward::{Exchange, ReplyPart, RequestFacts};
use weir_http1::{Framing, Request};
use weir_sys::socket;

use super::forward_failure::{Failure, Limit};
use super::response::{self, Instead, RequestInfo};
use super::{background, cache_store};
use crate::config::{Config, Upstream};
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::context::forwarded::{
    Answered, CachePart, ClientWait, END_WITH_REQUEST_NS, Forward, Place,
};
use crate::context::output::Output;
use crate::context::read_rate::{RateVerdict, ReadRate, ReadRateLimits};
use crate::context::refusals::RefusalCause;
use crate::sites::client::Client;
use crate::upstream::buffers::Lease;

impl Forward {
    /// Begins to forward a request: asks for a place at the upstream. `cache`: what the cache does
    /// with the reply.
    pub(super) fn begin(
        request: &Request<'_>,
        head: &[u8],
        info: RequestInfo,
        upstream: usize,
        mut cache: Option<Box<CachePart>>,
        context: &mut WorkerContext,
    ) -> Self {
        let config = context.config();
        let (target, client) = (&config.upstreams[upstream], client_of(info));
        let request_id = context.request_id(request, info.peer);
        let (now_ns, is_own) = (context.now_ns(), background::owns(context.serving));
        let authority = target.servers[0].authority.as_bytes();
        let gathers = gathers(request, target, upstream, context);
        let facts = RequestFacts {
            host: target.names_server.then_some(authority),
            host_otherwise: authority,
            client,
            is_trusted: config.trusts_peer(info.peer),
            began_unix_ms: context.unix_ns() / 1_000_000,
            is_whole: cache.as_ref().is_some_and(|part| part.stores),
            fields: cache.as_ref().map_or(b"", |part| part.conditions()),
            request_id: request_id.as_deref(),
            proxy_protocol: target.proxy_protocol,
            endpoints: info.endpoints,
            is_own,
            is_tls: info.is_tls,
            takes_content_first: gathers,
            is_last: context.upstreams.as_ref().is_some_and(|all| !all.keeps(upstream)),
        };
        context.counters.upstream_requests.one();
        let mut exchange = Exchange::new(request, head, &facts);
        hold_head(&mut exchange, cache.as_deref_mut(), context);
        let mut forward = Self {
            exchange,
            upstream,
            serial: context.upstreams.as_mut().map_or(0, |all| all.next_serial()),
            place: Place::Unasked,
            asked: asked(request, info, head, &config),
            content_lease: Lease::default(),
            owes_continue: gathers && request.expect_continue,
            socket: None,
            pipe: None,
            pipe_filled_ns: 0,
            content_pipe: None,
            attempts: 0,
            tried: Vec::new(),
            is_recorded: false,
            answered: Answered::of(request),
            logged: context.logged_with_id(request, info.peer, info.client, request_id),
            is_end_sent: false,
            close: false,
            moved_ns: now_ns,
            content_bytes: 0,
            content_bytes_max: content_bytes_max(info, &config),
            ruling: info.ruling,
            received_ns: now_ns,
            is_read_again: false,
            has_client_ended: false,
            client_rate: None,
            client_wait: None,
            arrived_ns: now_ns,
            placed_ns: now_ns,
            is_own,
            departure: None,
            cache,
        };
        forward.ask_or_gather(gathers, context);
        forward
    }

    /// Asks for a place at the upstream, unless the content is taken first.
    fn ask_or_gather(&mut self, gathers: bool, context: &mut WorkerContext) {
        if !gathers {
            return self.ask(context);
        }
        let content_max = context.config.upstreams[self.upstream].request_buffer_max;
        let bytes_max = self.exchange.unsent().len().saturating_add(content_max);
        self.exchange.set_request_bytes_max(Some(bytes_max));
    }

    /// Asks for a place at the upstream.
    pub(super) fn ask(&mut self, context: &mut WorkerContext) {
        let (now_ns, token) = (context.now_ns(), context.serving);
        self.exchange.set_request_bytes_max(None);
        (self.client_rate, self.client_wait) = (None, None);
        (self.arrived_ns, self.placed_ns, self.moved_ns) = (now_ns, now_ns, now_ns);
        let upstreams = context.upstreams.as_mut().filter(|all| !all.is_down(self.upstream));
        let arrived =
            upstreams.map(|all| all.arrive(self.upstream, self.asked, token, self.serial, now_ns));
        context.counters.upstream_waited.add(matches!(arrived, Some(Arrived::Waits(_))).into());
        self.place = place_of(arrived);
    }

    /// Records the end of the wait for a place; returns false if it was another request that
    /// waited.
    pub(crate) fn end_wait(&mut self, serial: u64, refusal: Option<Reason>, now_ns: u64) -> bool {
        if self.serial != serial || !matches!(self.place, Place::Waits(_)) {
            return false;
        }
        self.place = refusal.map_or(Place::Has, Place::Refused);
        self.placed_ns = now_ns;
        self.moved_ns = now_ns;
        true
    }

    /// Returns whether all of the client's content has been taken.
    pub(super) fn request_taken(&self) -> bool {
        self.exchange.request_taken()
    }

    /// Handles the end of the client's side. Returns false if the request ends with it: the client
    /// has gone, or not all of the content is there. `unread`: bytes received and not taken.
    pub(super) fn end_client(&mut self, unread: &[u8], context: &WorkerContext) -> bool {
        let elapsed_ns = context.now_ns().saturating_sub(self.received_ns);
        let is_with_request = elapsed_ns <= END_WITH_REQUEST_NS;
        self.has_client_ended = is_with_request && self.exchange.is_rest_in(unread);
        self.has_client_ended
    }

    /// Records whether the client is read from now on. While it is not, an end shows late: one that
    /// may have come with the request counts as such, and so does one that is found soon after.
    pub(super) fn note_reading(&mut self, reads: bool, context: &WorkerContext) {
        let now_ns = context.now_ns();
        if reads && self.received_ns == u64::MAX {
            (self.received_ns, self.is_read_again) = (now_ns, true);
        } else if !reads
            && !self.is_read_again
            && now_ns.saturating_sub(self.received_ns) <= END_WITH_REQUEST_NS
        {
            self.received_ns = u64::MAX;
        }
    }

    /// Records that the client has sent something.
    pub(crate) fn note_received(&mut self, context: &WorkerContext) {
        (self.received_ns, self.is_read_again) = (context.now_ns(), false);
    }

    /// Returns when its deadline is, nanoseconds: that of the upstream, the next check of the
    /// client, or when the client is found slow.
    pub(super) fn deadline_ns(&self, context: &WorkerContext) -> u64 {
        let limits = ReadRateLimits::of(&context.config);
        let check_ns = self.client_rate.as_ref().map_or(u64::MAX, |rate| rate.due_ns(&limits));
        let now_ns = context.now_ns();
        let slow_ns = self.slow_from_ns(context).filter(|&slow_ns| slow_ns > now_ns);
        self.upstream_deadline_ns(context).min(check_ns).min(slow_ns.unwrap_or(u64::MAX))
    }

    fn upstream_deadline_ns(&self, context: &WorkerContext) -> u64 {
        // While it waits for a place, the upstream's admission ends it.
        if matches!(self.place, Place::Waits(_)) {
            return u64::MAX;
        }
        let limits = &context.config.upstreams[self.upstream].timeouts;
        if self.place == Place::Unasked {
            return self.moved_ns.saturating_add(limits.idle_ns);
        }
        let wait_ns = match self.waits_for(context) {
            Limit::Connect => self.connect_limit_ns(context).unwrap_or(limits.connect_ns),
            Limit::FirstByte => limits.first_byte_ns,
            Limit::Read | Limit::Write | Limit::Whole => limits.idle_ns,
        };
        self.moved_ns.saturating_add(wait_ns).min(self.over_by_ns(context))
    }

    /// Returns when the whole of it is to be over, nanoseconds.
    fn over_by_ns(&self, context: &WorkerContext) -> u64 {
        match context.config.upstreams[self.upstream].timeouts.whole_ns {
            0 => u64::MAX,
            _ if matches!(self.exchange.part(), ReplyPart::Tunnel | ReplyPart::Done) => u64::MAX,
            whole_ns => self.placed_ns.saturating_add(whole_ns),
        }
    }

    /// Returns the limit of what is waited for at the server.
    fn waits_for(&self, context: &WorkerContext) -> Limit {
        if self.connect_limit_ns(context).is_some() {
            Limit::Connect
        } else if !self.exchange.is_sent() && !self.has_failed_send(context) {
            Limit::Write
        } else if self.awaits_first_byte() {
            Limit::FirstByte
        } else {
            Limit::Read
        }
    }

    /// Returns whether nothing more can be sent to the server.
    fn has_failed_send(&self, context: &WorkerContext) -> bool {
        let found = self.socket.zip(context.upstreams.as_ref());
        found.is_some_and(|(slot, upstreams)| upstreams.sockets.has_failed(slot))
    }

    /// Returns whether the first byte of the reply is what is waited for.
    pub(super) fn awaits_first_byte(&self) -> bool {
        self.request_taken() && self.exchange.is_sent() && self.exchange.awaits_first_byte()
    }

    /// Records that something has moved. `awaited`: the first byte was waited for before, which
    /// interim replies are not.
    pub(super) fn note_moved(&mut self, awaited: bool, context: &WorkerContext) {
        if !(awaited && self.awaits_first_byte()) {
            self.moved_ns = context.now_ns();
        }
    }

    /// Returns the time limit of its connect, nanoseconds; `None` if it has a connection, or none
    /// is under way.
    fn connect_limit_ns(&self, context: &WorkerContext) -> Option<u64> {
        let (slot, upstreams) = self.socket.zip(context.upstreams.as_ref())?;
        upstreams.connect_limit_ns(slot, &self.tried)
    }

    /// Begins or ends the time in which the client is waited for, so that one that is slow does not
    /// keep a place for long. `taken_bytes`: those it has taken of replies since the accept.
    pub(super) fn note_client(
        &mut self,
        is_awaited: bool,
        taken_bytes: u64,
        context: &WorkerContext,
    ) {
        if !is_awaited {
            self.client_rate = None;
        } else if self.client_rate.is_none() {
            let limits = ReadRateLimits::of(&context.config);
            let moved_bytes = self.content_bytes + taken_bytes;
            self.client_rate = Some(ReadRate::begin(context.now_ns(), moved_bytes, &limits));
        }
    }

    /// Records whether the client alone is waited for from now on, and since when it has moved
    /// nothing. `sent_bytes`: those that it has been sent since the accept.
    pub(super) fn note_wait(&mut self, is_awaited: bool, sent_bytes: u64, context: &WorkerContext) {
        let moved_bytes = self.content_bytes + sent_bytes;
        let goes_on = |wait: &ClientWait| is_awaited && wait.moved_bytes == moved_bytes;
        let begins = || ClientWait { since_ns: context.now_ns(), moved_bytes };
        let wait = self.client_wait.filter(goes_on);
        self.client_wait = wait.or_else(|| is_awaited.then(begins));
    }

    /// Returns whether nothing but more of the client's content is waited for, be it before a place
    /// is asked for.
    pub(super) fn awaits_content(&self) -> bool {
        self.place == Place::Unasked || self.exchange.awaits_content()
    }

    /// Returns the failure to end the request with at the deadline of the whole of it.
    pub(super) fn overdue(&self) -> Failure {
        Failure::Overdue { awaits_client: self.awaits_content() || self.client_rate.is_some() }
    }

    /// Judges the client by what it has sent, and taken since the accept. Returns the failure to
    /// end the request with; `None` if its deadline has not come.
    pub(super) fn late(&mut self, taken_bytes: u64, context: &WorkerContext) -> Option<Failure> {
        let now_ns = context.now_ns();
        let moved_bytes = self.content_bytes + taken_bytes;
        let limits = ReadRateLimits::of(&context.config);
        let rate = self.client_rate.as_mut().filter(|rate| rate.due_ns(&limits) <= now_ns);
        let verdict = rate.map(|rate| rate.check(now_ns, moved_bytes, false, &limits));
        match verdict {
            Some(slow @ (RateVerdict::Slow | RateVerdict::Stalled)) => {
                Some(Failure::SlowClient(slow))
            }
            _ if self.upstream_deadline_ns(context) > now_ns => None,
            _ if self.place == Place::Unasked => Some(Failure::SlowClient(RateVerdict::Stalled)),
            _ if self.over_by_ns(context) <= now_ns => Some(Failure::Timeout(Limit::Whole)),
            _ => Some(match self.waits_for(context) {
                Limit::Read if self.client_rate.is_some() => {
                    Failure::SlowClient(RateVerdict::Stalled)
                }
                limit => Failure::Timeout(limit),
            }),
        }
    }

    /// Records how long the server took until its reply began, if it has begun and was awaited
    /// until now.
    pub(super) fn note_pace(&self, was_awaited: bool, context: &mut WorkerContext) {
        if !was_awaited || self.exchange.status() == 0 {
            return;
        }
        let now_ns = context.now_ns();
        let took_ns = now_ns.saturating_sub(self.placed_ns);
        if let (Some(slot), Some(upstreams)) = (self.socket, &mut context.upstreams) {
            upstreams.note_reply(slot, took_ns, now_ns);
        }
    }

    /// Records that its server is well, as the beginning of its reply shows: the end may not come.
    pub(super) fn note_success(&self, context: &mut WorkerContext) {
        let now_ns = context.now_ns();
        if let (Some(slot), Some(upstreams)) = (self.socket, &mut context.upstreams) {
            upstreams.note_success(slot, now_ns);
        }
    }

    /// Gives back the place and the connection to the server. `outcome`: what became of the
    /// request.
    pub(super) fn release(&mut self, outcome: Outcome, context: &mut WorkerContext) {
        let Some(upstreams) = &mut context.upstreams else { return };
        self.release_pipes(upstreams);
        self.release_server(outcome, context);
    }

    /// Gives back the place and the connection to the server, and keeps what of the reply is in a
    /// pipe.
    pub(super) fn release_server(&mut self, outcome: Outcome, context: &mut WorkerContext) {
        let now_ns = context.now_ns();
        let Some(upstreams) = &mut context.upstreams else { return };
        if let Some(slot) = self.socket.take() {
            if outcome == Outcome::Answered || self.exchange.part() == ReplyPart::Done {
                upstreams.note_success(slot, now_ns);
            }
            upstreams.give_back(slot, self.exchange.keeps_upstream(), now_ns);
        }
        self.return_place(outcome, context);
    }

    /// Gives back the place alone.
    pub(super) fn return_place(&mut self, outcome: Outcome, context: &mut WorkerContext) {
        let now_ns = context.now_ns();
        let Some(upstreams) = &mut context.upstreams else { return };
        match std::mem::replace(&mut self.place, Place::Returned) {
            Place::Has => {
                if let Some(departure) = self.departure {
                    upstreams.end_departure(self.upstream, departure);
                }
                let took_ns = now_ns.saturating_sub(self.placed_ns);
                upstreams.complete(self.upstream, took_ns, outcome, now_ns);
            }
            Place::Waits(ticket) => {
                upstreams.withdraw(self.upstream, ticket);
            }
            Place::Unasked | Place::Refused(_) | Place::Unavailable | Place::Returned => {}
        }
    }

    /// Gives back the place and the connection after a failure, which counts against the server if
    /// it is not there in time, or sends what is no HTTP. One that is slow has not failed, and one
    /// that broke off was told of when its connection was given up. What is lacking here says
    /// nothing of it.
    pub(super) fn release_failed(&mut self, failure: Failure, context: &mut WorkerContext) {
        let now_ns = context.now_ns();
        if let (Some(slot), Some(upstreams)) = (self.socket, &mut context.upstreams)
            && matches!(failure, Failure::Malformed | Failure::Timeout(Limit::Connect))
        {
            upstreams.note_failure(slot, now_ns);
        }
        self.release(failure.outcome(), context);
        failure.count(context);
    }

    /// Ends the request with an answer in the server's place, or with a close if its reply has
    /// begun. It counts as refused only if that is what its client is told.
    pub(super) fn fail(
        &mut self,
        failure: Failure,
        info: RequestInfo,
        output: &mut Output,
        context: &mut WorkerContext,
    ) -> Result<(), CloseReason> {
        // Interim replies may go before another server's reply or this one.
        let has_begun = self.exchange.status() != 0;
        let stale = if has_begun { None } else { self.stale_instead(context) };
        match failure {
            Failure::Refused(_) if stale.is_some() => self.release(failure.outcome(), context),
            Failure::Refused(reason) => {
                let upstream = self.upstream;
                let client = info.client.and_then(Client::address);
                let client = client.unwrap_or_else(|| info.peer.ip());
                context.log_refusal(client, || RefusalCause::Upstream { upstream, reason });
                self.release_failed(failure, context);
            }
            _ => self.release_failed(failure, context),
        }
        self.give_up_flight(context);
        if has_begun {
            return Err(failure.close_reason());
        }
        if let Some(stale) = stale {
            let says = failure.replaced_by_stale();
            cache_store::answer_forwarded(self, &stale, says, info, context, output);
            return Ok(());
        }
        let close = self.close || !self.request_taken();
        let info = RequestInfo { body_incomplete: !self.request_taken(), ..info };
        let logged = self.logged.take();
        let instead = Instead { status: failure.status(), fields: failure.fields(), close, logged };
        response::answer_instead(instead, self.answered, info, context, output);
        Ok(())
    }
}

/// Has the head of a reply that the cache has a part in held back.
fn hold_head(exchange: &mut Exchange, cache: Option<&mut CachePart>, context: &WorkerContext) {
    if let Some(part) = cache {
        exchange.hold_head();
        part.sent_ns = context.unix_ns();
    }
}

/// Returns what a request says of itself to the admission. Its user is its client, by what trusted
/// proxies say.
fn asked(request: &Request<'_>, info: RequestInfo, head: &[u8], config: &Config) -> Asked {
    let class = config.class_of(request.host, request.target.path());
    let client = info.client.unwrap_or_else(|| config.client(info.peer, head)).address();
    Asked { class, user: user_of(client.map(|address| address.to_canonical())) }
}

fn place_of(arrived: Option<Arrived>) -> Place {
    match arrived {
        Some(Arrived::Waits(ticket)) => Place::Waits(ticket),
        Some(Arrived::Refused(reason)) => Place::Refused(reason),
        Some(Arrived::Granted) => Place::Has,
        None => Place::Unavailable,
    }
}

/// Returns the maximum size of a request's content by its rule, bytes; without one there is none.
fn content_bytes_max(info: RequestInfo, config: &Config) -> u64 {
    let rule = info.ruling.and_then(|ruling| config.rule(ruling.rule?));
    rule.and_then(|rule| rule.body_bytes_max).unwrap_or(u64::MAX)
}

/// Returns whether the content of a request is taken whole before it asks for a place: it is not
/// longer than may wait, as far as is known.
fn gathers(
    request: &Request<'_>,
    target: &Upstream,
    upstream: usize,
    context: &WorkerContext,
) -> bool {
    let bytes_max = target.request_buffer_max;
    let fits = match request.framing {
        Framing::None | Framing::Length(0) => false,
        Framing::Length(length) => length <= bytes_max as u64,
        Framing::Chunked => bytes_max > 0,
    };
    fits && context.upstreams.as_ref().is_some_and(|all| !all.is_down(upstream))
}

/// Returns the address of the other end of a request's connection, if it is known.
fn client_of(info: RequestInfo) -> Option<IpAddr> {
    (info.peer != socket::UNKNOWN_PEER).then(|| info.peer.ip().to_canonical())
}

/// Returns a hash of a client's address (Fowler, Noll and Vo's).
fn user_of(client: Option<IpAddr>) -> u32 {
    let hash = |hash: u32, octet: &u8| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193);
    match client {
        Some(IpAddr::V4(address)) => address.octets().iter().fold(0x811c_9dc5, hash),
        Some(IpAddr::V6(address)) => address.octets().iter().fold(0x811c_9dc5, hash),
        None => 0,
    }
}
