//! Evaluation of the field lines together: framing, persistence, host, conditions.
//!
//! Lines are added one at a time, already split and checked; [`Fields::finish`] builds the request.
//! If there are several faults, those that put the framing in doubt (400) take precedence over
//! features that are not implemented (501, 417).

use crate::authority::is_host_and_port;
use crate::grammar::{decimal, elements, is_token, trim_ows};
use crate::request::{Framing, Lines, Request, RequestError, Version};
use crate::request_line::RequestLine;
use crate::status::Status;

/// The fields relevant to the server, as read so far.
#[derive(Default)]
pub(crate) struct Fields<'b> {
    connection: Connection,
    content_length: Option<u64>,
    codings: Codings,
    expect: Expect,
    host: Singleton<'b>,
    range: Singleton<'b>,
    if_range: Singleton<'b>,
    if_modified_since: Singleton<'b>,
    if_unmodified_since: Singleton<'b>,
    if_match: Lines<'b>,
    if_none_match: Lines<'b>,
    accept_encoding: Lines<'b>,
    user_agent: Option<&'b [u8]>,
    referer: Option<&'b [u8]>,
    authorization: Option<&'b [u8]>,
    request_id: Option<&'b [u8]>,
    passes: usize,
}

impl<'b> Fields<'b> {
    /// Adds a field line. Names are case-insensitive; unknown ones are ignored.
    ///
    /// The length selects the candidates, so most lines of a browser's request take one comparison.
    pub(crate) fn add(&mut self, name: &[u8], value: &'b [u8]) -> Result<(), RequestError> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            3 if is(b"via") => self.passes += passes(value),
            4 if is(b"host") => self.host.add(value),
            5 if is(b"range") => self.range.add(value),
            6 if is(b"expect") => self.expect.add(value),
            7 if is(b"referer") => _ = self.referer.get_or_insert(value),
            8 if is(b"if-match") => self.if_match.push(value),
            8 if is(b"if-range") => self.if_range.add(value),
            10 if is(b"connection") => self.connection.add(value),
            10 if is(b"user-agent") => _ = self.user_agent.get_or_insert(value),
            12 if is(b"x-request-id") => _ = self.request_id.get_or_insert(value),
            13 if is(b"if-none-match") => self.if_none_match.push(value),
            13 if is(b"authorization") => _ = self.authorization.get_or_insert(value),
            14 if is(b"content-length") => return self.add_content_length(value),
            15 if is(b"accept-encoding") => self.accept_encoding.push(value),
            17 if is(b"transfer-encoding") => return self.codings.add(value),
            17 if is(b"if-modified-since") => self.if_modified_since.add(value),
            19 if is(b"if-unmodified-since") => self.if_unmodified_since.add(value),
            _ => {}
        }
        Ok(())
    }

    /// Checks the fields against each other and the version, and builds the request.
    pub(crate) fn finish(
        self,
        line: &RequestLine<'b>,
        head: &'b [u8],
    ) -> Result<Request<'b>, RequestError> {
        let framing = self.framing(line.version)?;
        let host = self.host(line.version)?;
        Ok(Request {
            method: line.method,
            target: line.target,
            is_https: line.is_https,
            version: line.version,
            keep_alive: self.connection.keep_alive(line.version),
            framing,
            expect_continue: self.expect.wants_continue(line.version, framing)?,
            host: line.authority.or(host),
            range: if self.if_range.is_repeated() { None } else { self.range.get() },
            if_range: self.if_range.get(),
            if_modified_since: self.if_modified_since.get(),
            if_unmodified_since: self.if_unmodified_since.get(),
            if_match: self.if_match,
            if_none_match: self.if_none_match,
            accept_encoding: self.accept_encoding,
            user_agent: self.user_agent,
            referer: self.referer,
            authorization: self.authorization,
            request_id: self.request_id,
            passes: self.passes,
            head,
            request_line: line.bytes,
            head_len: head.len(),
        })
    }

    /// Adds a Content-Length. A list of equal values may count as the one value (RFC 9110 section
    /// 8.6).
    fn add_content_length(&mut self, value: &[u8]) -> Result<(), RequestError> {
        for element in elements(value) {
            let length = decimal(element).ok_or(RequestError::bad("malformed Content-Length"))?;
            if *self.content_length.get_or_insert(length) != length {
                return Err(RequestError::bad("Content-Length values differ"));
            }
        }
        Ok(())
    }

    /// Determines the framing by RFC 9112 sections 6.1 and 6.3, without the leniency they permit.
    fn framing(&self, version: Version) -> Result<Framing, RequestError> {
        match (self.codings, self.content_length) {
            (Codings::None, None) => Ok(Framing::None),
            (Codings::None, Some(length)) => Ok(Framing::Length(length)),
            (_, Some(_)) => Err(RequestError::bad("Content-Length beside Transfer-Encoding")),
            _ if version == Version::Http10 => {
                Err(RequestError::bad("Transfer-Encoding on HTTP/1.0"))
            }
            (Codings::Chunked, None) => Ok(Framing::Chunked),
            (Codings::Unknown | Codings::UnknownChunked, None) => {
                Err(RequestError::new(Status::NOT_IMPLEMENTED, "unknown transfer coding"))
            }
        }
    }

    /// Returns the Host value. RFC 9112 section 3.2: exactly one on HTTP/1.1, even beside an
    /// absolute-form target.
    fn host(&self, version: Version) -> Result<Option<&'b [u8]>, RequestError> {
        match self.host {
            Singleton::One(host) if is_host_and_port(host) => Ok(Some(host)),
            Singleton::One(_) => Err(RequestError::bad("malformed Host")),
            Singleton::Repeated => Err(RequestError::bad("Host came twice")),
            Singleton::Absent if version == Version::Http10 => Ok(None),
            Singleton::Absent => Err(RequestError::bad("Host is missing")),
        }
    }
}

/// Returns how often a Via field names this program, on whatever machine (RFC 9110 section 7.6.3).
fn passes(via: &[u8]) -> usize {
    let is_ours = |element: &&[u8]| {
        let words = element.split(|byte| matches!(byte, b' ' | b'\t'));
        let by = words.filter(|word| !word.is_empty()).nth(1);
        by.is_some_and(|by| by.eq_ignore_ascii_case(b"weir"))
    };
    elements(via).filter(is_ours).count()
}

/// A field that may occur only once.
#[derive(Clone, Copy, Default)]
enum Singleton<'b> {
    #[default]
    Absent,
    One(&'b [u8]),
    Repeated,
}

impl<'b> Singleton<'b> {
    fn add(&mut self, value: &'b [u8]) {
        *self = match self {
            Self::Absent => Self::One(value),
            Self::One(_) | Self::Repeated => Self::Repeated,
        };
    }

    fn get(self) -> Option<&'b [u8]> {
        match self {
            Self::One(value) => Some(value),
            Self::Absent | Self::Repeated => None,
        }
    }

    fn is_repeated(self) -> bool {
        matches!(self, Self::Repeated)
    }
}

/// The options of Connection that are relevant to a server (RFC 9110 section 7.6.1).
#[derive(Clone, Copy, Default)]
struct Connection {
    close: bool,
    keep_alive: bool,
}

impl Connection {
    fn add(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Returns whether the connection persists (RFC 9112 section 9.3).
    fn keep_alive(self, version: Version) -> bool {
        !self.close && (self.keep_alive || version == Version::Http11)
    }
}

/// The transfer codings so far; all Transfer-Encoding lines count as one list.
#[derive(Clone, Copy, Default)]
enum Codings {
    #[default]
    None,
    /// `chunked` alone.
    Chunked,
    /// Other codings only.
    Unknown,
    /// Other codings, then `chunked`.
    UnknownChunked,
}

impl Codings {
    /// Adds codings. `chunked` ends the list: an element after it is an attempt at smuggling, as is
    /// an empty one or one that is not a token.
    fn add(&mut self, value: &[u8]) -> Result<(), RequestError> {
        for coding in elements(value) {
            *self = match (*self, coding.eq_ignore_ascii_case(b"chunked")) {
                (Self::Chunked | Self::UnknownChunked, _) => {
                    return Err(RequestError::bad("a transfer coding after chunked"));
                }
                (Self::None, true) => Self::Chunked,
                (Self::Unknown, true) => Self::UnknownChunked,
                (Self::None | Self::Unknown, false) => Self::unknown(coding)?,
            };
        }
        Ok(())
    }

    /// Checks a coding other than `chunked`: `token *( OWS ";" OWS parameter )`. `chunked` takes no
    /// parameter.
    fn unknown(coding: &[u8]) -> Result<Self, RequestError> {
        let name = coding.split(|&byte| byte == b';').next().unwrap_or_default();
        let name = trim_ows(name);
        if is_token(name) && !name.eq_ignore_ascii_case(b"chunked") {
            Ok(Self::Unknown)
        } else {
            Err(RequestError::bad("malformed Transfer-Encoding"))
        }
    }
}

/// The expectations of the client (RFC 9110 section 10.1.1).
#[derive(Clone, Copy, Default)]
struct Expect {
    continues: bool,
    unknown: bool,
}

impl Expect {
    fn add(&mut self, value: &[u8]) {
        for expectation in elements(value) {
            let known = expectation.eq_ignore_ascii_case(b"100-continue");
            self.continues |= known;
            self.unknown |= !known;
        }
    }

    fn wants_continue(self, version: Version, framing: Framing) -> Result<bool, RequestError> {
        if version == Version::Http10 {
            return Ok(false);
        }
        if self.unknown {
            return Err(RequestError::new(Status::EXPECTATION_FAILED, "unknown expectation"));
        }
        Ok(self.continues && !matches!(framing, Framing::None | Framing::Length(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Limits;

    /// Builds a request from these lines with the given version; returns the status code if
    /// refused.
    fn finish<'b>(version: &str, lines: &[(&str, &'b str)]) -> Result<Request<'b>, u16> {
        let line: &'static [u8] = match version {
            "1.0" => b"GET / HTTP/1.0",
            _ => b"GET / HTTP/1.1",
        };
        let line = RequestLine::parse(line, &Limits::default()).map_err(|r| r.status.code())?;
        let mut fields = Fields::default();
        if version == "1.1" {
            fields.add(b"Host", b"a").map_err(|r| r.status.code())?;
        }
        for (name, value) in lines {
            fields.add(name.as_bytes(), value.as_bytes()).map_err(|r| r.status.code())?;
        }
        fields.finish(&line, b"").map_err(|r| r.status.code())
    }

    #[test]
    fn connection_and_version_decide_persistence() {
        let cases: [(&str, &[&str], bool); 8] = [
            ("1.1", &[], true),
            ("1.1", &["close"], false),
            ("1.1", &["keep-alive, CLOSE"], false),
            ("1.1", &["upgrade", "close"], false),
            ("1.1", &["closed"], true),
            ("1.0", &[], false),
            ("1.0", &["Keep-Alive"], true),
            ("1.0", &["keep-alive", "close"], false),
        ];
        for (version, values, expected) in cases {
            let lines: Vec<_> = values.iter().map(|value| ("connection", *value)).collect();
            let request = finish(version, &lines).unwrap();
            assert_eq!(request.keep_alive, expected, "{version} {values:?}");
        }
    }

    #[test]
    fn equal_content_lengths_count_as_one() {
        let length = |values: &[&'static str]| {
            let lines: Vec<_> = values.iter().map(|value| ("Content-Length", *value)).collect();
            finish("1.1", &lines).map(|request| request.framing)
        };
        assert_eq!(length(&["5"]), Ok(Framing::Length(5)));
        assert_eq!(length(&["5", "5"]), Ok(Framing::Length(5)));
        assert_eq!(length(&["5, 5"]), Ok(Framing::Length(5)));
        assert_eq!(length(&["18446744073709551615"]), Ok(Framing::Length(u64::MAX)));
        for bad in ["5,", ",5", "5;", "-5"] {
            assert_eq!(length(&[bad]), Err(400), "{bad:?}");
        }
    }

    #[test]
    fn only_chunked_alone_is_a_known_coding() {
        let framing = |values: &[&'static str]| {
            let lines: Vec<_> = values.iter().map(|value| ("Transfer-Encoding", *value)).collect();
            finish("1.1", &lines).map(|request| request.framing)
        };
        assert_eq!(framing(&["chunked"]), Ok(Framing::Chunked));
        assert_eq!(framing(&["CHUNKED"]), Ok(Framing::Chunked));
        for unknown in ["gzip", "gzip, chunked", "identity", "gzip;q=1", "xchunked", "x ;y"] {
            assert_eq!(framing(&[unknown]), Err(501), "{unknown:?}");
        }
        for bad in ["", "chunked,", ",chunked", "chunked;q=1", "chunked ;q", "chunked x", "\"\""] {
            assert_eq!(framing(&[bad]), Err(400), "{bad:?}");
        }
        assert_eq!(framing(&["chunked", "chunked"]), Err(400));
        assert_eq!(framing(&["gzip", "chunked"]), Err(501));
        assert_eq!(framing(&["chunked", "gzip"]), Err(400));
    }

    #[test]
    fn a_repeated_singleton_counts_as_absent() {
        let twice = |name| finish("1.1", &[(name, "x"), (name, "x")]).unwrap();
        assert_eq!(twice("Range").range, None);
        assert_eq!(twice("If-Modified-Since").if_modified_since, None);
        assert_eq!(twice("If-Unmodified-Since").if_unmodified_since, None);
        let once = finish("1.1", &[("RANGE", "x"), ("If-Range", "y")]).unwrap();
        assert_eq!((once.range, once.if_range), (Some(&b"x"[..]), Some(&b"y"[..])));
    }

    #[test]
    fn a_repeated_if_range_disarms_range() {
        let request =
            finish("1.1", &[("Range", "x"), ("If-Range", "y"), ("If-Range", "z")]).unwrap();
        assert_eq!((request.range, request.if_range), (None, None));
    }

    #[test]
    fn fields_land_where_they_belong() {
        let request = finish(
            "1.1",
            &[
                ("if-match", "\"m\""),
                ("if-none-match", "\"n\""),
                ("if-none-match", "\"o\""),
                ("accept-encoding", "br"),
                ("user-agent", "u"),
                ("user-agent", "v"),
                ("referer", "r"),
                ("if-modified-since", "d"),
                ("if-unmodified-since", "e"),
            ],
        )
        .unwrap();
        assert_eq!(request.host, Some(&b"a"[..]));
        assert_eq!(request.if_match.iter().collect::<Vec<_>>(), [b"\"m\""]);
        assert_eq!(request.if_none_match.iter().collect::<Vec<_>>(), [b"\"n\"", b"\"o\""]);
        assert_eq!(request.accept_encoding.iter().collect::<Vec<_>>(), [b"br"]);
        assert_eq!(request.user_agent, Some(&b"u"[..]));
        assert_eq!(request.referer, Some(&b"r"[..]));
        assert_eq!(request.if_modified_since, Some(&b"d"[..]));
        assert_eq!(request.if_unmodified_since, Some(&b"e"[..]));
    }

    #[test]
    fn a_request_has_passed_as_often_as_via_says() {
        let cases: [(&[_], usize); 4] = [
            (&[], 0),
            (&[("Via", "1.1 weir")], 1),
            (
                &[
                    ("via", "1.0 other,HTTP/1.1\t Weir (a comment)"),
                    ("A", "1.1 weir"),
                    ("VIA", "2 weir"),
                ],
                2,
            ),
            (&[("Via", "weir, 1.1 weir2, 1.1 my.weir:80, 1.1 x (1.1 weir)")], 0),
        ];
        for (lines, passed) in cases {
            assert_eq!(finish("1.1", lines).unwrap().passes, passed, "{lines:?}");
        }
    }

    #[test]
    fn expect_is_honoured_only_with_content_on_1_1() {
        let expects = |version, lines: &[(&'static str, &'static str)]| {
            finish(version, lines).map(|request| request.expect_continue)
        };
        assert_eq!(
            expects("1.1", &[("Expect", "100-Continue"), ("Content-Length", "1")]),
            Ok(true)
        );
        assert_eq!(
            expects("1.1", &[("Expect", "100-continue"), ("Content-Length", "0")]),
            Ok(false)
        );
        assert_eq!(expects("1.1", &[("Expect", "100-continue")]), Ok(false));
        assert_eq!(
            expects("1.0", &[("Expect", "100-continue"), ("Content-Length", "1")]),
            Ok(false)
        );
        assert_eq!(expects("1.0", &[("Expect", "x")]), Ok(false));
    }

    #[test]
    fn doubtful_framing_wins_over_what_is_not_done() {
        let lines = [("Transfer-Encoding", "gzip"), ("Content-Length", "5"), ("Expect", "x")];
        assert_eq!(finish("1.1", &lines).err(), Some(400));
        assert_eq!(finish("none", &[("Expect", "x")]).err(), Some(400), "Host is missing");
    }
}
