//! The behaviour every mechanism must show, over real sockets: one suite, run for each.
//! Nothing here is about what HTTP says (`http.rs`) or about hostile input (`bad_inputs.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken expectation is a failed test"
)]

use std::time::Duration;

use rustix::process::Signal;
use weir_tests::files::noise;
use weir_tests::patience::until;
use weir_tests::{Client, Failure, Root, Server, request};

const WEIR: &str = env!("CARGO_BIN_EXE_weir-under-test");

macro_rules! suite {
    ($($test:ident,)+) => {
        mod each_mechanism {
            $(#[test]
            fn $test() {
                for mechanism in weir_tests::mechanisms() {
                    println!("{mechanism}");
                    super::$test(mechanism);
                }
            })+
        }
    };
}

suite! {
    get_replies_with_the_file,
    head_replies_with_the_length_and_no_body,
    a_connection_serves_100_requests,
    http_1_0_closes_unless_asked_to_keep_alive,
    connection_close_is_honoured,
    fifty_pipelined_requests_are_answered_in_order,
    pipelined_large_replies_are_answered_in_order,
    a_request_may_be_split_at_any_byte,
    a_slow_reader_gets_a_large_file,
    three_hundred_connections_at_once_get_every_byte,
    a_reset_in_the_middle_hurts_nobody_else,
    leaving_inside_a_request_hurts_nobody_else,
    a_client_that_ended_its_sending_side_gets_its_reply,
    silent_connections_hurt_nobody_else,
    sigterm_lets_a_download_complete,
    a_second_sigterm_stops_at_once,
    sigterm_closes_idle_connections,
}

const LARGE: usize = 8 << 20;

fn serve(mechanism: &str, root: &Root) -> Server {
    let server = Server::start(WEIR, &["--mechanism", mechanism], root);
    assert!(server.ready.contains(&format!("({mechanism},")), "{}", server.ready);
    server
}

fn get_replies_with_the_file(mechanism: &str) {
    let root = Root::new();
    let files = root.write_file_set();
    let server = serve(mechanism, &root);
    for file in files {
        let reply = server.get(&file.target);
        assert_eq!(reply.status, 200, "{}", file.target);
        assert!(reply.body == file.body, "{}", file.target);
    }
    server.stop_cleanly();
}

fn head_replies_with_the_length_and_no_body(mechanism: &str) {
    let root = Root::new();
    let file = root.write_noise("size", 65_537);
    let server = serve(mechanism, &root);
    let mut client = server.connect();
    let head = client.head_with(&file.target, &["Connection: close"]);
    assert_eq!((head.status, head.expect_field("Content-Length")), (200, "65537"));
    assert!(client.is_closed());
}

fn a_connection_serves_100_requests(mechanism: &str) {
    let root = Root::with_hello();
    let server = serve(mechanism, &root);
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

fn http_1_0_closes_unless_asked_to_keep_alive(mechanism: &str) {
    let root = Root::with_hello();
    let server = serve(mechanism, &root);
    let mut client = server.connect();
    client.send("GET /hello.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let reply = client.reply();
    assert!(reply.lists("Connection", "keep-alive"), "{:?}", reply.fields);
    assert_eq!(reply.text(), "hello");
    client.send("GET /hello.txt HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().text(), "hello");
    assert!(client.is_closed());
}

fn connection_close_is_honoured(mechanism: &str) {
    let root = Root::with_hello();
    let server = serve(mechanism, &root);
    let mut client = server.connect();
    let reply = client.get_with("/hello.txt", &["Connection: close"]);
    assert!(reply.lists("Connection", "close"), "{:?}", reply.fields);
    assert_eq!(reply.text(), "hello");
    assert!(client.is_closed());
}

fn fifty_pipelined_requests_are_answered_in_order(mechanism: &str) {
    let root = Root::new();
    let files: Vec<_> = (0..50).map(|i| root.write_noise(&format!("f{i:02}"), i * 97)).collect();
    let server = serve(mechanism, &root);
    let mut client = server.connect();
    client.send(files.iter().map(|file| request("GET", &file.target, &[])).collect::<String>());
    for file in &files {
        assert!(client.reply().body == file.body, "{}", file.target);
    }
    client.finish_sending();
    assert!(client.is_closed());
}

fn pipelined_large_replies_are_answered_in_order(mechanism: &str) {
    let root = Root::new();
    let files: Vec<_> =
        (0..20).map(|i| root.write_noise(&format!("f{i:02}"), 300_000 + i)).collect();
    let server = serve(mechanism, &root);
    let mut client = Client::connect_narrow(server.address());
    client.send(files.iter().map(|file| request("GET", &file.target, &[])).collect::<String>());
    for file in &files {
        assert!(client.reply().body == file.body, "{}", file.target);
    }
}

fn a_request_may_be_split_at_any_byte(mechanism: &str) {
    let root = Root::with_hello();
    let server = serve(mechanism, &root);
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

fn a_slow_reader_gets_a_large_file(mechanism: &str) {
    let root = Root::new();
    let file = root.write_noise("large", 2 << 20);
    let server = serve(mechanism, &root);
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", &file.target, &[]));
    assert!(client.read_slowly(1 << 20, 8192, Duration::from_millis(2)));
    assert!(client.reply().body == file.body);
}

fn three_hundred_connections_at_once_get_every_byte(mechanism: &str) {
    let root = Root::new();
    let files = [root.write_noise("small", 1448), root.write_noise("larger", 65_537)];
    let server = serve(mechanism, &root);
    let mut clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for round in 0..3 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.send(request("GET", &files[(i + round) % 2].target, &[]));
        }
        for (i, client) in clients.iter_mut().enumerate().rev() {
            assert!(client.reply().body == files[(i + round) % 2].body, "connection {i}");
        }
    }
    drop(clients);
    let stats = server.stop_cleanly().stats();
    assert_eq!(stats["total"]["accepted"], 300);
    assert_eq!(stats["total"]["requests"], 900);
}

fn a_reset_in_the_middle_hurts_nobody_else(mechanism: &str) {
    let root = Root::with_hello();
    let large = root.write_noise("large", LARGE);
    let server = serve(mechanism, &root);
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

fn leaving_inside_a_request_hurts_nobody_else(mechanism: &str) {
    let root = Root::with_hello();
    let server = serve(mechanism, &root);
    let before = server.open_sockets();
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
    until("their sockets were closed", || server.open_sockets() == before);
    server.stop_cleanly();
}

fn a_client_that_ended_its_sending_side_gets_its_reply(mechanism: &str) {
    let root = Root::new();
    let file = root.write_noise("large", 3 << 20);
    let server = serve(mechanism, &root);
    let mut client = server.connect();
    client.send(request("GET", &file.target, &[]));
    client.finish_sending();
    assert!(client.reply().body == file.body);
    assert!(client.is_closed());
}

fn silent_connections_hurt_nobody_else(mechanism: &str) {
    let root = Root::with_hello();
    let server = serve(mechanism, &root);
    let silent: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for _ in 0..40 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }
    let mut spoke_at_last = silent.into_iter().next_back().unwrap();
    assert_eq!(spoke_at_last.get("/hello.txt").text(), "hello");
}

fn sigterm_lets_a_download_complete(mechanism: &str) {
    let root = Root::new();
    let body = noise(1, LARGE);
    root.write("large", &body);
    let options = ["--mechanism", mechanism, "--drain-timeout", "10m"];
    let server = Server::start(WEIR, &options, &root);
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", "/large", &[]));
    let head = client.head().unwrap();
    server.signal(Signal::TERM);
    until("the listener was closed", || Client::connect_with(server.address(), None).is_err());
    assert!(client.body(head).unwrap().body == body);
    assert!(client.is_closed());
    assert_eq!(server.wait().status.code(), Some(0));
}

fn a_second_sigterm_stops_at_once(mechanism: &str) {
    let root = Root::new();
    root.write_noise("large", LARGE);
    let options = ["--mechanism", mechanism, "--drain-timeout", "10m"];
    let mut server = Server::start(WEIR, &options, &root);
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

fn sigterm_closes_idle_connections(mechanism: &str) {
    let root = Root::with_hello();
    let options = ["--mechanism", mechanism, "--drain-timeout", "10m", "--idle-timeout", "10m"];
    let server = Server::start(WEIR, &options, &root);
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello.txt").text(), "hello");
    server.signal(Signal::TERM);
    assert!(idle.is_closed());
    assert_eq!(server.wait().status.code(), Some(0));
}
