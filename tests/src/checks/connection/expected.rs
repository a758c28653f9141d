//! The replies that a client's bytes call for, in order, derived by reading the bytes in one piece
//! from the front. Independent of how the bytes arrived; uses the parsers of requests, ranges and
//! paths, which have checks of their own.

use weir_content::path::{PathError, decode};
use weir_content::range::{Ranges, parse};
use weir_http1::{Body, Framing, HeadParser, Limits, Method, Parse, Request, Target};

use super::site::{BODY_BYTES_MAX, Site};

/// A request, as far as it has arrived.
#[derive(Debug)]
pub(super) struct Asked {
    pub answer: Answer,
    pub head_only: bool,
    /// True if nothing follows, whatever the reply is.
    pub closes: bool,
    pub content: Content,
    /// True if the request has content, which may not have been complete when it was answered: the
    /// reply may close.
    pub has_content: bool,
}

/// Progress of a request's content.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Complete: the next request begins this many bytes after the start of this one.
    Whole(usize),
    /// Incomplete, and valid so far.
    Partial,
    /// Refused with one of these statuses.
    Wrong([u16; 2]),
}

/// Expected answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// A reply determined by its status.
    Status(u16),
    /// A complete file.
    Whole(usize),
    /// A range of a file.
    Range(usize, std::ops::RangeInclusive<u64>),
    /// Ranges of a file.
    Ranges(usize, Vec<std::ops::RangeInclusive<u64>>),
    /// A file that the client already has.
    NotModified(usize),
    /// A file, or what conditions make of it.
    File(usize),
    /// Any reply: the content does not matter here.
    Any,
}

/// Parses the request at the front of a client's bytes; `None` if its head is incomplete.
pub(super) fn asked(bytes: &[u8], site: &Site) -> Option<Asked> {
    match HeadParser::default().parse(bytes, &Limits::default()) {
        Parse::Partial => None,
        Parse::Refused(refusal) => Some(Asked {
            answer: Answer::Status(refusal.status.code()),
            head_only: false,
            closes: true,
            content: Content::Partial,
            has_content: false,
        }),
        Parse::Complete(request) => {
            let too_large =
                matches!(request.framing, Framing::Length(length) if length > BODY_BYTES_MAX);
            let answer = if too_large { Answer::Status(413) } else { answer(&request, site) };
            Some(Asked {
                answer,
                head_only: request.method == Method::Head,
                closes: !request.keep_alive || too_large || request.method == Method::Connect,
                content: content(&request, bytes),
                has_content: request.framing != Framing::None,
            })
        }
    }
}

fn content(request: &Request<'_>, bytes: &[u8]) -> Content {
    if request.framing == Framing::None {
        return Content::Whole(request.head_len);
    }
    match Body::new(request.framing).advance(&bytes[request.head_len..]) {
        Ok(advance) if advance.payload as u64 > BODY_BYTES_MAX => Content::Wrong([413; 2]),
        Ok(advance) if advance.done => Content::Whole(request.head_len + advance.consumed),
        Ok(_) => Content::Partial,
        // How much of it was seen before decides which of two faults comes first.
        Err(refusal) => Content::Wrong([refusal.status.code(), 413]),
    }
}

fn answer(request: &Request<'_>, site: &Site) -> Answer {
    let Target::Path { path, .. } = request.target else {
        return Answer::Status(if request.method == Method::Options { 204 } else { 405 });
    };
    match request.method {
        Method::Get | Method::Head => {}
        Method::Options => return Answer::Status(204),
        _ => return Answer::Status(405),
    }
    let mut room = Vec::new();
    let key = match decode(path, false, &mut room) {
        Ok(decoded) => decoded.key(),
        Err(PathError::NotFound) => return Answer::Status(404),
        Err(PathError::Malformed) => return Answer::Status(400),
    };
    match key {
        b"dir" | b"n" => Answer::Status(301),
        b"" | b"dir/" | b"n/" => Answer::Status(200),
        _ => file(key, site).map_or(Answer::Any, |number| of_file(request, number, site)),
    }
}

/// Returns the number of a file, from its path.
fn file(key: &[u8], site: &Site) -> Option<usize> {
    let number = std::str::from_utf8(key.strip_prefix(b"n/")?).ok()?;
    let canonical = number.len() == 1 || !number.starts_with('0');
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|&number| canonical && is_number && number < site.files.len())
}

fn of_file(request: &Request<'_>, number: usize, site: &Site) -> Answer {
    let dated = request.if_modified_since.is_some() || request.if_unmodified_since.is_some();
    let lines = |lines: weir_http1::Lines<'_>| lines.iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (matches, mismatches) = (lines(request.if_match), lines(request.if_none_match));
    match (&matches[..], &mismatches[..]) {
        ([], []) if !dated => {}
        ([], [one]) if !dated && one == b"*" => return Answer::NotModified(number),
        ([one], []) if !dated && one == b"\"x\"" => return Answer::Status(412),
        _ => return Answer::File(number),
    }
    let Some(range) = request.range.filter(|_| request.method == Method::Get) else {
        return Answer::Whole(number);
    };
    if request.if_range.is_some() {
        return Answer::File(number);
    }
    match parse(range, site.files[number].len() as u64) {
        Ranges::Whole => Answer::Whole(number),
        Ranges::Unsatisfiable => Answer::Status(416),
        Ranges::One(range) => Answer::Range(number, range.first..=range.last),
        Ranges::Many(ranges) => {
            Answer::Ranges(number, ranges.iter().map(|range| range.first..=range.last).collect())
        }
    }
}
