//! Admission to upstreams, as the client on one side and the origin on the other see it.

use std::thread;
use std::time::Duration;

use weir_tests::origin::{Gate, Received, reply};
use weir_tests::wait::until;
use weir_tests::{Origin, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_forwarding_architecture:
    requests_of_the_high_class_are_sent_first,
    a_tunnel_takes_no_place,
    a_stream_of_events_takes_no_place,
    a_request_keeps_its_place_while_the_server_works_though_its_client_has_gone,
    a_place_is_not_kept_for_ever_for_a_client_that_has_gone,
}

fn proxy(setup: &Setup, origin: &Origin, options: &[&str]) -> Server {
    let few = ["--workers", "1", "--max-in-flight", "1", "--queue-target", "20s"];
    setup.proxy(&[&origin.url()], &[&few, options].concat())
}

/// Waits until the loop has seen what was sent before: it answers this itself, and in order.
fn until_seen(server: &Server) {
    let mut client = server.connect();
    client.send(request("TRACE", "/", &[]));
    assert!(client.reply().status >= 400);
}

fn requests_of_the_high_class_are_sent_first(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |_| {
        at_origin.pass();
        reply(b"done")
    });
    let server = proxy(setup, &origin, &["--high-priority", "/pay"]);
    let mut clients = [server.connect(), server.connect(), server.connect()];
    for (client, target) in clients.iter_mut().zip(["/first", "/normal", "/pay/now"]) {
        client.send(request("GET", target, &[]));
        until_seen(&server);
    }
    gate.open();
    for client in &mut clients {
        assert_eq!(client.reply().text(), "done");
    }
    let lines: Vec<_> = origin.received().iter().map(|one| one.line().to_owned()).collect();
    let expected = ["/first", "/pay/now", "/normal"].map(|path| format!("GET {path} HTTP/1.1"));
    assert_eq!(lines, expected);
    server.stop_cleanly();
}

fn a_tunnel_takes_no_place(setup: &Setup) {
    let origin = Origin::start(|received: &Received| {
        if received.fields("upgrade").is_empty() {
            return reply(b"plain");
        }
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n".to_vec()
    });
    let server = proxy(setup, &origin, &[]);
    let mut tunnel = server.connect();
    tunnel.send(request("GET", "/tunnel", &["Connection: Upgrade", "Upgrade: echo"]));
    assert_eq!(tunnel.head().unwrap().status, 101);
    assert_eq!(server.get("/plain").text(), "plain");
    // It is still open.
    tunnel.send(request("GET", "/through", &["Connection: Upgrade", "Upgrade: echo"]));
    until("the bytes pass", || origin.received().len() == 3);
}

fn a_stream_of_events_takes_no_place(setup: &Setup) {
    let origin = Origin::start(|received: &Received| {
        if received.line().starts_with("GET /plain") {
            return reply(b"plain");
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        [head.as_bytes(), b"8\r\ndata: 1\n\r\n"].concat()
    });
    let server = proxy(setup, &origin, &[]);
    let mut stream = server.connect();
    stream.send(request("GET", "/events", &[]));
    assert_eq!(stream.head().unwrap().status, 200);
    // The stream has not ended.
    assert_eq!(server.get("/plain").text(), "plain");
    assert_eq!(origin.received().len(), 2);
}

fn a_request_keeps_its_place_while_the_server_works_though_its_client_has_gone(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |received: &Received| {
        if received.line().starts_with("GET /first") {
            at_origin.pass();
        }
        reply(b"done")
    });
    let server = proxy(setup, &origin, &[]);
    let mut first = server.connect();
    first.send(request("GET", "/first", &[]));
    until("the first is sent", || origin.received().len() == 1);
    // A sixteenth of the time for which its place is kept.
    thread::sleep(Duration::from_millis(500));
    let mut second = server.connect();
    second.send(request("GET", "/second", &[]));
    until_seen(&server);
    drop(first);
    until_seen(&server);
    assert_eq!(origin.received().len(), 1, "the server is at work");
    gate.open();
    assert_eq!(second.reply().text(), "done");
    // Its connection is kept, too.
    assert_eq!((origin.connections(), origin.in_flight_max()), (1, 1));
    assert_eq!(server.stop_cleanly().stats()["total"]["upstream_departed"], 1);
}

fn a_place_is_not_kept_for_ever_for_a_client_that_has_gone(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |received: &Received| {
        if received.line().starts_with("GET /never") {
            at_origin.pass();
        }
        reply(b"done")
    });
    let server = proxy(setup, &origin, &[]);
    let mut first = server.connect();
    first.send(request("GET", "/never", &[]));
    until("the first is sent", || origin.received().len() == 1);
    drop(first);
    assert_eq!(server.get("/second").text(), "done");
    gate.open();
}
