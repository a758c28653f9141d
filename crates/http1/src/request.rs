//! The parsed request: types only, no parsing of lines.
//!
//! A [`Request`] borrows from the buffer it was parsed from. Values stay raw bytes: ranges and
//! entity tags are interpreted where the content is served.

use crate::method::Method;
use crate::status::Status;

/// The protocol version. HTTP/1.2 to HTTP/1.9 count as 1.1 (RFC 9110 section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, or a later minor version
    Http11,
}

/// The request target (RFC 9112 section 3.2).
///
/// It contains no space, `#`, control, or byte of 0x80 and above. Nothing is percent-decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// Origin-form, or absolute-form reduced to it.
    Path {
        /// The path, which starts with `/`.
        path: &'b [u8],
        /// The part after the first `?`, without it.
        query: Option<&'b [u8]>,
    },
    /// `*`, from OPTIONS only, also as a URI with neither path nor query (RFC 9112 section 3.2.4);
    /// or any target of CONNECT.
    Asterisk,
}

impl<'b> Target<'b> {
    /// Returns the path by which a request is routed; that of an asterisk is `/`.
    #[must_use]
    pub const fn path(&self) -> &'b [u8] {
        match *self {
            Self::Path { path, .. } => path,
            Self::Asterisk => b"/",
        }
    }
}

/// Delimitation of the request's content (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no content.
    None,
    /// This many bytes follow the head.
    Length(u64),
    /// Chunks follow the head (RFC 9112 section 7.1).
    Chunked,
}

/// The values of a list field, one per field line, in order.
///
/// Up to four lines are kept; no honest client sends more of one field. Dropping the others is
/// harmless: a compressed variant or a 304 is missed, or If-Match fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines<'b> {
    kept: [Option<&'b [u8]>; 4],
}

impl<'b> Lines<'b> {
    /// Returns the values, trimmed, each possibly a comma-separated list.
    pub fn iter(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        self.kept.into_iter().flatten()
    }

    /// Returns whether the field was absent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kept[0].is_none()
    }

    pub(crate) fn push(&mut self, value: &'b [u8]) {
        if let Some(slot) = self.kept.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(value);
        }
    }
}

/// A request's head. Slices point into the buffer it was parsed from.
///
/// Field values are trimmed and contain no control but HTAB. Bytes of 0x80 and above may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'b> {
    /// The method.
    pub method: Method,
    /// The target.
    pub target: Target<'b>,
    /// True if the target has the scheme https: it must then have come by a secured connection, or
    /// by a trusted proxy (RFC 9110 section 7.4), which is the caller's to check.
    pub is_https: bool,
    /// The version.
    pub version: Version,
    /// True if the client wants the connection to stay open (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Delimitation of the content.
    pub framing: Framing,
    /// True if the client waits for `100 Continue` before it sends content. Never set if there is
    /// no content to wait for, or on HTTP/1.0.
    pub expect_continue: bool,
    /// `host[:port]`, well formed: from an absolute-form target, otherwise from Host. Always
    /// present on HTTP/1.1.
    pub host: Option<&'b [u8]>,
    /// Range. Also absent if If-Range was repeated, because its condition is then unknown.
    pub range: Option<&'b [u8]>,
    /// If-Range; absent if repeated.
    pub if_range: Option<&'b [u8]>,
    /// If-Modified-Since; absent if repeated.
    pub if_modified_since: Option<&'b [u8]>,
    /// If-Unmodified-Since; absent if repeated.
    pub if_unmodified_since: Option<&'b [u8]>,
    /// If-Match.
    pub if_match: Lines<'b>,
    /// If-None-Match.
    pub if_none_match: Lines<'b>,
    /// Accept-Encoding.
    pub accept_encoding: Lines<'b>,
    /// The first User-Agent; for logs, which must escape it.
    pub user_agent: Option<&'b [u8]>,
    /// The first Referer; for logs, which must escape it.
    pub referer: Option<&'b [u8]>,
    /// The first Authorization.
    pub authorization: Option<&'b [u8]>,
    /// The first X-Request-Id.
    pub request_id: Option<&'b [u8]>,
    /// Number of times that it has come through this program, on whatever machine, by its Via (RFC
    /// 9110 section 7.6.3).
    pub passes: usize,
    /// The head, including empty lines before and after.
    pub head: &'b [u8],
    /// The request line without its CRLF: printable ASCII.
    pub request_line: &'b [u8],
    /// Length of the head from the start of the buffer, including empty lines before and after,
    /// bytes.
    pub head_len: usize,
}

/// Limits on the size of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of the target, bytes; beyond: 414.
    pub target_bytes_max: usize,
    /// Maximum length of the whole head, bytes; beyond: 431, or 414 if the request line alone fills
    /// it.
    pub head_bytes_max: usize,
    /// Maximum number of field lines; beyond: 431.
    pub fields_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { target_bytes_max: 16 << 10, head_bytes_max: 64 << 10, fields_max: 100 }
    }
}

/// A protocol violation by the peer. Send `status`, then close: the following bytes cannot be
/// trusted to be a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// Status to reply with.
    pub status: Status,
    /// The rule that was broken, for logs and counters.
    pub why: &'static str,
}

impl RequestError {
    pub(crate) const fn new(status: Status, why: &'static str) -> Self {
        Self { status, why }
    }

    /// Creates a refusal with status 400.
    pub(crate) const fn bad(why: &'static str) -> Self {
        Self::new(Status::BAD_REQUEST, why)
    }
}

/// Result of parsing the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "short-lived; boxing would allocate per request")]
pub enum Parse<'b> {
    /// No error yet, but the head is incomplete. Read more.
    Partial,
    /// The head is complete. Content starts at [`Request::head_len`].
    Complete(Request<'b>),
    /// The bytes cannot become a valid request.
    Refused(RequestError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keeps_the_first_four() {
        let mut lines = Lines::default();
        assert!(lines.is_empty());
        for value in [&b"a"[..], b"", b"c", b"d", b"e"] {
            lines.push(value);
        }
        assert!(!lines.is_empty());
        assert_eq!(lines.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"c", b"d"]);
    }
}
