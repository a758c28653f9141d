//! Behaviour required of every architecture over every mechanism, over real sockets: one suite, run
//! for each. HTTP semantics are tested in `http.rs`, hostile input in `bad_inputs.rs`.

use std::time::Duration;

use rustix::process::Signal;
use weir_tests::files::noise;
use weir_tests::wait::until;
use weir_tests::{Client, Failure, Root, Server, Setup, assert_same, request, suite};

use crate::WEIR;

suite! {
    every_setup:
    get_replies_with_the_file,
    head_replies_with_the_length_and_no_body,
    a_connection_serves_100_requests,
    http_1_0_closes_unless_asked_to_keep_alive,
    connection_close_is_honoured,
    fifty_pipelined_requests_are_answered_in_order,
    pipelined_large_replies_are_answered_in_order,
    a_request_may_be_split_at_any_byte,
    three_hundred_connections_at_once_get_every_byte,
    downloads_at_once_and_small_replies_between_them_get_every_byte,
    a_reset_in_the_middle_of_a_reply_affects_no_other_client,
    a_close_inside_a_request_affects_no_other_client,
    a_client_that_shut_down_its_sending_side_gets_its_reply,
    silent_connections_affect_no_other_client,
    sigterm_lets_a_download_complete,
    a_second_sigterm_stops_at_once,
    sigterm_closes_idle_connections,
}

suite! {
    every_setup_at_once:
    a_slow_reader_gets_a_large_file,
}

/// Checks the means by which the suites observe a server.
#[test]
fn open_connections_are_counted_from_outside() {
    let root = Root::with_hello();
    let unix = format!("unix:{}", root.outside().join("weir.socket").display());
    let server = Server::start(WEIR, &["--listen", "127.0.0.1:0", "--listen", &unix], &root);
    let clients: Vec<_> = server.addresses.iter().map(Client::connect).collect();
    until("both were accepted", || server.open_connections() == 2);
    clients.into_iter().for_each(Client::reset);
    until("both were closed", || server.open_connections() == 0);
    server.stop_cleanly();
}

const LARGE: usize = 8 << 20;

fn get_replies_with_the_file(setup: &Setup) {
    let root = Root::new();
    let files = root.write_file_set();
    let server = setup.serve(&root, &[]);
    for file in files {
        let reply = server.get(&file.target);
        assert_eq!(reply.status, 200, "{}", file.target);
        assert_same(&reply.body, &file.body, &file.target);
    }
    server.stop_cleanly();
}

fn head_replies_with_the_length_and_no_body(setup: &Setup) {
    let root = Root::new();
    let file = root.write_noise("size", 65_537);
    let server = setup.serve(&root, &[]);
    let mut client = server.connect();
    let head = client.head_with(&file.target, &["Connection: close"]);
    assert_eq!((head.status, head.expect_field("Content-Length")), (200, "65537"));
    assert!(client.is_closed());
}

fn a_connection_serves_100_requests(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let mut client = server.connect();
    for _ in 0..100 {
        let reply = client.get("/hello.txt");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"hello"[..]));
    }
    drop(client);
    let stats = server.stop_cleanly().stats();
    assert_eq!(stats["total"]["accepted"], 1);
    assert_eq!(stats["total"]["requests"], 100);
}

fn http_1_0_closes_unless_asked_to_keep_alive(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let mut client = server.connect();
    client.send("GET /hello.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let reply = client.reply();
    assert!(reply.lists("Connection", "keep-alive"), "{:?}", reply.fields);
    assert_eq!(reply.text(), "hello");
    client.send("GET /hello.txt HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().text(), "hello");
    assert!(client.is_closed());
}

fn connection_close_is_honoured(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let mut client = server.connect();
    let reply = client.get_with("/hello.txt", &["Connection: close"]);
    assert!(reply.lists("Connection", "close"), "{:?}", reply.fields);
    assert_eq!(reply.text(), "hello");
    assert!(client.is_closed());
}

fn fifty_pipelined_requests_are_answered_in_order(setup: &Setup) {
    let root = Root::new();
    let files: Vec<_> = (0..50).map(|i| root.write_noise(&format!("f{i:02}"), i * 97)).collect();
    let server = setup.serve(&root, &[]);
    let mut client = server.connect();
    client.send(files.iter().map(|file| request("GET", &file.target, &[])).collect::<String>());
    for file in &files {
        assert_same(&client.reply().body, &file.body, &file.target);
    }
    client.finish_sending();
    assert!(client.is_closed());
}

fn pipelined_large_replies_are_answered_in_order(setup: &Setup) {
    let root = Root::new();
    let files: Vec<_> =
        (0..20).map(|i| root.write_noise(&format!("f{i:02}"), 300_000 + i)).collect();
    let server = setup.serve(&root, &[]);
    let mut client = Client::connect_narrow(server.address());
    client.send(files.iter().map(|file| request("GET", &file.target, &[])).collect::<String>());
    for file in &files {
        assert_same(&client.reply().body, &file.body, &file.target);
    }
}

fn a_request_may_be_split_at_any_byte(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let request = request("GET", "/hello.txt", &[]);
    let mut client = server.connect();
    client.send_at_once();
    for at in 1..request.len() {
        let (first, second) = request.split_at(at);
        client.send(first);
        client.send(second);
        assert_eq!(client.reply().text(), "hello", "split at {at}");
    }
}

fn a_slow_reader_gets_a_large_file(setup: &Setup) {
    let root = Root::new();
    let file = root.write_noise("large", 2 << 20);
    let server = setup.serve(&root, &[]);
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", &file.target, &[]));
    assert!(client.read_slowly(1 << 20, 8192, Duration::from_millis(2)));
    assert_same(&client.reply().body, &file.body, "the body");
}

fn downloads_at_once_and_small_replies_between_them_get_every_byte(setup: &Setup) {
    let root = Root::new();
    let [large, small] = [root.write_noise("large", 2 << 20), root.write_noise("small", 700)];
    let server = setup.serve(&root, &["--workers", "1"]);
    let pipeline = [&large, &small, &large];
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = server.connect();
                client.send(pipeline.map(|file| request("GET", &file.target, &[])).concat());
                for file in pipeline {
                    assert_same(&client.reply().body, &file.body, &file.target);
                }
            });
        }
        for _ in 0..50 {
            assert_same(&server.get(&small.target).body, &small.body, "the body");
        }
    });
    server.stop_cleanly();
}

fn three_hundred_connections_at_once_get_every_byte(setup: &Setup) {
    let root = Root::new();
    let files = [root.write_noise("small", 1448), root.write_noise("larger", 65_537)];
    let server = setup.serve(&root, &[]);
    let mut clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for round in 0..3 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.send(request("GET", &files[(i + round) % 2].target, &[]));
        }
        for (i, client) in clients.iter_mut().enumerate().rev() {
            assert_same(
                &client.reply().body,
                &files[(i + round) % 2].body,
                format_args!("connection {i}"),
            );
        }
    }
    drop(clients);
    let stats = server.stop_cleanly().stats();
    assert_eq!(stats["total"]["accepted"], 300);
    assert_eq!(stats["total"]["requests"], 900);
}

fn a_reset_in_the_middle_of_a_reply_affects_no_other_client(setup: &Setup) {
    let root = Root::with_hello();
    let large = root.write_noise("large", LARGE);
    let server = setup.serve(&root, &[]);
    let mut other = server.connect();
    for _ in 0..10 {
        let mut client = Client::connect_narrow(server.address());
        client.send(request("GET", &large.target, &[]));
        client.head().unwrap();
        client.reset();
        assert_eq!(other.get("/hello.txt").text(), "hello");
    }
    server.stop_cleanly();
}

fn a_close_inside_a_request_affects_no_other_client(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    for part in ["", "G", "GET /hello.txt HTTP/1.1\r\nHost: te"] {
        let mut client = server.connect();
        client.send(part);
        client.finish_sending();
        assert!(client.ends(), "after {part:?}");
        let mut client = server.connect();
        client.send(part);
        client.reset();
    }
    assert_eq!(server.get("/hello.txt").text(), "hello");
    until("their sockets were closed", || server.open_connections() == 0);
    server.stop_cleanly();
}

fn a_client_that_shut_down_its_sending_side_gets_its_reply(setup: &Setup) {
    let root = Root::new();
    let file = root.write_noise("large", 3 << 20);
    let server = setup.serve(&root, &[]);
    let mut client = server.connect();
    client.send(request("GET", &file.target, &[]));
    client.finish_sending();
    assert_same(&client.reply().body, &file.body, "the body");
    assert!(client.is_closed());
}

fn silent_connections_affect_no_other_client(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let silent: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for _ in 0..40 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }
    let mut last = silent.into_iter().next_back().unwrap();
    assert_eq!(last.get("/hello.txt").text(), "hello");
}

fn sigterm_lets_a_download_complete(setup: &Setup) {
    let root = Root::new();
    let body = noise(1, LARGE);
    root.write("large", &body);
    let server = setup.serve(&root, &["--drain-timeout", "10m"]);
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", "/large", &[]));
    let head = client.head().unwrap();
    server.signal(Signal::TERM);
    until("the listener was closed", || Client::connect_with(server.address(), None).is_err());
    assert_same(&client.body(head).unwrap().body, &body, "the body");
    assert!(client.is_closed());
    assert_eq!(server.wait().status.code(), Some(0));
}

fn a_second_sigterm_stops_at_once(setup: &Setup) {
    let root = Root::new();
    root.write_noise("large", LARGE);
    let mut server = setup.serve(&root, &["--drain-timeout", "10m"]);
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", "/large", &[]));
    let head = client.head().unwrap();
    // Signals sent while one is pending are lost: send until the process has seen two.
    until("the server stopped", || {
        server.signal(Signal::TERM);
        server.has_ended()
    });
    assert!(matches!(client.body(head), Err(Failure::Short(_))));
}

fn sigterm_closes_idle_connections(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &["--drain-timeout", "10m", "--idle-timeout", "10m"]);
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello.txt").text(), "hello");
    server.signal(Signal::TERM);
    assert!(idle.is_closed());
    assert_eq!(server.wait().status.code(), Some(0));
}
