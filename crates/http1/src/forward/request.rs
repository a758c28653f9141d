//! The head of a request, written anew for the server it is forwarded to.

use std::net::IpAddr;
use std::ops::Range;

use super::fields::{
    Connection, ends_here, hops, is_ambiguous, is_event_stream, is_forwarded, is_max_forwards,
    is_selective, lines, push, via,
};
use crate::grammar::elements;
use crate::method::Method;
use crate::proxy_protocol::{Endpoints, Version};
use crate::reply;
use crate::request::{self, Framing, Request, Target};
use crate::text::{push_address, push_u64};

/// What a forwarded request says besides what its client said.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// Host to name; `None` for the one that the client named.
    pub host: Option<&'a [u8]>,
    /// Host to name if the client named none.
    pub host_otherwise: &'a [u8],
    /// The client's address; `None` if it has none.
    pub client: Option<IpAddr>,
    /// True if the client is a proxy whose word on where a request comes from is passed on.
    pub is_trusted: bool,
    /// Arrival of the request, milliseconds since 1970.
    pub began_unix_ms: u64,
    /// True if the client's conditions and ranges (RFC 9110 sections 13.1 and 14.2) are left out,
    /// so that the whole is asked for.
    pub is_whole: bool,
    /// Field lines that are added, each ended by CRLF.
    pub fields: &'a [u8],
    /// Identifier of the request, told as X-Request-Id in place of what the client says; `None` to
    /// pass that on.
    pub request_id: Option<&'a [u8]>,
    /// Version of the PROXY protocol by which the server is told of the client's connection; the
    /// request is the only one on its own. `None` without.
    pub proxy_protocol: Option<Version>,
    /// Ends of the client's connection, if they are known.
    pub endpoints: Option<Endpoints>,
    /// True if the request is the caller's own, and its connection carries nothing for a client.
    pub is_own: bool,
    /// True if the client speaks TLS.
    pub is_tls: bool,
    /// True if the caller takes the content before the request is sent, and tells a client that
    /// waits for a 100 to send it: the other server is not asked for one.
    pub takes_content_first: bool,
    /// True if it is to be the last request on its connection, and the other server is told so (RFC
    /// 9112 section 9.6).
    pub is_last: bool,
}

/// Wishes of a request besides a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Another protocol (RFC 9110 section 7.8).
    pub upgrade: bool,
    /// A stream of events, as EventSource does (HTML Living Standard section 9.2).
    pub events: bool,
}

/// What trusted proxies in front have said of a request's origin.
#[derive(Default)]
struct Said<'b> {
    forwarded_for: Vec<&'b [u8]>,
    proto: bool,
    host: bool,
    start: bool,
}

/// Returns whether a request has content that has no meaning for its method (RFC 9110 section
/// 9.3.1): a server that does not expect it could take it for another request.
fn has_stray_content(request: &Request<'_>) -> bool {
    let has_content = !matches!(request.framing, Framing::None | Framing::Length(0));
    has_content && matches!(request.method, Method::Get | Method::Head)
}

/// Returns whether a request is the last on its connection to the other server.
pub(super) fn is_last(request: &Request<'_>, facts: &RequestFacts<'_>) -> bool {
    facts.is_last || has_stray_content(request)
}

/// Appends the head of `request`, which was parsed from `head`, as was `connection`. Returns what
/// it asks for, and the range of the Host in `out`.
pub(super) fn write(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    head: &[u8],
    connection: &Connection<'_>,
    facts: &RequestFacts<'_>,
) -> (Asked, Range<usize>) {
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    match request.target {
        Target::Path { path, query } => {
            out.extend_from_slice(path);
            if let Some(query) = query {
                out.push(b'?');
                out.extend_from_slice(query);
            }
        }
        Target::Asterisk => out.push(b'*'),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host = facts.host.or(request.host).unwrap_or(facts.host_otherwise);
    out.extend_from_slice(b"Host: ");
    let from = out.len();
    out.extend_from_slice(host);
    let host = from..out.len();
    out.extend_from_slice(b"\r\n");
    let mut said = Said::default();
    let (upgrade, accepts_events) = write_fields(out, request, head, connection, facts, &mut said);
    write_origin(out, request, facts, &said);
    out.extend_from_slice(via(request.version));
    out.extend_from_slice(facts.fields);
    if let Some(id) = facts.request_id {
        push(out, b"X-Request-Id", id);
    }
    match request.framing {
        Framing::None => {}
        Framing::Length(length) => reply::field_u64(out, "Content-Length", length),
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    let upgrade = upgrade.filter(|_| !has_stray_content(request));
    if let Some(upgrade) = upgrade {
        out.extend_from_slice(b"Connection: upgrade\r\n");
        push(out, b"Upgrade", upgrade);
    } else if is_last(request, facts) {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    reply::end(out);
    let events = accepts_events && request.method == Method::Get;
    (Asked { upgrade: upgrade.is_some(), events }, host)
}

/// Appends the client's fields. Returns the protocol it asks for, if it does, and whether it
/// accepts a stream of events by name.
fn write_fields<'b>(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    head: &'b [u8],
    connection: &Connection<'_>,
    facts: &RequestFacts<'_>,
    said: &mut Said<'b>,
) -> (Option<&'b [u8]>, bool) {
    let (mut upgrade, mut accepts_events) = (None, false);
    for (name, value) in lines(head) {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is(b"host") => continue,
            // One that is not waited for was not meant: HTTP/1.0, or no content.
            6 if is(b"expect") && (!request.expect_continue || facts.takes_content_first) => {
                continue;
            }
            12 if facts.request_id.is_some() && is(b"x-request-id") => continue,
            7 if is(b"upgrade") => {
                upgrade = Some(value);
                continue;
            }
            _ if ends_here(name) || is_ambiguous(name) => continue,
            // What the proxy relays of its client's Connection is not about what it says itself:
            // that is for all on the way (RFC 9110 section 7.6.1).
            _ if connection.nominates(name) && !(facts.is_trusted && is_forwarded(name)) => {
                continue;
            }
            _ if facts.is_whole && is_selective(name) => continue,
            _ if request.method == Method::Options && is_max_forwards(name) => {
                push_hops_left(out, name, value);
                continue;
            }
            6 if is(b"accept") => accepts_events |= elements(value).any(is_event_stream),
            _ if !is_forwarded(name) => {}
            _ if !facts.is_trusted => continue,
            // Written anew, with the client's address behind it.
            15 if is(b"x-forwarded-for") => {
                said.forwarded_for.push(value);
                continue;
            }
            15 if is(b"x-request-start") => said.start = true,
            16 if is(b"x-forwarded-host") => said.host = true,
            17 if is(b"x-forwarded-proto") => said.proto = true,
            _ => {}
        }
        push(out, name, value);
    }
    // With content, the bytes behind the request would not be those of the other protocol.
    let may_upgrade = connection.upgrades
        && request.framing == Framing::None
        && request.version == request::Version::Http11;
    (upgrade.filter(|protocols| may_upgrade && !carry_requests(protocols)), accepts_events)
}

/// Appends Max-Forwards with one less (RFC 9110 section 7.6.2); what cannot be read, as it is.
fn push_hops_left(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match hops(value) {
        Some(hops) => push(out, name, hops.saturating_sub(1).to_string().as_bytes()),
        None => push(out, name, value),
    }
}

/// Returns whether one of the protocols of an Upgrade field carries requests, which would pass
/// unread, and past the routes: HTTP, also in TLS (RFC 2817, RFC 7540 section 3.2).
fn carry_requests(protocols: &[u8]) -> bool {
    elements(protocols).any(|protocol| {
        let name = protocol.split(|&byte| byte == b'/').next().unwrap_or_default();
        [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|known| name.eq_ignore_ascii_case(known))
    })
}

/// Appends where the request comes from (RFC 7239, and the names in use before it), and when it
/// arrived.
fn write_origin(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    facts: &RequestFacts<'_>,
    said: &Said<'_>,
) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    for value in &said.forwarded_for {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
    let from = out.len();
    match facts.client {
        Some(client) => push_address(out, client),
        None => out.extend_from_slice(b"unknown"),
    }
    let node = from..out.len();
    out.extend_from_slice(b"\r\nForwarded: for=");
    // In this one, brackets and colons stand in quotes (RFC 7239 section 6).
    let (before, behind): (&[u8], &[u8]) = match facts.client {
        Some(IpAddr::V6(_)) => (b"\"[", b"]\""),
        _ => (b"", b""),
    };
    out.extend_from_slice(before);
    out.extend_from_within(node);
    out.extend_from_slice(behind);
    if let Some(host) = request.host {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
    let scheme: &[u8] = if facts.is_tls || request.is_https { b"https" } else { b"http" };
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme);
    reply::end(out);
    if !said.proto {
        push(out, b"X-Forwarded-Proto", scheme);
    }
    if let Some(host) = request.host.filter(|_| !said.host) {
        push(out, b"X-Forwarded-Host", host);
    }
    if !said.start {
        out.extend_from_slice(b"X-Request-Start: t=");
        let (s, ms) = (facts.began_unix_ms / 1000, facts.began_unix_ms % 1000);
        push_u64(out, s);
        out.push(b'.');
        out.extend([ms / 100, ms / 10 % 10, ms % 10].map(|digit| b'0' + digit as u8));
        reply::end(out);
    }
}
