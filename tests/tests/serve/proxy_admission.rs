//! Admission to upstreams, as the client on one side and the origin on the other see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weir_tests::origin::{Received, reply};
use weir_tests::wait::until;
use weir_tests::{Origin, Server, request};

use crate::WEIR;

fn proxy(origin: &Origin, options: &[&str]) -> Server {
    let few = ["--workers", "1", "--max-in-flight", "1", "--queue-target", "20s"];
    Server::proxy(WEIR, &[&origin.url()], &[&few, options].concat())
}

/// Waits until the loop has seen what was sent before: it answers this itself, and in order.
fn until_seen(server: &Server) {
    let mut client = server.connect();
    client.send(request("TRACE", "/", &[]));
    assert!(client.reply().status >= 400);
}

#[test]
fn requests_of_the_high_class_are_sent_first() {
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let origin = Origin::start(move |_| {
        while !released.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        reply(b"done")
    });
    let server = proxy(&origin, &["--high-priority", "/pay"]);
    let mut clients = [server.connect(), server.connect(), server.connect()];
    for (client, target) in clients.iter_mut().zip(["/first", "/normal", "/pay/now"]) {
        client.send(request("GET", target, &[]));
        until_seen(&server);
    }
    release.store(true, Ordering::Relaxed);
    for client in &mut clients {
        assert_eq!(client.reply().text(), "done");
    }
    let lines: Vec<_> = origin.received().iter().map(|one| one.line().to_owned()).collect();
    let expected = ["/first", "/pay/now", "/normal"].map(|path| format!("GET {path} HTTP/1.1"));
    assert_eq!(lines, expected);
    server.stop_cleanly();
}

#[test]
fn a_tunnel_takes_no_place() {
    let origin = Origin::start(|received: &Received| {
        if received.fields("upgrade").is_empty() {
            return reply(b"plain");
        }
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n".to_vec()
    });
    let server = proxy(&origin, &[]);
    let mut tunnel = server.connect();
    tunnel.send(request("GET", "/tunnel", &["Connection: Upgrade", "Upgrade: echo"]));
    assert_eq!(tunnel.head().unwrap().status, 101);
    assert_eq!(server.get("/plain").text(), "plain");
    // It is still open.
    tunnel.send(request("GET", "/through", &["Connection: Upgrade", "Upgrade: echo"]));
    until("the bytes pass", || origin.received().len() == 3);
}
