//! Parser for a request's head: bytes in, a [`Parse`] out.
//!
//! There are two paths. The scan is the reference: it reads the head line by line, refuses at the
//! first byte that settles a refusal, and remembers its position. The fast path runs `httparse` on
//! a head that arrived in one piece, and can only accept. Everything that `httparse` rejects or is
//! too lenient about goes to the scan, so both paths agree by construction on every status.
//!
//! Independence of how the input is split: each verdict of the scan depends on a fixed number of
//! the head's first bytes, and verdicts are reached in the order of those bytes. Later bytes,
//! including those after the head, cannot change one.

use std::mem::MaybeUninit;

use crate::fields::Fields;
use crate::grammar::{field_line, is_tchar};
use crate::request::{Limits, Parse, Request, RequestError, Version};
use crate::request_line::{RequestLine, check_length};
use crate::status::Status;

/// Maximum number of empty lines before a request line (RFC 9112 section 2.2 asks for one).
const EMPTY_LINES_MAX: usize = 4;

/// Maximum number of fields on the fast path. Heads with more are rare, and are left to the scan.
const FAST_FIELDS_MAX: usize = 100;

/// Parser for one head at a time, independent of how the input is split.
///
/// A head that trickles in costs time linear in its length, not quadratic.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadParser {
    /// Start of the line whose end has not been found yet.
    line_start: usize,
    /// Offset up to which all line ends have been found and counted.
    searched: usize,
    /// Number of complete lines, including the request line.
    lines: usize,
}

impl HeadParser {
    /// Parses the bytes of a head that have arrived so far.
    ///
    /// `buf` starts at the head's first byte and only grows between calls; `limits` must not change
    /// meanwhile. After [`Parse::Complete`] the parser is ready for the next head; to abandon a
    /// head before that, call [`reset`](Self::reset).
    pub fn parse<'b>(&mut self, buf: &'b [u8], limits: &Limits) -> Parse<'b> {
        if self.searched == 0
            && let Some(request) = parse_fast(buf, limits)
        {
            return Parse::Complete(request);
        }
        match self.scan(buf, limits) {
            Ok(None) => Parse::Partial,
            Ok(Some(request)) => {
                self.reset();
                Parse::Complete(request)
            }
            Err(refusal) => Parse::Refused(refusal),
        }
    }

    /// Discards the state of the current head.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Scans a head: the reference for validity. Bytes beyond the limit are not examined, so they
    /// cannot affect the result either.
    fn scan<'b>(
        &mut self,
        buf: &'b [u8],
        limits: &Limits,
    ) -> Result<Option<Request<'b>>, RequestError> {
        let window = buf.get(..limits.head_bytes_max).unwrap_or(buf);
        let start = first_line(window)?;
        let end = match start {
            Some(start) => self.find_end(window, start, limits)?,
            None => None,
        };
        match (start, end.and_then(|end| window.get(..end))) {
            (Some(start), Some(head)) => assemble(head, start, limits).map(Some),
            _ if buf.len() >= limits.head_bytes_max => Err(self.too_large()),
            _ => Ok(None),
        }
    }

    /// Checks the lines that have ended since the last call. Returns the head's length once the
    /// empty line has arrived.
    fn find_end(
        &mut self,
        window: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<usize>, RequestError> {
        self.line_start = self.line_start.max(start);
        self.searched = self.searched.max(start);
        while let Some(lf) = find_lf(window, self.searched) {
            let line = window.get(self.line_start..lf).unwrap_or_default();
            if self.check_line(line, limits)? {
                return Ok(Some(lf + 1));
            }
            self.lines += 1;
            self.line_start = lf + 1;
            self.searched = lf + 1;
        }
        self.searched = self.searched.max(window.len());
        if self.lines == 0 {
            check_length(window.get(self.line_start..).unwrap_or_default(), limits)?;
        }
        Ok(None)
    }

    /// Checks a line whose LF has been removed. Returns true for the empty line.
    fn check_line(&self, line: &[u8], limits: &Limits) -> Result<bool, RequestError> {
        if self.lines == 0 {
            check_length(line, limits)?;
        }
        let line = line.strip_suffix(b"\r").ok_or(RequestError::bad("line ended by a bare LF"))?;
        if self.lines == 0 {
            RequestLine::parse(line, limits)?;
        } else if line.is_empty() {
            return Ok(true);
        } else if self.lines > limits.fields_max {
            return Err(RequestError::new(Status::HEADER_FIELDS_TOO_LARGE, "too many fields"));
        } else if field_line(line).is_none() {
            return Err(RequestError::bad("malformed field line"));
        }
        Ok(false)
    }

    fn too_large(&self) -> RequestError {
        match self.lines {
            0 => RequestError::new(Status::URI_TOO_LONG, "request line too long"),
            _ => RequestError::new(Status::HEADER_FIELDS_TOO_LARGE, "head too large"),
        }
    }
}

/// Returns the start of the request line, once it is known.
///
/// A first byte that cannot start a method, such as that of a TLS ClientHello, is refused at once.
fn first_line(window: &[u8]) -> Result<Option<usize>, RequestError> {
    let mut rest = window;
    for _ in 0..EMPTY_LINES_MAX {
        match rest {
            [b'\r', b'\n', after @ ..] => rest = after,
            _ => break,
        }
    }
    match rest {
        [] => Ok(None),
        [b'\r'] if window.len() < 2 * EMPTY_LINES_MAX => Ok(None),
        [byte, ..] if is_tchar(*byte) => Ok(Some(window.len() - rest.len())),
        _ => Err(RequestError::bad("not the start of a request")),
    }
}

fn find_lf(window: &[u8], from: usize) -> Option<usize> {
    memchr::memchr(b'\n', window.get(from..)?).map(|found| from + found)
}

/// Builds the request from a complete head whose lines have all been checked.
fn assemble<'b>(
    head: &'b [u8],
    start: usize,
    limits: &Limits,
) -> Result<Request<'b>, RequestError> {
    let text = head.get(start..).unwrap_or_default();
    let mut lines = text.split(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
    let line = RequestLine::parse(lines.next().unwrap_or_default(), limits)?;
    let mut fields = Fields::default();
    for (name, value) in lines.filter_map(field_line) {
        fields.add(name, value)?;
    }
    fields.finish(&line, head)
}

/// Parses a head that is complete and fully valid; returns `None` otherwise.
///
/// `httparse` accepts a bare LF as a line end, any number of leading empty lines, and `#` and UTF-8
/// in the target. The first is caught here, the second by [`first_line`], the third by
/// [`RequestLine::from_parts`].
fn parse_fast<'b>(buf: &'b [u8], limits: &Limits) -> Option<Request<'b>> {
    let window = buf.get(..limits.head_bytes_max).unwrap_or(buf);
    let start = first_line(window).ok()??;
    let text = window.get(start..)?;
    let mut slots = [const { MaybeUninit::uninit() }; FAST_FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let parsed_len = match parsed.parse_with_uninit_headers(text, &mut slots) {
        Ok(httparse::Status::Complete(len)) => len,
        _ => return None,
    };
    let has_crlf_only = count_cr(text.get(..parsed_len)?) == parsed.headers.len() + 2;
    if !has_crlf_only || parsed.headers.len() > limits.fields_max {
        return None;
    }
    let line = fast_request_line(text, &parsed, limits)?;
    let mut fields = Fields::default();
    for field in parsed.headers.iter() {
        fields.add(field.name.as_bytes(), field.value).ok()?;
    }
    fields.finish(&line, buf.get(..start + parsed_len)?).ok()
}

/// Counts the CRs. `httparse` accepts a CR only before an LF, so a head has as many CRs as lines,
/// unless a line ended without one.
fn count_cr(head: &[u8]) -> usize {
    memchr::memchr_iter(b'\r', head).count()
}

fn fast_request_line<'b>(
    text: &'b [u8],
    parsed: &httparse::Request<'_, 'b>,
    limits: &Limits,
) -> Option<RequestLine<'b>> {
    let method = parsed.method?.as_bytes();
    let target = parsed.path?.as_bytes();
    let version = if parsed.version? == 0 { Version::Http10 } else { Version::Http11 };
    let bytes = text.get(..method.len() + target.len() + b"  HTTP/1.1".len())?;
    RequestLine::from_parts(method, target, version, bytes, limits).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::Target;

    const SIMPLE: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n";

    fn status(bytes: &[u8], limits: &Limits) -> Option<u16> {
        match HeadParser::default().parse(bytes, limits) {
            Parse::Refused(refusal) => Some(refusal.status.code()),
            _ => None,
        }
    }

    #[test]
    fn a_simple_head_takes_the_fast_way() {
        let request = parse_fast(SIMPLE, &Limits::default()).unwrap();
        assert_eq!(request.target, Target::Path { path: b"/a", query: None });
        assert_eq!(request.request_line, b"GET /a HTTP/1.1");
        assert_eq!(request.range, Some(&b"bytes=0-1"[..]));
        assert_eq!(request.head_len, SIMPLE.len());
    }

    #[test]
    fn an_absolute_target_overrules_host() {
        let bytes = b"GET http://b:80/c HTTP/1.1\r\nHost: a\r\n\r\n";
        let parse = HeadParser::default().parse(bytes, &Limits::default());
        let Parse::Complete(request) = parse else { panic!("{parse:?}") };
        assert_eq!(request.host, Some(&b"b:80"[..]));
        assert_eq!(request.target, Target::Path { path: b"/c", query: None });
    }

    #[test]
    fn the_fast_way_refuses_to_judge_what_httparse_lets_pass() {
        for lenient in [
            &b"GET /a HTTP/1.1\nHost: a\r\n\r\n"[..],
            b"GET /a HTTP/1.1\r\nHost: a\n\r\n",
            b"GET /a HTTP/1.1\r\nHost: a\r\n\n",
            b"\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\r\n\r\n\r\n\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /é HTTP/1.1\r\nHost: a\r\n\r\n".as_bytes(),
        ] {
            let mut slots = [httparse::EMPTY_HEADER; 8];
            assert!(httparse::Request::new(&mut slots).parse(lenient).unwrap().is_complete());
            assert_eq!(parse_fast(lenient, &Limits::default()), None);
            assert_eq!(status(lenient, &Limits::default()), Some(400));
        }
    }

    #[test]
    fn a_trickled_head_is_searched_once() {
        let mut parser = HeadParser::default();
        for end in 1..SIMPLE.len() {
            assert_eq!(parser.parse(&SIMPLE[..end], &Limits::default()), Parse::Partial);
            assert_eq!(parser.searched, end);
        }
        assert!(matches!(parser.parse(SIMPLE, &Limits::default()), Parse::Complete(_)));
        assert_eq!(parser.searched, 0, "ready for the next head");
    }

    #[test]
    fn empty_lines_in_front_are_bounded() {
        for (count, expected) in [(0, None), (1, None), (4, None), (5, Some(400))] {
            let bytes = [b"\r\n".repeat(count), SIMPLE.to_vec()].concat();
            assert_eq!(status(&bytes, &Limits::default()), expected, "{count}");
            if expected.is_none() {
                let parse = HeadParser::default().parse(&bytes, &Limits::default());
                let Parse::Complete(request) = parse else { panic!("{parse:?}") };
                assert_eq!(request.head_len, bytes.len());
            }
        }
        for bad in [&b"\n"[..], b"\rG", b"\r\r", b"\r\n\n", b"\r\n\r\n\r\n\r\n\r", b"\x16\x03"] {
            assert_eq!(status(bad, &Limits::default()), Some(400), "{bad:?}");
        }
    }

    #[test]
    fn limits_are_inclusive() {
        let exact = Limits { target_bytes_max: 2, head_bytes_max: SIMPLE.len(), fields_max: 2 };
        assert_eq!(status(SIMPLE, &exact), None);
        assert_eq!(status(SIMPLE, &Limits { target_bytes_max: 1, ..exact }), Some(414));
        assert_eq!(status(SIMPLE, &Limits { fields_max: 1, ..exact }), Some(431));
        let head_bytes_max = SIMPLE.len() - 1;
        assert_eq!(status(SIMPLE, &Limits { head_bytes_max, ..exact }), Some(431));
        assert_eq!(status(SIMPLE, &Limits { head_bytes_max: 10, ..exact }), Some(414));
        assert_eq!(status(b"", &Limits { head_bytes_max: 0, ..exact }), Some(414));
    }

    #[test]
    fn heads_with_more_fields_than_the_fast_way_holds_are_read_too() {
        let fields = "A: b\r\n".repeat(FAST_FIELDS_MAX);
        let bytes = format!("GET / HTTP/1.1\r\n{fields}Host: a\r\n\r\n");
        assert_eq!(status(bytes.as_bytes(), &Limits::default()), Some(431));
        let limits = Limits { fields_max: 1000, ..Limits::default() };
        let parse = HeadParser::default().parse(bytes.as_bytes(), &limits);
        let Parse::Complete(request) = parse else { panic!("{parse:?}") };
        assert_eq!(request.host, Some(&b"a"[..]));
    }

    #[test]
    fn a_buffer_that_shrinks_does_no_harm() {
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse(&SIMPLE[..30], &Limits::default()), Parse::Partial);
        assert_eq!(parser.parse(&SIMPLE[..3], &Limits::default()), Parse::Partial);
    }

    proptest! {
        /// Field lines over a small alphabet of troublesome bytes: both paths must split them
        /// alike.
        #[test]
        fn the_fast_path_and_the_scan_accept_the_same_heads(
            lines in proptest::collection::vec("[AB:\\t \r\n\\x00\\x7fé,;]{0,8}", 0..4),
            target in "/[a#?é ]{0,4}",
        ) {
            let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let bytes = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let limits = Limits::default();
            let scanned = HeadParser::default().scan(bytes.as_bytes(), &limits);
            let fast = parse_fast(bytes.as_bytes(), &limits);
            prop_assert_eq!(fast, scanned.ok().flatten());
        }
    }
}
