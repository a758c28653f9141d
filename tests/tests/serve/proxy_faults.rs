//! Faults that a proxy must not pass on as something else: a reply that broke off, what a server
//! says unasked, and what is lacking in the proxy itself.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use weir_sys::socket;
use weir_tests::origin::{After, by_hand, reply};
use weir_tests::wait::until;
use weir_tests::{Origin, Server, Setup, request, suite};

use crate::WEIR;
use crate::tls::{limit_descriptors, lowest_free};

suite! {
    every_forwarding_architecture:
    a_reply_that_broke_off_does_not_end_like_one_that_is_whole,
    what_a_server_says_unasked_is_no_reply_to_the_next_request,
    a_lack_of_descriptors_is_a_503_and_no_fault_of_the_server,
}

/// Number of replies that break off.
const CUT_REPLIES: usize = 20;

/// The client of HTTP/1.0 knows the end of a reply without a length by the close alone.
fn a_reply_that_broke_off_does_not_end_like_one_that_is_whole(setup: &Setup) {
    let half = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let origin = Origin::for_many(move |_| (half.to_vec(), After::Close));
    let server = setup.proxy(&[&origin.url()], &[]);
    for _ in 0..CUT_REPLIES {
        let mut client = server.connect();
        client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        if let Ok(all) = client.rest() {
            assert!(all.is_empty(), "it looks whole: {}", String::from_utf8_lossy(&all));
        }
    }
    server.stop_cleanly();
}

/// An origin that sends the number of the connection, from 0, in reply to the first request on it,
/// and leaves the connection to the test.
fn numbering() -> (String, Arc<Mutex<Vec<TcpStream>>>) {
    let (count, kept) = (AtomicUsize::new(0), Arc::new(Mutex::new(Vec::new())));
    let all = Arc::clone(&kept);
    let address = by_hand(move |mut stream, _| {
        let number = count.fetch_add(1, Ordering::Relaxed).to_string();
        // Kept before the client could know of it.
        let mut all = all.lock().unwrap();
        stream.write_all(&reply(number.as_bytes())).unwrap();
        all.push(stream);
    });
    (format!("http://{address}"), kept)
}

/// Stops a server, and returns once none of its threads runs.
fn suspend(server: &Server) {
    server.signal(Signal::STOP);
    until("the server stood still", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        })
    });
}

/// The server learns of the next request before it learns that the kept connection has said
/// something: both are there when it looks.
fn what_a_server_says_unasked_is_no_reply_to_the_next_request(setup: &Setup) {
    for unasked in [&reply(b"unasked")[..], b"HTTP/1.1 408 Request Timeout\r\n\r\n", b"?"] {
        let (url, kept) = numbering();
        let server = setup.proxy(&[&url], &["--workers", "1"]);
        let mut client = server.connect();
        assert_eq!(client.get("/").text(), "0");
        suspend(&server);
        client.send(request("GET", "/", &[]));
        let mut said = kept.lock().unwrap().remove(0);
        said.write_all(unasked).unwrap();
        until("it has arrived", || socket::unacknowledged(said.as_fd()).unwrap() == 0);
        server.signal(Signal::CONT);
        assert_eq!(client.reply().text(), "1", "{}", setup.name);
        drop(said);
        server.stop_cleanly();
    }
}

/// Leaves the server no descriptor, as far as it holds the lowest ones.
fn leave_no_descriptor(server: &Server) {
    limit_descriptors(server.id(), Some(lowest_free(server.id())));
}

fn a_lack_of_descriptors_is_a_503_and_no_fault_of_the_server(setup: &Setup) {
    let origin = Origin::echo();
    let server = setup.proxy(&[&origin.url()], &["--workers", "1", "--keep-idle", "0"]);
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    // The connection of the last request may have been closed only then.
    let mut refused = None;
    until("there was no descriptor", || {
        leave_no_descriptor(&server);
        refused = Some(client.get("/")).filter(|reply| reply.status != 200);
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")));
    assert_eq!(refused.field("Proxy-Status"), Some("weir; error=proxy_internal_error"));
    limit_descriptors(server.id(), None);
    assert_eq!(client.get("/").status, 200);
    let stopped = server.stop_cleanly();
    assert!(stopped.stderr.contains("cannot connect"), "{}", stopped.stderr);
    assert!(!stopped.stderr.contains("has failed"), "{}", stopped.stderr);
    let stats = stopped.stats()["total"].clone();
    assert_eq!((&stats["upstream_lacks"], &stats["upstream_failed"]), (&1.into(), &0.into()));
}

#[test]
fn a_check_without_a_descriptor_is_not_failed() {
    let origin = Origin::echo();
    let checks = ["--health-check", "/", "--health-interval", "5ms", "--health-timeout", "10m"];
    let server = Server::proxy(WEIR, &[&origin.url()], &checks);
    until("it was checked", || !origin.received().is_empty());
    until("checks had no descriptor", || {
        leave_no_descriptor(&server);
        server.stderr_so_far().matches("is not checked").count() > 3
    });
    limit_descriptors(server.id(), None);
    let before = origin.received().len();
    until("it was checked again", || origin.received().len() > before + 1);
    let stopped = server.stop_cleanly();
    assert!(!stopped.stderr.contains("is down"), "{}", stopped.stderr);
    assert_eq!(stopped.stats()["total"]["upstream_checks_failed"], 0);
}
