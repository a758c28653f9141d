//! The field lines of a head that is forwarded: which are passed on, and which end here.

use std::cmp::Ordering;

use crate::grammar::{decimal, elements, field_line, trim_ows};
use crate::request::Version;

/// Maximum number of a Connection field's options that are looked for one after the other.
const OPTIONS_MAX: usize = 16;

/// Returns the field line that names this program among those that a message came through, with the
/// version in which it came (RFC 9110 section 7.6.3). A loop of proxies shows by it, see
/// [`Request::passes`](crate::Request::passes).
pub(super) fn via(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"Via: 1.0 weir\r\n",
        Version::Http11 => b"Via: 1.1 weir\r\n",
    }
}

/// Returns the Via line (RFC 9110 section 7.6.3) for a reply with this head, which was checked
/// before.
#[must_use]
pub fn via_of_reply(head: &[u8]) -> &'static [u8] {
    via(if head.starts_with(b"HTTP/1.0") { Version::Http10 } else { Version::Http11 })
}

/// Iterates over the field lines of a complete head that was checked before, as names and values.
/// Empty lines in front of it are skipped, and so is its first line.
pub fn lines(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let is_start = |byte: &u8| !matches!(byte, b'\r' | b'\n');
    let start = head.iter().position(is_start).unwrap_or(head.len());
    let text = head.get(start..).unwrap_or_default();
    let first_end = memchr::memchr(b'\n', text).map_or(text.len(), |lf| lf + 1);
    let mut rest = text.get(first_end..).unwrap_or_default();
    std::iter::from_fn(move || {
        loop {
            let (line, behind) = rest.split_at_checked(memchr::memchr(b'\n', rest)?)?;
            rest = behind.get(1..)?;
            // The empty line has none.
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let (name, value) = line.split_at_checked(colon)?;
            return Some((name, trim_ows(value.strip_suffix(b"\r").unwrap_or(value).get(1..)?)));
        }
    })
}

/// Iterates over the field lines of a reply's head that are passed on: none of those that are about
/// one connection or the framing (RFC 9110 section 7.6.1).
pub fn lines_passed_on(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let connection = Connection::of(head);
    lines(head).filter(move |(name, _)| !(ends_here(name) || connection.nominates(name)))
}

/// Returns whether a Connection field of a head names another field of it, which is not passed on
/// because of that (RFC 9110 section 7.6.1). One that names more than anybody does is taken for it:
/// for each name the head is read.
#[must_use]
pub fn keeps_fields(head: &[u8], connection: &[u8]) -> bool {
    let mut options = elements(connection).filter(|option| !option.is_empty());
    let names_one = options.by_ref().take(OPTIONS_MAX).any(|option| {
        let is_about_here = option.eq_ignore_ascii_case(b"close") || ends_here(option);
        !is_about_here && lines(head).any(|(name, _)| name.eq_ignore_ascii_case(option))
    });
    names_one || options.next().is_some()
}

/// Returns whether a reply was selected (RFC 9110 section 12.5.5) by what the other server is told
/// of each client, which the head of the client's request does not show: its address, the time.
#[must_use]
pub fn depends_on_client(reply: &[u8]) -> bool {
    let is_vary = |name: &[u8]| name.eq_ignore_ascii_case(b"vary");
    let values = lines(reply).filter(|(name, _)| is_vary(name)).map(|(_, value)| value);
    values.flat_map(elements).any(|name| {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            9 => is(b"forwarded"),
            12 => is(b"x-request-id"),
            15 => is(b"x-forwarded-for") || is(b"x-request-start"),
            _ => false,
        }
    })
}

/// Returns how many more proxies an OPTIONS may pass (RFC 9110 section 7.6.2); `None` if it does
/// not say so.
#[must_use]
pub fn max_forwards(head: &[u8]) -> Option<u64> {
    lines(head).find(|(name, _)| is_max_forwards(name)).and_then(|(_, value)| hops(value))
}

pub(super) fn is_max_forwards(name: &[u8]) -> bool {
    name.len() == 12 && name.eq_ignore_ascii_case(b"max-forwards")
}

/// Reads the value of Max-Forwards; more than can be counted is as good as no limit.
pub(super) fn hops(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| decimal(value).unwrap_or(u64::MAX))
}

/// What the Connection fields of a head say (RFC 9110 section 7.6.1), apart from whether it stays
/// open.
#[derive(Debug, Default)]
pub(super) struct Connection<'b> {
    /// Names of fields that belong to the connection, and end with it; in the order of [`compare`]
    /// if there are more than [`OPTIONS_MAX`].
    nominated: Vec<&'b [u8]>,
    /// True if it is to change to another protocol.
    pub upgrades: bool,
}

impl<'b> Connection<'b> {
    /// Reads a head.
    pub(super) fn of(head: &'b [u8]) -> Self {
        let of_connection = lines(head).filter(|(name, _)| is_connection(name));
        Self::of_values(of_connection.map(|(_, value)| value))
    }

    fn of_values(values: impl Iterator<Item = &'b [u8]>) -> Self {
        let mut connection = Self::default();
        for option in values.flat_map(elements) {
            let is = |known: &[u8]| option.eq_ignore_ascii_case(known);
            if is(b"upgrade") {
                connection.upgrades = true;
            } else if !(option.is_empty() || is(b"close") || is(b"keep-alive")) {
                connection.nominated.push(option);
            }
        }
        if connection.nominated.len() > OPTIONS_MAX {
            connection.nominated.sort_unstable_by(|a, b| compare(a, b));
        }
        connection
    }

    /// Returns the names of fields that end with the connection, as the value of one field, for the
    /// trailers that may come.
    pub(super) fn nominated(&self) -> Vec<u8> {
        self.nominated.join(&b',')
    }

    /// Returns whether a field ends with the connection. What a head has of fields and of options
    /// is its sender's choice, so many options are not looked through for each field.
    pub(super) fn nominates(&self, name: &[u8]) -> bool {
        if self.nominated.len() > OPTIONS_MAX {
            return self.nominated.binary_search_by(|option| compare(option, name)).is_ok();
        }
        self.nominated.iter().any(|option| compare(option, name).is_eq())
    }
}

/// Compares names of fields: by length, then by their letters, whose case does not count.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    #[cfg(test)]
    COMPARISONS.set(COMPARISONS.get() + 1);
    let lower = u8::to_ascii_lowercase;
    a.len().cmp(&b.len()).then_with(|| a.iter().map(lower).cmp(b.iter().map(lower)))
}

#[cfg(test)]
std::thread_local! {
    /// Number of names compared.
    static COMPARISONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn is_connection(name: &[u8]) -> bool {
    name.len() == 10 && name.eq_ignore_ascii_case(b"connection")
}

/// Returns whether a field is about one connection, or about the framing, which is written anew.
pub(super) fn ends_here(name: &[u8]) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 => is(b"te"),
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 => is(b"content-length"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 => is(b"proxy-authenticate"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}

/// Returns whether a media type, with its parameters, is that of a stream of events.
pub(super) fn is_event_stream(media_type: &[u8]) -> bool {
    let name = media_type.split(|&byte| byte == b';').next().unwrap_or_default();
    name.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

/// Returns whether a field makes a request conditional, or asks for a part.
pub(super) fn is_selective(name: &[u8]) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        5 => is(b"range"),
        8 => is(b"if-match") || is(b"if-range"),
        13 => is(b"if-none-match"),
        17 => is(b"if-modified-since"),
        19 => is(b"if-unmodified-since"),
        _ => false,
    }
}

/// Appends a field line.
pub(super) fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + b": \r\n".len());
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the trailers that may be passed on. Those that would change framing, routing or who is
/// asking are not (RFC 9110 section 6.5.1), nor those `removed`, nor those that end with the
/// connection: what [`Connection::nominated`] has returned for the head (section 7.6.1).
pub(super) fn push_trailers(
    out: &mut Vec<u8>,
    trailers: &[u8],
    nominated: &[u8],
    removed: &[Box<[u8]>],
) {
    const KEPT_OUT: [&[u8]; 12] = [
        b"host",
        b"authorization",
        b"cookie",
        b"set-cookie",
        b"expect",
        b"range",
        b"cache-control",
        b"max-forwards",
        b"location",
        b"vary",
        b"date",
        b"trailer",
    ];
    let connection = Connection::of_values(std::iter::once(nominated));
    let lines = trailers.split(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
    for (name, value) in lines.filter_map(field_line) {
        let is_out = KEPT_OUT.iter().any(|known| name.eq_ignore_ascii_case(known))
            || removed.iter().any(|each| name.eq_ignore_ascii_case(each))
            || ends_here(name)
            || connection.nominates(name);
        if !(is_out || describes_content(name) || is_ambiguous(name) || is_forwarded(name)) {
            push(out, name, value);
        }
    }
}

/// Returns whether a field says what content is, before it comes. A digest of it (RFC 9530 section
/// 2) does not: it is known at the end.
fn describes_content(name: &[u8]) -> bool {
    let is_of_content = name.get(..8).is_some_and(|front| front.eq_ignore_ascii_case(b"content-"));
    is_of_content && !name.eq_ignore_ascii_case(b"content-digest")
}

/// Returns whether a name stands for another one in servers that turn names into variables (CGI,
/// RFC 3875 section 4.1.18): there, `_` and `-` are the same.
pub(super) fn is_ambiguous(name: &[u8]) -> bool {
    memchr::memchr(b'_', name).is_some()
}

/// Returns whether a field says where a request comes from, which only a trusted proxy may.
pub fn is_forwarded(name: &[u8]) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        9 => is(b"forwarded") || is(b"x-real-ip"),
        15 if is(b"x-request-start") => true,
        _ => name.get(..12).is_some_and(|front| front.eq_ignore_ascii_case(b"x-forwarded-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_options_are_not_compared_with_each_field() {
        const OPTIONS: u32 = 5_000;
        // Distinct, and in no order: 5003 is a prime.
        let options = (1..=OPTIONS).map(|at| format!("{:X}", at * 1237 % 5003)).collect::<Vec<_>>();
        let fields = (1..=100).map(|at| format!("{:x}: {at}\r\nz{at}: 1\r\n", at * 31));
        let fields: String = fields.collect();
        let head = format!("HTTP/1.1 200 OK\r\nConnection: {}\r\n{fields}\r\n", options.join(","));
        COMPARISONS.set(0);
        let passed: Vec<_> = lines_passed_on(head.as_bytes()).map(|(name, _)| name).collect();
        assert!(passed.len() == 100 && passed.iter().all(|name| name.starts_with(b"z")));
        // Each with each would be a million.
        assert!(COMPARISONS.get() < 150_000, "{}", COMPARISONS.get());
    }
}
