//! The machine of one connection: the bytes of a request go in, those of its reply come out, and
//! what the client still sends is discarded to its end. Makes no system call and reads no clock.
//!
//! ```text
//! Head ──► Reply ──► Linger ──► Over        and from each to Over: the deadline, or an error
//! ```
//!
//! Each state has a deadline of its own from the time at which it begins, and no byte extends it.

use weir_http1::{HeadParser, Limits, Method, Parse, Request};

use crate::reply::Reply;

/// Limits on the head of a request; a page in a browser may have cookies of others at this host.
const LIMITS: Limits =
    Limits { target_bytes_max: 2 << 10, head_bytes_max: 16 << 10, fields_max: 100 };

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Time within which the head of a request must be there, nanoseconds.
const HEAD_NS: u64 = 10 * SECOND;

/// Time within which the kernel must have taken the reply, nanoseconds.
const REPLY_NS: u64 = 10 * SECOND;

/// Time within which the client must have ended its side after that, nanoseconds.
const LINGER_NS: u64 = 10 * SECOND;

/// A time, by both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub(crate) ns: u64,
    /// Seconds since 1970.
    pub(crate) unix_s: u64,
}

/// Next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// To be told what the client sends.
    Read,
    /// To send what is pending.
    Write,
    /// To be closed.
    Close,
}

#[derive(Debug)]
enum State {
    /// The head of the request is incomplete.
    Head { parser: HeadParser, input: Vec<u8> },
    /// The reply is on its way to the kernel.
    Reply { bytes: Vec<u8>, written: usize },
    /// The reply was written, and the write side shut down. A close before the client has ended its
    /// side could be a reset, by which it would lose the reply (RFC 9112 section 9.6).
    Linger,
    /// There is nothing left to do.
    Over,
}

/// A connection: a request and its reply.
#[derive(Debug)]
pub(crate) struct Exchange {
    state: State,
    deadline_ns: u64,
}

impl Exchange {
    /// Begins with a connection that has just been accepted.
    pub(crate) fn new(now_ns: u64) -> Self {
        let state = State::Head { parser: HeadParser::default(), input: Vec::new() };
        Self { state, deadline_ns: now_ns + HEAD_NS }
    }

    /// Returns the next step.
    pub(crate) fn wants(&self) -> Wants {
        match self.state {
            State::Head { .. } | State::Linger => Wants::Read,
            State::Reply { .. } => Wants::Write,
            State::Over => Wants::Close,
        }
    }

    /// Returns the time by which the present state must have ended, nanoseconds.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Returns whether the connection is to be closed: it has ended, or its deadline has passed.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.wants() == Wants::Close || self.deadline_ns <= now_ns
    }

    /// Records the end of the connection: it was lost.
    pub(crate) fn end(&mut self) {
        self.state = State::Over;
    }

    /// Takes bytes of the client; none is the end of its side. `answer` is asked for the reply once
    /// the request is there.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        now: Now,
        answer: impl FnOnce(&Request<'_>) -> Reply,
    ) {
        match &mut self.state {
            State::Head { parser, input } => {
                input.extend_from_slice(bytes);
                let reply = match parser.parse(input, &LIMITS) {
                    Parse::Complete(request) => {
                        answer(&request).to_bytes(now.unix_s, request.method == Method::Head)
                    }
                    Parse::Refused(error) => Reply::refusal(&error).to_bytes(now.unix_s, false),
                    Parse::Partial if bytes.is_empty() => return self.end(),
                    Parse::Partial => return,
                };
                let state = State::Reply { bytes: reply, written: 0 };
                *self = Self { state, deadline_ns: now.ns + REPLY_NS };
            }
            State::Linger if bytes.is_empty() => self.end(),
            _ => {}
        }
    }

    /// Returns the bytes that are to be written now.
    pub(crate) fn pending(&self) -> &[u8] {
        match &self.state {
            State::Reply { bytes, written } => bytes.get(*written..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Records that some of the pending bytes were written; returns whether they were the last, so
    /// that the write side is to be shut down.
    pub(crate) fn wrote(&mut self, count: usize, now_ns: u64) -> bool {
        let State::Reply { bytes, written } = &mut self.state else { return false };
        *written += count;
        let is_whole = *written >= bytes.len();
        if is_whole {
            *self = Self { state: State::Linger, deadline_ns: now_ns + LINGER_NS };
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use weir_http1::Status;

    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    fn at(s: u64) -> Now {
        Now { ns: s * SECOND, unix_s: 0 }
    }

    fn ok(_: &Request<'_>) -> Reply {
        Reply::line(Status::OK, "ok")
    }

    /// Returns the status of the reply to a head; `None` if there is none yet.
    fn status_of(head: &[u8]) -> Option<String> {
        let mut exchange = Exchange::new(0);
        exchange.received(head, at(0), ok);
        let reply = String::from_utf8(exchange.pending().to_vec()).unwrap();
        reply.strip_prefix("HTTP/1.1 ").and_then(|rest| Some(rest.get(..3)?.to_owned()))
    }

    #[test]
    fn a_head_that_is_no_request_is_refused_with_the_status_of_its_fault() {
        let with = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let long = "a".repeat(32 << 10);
        for (head, status) in [
            (with(""), Some("200")),
            ("GET / HTTP/1.0\r\n\r\n".to_owned(), Some("200")),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n".to_owned(), Some("200")),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), Some("400")),
            ("GET /\u{0} HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), Some("400")),
            ("GET / http/1.1\r\nHost: a\r\n\r\n".to_owned(), Some("400")),
            ("\u{16}\u{3}\u{1}".to_owned(), Some("400")),
            (with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), Some("400")),
            (format!("GET /{long}"), Some("414")),
            (with("Expect: coffee\r\n"), Some("417")),
            (with(&format!("A: {long}\r\n")), Some("431")),
            (with(&"A: b\r\n".repeat(101)), Some("431")),
            (with("Transfer-Encoding: gzip, chunked\r\n"), Some("501")),
            ("BREW / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), Some("501")),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), Some("505")),
            ("GET / HTTP/1.1\r\nHost: a\r\n".to_owned(), None),
            (String::new(), None),
        ] {
            let shown = head.get(..64).unwrap_or(&head);
            assert_eq!(status_of(head.as_bytes()).as_deref(), status, "{shown:?}");
        }
    }

    #[test]
    fn a_request_comes_a_byte_at_a_time_and_its_reply_goes_so() {
        let mut exchange = Exchange::new(0);
        for byte in GET {
            assert_eq!(exchange.wants(), Wants::Read);
            exchange.received(&[*byte], at(1), ok);
        }
        let mut sent = Vec::new();
        while exchange.wants() == Wants::Write {
            sent.extend_from_slice(&exchange.pending()[..1]);
            let was_last = exchange.pending().len() == 1;
            assert_eq!(exchange.wrote(1, SECOND), was_last);
        }
        assert!(sent.starts_with(b"HTTP/1.1 200 OK\r\n") && sent.ends_with(b"\r\n\r\nok\n"));
        // More of the client is no request.
        exchange.received(GET, at(1), |_| panic!("the connection is at its end"));
        assert_eq!((exchange.wants(), exchange.pending()), (Wants::Read, &[][..]));
        exchange.received(b"", at(1), ok);
        assert_eq!(exchange.wants(), Wants::Close);
    }

    #[test]
    fn a_head_a_reply_and_the_end_have_a_deadline_each_that_no_byte_extends() {
        let mut exchange = Exchange::new(0);
        exchange.received(&GET[..4], at(9), ok);
        assert!(!exchange.is_over(10 * SECOND - 1) && exchange.is_over(10 * SECOND));
        exchange.received(&GET[4..], at(9), ok);
        assert!(!exchange.wrote(1, 18 * SECOND));
        assert!(!exchange.is_over(19 * SECOND - 1) && exchange.is_over(19 * SECOND));
        assert!(exchange.wrote(exchange.pending().len(), 18 * SECOND));
        exchange.received(b"more", at(27), ok);
        assert_eq!(exchange.deadline_ns(), 28 * SECOND);
        assert!(!exchange.is_over(28 * SECOND - 1) && exchange.is_over(28 * SECOND));
    }

    #[test]
    fn a_client_that_leaves_before_its_request_is_whole_gets_nothing() {
        let mut exchange = Exchange::new(0);
        exchange.received(&GET[..9], at(0), ok);
        exchange.received(b"", at(0), ok);
        assert_eq!((exchange.wants(), exchange.pending()), (Wants::Close, &[][..]));
    }
}
