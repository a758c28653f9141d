//! The request line: method, target, version (RFC 9112 section 3).

use crate::authority::is_host_and_port;
use crate::grammar::{is_tchar, is_token};
use crate::method::Method;
use crate::request::{Limits, RequestError, Target, Version};
use crate::status::Status;

/// Maximum length of a method. The longest of the registry has half of it, and one byte.
const METHOD_BYTES_MAX: usize = 32;

/// The longest tail of a well-formed line after the target.
const TAIL: &[u8] = b" HTTP/1.1\r";

/// A parsed request line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLine<'b> {
    pub(crate) method: Method,
    pub(crate) target: Target<'b>,
    /// The authority of an absolute-form target, which takes precedence over Host.
    pub(crate) authority: Option<&'b [u8]>,
    /// True if an absolute-form target has the scheme https.
    pub(crate) is_https: bool,
    pub(crate) version: Version,
    /// The whole line without its CRLF.
    pub(crate) bytes: &'b [u8],
}

impl<'b> RequestLine<'b> {
    /// Parses a line without its CRLF.
    ///
    /// The version is checked before method and target, so that the HTTP/2 preface gets its 505.
    pub(crate) fn parse(bytes: &'b [u8], limits: &Limits) -> Result<Self, RequestError> {
        let mut parts = bytes.splitn(3, |&byte| byte == b' ');
        let (Some(method), Some(target), Some(version)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(RequestError::bad("request line is not three words"));
        };
        if !is_token(method) {
            return Err(RequestError::bad("method is not a token"));
        }
        let version = parse_version(version)?;
        Self::from_parts(method, target, version, bytes, limits)
    }

    /// Checks parts that have already been split. `method` must be a token.
    pub(crate) fn from_parts(
        method: &'b [u8],
        target: &'b [u8],
        version: Version,
        bytes: &'b [u8],
        limits: &Limits,
    ) -> Result<Self, RequestError> {
        if target.len() > limits.target_bytes_max {
            return Err(TARGET_TOO_LONG);
        }
        let method = Method::from_bytes(method).ok_or(UNKNOWN_METHOD)?;
        let Absolute { target, authority, is_https } = parse_target(method, target)?;
        Ok(Self { method, target, authority, is_https, version, bytes })
    }
}

/// Refuses a line, possibly incomplete, that can no longer become valid.
///
/// `line` has no LF, but may have the CR before it. The verdict on a prefix is the verdict on every
/// line that starts with it, because it depends on a fixed number of bytes. Until these have
/// arrived, only the method is examined.
pub(crate) fn check_length(line: &[u8], limits: &Limits) -> Result<(), RequestError> {
    let start = line.get(..=METHOD_BYTES_MAX).unwrap_or(line);
    let Some(space) = memchr::memchr(b' ', start) else {
        return check_method_length(start);
    };
    let target = line.get(space + 1..).unwrap_or_default();
    let target_max = limits.target_bytes_max;
    if target.len() <= target_max.saturating_add(TAIL.len()) {
        return Ok(());
    }
    let within_limit = target.get(..=target_max).unwrap_or(target);
    match memchr::memchr(b' ', within_limit) {
        Some(_) => Err(RequestError::bad("request line is not three words")),
        None => Err(TARGET_TOO_LONG),
    }
}

fn check_method_length(start: &[u8]) -> Result<(), RequestError> {
    if start.len() <= METHOD_BYTES_MAX {
        Ok(())
    } else if start.iter().copied().all(is_tchar) {
        Err(UNKNOWN_METHOD)
    } else {
        Err(RequestError::bad("method is not a token"))
    }
}

/// Parses an `HTTP-version`, which is case-sensitive and has one digit on each side (RFC 9112
/// section 2.3).
fn parse_version(bytes: &[u8]) -> Result<Version, RequestError> {
    match bytes {
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            if *major == b'1' {
                Ok(Version::Http11)
            } else {
                Err(UNKNOWN_VERSION)
            }
        }
        _ => Err(RequestError::bad("malformed version")),
    }
}

/// A target, with what one in absolute-form says besides.
struct Absolute<'b> {
    target: Target<'b>,
    authority: Option<&'b [u8]>,
    is_https: bool,
}

fn parse_target(method: Method, target: &[u8]) -> Result<Absolute<'_>, RequestError> {
    let plain = |target| Absolute { target, authority: None, is_https: false };
    if !is_target(target) {
        return Err(RequestError::bad("forbidden byte in target"));
    }
    match (method, target) {
        (Method::Connect, [_, ..]) | (Method::Options, b"*") => Ok(plain(Target::Asterisk)),
        (_, [b'/', ..]) => Ok(plain(split_query(target))),
        _ => parse_absolute(method, target).ok_or(RequestError::bad("malformed target")),
    }
}

/// Returns whether every byte is visible ASCII other than `#`.
///
/// Stricter than `httparse`, which accepts `#` and UTF-8; more lenient than RFC 3986, because
/// browsers do send `|` and the like. There is no early exit, so that the loop is vectorised.
fn is_target(target: &[u8]) -> bool {
    target.iter().fold(true, |good, &byte| good & byte.is_ascii_graphic() & (byte != b'#'))
}

/// Parses `http://host[:port][/path][?query]`, or the same with https (RFC 9112 section 3.2.2). The
/// URI of a whole server, as OPTIONS asks for, has neither path nor query (section 3.2.4).
fn parse_absolute(method: Method, target: &[u8]) -> Option<Absolute<'_>> {
    split_absolute(method, target).filter(|it| it.authority.is_some_and(is_host_and_port))
}

/// Splits such a target, whatever its authority is.
fn split_absolute(method: Method, target: &[u8]) -> Option<Absolute<'_>> {
    let scheme_len = memchr::memchr(b':', target)?;
    let (scheme, rest) = target.split_at_checked(scheme_len)?;
    let is_https = scheme.eq_ignore_ascii_case(b"https");
    let rest = rest.strip_prefix(b"://")?;
    let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at_checked(end)?;
    let is_valid = is_https || scheme.eq_ignore_ascii_case(b"http");
    let target = match method {
        Method::Options if path_and_query.is_empty() => Target::Asterisk,
        _ => split_query(path_and_query),
    };
    is_valid.then_some(Absolute { target, authority: Some(authority), is_https })
}

/// Parses the value of a Destination field (RFC 4918 section 10.3), an absolute URI or an absolute
/// path: the host that it names, if it does, and its target. `None` if it is neither. Clients that
/// keep a user's name in their URIs write it here too (`http://user@host/`); it is left out.
#[must_use]
pub fn parse_destination(value: &[u8]) -> Option<(Option<&[u8]>, Target<'_>)> {
    if !is_target(value) || value.starts_with(b"//") {
        return None;
    }
    let method = Method::from_bytes(b"COPY")?;
    if value.starts_with(b"/") {
        return Some((None, split_query(value)));
    }
    let Absolute { target, authority, .. } = split_absolute(method, value)?;
    let host = authority?.rsplit(|&byte| byte == b'@').next()?;
    is_host_and_port(host).then_some((Some(host), target))
}

fn split_query(target: &[u8]) -> Target<'_> {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at_checked(end).unwrap_or((target, b""));
    Target::Path { path: if path.is_empty() { b"/" } else { path }, query: query.get(1..) }
}

const TARGET_TOO_LONG: RequestError = RequestError::new(Status::URI_TOO_LONG, "target too long");
const UNKNOWN_METHOD: RequestError = RequestError::new(Status::NOT_IMPLEMENTED, "unknown method");
const UNKNOWN_VERSION: RequestError =
    RequestError::new(Status::VERSION_NOT_SUPPORTED, "unknown major version");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_uri_or_a_path() {
        let path = |path| Target::Path { path, query: None };
        for (value, host, target) in [
            ("/a/b", None, path(b"/a/b")),
            ("http://h:80/a", Some(&b"h:80"[..]), path(b"/a")),
            ("HTTPS://h", Some(b"h"), path(b"/")),
            ("http://u@h/a@b", Some(b"h"), path(b"/a@b")),
            ("http://u:p@v@h:8/", Some(b"h:8"), path(b"/")),
            ("/a?b", None, Target::Path { path: b"/a", query: Some(b"b") }),
        ] {
            assert_eq!(parse_destination(value.as_bytes()), Some((host, target)), "{value}");
        }
        let ours = ["", "a", "*", "//h/a", "/a#b", "/a b"];
        for malformed in ours.into_iter().chain(["ftp://h/", "http://u@/", "http:///a"]) {
            assert_eq!(parse_destination(malformed.as_bytes()), None, "{malformed}");
        }
    }

    fn parse(line: &str) -> Result<RequestLine<'_>, u16> {
        RequestLine::parse(line.as_bytes(), &Limits::default()).map_err(|r| r.status.code())
    }

    fn path(line: &str) -> (&[u8], Option<&[u8]>) {
        match parse(line).map(|line| line.target) {
            Ok(Target::Path { path, query }) => (path, query),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn origin_form() {
        assert_eq!(path("GET / HTTP/1.1"), (&b"/"[..], None));
        assert_eq!(path("GET /a%20b?c?d HTTP/1.1"), (&b"/a%20b"[..], Some(&b"c?d"[..])));
        assert_eq!(path("GET //x? HTTP/1.0"), (&b"//x"[..], Some(&b""[..])));
    }

    #[test]
    fn absolute_form_is_reduced_to_its_path() {
        assert_eq!(path("GET http://a HTTP/1.1"), (&b"/"[..], None));
        assert_eq!(path("GET HTTP://a:80/b?c HTTP/1.1"), (&b"/b"[..], Some(&b"c"[..])));
        assert_eq!(path("GET http://[::1]?c HTTP/1.1"), (&b"/"[..], Some(&b"c"[..])));
        assert_eq!(parse("GET http://a:80/ HTTP/1.1").unwrap().authority, Some(&b"a:80"[..]));
        for bad in
            ["http:///b", "http://u@a/", "https:///b", "ftp://a/", "http:/a", "a", "a:80", "://a/"]
        {
            assert_eq!(parse(&format!("GET {bad} HTTP/1.1")).err(), Some(400), "{bad:?}");
        }
    }

    #[test]
    fn absolute_form_says_whether_it_is_secured() {
        let is_https = |target: &str| parse(&format!("GET {target} HTTP/1.1")).unwrap().is_https;
        assert!(is_https("https://a/") && is_https("HTTPS://a:443/b?c"));
        assert!(!is_https("http://a/") && !is_https("/https://a/"));
        assert_eq!(path("GET https://a:443/b?c HTTP/1.1"), (&b"/b"[..], Some(&b"c"[..])));
        assert_eq!(parse("GET https://a HTTP/1.1").unwrap().authority, Some(&b"a"[..]));
    }

    #[test]
    fn the_uri_of_a_whole_server_is_an_asterisk() {
        let line = parse("OPTIONS http://a:80 HTTP/1.1").unwrap();
        assert_eq!((line.target, line.authority), (Target::Asterisk, Some(&b"a:80"[..])));
        assert_eq!(path("OPTIONS http://a/ HTTP/1.1"), (&b"/"[..], None));
        assert_eq!(path("OPTIONS http://a? HTTP/1.1"), (&b"/"[..], Some(&b""[..])));
        assert_eq!(path("PROPFIND http://a HTTP/1.1"), (&b"/"[..], None));
    }

    #[test]
    fn asterisk_and_authority_form() {
        assert_eq!(parse("OPTIONS * HTTP/1.1").unwrap().target, Target::Asterisk);
        assert_eq!(parse("CONNECT a:443 HTTP/1.1").unwrap().target, Target::Asterisk);
        assert_eq!(parse("GET * HTTP/1.1").err(), Some(400));
        assert_eq!(parse("CONNECT  HTTP/1.1").err(), Some(400));
    }

    #[test]
    fn versions() {
        assert_eq!(parse("GET / HTTP/1.0").unwrap().version, Version::Http10);
        assert_eq!(parse("GET / HTTP/1.1").unwrap().version, Version::Http11);
        assert_eq!(parse("GET / HTTP/1.9").unwrap().version, Version::Http11);
        for (version, status) in
            [("HTTP/2.0", 505), ("HTTP/0.9", 505), ("HTTP/1", 400), ("HTTP/1.10", 400), ("", 400)]
        {
            assert_eq!(parse(&format!("GET / {version}")).err(), Some(status), "{version:?}");
        }
    }

    #[test]
    fn lines_that_are_not_three_words() {
        for bad in ["", "GET", "GET /", "GET  / HTTP/1.1", "GET /  HTTP/1.1", "GET / HTTP/1.1 "] {
            assert_eq!(parse(bad).err(), Some(400), "{bad:?}");
        }
    }

    #[test]
    fn an_overlong_line_gets_one_verdict_at_every_length() {
        let limits = Limits { target_bytes_max: 8, ..Limits::default() };
        let cases = [
            ("M".repeat(60), 501),
            (format!("{}@{}", "M".repeat(9), "M".repeat(60)), 400),
            (format!("GET /{}", "a".repeat(60)), 414),
            (format!("GET /a {}", "b".repeat(60)), 400),
        ];
        for (line, status) in &cases {
            let verdicts: Vec<_> = (0..=line.len())
                .filter_map(|end| check_length(&line.as_bytes()[..end], &limits).err())
                .map(|refusal| refusal.status.code())
                .collect();
            assert!(verdicts.len() > 20, "{line:?}");
            assert!(verdicts.iter().all(|verdict| verdict == status), "{line:?}: {verdicts:?}");
        }
    }

    #[test]
    fn a_target_at_the_limit_passes() {
        let limits = Limits { target_bytes_max: 8, ..Limits::default() };
        for (target, good) in [("/1234567", true), ("/12345678", false)] {
            let line = format!("OPTIONS {target} HTTP/1.1");
            let expected = (!good).then_some(Status::URI_TOO_LONG);
            let parsed = RequestLine::parse(line.as_bytes(), &limits);
            assert_eq!(parsed.err().map(|refusal| refusal.status), expected);
            let early = check_length(format!("{line}\r").as_bytes(), &limits);
            assert_eq!(early.err().map(|refusal| refusal.status), expected);
        }
    }
}
