//! Tests of forwarding: what each side sees, however the bytes are cut.

use proptest::prelude::*;

use super::*;
use crate::head::HeadParser;
use crate::proxy_protocol::{Endpoints, Version as HeaderVersion};
use crate::request::{Limits, Parse};

const FACTS: ReplyFacts<'static> = ReplyFacts {
    close: false,
    date: b"Date: now\r\n",
    fields: b"X-Ours: 1\r\n",
    more_fields: b"",
    removed: &[],
    cache_control: b"",
};

fn request_facts() -> RequestFacts<'static> {
    RequestFacts {
        host: None,
        host_otherwise: b"origin",
        client: Some("192.0.2.7".parse().unwrap()),
        is_trusted: false,
        began_unix_ms: 1_700_000_000_042,
        is_whole: false,
        fields: b"",
        request_id: None,
        proxy_protocol: None,
        endpoints: None,
        is_own: false,
        is_tls: false,
        takes_content_first: false,
        is_last: false,
    }
}

fn exchange_with(head: &[u8], facts: &RequestFacts<'_>) -> Exchange {
    let Parse::Complete(request) = HeadParser::default().parse(head, &Limits::default()) else {
        panic!("not a request")
    };
    assert_eq!(request.head_len, head.len());
    Exchange::new(&request, head, facts)
}

fn exchange(head: &str) -> Exchange {
    exchange_with(head.as_bytes(), &request_facts())
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// The fields that say where a request comes from, as [`request_facts`] has it.
const ORIGIN: &str = "X-Forwarded-For: 192.0.2.7\r\n\
                      Forwarded: for=192.0.2.7;host=\"a\";proto=http\r\n\
                      X-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n\
                      X-Request-Start: t=1700000000.042\r\nVia: 1.1 weir\r\n";

#[test]
fn a_request_is_written_anew() {
    let exchange = exchange("GET /a?b HTTP/1.1\r\nHOST:  a\r\nAccept:\t*/*  \r\n\r\n");
    let expected = format!("GET /a?b HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n{ORIGIN}\r\n");
    assert_eq!(text(exchange.unsent()), expected);
    assert!(exchange.request_taken() && exchange.may_repeat());
}

#[test]
fn what_is_about_one_connection_ends_here() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Mine\r\nx-mine: 1\r\n\
                Keep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: close\r\n\
                Proxy-Authorization: b\r\nUpgrade: h2c\r\nX_Forwarded_For: c\r\nKept: d\r\n\r\n";
    let expected = format!("GET / HTTP/1.1\r\nHost: a\r\nKept: d\r\n{ORIGIN}\r\n");
    assert_eq!(text(exchange(head).unsent()), expected);
}

#[test]
fn only_a_trusted_proxy_says_where_a_request_comes_from() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\
                X-Forwarded-Proto: https\r\nX-Real-IP: 1.2.3.4\r\nX-Request-Start: t=1\r\n\r\n";
    let expected = format!("GET / HTTP/1.1\r\nHost: a\r\n{ORIGIN}\r\n");
    assert_eq!(text(exchange(head).unsent()), expected);
    let facts = RequestFacts { is_trusted: true, ..request_facts() };
    let trusted = exchange_with(head.as_bytes(), &facts);
    let sent = text(trusted.unsent());
    assert!(sent.contains("X-Forwarded-For: 1.2.3.4, 192.0.2.7\r\n"), "{sent}");
    assert!(sent.contains("Forwarded: for=1.2.3.4\r\n"), "{sent}");
    assert!(sent.contains("X-Forwarded-Proto: https\r\n"), "{sent}");
    assert!(!sent.contains("X-Forwarded-Proto: http\r\n"), "{sent}");
    assert!(sent.contains("X-Request-Start: t=1\r\n"), "{sent}");
    // A Connection of its client's that it has relayed; what is not said here ends here.
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Forwarded-For, X-Mine\r\n\
                X-Forwarded-For: 1.2.3.4\r\nX-Mine: 1\r\n\r\n";
    let relayed = exchange_with(head.as_bytes(), &facts);
    let sent = text(relayed.unsent());
    assert!(sent.contains("\r\nX-Forwarded-For: 1.2.3.4, 192.0.2.7\r\n"), "{sent}");
    assert!(!sent.contains("X-Mine"), "{sent}");
}

#[test]
fn an_ipv6_client_and_a_missing_host() {
    let client = Some("2001:db8::1".parse().unwrap());
    let facts = RequestFacts { client, ..request_facts() };
    let exchange = exchange_with(b"GET / HTTP/1.0\r\n\r\n", &facts);
    let sent = text(exchange.unsent());
    assert!(sent.starts_with("GET / HTTP/1.1\r\nHost: origin\r\n"), "{sent}");
    assert!(sent.contains("Forwarded: for=\"[2001:db8::1]\";proto=http\r\n"), "{sent}");
    assert!(sent.contains("\r\nVia: 1.0 weir\r\n"), "{sent}");
}

#[test]
fn a_request_names_the_server_that_it_is_sent_to_unless_its_client_names_another() {
    let named = RequestFacts { host: Some(b"one"), ..request_facts() };
    let version = Some(HeaderVersion::V1);
    for (line, facts) in [
        ("1.1\r\nHost: a", RequestFacts { proxy_protocol: version, ..named }),
        ("1.0", RequestFacts { host_otherwise: b"one", ..request_facts() }),
    ] {
        let head = format!("POST / HTTP/{line}\r\nContent-Length: 3\r\n\r\n");
        let mut exchange = exchange_with(head.as_bytes(), &facts);
        assert_eq!(exchange.take(b"abc"), Ok(3));
        let first = text(exchange.unsent()).to_owned();
        for host in ["one", "server.two:8080", "3", "one"] {
            exchange.set_server_host(host.as_bytes());
            let expected = first.replace("\r\nHost: one\r\n", &format!("\r\nHost: {host}\r\n"));
            assert_eq!(text(exchange.unsent()), expected);
        }
        exchange.note_sent(1);
        exchange.set_server_host(b"four");
        assert_eq!(text(exchange.unsent()), &first[1..]);
    }
    let mut own = exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    own.set_server_host(b"one");
    assert!(text(own.unsent()).contains("\r\nHost: a\r\n"));
    // Sent again, it may go to another server.
    let mut again = exchange_with(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &named);
    again.note_sent(again.unsent().len());
    again.repeat();
    again.set_server_host(b"two");
    assert!(text(again.unsent()).contains("\r\nHost: two\r\n"));
}

#[test]
fn a_request_of_the_proxy_s_own_has_no_client_in_front_of_it() {
    let ends = Endpoints {
        source: "192.0.2.7:5000".parse().unwrap(),
        destination: "198.51.100.9:80".parse().unwrap(),
    };
    let begins = |version, is_own, with: &[u8]| {
        let proxy_protocol = Some(version);
        let facts =
            RequestFacts { proxy_protocol, endpoints: Some(ends), is_own, ..request_facts() };
        let exchange = exchange_with(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &facts);
        exchange.unsent().starts_with(&[with, b"GET / "].concat())
    };
    assert!(begins(HeaderVersion::V1, false, b"PROXY TCP4 192.0.2.7 198.51.100.9 5000 80\r\n"));
    assert!(begins(HeaderVersion::V1, true, b"PROXY UNKNOWN\r\n"));
    assert!(begins(HeaderVersion::V2, true, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"));
}

#[test]
fn content_is_framed_anew() {
    let mut length = exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n");
    assert!(length.wants_client() && !length.request_taken());
    assert_eq!(length.take(b"abcGET /"), Ok(3));
    assert!(text(length.unsent()).ends_with("Content-Length: 3\r\n\r\nabc"));
    let framing = "Connection: close, X-Mine\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = "003;x=y\r\nabc\r\n0\r\nA: b\r\nContent-Length: 9\r\nx-mine: 1\r\n\
                  Content-Digest: d\r\n\r\n";
    let expected = "3\r\nabc\r\n0\r\nA: b\r\nContent-Digest: d\r\n\r\n";
    let mut chunked = exchange(&format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}"));
    assert_eq!(chunked.take(chunks.as_bytes()), Ok(chunks.len()));
    assert!(chunked.request_taken());
    let sent = text(chunked.unsent());
    assert!(sent.ends_with(&format!("Transfer-Encoding: chunked\r\n\r\n{expected}")), "{sent}");
    let reply = format!("HTTP/1.1 200 OK\r\n{framing}{chunks}");
    let (out, _) = forward(GET, [reply.as_bytes()], false);
    assert!(out.ends_with(&format!("Transfer-Encoding: chunked\r\n\r\n{expected}")), "{out}");
}

#[test]
fn the_rest_of_the_content_is_all_there_or_not() {
    let mut length = exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
    assert!(!length.is_rest_in(b"abcdefgh") && length.is_rest_in(b"abcdefghiGET /"));
    assert_eq!(length.take(b"abcd"), Ok(4));
    assert!(!length.is_rest_in(b"efgh") && length.is_rest_in(b"efghi"));
    let mut chunked = exchange("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(chunked.take(b"3\r\nab"), Ok(5));
    assert!(!chunked.is_rest_in(b"c\r\n0\r\n") && chunked.is_rest_in(b"c\r\n0\r\n\r\nGET /"));
    assert!(!chunked.is_rest_in(b"c\r\nx\r\n\r\n"), "malformed");
    // To look changes nothing.
    assert_eq!(chunked.take(b"c\r\n0\r\n\r\n"), Ok(8));
    assert!(chunked.request_taken() && chunked.is_rest_in(b""));
}

#[test]
fn content_of_known_length_may_be_passed_on_unseen_behind_what_was_taken() {
    let mut length = exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
    assert_eq!(length.passable_content_bytes(), 0);
    assert_eq!(length.take(b"abc"), Ok(3));
    assert!(length.passable_content_bytes() == 0 && !length.is_rest_in(b"12345"));
    assert!(length.is_rest_in(b"123456"));
    length.note_sent(length.unsent().len());
    assert_eq!(length.passable_content_bytes(), 6);
    length.note_passing(4);
    assert!(!length.wants_client() && !length.is_sent() && !length.may_repeat());
    length.note_passed_on(3);
    assert!(length.passable_content_bytes() == 0 && !length.is_rest_in(b"x"));
    assert!(length.is_rest_in(b"xy"));
    length.note_passed_on(1);
    assert!(length.wants_client() && length.is_sent());
    assert_eq!(length.take(b"xyGET /"), Ok(2));
    assert!(length.request_taken() && length.is_rest_in(b""));
    let mut chunked = exchange("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunked.note_sent(chunked.unsent().len());
    assert_eq!(chunked.passable_content_bytes(), 0);
}

#[test]
fn malformed_content_is_an_error() {
    let mut chunked = exchange("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(chunked.take(b"x\r\n").unwrap_err().status.code(), 400);
}

#[test]
fn content_that_is_taken_first_is_not_asked_of_the_server() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
    for takes_content_first in [false, true] {
        let facts = RequestFacts { takes_content_first, ..request_facts() };
        let mut exchange = exchange_with(head, &facts);
        let sent = text(exchange.unsent());
        assert_eq!(sent.contains("Expect: 100-continue\r\n"), !takes_content_first, "{sent}");
        exchange.note_sent(exchange.unsent().len());
        assert_eq!(exchange.awaits_content(), takes_content_first);
    }
}

#[test]
fn as_much_content_is_taken_as_may_wait() {
    let mut exchange = exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
    let (head, content) = (exchange.unsent().len(), vec![b'x'; 300_000]);
    exchange.set_request_bytes_max(Some(head + 200_000));
    assert_eq!(exchange.take(&content), Ok(200_000));
    assert!(!exchange.wants_client() && exchange.request_capacity() >= 200_000);
    // What waits is sent before more is taken.
    exchange.set_request_bytes_max(None);
    assert!(!exchange.wants_client());
    exchange.note_sent(head + 150_000);
    assert_eq!(exchange.take(&content[200_000..]), Ok((64 << 10) - 50_000));
    exchange.note_sent(64 << 10);
    assert!(exchange.wants_client() && exchange.is_sent());
}

#[test]
fn a_request_is_repeated_only_if_that_is_harmless() {
    for (head, expected) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", false),
        ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", false),
    ] {
        let mut exchange = exchange(head);
        assert!(exchange.may_repeat(), "nothing was sent: {head}");
        let whole = exchange.unsent().to_vec();
        exchange.note_sent(whole.len());
        assert_eq!(exchange.may_repeat(), expected, "{head}");
        if expected {
            exchange.repeat();
            assert_eq!(exchange.unsent(), whole);
            exchange.note_sent(whole.len());
            exchange.receive(b"HTT", &mut Vec::new(), &FACTS).unwrap();
            assert!(!exchange.may_repeat(), "a reply has begun");
        }
    }
}

#[test]
fn a_client_that_waits_for_a_100_and_gets_a_reply_is_told_that_its_connection_closes() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
    let reply = b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n";
    for (content, closes) in [("", true), ("some", false)] {
        let mut exchange = exchange(head);
        assert_eq!(exchange.take(content.as_bytes()), Ok(content.len()));
        exchange.note_sent(exchange.unsent().len());
        let mut out = Vec::new();
        exchange.receive(reply, &mut out, &FACTS).unwrap();
        let is_told = text(&out).contains("\r\nConnection: close\r\n");
        assert_eq!((is_told, exchange.ends_by_close()), (closes, closes), "{content}");
    }
}

/// What a client sees, and whether the other connection is kept, after a reply in `pieces`.
fn forward<'a>(
    head: &str,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    ends: bool,
) -> (String, bool) {
    let mut exchange = exchange(head);
    let all = exchange.unsent().len();
    exchange.note_sent(all);
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(error) = exchange.receive(piece, &mut out, &FACTS) {
            return (format!("{}|{}", String::from_utf8_lossy(&out), error.why), false);
        }
    }
    if ends && let Err(error) = exchange.end(&mut out) {
        out.extend_from_slice(format!("|{error}").as_bytes());
    }
    (String::from_utf8(out).unwrap(), exchange.keeps_upstream())
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OLD: &str = "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
const ADDED: &str = "Date: now\r\nVia: 1.1 weir\r\nX-Ours: 1\r\n";

/// Asserts what the client sees of a reply, and whether the other connection is kept. A case: the
/// request, the reply, whether the connection then ends, and the two.
fn assert_replies<const N: usize>(cases: [(&str, &str, bool, String, bool); N]) {
    for (head, reply, ends, expected, keeps) in cases {
        assert_eq!(forward(head, [reply.as_bytes()], ends), (expected, keeps), "{reply:?}");
    }
}

#[test]
fn replies_are_written_anew() {
    assert_replies([
        (
            GET,
            "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nKeep-Alive: 3\r\nA:  b\r\n\r\nhi",
            false,
            format!("HTTP/1.1 200 Fine\r\nA: b\r\n{ADDED}Content-Length: 2\r\n\r\nhi"),
            true,
        ),
        (
            GET,
            "HTTP/1.0 404 No\nDate: then\nContent-Length: 0\n\n",
            false,
            "HTTP/1.1 404 No\r\nDate: then\r\nVia: 1.0 weir\r\nX-Ours: 1\r\n\
             Content-Length: 0\r\n\r\n"
                .to_owned(),
            false,
        ),
        (
            GET,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n02;x\r\nhi\r\n0\r\nT: u\r\n\r\n",
            false,
            format!(
                "HTTP/1.1 200 OK\r\n{ADDED}Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\
                 T: u\r\n\r\n"
            ),
            true,
        ),
    ]);
}

#[test]
fn the_server_is_the_one_that_made_the_reply() {
    let facts = ReplyFacts { fields: b"Server: ours\r\nX: 1\r\n", ..FACTS };
    for (theirs, expected) in [("", "Server: ours\r\nX: 1\r\n"), ("server: theirs\r\n", "X: 1\r\n")]
    {
        let mut out = Vec::new();
        let reply = format!("HTTP/1.1 204 None\r\n{theirs}\r\n");
        exchange(GET).receive(reply.as_bytes(), &mut out, &facts).unwrap();
        let expected =
            format!("HTTP/1.1 204 None\r\n{theirs}Date: now\r\nVia: 1.1 weir\r\n{expected}\r\n");
        assert_eq!(text(&out), expected);
    }
}

#[test]
fn fields_of_the_other_server_are_left_out_or_replaced() {
    let removed = [Box::from(*b"x-powered-by"), Box::from(*b"server")];
    let cache_control = b"Cache-Control: no-cache\r\n";
    let facts = ReplyFacts { removed: &removed, cache_control, more_fields: b"Y: 1\r\n", ..FACTS };
    for (status, expected) in [
        (
            "204 None",
            "A: b\r\nDate: now\r\nVia: 1.1 weir\r\nX-Ours: 1\r\nY: 1\r\n\
             Cache-Control: no-cache\r\n",
        ),
        (
            "404 No",
            "cache-control: x\r\nA: b\r\nDate: now\r\nVia: 1.1 weir\r\nX-Ours: 1\r\nY: 1\r\n",
        ),
    ] {
        let lines = "Server: theirs\r\nX-POWERED-BY: it\r\ncache-control: x\r\nA: b\r\n";
        let reply = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: 0\r\n\r\n");
        let mut out = Vec::new();
        exchange(GET).receive(reply.as_bytes(), &mut out, &facts).unwrap();
        let length = if status.starts_with('2') { "" } else { "Content-Length: 0\r\n" };
        assert_eq!(text(&out), format!("HTTP/1.1 {status}\r\n{expected}{length}\r\n"));
    }
}

#[test]
fn the_end_of_a_reply_is_shown_as_its_client_can_see_it() {
    assert_replies([
        (
            OLD,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            false,
            format!("HTTP/1.1 200 OK\r\n{ADDED}Connection: close\r\n\r\nhi"),
            true,
        ),
        (
            GET,
            "HTTP/1.0 200 OK\r\n\r\nhi",
            true,
            "HTTP/1.1 200 OK\r\nDate: now\r\nVia: 1.0 weir\r\nX-Ours: 1\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
                .to_owned(),
            false,
        ),
        (
            HEAD,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
            false,
            format!("HTTP/1.1 200 OK\r\n{ADDED}Content-Length: 9\r\n\r\n"),
            true,
        ),
        (
            GET,
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
            false,
            format!("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n{ADDED}\r\n"),
            true,
        ),
        (
            GET,
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 None\r\n\r\n",
            false,
            format!("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 None\r\n{ADDED}\r\n"),
            true,
        ),
        (
            GET,
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n",
            false,
            format!("HTTP/1.1 200 OK\r\n{ADDED}Content-Length: 1\r\n\r\nx"),
            false,
        ),
    ]);
}

#[test]
fn a_reply_cut_short_is_never_made_to_look_whole() {
    for (reply, seen) in [
        ("", "|closed before the reply"),
        ("HTTP/1.1 200 OK\r\nA: b\r\n", "|closed inside the head"),
        ("HTTP/1.1 100 Continue\r\n\r\n", "|closed inside the head"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", "hi|closed inside the body"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
            "2\r\nhi\r\n|closed inside the body",
        ),
    ] {
        let (out, keeps) = forward(GET, [reply.as_bytes()], true);
        assert!(out.ends_with(seen) && !keeps, "{out:?}");
    }
}

#[test]
fn a_doubtful_reply_is_an_error() {
    for (reply, why) in [
        ("SSH-2.0-x\r\n", "not HTTP"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "Content-Length values differ",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Content-Length beside Transfer-Encoding",
        ),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "folded field line"),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "malformed field line"),
        ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "a switch of protocols nobody asked for"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "a transfer coding besides chunked",
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "a transfer coding besides chunked"),
    ] {
        assert_eq!(forward(GET, [reply.as_bytes()], false).0, format!("|{why}"), "{reply:?}");
    }
    let endless = b"HTTP/1.1 200 OK\r\n".iter().chain(b"A: b\r\n".iter().cycle());
    let endless: Vec<u8> = endless.take(70_000).copied().collect();
    assert_eq!(forward(GET, [&endless[..]], false).0, "|head too large");
}

#[test]
fn a_stream_of_events_is_one_that_was_asked_for() {
    let is_stream = |method: &str, accept: &str, media_type: &str| {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n{accept}\r\n");
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n\r\n");
        let (mut exchange, mut out) = (exchange(&head), Vec::new());
        exchange.receive(reply.as_bytes(), &mut out, &FACTS).unwrap();
        exchange.is_event_stream()
    };
    let accept = "Accept: text/event-stream\r\n";
    let list = "Accept: a/b\r\nACCEPT: */* , Text/Event-Stream ; q=0.9\r\n";
    assert!(is_stream("GET", accept, "text/event-stream"));
    assert!(is_stream("GET", list, "Text/Event-Stream; charset=utf-8"));
    assert!(!is_stream("GET", "Accept: */*\r\n", "text/event-stream"));
    assert!(!is_stream("GET", "", "text/event-stream"));
    assert!(!is_stream("GET", accept, "text/event-streams"));
    assert!(!is_stream("POST", accept, "text/event-stream"));
}

#[test]
fn a_field_that_no_reply_has_is_in_no_interim_one_either() {
    let removed = [b"link".to_vec().into(), b"via".to_vec().into()];
    let facts = ReplyFacts { removed: &removed, ..FACTS };
    let mut exchange = exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut out = Vec::new();
    let interim = "HTTP/1.1 103 Early Hints\r\nLINK: </a.css>\r\nKept: b\r\n\r\n";
    let last = "HTTP/1.1 204 No Content\r\nLink: </a.css>\r\nDate: d\r\nVia: 1.1 c\r\n\r\n";
    exchange.receive(format!("{interim}{last}").as_bytes(), &mut out, &facts).unwrap();
    let expected = "HTTP/1.1 103 Early Hints\r\nKept: b\r\n\r\n\
                    HTTP/1.1 204 No Content\r\nDate: d\r\nX-Ours: 1\r\n\r\n";
    assert_eq!(text(&out), expected);
}

#[test]
fn a_field_that_no_reply_has_is_no_trailer_and_is_not_announced() {
    let removed = [b"x-secret".to_vec().into()];
    let facts = ReplyFacts { removed: &removed, ..FACTS };
    for (announced, kept) in
        [("X-Secret, T", "Trailer: T\r\n"), ("t ,, u", "Trailer: t, u\r\n"), ("x-SECRET", "")]
    {
        let reply = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: {announced}\r\n\r\n\
             2\r\nhi\r\n0\r\nX-SECRET: 1\r\nT: u\r\n\r\n"
        );
        let mut out = Vec::new();
        exchange(GET).receive(reply.as_bytes(), &mut out, &facts).unwrap();
        let expected = format!(
            "HTTP/1.1 200 OK\r\n{kept}{ADDED}Transfer-Encoding: chunked\r\n\r\n\
             2\r\nhi\r\n0\r\nT: u\r\n\r\n"
        );
        assert_eq!(text(&out), expected);
    }
}

#[test]
fn a_connection_that_told_a_timeout_is_not_kept() {
    for (status, keeps) in [(408, false), (404, true)] {
        let reply = format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(forward(GET, [reply.as_bytes()], false).1, keeps, "{status}");
    }
}

#[test]
fn methods_of_the_registry_are_forwarded_and_sent_again_if_they_may_be() {
    for (method, may_repeat) in [("PROPFIND", true), ("MKCOL", true), ("LOCK", false)] {
        let mut exchange = exchange(&format!("{method} /a HTTP/1.1\r\nHost: a\r\n\r\n"));
        let line = format!("{method} /a HTTP/1.1\r\n");
        assert!(text(exchange.unsent()).starts_with(&line), "{method}");
        exchange.note_sent(1);
        assert_eq!(exchange.may_repeat(), may_repeat, "{method}");
    }
}

#[test]
fn a_request_for_a_whole_server_is_passed_on_as_one() {
    for target in ["*", "http://a", "HTTP://a"] {
        let exchange = exchange(&format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let expected = format!("OPTIONS * HTTP/1.1\r\nHost: a\r\n{ORIGIN}\r\n");
        assert_eq!(text(exchange.unsent()), expected, "{target}");
    }
}

#[test]
fn an_https_resource_is_told_as_one() {
    let exchange = exchange("GET https://b/c HTTP/1.1\r\nHost: a\r\n\r\n");
    let sent = text(exchange.unsent());
    assert!(sent.starts_with("GET /c HTTP/1.1\r\nHost: b\r\n"), "{sent}");
    assert!(sent.contains("X-Forwarded-Proto: https\r\n"), "{sent}");
    assert!(sent.contains(";host=\"b\";proto=https\r\n"), "{sent}");
}

#[test]
fn an_interim_reply_is_kept_from_an_old_client() {
    let reply = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 None\r\n\r\n";
    let (out, _) = forward(OLD, [&reply[..]], false);
    assert_eq!(out, format!("HTTP/1.1 204 None\r\n{ADDED}Connection: keep-alive\r\n\r\n"));
}

#[test]
fn a_refusal_before_the_content_closes_the_connection() {
    let mut exchange = exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
    let mut out = Vec::new();
    let reply = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
    exchange.receive(reply, &mut out, &FACTS).unwrap();
    assert!(text(&out).contains("Connection: close\r\n"));
    assert!(!exchange.keeps_upstream());
}

#[test]
fn a_close_that_was_told_is_kept_though_the_content_was_taken_meanwhile() {
    let mut exchange = exchange("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    let mut out = Vec::new();
    let reply = b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n";
    exchange.receive(reply, &mut out, &FACTS).unwrap();
    assert!(text(&out).contains("\r\nConnection: close\r\n"), "{}", text(&out));
    assert_eq!(exchange.take(b"abc"), Ok(3));
    exchange.receive(b"no", &mut out, &FACTS).unwrap();
    assert!(exchange.request_taken() && exchange.part() == ReplyPart::Done);
    assert!(exchange.ends_by_close());
}

#[test]
fn options_pass_as_many_proxies_as_they_say() {
    let sent = |method: &str, hops: &str| {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nMax-Forwards: {hops}\r\n\r\n");
        let sent = text(exchange(&head).unsent()).to_owned();
        let (_, rest) = sent.split_once("Max-Forwards: ").unwrap();
        rest.split_once("\r\n").unwrap().0.to_owned()
    };
    let far = u64::MAX - 1;
    for (hops, left) in
        [("5", "4"), ("1", "0"), ("+1", "+1"), ("99999999999999999999", &far.to_string())]
    {
        assert_eq!(sent("OPTIONS", hops), left);
        assert_eq!(sent("GET", hops), hops);
    }
    assert_eq!(max_forwards(b"OPTIONS * HTTP/1.1\r\nmax-forwards:0\r\n\r\n"), Some(0));
    assert_eq!(max_forwards(b"OPTIONS * HTTP/1.1\r\nMax-Forwards: -1\r\n\r\n"), None);
}

#[test]
fn a_field_that_connection_names_is_kept_from_the_other_server() {
    let keeps = |connection: &str| {
        let head = format!(
            "GET / HTTP/1.1\r\nOrigin: a\r\nTE: trailers\r\nConnection: {connection}\r\n\r\n"
        );
        keeps_fields(head.as_bytes(), connection.as_bytes())
    };
    assert!(keeps("origin") && keeps("close, Origin"));
    assert!(!(keeps("close") || keeps("keep-alive, TE") || keeps("Cookie") || keeps("")));
    // Empty elements are nothing, and very many are not looked for one by one.
    assert!(!keeps(&",".repeat(50_000)) && !keeps(&"a,".repeat(16)) && keeps(&"a,".repeat(17)));
}

#[test]
fn a_reply_may_depend_on_what_is_said_of_each_client() {
    let depends = |vary: &str| {
        let reply = format!("HTTP/1.1 200 OK\r\nVary: Accept\r\nvary: {vary}\r\n\r\n");
        depends_on_client(reply.as_bytes())
    };
    for always in ["Forwarded", "Origin, x-forwarded-for", "X-Request-Start", "X-Request-ID"] {
        assert!(depends(always), "{always}");
    }
    // What is said of all clients without TLS is known by that.
    assert!(!depends("X-Forwarded-Proto") && !depends("X-Real-IP, Origin"));
}

#[test]
fn a_protocol_that_carries_requests_is_not_asked_for() {
    for protocol in ["h2c", "websocket, H2C", "HTTP/2.0", "TLS/1.0"] {
        let head = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: {protocol}\r\nHTTP2-Settings: x\r\n\r\n"
        );
        let expected = format!("GET / HTTP/1.1\r\nHost: a\r\n{ORIGIN}\r\n");
        assert_eq!(text(exchange(&head).unsent()), expected);
    }
}

#[test]
fn a_request_may_be_the_last_on_its_connection_unless_it_asks_for_another_protocol() {
    let facts = RequestFacts { is_last: true, ..request_facts() };
    for (fields, expected) in [
        ("", "Connection: close\r\n"),
        ("Connection: keep-alive\r\n", "Connection: close\r\n"),
        (
            "Connection: upgrade\r\nUpgrade: websocket\r\n",
            "Connection: upgrade\r\nUpgrade: websocket\r\n",
        ),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut exchange = exchange_with(head.as_bytes(), &facts);
        let sent = format!("GET / HTTP/1.1\r\nHost: a\r\n{ORIGIN}{expected}\r\n");
        assert_eq!(text(exchange.unsent()), sent);
        exchange.note_sent(exchange.unsent().len());
        // One that does not listen.
        let reply = b"HTTP/1.1 204 None\r\nConnection: keep-alive\r\n\r\n";
        exchange.receive(reply, &mut Vec::new(), &FACTS).unwrap();
        assert!(exchange.is_last() && !exchange.keeps_upstream());
    }
}

#[test]
fn content_that_has_no_meaning_is_the_last_on_its_connection() {
    for (method, length, is_last) in [("GET", 1, true), ("GET", 0, false), ("POST", 1, false)] {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let mut exchange = exchange(&head);
        assert_eq!(text(exchange.unsent()).contains("Connection: close\r\n"), is_last, "{head}");
        assert_eq!(exchange.take(b"x"), Ok(length));
        exchange.note_sent(exchange.unsent().len());
        exchange.receive(b"HTTP/1.1 204 None\r\n\r\n", &mut Vec::new(), &FACTS).unwrap();
        assert_eq!(exchange.keeps_upstream(), !is_last, "{head}");
    }
}

#[test]
fn a_server_that_never_takes_all_does_not_let_the_request_grow() {
    let mut exchange = exchange("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 99000000\r\n\r\n");
    for _ in 0..1000 {
        while exchange.wants_client() {
            exchange.take(&[b'x'; 10_000]).unwrap();
        }
        exchange.note_sent(exchange.unsent().len() - 1);
    }
    assert!(exchange.request_capacity() < 256 << 10);
}

#[test]
fn the_end_of_the_client_s_side_ends_another_protocol_s_too() {
    let mut exchange =
        exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    assert!(!exchange.end_client(), "nothing can come of it");
    exchange.receive(b"HTTP/1.1 101 S\r\n\r\n", &mut Vec::new(), &FACTS).unwrap();
    assert!(exchange.wants_client() && exchange.end_client());
    assert!(!exchange.wants_client() && exchange.has_client_ended());
    assert_eq!(exchange.part(), ReplyPart::Tunnel, "the server's side goes on");
}

#[test]
fn another_protocol_passes_unread() {
    let head = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
                Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
    let mut exchange = exchange(head);
    let sent = text(exchange.unsent());
    let end = "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert!(sent.contains("Sec-WebSocket-Key: k\r\n") && sent.ends_with(end), "{sent}");
    let all = exchange.unsent().len();
    exchange.note_sent(all);
    let mut out = Vec::new();
    let reply =
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Accept: v\r\n\r\n\x81\x02hi";
    exchange.receive(reply, &mut out, &FACTS).unwrap();
    let expected = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: v\r\nVia: 1.1 weir\r\nConnection: upgrade\r\n\r\n\
                     \x81\x02hi";
    assert_eq!(out, expected);
    assert_eq!(exchange.part(), ReplyPart::Tunnel);
    assert_eq!(exchange.take(b"\x81\x82"), Ok(2));
    assert_eq!(exchange.unsent(), b"\x81\x82");
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        which in 0..5_usize,
        head in prop::sample::select(vec![GET, OLD, HEAD]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let reply: &[u8] = [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n3\r\nabc\r\n\
              1\r\nd\r\n0\r\nT: u\r\n\r\n",
            b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            b"HTTP/1.1 500 No\r\nContent-Length: 1x\r\n\r\n",
        ][which];
        let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(reply.len())).collect();
        at.extend([0, reply.len()]);
        at.sort_unstable();
        let pieces = at.windows(2).map(|pair| &reply[pair[0]..pair[1]]);
        let (whole, keeps) = forward(head, [reply], true);
        let (cut, cut_keeps) = forward(head, pieces, true);
        // Chunks are those of the reads; the content is the same.
        prop_assert_eq!(content(&cut), content(&whole));
        prop_assert_eq!(cut_keeps, keeps);
    }

    /// Whatever a client sends is forwarded as one request that reads back as the same one.
    #[test]
    fn a_forwarded_request_reads_back(
        lines in prop::collection::vec("[A-Ca-c_-]{1,3}: [a-c ,;=\t\"]{0,6}", 0..5),
        target in "/[a-c?%&=]{0,6}",
        connection in prop::sample::select(vec!["close", "a, b", "upgrade", "keep-alive"]),
    ) {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n{lines}\r\n"
        );
        let exchange = exchange(&head);
        let sent = exchange.unsent().to_vec();
        let Parse::Complete(read) = HeadParser::default().parse(&sent, &Limits::default()) else {
            panic!("{}", text(&sent));
        };
        prop_assert_eq!(read.head_len, sent.len());
        let expected = format!("GET {target} HTTP/1.1");
        prop_assert_eq!(text(read.request_line), expected.as_str());
    }
}

/// A reply without the sizes of its chunks.
fn content(reply: &str) -> String {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((reply, ""));
    if !reply.contains("Transfer-Encoding: chunked") {
        return reply.to_owned();
    }
    let mut body = body;
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size @ 1..) = usize::from_str_radix(size, 16) else { break };
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    format!("{head}|{whole}|{body}")
}

#[test]
fn the_whole_is_asked_for_without_the_client_s_conditions() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nIf-Range: \"x\"\r\n\
                If-None-Match: \"x\"\r\nIf-Modified-Since: b\r\nIf-Match: *\r\nKept: d\r\n\r\n";
    let facts =
        RequestFacts { is_whole: true, fields: b"If-None-Match: \"y\"\r\n", ..request_facts() };
    let exchange = exchange_with(head.as_bytes(), &facts);
    let expected =
        format!("GET / HTTP/1.1\r\nHost: a\r\nKept: d\r\n{ORIGIN}If-None-Match: \"y\"\r\n\r\n");
    assert_eq!(text(exchange.unsent()), expected);
}

#[test]
fn a_head_is_held_back_until_it_is_released() {
    let reply =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\n\r\nhello";
    for split in 0..reply.len() {
        let mut exchange = exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        exchange.hold_head();
        let (mut out, mut taken) = (Vec::new(), 0);
        for end in [split, reply.len()] {
            taken += exchange.receive(&reply[taken..end], &mut out, &FACTS).unwrap();
            if exchange.part() == ReplyPart::Held {
                assert_eq!(exchange.held_head(), &reply[25..reply.len() - 5]);
                assert_eq!(text(&out), "HTTP/1.1 100 Continue\r\n\r\n");
                let copied = [exchange.copy_content(4), exchange.copy_content(6)];
                assert_eq!(copied, [None, Some(5)]);
                exchange.release_head(&mut out, &FACTS);
                taken += exchange.receive(&reply[taken..end], &mut out, &FACTS).unwrap();
            }
        }
        assert_eq!((taken, exchange.part()), (reply.len(), ReplyPart::Done));
        assert_eq!(exchange.take_copy().as_deref(), Some(&b"hello"[..]));
        assert!(out.ends_with(b"\r\n\r\nhello"));
    }
}

#[test]
fn a_copy_is_of_the_whole_content_or_there_is_none() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let copied = |reply: &str, bytes_max| {
        let mut exchange = exchange(head);
        exchange.hold_head();
        let mut out = Vec::new();
        let taken = exchange.receive(reply.as_bytes(), &mut out, &FACTS).unwrap();
        exchange.copy_content(bytes_max);
        exchange.release_head(&mut out, &FACTS);
        let _ = exchange.receive(&reply.as_bytes()[taken..], &mut out, &FACTS);
        let _ = exchange.end(&mut out);
        exchange.take_copy()
    };
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(copied(chunked, 5), Some(b"abcde".to_vec()));
    assert_eq!(copied(chunked, 4), None);
    assert_eq!(copied(&chunked[..chunked.len() - 9], 5), None);
    assert_eq!(copied("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", 5), None);
    assert_eq!(copied("HTTP/1.1 200 OK\r\n\r\nabc", 5), None);
    assert_eq!(copied("HTTP/1.1 304 Not Modified\r\n\r\n", 5), Some(Vec::new()));
}
