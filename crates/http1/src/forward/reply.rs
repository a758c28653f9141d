//! The head of a reply, parsed whole, and written anew for the client it is forwarded to.

use super::fields::{Connection, ends_here, is_event_stream, lines, push, via_of_reply};
use crate::grammar::elements;
use crate::reply;
use crate::reply_parser::{BodyEnd, Head, ReplyError};
use crate::request::Version;

/// What a forwarded reply says besides what the other server said.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyFacts<'a> {
    /// True if the connection to the client closes after this reply.
    pub close: bool,
    /// The Date line, for a reply without one (RFC 9110 section 6.6.1).
    pub date: &'a [u8],
    /// Field lines added to every reply, each ended by CRLF.
    pub fields: &'a [u8],
    /// Field lines added to this one, each ended by CRLF.
    pub more_fields: &'a [u8],
    /// Names of fields that no reply has, nor an interim one, nor its trailers: those of the other
    /// server are not passed on.
    pub removed: &'a [Box<[u8]>],
    /// A Cache-Control line, ended by CRLF, in the place of any other, if the reply is no error;
    /// empty for none.
    pub cache_control: &'a [u8],
}

impl ReplyFacts<'_> {
    /// Returns the Cache-Control line for a reply with this status.
    fn cache_control_of(&self, status: u16) -> &[u8] {
        if status < 400 { self.cache_control } else { b"" }
    }
}

/// Returns whether a field of another server is left out: its name is among those removed, or
/// another Cache-Control takes its place.
#[must_use]
pub fn is_left_out(name: &[u8], removed: &[Box<[u8]>], cache_control: &[u8]) -> bool {
    removed.iter().any(|each| name.eq_ignore_ascii_case(each))
        || !cache_control.is_empty() && name.eq_ignore_ascii_case(b"cache-control")
}

/// Appends our own field lines, each ended by CRLF: without the Server if the reply `has_server`,
/// which is the one that made it (RFC 9110 section 10.2.4); and without a Cache-Control in whose
/// place `cache_control` comes, unless that is empty.
pub fn push_own(out: &mut Vec<u8>, fields: &[u8], has_server: bool, cache_control: &[u8]) {
    if !has_server && cache_control.is_empty() {
        return out.extend_from_slice(fields);
    }
    for line in fields.split_inclusive(|&byte| byte == b'\n') {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        let is_out = has_server && line.starts_with(b"Server:");
        if !(is_out || is_left_out(name, &[], cache_control)) {
            out.extend_from_slice(line);
        }
    }
}

/// A head that was parsed.
#[derive(Debug)]
pub(super) struct ReplyHead {
    pub status: u16,
    pub keeps_open: bool,
    pub end: BodyEnd,
    /// Length in its buffer, bytes.
    pub len: usize,
}

/// Way in which the end of the content is shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// There is no content; its length, if the head of one is meant.
    Nothing(Option<u64>),
    /// By its length.
    Length(u64),
    /// By chunks.
    Chunks,
    /// By the end of the connection, to an HTTP/1.0 client.
    Close,
}

/// Parses a head at the start of `buf`; `None` if it is incomplete.
///
/// # Errors
/// It is not that of an HTTP/1 reply, or its framing is in doubt.
pub(super) fn parse(buf: &[u8]) -> Result<Option<ReplyHead>, ReplyError> {
    let mut head = Head::default();
    let (len, is_complete) = head.advance(buf)?;
    if !is_complete {
        return Ok(None);
    }
    if head.is_folded() {
        return Err(ReplyError { why: "folded field line" });
    }
    // Only chunked is undone here, and the client would not learn of another.
    if head.is_coded() {
        return Err(ReplyError { why: "a transfer coding besides chunked" });
    }
    let end = head.body_end()?;
    Ok(Some(ReplyHead { status: head.status(), keeps_open: head.keeps_open(), end, len }))
}

/// Appends the head of a reply for a client of this version. `text`: the head as parsed; `head`:
/// its status, and how the end of its content is shown. Returns whether its content is a stream of
/// events, and what [`Connection::nominated`] returns.
pub(super) fn write(
    out: &mut Vec<u8>,
    text: &[u8],
    head: (u16, Shown),
    client: Version,
    facts: &ReplyFacts<'_>,
) -> (bool, Vec<u8>) {
    let (status, shown) = head;
    let cache_control = facts.cache_control_of(status);
    write_status(out, text);
    let connection = Connection::of(text);
    let (mut has_date, mut has_server, mut has_events) = (false, false, false);
    for (name, value) in lines(text) {
        if ends_here(name)
            || connection.nominates(name)
            || is_left_out(name, facts.removed, cache_control)
        {
            continue;
        }
        match name.len() {
            4 => has_date |= name.eq_ignore_ascii_case(b"date"),
            6 => has_server |= name.eq_ignore_ascii_case(b"server"),
            12 if name.eq_ignore_ascii_case(b"content-type") => {
                has_events = is_event_stream(value);
            }
            7 if name.eq_ignore_ascii_case(b"trailer") && !facts.removed.is_empty() => {
                push_announced(out, name, value, facts.removed);
                continue;
            }
            _ => {}
        }
        push(out, name, value);
    }
    if !has_date {
        out.extend_from_slice(facts.date);
    }
    push_via(out, text, facts.removed);
    push_own(out, facts.fields, has_server, cache_control);
    out.extend_from_slice(facts.more_fields);
    out.extend_from_slice(cache_control);
    match shown {
        Shown::Nothing(None) | Shown::Close => {}
        Shown::Nothing(Some(length)) | Shown::Length(length) => {
            reply::field_u64(out, "Content-Length", length);
        }
        Shown::Chunks => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    match (client, facts.close || shown == Shown::Close) {
        (_, true) => out.extend_from_slice(b"Connection: close\r\n"),
        (Version::Http10, false) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (Version::Http11, false) => {}
    }
    reply::end(out);
    (has_events, connection.nominated())
}

/// Appends a Trailer field (RFC 9110 section 6.6.2) without the names `removed`, unless it is empty
/// then.
fn push_announced(out: &mut Vec<u8>, name: &[u8], value: &[u8], removed: &[Box<[u8]>]) {
    let is_kept = |each: &&[u8]| !(each.is_empty() || is_left_out(each, removed, b""));
    let kept: Vec<&[u8]> = elements(value).filter(is_kept).collect();
    if !kept.is_empty() {
        push(out, name, &kept.join(&b", "[..]));
    }
}

/// Appends an interim reply (RFC 9110 section 15.2) without the fields `removed`; with `upgrade`,
/// the one that changes the protocol.
pub(super) fn write_interim(out: &mut Vec<u8>, text: &[u8], removed: &[Box<[u8]>], upgrade: bool) {
    write_status(out, text);
    let connection = Connection::of(text);
    for (name, value) in lines(text) {
        let is_upgrade = upgrade && name.eq_ignore_ascii_case(b"upgrade");
        let ends_here = ends_here(name) || connection.nominates(name);
        if is_upgrade || !(ends_here || is_left_out(name, removed, b"")) {
            push(out, name, value);
        }
    }
    if upgrade {
        push_via(out, text, removed);
        out.extend_from_slice(b"Connection: upgrade\r\n");
    }
    reply::end(out);
}

fn push_via(out: &mut Vec<u8>, text: &[u8], removed: &[Box<[u8]>]) {
    if !is_left_out(b"via", removed, b"") {
        out.extend_from_slice(via_of_reply(text));
    }
}

/// Appends the status line, with the reason that the other server gave.
fn write_status(out: &mut Vec<u8>, text: &[u8]) {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // `HTTP/1.x `, checked when it was parsed.
    let rest = line.get(b"HTTP/1.1 ".len()..).unwrap_or_default();
    let (code, reason) = rest.split_at_checked(3).unwrap_or((rest, b""));
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(code);
    out.push(b' ');
    out.extend_from_slice(reason.get(1..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}
