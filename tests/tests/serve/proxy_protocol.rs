//! The PROXY protocol, before requests from a proxy in front and before those to servers behind.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use weir_tests::origin::reply;
use weir_tests::{Origin, Root, Server, Setup, request, suite};

use crate::WEIR;

const TRUSTED: [&str; 3] = ["--proxy-protocol-in", "--trusted-proxy", "127.0.0.0/8"];

const V1: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.9 5000 80\r\n";

/// Version 2: TCP over IPv6, from [2001:db8::1]:5000, with an extension.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x28\
    \x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02\
    \x13\x88\0\x50\x04\0\x01\0";

/// Version 2: the proxy's own connection.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

suite! {
    every_architecture:
    the_header_says_who_the_client_is,
    a_header_may_come_in_pieces,
    what_is_no_header_is_closed_and_counted,
}

fn get(header: &[u8]) -> Vec<u8> {
    [header, request("GET", "/hello.txt", &[]).as_bytes()].concat()
}

fn the_header_says_who_the_client_is(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(root.path(), &[&TRUSTED[..], &["--access-log", "-"]].concat());
    for (header, address) in [(V1, "192.0.2.1"), (V2, "2001:db8::1"), (LOCAL, "127.0.0.1")] {
        let mut client = server.connect();
        client.send(get(header));
        assert_eq!(client.reply().text(), "hello");
        // A header comes once.
        client.send(get(b""));
        assert_eq!(client.reply().text(), "hello");
        drop(client);
        let line = format!("{address} - - [");
        weir_tests::wait::until("both are logged", || {
            server.stdout_so_far().lines().filter(|logged| logged.starts_with(&line)).count() == 2
        });
    }
    server.stop_cleanly();
}

fn a_header_may_come_in_pieces(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(root.path(), &TRUSTED);
    for header in [V1, V2, LOCAL] {
        let mut client = server.connect();
        client.send_at_once();
        assert!(client.trickle(header, std::time::Duration::from_millis(1)));
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }
    server.stop_cleanly();
}

fn what_is_no_header_is_closed_and_counted(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(root.path(), &TRUSTED);
    let wrong: [&[u8]; 4] = [b"", b"PROXY TCP4 a b 1 2\r\n", b"PROXY\r\n", &V2[1..]];
    for header in wrong {
        let mut client = server.connect();
        client.send(get(header));
        assert!(client.ends(), "{}", header.escape_ascii());
    }
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["end_proxy_header"], wrong.len());
    assert_eq!(stopped.stats()["total"]["requests"], 0);
}

#[test]
fn a_header_has_the_deadline_of_a_first_request() {
    let root = Root::with_hello();
    let options = [&TRUSTED[..], &["--header-timeout", "300ms", "--idle-timeout", "1h"]].concat();
    let server = Server::start(WEIR, &options, &root);
    for part in [&V1[..20], &V2[..20], V1] {
        let mut client = server.connect();
        client.send(part);
        assert!(client.ends());
    }
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["timeout_header"], 3);
}

#[test]
fn from_elsewhere_there_is_no_header() {
    let root = Root::with_hello();
    let options = ["--proxy-protocol-in", "--trusted-proxy", "192.0.2.0/24"];
    let server = Server::start(WEIR, &options, &root);
    assert_eq!(server.get("/hello.txt").text(), "hello");
    let mut client = server.connect();
    client.send(get(V1));
    assert_eq!(client.reply().status, 400);
    assert!(client.ends());
}

#[test]
fn servers_are_told_who_the_client_is() {
    for version in ["v1", "v2"] {
        let origin = Origin::echo();
        let behind = Server::proxy(WEIR, &[&origin.url()], &TRUSTED);
        let url = format!("http://{}", behind.authority());
        let out = ["--proxy-protocol-out", version, "--workers", "1"];
        let front = Server::proxy(WEIR, &[&url], &[&TRUSTED[..], &out].concat());
        for (header, address) in [(V1, "192.0.2.1"), (V2, "\"[2001:db8::1]\"")] {
            let mut client = front.connect();
            client.send(get(header));
            assert_eq!(client.reply().text(), "GET /hello.txt HTTP/1.1\n");
            let received = origin.received();
            let forwarded = received.last().unwrap().fields("forwarded");
            assert_eq!(forwarded, [format!("for={address};host=\"test.example\";proto=http")]);
        }
        // A connection of one client is not used for another.
        let stopped = front.stop_cleanly();
        let stats = stopped.stats()["total"].clone();
        assert_eq!(stats["upstream_connects"], 2);
        assert_eq!(stats["upstream_reused"], 0);
        behind.stop_cleanly();
    }
}

#[test]
fn a_client_s_own_address_is_told_by_the_socket() {
    let origin = Origin::start(|_| reply(b"here"));
    let behind = Server::proxy(WEIR, &[&origin.url()], &TRUSTED);
    let url = format!("http://{}", behind.authority());
    let checks = ["--health-check", "/", "--health-interval", "20ms"];
    let options = [&["--proxy-protocol-out", "v2"], &checks[..]].concat();
    let front = Server::proxy(WEIR, &[&url], &options);
    assert_eq!(front.get("/").text(), "here");
    let is_asked = |line: &str| origin.received().iter().any(|one| one.line().contains(line));
    weir_tests::wait::until("it is checked", || is_asked("GET / "));
    assert!(!front.stderr_so_far().contains("is down"));
    let stopped = front.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["upstream_checks_failed"], 0);
}

#[test]
fn a_stored_reply_is_brought_up_to_date_on_the_proxy_s_own_connection() {
    for (version, own) in [("v1", &b"PROXY UNKNOWN\r\n"[..]), ("v2", LOCAL)] {
        let (url, begun) = recording("Cache-Control: max-age=0, stale-while-revalidate=60\r\n");
        let options = ["--proxy-protocol-out", version, "--cache", "1M"];
        let front = Server::proxy(WEIR, &[&url], &options);
        for is_own in [false, true] {
            assert_eq!(front.get("/").text(), "here");
            let received = begun.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
            let wanted = [own, b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(received.starts_with(&wanted), is_own, "{}", received.escape_ascii());
        }
        front.stop_cleanly();
    }
}

/// Starts an origin that answers one request per connection with these field lines, and tells all
/// that it was sent there. Returns its URL.
fn recording(fields: &'static str) -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tells, told) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut received = Vec::new();
            // A header of version 2 has 16 bytes or more, and an empty line among them.
            while received.len() <= 16 || !received.ends_with(b"\r\n\r\n") {
                let mut part = [0; 4096];
                match stream.read(&mut part) {
                    Ok(length @ 1..) => received.extend_from_slice(&part[..length]),
                    _ => break,
                }
            }
            let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{fields}\r\nhere");
            let _ = stream.write_all(reply.as_bytes());
            if tells.send(received).is_err() {
                return;
            }
        }
    });
    (url, told)
}

#[test]
fn a_ring_tells_no_server_who_the_client_is() {
    let output = std::process::Command::new(WEIR)
        .args(["proxy", "http://127.0.0.1:1", "--arch", "ring", "--proxy-protocol-out", "v1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("which address a client connected to"), "{text}");
}

#[test]
fn headers_from_nobody_in_particular_are_refused() {
    let output = std::process::Command::new(WEIR)
        .args(["serve", ".", "--proxy-protocol-in"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("networks that --trusted-proxy names"), "{text}");
}
