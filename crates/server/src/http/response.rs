//! From a request to a reply: its status, its fields, its body. Writes into a connection's output
//! and touches no socket.

mod purge;
mod rule;

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use weir_cache::Stored;
use weir_content::range::{self, ByteRange, Multipart, Ranges};
use weir_content::{
    Compress, Conditions, Content, Entry, Fetch, Found, Lookup, PreconditionResult, Waiter,
    evaluate, if_range_holds,
};
use weir_http1::forward::{is_left_out, push_own};
use weir_http1::proxy_protocol::Endpoints;
use weir_http1::{Framing, Lines, Method, Request, Status, Target, Version, reply};
use weir_sys::{is_exhaustion, socket};

use super::bench::{self, BenchTarget};
use crate::config::Config;
use crate::context::WorkerContext;
use crate::context::forwarded::Answered;
use crate::context::log::{LoggedRequest, Record};
use crate::context::output::Output;
use crate::sites::client::Client;
use crate::sites::hosts::without_port;
use crate::sites::ruling::Ruling;

const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";
const HTML: &[u8] = b"text/html; charset=utf-8";
const PLAIN: &[u8] = b"text/plain";

/// Fields of a page of our own, which is what it says it is, has a style and nothing else, and is
/// in no frame (Content Security Policy Level 3).
const OWN_PAGE: &[u8] = b"X-Content-Type-Options: nosniff\r\n\
    Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
    frame-ancestors 'none'\r\n";

/// Port that https has where none is named (RFC 9110 section 4.2.2).
const HTTPS_PORT: u16 = 443;

/// Facts about the connection that a reply depends on.
#[derive(Clone, Copy)]
pub(crate) struct RequestInfo {
    pub peer: SocketAddr,
    /// Client of the request, by what trusted proxies say, if it was asked for.
    pub client: Option<Client>,
    /// True if the client speaks TLS.
    pub is_tls: bool,
    /// Ends of the client's connection, where they are known and of use.
    pub endpoints: Option<Endpoints>,
    /// The rule for the request, where there are sites.
    pub ruling: Option<Ruling>,
    /// Start of the request, nanoseconds on the loop's clock.
    pub began_ns: u64,
    /// True if the request was tried before, and had to wait.
    pub is_retry: bool,
    /// Number of times that the request has waited for a disk.
    pub fetches: u8,
    /// True if the request's body is incomplete. It is not waited for.
    pub body_incomplete: bool,
    /// True if it is the last that may be made on its connection.
    pub is_last: bool,
}

/// Result of answering a request. Unless it is [`Answer::Written`], the output is unchanged, and
/// the request is tried again when what it needs is available.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The reply is in the output.
    Written,
    /// A fetch from a disk comes first.
    NeedsDisk(Fetch),
    /// The rest of a listing comes first, which is made while other connections are served. It is
    /// abandoned when the waiter is dropped.
    NeedsListing(Waiter),
}

/// Number of fetches for one request after which the loop itself waits for the disk: fetched data
/// was gone again, or cannot be kept in memory.
const FETCHES_MAX: u8 = 3;

/// A reply being written.
struct Reply<'a, 'b> {
    /// The request; `None` if the input could not be parsed as one.
    request: Option<&'a Request<'b>>,
    /// Log entry of input that could not be parsed.
    logged: Option<LoggedRequest>,
    answered: Answered,
    info: RequestInfo,
    context: &'a mut WorkerContext,
    out: &'a mut Output,
    close: bool,
    /// The stored reply of an upstream that is sent, and what Cache-Status says.
    stored: Option<(&'a Stored, &'static str)>,
}

/// An answer given in the place of an upstream.
pub(crate) struct Instead<'a> {
    /// Its status.
    pub status: Status,
    /// Field lines, each ended by CRLF.
    pub fields: &'a [u8],
    /// True if the connection closes after it.
    pub close: bool,
    /// Log entry of the request, if there is a log.
    pub logged: Option<LoggedRequest>,
}

/// Answers a request in the place of its upstream.
pub(crate) fn answer_instead(
    instead: Instead<'_>,
    answered: Answered,
    info: RequestInfo,
    context: &mut WorkerContext,
    out: &mut Output,
) {
    let Instead { status, fields, close, logged } = instead;
    let close = close || context.is_closing();
    out.linger |= info.body_incomplete;
    let mut reply =
        Reply { request: None, logged, answered, info, context, out, close, stored: None };
    reply.plain(status, fields);
}

/// Answers a request. It is charged to its source once it is answered: one that has to wait is
/// tried again.
pub(crate) fn answer(
    request: &Request<'_>,
    info: RequestInfo,
    context: &mut WorkerContext,
    out: &mut Output,
) -> Answer {
    let share_used_up = !context.is_within_share(info.peer);
    let close = closes(request, info, share_used_up, context);
    let answer = answer_uncharged(request, info, close, context, out);
    if matches!(answer, Answer::Written) {
        charge(request, info, context);
    }
    answer
}

fn answer_uncharged(
    request: &Request<'_>,
    info: RequestInfo,
    close: bool,
    context: &mut WorkerContext,
    out: &mut Output,
) -> Answer {
    // Bytes after a CONNECT belong to a tunnel, and are no requests (RFC 9110 §9.3.6).
    let tunnels = request.method == Method::Connect;
    let close = close || tunnels;
    out.linger |= tunnels;
    let answered = Answered::of(request);
    let mut reply = Reply {
        request: Some(request),
        logged: None,
        answered,
        info,
        context,
        out,
        close,
        stored: None,
    };
    if info.ruling.is_some_and(|ruling| reply.by_rule(request, ruling)) {
        return Answer::Written;
    }
    let length = if let Framing::Length(length) = request.framing { length } else { 0 };
    if length > body_bytes_max(&reply.context.config, info.ruling) {
        reply.close = true;
        reply.context.counters.refused_requests.one();
        reply.plain(Status::CONTENT_TOO_LARGE, b"");
        return Answer::Written;
    }
    if must_use_tls(request, info.peer, info.is_tls, reply.context) {
        reply.redirect_to_tls(request);
        return Answer::Written;
    }
    match (request.method, request.target) {
        (Method::Get | Method::Head, Target::Path { path, query }) => {
            let left = if reply.context.config.bench_endpoints {
                reply.bench(path, query)
            } else {
                Some((&b""[..], path))
            };
            if let Some((prefix, path)) = left {
                return reply.content(request, prefix, path, query);
            }
        }
        (Method::Options, _) => {
            reply.start(Status::NO_CONTENT);
            reply.lines(ALLOW, b"");
            reply.end(Status::NO_CONTENT, 0);
        }
        (Method::Purge, Target::Path { path, query }) if reply.context.config.cache.is_some() => {
            reply.purge(request, path, query);
        }
        (Method::Other(_), _) => reply.plain(Status::NOT_IMPLEMENTED, b""),
        _ => reply.plain(Status::METHOD_NOT_ALLOWED, ALLOW),
    }
    Answer::Written
}

/// Returns the maximum size of the body of a request with this ruling, bytes.
pub(crate) fn body_bytes_max(config: &Config, ruling: Option<Ruling>) -> u64 {
    let rule = ruling.and_then(|ruling| config.rule(ruling.rule?));
    rule.and_then(|rule| rule.body_bytes_max).unwrap_or(config.body_bytes_max)
}

/// Returns whether the requests of a client are only redirected to an address with TLS. Those of a
/// Unix socket come from a program on this machine, which has nothing to fear between; and what
/// asks for an https resource without TLS has come with it to a proxy in front.
pub(crate) fn must_use_tls(
    request: &Request<'_>,
    peer: SocketAddr,
    is_tls: bool,
    context: &WorkerContext,
) -> bool {
    let has_come_by_tls = is_tls || request.is_https || peer == socket::UNKNOWN_PEER;
    context.config.redirects_to_tls && !has_come_by_tls
}

/// Charges a request to its source. Returns whether the connection closes after the reply.
pub(crate) fn closes_after(
    request: &Request<'_>,
    info: RequestInfo,
    context: &mut WorkerContext,
) -> bool {
    let share_used_up = charge(request, info, context);
    closes(request, info, share_used_up, context)
}

/// Charges a request to its source. Returns whether that has used up its share.
fn charge(request: &Request<'_>, info: RequestInfo, context: &mut WorkerContext) -> bool {
    let share_used_up = context.charge_source(info.peer);
    if request.keep_alive && (context.pressure || share_used_up) {
        context.counters.closed_by_pressure.one();
        context.counters.closed_by_share.add(share_used_up.into());
    }
    share_used_up
}

fn closes(
    request: &Request<'_>,
    info: RequestInfo,
    share_used_up: bool,
    context: &WorkerContext,
) -> bool {
    let is_last = info.is_last || info.body_incomplete;
    !request.keep_alive || is_last || context.is_closing() || share_used_up
}

/// An answer with a stored reply of an upstream.
pub(crate) struct StoredAnswer<'a> {
    /// The reply.
    pub stored: &'a Stored,
    /// Text of Cache-Status.
    pub says: &'static str,
    /// True if the connection closes after it.
    pub close: bool,
    /// Log entry of the request, if there is a log and it was made before.
    pub logged: Option<LoggedRequest>,
}

/// Answers a request with a stored reply of its upstream.
pub(crate) fn answer_stored(
    request: &Request<'_>,
    answer: StoredAnswer<'_>,
    info: RequestInfo,
    context: &mut WorkerContext,
    out: &mut Output,
) {
    let StoredAnswer { stored, says, close, logged } = answer;
    let (answered, stored) = (Answered::of(request), Some((stored, says)));
    let mut reply =
        Reply { request: Some(request), logged, answered, info, context, out, close, stored };
    reply.stored_reply(request);
}

/// Input that is refused.
#[derive(Clone, Copy)]
pub(crate) enum Refused<'a, 'b> {
    /// A request, because of its body.
    Request(&'a Request<'b>),
    /// Bytes that are no request, or an incomplete one.
    Unread(&'a [u8]),
}

/// Answers input that could not be read as a request, or not to its end; the connection closes
/// after the reply.
pub(crate) fn refuse(
    status: Status,
    refused: Refused<'_, '_>,
    info: RequestInfo,
    context: &mut WorkerContext,
    out: &mut Output,
) {
    out.linger = true;
    // An overload may be over in a second (RFC 9110 §10.2.3).
    let is_unavailable = status == Status::SERVICE_UNAVAILABLE;
    let fields = if is_unavailable { &b"Retry-After: 1\r\n"[..] } else { b"" };
    let (request, logged) = match refused {
        Refused::Request(request) => (Some(request), None),
        Refused::Unread(bytes) => {
            let is_of_proxy = context.config.trusts_peer(info.peer);
            (None, context.log.is_some().then(|| LoggedRequest::of_unread(bytes, is_of_proxy)))
        }
    };
    let answered = request.map_or_else(Answered::unread, Answered::of);
    let mut reply =
        Reply { request, logged, answered, info, context, out, close: true, stored: None };
    reply.plain(status, fields);
}

impl Reply<'_, '_> {
    /// Spends the time given in the target. Returns the prefix and the path left to be served,
    /// unless the reply is written already.
    #[cold]
    fn bench<'t>(&mut self, path: &'t [u8], query: Option<&[u8]>) -> Option<(&'t [u8], &'t [u8])> {
        match bench::parse_target(path, query) {
            BenchTarget::Nothing => return Some((b"", path)),
            BenchTarget::Before { burn_us, prefix, path } => {
                if !self.info.is_retry {
                    bench::burn(burn_us);
                }
                return Some((prefix, path));
            }
            BenchTarget::Work { service, prefix, path } => {
                if !self.info.is_retry {
                    service.perform();
                }
                // Another connection may have waited for this worker.
                self.close = true;
                return Some((prefix, path));
            }
            BenchTarget::Burn { burn_us } => {
                bench::burn(burn_us);
                let body = format!("burnt {burn_us} us\n");
                self.start(Status::OK);
                self.page(Status::OK, b"Cache-Control: no-store\r\n", PLAIN, body.as_bytes());
            }
            #[cfg(debug_assertions)]
            BenchTarget::Try { name, path } => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let outcome = weir_sys::sandbox::intruder::attempt(&text(name), &text(path));
                let body = outcome.map_or_else(|error| error.to_string(), |()| "done".into());
                self.start(Status::OK);
                self.page(Status::OK, b"Cache-Control: no-store\r\n", PLAIN, body.as_bytes());
            }
            BenchTarget::Malformed => self.plain(Status::BAD_REQUEST, b""),
        }
        None
    }

    /// Serves the content at `path`, unless something has to come first. `prefix` preceded it in
    /// the target, and precedes the path of a redirect.
    fn content(
        &mut self,
        request: &Request<'_>,
        prefix: &[u8],
        path: &[u8],
        query: Option<&[u8]>,
    ) -> Answer {
        let place = self.file_place(path);
        if place.path.is_empty() {
            self.add_slash(path, query);
            return Answer::Written;
        }
        let mut room = [&b""[..]; 4];
        let lookup = Lookup {
            path: &place.path,
            query,
            accept_encoding: collect(request.accept_encoding, &mut room),
            compress: self.compress(request),
            head_only: self.is_head(),
            is_patient: self.info.fetches >= FETCHES_MAX,
            advances: !self.context.write_budget.is_spent(),
        };
        let found = match self.find(place.root, &lookup) {
            Found::NotFound if self.info.ruling.is_some() => self.find_tried(&lookup),
            found => found,
        };
        match found {
            Found::Cold(fetch) => return Answer::NeedsDisk(fetch),
            Found::Unfinished(waiter) => return Answer::NeedsListing(waiter),
            Found::Entry(entry) => self.entry(request, &entry),
            Found::Redirect(location) => {
                let mut line = b"Location: ".to_vec();
                line.extend_from_slice(prefix);
                line.extend_from_slice(&place.prefix);
                line.extend_from_slice(&location);
                line.extend_from_slice(b"\r\n");
                self.plain(Status::MOVED_PERMANENTLY, &line);
            }
            Found::Listing(page) => {
                self.start_own(Status::OK);
                self.full_from(&page);
            }
            Found::ListingHead => {
                self.start_own(Status::OK);
                reply::field(&mut self.out.bytes, "Content-Type", HTML);
                self.end(Status::OK, 0);
            }
            Found::NotFound => self.plain(Status::NOT_FOUND, b""),
            Found::Malformed => self.plain(Status::BAD_REQUEST, b""),
            Found::Error(error) => self.content_error(&error),
        }
        Answer::Written
    }

    /// Redirects to the same target at the address with TLS; the method stays the same.
    fn redirect_to_tls(&mut self, request: &Request<'_>) {
        let Some(host) = request.host.filter(|_| request.method != Method::Connect) else {
            return self.plain(Status::BAD_REQUEST, b"");
        };
        let port = self.context.config.tls_port;
        let mut line = b"Location: https://".to_vec();
        line.extend_from_slice(without_port(host));
        if port != HTTPS_PORT {
            line.push(b':');
            line.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
        }
        // That of an asterisk has no path (RFC 9112 section 3.2.4).
        if let Target::Path { path, query } = request.target {
            line.extend_from_slice(path);
            if let Some(query) = query {
                line.push(b'?');
                line.extend_from_slice(query);
            }
        }
        line.extend_from_slice(b"\r\n");
        self.plain(Status::PERMANENT_REDIRECT, &line);
    }

    /// Asks a store, and again if the first answer no longer holds or descriptors have run out.
    fn find(&mut self, root: usize, lookup: &Lookup<'_>) -> Found {
        let now = self.context.clock();
        let Some(store) = self.context.stores.of(root) else { return Found::NotFound };
        let parts_before = store.listing_counts().parts;
        let found = match store.find(lookup, now) {
            Found::Entry(entry) if has_changed(&entry) => {
                store.forget(lookup.path);
                store.find(lookup, now)
            }
            Found::Error(error) if is_exhaustion(&error) => {
                store.release_descriptors();
                store.find(lookup, now)
            }
            found => found,
        };
        if store.listing_counts().parts > parts_before {
            self.context.write_budget.spend();
        }
        found
    }

    /// Returns the use of compressed forms for a request. Ranges are of the file itself, so that a
    /// client never joins parts of two forms; and so is what If-Match asks for, since the tag of a
    /// form is weak and matches none (RFC 9110 section 13.1.1). A file that must not be transformed
    /// is not (RFC 9111 section 5.2.2.6), by the word of who operates the server.
    fn compress(&self, request: &Request<'_>) -> Compress {
        let is_of_file = request.range.is_some() || !request.if_match.is_empty();
        if request.accept_encoding.is_empty() || is_of_file {
            return Compress::Never;
        }
        let lines = self.context.config.lines(self.info.is_tls, self.info.ruling);
        let is_kept = [lines.cache_control, lines.fields].into_iter().any(forbids_transform);
        match () {
            () if is_kept => Compress::Never,
            () if self.context.is_overloaded || self.context.memory.is_short() => Compress::Known,
            () => Compress::Make,
        }
    }

    fn content_error(&mut self, error: &io::Error) {
        // A lack of descriptors or memory passes, and so does a write to the file; a failing disk
        // does not recover.
        if is_exhaustion(error) || error.kind() == io::ErrorKind::ResourceBusy {
            self.plain(Status::SERVICE_UNAVAILABLE, b"Retry-After: 1\r\n");
        } else {
            self.plain(Status::INTERNAL_SERVER_ERROR, b"");
        }
    }

    fn entry(&mut self, request: &Request<'_>, entry: &Arc<Entry>) {
        match evaluate_preconditions(request, entry) {
            PreconditionResult::Proceed => {}
            PreconditionResult::NotModified => {
                self.start(Status::NOT_MODIFIED);
                self.entry_lines(Status::NOT_MODIFIED.code(), entry.fields_304());
                return self.end(Status::NOT_MODIFIED, 0);
            }
            PreconditionResult::Failed => return self.plain(Status::PRECONDITION_FAILED, b""),
        }
        match self.ranges(request, entry) {
            Ranges::Whole => self.full(entry),
            Ranges::Unsatisfiable => {
                let line =
                    format!("Content-Range: {}\r\n", range::content_range_unsatisfied(entry.len()));
                self.plain(Status::RANGE_NOT_SATISFIABLE, line.as_bytes());
            }
            Ranges::One(range) => self.one_range(entry, range),
            // No RFC says where Content-Encoding belongs among parts.
            Ranges::Many(_) if entry.coding().is_some() || self.is_coded() => self.full(entry),
            Ranges::Many(ranges) => self.many_ranges(entry, &ranges),
        }
    }

    /// Returns the ranges to send. Range counts for GET only (RFC 9110 §14.2), and under If-Range
    /// only for the same version.
    fn ranges(&self, request: &Request<'_>, entry: &Entry) -> Ranges {
        let Some(value) = request.range.filter(|_| request.method == Method::Get) else {
            return Ranges::Whole;
        };
        let now = self.context.clock();
        let same =
            request.if_range.is_none_or(|field| if_range_holds(field, &entry.validators(), now));
        if same { range::parse(value, entry.len()) } else { Ranges::Whole }
    }

    /// Sends the stored reply of an upstream. Conditions and ranges are about a 200 only.
    fn stored_reply(&mut self, request: &Request<'_>) {
        let Some((stored, _)) = self.stored else { return };
        if stored.status == Status::OK.code() {
            return self.entry(request, &stored.entry);
        }
        self.raw(&stored.status_line);
        self.fields(stored.status);
        // It has no length (RFC 9110 section 8.6).
        let has_length = stored.status != Status::NO_CONTENT.code();
        let entry = &stored.entry;
        let lines = if has_length { entry.fields_200() } else { entry.fields_206() };
        self.entry_lines(stored.status, lines);
        self.end_with(stored.status, stored.entry.len());
        self.body(&stored.entry, 0..stored.entry.len());
    }

    fn is_coded(&self) -> bool {
        self.stored.is_some_and(|(stored, _)| stored.is_coded)
    }

    fn full(&mut self, entry: &Arc<Entry>) {
        self.start(Status::OK);
        self.full_from(entry);
    }

    /// Writes the rest of a reply with the whole of an entry.
    fn full_from(&mut self, entry: &Arc<Entry>) {
        self.entry_lines(Status::OK.code(), entry.fields_200());
        self.end(Status::OK, entry.len());
        self.body(entry, 0..entry.len());
    }

    fn one_range(&mut self, entry: &Arc<Entry>, range: ByteRange) {
        self.start(Status::PARTIAL_CONTENT);
        self.entry_lines(Status::PARTIAL_CONTENT.code(), entry.fields_206());
        let out = &mut self.out.bytes;
        reply::field(out, "Content-Range", range::content_range(range, entry.len()).as_bytes());
        reply::field_u64(out, "Content-Length", range.len());
        self.end(Status::PARTIAL_CONTENT, range.len());
        self.body(entry, range.first..range.last + 1);
    }

    fn many_ranges(&mut self, entry: &Arc<Entry>, ranges: &[ByteRange]) {
        let boundary = self.context.boundary();
        let multipart = Multipart::new(entry.content_type(), entry.len(), ranges, &boundary);
        self.start(Status::PARTIAL_CONTENT);
        self.entry_lines(Status::PARTIAL_CONTENT.code(), entry.fields_304());
        let out = &mut self.out.bytes;
        reply::field(out, "Content-Type", multipart.content_type());
        reply::field_u64(out, "Content-Length", multipart.content_length());
        self.end(Status::PARTIAL_CONTENT, multipart.content_length());
        let parts = (0..multipart.part_count())
            .filter_map(|index| multipart.part(index))
            .map(|(head, range)| (head.to_vec(), range.first..range.last + 1))
            .collect();
        self.out.push_parts(entry, parts, multipart.closing().to_vec());
    }

    /// Writes a reply whose body only states its status, or is the operator's page for it.
    fn plain(&mut self, status: Status, fields: &[u8]) {
        let config = self.context.config();
        let rule = self.info.ruling.and_then(|ruling| config.rule(ruling.rule?));
        let pages = rule.map_or(&config.error_pages, |rule| &rule.error_pages);
        match pages.iter().find(|page| page.code == status.code()) {
            Some(page) => {
                self.start(status);
                self.page(status, fields, page.content_type.as_bytes(), &page.body);
            }
            None => {
                self.start_own(status);
                self.page(status, fields, HTML, status.page());
            }
        }
    }

    /// Writes the rest of a reply with this body.
    fn page(&mut self, status: Status, fields: &[u8], content_type: &[u8], body: &[u8]) {
        if self.stored.is_some() {
            // Its Date is among its own fields, which this reply has none of (RFC 9110 section
            // 6.6.1).
            let unix_s = self.context.unix_ns() / 1_000_000_000;
            self.out.bytes.extend_from_slice(self.context.date.at(unix_s));
        }
        self.lines(fields, b"");
        reply::field(&mut self.out.bytes, "Content-Type", content_type);
        reply::field_u64(&mut self.out.bytes, "Content-Length", body.len() as u64);
        self.end(status, body.len() as u64);
        if !self.is_head() {
            self.out.bytes.extend_from_slice(body);
        }
    }

    /// Writes the start of a reply whose content is a page of our own.
    fn start_own(&mut self, status: Status) {
        self.start(status);
        self.lines(OWN_PAGE, b"");
    }

    fn start(&mut self, status: Status) {
        reply::status(&mut self.out.bytes, status);
        self.fields(status.code());
    }

    /// Writes the fields that every reply has.
    fn fields(&mut self, status: u16) {
        let unix_ns = self.context.unix_ns();
        let (out, context) = (&mut self.out.bytes, &mut *self.context);
        let config = &context.config;
        let lines = config.lines(self.info.is_tls, self.info.ruling);
        let cache_control = if status < 400 { lines.cache_control } else { b"" };
        let Some((stored, says)) = self.stored else {
            out.extend_from_slice(context.date.at(unix_ns / 1_000_000_000));
            push_own(out, lines.fields, false, cache_control);
            out.extend_from_slice(lines.for_page);
            out.extend_from_slice(cache_control);
            return;
        };
        let has_server = stored.has_server && !is_left_out(b"server", lines.removed, b"");
        push_own(out, lines.fields, has_server, cache_control);
        out.extend_from_slice(lines.for_page);
        out.extend_from_slice(cache_control);
        if !is_left_out(b"age", lines.removed, b"") {
            reply::field_u64(out, "Age", stored.age_s(unix_ns));
        }
        if is_left_out(b"cache-status", lines.removed, b"") {
            return;
        }
        // RFC 9211.
        out.extend_from_slice(b"Cache-Status: weir; ");
        out.extend_from_slice(says.as_bytes());
        out.extend_from_slice(b"; ttl=");
        out.extend_from_slice(itoa::Buffer::new().format(stored.ttl_s(unix_ns)).as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the field lines of an entry; of a stored reply without a Cache-Control in whose place
    /// another comes.
    fn entry_lines(&mut self, status: u16, lines: &[u8]) {
        let rule = self.context.config.lines(self.info.is_tls, self.info.ruling);
        let has_another = status < 400 && self.stored.is_some() && !rule.cache_control.is_empty();
        self.lines(lines, if has_another { b"cache-control" } else { b"" });
    }

    /// Writes field lines, but for those that the rule leaves out, and any called `but`. A file in
    /// a compressed form says so: it is not what its type says.
    fn lines(&mut self, lines: &[u8], but: &[u8]) {
        let rule = self.context.config.lines(self.info.is_tls, self.info.ruling);
        let out = &mut self.out.bytes;
        if rule.removed.is_empty() && but.is_empty() {
            return out.extend_from_slice(lines);
        }
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            let is_form = self.stored.is_none() && name.eq_ignore_ascii_case(b"content-encoding");
            let is_out = is_left_out(name, rule.removed, b"") || name.eq_ignore_ascii_case(but);
            if is_form || !is_out {
                out.extend_from_slice(line);
            }
        }
    }

    fn raw(&mut self, fields: &[u8]) {
        self.out.bytes.extend_from_slice(fields);
    }

    /// Ends the head of a reply whose body, if it is sent, has `body_bytes`.
    fn end(&mut self, status: Status, body_bytes: u64) {
        self.end_with(status.code(), body_bytes);
    }

    fn end_with(&mut self, status: u16, body_bytes: u64) {
        match (self.answered.version, self.close) {
            (_, true) => self.raw(b"Connection: close\r\n"),
            (Version::Http10, false) => self.raw(b"Connection: keep-alive\r\n"),
            (Version::Http11, false) => {}
        }
        reply::end(&mut self.out.bytes);
        self.out.close |= self.close;
        self.out.linger |= self.close && self.request.is_some_and(has_body);
        self.out.count(status);
        if self.context.log.is_some() {
            let RequestInfo { peer, client, .. } = self.info;
            let logged = self.logged.take();
            let request = logged.or_else(|| self.context.logged(self.request?, peer, client));
            self.out.records.push(Record {
                status,
                peer: self.info.peer,
                began_ns: self.info.began_ns,
                body_start: self.out.bytes.len() as u64,
                body_bytes: if self.is_head() { 0 } else { body_bytes },
                request: request.unwrap_or_default(),
            });
        }
    }

    fn body(&mut self, entry: &Arc<Entry>, range: Range<u64>) {
        if !self.is_head() && range.start < range.end {
            if let Some(saved_bytes) = entry.saved_bytes() {
                self.context.counters.compressed_replies.one();
                self.context.counters.compressed_saved_bytes.add(saved_bytes);
            }
            self.out.push_body(entry, range);
        }
    }

    fn is_head(&self) -> bool {
        self.answered.head_only
    }
}

/// Returns whether field lines have the directive no-transform, in any case.
fn forbids_transform(lines: &[u8]) -> bool {
    let directive = b"no-transform";
    // Hyphens are few, and this is asked for nearly every request.
    memchr::memchr_iter(b'-', lines).filter_map(|at| at.checked_sub(2)).any(|from| {
        let part = lines.get(from..from + directive.len());
        part.is_some_and(|part| part.eq_ignore_ascii_case(directive))
    })
}

fn has_body(request: &Request<'_>) -> bool {
    request.framing != Framing::None
}

/// Returns whether a file about to be sent from its descriptor no longer is what its head would
/// promise.
fn has_changed(entry: &Entry) -> bool {
    matches!(entry.content(), Content::File(file) if !file.is_unchanged().unwrap_or(false))
}

fn evaluate_preconditions(request: &Request<'_>, entry: &Entry) -> PreconditionResult {
    let unconditional = request.if_match.is_empty()
        && request.if_none_match.is_empty()
        && request.if_modified_since.is_none()
        && request.if_unmodified_since.is_none();
    if unconditional {
        return PreconditionResult::Proceed;
    }
    let (mut room, mut more_room) = ([&b""[..]; 4], [&b""[..]; 4]);
    let conditions = Conditions {
        if_match: collect(request.if_match, &mut room),
        if_none_match: collect(request.if_none_match, &mut more_room),
        if_modified_since: request.if_modified_since,
        if_unmodified_since: request.if_unmodified_since,
    };
    evaluate(&conditions, &entry.validators())
}

fn collect<'r, 'b>(lines: Lines<'b>, room: &'r mut [&'b [u8]; 4]) -> &'r [&'b [u8]] {
    let mut count = 0;
    for (place, line) in room.iter_mut().zip(lines.iter()) {
        *place = line;
        count += 1;
    }
    &room[..count]
}
