//! The framing rows of the table of bad inputs: one test per row, named for it.
//!
//! Every row runs both whole and byte by byte. Rows about paths, files and ranges are not covered
//! here: the parser passes those on as raw bytes.

use weir_http1::{Body, Framing, HeadParser, Limits, Method, Parse, RequestError, Version};

/// Returns the refusal's status, 200 for a request, or 0 for an incomplete head.
fn code(parse: Parse<'_>) -> u16 {
    match parse {
        Parse::Partial => 0,
        Parse::Complete(_) => 200,
        Parse::Refused(refusal) => refusal.status.code(),
    }
}

/// Parses a head, asserting that the verdict does not depend on how it is split.
fn head(bytes: impl AsRef<[u8]>) -> u16 {
    let bytes = bytes.as_ref();
    let limits = Limits::default();
    let whole = code(HeadParser::default().parse(bytes, &limits));
    let mut parser = HeadParser::default();
    let trickled = (1..=bytes.len())
        .map(|end| code(parser.parse(&bytes[..end], &limits)))
        .find(|&code| code != 0);
    assert_eq!(trickled.unwrap_or(0), whole, "trickled, then whole");
    whole
}

/// Parses a GET with a Host and these lines, each of which includes its line end.
fn with_lines(lines: impl AsRef<[u8]>) -> u16 {
    head([b"GET / HTTP/1.1\r\nHost: a\r\n", lines.as_ref(), b"\r\n"].concat())
}

/// Parses a request line, followed by a valid Host.
fn with_request_line(line: &str) -> u16 {
    head(format!("{line}\r\nHost: a\r\n\r\n"))
}

/// Decodes a chunked body: returns a status, 200 when done, or 0 when incomplete.
fn chunked(bytes: impl AsRef<[u8]>) -> u16 {
    let verdict = |result: Result<_, RequestError>| match result {
        Err(refusal) => refusal.status.code(),
        Ok(true) => 200,
        Ok(false) => 0,
    };
    let bytes = bytes.as_ref();
    let whole = verdict(Body::new(Framing::Chunked).advance(bytes).map(|advance| advance.done));
    let mut body = Body::new(Framing::Chunked);
    let trickled = bytes
        .chunks(1)
        .map(|byte| verdict(body.advance(byte).map(|advance| advance.done)))
        .find(|&code| code != 0);
    assert_eq!(trickled.unwrap_or(0), whole, "trickled, then whole");
    whole
}

#[test]
fn the_frame_of_these_tests_is_valid() {
    assert_eq!(with_lines(""), 200);
    assert_eq!(with_request_line("GET / HTTP/1.1"), 200);
    assert_eq!(chunked("1\r\na\r\n0\r\n\r\n"), 200);
}

#[test]
fn content_length_beside_transfer_encoding() {
    assert_eq!(with_lines("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400);
    assert_eq!(with_lines("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400);
    assert_eq!(with_lines("Transfer-Encoding: gzip\r\nContent-Length: 0\r\n"), 400);
}

#[test]
fn content_lengths_that_differ() {
    assert_eq!(with_lines("Content-Length: 5\r\nContent-Length: 6\r\n"), 400);
    assert_eq!(with_lines("Content-Length: 5, 6\r\n"), 400);
    assert_eq!(with_lines("Content-Length: 5, 5\r\n"), 200);
    assert_eq!(with_lines("Content-Length: 5\r\nContent-Length: 5\r\n"), 200);
}

#[test]
fn content_length_that_is_no_number() {
    for bad in ["+5", "-5", "5 5", "", " ", "18446744073709551616", "0x5", "5_0", "5;", "\u{665}"] {
        assert_eq!(with_lines(format!("Content-Length: {bad}\r\n")), 400, "{bad:?}");
    }
}

#[test]
fn space_before_the_colon() {
    assert_eq!(with_lines("Transfer-Encoding : chunked\r\n"), 400);
    assert_eq!(with_lines("Transfer-Encoding\t: chunked\r\n"), 400);
}

#[test]
fn obs_fold() {
    assert_eq!(with_lines("Transfer-Encoding:\r\n chunked\r\n"), 400);
    assert_eq!(with_lines("Transfer-Encoding: chunked\r\n\t, identity\r\n"), 400);
    assert_eq!(with_lines("A: b\r\n c\r\n"), 400);
}

#[test]
fn a_coding_after_chunked() {
    assert_eq!(with_lines("Transfer-Encoding: chunked, identity\r\n"), 400);
    assert_eq!(with_lines("Transfer-Encoding: chunked, chunked\r\n"), 400);
    assert_eq!(with_lines("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), 400);
    assert_eq!(with_lines("Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n"), 400);
}

#[test]
fn an_unknown_coding() {
    assert_eq!(with_lines("Transfer-Encoding: xchunked\r\n"), 501);
    assert_eq!(with_lines("Transfer-Encoding: gzip\r\n"), 501);
    assert_eq!(with_lines("Transfer-Encoding: gzip, chunked\r\n"), 501);
    assert_eq!(with_lines("Transfer-Encoding: \x0bchunked\r\n"), 400);
    assert_eq!(with_lines("Transfer-Encoding: chu\rnked\r\n"), 400);
}

#[test]
fn transfer_encoding_on_http_1_0() {
    assert_eq!(head("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    assert_eq!(head("POST / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n"), 400);
}

#[test]
fn chunk_sizes_out_of_grammar() {
    assert_eq!(chunked(format!("{}\r\n", "F".repeat(17))), 400);
    for bad in ["0x5", "0_2e", "+5", "", "-1", " 5", "5 ", "5h", "\u{ff15}"] {
        assert_eq!(chunked(format!("{bad}\r\n")), 400, "{bad:?}");
    }
    for bad in ["5;", "5 ;", "5;a;", "5;a=", "5;=a", "5;a b", "5;a=\"b", "5;a=b c", "5;a=\"b\"c"] {
        assert_eq!(chunked(format!("{bad}\r\n")), 400, "{bad:?}");
    }
}

#[test]
fn chunk_lines_without_crlf() {
    assert_eq!(chunked("5;a=b\nhello\r\n0\r\n\r\n"), 400);
    assert_eq!(chunked("5\nhello\r\n0\r\n\r\n"), 400);
    assert_eq!(chunked("5\r\nhello0\r\n\r\n"), 400);
    assert_eq!(chunked("5\r\nhello\n0\r\n\r\n"), 400);
    assert_eq!(chunked("5\r\nhello!\r\n0\r\n\r\n"), 400);
}

#[test]
fn controls_in_fields() {
    for control in (0..0x20).chain([0x7f]).filter(|byte| ![b'\t', b'\n'].contains(byte)) {
        assert_eq!(with_lines([b"A: b", &[control][..], b"c\r\n"].concat()), 400, "{control}");
        assert_eq!(with_lines([b"A: ", &[control][..], b"\r\n"].concat()), 400, "{control}");
        assert_eq!(with_lines([b"A", &[control][..], b"B: c\r\n"].concat()), 400, "{control}");
    }
    assert_eq!(with_lines("A: b\tc\r\n"), 200);
    assert_eq!(with_lines(b"A: b\xffc\r\n"), 200);
    assert_eq!(with_lines(b"A\xff: b\r\n"), 400);
    assert_eq!(with_lines("A: b\n"), 400, "bare LF");
    assert_eq!(with_lines("A\tB: c\r\n"), 400);
    assert_eq!(with_lines(": b\r\n"), 400);
    assert_eq!(with_lines("A\r\n"), 400);
}

#[test]
fn host_missing_twice_or_malformed() {
    assert_eq!(head("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(with_lines("Host: a\r\n"), 400);
    assert_eq!(with_lines("host: b\r\n"), 400);
    for bad in ["", "a b", "a, b", "a/b", "u@a", "a:b", "a:99999", "[::1", "::1", "a\u{e9}", "a?"] {
        assert_eq!(head(format!("GET / HTTP/1.1\r\nHost: {bad}\r\n\r\n")), 400, "{bad:?}");
        assert_eq!(head(format!("GET / HTTP/1.0\r\nHost: {bad}\r\n\r\n")), 400, "{bad:?}");
    }
    assert_eq!(head("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(head("GET / HTTP/1.0\r\n\r\n"), 200);
    assert_eq!(head("GET http://a/ HTTP/1.1\r\n\r\n"), 400);
}

#[test]
fn white_space_before_the_first_field() {
    assert_eq!(head("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400);
    assert_eq!(head("GET / HTTP/1.1\r\n\tX: a\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(head("GET / HTTP/1.1\r\n \r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn heads_that_are_too_large() {
    let long = "a".repeat(70_000);
    assert_eq!(with_request_line(&format!("GET /{long} HTTP/1.1")), 414);
    assert_eq!(head(format!("GET /{long}")), 414, "before it ends");
    assert_eq!(with_lines(format!("A: {long}\r\n")), 431);
    assert_eq!(with_lines(format!("{long}: a\r\n")), 431);
    assert_eq!(with_lines("A: b\r\n".repeat(5000)), 431);
    assert_eq!(with_lines(format!("A: {}\r\n", "a".repeat(17_000))), 200, "no target");
    assert_eq!(with_request_line(&format!("GET /{} HTTP/1.1", "a".repeat(16_383))), 200);
    assert_eq!(with_request_line(&format!("GET /{} HTTP/1.1", "a".repeat(16_384))), 414);
}

#[test]
fn methods_other_than_those_served() {
    for unknown in ["BREW", "get", "GETT", "propfind", "M-SEARCH", &"M".repeat(70_000)] {
        assert_eq!(with_request_line(&format!("{unknown} / HTTP/1.1")), 501);
    }
    assert_eq!(with_request_line("G@T / HTTP/1.1"), 400);
    for (name, expected) in
        [("TRACE", Method::Trace), ("DELETE", Method::Delete), ("CONNECT", Method::Connect)]
    {
        let bytes = format!("{name} /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let parse = HeadParser::default().parse(bytes.as_bytes(), &Limits::default());
        let Parse::Complete(request) = parse else { panic!("{parse:?}") };
        assert_eq!(request.method, expected, "known; whether allowed is the caller's to say");
    }
    for registered in ["PROPFIND", "MKCOL", "LOCK", "UPDATEREDIRECTREF"] {
        assert_eq!(with_request_line(&format!("{registered} / HTTP/1.1")), 200, "{registered}");
    }
}

#[test]
fn versions_other_than_1_0_and_1_1() {
    assert_eq!(with_request_line("GET / HTTP/2.0"), 505);
    assert_eq!(with_request_line("GET / HTTP/3.0"), 505);
    assert_eq!(with_request_line("GET / http/1.1"), 400);
    assert_eq!(with_request_line("GET / Http/1.1"), 400);
    assert_eq!(with_request_line("GET / HTTP/1.12"), 400);
    assert_eq!(with_request_line("GET / HTTP/1,1"), 400);
    assert_eq!(head("GET /\r\n"), 400, "HTTP/0.9");
    let parse =
        HeadParser::default().parse(b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", &Limits::default());
    let Parse::Complete(request) = parse else { panic!("{parse:?}") };
    assert_eq!(request.version, Version::Http11);
    assert!(request.keep_alive);
}

#[test]
fn targets_out_of_grammar() {
    for bad in ["/a b", "/a#b", "#", "*", "", "a", "/a\tb", "/\u{e9}", "/ ", "http://", "?a"] {
        assert_eq!(with_request_line(&format!("GET {bad} HTTP/1.1")), 400, "{bad:?}");
    }
    assert_eq!(with_request_line("OPTIONS * HTTP/1.1"), 200);
    assert_eq!(with_request_line("OPTIONS ** HTTP/1.1"), 400);
}

#[test]
fn expectations_that_cannot_be_met() {
    assert_eq!(with_lines("Expect: 100-continue\r\n"), 200);
    assert_eq!(with_lines("Expect: 100-Continue\r\n"), 200);
    for bad in ["", "200-ok", "100-continue, x", "100-continue;a", "100"] {
        assert_eq!(with_lines(format!("Expect: {bad}\r\n")), 417, "{bad:?}");
    }
    assert_eq!(head("GET / HTTP/1.0\r\nExpect: x\r\n\r\n"), 200);
}

#[test]
fn the_http_2_preface_and_tls() {
    assert_eq!(head("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    assert_eq!(head(b"\x16\x03\x01\x02\x00\x01"), 400);
}

#[test]
fn controls_in_the_path() {
    for control in (0..0x20).chain([0x7f]) {
        let line = [b"GET /a", &[control][..], b"b HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        assert_eq!(head(line), 400, "{control}");
    }
    assert_eq!(with_request_line("GET /a\r\nX: b HTTP/1.1"), 400);
}
