//! Clients of forwarded requests that are slower than the server behind: what waits for them in
//! memory, and what becomes of the server's place.

use std::io::{Read, Write};

use rustix::process::Signal;

use weir_tests::origin::{After, Gate, Received, Sent, by_hand, reply};
use weir_tests::wait::until;
use weir_tests::{Client, Origin, Server, Setup, request, suite};

use crate::WEIR;

/// Length of a content larger than the send buffer of a socket (tcp_wmem, tcp(7)), and than a pipe.
const SLOW_BYTES: u32 = 6 << 20;

/// The options by which it waits whole for its client.
const BUFFERED: [&str; 4] = ["--reply-buffer", "8M", "--queue-target", "20s"];

/// Length of a content larger than all the buffers on its way.
const LARGE_BYTES: u32 = 24 << 20;

suite! {
    every_forwarding_setup:
    a_slow_reader_leaves_its_place_to_others,
    a_slow_sender_takes_no_place,
}

suite! {
    every_forwarding_architecture:
    what_waits_in_chunks_keeps_its_trailers,
    what_waits_for_a_slow_reader_is_bounded,
    a_reply_cut_short_behind_a_buffer_never_looks_whole,
    what_waits_for_a_client_that_leaves_is_given_back,
    another_protocol_is_not_buffered,
    what_is_taken_before_a_place_is_bounded,
    a_client_that_waits_for_100_is_told_to_send_without_a_place,
    a_sender_that_leaves_before_it_has_a_place_is_never_heard_of,
}

/// Content without a period that a lost or repeated piece would hide behind.
fn content(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

fn chunked(content: &[u8], trailers: &str) -> Vec<u8> {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    [&head[..], &chunks(content, trailers)].concat()
}

fn chunks(content: &[u8], trailers: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in content.chunks(10_007) {
        body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    [&body[..], b"0\r\n", trailers.as_bytes(), b"\r\n"].concat()
}

/// Answers with the content that the target names, framed as it says.
fn answer(received: &Received) -> Sent {
    match received.line().split(' ').nth(1).unwrap_or_default() {
        "/length" => (reply(&content(SLOW_BYTES)), After::Keep),
        "/chunks" => (chunked(&content(SLOW_BYTES), "X-Sum: 1\r\n"), After::Keep),
        "/close" => {
            let head = b"HTTP/1.1 200 OK\r\n\r\n";
            ([&head[..], &content(SLOW_BYTES)].concat(), After::Close)
        }
        "/large" => (reply(&content(LARGE_BYTES)), After::Keep),
        _ => (reply(b"next"), After::Keep),
    }
}

/// Starts a proxy before a server with one place. Who waits for it is refused before a client that
/// does not read is cut off.
fn proxy(setup: &Setup, url: &str, options: &[&str]) -> Server {
    let place = ["--workers", "1", "--max-in-flight", "1", "--min-rate-grace", "60s"];
    let all = [&place[..], options].concat();
    setup.proxy(&[url], &all)
}

/// Asks for `target`, and reads the head of the reply alone.
fn begin_to_read(server: &Server, target: &str) -> (Client, weir_tests::Reply) {
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", target, &[]));
    let head = client.head().unwrap();
    assert_eq!(head.status, 200);
    (client, head)
}

pub(crate) fn stat(server: &Server, name: &str) -> u64 {
    let mut value = None;
    until(name, || {
        server.signal(Signal::USR1);
        value = server.stats_so_far().and_then(|stats| stats["total"][name].as_u64());
        value.is_some()
    });
    value.unwrap_or(u64::MAX)
}

fn a_slow_reader_leaves_its_place_to_others(setup: &Setup) {
    let origin = Origin::for_many(answer);
    let server = proxy(setup, &origin.url(), &BUFFERED);
    for target in ["/length", "/chunks", "/close"] {
        let (mut slow, head) = begin_to_read(&server, target);
        assert_eq!(server.get("/next").text(), "next", "{target}");
        let whole = slow.body(head).unwrap();
        assert!(whole.body == content(SLOW_BYTES), "{target}: {} bytes", whole.body.len());
        assert_eq!(slow.get("/next").text(), "next", "{target}");
    }
    let total = server.stop_cleanly().stats()["total"].clone();
    let is_some = |name| total[name].as_u64() > Some(0);
    assert!(is_some("proxy_buffered_bytes") && is_some("upstream_reused"), "{total}");
    assert_eq!((&total["proxy_buffers_bytes"], &total["replies_cut"]), (&0.into(), &0.into()));
}

fn what_waits_in_chunks_keeps_its_trailers(setup: &Setup) {
    let origin = Origin::for_many(answer);
    let server = proxy(setup, &origin.url(), &BUFFERED);
    let mut slow = Client::connect_narrow(server.address());
    slow.send(request("GET", "/chunks", &["Connection: close"]));
    assert_eq!(slow.head().unwrap().status, 200);
    assert_eq!(server.get("/next").text(), "next");
    assert!(slow.rest().unwrap().ends_with(b"\r\n0\r\nX-Sum: 1\r\n\r\n"));
    server.stop_cleanly();
}

fn what_waits_for_a_slow_reader_is_bounded(setup: &Setup) {
    let origin = Origin::for_many(answer);
    let bounds = [["--reply-buffer", "256k"], ["--reply-buffer", "0"], ["--buffers-total", "0"]];
    for bound in bounds {
        let options = [&bound[..], &["--queue-target", "200ms"]].concat();
        let server = proxy(setup, &origin.url(), &options);
        let (mut slow, head) = begin_to_read(&server, "/large");
        assert_eq!(server.get("/next").status, 503, "{bound:?}");
        let buffered = stat(&server, "proxy_buffers_bytes");
        let buffered_max = if bound[1] == "256k" { 256 << 10 } else { 0 };
        assert!(buffered <= buffered_max, "{bound:?}: {buffered} bytes");
        let whole = slow.body(head).unwrap();
        assert!(whole.body == content(LARGE_BYTES), "{bound:?}: {} bytes", whole.body.len());
        assert_eq!(server.get("/next").text(), "next", "{bound:?}");
        server.stop_cleanly();
    }
}

fn a_reply_cut_short_behind_a_buffer_never_looks_whole(setup: &Setup) {
    let (sent, cuts) = (Gate::default(), Gate::default());
    let at_origin = (sent.clone(), cuts.clone());
    let origin = by_hand(move |mut stream, _| {
        let (sent, cuts) = &at_origin;
        let whole = reply(&content(SLOW_BYTES));
        let _ = stream.write_all(&whole[..whole.len() - 1]);
        sent.open();
        cuts.pass();
    });
    let server = proxy(setup, &format!("http://{origin}"), &[]);
    for _ in 0..2 {
        let (mut slow, head) = begin_to_read(&server, "/");
        sent.pass();
        cuts.open();
        assert!(slow.body(head).is_err(), "it looks whole");
        sent.close();
        cuts.close();
    }
    let total = server.stop_cleanly().stats()["total"].clone();
    assert_eq!((&total["replies_cut"], &total["proxy_buffers_bytes"]), (&2.into(), &0.into()));
}

fn what_waits_for_a_client_that_leaves_is_given_back(setup: &Setup) {
    let origin = Origin::for_many(answer);
    let server = proxy(setup, &origin.url(), &BUFFERED);
    for target in ["/chunks", "/length"] {
        let (slow, _) = begin_to_read(&server, target);
        until("something waits", || stat(&server, "proxy_buffers_bytes") > 0);
        drop(slow);
        until("nothing waits", || stat(&server, "proxy_buffers_bytes") == 0);
        assert_eq!(server.get("/next").text(), "next", "{target}");
    }
    server.stop_cleanly();
}

fn another_protocol_is_not_buffered(setup: &Setup) {
    let origin = by_hand(|mut stream, _| {
        let switch =
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
        let _ = stream.write_all(&[&switch[..], &content(LARGE_BYTES)].concat());
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let server = proxy(setup, &format!("http://{origin}"), &[]);
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", "/", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(client.head().unwrap().status, 101);
    client.finish_sending();
    assert!(client.rest().unwrap() == content(LARGE_BYTES));
    let total = server.stop_cleanly().stats()["total"].clone();
    assert_eq!(total["proxy_buffered_bytes"], 0);
}

/// Answers with the content.
fn mirror() -> Origin {
    Origin::start(|received| reply(if received.body.is_empty() { b"next" } else { &received.body }))
}

/// Returns a POST with a content in one of two framings.
fn post(content: &[u8], is_chunked: bool) -> Vec<u8> {
    let (framing, content) = match is_chunked {
        true => ("Transfer-Encoding: chunked".into(), chunks(content, "")),
        false => (format!("Content-Length: {}", content.len()), content.to_vec()),
    };
    [request("POST", "/", &[&framing]).as_bytes(), &content].concat()
}

fn a_slow_sender_takes_no_place(setup: &Setup) {
    let origin = mirror();
    let server = proxy(setup, &origin.url(), &["--queue-target", "20s"]);
    let content = content(300_000);
    for is_chunked in [false, true] {
        let bytes = post(&content, is_chunked);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let mut slow = server.connect();
        slow.send(first);
        until("it arrives", || stat(&server, "proxy_buffers_bytes") > 100_000);
        assert_eq!(server.get("/next").text(), "next", "{is_chunked}");
        slow.send(second);
        assert!(slow.reply().body == content, "{is_chunked}");
        assert_eq!(slow.get("/next").text(), "next", "{is_chunked}");
    }
    let total = server.stop_cleanly().stats()["total"].clone();
    assert_eq!((&total["upstream_waited"], &total["proxy_buffers_bytes"]), (&0.into(), &0.into()));
}

fn what_is_taken_before_a_place_is_bounded(setup: &Setup) {
    let origin = mirror();
    let content = content(300_000);
    let bounds =
        [["--request-buffer", "100k"], ["--request-buffer", "0"], ["--buffers-total", "0"]];
    for (bound, is_chunked) in bounds.into_iter().flat_map(|bound| [(bound, false), (bound, true)])
    {
        let options = [&bound[..], &["--queue-target", "200ms"]].concat();
        let server = proxy(setup, &origin.url(), &options);
        let bytes = post(&content, is_chunked);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let mut slow = server.connect();
        slow.send(first);
        until("it has a place", || stat(&server, "upstream_in_flight") == 1);
        assert_eq!(server.get("/next").status, 503, "{bound:?} {is_chunked}");
        slow.send(second);
        assert!(slow.reply().body == content, "{bound:?} {is_chunked}");
        server.stop_cleanly();
    }
}

fn a_client_that_waits_for_100_is_told_to_send_without_a_place(setup: &Setup) {
    let origin = mirror();
    let server = proxy(setup, &origin.url(), &["--queue-target", "20s"]);
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let mut client = server.connect();
        client.send(request("POST", "/", &[framing, "Expect: 100-continue"]));
        assert_eq!(client.head().unwrap().status, 100);
        assert_eq!(server.get("/next").text(), "next");
        let is_chunked = framing.starts_with('T');
        client.send(if is_chunked { chunks(b"hello", "") } else { b"hello".to_vec() });
        assert_eq!(client.reply().text(), "hello");
        assert_eq!(client.get("/next").text(), "next");
    }
    assert!(origin.received().iter().all(|received| received.fields("Expect").is_empty()));
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["upstream_waited"], 0);
}

fn a_sender_that_leaves_before_it_has_a_place_is_never_heard_of(setup: &Setup) {
    let origin = mirror();
    let server = proxy(setup, &origin.url(), &["--queue-target", "20s"]);
    for resets in [false, true] {
        let bytes = post(&content(300_000), false);
        let mut slow = server.connect();
        slow.send(&bytes[..bytes.len() / 2]);
        until("it arrives", || stat(&server, "proxy_buffers_bytes") > 100_000);
        if resets {
            slow.reset();
        } else {
            drop(slow);
        }
        until("nothing waits", || stat(&server, "proxy_buffers_bytes") == 0);
    }
    assert_eq!(server.get("/next").text(), "next");
    assert_eq!((origin.connections(), origin.received().len()), (1, 1));
    server.stop_cleanly();
}
