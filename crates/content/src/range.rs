//! Byte ranges (RFC 9110 section 14) and the framing of multipart replies.
//!
//! Pure: the input is the text of a `Range` field and a length, the output ranges inside that
//! length. Memory is bounded whatever the text. Nothing here touches a body.

/// The bytes `first..=last` of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte: at least `first` and less than the length.
    pub last: u64,
}

#[allow(clippy::len_without_is_empty)] // a range holds at least one byte
impl ByteRange {
    /// Returns the length, bytes.
    pub fn len(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Returns whether the ranges overlap or touch, so that a single range covers exactly both.
    fn joins(&self, other: &ByteRange) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// Result of parsing a `Range` field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// No range that can be honoured: the field is ignored and the reply is 200.
    Whole,
    /// No satisfiable range: 416.
    Unsatisfiable,
    /// A single range: 206 with `Content-Range`.
    One(ByteRange),
    /// From 2 to [`PARTS_MAX`] ranges, neither overlapping nor adjacent, in the order requested:
    /// 206 with a [`Multipart`] body.
    Many(Vec<ByteRange>),
}

/// Maximum number of parts in a reply. If more are requested, the whole representation is sent.
pub const PARTS_MAX: usize = 16;

/// Parses a `Range` field for a representation of `len` bytes.
///
/// Ranges that overlap or touch are joined. Another unit, a syntax error, or more than
/// [`PARTS_MAX`] separate parts at any point of the list yield [`Ranges::Whole`], which a server
/// may always send instead (section 14.2).
pub fn parse(value: &[u8], len: u64) -> Ranges {
    match parse_parts(value, len) {
        None => Ranges::Whole,
        Some(parts) => match parts.as_slice() {
            [] => Ranges::Unsatisfiable,
            [one] => Ranges::One(*one),
            _ => Ranges::Many(parts),
        },
    }
}

/// Returns the value of `Content-Range` for one range of a representation of `len` bytes.
pub fn content_range(range: ByteRange, len: u64) -> String {
    format!("bytes {}-{}/{len}", range.first, range.last)
}

/// Returns the value of `Content-Range` for a 416 (section 15.5.17).
pub fn content_range_unsatisfied(len: u64) -> String {
    format!("bytes */{len}")
}

/// The framing of a `multipart/byteranges` reply: everything but the bytes of the ranges.
#[derive(Clone, Debug)]
pub struct Multipart {
    content_type: Vec<u8>,
    /// The head of every part and the closing boundary, one after the other.
    frame: Vec<u8>,
    /// Each range with the end of its part's head in `frame`.
    parts: Vec<(ByteRange, usize)>,
    content_length: u64,
}

impl Multipart {
    /// Frames `ranges` of a representation of `len` bytes and this `Content-Type`; no part has one
    /// if it is empty. The boundary consists of 1 to 70 random letters and digits (RFC 2046 section
    /// 5.1.1); it must not occur in any body.
    pub fn new(content_type: &[u8], len: u64, ranges: &[ByteRange], boundary: &[u8]) -> Multipart {
        let mut frame = Vec::with_capacity((ranges.len() + 1) * (content_type.len() + 128));
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            append(&mut frame, &[b"\r\n--", boundary]);
            if !content_type.is_empty() {
                append(&mut frame, &[b"\r\nContent-Type: ", content_type]);
            }
            let content_range = content_range(*range, len);
            append(&mut frame, &[b"\r\nContent-Range: ", content_range.as_bytes(), b"\r\n\r\n"]);
            parts.push((*range, frame.len()));
        }
        append(&mut frame, &[b"\r\n--", boundary, b"--\r\n"]);
        let bodies: u64 = ranges.iter().map(ByteRange::len).sum();
        Multipart {
            content_type: [b"multipart/byteranges; boundary=", boundary].concat(),
            content_length: bodies.saturating_add(frame.len() as u64),
            frame,
            parts,
        }
    }

    /// Returns the `Content-Type` of the reply.
    pub fn content_type(&self) -> &[u8] {
        &self.content_type
    }

    /// Returns the `Content-Length` of the reply: heads, ranges and closing boundary.
    pub fn content_length(&self) -> u64 {
        self.content_length
    }

    /// Returns the number of ranges.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the head and the range of part `index`, counted from 0. Returns `None` after the
    /// last part, when [`Multipart::closing`] is due.
    pub fn part(&self, index: usize) -> Option<(&[u8], ByteRange)> {
        let (range, end) = *self.parts.get(index)?;
        Some((self.frame.get(self.head_start(index)..end)?, range))
    }

    /// Returns the boundary that ends the reply.
    pub fn closing(&self) -> &[u8] {
        self.frame.get(self.head_start(self.parts.len())..).unwrap_or_default()
    }

    fn head_start(&self, index: usize) -> usize {
        index.checked_sub(1).and_then(|before| self.parts.get(before)).map_or(0, |part| part.1)
    }
}

fn append(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
}

/// Returns the satisfiable ranges, joined; `None` if the field is to be ignored.
fn parse_parts(value: &[u8], len: u64) -> Option<Vec<ByteRange>> {
    let (unit, set) = value.split_at_checked(memchr::memchr(b'=', value)?)?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut parts = Vec::new();
    let mut specs = 0;
    for spec in set.get(1..)?.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        // A list may have empty elements (section 5.6.1.2), but not only such.
        if spec.is_empty() {
            continue;
        }
        specs += 1;
        match parse_spec(spec, len)? {
            Spec::Outside => {}
            Spec::Inside(range) => join(&mut parts, range),
        }
        if parts.len() > PARTS_MAX {
            return None;
        }
    }
    (specs > 0).then_some(parts)
}

enum Spec {
    Outside,
    Inside(ByteRange),
}

/// Parses `first-last`, `first-` or `-suffix`; returns `None` if the spec is invalid.
fn parse_spec(spec: &[u8], len: u64) -> Option<Spec> {
    let (before, after) = spec.split_at_checked(memchr::memchr(b'-', spec)?)?;
    let after = after.get(1..)?;
    let (first, last) = match (before, after) {
        (b"", suffix) => {
            let suffix_len = parse_number(suffix)?;
            match len {
                // All of nothing: it exists, and no Content-Range can say so.
                0 if suffix_len > 0 => return None,
                _ if suffix_len == 0 => return Some(Spec::Outside),
                _ => (len.saturating_sub(suffix_len), u64::MAX),
            }
        }
        (first, b"") => (parse_number(first)?, u64::MAX),
        (first, last) => (parse_number(first)?, parse_number(last)?),
    };
    if last < first {
        return None;
    }
    if first >= len {
        return Some(Spec::Outside);
    }
    Some(Spec::Inside(ByteRange { first, last: last.min(len - 1) }))
}

/// Parses digits. A number too large for a `u64` saturates: no file is that long.
fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Adds a range to parts that neither overlap nor touch, and keeps them so. The joined range takes
/// the place of the first one it absorbs, which preserves the client's order.
fn join(parts: &mut Vec<ByteRange>, mut range: ByteRange) {
    let place = parts.iter().position(|part| part.joins(&range)).unwrap_or(parts.len());
    // The parts are apart from each other, so what joins the union joined `range` itself.
    let added = range;
    parts.retain(|part| {
        let joined = part.joins(&added);
        if joined {
            range.first = range.first.min(part.first);
            range.last = range.last.max(part.last);
        }
        !joined
    });
    parts.insert(place.min(parts.len()), range);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(first: u64, last: u64) -> Ranges {
        Ranges::One(ByteRange { first, last })
    }

    fn many(ranges: &[(u64, u64)]) -> Ranges {
        Ranges::Many(ranges.iter().map(|&(first, last)| ByteRange { first, last }).collect())
    }

    #[test]
    fn single_ranges_are_clamped() {
        let cases: [(&[u8], Ranges); 12] = [
            (b"bytes=0-0", one(0, 0)),
            (b"bytes=10-", one(10, 99)),
            (b"bytes=-1", one(99, 99)),
            (b"Bytes= 5-7 ", one(5, 7)),
            (b"bytes=,, 5-7 ,", one(5, 7)),
            (b"bytes=0-18446744073709551615", one(0, 99)),
            (b"bytes=-18446744073709551616", one(0, 99)),
            (b"bytes=-9223372036854775808", one(0, 99)),
            (b"bytes=99-99999999999999999999999999", one(99, 99)),
            (b"bytes=100-", Ranges::Unsatisfiable),
            (b"bytes=-0", Ranges::Unsatisfiable),
            (b"bytes=99999999999999999999999-", Ranges::Unsatisfiable),
        ];
        for (value, ranges) in cases {
            assert_eq!(parse(value, 100), ranges, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn a_field_that_is_no_byte_range_is_ignored() {
        let cases: [&[u8]; 14] = [
            b"",
            b"bytes",
            b"bytes=",
            b"bytes=,",
            b"bytes=-",
            b"bytes=--1",
            b"bytes=5-4",
            b"bytes=1-2-3",
            b"bytes=+1-2",
            b"bytes=0x1-2",
            b"bytes=1 - 2",
            b"bytes=0-1,x",
            b"bytes =0-1",
            b"lines=0-1",
        ];
        for value in cases {
            assert_eq!(parse(value, 100), Ranges::Whole, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn an_empty_file_has_no_ranges() {
        assert_eq!(parse(b"bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(parse(b"bytes=-0", 0), Ranges::Unsatisfiable);
        assert_eq!(parse(b"bytes=-5", 0), Ranges::Whole);
    }

    #[test]
    fn several_ranges_join_and_keep_their_order() {
        assert_eq!(parse(b"bytes=50-59,0-9", 100), many(&[(50, 59), (0, 9)]));
        assert_eq!(parse(b"bytes=0-9,10-19", 100), one(0, 19));
        assert_eq!(parse(b"bytes=10-19,0-9", 100), one(0, 19));
        assert_eq!(parse(b"bytes=50-59,0-9,55-69,9-9", 100), many(&[(50, 69), (0, 9)]));
        assert_eq!(parse(b"bytes=80-,0-9,20-29,5-24", 100), many(&[(80, 99), (0, 29)]));
        assert_eq!(parse(b"bytes=200-,0-9", 100), one(0, 9));
        let greatest = parse(b"bytes=18446744073709551614-,-3", u64::MAX);
        assert_eq!(greatest, one(u64::MAX - 3, u64::MAX - 1));
    }

    #[test]
    fn a_flood_of_ranges_is_joined_or_ignored() {
        let flood = |count: u64, step: u64, width: u64| {
            let specs: Vec<String> =
                (0..count).map(|i| format!("{}-{}", i * step, i * step + width)).collect();
            parse(format!("bytes={}", specs.join(",")).as_bytes(), 1_000_000)
        };
        assert_eq!(flood(1300, 1, 10), one(0, 1309));
        assert_eq!(flood(30, 5, 10), one(0, 155));
        assert_eq!(flood(1300, 20, 10), Ranges::Whole);
        assert_eq!(flood(17, 20, 10), Ranges::Whole);
        assert!(matches!(flood(16, 20, 10), Ranges::Many(parts) if parts.len() == 16));
    }

    #[test]
    fn a_multipart_reply_is_as_long_as_it_says() {
        let ranges = [ByteRange { first: 0, last: 1 }, ByteRange { first: 5, last: 9 }];
        let multipart = Multipart::new(b"text/plain", 10, &ranges, b"XYZ");
        let body = b"0123456789";
        let mut sent = Vec::new();
        for index in 0..multipart.part_count() {
            let (head, range) = multipart.part(index).unwrap();
            sent.extend_from_slice(head);
            sent.extend_from_slice(&body[range.first as usize..=range.last as usize]);
        }
        assert!(multipart.part(2).is_none());
        sent.extend_from_slice(multipart.closing());
        let expected = "\r\n--XYZ\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\
                        \r\n01\r\n--XYZ\r\nContent-Type: text/plain\r\n\
                        Content-Range: bytes 5-9/10\r\n\r\n56789\r\n--XYZ--\r\n";
        assert_eq!(String::from_utf8_lossy(&sent), expected);
        assert_eq!(multipart.content_length(), sent.len() as u64);
        assert_eq!(multipart.content_type(), b"multipart/byteranges; boundary=XYZ");
        assert_eq!(content_range_unsatisfied(10), "bytes */10");
    }

    #[test]
    fn parts_of_what_has_no_type_have_none() {
        let ranges = [ByteRange { first: 0, last: 1 }, ByteRange { first: 5, last: 9 }];
        let multipart = Multipart::new(b"", 10, &ranges, b"XYZ");
        let head = b"\r\n--XYZ\r\nContent-Range: bytes 0-1/10\r\n\r\n";
        assert_eq!(multipart.part(0), Some((&head[..], ranges[0])));
        let heads = [0, 1].map(|index| multipart.part(index).unwrap().0.len());
        let framed = heads.iter().sum::<usize>() + multipart.closing().len();
        assert_eq!(multipart.content_length(), framed as u64 + 7);
    }

    /// A range as requested by a client: first and last byte, first byte only, or a suffix.
    #[derive(Clone, Copy, Debug)]
    enum Asked {
        Between(u64, u64),
        From(u64),
        Suffix(u64),
    }

    fn asked() -> impl Strategy<Value = Asked> {
        prop_oneof![
            (0u64..50, 0u64..50).prop_map(|(a, b)| Asked::Between(a.min(b), a.max(b))),
            (0u64..50).prop_map(Asked::From),
            (0u64..50).prop_map(Asked::Suffix),
        ]
    }

    fn is_wanted(asked: Asked, byte: u64, len: u64) -> bool {
        match asked {
            Asked::Between(first, last) => first <= byte && byte <= last,
            Asked::From(first) => first <= byte,
            Asked::Suffix(count) => byte + count >= len,
        }
    }

    proptest! {
        #[test]
        fn exactly_the_bytes_asked_for_are_sent(
            asked in proptest::collection::vec(asked(), 1..8),
            len in 1u64..40,
        ) {
            let specs: Vec<String> = asked.iter().map(|asked| match asked {
                Asked::Between(first, last) => format!("{first}-{last}"),
                Asked::From(first) => format!("{first}-"),
                Asked::Suffix(count) => format!("-{count}"),
            }).collect();
            let parts = match parse(format!("bytes={}", specs.join(",")).as_bytes(), len) {
                Ranges::Whole => return Err(TestCaseError::fail("ignored")),
                Ranges::Unsatisfiable => Vec::new(),
                Ranges::One(range) => vec![range],
                Ranges::Many(ranges) => ranges,
            };
            for byte in 0..len {
                let times = parts.iter().filter(|p| p.first <= byte && byte <= p.last).count();
                let wanted = asked.iter().any(|&asked| is_wanted(asked, byte, len));
                prop_assert_eq!(times, usize::from(wanted));
            }
            let mut sorted = parts;
            sorted.sort_unstable_by_key(|part| part.first);
            prop_assert!(sorted.windows(2).all(|pair| pair[0].last + 1 < pair[1].first));
        }

        #[test]
        fn nothing_lies_outside_the_body(value in "(bytes=)?[-0-9, ]{0,60}", len: u64) {
            let parts = match parse(value.as_bytes(), len) {
                Ranges::One(range) => vec![range],
                Ranges::Many(ranges) => ranges,
                _ => Vec::new(),
            };
            prop_assert!(parts.iter().all(|part| part.first <= part.last && part.last < len));
        }
    }
}
