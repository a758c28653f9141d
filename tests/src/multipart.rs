//! `multipart/byteranges` bodies (RFC 9110 section 14.6), parsed strictly.

use std::ops::Range;

use crate::Reply;

/// A part of a multipart body.
#[derive(Debug)]
pub struct Part {
    /// Range of the bytes in the complete file, from `Content-Range`.
    pub range: Range<usize>,
    /// Length of the complete file, from `Content-Range`.
    pub whole: usize,
    /// `Content-Type` of the part, if it has one.
    pub content_type: Option<String>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Parses the parts of a reply whose type is `multipart/byteranges`.
///
/// # Panics
/// When the body is not exactly such parts between their delimiters.
pub fn parts(reply: &Reply) -> Vec<Part> {
    let media_type = reply.expect_field("Content-Type");
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").expect(media_type);
    let delimiter = format!("--{}", boundary.trim_matches('"')).into_bytes();
    let mut rest = reply.body.strip_prefix(b"\r\n").unwrap_or(&reply.body);
    let mut parts = Vec::new();
    loop {
        rest = rest.strip_prefix(&delimiter[..]).expect("a delimiter");
        if let Some(end) = rest.strip_prefix(b"--") {
            assert!(end.is_empty() || end == b"\r\n", "something after the last delimiter");
            return parts;
        }
        let (part, after) = parse_part(rest);
        parts.push(part);
        rest = after.strip_prefix(b"\r\n").expect("CRLF before a delimiter");
    }
}

/// Parses the range and the complete length in `bytes FIRST-LAST/WHOLE`.
///
/// # Panics
/// When the field is anything else.
pub fn content_range(value: &str) -> (Range<usize>, usize) {
    let value = value.strip_prefix("bytes ").expect(value);
    let (range, whole) = value.split_once('/').expect(value);
    let (first, last) = range.split_once('-').expect(value);
    let number = |digits: &str| digits.parse::<usize>().expect(value);
    (number(first)..number(last) + 1, number(whole))
}

fn parse_part(bytes: &[u8]) -> (Part, &[u8]) {
    let bytes = bytes.strip_prefix(b"\r\n").expect("CRLF after a delimiter");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a part's head");
    // A status line in front makes the part's head a reply's head.
    let head = [b"HTTP/1.1 206 Part\r\n", &bytes[..end + 4]].concat();
    let head = Reply::parse_head(&head).expect("a part's head");
    let (range, whole) = content_range(head.expect_field("Content-Range"));
    let (bytes, after) = bytes[end + 4..].split_at(range.len());
    let content_type = head.field("Content-Type").map(str::to_owned);
    (Part { range, whole, content_type, bytes: bytes.to_vec() }, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_apart() {
        let body = "--b\r\nContent-Range: bytes 0-1/9\r\n\r\nab\r\n\
            --b\r\nContent-Type: text/plain\r\nContent-Range: bytes 4-4/9\r\n\r\ne\r\n--b--\r\n";
        let fields =
            vec![("Content-Type".to_owned(), "multipart/byteranges; boundary=b".to_owned())];
        let reply = Reply { status: 206, fields, body: body.into() };
        let parts = parts(&reply);
        assert_eq!((parts[0].range.clone(), &parts[0].bytes[..]), (0..2, &b"ab"[..]));
        assert_eq!((parts[1].range.clone(), &parts[1].bytes[..]), (4..5, &b"e"[..]));
        assert_eq!(parts.len(), 2);
    }
}
