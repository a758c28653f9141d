//! Parser for a reply's head, a line at a time: its status, and the framing of its body and the
//! persistence of its connection as given by its fields.
//!
//! Independence of how the input is split: a line is checked once it has ended, whether it arrived
//! whole or in pieces; the only earlier verdict, on the first five bytes, is the same either way.

use super::error::ReplyError;
use crate::grammar::{decimal, elements, is_tchar, is_value_byte};
use crate::request::Version;

/// Prefix of the first line of every reply (RFC 9112 section 2.3).
const NAME: &[u8] = b"HTTP/";

const NOT_HTTP: ReplyError = ReplyError { why: "not HTTP" };
const MALFORMED_FIELD: ReplyError = ReplyError { why: "malformed field line" };

/// End of a reply's body, as determined by its head (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// Ends after this many bytes.
    Length(u64),
    /// Ends with the last chunk.
    Chunked,
    /// Ends with the connection.
    Close,
}

/// A head, as parsed so far.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Version and code of the status line, once it has arrived.
    status: Option<(Version, u16)>,
    content_length: Option<u64>,
    codings: Codings,
    /// True if there is a transfer coding besides `chunked`.
    is_coded: bool,
    close: bool,
    keep_alive: bool,
    /// True if the line before this one was a framing or connection field.
    after_known: bool,
    /// True if a line was folded onto the one before it.
    is_folded: bool,
    /// The start of a line that has not ended yet.
    cut_line: Vec<u8>,
}

/// The transfer codings; all `Transfer-Encoding` lines count as one list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Codings {
    #[default]
    None,
    /// The last coding is not `chunked`: the body ends with the connection.
    Others,
    /// The last coding is `chunked`.
    Chunked,
}

impl Head {
    /// Consumes lines up to the empty one that ends the head. Returns the number of bytes consumed
    /// and whether the head has ended.
    pub(crate) fn advance(&mut self, input: &[u8]) -> Result<(usize, bool), ReplyError> {
        let mut start = 0;
        for lf in memchr::memchr_iter(b'\n', input) {
            let line = input.get(start..lf).unwrap_or_default();
            start = lf + 1;
            if self.end_line(line)? {
                return Ok((start, true));
            }
        }
        self.cut_line.extend_from_slice(input.get(start..).unwrap_or_default());
        let front = self.cut_line.get(..NAME.len()).unwrap_or(&self.cut_line);
        if self.status.is_none() && !NAME.starts_with(front) {
            return Err(NOT_HTTP);
        }
        Ok((input.len(), false))
    }

    /// Returns the status code; 0 until the status line has arrived.
    pub(crate) fn status(&self) -> u16 {
        self.status.map_or(0, |(_, status)| status)
    }

    /// Returns whether a line was folded onto the one before it (RFC 9112 section 5.2).
    pub(crate) fn is_folded(&self) -> bool {
        self.is_folded
    }

    /// Returns whether there is a transfer coding besides `chunked`.
    pub(crate) fn is_coded(&self) -> bool {
        self.is_coded
    }

    /// Returns whether the connection is to stay open, apart from its framing (RFC 9112 section
    /// 9.3).
    pub(crate) fn keeps_open(&self) -> bool {
        let by_default = matches!(self.status, Some((Version::Http11, _)));
        !self.close && (self.keep_alive || by_default)
    }

    /// Determines the end of the body, if there is one, by RFC 9112 section 6.3 without the
    /// leniency it permits.
    pub(crate) fn body_end(&self) -> Result<BodyEnd, ReplyError> {
        match (self.codings, self.content_length) {
            (Codings::None, None) => Ok(BodyEnd::Close),
            (Codings::None, Some(length)) => Ok(BodyEnd::Length(length)),
            (_, Some(_)) => Err(ReplyError { why: "Content-Length beside Transfer-Encoding" }),
            _ if !matches!(self.status, Some((Version::Http11, _))) => {
                Err(ReplyError { why: "Transfer-Encoding on HTTP/1.0" })
            }
            (Codings::Chunked, None) => Ok(BodyEnd::Chunked),
            (Codings::Others, None) => Ok(BodyEnd::Close),
        }
    }

    /// Processes the rest of a line whose LF has been removed. Returns true for the empty line.
    fn end_line(&mut self, rest: &[u8]) -> Result<bool, ReplyError> {
        if self.cut_line.is_empty() {
            return self.take_line(rest);
        }
        let mut line = std::mem::take(&mut self.cut_line);
        line.extend_from_slice(rest);
        let ended = self.take_line(&line);
        line.clear();
        self.cut_line = line;
        ended
    }

    /// Processes a line, which may end in LF alone (RFC 9112 section 2.2): old servers send this,
    /// and it is harmless in a head that is only counted.
    fn take_line(&mut self, line: &[u8]) -> Result<bool, ReplyError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.status.is_none() {
            self.status = Some(status_line(line)?);
            return Ok(false);
        }
        match line {
            [] => return Ok(true),
            [b' ' | b'\t', ..] => {
                self.is_folded = true;
                self.fold(line)?;
            }
            _ => self.take_field(line)?,
        }
        Ok(false)
    }

    /// Processes a line folded onto the previous one by `obs-fold` (RFC 9112 section 5.2). Folding
    /// is refused only for fields whose value is evaluated, which no server folds.
    fn fold(&self, line: &[u8]) -> Result<(), ReplyError> {
        if self.after_known {
            return Err(ReplyError { why: "folded framing field" });
        }
        if is_text(line) { Ok(()) } else { Err(MALFORMED_FIELD) }
    }

    fn take_field(&mut self, line: &[u8]) -> Result<(), ReplyError> {
        let (name, value) = split_field(line).ok_or(MALFORMED_FIELD)?;
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        self.after_known = true;
        match name.len() {
            10 if is(b"connection") => self.add_connection(value),
            14 if is(b"content-length") => return self.add_length(value),
            17 if is(b"transfer-encoding") => return self.add_codings(value),
            _ => self.after_known = false,
        }
        Ok(())
    }

    fn add_connection(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Adds a Content-Length. A list of equal values may count as the one value (RFC 9110 section
    /// 8.6).
    fn add_length(&mut self, value: &[u8]) -> Result<(), ReplyError> {
        for element in elements(value) {
            let length = decimal(element).ok_or(ReplyError { why: "malformed Content-Length" })?;
            if *self.content_length.get_or_insert(length) != length {
                return Err(ReplyError { why: "Content-Length values differ" });
            }
        }
        Ok(())
    }

    /// Adds transfer codings. `chunked` may occur once only, as the last one (RFC 9112 section
    /// 6.1).
    fn add_codings(&mut self, value: &[u8]) -> Result<(), ReplyError> {
        for coding in elements(value).filter(|coding| !coding.is_empty()) {
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.is_coded |= !is_chunked;
            self.codings = match (self.codings, is_chunked) {
                (Codings::Chunked, _) => {
                    return Err(ReplyError { why: "a transfer coding after chunked" });
                }
                (_, true) => Codings::Chunked,
                (_, false) => Codings::Others,
            };
        }
        Ok(())
    }
}

/// Parses `HTTP/1.x SP 3DIGIT [ SP reason ]` (RFC 9112 section 4). Old servers omit the second
/// space along with the reason. A later minor version counts as 1.1 (RFC 9110 section 2.5).
fn status_line(line: &[u8]) -> Result<(Version, u16), ReplyError> {
    let rest = line.strip_prefix(NAME).ok_or(NOT_HTTP)?;
    let (version, rest) = match rest {
        [b'1', b'.', b'0', b' ', rest @ ..] => (Version::Http10, rest),
        [b'1', b'.', b'1'..=b'9', b' ', rest @ ..] => (Version::Http11, rest),
        _ => return Err(ReplyError { why: "not HTTP/1" }),
    };
    let (code, reason) = match rest {
        [code @ .., b' '] if code.len() == 3 => (code, &[][..]),
        _ => rest.split_at_checked(3).unwrap_or_default(),
    };
    let reason_is_text = reason.is_empty() || (reason.starts_with(b" ") && is_text(reason));
    match decimal(code) {
        Some(status @ 100..600) if reason_is_text => Ok((version, status as u16)),
        _ => Err(ReplyError { why: "malformed status line" }),
    }
}

/// Splits a field line into name and value, if it is valid (RFC 9112 section 5): equivalent to
/// `grammar::field_line`, but in one pass over the name and without trimming.
fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| !is_tchar(byte)).filter(|&at| at > 0)?;
    let (name, value) = line.split_at_checked(colon)?;
    let value = value.strip_prefix(b":")?;
    is_text(value).then_some((name, value))
}

/// Returns whether all bytes are allowed in a value. There is no early exit, so that the loop is
/// vectorised.
fn is_text(value: &[u8]) -> bool {
    value.iter().fold(true, |valid, &byte| valid & is_value_byte(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head, &'static str> {
        let mut head = Head::default();
        let bytes = format!("{text}\r\n\r\n");
        let (taken, ended) = head.advance(bytes.as_bytes()).map_err(|bad| bad.why)?;
        assert_eq!((taken, ended), (bytes.len(), true), "{text:?}");
        Ok(head)
    }

    fn body_end(fields: &str) -> Result<BodyEnd, &'static str> {
        head(&format!("HTTP/1.1 200 OK\r\n{fields}"))?.body_end().map_err(|bad| bad.why)
    }

    #[test]
    fn status_lines() {
        for (line, status) in [
            ("HTTP/1.1 200 OK", 200),
            ("HTTP/1.1 404 Not Found", 404),
            ("HTTP/1.1 599 ", 599),
            ("HTTP/1.0 100", 100),
            ("HTTP/1.2 200 \tcaf\u{e9}", 200),
        ] {
            assert_eq!(head(line).unwrap().status(), status, "{line:?}");
        }
    }

    #[test]
    fn garbage_status_lines() {
        for (why, lines) in [
            ("not HTTP", &["", "\u{16}\u{3}\u{1}", "http/1.1 200 OK", "SSH-2.0-x", "HTTP 200"][..]),
            ("not HTTP/1", &["HTTP/2 200", "HTTP/2.0 200 OK", "HTTP/1.1", "HTTP/1.10 200 OK"]),
            (
                "malformed status line",
                &[
                    "HTTP/1.1 ",
                    "HTTP/1.1 20",
                    "HTTP/1.1 2000",
                    "HTTP/1.1  200",
                    "HTTP/1.1 +20 OK",
                    "HTTP/1.1 099 OK",
                    "HTTP/1.1 600 OK",
                    "HTTP/1.1 200OK",
                    "HTTP/1.1 200 \0",
                ],
            ),
        ] {
            for line in lines {
                assert_eq!(head(line).err(), Some(why), "{line:?}");
            }
        }
    }

    #[test]
    fn a_reply_that_is_not_http_is_known_before_its_line_ends() {
        for (front, bad) in [("", false), ("HTT", false), ("HTTP/9", false), ("X", true)] {
            assert_eq!(Head::default().advance(front.as_bytes()).is_err(), bad, "{front:?}");
        }
    }

    #[test]
    fn fields_say_how_the_body_ends() {
        assert_eq!(body_end("A: b"), Ok(BodyEnd::Close));
        assert_eq!(body_end("content-length: 5"), Ok(BodyEnd::Length(5)));
        assert_eq!(body_end("Content-Length: 5\r\nContent-Length: 5"), Ok(BodyEnd::Length(5)));
        assert_eq!(body_end("Content-Length: 5, 05"), Ok(BodyEnd::Length(5)));
        assert_eq!(body_end("Transfer-Encoding: Chunked"), Ok(BodyEnd::Chunked));
        assert_eq!(body_end("Transfer-Encoding: gzip, chunked"), Ok(BodyEnd::Chunked));
        let two_lines = body_end("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked,");
        assert_eq!(two_lines, Ok(BodyEnd::Chunked));
        assert_eq!(body_end("Transfer-Encoding: gzip"), Ok(BodyEnd::Close));
    }

    #[test]
    fn doubtful_framing_is_refused() {
        for (fields, why) in [
            ("Content-Length: 5\r\nContent-Length: 6", "Content-Length values differ"),
            ("Content-Length: 5, 6", "Content-Length values differ"),
            ("Content-Length: +5", "malformed Content-Length"),
            ("Content-Length:", "malformed Content-Length"),
            ("Content-Length: 18446744073709551616", "malformed Content-Length"),
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                "Content-Length beside Transfer-Encoding",
            ),
            ("Transfer-Encoding: chunked, gzip", "a transfer coding after chunked"),
            ("Transfer-Encoding: chunked, chunked", "a transfer coding after chunked"),
            ("A : b", "malformed field line"),
            ("A", "malformed field line"),
            ("A: \0", "malformed field line"),
            ("A: b\r\n \0", "malformed field line"),
            ("Content-Length:\r\n 5", "malformed Content-Length"),
            ("Content-Length: 5\r\n 6", "folded framing field"),
        ] {
            assert_eq!(body_end(fields), Err(why), "{fields:?}");
        }
        let old = head("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked").unwrap().body_end();
        assert_eq!(old.unwrap_err().why, "Transfer-Encoding on HTTP/1.0");
    }

    #[test]
    fn a_fold_that_changes_nothing_is_skipped() {
        assert_eq!(
            body_end("Content-Length: 5\r\nA: b\r\n Content-Length: 6"),
            Ok(BodyEnd::Length(5))
        );
    }

    #[test]
    fn connection_and_version_decide_persistence() {
        for (version, value, expected) in [
            ("1.1", "upgrade", true),
            ("1.1", "close", false),
            ("1.1", "keep-alive, CLOSE", false),
            ("1.0", "upgrade", false),
            ("1.0", "Keep-Alive", true),
            ("1.0", "keep-alive, close", false),
        ] {
            let head = head(&format!("HTTP/{version} 200 OK\r\nConnection: {value}")).unwrap();
            assert_eq!(head.keeps_open(), expected, "{version} {value}");
        }
    }
}
