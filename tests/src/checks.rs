//! Properties of the pure crates that hold for any input: the bodies of the fuzz targets, and of
//! `tests/fuzz_corpus.rs`, which runs them without a fuzzer.
//!
//! Each takes the input of one target, in a form that can be written by hand, and panics when a
//! property does not hold. Nothing here opens a socket or a file.

mod connection;
mod forward;
mod packet;
mod proxy_protocol;
mod reply;
mod sites;
mod tls;

use weir_content::path::{Decoded, decode, encode, redirect_location};
use weir_content::range::{ByteRange, Multipart, PARTS_MAX, Ranges, parse};
use weir_content::{Coding, Conditions, Now, PreconditionResult, Validators};
use weir_content::{evaluate, if_range_holds, negotiate};
use weir_http1::{
    Body, Framing, HeadParser, Limits, Lines, Parse, Request, RequestError, Target, Version,
};

pub use connection::connection;
pub use forward::forward;
pub use packet::packet;
pub use proxy_protocol::proxy_protocol;
pub use reply::reply;
pub use sites::sites;
pub use tls::tls;

/// Limits that short inputs exceed.
const TIGHT: Limits = Limits { target_bytes_max: 20, head_bytes_max: 120, fields_max: 4 };

/// Checks a request head: how it is split, and what follows it, never matters; what is accepted is
/// clean.
pub fn request(data: &[u8]) {
    for limits in [Limits::default(), TIGHT] {
        let whole = HeadParser::default().parse(data, &limits);
        let mut parser = HeadParser::default();
        let mut lengths = (0..=data.len()).map(|end| parser.parse(&data[..end], &limits));
        let grown = lengths.find(|parse| !matches!(parse, Parse::Partial));
        assert_eq!(grown.unwrap_or(Parse::Partial), whole);
        match whole {
            Parse::Partial => assert!(data.len() < limits.head_bytes_max),
            Parse::Complete(request) => check_request(&request, data, &limits),
            Parse::Refused(refusal) => check_error(refusal),
        }
    }
}

fn check_request(request: &Request<'_>, data: &[u8], limits: &Limits) {
    assert!(request.head_len <= data.len().min(limits.head_bytes_max));
    let alone = HeadParser::default().parse(&data[..request.head_len], limits);
    assert_eq!(alone, Parse::Complete(*request), "bytes after the head matter");
    assert!(request.request_line.iter().all(|byte| (b' '..=b'~').contains(byte)));
    if let Target::Path { path, query } = request.target {
        assert!(path.starts_with(b"/") && !path.contains(&b'?'));
        let mut bytes = path.iter().chain(query.unwrap_or_default());
        assert!(bytes.all(|byte| byte.is_ascii_graphic() && *byte != b'#'));
    }
    assert!(request.host.is_some() || request.version == Version::Http10);
    let waits = request.version == Version::Http11 && request.framing != Framing::None;
    assert!(waits || !request.expect_continue);
    let single = [
        request.host,
        request.range,
        request.if_range,
        request.if_modified_since,
        request.if_unmodified_since,
        request.user_agent,
        request.referer,
    ];
    let lists = [request.if_match, request.if_none_match, request.accept_encoding];
    let values = single.into_iter().flatten().chain(lists.iter().flat_map(Lines::iter));
    values.for_each(check_value);
}

/// Checks that a field value is trimmed and cannot end a line.
fn check_value(value: &[u8]) {
    assert_eq!(value.trim_ascii(), value);
    assert!(!value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
}

fn check_error(refusal: RequestError) {
    assert!((400..600).contains(&refusal.status.code()) && !refusal.why.is_empty());
}

/// Checks a request's content: the first byte is `c` for chunked, or else the content's length. How
/// it is split never matters; no bytes beyond the content are consumed.
pub fn body(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else { return };
    let framing = if first == b'c' { Framing::Chunked } else { Framing::Length(u64::from(first)) };
    let whole = advance(framing, [input]);
    for at in 0..input.len() {
        let (left, right) = input.split_at(at);
        assert_eq!(advance(framing, [left, right]), whole, "cut at {at}");
    }
    assert_eq!(advance(framing, input.chunks(1)), whole, "one byte at a time");
    match whole {
        Ok((consumed, payload, done)) => {
            assert!(payload <= consumed && consumed <= input.len());
            assert!(done || consumed == input.len());
            let length = usize::from(first);
            assert!(framing == Framing::Chunked || payload == length.min(input.len()));
        }
        Err(refusal) => check_error(refusal),
    }
}

/// Returns the bytes consumed, the bytes of content among them, and whether the body has ended.
fn advance<'a>(
    framing: Framing,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(usize, usize, bool), RequestError> {
    let mut body = Body::new(framing);
    let (mut consumed, mut payload, mut done) = (0, 0, framing == Framing::Length(0));
    for piece in pieces {
        let advance = body.advance(piece)?;
        assert!(!done || advance.consumed == 0, "a body that has ended consumes");
        assert!(advance.done || advance.consumed == piece.len());
        consumed += advance.consumed;
        payload += advance.payload;
        done = advance.done;
    }
    Ok((consumed, payload, done))
}

/// Checks a `Range` field: the input is a length in decimal, a newline, and the value. The
/// resulting ranges lie inside the length, do not overlap, and are framed in as many bytes as
/// promised.
pub fn range(data: &[u8]) {
    let (length, value) = split_at_newline(data);
    let length = std::str::from_utf8(length).ok().and_then(|digits| digits.parse().ok());
    let length: u64 = length.unwrap_or(0);
    let ranges = match parse(value, length) {
        Ranges::Whole | Ranges::Unsatisfiable => return,
        Ranges::One(range) => vec![range],
        Ranges::Many(ranges) => {
            assert!((2..=PARTS_MAX).contains(&ranges.len()));
            ranges
        }
    };
    for (i, range) in ranges.iter().enumerate() {
        assert!(range.first <= range.last && range.last < length);
        assert!(ranges[..i].iter().all(|other| are_apart(range, other)));
    }
    check_multipart(&ranges, length);
}

/// Returns whether there is a byte between the two ranges.
fn are_apart(a: &ByteRange, b: &ByteRange) -> bool {
    let gap = |before: &ByteRange, after: &ByteRange| {
        after.first.checked_sub(before.last).is_some_and(|distance| distance >= 2)
    };
    gap(a, b) || gap(b, a)
}

fn check_multipart(ranges: &[ByteRange], length: u64) {
    let multipart = Multipart::new(b"text/plain", length, ranges, b"boundary");
    let parts: Vec<_> = (0..).map_while(|index| multipart.part(index)).collect();
    assert!(parts.iter().map(|(_, range)| range).eq(ranges));
    let heads: usize = parts.iter().map(|(head, _)| head.len()).sum();
    let bodies: u64 = ranges.iter().map(|range| range.last - range.first + 1).sum();
    let sum = (heads + multipart.closing().len()) as u64;
    assert_eq!(multipart.content_length(), bodies.saturating_add(sum));
}

/// Checks the path of a request: a decoded path cannot climb and survives re-encoding; a redirect
/// points to this host.
pub fn path(data: &[u8]) {
    let (mut shown, mut hidden) = (Vec::new(), Vec::new());
    let all = decode(data, true, &mut shown);
    if let Ok(decoded) = decode(data, false, &mut hidden) {
        assert_eq!(all, Ok(decoded));
        let mut components = decoded.path().split(|&byte| byte == b'/').enumerate();
        let well_known = |(i, name)| i == 0 && name == b".well-known";
        assert!(components.all(|(i, name)| !name.starts_with(b".") || well_known((i, name))));
    }
    if let Ok(decoded) = all {
        check_decoded(decoded);
    }
    check_location(&redirect_location(data, None));
    check_location(&redirect_location(data, Some(data)));
}

fn check_decoded(decoded: Decoded<'_>) {
    assert!(std::str::from_utf8(decoded.key()).is_ok());
    assert!(!decoded.key().iter().any(|byte| byte.is_ascii_control() || *byte == b'\\'));
    if !decoded.path().is_empty() {
        let mut components = decoded.path().split(|&byte| byte == b'/');
        assert!(components.all(|name| !matches!(name, b"" | b"." | b"..")));
    }
    let mut encoded = b"/".to_vec();
    encode(decoded.key(), &mut encoded);
    assert_eq!(decode(&encoded, true, &mut Vec::new()), Ok(decoded));
}

fn check_location(location: &[u8]) {
    assert!(location.starts_with(b"/") && location.iter().all(u8::is_ascii_graphic));
    assert!(!matches!(location.get(1), Some(b'/' | b'\\')));
}

/// Checks lines of `Accept-Encoding`, separated by newlines. The chosen coding is available, would
/// also be chosen from fewer, and is not one the client refused last.
pub fn accept_encoding(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|&byte| byte == b'\n').collect();
    let best = negotiate(&lines, |_| true);
    for coding in Coding::ALL {
        let alone = negotiate(&lines, |other| other == coding);
        assert!(alone.is_none_or(|picked| picked == coding));
        assert!(best.is_some() || alone.is_none());
        assert!(best != Some(coding) || alone == best);
        assert_ne!(negotiate(&lines, |other| other != coding), Some(coding));
        let refusal = format!("{};q=0", coding.token());
        let refused = [&lines[..], &[refusal.as_bytes()]].concat();
        assert_ne!(negotiate(&refused, |_| true), Some(coding));
    }
}

const MODIFIED_UNIX_S: u64 = 784_111_777;

/// Checks conditional fields, separated by newlines, each after a letter that names it: `M`
/// If-Match, `N` If-None-Match, `S` If-Modified-Since, `U` If-Unmodified-Since, `R` If-Range. Tags
/// come before dates, `*` matches, and only an exact validator lets a range stand.
pub fn conditions(data: &[u8]) {
    let lines = || data.split(|&byte| byte == b'\n').filter_map(|line| line.split_first());
    let all = |letter| -> Vec<&[u8]> {
        lines().filter(|(first, _)| **first == letter).map(|(_, value)| value).collect()
    };
    let (if_match, if_none_match) = (all(b'M'), all(b'N'));
    let given = Conditions {
        if_match: &if_match,
        if_none_match: &if_none_match,
        if_modified_since: all(b'S').first().copied(),
        if_unmodified_since: all(b'U').first().copied(),
    };
    let validators =
        Validators { etag: b"\"etag\"", modified_s: Some(MODIFIED_UNIX_S), is_date_weak: false };
    check_conditions(&given, &validators);
    for value in all(b'R') {
        let now = Now { monotonic_ns: 0, unix_ns: (MODIFIED_UNIX_S + 60) * 1_000_000_000 };
        if if_range_holds(value, &validators, now) {
            assert!(value.trim_ascii() == validators.etag || is_modified_date(value));
        }
    }
}

fn check_conditions(given: &Conditions<'_>, validators: &Validators<'_>) {
    let outcome = evaluate(given, validators);
    if !given.if_none_match.is_empty() {
        let dateless = Conditions { if_modified_since: None, ..*given };
        assert_eq!(evaluate(&dateless, validators), outcome);
    }
    if !given.if_match.is_empty() {
        let dateless = Conditions { if_unmodified_since: None, ..*given };
        assert_eq!(evaluate(&dateless, validators), outcome);
    }
    let any = Conditions { if_match: &[b"*"], ..*given };
    assert_ne!(evaluate(&any, validators), PreconditionResult::Failed);
    let none = Conditions { if_none_match: &[b"*"], ..*given };
    assert_ne!(evaluate(&none, validators), PreconditionResult::Proceed);
    assert_eq!(evaluate(&Conditions::default(), validators), PreconditionResult::Proceed);
}

fn is_modified_date(value: &[u8]) -> bool {
    let text = std::str::from_utf8(value).unwrap().trim();
    let date = httpdate::parse_http_date(text).unwrap();
    date.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() == MODIFIED_UNIX_S
}

fn split_at_newline(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}
