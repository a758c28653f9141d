//! From the reply to a forwarded request to the cache: whether it is stored, validates what is
//! stored, or is replaced by it, and what becomes of those who wait for it.

use std::sync::Arc;

use weir_cache::{Flight, Recurrence, Refreshed, Reply, Stored};
use weir_content::{Conditions, PreconditionResult, evaluate};
use weir_http1::forward::{
    ReplyFacts, ReplyPart, depends_on_client, is_left_out, lines, lines_passed_on, via_of_reply,
};
use weir_http1::{HeadParser, Limits, Parse};

use super::cache_invalidation::invalidate;
use super::head_fields::Head;
use super::response::{self, RequestInfo, StoredAnswer};
use crate::context::WorkerContext;
use crate::context::forwarded::{CachePart, Copying, Forward, Place, Why};
use crate::context::memory::MemoryLevel;
use crate::context::output::Output;

/// Statuses that stale-if-error is for (RFC 5861 section 4).
const ERRORS: [u16; 4] = [500, 502, 503, 504];

/// Field lines that Cache-Status takes at most besides those of the configuration, bytes.
const STATUS_LINE_BYTES: usize = 96;

impl Forward {
    /// Decides about a reply whose head is held back, and passes it on unless a stored one is sent
    /// instead.
    pub(super) fn handle_held_head(&mut self, out: &mut Vec<u8>, context: &mut WorkerContext) {
        let Some(mut part) = self.cache.take() else { return };
        let head = self.exchange.held_head().to_vec();
        let status = self.exchange.status();
        let mut says = "";
        if part.why == Why::Method {
            invalidate(&part, status, &head, self.exchange.is_tls(), context);
        } else if part.stores {
            says = self.handle_reply(&mut part, status, &head, context);
        } else if part.stale.as_ref().is_some_and(|stale| replaces(stale, status, &part, context)) {
            part.answer = part.stale.take().map(|stale| (stale, "hit; detail=stale-if-error"));
        } else if matches!(status, 404 | 410) {
            withdraw(&part, context);
        } else if self.answered.head_only {
            learn_from_head(&part, &head, context);
        }
        if part.answer.is_none() {
            self.release_head(part.why, says, out, context);
        } else if status == 304 || part.copying.is_some() {
            // Nobody is sent it; it goes on to be stored, or is over and its connection is kept.
            self.release_head(part.why, says, &mut Vec::new(), context);
        }
        self.cache = Some(part);
    }

    /// Handles the head of a reply that may be stored. Returns what Cache-Status says besides.
    fn handle_reply(
        &mut self,
        part: &mut CachePart,
        status: u16,
        head: &[u8],
        context: &mut WorkerContext,
    ) -> &'static str {
        let received_ns = context.unix_ns();
        if let Some(stale) = &part.stale {
            if status == 304 {
                let stale = Arc::clone(stale);
                let says = match part.why {
                    Why::Request => "fwd=request; fwd-status=304",
                    _ => "fwd=stale; fwd-status=304",
                };
                part.answer = Some((validated(part, &stale, head, context), says));
                return "";
            }
            if replaces(stale, status, part, context) {
                part.answer = Some((Arc::clone(stale), "hit; detail=stale-if-error"));
                self.land(part, None, context);
                return "";
            }
        }
        let without_content = |reply: &Reply<'_, Head<'_>>| reply.store(Arc::from([]));
        let reply = with_reply(part, head, received_ns, context, without_content);
        let reply = reply.filter(|_| !depends_on_client(head));
        let cache = context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
        let bytes_max = cache
            .filter(|_| reply.is_some() && !context.memory.is_short())
            .and_then(|cache| self.exchange.copy_content(cache.config().object_bytes_max));
        let Some(room) = cache.zip(bytes_max).and_then(|(cache, bytes)| cache.reserve(bytes))
        else {
            self.exchange.drop_copy();
            // An error passes, and so does a lack of room.
            let is_kind = bytes_max.is_none() && !context.memory.is_short();
            let recurs = part.is_typical && is_kind && !says_nothing_of_next(status);
            pass(part, recurs, head, received_ns, context);
            return "";
        };
        part.copying = Some(Copying { head: head.into(), received_ns, _room: room });
        part.answer = reply
            .filter(|reply| status == 200 && is_not_modified(part, reply))
            .map(|reply| (Arc::new(reply), "fwd=miss; stored"));
        "; stored"
    }

    fn release_head(
        &mut self,
        why: Why,
        says: &str,
        out: &mut Vec<u8>,
        context: &mut WorkerContext,
    ) {
        let config = context.config();
        let lines = config.lines(self.exchange.is_tls(), self.ruling);
        let mut fields = Vec::with_capacity(lines.fields.len() + STATUS_LINE_BYTES);
        fields.extend_from_slice(lines.fields);
        let is_told = !is_left_out(b"cache-status", lines.removed, b"");
        for text in
            ["Cache-Status: weir; fwd=", why.text(), says, "\r\n"].iter().filter(|_| is_told)
        {
            fields.extend_from_slice(text.as_bytes());
        }
        let unix_s = context.unix_ns() / 1_000_000_000;
        let facts = ReplyFacts {
            close: self.close,
            date: context.date.at(unix_s),
            fields: &fields,
            more_fields: lines.for_page,
            removed: lines.removed,
            cache_control: lines.cache_control,
        };
        self.exchange.release_head(out, &facts);
    }

    /// Stores a reply that has arrived whole, and ends its flight.
    pub(super) fn store_reply(&mut self, context: &mut WorkerContext) {
        let Some(mut part) = self.cache.take() else { return };
        let copy = self.exchange.take_copy();
        if let (Some(copying), Some(copy)) = (part.copying.take(), copy) {
            let Copying { head, received_ns, _room } = copying;
            let stored =
                with_reply(&part, &head, received_ns, context, |reply| reply.store(copy.into()));
            self.land(&mut part, stored.map(Arc::new), context);
        }
        self.cache = Some(part);
    }

    /// Ends its flight without a reply to be stored, if it has not ended.
    pub(super) fn give_up_flight(&mut self, context: &mut WorkerContext) {
        if let Some(mut part) = self.cache.take() {
            self.land(&mut part, None, context);
            self.cache = Some(part);
        }
    }

    fn land(&self, part: &mut CachePart, stored: Option<Arc<Stored>>, context: &mut WorkerContext) {
        context.counters.proxy_cache_stored.add(stored.is_some().into());
        if let (Some(flight), Some(upstreams)) = (part.flight.take(), &mut context.upstreams) {
            upstreams.land(&flight, stored);
        }
    }

    /// Ends the flight of a reply that turned out too large to be stored.
    pub(super) fn check_copy(&mut self, context: &mut WorkerContext) {
        if context.memory.level() >= MemoryLevel::Connections {
            self.exchange.drop_copy();
        }
        let Some(part) = &mut self.cache else { return };
        if part.copying.is_none() || self.exchange.copied_bytes().is_some() {
            return;
        }
        let Some(Copying { head, received_ns, .. }) = part.copying.take() else { return };
        let is_too_large = context.memory.level() < MemoryLevel::Connections;
        pass(part, is_too_large, &head, received_ns, context);
    }

    /// Returns whether it goes on if its client leaves: others wait for its reply, or it is worth
    /// storing.
    pub(super) fn outlives_client(&self, context: &WorkerContext) -> bool {
        let is_sent = self.leads() && self.place == Place::Has && self.socket.is_some();
        let is_arriving = self.is_copying() && self.exchange.part() != ReplyPart::Done;
        let has_answer = self.exchange.status() >= 200;
        is_arriving || is_sent && !has_answer || self.is_followed(context)
    }

    /// Returns whether others that ask the same wait for its reply, or would.
    pub(super) fn leads(&self) -> bool {
        self.flight().is_some_and(|flight| !flight.is_alone())
    }

    /// Returns whether others wait for its reply.
    pub(super) fn is_followed(&self, context: &WorkerContext) -> bool {
        let cache = context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
        self.flight().zip(cache).is_some_and(|(flight, cache)| cache.is_followed(flight))
    }

    fn flight(&self) -> Option<&Flight> {
        self.cache.as_ref()?.flight.as_ref()
    }

    /// Returns whether its reply has begun, so that nothing else can be sent instead.
    pub(super) fn has_begun(&self) -> bool {
        self.exchange.status() != 0
    }

    /// Returns whether a stored reply is sent instead of the one that has arrived.
    pub(super) fn has_answer(&self) -> bool {
        self.cache.as_ref().is_some_and(|part| part.answer.is_some())
    }

    /// Takes the stored reply that is sent instead of the one that has arrived, if there is one.
    pub(super) fn take_answer(&mut self) -> Option<(Arc<Stored>, &'static str)> {
        self.cache.as_mut()?.answer.take()
    }

    /// Returns whether its reply is being copied: then it does not wait for its client.
    pub(super) fn is_copying(&self) -> bool {
        self.cache.as_ref().is_some_and(|part| part.copying.is_some())
    }

    /// Returns the stored reply that is sent while the upstream does not answer, if there is one.
    pub(super) fn stale_instead(&mut self, context: &mut WorkerContext) -> Option<Arc<Stored>> {
        let part = self.cache.as_mut()?;
        let unix_ns = context.unix_ns();
        let stale = part.stale.take()?;
        let is_wanted = part.why != Why::Request;
        let may_be = stale.replaces_absence(unix_ns);
        (is_wanted && may_be).then(|| {
            context.counters.proxy_cache_stale.one();
            stale
        })
    }
}

/// Answers the client of a forwarded request with a stored reply.
pub(super) fn answer_forwarded(
    forward: &mut Forward,
    stored: &Stored,
    says: &'static str,
    info: RequestInfo,
    context: &mut WorkerContext,
    out: &mut Output,
) {
    let Some(part) = &forward.cache else { return };
    // It was one when it was first read.
    if let Parse::Complete(request) = HeadParser::default().parse(&part.head, &Limits::default()) {
        let close = forward.close || context.is_closing();
        let answer = StoredAnswer { stored, says, close, logged: forward.logged.take() };
        response::answer_stored(&request, answer, info, context, out);
    }
}

/// Calls `use_reply` with the reply that has this head.
fn with_reply<T>(
    part: &CachePart,
    head: &[u8],
    received_ns: u64,
    context: &WorkerContext,
    use_reply: impl FnOnce(&Reply<'_, Head<'_>>) -> T,
) -> T {
    let fields: Vec<_> = lines_passed_on(head).collect();
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    // `HTTP/1.x `, checked when it was parsed.
    let (code, reason) = line.get(9..).unwrap_or_default().split_at_checked(3).unwrap_or_default();
    let status = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok()).unwrap_or(0);
    let status_line = [b"HTTP/1.1 ", code, b" ", reason.trim_ascii_start(), b"\r\n"].concat();
    let heuristic = context.config.cache.as_ref().map_or(0.0, |cache| cache.bounds.heuristic);
    use_reply(&Reply {
        request: &Head { head: &part.head, is_trusted: part.is_trusted },
        status,
        status_line: &status_line,
        fields: &fields,
        added: via_of_reply(head),
        sent_ns: part.sent_ns,
        received_ns,
        heuristic,
        was_date_weak: false,
    })
}

/// Ends the flight, if it has not ended, of a reply with this head, which cannot be stored.
/// `recurs`: the next ones will be like it.
fn pass(
    part: &mut CachePart,
    recurs: bool,
    head: &[u8],
    received_ns: u64,
    context: &mut WorkerContext,
) {
    let Some(flight) = part.flight.take() else { return };
    let judge = |reply: &Reply<'_, Head<'_>>| {
        let is_for_cookies = reply.is_kept_out_by_cookies();
        let recurs = if is_for_cookies { Recurrence::WithCookies } else { Recurrence::Always };
        (recurs, reply.selectors().unwrap_or_default(), reply.withdraws_stored())
    };
    let (recurs, selectors, withdraws) = if recurs {
        with_reply(part, head, received_ns, context, judge)
    } else {
        (Recurrence::Never, [].into(), false)
    };
    let unix_ns = context.unix_ns();
    if withdraws {
        withdraw(part, context);
    }
    let Some(upstreams) = &mut context.upstreams else { return };
    upstreams.pass(&flight, recurs, selectors, unix_ns);
}

/// Removes the stale reply to a request: the resource is no longer what it says.
fn withdraw(part: &CachePart, context: &WorkerContext) {
    let cache = context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
    if let (Some(stale), Some(cache)) = (&part.stale, cache) {
        cache.withdraw(&part.key, stale);
    }
}

/// Returns whether a status says nothing of the replies to requests to come: it is about what this
/// one was like, or about the server's state.
fn says_nothing_of_next(status: u16) -> bool {
    matches!(status, 400 | 408 | 411 | 413..=417 | 421 | 425 | 426 | 428 | 429 | 431 | 500..)
}

/// Makes a stored reply fresh by the 304 to its validation, and returns the one that is sent. If
/// that is about another, it is the stored one as it was.
fn validated(
    part: &mut CachePart,
    stale: &Arc<Stored>,
    head: &[u8],
    context: &mut WorkerContext,
) -> Arc<Stored> {
    context.counters.proxy_cache_revalidated.one();
    let received_ns = context.unix_ns();
    let refreshed = with_reply(part, head, received_ns, context, |reply| stale.refreshed(reply));
    let sent = |reply: Option<Stored>| reply.map_or_else(|| Arc::clone(stale), Arc::new);
    let Some(upstreams) = &mut context.upstreams else { return Arc::clone(stale) };
    let flight = part.flight.take();
    match refreshed {
        Refreshed::Stored(fresh) => {
            let fresh = Arc::new(fresh);
            if let Some(flight) = flight {
                upstreams.land(&flight, Some(Arc::clone(&fresh)));
            }
            fresh
        }
        Refreshed::ForClient(reply) => {
            // Those who wait for it ask for themselves.
            if let Some(flight) = flight {
                upstreams.pass(&flight, Recurrence::Never, [].into(), received_ns);
            }
            sent(reply)
        }
        Refreshed::Unstored(reply) => {
            if let Some(cache) = upstreams.cache() {
                cache.remove(&part.key);
            }
            if let Some(flight) = flight {
                upstreams.land(&flight, None);
            }
            sent(reply)
        }
    }
}

/// Brings a stored reply up to date by the reply to a HEAD request that it could have been sent
/// for, or makes it stale (RFC 9111 section 4.3.5).
fn learn_from_head(part: &CachePart, head: &[u8], context: &WorkerContext) {
    let Some(stored) = &part.stale else { return };
    let is_length = |name: &[u8]| name.eq_ignore_ascii_case(b"content-length");
    let length = lines(head).find(|(name, _)| is_length(name));
    let length = length.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
    let received_ns = context.unix_ns();
    let after =
        with_reply(part, head, received_ns, context, |reply| stored.after_head(reply, length));
    let cache = context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
    if let (Some(cache), Some(after)) = (cache, after) {
        cache.replace(&part.key, stored, &Arc::new(after));
    }
}

/// Returns whether a stored reply is sent in place of one with this status.
fn replaces(stale: &Stored, status: u16, part: &CachePart, context: &mut WorkerContext) -> bool {
    let replaces = ERRORS.contains(&status)
        && part.why != Why::Request
        && stale.replaces_error(context.unix_ns());
    context.counters.proxy_cache_stale.add(replaces.into());
    replaces
}

/// Returns whether the client has what a reply brings.
fn is_not_modified(part: &CachePart, reply: &Stored) -> bool {
    let mut parser = HeadParser::default();
    let Parse::Complete(request) = parser.parse(&part.head, &Limits::default()) else {
        return false;
    };
    let if_none_match: Vec<&[u8]> = request.if_none_match.iter().collect();
    let conditions = Conditions {
        if_none_match: &if_none_match,
        if_modified_since: request.if_modified_since,
        ..Conditions::default()
    };
    evaluate(&conditions, &reply.entry.validators()) == PreconditionResult::NotModified
}
