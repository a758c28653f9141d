//! Eviction on a full server: connections that wait for their client are closed for clients that
//! can be served. No deadline passes in these tests.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use weir_tests::load::load;
use weir_tests::setups::forwarders;
use weir_tests::{Client, Root, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_architecture:
    connections_with_half_a_request_are_evicted,
    silent_connections_are_evicted,
    silent_connections_at_one_of_two_listeners_are_evicted,
    connections_with_an_incomplete_body_are_evicted,
    connections_whose_client_reads_nothing_are_evicted,
    connections_that_pause_for_their_clients_bandwidth_are_evicted,
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
fn serve_crowd(setup: &Setup, root: &Root, send: impl FnMut(&mut Client)) -> (Server, Vec<Client>) {
    serve_crowd_with(setup, root, &[], send)
}

/// Like [`serve_crowd`], with other options besides.
fn serve_crowd_with(
    setup: &Setup,
    root: &Root,
    options: &[&str],
    send: impl FnMut(&mut Client),
) -> (Server, Vec<Client>) {
    let own = ["--workers", "1", "--max-conns", ROOM];
    let options = [&own[..], &PATIENT, options].concat();
    let server = setup.serve(root, &options);
    let crowd = crowd(&server, send);
    (server, crowd)
}

fn crowd(server: &Server, send: impl FnMut(&mut Client)) -> Vec<Client> {
    let mut crowd: Vec<_> = (0..CROWD).map(|_| Client::connect_narrow(server.address())).collect();
    crowd.iter_mut().for_each(send);
    crowd
}

/// Has a crowd of clients fill each forwarder, to each of which `send` is applied, and asserts that
/// those who wait for their clients are evicted. In a pool these occupy fibers to their end.
fn check_evicted_by_forwarders(root: &Root, mut send: impl FnMut(&mut Client)) {
    let origin = Server::start(WEIR, &PATIENT, root);
    let url = format!("http://{}", origin.authority());
    let own = ["--workers", "1", "--max-conns", ROOM, "--max-in-flight", "inf"];
    let options = [&own[..], &PATIENT, &["--upstream-idle-timeout", "10m"]].concat();
    for setup in forwarders(WEIR).iter().filter(|setup| setup.at_once.is_none()) {
        println!("{}", setup.name);
        let server = setup.proxy(&[&url], &options);
        let crowd = crowd(&server, &mut send);
        check_evicted(server, crowd);
    }
}

/// Asserts that new requests are still served, and that connections were closed for them.
fn check_evicted(server: Server, crowd: Vec<Client>) {
    for _ in 0..3 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }
    check_counted(server, crowd);
}

/// Asserts that connections of the crowd were closed for others.
fn check_counted(server: Server, crowd: Vec<Client>) {
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

/// On a ring a slot is kept for the next client of either listener.
fn silent_connections_at_one_of_two_listeners_are_evicted(setup: &Setup) {
    let root = Root::with_hello();
    let listeners = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let (server, crowd) = serve_crowd_with(setup, &root, &listeners, |_| ());
    assert_eq!(server.addresses.len(), 2, "{}", server.ready);
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

#[test]
fn connections_that_send_no_more_of_what_is_forwarded_are_evicted() {
    let root = Root::with_hello();
    let bytes = request("POST", "/hello.txt", &["Content-Length: 1000"]) + "x";
    check_evicted_by_forwarders(&root, |client| drop(client.try_send(&bytes)));
}

#[test]
fn connections_whose_client_reads_nothing_of_what_is_forwarded_are_evicted() {
    let root = Root::with_hello();
    root.write_noise("large", 32 << 20);
    let bytes = request("GET", "/large", &[]);
    check_evicted_by_forwarders(&root, |client| drop(client.try_send(&bytes)));
}

/// They may be sent hardly anything of what they ask for. Who asks after them has an address, and
/// so a burst, of its own.
fn connections_that_pause_for_their_clients_bandwidth_are_evicted(setup: &Setup) {
    let root = Root::with_hello();
    root.write_noise("large", 32 << 20);
    let bytes = request("GET", "/large", &[]);
    let rate = ["--client-bandwidth", "1", "--client-bandwidth-burst", "2000"];
    let (server, crowd) =
        serve_crowd_with(setup, &root, &rate, |client| drop(client.try_send(&bytes)));
    let url = format!("http://{}/hello.txt", server.authority());
    let ran = load(WEIR, "--closed 1 --num 3 --timeout 20s --source 127.0.0.2", url);
    assert_eq!((ran.count("replies"), ran.count("errors")), (3, 0), "{}", setup.name);
    check_counted(server, crowd);
}
