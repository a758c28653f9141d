//! Requests that two parsers may read differently, through a proxy: the origin receives one
//! request, written in the one way that no parser misreads, or none. The origin here does not parse
//! as weir does: it reads with [`weir_tests::canonical`], and any other byte is a failure.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use weir_tests::canonical::{self, Message};
use weir_tests::origin::reply;
use weir_tests::{Client, Origin, Server, Setup, suite};

use crate::WEIR;

/// An origin that answers a request with its line and content, and records what it read: a request,
/// or the reason why the bytes are none.
struct Strict {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Result<Message, String>>>>,
}

impl Strict {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<_>>> = Arc::default();
        let all = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                thread::spawn(move || serve(stream, &all));
            }
        });
        Self { address, received }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes what it has received since the last call.
    fn take(&self) -> Vec<Message> {
        let received = std::mem::take(&mut *self.received.lock().unwrap());
        received.into_iter().collect::<Result<_, _>>().expect("requests in one reading")
    }
}

fn serve(mut stream: TcpStream, received: &Mutex<Vec<Result<Message, String>>>) {
    let (mut input, mut buffer) = (Vec::new(), [0; 64 << 10]);
    loop {
        match canonical::request(&input) {
            Ok(Some((message, len))) => {
                input.drain(..len);
                let answer = reply(&[message.line.as_bytes(), b"\n", &message.body].concat());
                received.lock().unwrap().push(Ok(message));
                let _ = stream.write_all(&answer);
                continue;
            }
            Ok(None) => {}
            Err(why) => return received.lock().unwrap().push(Err(why)),
        }
        match stream.read(&mut buffer) {
            Ok(bytes @ 1..) => input.extend_from_slice(&buffer[..bytes]),
            _ => return,
        }
    }
}

/// The request that must never arrive by itself.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

/// A POST with these fields, then an empty chunk, then the hidden request.
fn post(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n0\r\n\r\n{HIDDEN}")
}

/// Asserts that each is refused with one of `statuses`, and the connection closed.
fn assert_refused<T: AsRef<[u8]>>(cases: impl IntoIterator<Item = T>, statuses: &[u16]) {
    let origin = Strict::start();
    let server = Server::proxy(WEIR, &[&origin.url()], &[]);
    for case in cases {
        let shown = String::from_utf8_lossy(case.as_ref()).into_owned();
        let mut client = server.connect();
        client.send(&case);
        let refusal = client.try_reply();
        let status = refusal.as_ref().map_or(0, |reply| reply.status);
        assert!(statuses.contains(&status), "{shown:?}: {refusal:?}");
        assert!(client.ends(), "{shown:?}");
        assert_eq!(origin.take(), [], "{shown:?}");
    }
    server.stop_cleanly();
}

#[test]
fn a_framing_in_doubt_is_refused() {
    let fields = [
        // CL.TE, TE.CL.
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        // TE.TE.
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: 'chunked'",
        "Transfer-Encoding: chunked;x=y",
        "Transfer-Encoding: chunked x",
        "Transfer-Encoding: chunk",
        "Transfer-Encoding: c hunked",
        "Transfer-Encoding:",
        "Transfer-Encoding: ,",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding: \x0cchunked",
        "Transfer-Encoding: chunked\x0b",
        "Transfer-Encoding: chunked\x00",
        "Transfer-Encoding: chunked\x7f",
        "Transfer-Encoding: chunked\u{a0}",
        "Transfer-Encoding: \u{212a}chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        "Transfer-Encoding\x0b: chunked",
        "Transfer-Encoding\x00: chunked",
        "Transfer-\r\nEncoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: \r\n\tchunked",
        "Transfer-Encoding: chunked\r\n , x",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "X: y\r\n\rTransfer-Encoding: chunked",
        " Transfer-Encoding: chunked",
        "\tTransfer-Encoding: chunked",
        // CL.CL.
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: 5,",
        "Content-Length: ,5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 5 5",
        "Content-Length: 5\x0b",
        "Content-Length: 0x5",
        "Content-Length: 5.0",
        "Content-Length: 5e0",
        "Content-Length: 1_0",
        "Content-Length: \u{665}",
        "Content-Length:",
        "Content-Length: \"5\"",
        "Content-Length: 18446744073709551616",
        "Content-Length: 99999999999999999999999999999999",
        "Content-Length : 5",
        "Content-Length\x00: 5",
        "Content-Length: 5\r\n 6",
        "Content-Length:\r\n 5",
        " Content-Length: 5",
    ];
    assert_refused(fields.map(post), &[400, 501]);
}

#[test]
fn a_field_line_in_doubt_is_refused() {
    let fields = [
        "X: y\r\n z",
        "X: y\r\n\tz",
        "X",
        "X y",
        ": y",
        "X : y",
        "X\x00: y",
        "X(: y",
        "X[]: y",
        "\u{e9}: y",
        "X: y\x00",
        "X: y\x08",
        "X: y\x1b[0m",
        "X: y\x7f",
        "X: y\rz",
        "X: y\r\r",
        "X: y\nHost: b",
        "Host: b",
        "host: a",
    ];
    assert_refused(fields.map(post), &[400]);
    let hosts = ["", "Host: \r\n", "Host: a b\r\n", "Host: a/b\r\n", "Host: u@a\r\n"];
    let more = [
        "Host: a, b\r\n",
        "Host: a#b\r\n",
        "Host: a:x\r\n",
        "Host: a\r\n b\r\n",
        "Host: \"a\"\r\n",
    ];
    let heads =
        hosts.iter().chain(&more).map(|host| format!("GET / HTTP/1.1\r\n{host}\r\n{HIDDEN}"));
    // An empty Host is well formed (RFC 9112 section 3.2).
    assert_refused(heads.filter(|head| !head.contains("Host: \r\n")), &[400]);
}

#[test]
fn a_request_line_in_doubt_is_refused() {
    let lines = [
        "GET /",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET / HTTP/1.1 HTTP/1.1",
        " GET / HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/1.1\r",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GET / HTTP/2.0",
        "GET / HTTP/0.9",
        "GET / HTTP/",
        "GET /a\rb HTTP/1.1",
        "GET /a\0b HTTP/1.1",
        "GET /a\x0bb HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET a HTTP/1.1",
        "GET * HTTP/1.1",
        "GET https://a/ HTTP/1.1",
        "GET http://u@a/ HTTP/1.1",
        "GET http:///a HTTP/1.1",
        "GET http://a b/ HTTP/1.1",
        "OPTIONS ** HTTP/1.1",
        "G(T / HTTP/1.1",
        "BREW / HTTP/1.1",
        "get / HTTP/1.1",
        "PRI * HTTP/2.0",
    ];
    let heads = lines.map(|line| format!("{line}\r\nHost: a\r\n\r\n{HIDDEN}"));
    assert_refused(heads, &[400, 501, 505]);
    let old = "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_refused([format!("{old}{HIDDEN}")], &[400]);
    // A tunnel, and a mirror of fields, are not forwarded.
    let origin = Strict::start();
    let server = Server::proxy(WEIR, &[&origin.url()], &[]);
    for line in ["CONNECT a:80 HTTP/1.1", "TRACE / HTTP/1.1"] {
        let mut client = server.connect();
        client.send(format!("{line}\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n"));
        assert_eq!(client.reply().status, 405, "{line}");
    }
    assert_eq!(origin.take(), []);
}

#[test]
fn malformed_chunks_are_refused_before_the_origin_has_a_request() {
    let long = format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(40));
    let extension = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(20_000));
    let bodies = [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "5;x\nhello\r\n0\r\n\r\n",
        "5;x\ry\r\nhello\r\n0\r\n\r\n",
        "5;\"\nx\"\r\nhello\r\n0\r\n\r\n",
        "5;=\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5_0\r\nhello\r\n0\r\n\r\n",
        "5h\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5\x0b\r\nhello\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "0\nX: y\r\n\r\n",
        "0\r\n\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
        "0\r\nX: y\0\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        &long,
        &extension,
    ];
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_refused(bodies.map(|body| format!("{head}{body}{HIDDEN}")), &[400, 413]);
}

/// Sends bytes, and asserts what the origin made of them: the request lines and contents of as many
/// requests. Returns those.
fn assert_forwarded(bytes: &str, expected: &[(&str, &str)]) -> Vec<Message> {
    let origin = Strict::start();
    let server = Server::proxy(WEIR, &[&origin.url()], &["--workers", "1"]);
    let mut client = server.connect();
    client.send(bytes);
    for (line, body) in expected {
        let reply = client.try_reply_after_interim().unwrap();
        let text = format!("{line}\n{body}");
        let is_head = line.starts_with("HEAD");
        assert!(is_head || reply.text() == text, "{bytes:?}: {:?}", reply.text());
    }
    client.finish_sending();
    assert!(client.ends(), "{bytes:?}");
    let received = origin.take();
    let seen: Vec<_> = received.iter().map(|each| (each.line.as_str(), &each.body[..])).collect();
    let expected: Vec<_> = expected.iter().map(|(line, body)| (*line, body.as_bytes())).collect();
    assert_eq!(seen, expected, "{bytes:?}");
    server.stop_cleanly();
    received
}

#[test]
fn what_is_well_formed_but_unusual_arrives_in_one_reading() {
    const NEXT: (&str, &str) = ("GET /next HTTP/1.1", "");
    const THEN: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
    for (head, content, line, body) in [
        ("GET http://b/c HTTP/1.1\r\nHost: a", "", "GET /c HTTP/1.1", ""),
        ("GET http://b?c HTTP/1.1\r\nHost: a", "", "GET /?c HTTP/1.1", ""),
        ("OPTIONS * HTTP/1.1\r\nHost: a", "", "OPTIONS * HTTP/1.1", ""),
        ("GET / HTTP/1.9\r\nHost:\ta\t", "", "GET / HTTP/1.1", ""),
        ("GET //x/../%2e%2e/%00 HTTP/1.1\r\nHost: a", "", "GET //x/../%2e%2e/%00 HTTP/1.1", ""),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 005", "hello", "POST / HTTP/1.1", "hello"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2", "hi", "POST / HTTP/1.1", "hi"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ChUnKeD",
            "2\r\nhi\r\n0\r\n\r\n",
            "POST / HTTP/1.1",
            "hi",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked",
            "02 ;x=\"\\\"\"\r\nhi\r\n000\r\nContent-Length: 9\r\nHost: b\r\n\r\n",
            "POST / HTTP/1.1",
            "hi",
        ),
        // Names that servers of the CGI family confuse.
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 9\r\nTransfer_Encoding: chunked\r\n\
          Content-Length: 2",
            "hi",
            "POST / HTTP/1.1",
            "hi",
        ),
        // Fields of one connection cannot take framing away.
        (
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: content-length, host, close, via\r\n\
          Connection: transfer-encoding\r\nContent-Length: 2",
            "hi",
            "POST / HTTP/1.1",
            "hi",
        ),
        (
            "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2",
            "hi",
            "PUT / HTTP/1.1",
            "hi",
        ),
        ("DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 2", "hi", "DELETE / HTTP/1.1", "hi"),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2", "hi", "GET / HTTP/1.1", "hi"),
        ("HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 2", "hi", "HEAD / HTTP/1.1", "hi"),
    ] {
        let bytes = format!("{head}\r\n\r\n{content}");
        if bytes.contains("close") {
            assert_forwarded(&bytes, &[(line, body)]);
        } else if !line.starts_with("HEAD") {
            assert_forwarded(&format!("{bytes}{THEN}"), &[(line, body), NEXT]);
        }
    }
}

#[test]
fn content_that_a_server_may_ignore_ends_its_connection() {
    // CL.0: to a server that ignores it, the content would be the next request.
    let length = HIDDEN.len();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    let bytes = format!("{head}{HIDDEN}GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    let expected = [("GET / HTTP/1.1", HIDDEN), ("GET /next HTTP/1.1", "")];
    let received = assert_forwarded(&bytes, &expected);
    assert_eq!(received[0].values("connection").collect::<Vec<_>>(), ["close"]);
    assert_eq!(received[1].values("connection").count(), 0);
}

#[test]
fn another_protocol_that_carries_requests_is_not_begun() {
    for upgrade in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.2, HTTP/1.1"] {
        let bytes = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
        );
        let received = assert_forwarded(&bytes, &[("GET / HTTP/1.1", "")]);
        assert_eq!(received[0].values("upgrade").count(), 0, "{upgrade}");
        assert_eq!(received[0].values("connection").count(), 0, "{upgrade}");
    }
}

#[test]
fn nothing_behind_a_refusal_is_answered() {
    let origin = Strict::start();
    let server = Server::proxy(WEIR, &[&origin.url()], &[]);
    let mut client = server.connect();
    let bad = "POST /bad HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n";
    client.send(format!("GET /first HTTP/1.1\r\nHost: a\r\n\r\n{bad}{HIDDEN}{HIDDEN}"));
    assert_eq!(client.reply().text(), "GET /first HTTP/1.1\n");
    assert_eq!(client.reply().status, 400);
    assert!(client.ends());
    let lines: Vec<_> = origin.take().into_iter().map(|each| each.line).collect();
    assert_eq!(lines, ["GET /first HTTP/1.1"]);
}

suite! {
    every_forwarding_architecture_at_once:
    a_reply_in_doubt_is_a_502_and_ends_its_connection,
    a_connection_with_more_than_one_reply_is_not_used_again,
}

/// Serves these bytes for every request, and returns what a client gets that asks twice.
fn through(setup: &Setup, bytes: &'static [u8], method: &str) -> (u16, bool, u64) {
    let origin = Origin::start(move |_| bytes.to_vec());
    let server = setup.proxy(&[&origin.url()], &["--workers", "1"]);
    let mut client = server.connect();
    client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
    let status = client.try_reply().map_or(0, |reply| reply.status);
    let mut again = Client::connect(server.address());
    again.send("GET /again HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = again.try_reply();
    let is_apart = origin.received().iter().map(|each| each.connection).eq(0..origin.connections());
    let stats = server.stop_cleanly().stats()["total"].clone();
    (status, is_apart, stats["upstream_failed"].as_u64().unwrap())
}

fn a_reply_in_doubt_is_a_502_and_ends_its_connection(setup: &Setup) {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\rSet-Cookie: z\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\0\r\n\r\n",
        b"HTTP/1.1 200 O\rK\r\n\r\n",
        b"HTTP/1.1 200OK\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 999 High\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"<html>0.9</html>",
    ] {
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!(through(setup, bytes, "GET"), (502, true, 2), "{shown:?}");
    }
}

fn a_connection_with_more_than_one_reply_is_not_used_again(setup: &Setup) {
    for (bytes, method) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n"[..], "GET"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx\r\n", "GET"),
        (b"HTTP/1.1 204 None\r\nContent-Length: 2\r\n\r\nhi", "GET"),
        (b"HTTP/1.1 304 Not Modified\r\n\r\nhi", "GET"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HEAD"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n0\r\n\r\n", "GET"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "GET"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "GET"),
    ] {
        let (_, is_apart, _) = through(setup, bytes, method);
        assert!(is_apart, "{:?}", String::from_utf8_lossy(bytes));
    }
}
