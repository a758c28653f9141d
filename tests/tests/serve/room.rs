//! Eviction on a full server: connections that wait for their client are closed for clients that
//! can be served. No deadline passes in these tests.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use weir_tests::{Client, Root, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_architecture:
    connections_with_half_a_request_are_evicted,
    silent_connections_are_evicted,
    connections_with_an_incomplete_body_are_evicted,
    connections_whose_client_reads_nothing_are_evicted,
}

/// Deadlines that never pass during a test. On a busy machine, too, nobody waits too long to be
/// served.
const PATIENT: [&str; 16] = [
    "--delay-target",
    "1m",
    "--header-timeout",
    "10m",
    "--idle-timeout",
    "10m",
    "--body-timeout",
    "10m",
    "--linger-timeout",
    "10m",
    "--stall-timeout",
    "10m",
    "--min-rate",
    "0",
    "--drain-timeout",
    "10ms",
];

/// Number of connections a server has room for, and number of clients.
const ROOM: &str = "80";
const CROWD: usize = 100;

/// Fills a server with a crowd of clients, to each of which `send` is applied.
fn serve_crowd(
    setup: &Setup,
    root: &Root,
    mut send: impl FnMut(&mut Client),
) -> (Server, Vec<Client>) {
    let options = [&["--workers", "1", "--max-conns", ROOM], &PATIENT[..]].concat();
    let server = setup.serve(root, &options);
    let mut crowd: Vec<_> = (0..CROWD).map(|_| Client::connect_narrow(server.address())).collect();
    crowd.iter_mut().for_each(&mut send);
    (server, crowd)
}

/// Asserts that new requests are still served, and that connections were closed for them.
fn check_evicted(server: Server, crowd: Vec<Client>) {
    for _ in 0..3 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }
    let stats = server.stop_cleanly().stats();
    let evicted = stats["total"]["evicted"].as_u64().unwrap();
    assert!((1..=CROWD as u64).contains(&evicted), "{stats}");
    drop(crowd);
}

fn connections_with_half_a_request_are_evicted(setup: &Setup) {
    let root = Root::with_hello();
    let (server, crowd) = serve_crowd(setup, &root, |client| drop(client.try_send("GET /hel")));
    check_evicted(server, crowd);
}

fn silent_connections_are_evicted(setup: &Setup) {
    let root = Root::with_hello();
    let (server, crowd) = serve_crowd(setup, &root, |_| ());
    check_evicted(server, crowd);
}

/// Their requests are answered before the body is complete.
fn connections_with_an_incomplete_body_are_evicted(setup: &Setup) {
    let root = Root::with_hello();
    let bytes = request("POST", "/hello.txt", &["Content-Length: 1000"]) + "x";
    let (server, crowd) = serve_crowd(setup, &root, |client| drop(client.try_send(&bytes)));
    let mut client = server.connect();
    client.send(&bytes);
    assert_eq!(client.reply().status, 405);
    check_evicted(server, crowd);
}

fn connections_whose_client_reads_nothing_are_evicted(setup: &Setup) {
    let root = Root::with_hello();
    root.write_noise("large", 32 << 20);
    let bytes = request("GET", "/large", &[]);
    let (server, crowd) = serve_crowd(setup, &root, |client| drop(client.try_send(&bytes)));
    check_evicted(server, crowd);
}
