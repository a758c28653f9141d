//! Room on a full server: connections that wait for their client give way to clients that could be
//! served. No deadline helps here, and none is measured.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken expectation is a failed test"
)]

use weir_tests::{Client, Root, Server, Setup, request, suite};

const WEIR: &str = env!("CARGO_BIN_EXE_weir-under-test");

suite! {
    every_architecture:
    clients_that_say_half_a_request_give_way,
    clients_that_say_nothing_give_way,
    bodies_that_trickle_in_give_way,
    clients_that_take_nothing_of_their_reply_give_way,
}

/// Deadlines that never pass during a test.
const PATIENT: [&str; 14] = [
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

/// Fills a server with a crowd of clients, each of which has sent what `say` makes it send.
fn crowded(setup: &Setup, root: &Root, mut say: impl FnMut(&mut Client)) -> (Server, Vec<Client>) {
    let options = [&["--workers", "1", "--max-conns", ROOM], &PATIENT[..]].concat();
    let server = setup.serve(root, &options);
    let mut crowd: Vec<_> = (0..CROWD).map(|_| Client::connect_narrow(server.address())).collect();
    crowd.iter_mut().for_each(&mut say);
    (server, crowd)
}

/// Asserts that new requests are still served, and that connections were closed for them.
fn has_room(server: Server, crowd: Vec<Client>) {
    for _ in 0..3 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }
    let stats = server.stop_cleanly().stats();
    let evicted = stats["total"]["evicted"].as_u64().unwrap();
    assert!((1..=CROWD as u64).contains(&evicted), "{stats}");
    drop(crowd);
}

fn clients_that_say_half_a_request_give_way(setup: &Setup) {
    let root = Root::with_hello();
    let (server, crowd) = crowded(setup, &root, |client| drop(client.try_send("GET /hel")));
    has_room(server, crowd);
}

fn clients_that_say_nothing_give_way(setup: &Setup) {
    let root = Root::with_hello();
    let (server, crowd) = crowded(setup, &root, |_| ());
    has_room(server, crowd);
}

/// They are answered at once, whatever the rest of their bodies.
fn bodies_that_trickle_in_give_way(setup: &Setup) {
    let root = Root::with_hello();
    let said = request("POST", "/hello.txt", &["Content-Length: 1000"]) + "x";
    let (server, crowd) = crowded(setup, &root, |client| drop(client.try_send(&said)));
    let mut client = server.connect();
    client.send(&said);
    assert_eq!(client.reply().status, 405);
    has_room(server, crowd);
}

fn clients_that_take_nothing_of_their_reply_give_way(setup: &Setup) {
    let root = Root::with_hello();
    root.write_noise("large", 32 << 20);
    let said = request("GET", "/large", &[]);
    let (server, crowd) = crowded(setup, &root, |client| drop(client.try_send(&said)));
    has_room(server, crowd);
}
