//! The machine of one forwarded request and its reply.

use std::io::Write;
use std::ops::Range;

use super::fields::{Connection, push_trailers};
use super::reply::{self, ReplyFacts, ReplyHead, Shown};
use super::request::{self, Asked, RequestFacts};
use crate::body::Body;
use crate::method::Method;
use crate::proxy_protocol;
use crate::reply_parser::{BodyEnd, HEAD_BYTES_MAX, PrematureEnd, ReplyError};
use crate::request::{Framing, Request, RequestError, Version};

/// Maximum number of bytes of a request that wait to be sent to the other server.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Capacity above which the buffer of a request is given back when it has been sent, bytes.
const KEPT_BYTES: usize = 4 << 10;

/// The end of a chunked body without trailers (RFC 9112 section 7.1).
const LAST_CHUNK: &[u8] = b"0\r\n";

/// Part of the reply that the next byte from the other server belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPart {
    /// Its head, or that of an interim reply.
    Head,
    /// None until [`Exchange::release_head`]: its head is complete, and held back.
    Held,
    /// Its content.
    Body,
    /// Content that ends with the connection.
    UntilClose,
    /// Another protocol, until the other server has ended its side.
    Tunnel,
    /// No part: it is complete.
    Done,
}

/// A request on its way to another server, and the reply on its way back.
#[derive(Debug)]
pub struct Exchange {
    method: Method,
    client: Version,
    /// Bytes for the other server, and how many of them have been sent.
    request: Vec<u8>,
    sent: usize,
    /// Range of the Host in `request` that is its server's; `None` if the client named it.
    server_host: Option<Range<usize>>,
    /// True once anything was sent.
    has_sent: bool,
    /// The client's content.
    body: Body,
    is_chunked: bool,
    /// Maximum number of bytes of the request that wait to be sent.
    request_bytes_max: usize,
    /// True if the client speaks TLS.
    is_tls: bool,
    request_trailers: Vec<u8>,
    /// Names of the trailers that end with the client's connection, with commas between.
    request_nominated: Vec<u8>,
    asked: Asked,
    /// True if the connection to the other server must not carry another request.
    is_last: bool,
    /// True once the client has ended its side, in another protocol.
    client_ended: bool,
    /// True if the client waits for a 100 before it sends its content.
    expects_continue: bool,
    /// True once a byte of content has been taken from the client: the request cannot be repeated.
    body_begun: bool,
    /// Bytes of content that the caller has taken from the client unseen, and not sent.
    passing: usize,
    part: ReplyPart,
    /// The incomplete head of the reply, and the bytes of the interim replies before it.
    head: Vec<u8>,
    interim_bytes: usize,
    status: u16,
    reply_body: Body,
    reply_trailers: Vec<u8>,
    /// Names of the trailers that end with the other server's connection, with commas between.
    reply_nominated: Vec<u8>,
    shown: Shown,
    /// True if the client was told that the connection ends with the reply.
    says_close: bool,
    reply_bytes: u64,
    is_event_stream: bool,
    keeps_upstream: bool,
    holds_head: bool,
    /// The head that is held back; its text is in `head`.
    held: Option<ReplyHead>,
    /// A copy of the content, and its maximum length.
    copy: Option<(Vec<u8>, usize)>,
}

impl Exchange {
    /// Begins to forward `request`, which was parsed from `head`.
    #[must_use]
    pub fn new(request: &Request<'_>, head: &[u8], facts: &RequestFacts<'_>) -> Self {
        let mut bytes = Vec::with_capacity(head.len() + 256);
        if let Some(version) = facts.proxy_protocol {
            match facts.is_own {
                true => proxy_protocol::write_own(&mut bytes, version),
                false => proxy_protocol::write(&mut bytes, version, facts.endpoints.as_ref()),
            }
        }
        let connection = Connection::of(head);
        let (asked, host) = request::write(&mut bytes, request, head, &connection, facts);
        let names_server = facts.host.is_some() || request.host.is_none();
        let is_chunked = request.framing == Framing::Chunked;
        // Other content has no trailers.
        let request_nominated = if is_chunked { connection.nominated() } else { Vec::new() };
        Self {
            method: request.method,
            client: request.version,
            request: bytes,
            sent: 0,
            server_host: names_server.then_some(host),
            has_sent: false,
            body: Body::new(request.framing),
            is_chunked,
            request_bytes_max: REQUEST_BYTES_MAX,
            is_tls: facts.is_tls,
            request_trailers: Vec::new(),
            request_nominated,
            asked,
            is_last: request::is_last(request, facts),
            client_ended: false,
            expects_continue: request.expect_continue && !facts.takes_content_first,
            body_begun: false,
            passing: 0,
            part: ReplyPart::Head,
            head: Vec::new(),
            interim_bytes: 0,
            status: 0,
            reply_body: Body::new(Framing::None),
            reply_trailers: Vec::new(),
            reply_nominated: Vec::new(),
            shown: Shown::Nothing(None),
            says_close: false,
            reply_bytes: 0,
            is_event_stream: false,
            keeps_upstream: false,
            holds_head: false,
            held: None,
            copy: None,
        }
    }

    /// Has the head of the reply held back when it is complete, so that the caller can read it
    /// before it is passed on.
    pub fn hold_head(&mut self) {
        self.holds_head = true;
    }

    /// Returns the head that is held back, with its status line; empty if none is.
    #[must_use]
    pub fn held_head(&self) -> &[u8] {
        if self.held.is_some() { &self.head } else { b"" }
    }

    /// Returns whether the client speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Passes on the head that is held back.
    pub fn release_head(&mut self, out: &mut Vec<u8>, facts: &ReplyFacts<'_>) {
        if let Some(head) = self.held.take() {
            let text = std::mem::take(&mut self.head);
            self.begin_reply(&head, &text, out, facts);
        }
    }

    /// Has the content of the reply whose head is held back copied as it passes. Returns the length
    /// that the copy has at most; `None` if there is none: the content is longer than `bytes_max`,
    /// or its end cannot be told from a cut (RFC 9112 section 8).
    pub fn copy_content(&mut self, bytes_max: usize) -> Option<usize> {
        let head = self.held.as_ref()?;
        let length = match head.end {
            _ if self.is_bodiless(head.status) => 0,
            BodyEnd::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
            BodyEnd::Chunked => bytes_max,
            BodyEnd::Close => usize::MAX,
        };
        let is_possible = length <= bytes_max;
        self.copy = is_possible.then(|| (Vec::new(), bytes_max));
        is_possible.then_some(length)
    }

    /// Ends the copy.
    pub fn drop_copy(&mut self) {
        self.copy = None;
    }

    /// Returns the length of the copy so far, bytes; `None` if there is none.
    #[must_use]
    pub fn copied_bytes(&self) -> Option<usize> {
        self.copy.as_ref().map(|(copy, _)| copy.len())
    }

    /// Ends the copy, and returns it if it is of the whole content.
    pub fn take_copy(&mut self) -> Option<Vec<u8>> {
        let (copy, _) = self.copy.take()?;
        (self.part == ReplyPart::Done).then_some(copy)
    }

    /// Returns whether bytes of the client are wanted now: there is more of its content, and room
    /// for it; or both sides speak another protocol.
    #[must_use]
    pub fn wants_client(&self) -> bool {
        let has_room = self.request.len() - self.sent < self.request_bytes_max;
        let has_room = has_room && self.passing == 0;
        has_room && (self.is_tunnel_open() || !self.request_taken())
    }

    /// Returns whether the client may still send bytes of another protocol.
    fn is_tunnel_open(&self) -> bool {
        self.part == ReplyPart::Tunnel && !self.client_ended
    }

    /// Handles the end of what the client sends. Returns false if nothing more can come of the
    /// exchange; in another protocol, the end is to be passed on behind what came before it.
    pub fn end_client(&mut self) -> bool {
        self.client_ended = self.part == ReplyPart::Tunnel;
        self.client_ended
    }

    /// Returns whether the client has ended its side of another protocol.
    #[must_use]
    pub const fn has_client_ended(&self) -> bool {
        self.client_ended
    }

    /// Returns whether all of the client's content has been taken.
    #[must_use]
    pub fn request_taken(&self) -> bool {
        self.body.is_done()
    }

    /// Returns whether nothing but more of the client's content is waited for.
    #[must_use]
    pub fn awaits_content(&self) -> bool {
        let has_begun = self.body_begun || !self.expects_continue || self.interim_bytes > 0;
        has_begun && !self.request_taken() && self.is_sent()
    }

    /// Returns whether what is still to be taken of the client's content is all in `unread`, which
    /// has arrived behind what was taken.
    #[must_use]
    pub fn is_rest_in(&self, unread: &[u8]) -> bool {
        let mut body = self.body;
        body.advance(unread).is_ok_and(|advance| advance.done)
    }

    /// Takes bytes of the client's content, as far as there is room; returns how many. Those that
    /// follow the content are left.
    ///
    /// # Errors
    /// The content is malformed: 400, 413 or 431. What was forwarded of it must be cut short.
    pub fn take(&mut self, input: &[u8]) -> Result<usize, RequestError> {
        self.discard_sent();
        if self.part == ReplyPart::Tunnel {
            self.request.extend_from_slice(input);
            return Ok(input.len());
        }
        let mut taken = 0;
        while self.wants_client() {
            let rest = input.get(taken..).unwrap_or_default();
            let room = self.request_bytes_max - (self.request.len() - self.sent);
            let window = rest.get(..room).unwrap_or(rest);
            let piece = self.body.next_piece(window, &mut self.request_trailers)?;
            taken += piece.consumed;
            self.body_begun |= piece.consumed > 0;
            let data = window.get(piece.data).unwrap_or_default();
            push_data(&mut self.request, data, self.is_chunked);
            if piece.done && self.is_chunked {
                self.request.extend_from_slice(LAST_CHUNK);
                let (trailers, nominated) = (&self.request_trailers, &self.request_nominated);
                push_trailers(&mut self.request, trailers, nominated, &[]);
                self.request.extend_from_slice(b"\r\n");
            }
            if piece.consumed == 0 {
                break;
            }
        }
        Ok(taken)
    }

    /// Discards what has been sent of a request too large to be repeated, so that a server that
    /// never takes all of it does not let it grow.
    fn discard_sent(&mut self) {
        if self.sent >= REQUEST_BYTES_MAX {
            self.request.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Returns the memory that it holds besides its own size, bytes.
    pub fn held_bytes(&self) -> usize {
        let Self { request, request_trailers, head, reply_trailers, copy, .. } = self;
        let names = [&self.request_nominated, &self.reply_nominated];
        let buffers = [request, request_trailers, head, reply_trailers].into_iter().chain(names);
        let copy_bytes = copy.as_ref().map_or(0, |(bytes, _)| bytes.capacity());
        buffers.map(Vec::capacity).sum::<usize>() + copy_bytes
    }

    /// Sets the maximum number of bytes of the request that wait to be sent; `None` for that of a
    /// request that is being sent.
    pub fn set_request_bytes_max(&mut self, bytes_max: Option<usize>) {
        self.request_bytes_max = bytes_max.unwrap_or(REQUEST_BYTES_MAX);
    }

    /// Returns the memory that what waits to be sent has, bytes.
    #[must_use]
    pub fn request_capacity(&self) -> usize {
        self.request.capacity()
    }

    /// Returns how much of the client's content the other server is to receive next, as it comes,
    /// bytes: it may be passed on unseen. 0 if there is anything to be read, written anew or sent
    /// before it.
    #[must_use]
    pub fn passable_content_bytes(&self) -> u64 {
        let is_content = self.part != ReplyPart::Tunnel && !self.is_chunked;
        let is_plain = is_content && self.has_sent && self.is_sent();
        if is_plain { self.body.length_left() } else { 0 }
    }

    /// Records that the caller has taken `bytes` of the content unseen, at most
    /// [`Exchange::passable_content_bytes`]. It sends them itself, before anything else.
    pub fn note_passing(&mut self, bytes: usize) {
        self.body.skip(bytes);
        self.body_begun = true;
        self.passing += bytes;
    }

    /// Records that it has sent `bytes` of them.
    pub fn note_passed_on(&mut self, bytes: usize) {
        self.passing = self.passing.saturating_sub(bytes);
    }

    /// Returns whether all that was taken of the request has been sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.unsent().is_empty() && self.passing == 0
    }

    /// Returns the bytes to be sent to the other server.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.request.get(self.sent..).unwrap_or_default()
    }

    /// Records that the first `bytes` of them were sent.
    pub fn note_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        self.has_sent |= bytes > 0;
        // What may be repeated is kept.
        if self.sent == self.request.len() && !self.may_repeat() {
            self.request.clear();
            self.request.shrink_to(KEPT_BYTES);
            self.sent = 0;
        }
    }

    /// Returns whether the request may be sent again on another connection: nothing of it was sent,
    /// or it is idempotent (RFC 9110 section 9.2.2), has no content, and nothing of a reply has
    /// arrived.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        self.is_unanswered() && (!self.has_sent || self.is_harmless())
    }

    /// Returns whether the request may reach the other server twice: it is idempotent and has no
    /// content.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.method.is_idempotent() && !self.body_begun && self.body.is_done()
    }

    /// Returns whether nothing of the reply has arrived, whatever interim ones have (RFC 9110
    /// section 15.2).
    #[must_use]
    pub fn awaits_first_byte(&self) -> bool {
        self.part == ReplyPart::Head && self.head.is_empty()
    }

    /// Returns whether nothing of a reply has arrived.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.awaits_first_byte() && self.interim_bytes == 0
    }

    /// Names the server that the request is about to be sent to, unless its Host is the client's:
    /// each server may have a name of its own.
    pub fn set_server_host(&mut self, host: &[u8]) {
        let is_unsent = self.sent == 0 && self.may_repeat();
        let Some(range) = self.server_host.clone().filter(|_| is_unsent) else { return };
        if self.request.get(range.clone()).is_none_or(|named| named == host) {
            return;
        }
        self.request.reserve_exact(host.len().saturating_sub(range.len()));
        drop(self.request.splice(range.clone(), host.iter().copied()));
        self.server_host = Some(range.start..range.start + host.len());
    }

    /// Begins to send the request again. [`Exchange::may_repeat`] must be true.
    pub fn repeat(&mut self) {
        self.sent = 0;
    }

    /// Takes `bytes` from the other server, and appends what the client is to receive. Returns how
    /// many it has taken: all, or those up to the end of a head that is held back.
    ///
    /// # Errors
    /// It is not an HTTP/1 reply, or its framing is in doubt.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        facts: &ReplyFacts<'_>,
    ) -> Result<usize, ReplyError> {
        let mut rest = bytes;
        while !rest.is_empty() && self.part != ReplyPart::Held {
            let taken = match self.part {
                ReplyPart::Head => self.receive_head(rest, out, facts)?,
                ReplyPart::Body => self.receive_body(rest, out, facts.removed)?,
                ReplyPart::UntilClose => {
                    self.pass(rest, out);
                    rest.len()
                }
                ReplyPart::Tunnel => {
                    out.extend_from_slice(rest);
                    rest.len()
                }
                ReplyPart::Done | ReplyPart::Held => {
                    // Nobody asked for it.
                    self.keeps_upstream = false;
                    rest.len()
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(bytes.len() - rest.len())
    }

    /// Returns how much of the reply's content is left that the client is to receive as it comes,
    /// bytes: it may be passed on unseen. 0 if there is anything to be read or written anew.
    #[must_use]
    pub fn passable_bytes(&self) -> u64 {
        let is_plain = self.part == ReplyPart::Body && matches!(self.shown, Shown::Length(_));
        if is_plain { self.reply_body.length_left() } else { 0 }
    }

    /// Records that `bytes` of the reply's content were passed on unseen, at most
    /// [`Exchange::passable_bytes`].
    pub fn note_passed(&mut self, bytes: usize) {
        self.reply_bytes += bytes as u64;
        self.reply_body.skip(bytes);
        if self.reply_body.is_done() {
            self.part = ReplyPart::Done;
        }
    }

    /// Handles the end of what the other server sends.
    ///
    /// # Errors
    /// The reply was cut short.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<(), PrematureEnd> {
        self.keeps_upstream = false;
        match self.part {
            ReplyPart::Head if self.head.is_empty() && self.interim_bytes == 0 => {
                return Err(PrematureEnd::Unstarted);
            }
            ReplyPart::Head => return Err(PrematureEnd::InHead),
            ReplyPart::Held | ReplyPart::Body => return Err(PrematureEnd::InBody),
            ReplyPart::UntilClose if self.shown == Shown::Chunks => {
                out.extend_from_slice(b"0\r\n\r\n");
            }
            ReplyPart::UntilClose | ReplyPart::Tunnel | ReplyPart::Done => {}
        }
        self.part = ReplyPart::Done;
        Ok(())
    }

    /// Returns the part of the reply that is awaited.
    #[must_use]
    pub const fn part(&self) -> ReplyPart {
        self.part
    }

    /// Returns the status of the reply; 0 until its head is complete.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Returns whether the reply is a stream of events that was asked for as such, so that it has
    /// no end of its own (HTML Living Standard section 9.2, server-sent events). What is sent in
    /// the same form as it is made, by a request for something else, is none.
    #[must_use]
    pub const fn is_event_stream(&self) -> bool {
        self.is_event_stream
    }

    /// Returns the length of the reply's content so far, bytes.
    #[must_use]
    pub const fn reply_bytes(&self) -> u64 {
        self.reply_bytes
    }

    /// Returns whether the connection to the other server may carry another request: both the
    /// request and the reply are complete, and it stays open (RFC 9112 section 9.3).
    #[must_use]
    pub fn keeps_upstream(&self) -> bool {
        self.keeps_upstream
            && !self.is_last
            && self.part == ReplyPart::Done
            && self.request_taken()
            && self.is_sent()
    }

    /// Returns whether the request is the last on its connection to the other server, which was
    /// told so, unless it was asked for another protocol.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Returns whether the connection to the client ends with the reply: it was told so (RFC 9112
    /// section 9.6), or sees the end by that only.
    #[must_use]
    pub fn ends_by_close(&self) -> bool {
        self.says_close || self.shown == Shown::Close
    }

    fn receive_head(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        facts: &ReplyFacts<'_>,
    ) -> Result<usize, ReplyError> {
        let before = self.head.len();
        let mut whole = std::mem::take(&mut self.head);
        let text = if before == 0 {
            bytes
        } else {
            whole.extend_from_slice(bytes);
            &whole
        };
        let limit = HEAD_BYTES_MAX as usize - self.interim_bytes;
        let window = text.get(..limit).unwrap_or(text);
        let Some(head) = reply::parse(window)? else {
            if window.len() == limit {
                return Err(ReplyError { why: "head too large" });
            }
            if before == 0 {
                whole.extend_from_slice(bytes);
            }
            self.head = whole;
            return Ok(bytes.len());
        };
        let text = text.get(..head.len).unwrap_or_default();
        match head.status {
            101 => self.switch(text, out, facts.removed)?,
            100..200 => {
                self.interim_bytes += head.len;
                // An HTTP/1.0 client knows of none (RFC 9110 section 15.2).
                if self.client == Version::Http11 {
                    reply::write_interim(out, text, facts.removed, false);
                }
            }
            status if self.holds_head => {
                self.status = status;
                self.part = ReplyPart::Held;
                self.head = text.to_vec();
                let taken = head.len - before;
                self.held = Some(head);
                return Ok(taken);
            }
            _ => self.begin_reply(&head, text, out, facts),
        }
        Ok(head.len - before)
    }

    fn switch(
        &mut self,
        text: &[u8],
        out: &mut Vec<u8>,
        removed: &[Box<[u8]>],
    ) -> Result<(), ReplyError> {
        if !self.asked.upgrade {
            return Err(ReplyError { why: "a switch of protocols nobody asked for" });
        }
        reply::write_interim(out, text, removed, true);
        self.status = 101;
        self.part = ReplyPart::Tunnel;
        Ok(())
    }

    fn begin_reply(
        &mut self,
        head: &ReplyHead,
        text: &[u8],
        out: &mut Vec<u8>,
        facts: &ReplyFacts<'_>,
    ) {
        self.status = head.status;
        let is_http11 = self.client == Version::Http11;
        let is_bodiless = self.is_bodiless(head.status);
        let (framing, shown) = match head.end {
            BodyEnd::Length(length) if is_bodiless => {
                (Framing::None, Shown::Nothing(Some(length).filter(|_| head.status != 204)))
            }
            _ if is_bodiless => (Framing::None, Shown::Nothing(None)),
            BodyEnd::Length(length) => (Framing::Length(length), Shown::Length(length)),
            BodyEnd::Chunked if is_http11 => (Framing::Chunked, Shown::Chunks),
            BodyEnd::Chunked => (Framing::Chunked, Shown::Close),
            BodyEnd::Close if is_http11 => (Framing::None, Shown::Chunks),
            BodyEnd::Close => (Framing::None, Shown::Close),
        };
        self.shown = shown;
        // A 408 may be about the connection while it was idle, and have crossed the request: the
        // reply to that would come after it (RFC 9110 section 15.5.9).
        self.keeps_upstream = head.keeps_open && head.status != 408;
        self.reply_body = Body::new(framing);
        self.part = if head.end == BodyEnd::Close && !is_bodiless {
            self.keeps_upstream = false;
            ReplyPart::UntilClose
        } else if self.reply_body.is_done() {
            ReplyPart::Done
        } else {
            ReplyPart::Body
        };
        // A client that sends on after its refusal would have its next request taken for content;
        // and content that waits for a 100 does not come any more (RFC 9110 section 10.1.1).
        let is_unwanted = head.status >= 400 || self.expects_continue && !self.body_begun;
        let close = facts.close || is_unwanted && !self.request_taken();
        self.says_close = close;
        let facts = ReplyFacts { close, ..*facts };
        let (has_events, nominated) =
            reply::write(out, text, (head.status, shown), self.client, &facts);
        self.is_event_stream = has_events && self.asked.events;
        self.reply_nominated = nominated;
    }

    fn is_bodiless(&self, status: u16) -> bool {
        self.method == Method::Head || matches!(status, 204 | 304)
    }

    fn receive_body(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        removed: &[Box<[u8]>],
    ) -> Result<usize, ReplyError> {
        let piece = self
            .reply_body
            .next_piece(bytes, &mut self.reply_trailers)
            .map_err(|error| ReplyError { why: error.why })?;
        let data = bytes.get(piece.data).unwrap_or_default();
        self.pass(data, out);
        if piece.done {
            self.part = ReplyPart::Done;
            if self.shown == Shown::Chunks {
                out.extend_from_slice(LAST_CHUNK);
                push_trailers(out, &self.reply_trailers, &self.reply_nominated, removed);
                out.extend_from_slice(b"\r\n");
            }
        }
        Ok(piece.consumed)
    }

    /// Passes on content, and copies it.
    fn pass(&mut self, data: &[u8], out: &mut Vec<u8>) {
        self.reply_bytes += data.len() as u64;
        push_data(out, data, self.shown == Shown::Chunks);
        let fits = |(copy, bytes_max): &(Vec<u8>, usize)| copy.len() + data.len() <= *bytes_max;
        self.copy = self.copy.take().filter(fits);
        if let Some((copy, _)) = &mut self.copy {
            copy.extend_from_slice(data);
        }
    }
}

/// Appends content, as a chunk if that is how its end is shown.
fn push_data(out: &mut Vec<u8>, data: &[u8], is_chunked: bool) {
    if data.is_empty() {
        return;
    }
    if is_chunked {
        // Writing into a Vec cannot fail.
        let _ = write!(out, "{:x}\r\n", data.len());
    }
    out.extend_from_slice(data);
    if is_chunked {
        out.extend_from_slice(b"\r\n");
    }
}
