//! Property tests: the results of both parsers do not depend on how the input is split, for
//! requests that are valid, nearly valid, and garbage.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use weir_http1::{Body, Framing, HeadParser, Limits, Parse, RequestError};

/// Limits small enough that generated heads exceed each of them.
const TIGHT: Limits = Limits { target_bytes_max: 12, head_bytes_max: 90, fields_max: 3 };

const METHODS: &[&str] = &["GET", "OPTIONS", "POST", "BREW", "G@T", "", "PRI", LONG_METHOD];
const LONG_METHOD: &str = "MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM";
const TARGETS: &[&str] =
    &["/", "/a?b", "*", "http://a/b", "/a#b", "/a b", "", "/12345678901", "/123456789012"];
const VERSIONS: &[&str] = &["HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1"];
const LINES: &[&str] = &[
    "Host: a",
    "Host: [::1]:80",
    "Host:",
    "Connection: close",
    "Content-Length: 5",
    "Content-Length: 5, 6",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Expect: 100-continue",
    "Expect: x",
    "Range: bytes=0-1",
    "If-None-Match: \"a\", \"b\"",
    "A : b",
    " folded",
    "A: \0",
    "A: caf\u{e9}",
    "no colon",
];
const ENDS: &[&str] = &["\n", "\r", "\r\r\n", "\n\r", " \r\n", ""];

/// Generates heads that are valid by construction, within the default limits.
fn valid_head() -> impl Strategy<Value = Vec<u8>> {
    let fields = vec(select(vec!["A: b", "Connection: close", "Range: x", "If-Match: *"]), 0..8);
    let line = (select(vec!["GET", "DELETE"]), "/[a-z%|?]{0,9}", select(vec!["1.0", "1.1", "1.9"]));
    (0..4_usize, line, fields).prop_map(|(empty, (method, target, version), fields)| {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let empty = "\r\n".repeat(empty);
        format!("{empty}{method} {target} HTTP/{version}\r\nHost: a\r\n{fields}\r\n").into_bytes()
    })
}

/// Generates heads that mix lines of a real request with lines of an attack. Most lines are valid,
/// so that the parser gets as far as the invalid one.
fn odd_head() -> impl Strategy<Value = Vec<u8>> {
    let odd = (select(METHODS), select(TARGETS), select(VERSIONS))
        .prop_map(|(method, target, version)| format!("{method} {target} {version}"));
    let line = prop_oneof![2 => Just("GET / HTTP/1.1".to_owned()), 1 => odd];
    let end = || prop_oneof![15 => Just("\r\n"), 1 => select(ENDS)];
    let host = prop_oneof![3 => Just("Host: a\r\n"), 1 => Just("")];
    let fields = vec((select(LINES), end()), 0..5);
    (0..7_usize, line, end(), host, fields, end()).prop_map(
        |(empty, line, line_end, host, fields, end)| {
            let empty = "\r\n".repeat(empty.saturating_sub(1));
            let fields: String = fields.iter().map(|(line, end)| format!("{line}{end}")).collect();
            format!("{empty}{line}{line_end}{host}{fields}{end}").into_bytes()
        },
    )
}

/// Generates garbage in which bytes with a meaning to the parser are over-represented.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let telling = select(b"\r\n\r\n \t:;,/0123456789aAfFxG\0".to_vec());
    vec(prop_oneof![4 => telling, 1 => any::<u8>()], 0..120)
}

/// Replaces, inserts or removes a few of the bytes.
fn damaged(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let telling = select(b"\r\n \t:#*;,\0\x7f\xffa0".to_vec());
    let edits = vec((any::<Index>(), 0..3_u8, telling), 0..4);
    (bytes, edits).prop_map(|(mut bytes, edits)| {
        for (index, kind, byte) in edits {
            let at = index.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ if at < bytes.len() => _ = bytes.remove(at),
                _ => {}
            }
        }
        bytes
    })
}

fn any_head() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![damaged(valid_head()), odd_head(), damaged(odd_head()), garbage()]
}

fn any_chunks() -> impl Strategy<Value = Vec<u8>> {
    let chunks = vec(
        prop_oneof![
            Just("1\r\na\r\n"),
            Just("005;a=\"b\"\r\nhello\r\n"),
            Just("A \t;x\r\n0123456789\r\n"),
            Just("0\r\n"),
            Just("0\r\nA: b\r\nC:\r\n"),
            Just("\r\n"),
        ],
        0..8,
    );
    let valid = chunks.prop_map(|chunks| format!("{}0\r\n\r\n", chunks.concat()).into_bytes());
    prop_oneof![damaged(valid), garbage()]
}

fn parse_once<'b>(bytes: &'b [u8], limits: &Limits) -> Parse<'b> {
    HeadParser::default().parse(bytes, limits)
}

/// Returns the first verdict when the buffer grows to each of these lengths in turn.
fn parse_grown<'b>(
    bytes: &'b [u8],
    lengths: impl IntoIterator<Item = usize>,
    limits: &Limits,
) -> Parse<'b> {
    let mut parser = HeadParser::default();
    let mut verdicts = lengths.into_iter().map(|len| parser.parse(&bytes[..len], limits));
    verdicts.find(|verdict| *verdict != Parse::Partial).unwrap_or(Parse::Partial)
}

fn check_head(bytes: &[u8], limits: &Limits) -> Result<(), TestCaseError> {
    let whole = parse_once(bytes, limits);
    prop_assert_eq!(parse_grown(bytes, 0..=bytes.len(), limits), whole, "byte by byte");
    for cut in 0..bytes.len() {
        prop_assert_eq!(parse_grown(bytes, [cut, bytes.len()], limits), whole, "cut at {}", cut);
    }
    Ok(())
}

/// Returns the total consumed and payload bytes and whether the body is done; or the refusal.
fn decode(framing: Framing, pieces: &[&[u8]]) -> Result<(usize, usize, bool), RequestError> {
    let mut body = Body::new(framing);
    let mut sum = (0, 0, false);
    for piece in pieces {
        let advance = body.advance(piece)?;
        let all_consumed = advance.consumed == piece.len();
        assert!(advance.done || all_consumed, "only an end leaves bytes behind");
        assert!(advance.payload <= advance.consumed);
        sum = (sum.0 + advance.consumed, sum.1 + advance.payload, advance.done);
    }
    Ok(sum)
}

fn check_body(framing: Framing, bytes: &[u8]) -> Result<(), TestCaseError> {
    let whole = decode(framing, &[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    if !bytes.is_empty() {
        prop_assert_eq!(decode(framing, &single), whole, "byte by byte");
    }
    for cut in 0..bytes.len() {
        let (front, back) = bytes.split_at(cut);
        prop_assert_eq!(decode(framing, &[front, back]), whole, "cut at {}", cut);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_valid_head_is_complete_and_ends_where_it_ends(head in valid_head()) {
        let Parse::Complete(request) = parse_once(&head, &Limits::default()) else {
            return Err(TestCaseError::fail("a valid head was not accepted"));
        };
        prop_assert_eq!(request.head_len, head.len());
        check_head(&head, &Limits::default())?;
    }

    #[test]
    fn cuts_in_a_head_do_not_matter(head in any_head()) {
        check_head(&head, &Limits::default())?;
    }

    #[test]
    fn cuts_in_a_head_beyond_limits_do_not_matter(head in any_head()) {
        check_head(&head, &TIGHT)?;
    }

    #[test]
    fn bytes_after_a_verdict_do_not_change_it(head in any_head(), tail in garbage()) {
        for limits in [Limits::default(), TIGHT] {
            let alone = parse_once(&head, &limits);
            let followed = [&head[..], &tail[..]].concat();
            if alone != Parse::Partial {
                prop_assert_eq!(parse_once(&followed, &limits), alone);
            }
        }
    }

    #[test]
    fn cuts_in_a_chunked_body_do_not_matter(bytes in any_chunks()) {
        check_body(Framing::Chunked, &bytes)?;
    }

    #[test]
    fn cuts_in_a_body_of_known_length_do_not_matter(length in 0..40_u64, bytes in garbage()) {
        check_body(Framing::Length(length), &bytes)?;
    }
}

/// Checks that the generators reach every kind of outcome: if all inputs were refused alike, they
/// would prove little.
#[test]
fn odd_heads_come_to_every_kind_of_end() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4000 {
        let head = any_head().new_tree(&mut runner).unwrap().current();
        seen.insert(match parse_once(&head, &TIGHT) {
            Parse::Partial => 0,
            Parse::Complete(_) => 200,
            Parse::Refused(refusal) => refusal.status.code(),
        });
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 200, 400, 414, 417, 431, 501, 505]);
}
