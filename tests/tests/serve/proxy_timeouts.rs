//! Time limits of forwarded requests, each with what the client sees and what is counted.

use std::io::Write;
use std::thread;
use std::time::Duration;

use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::origin::by_hand;
use weir_tests::{Setup, request, suite};

use crate::WEIR;

suite! {
    every_forwarding_architecture_at_once:
    each_limit_has_its_error_and_its_statistic,
    a_server_that_takes_nothing_of_the_content_is_a_504,
    a_limit_holds_though_nothing_is_awaited_from_the_client,
    content_that_does_not_come_is_the_client_s_fault,
    an_interim_reply_is_not_the_first_byte_of_the_reply,
    content_that_trickles_in_keeps_no_connect_alive,
    a_request_that_is_overdue_for_its_client_is_the_client_s_fault,
    a_request_that_is_overdue_at_its_server_is_a_504,
}

/// A limit, short; what it is of; the `Proxy-Status` error; and the statistic that counts it.
type Case<'a> = (&'a str, Behaviour, &'a str, &'a str);

fn each_limit_has_its_error_and_its_statistic(setup: &Setup) {
    let trickle = |bytes_per_s| Behaviour::Trickle { bytes_per_s };
    let cases: [Case<'_>; 4] = [
        ("--connect-timeout", Behaviour::NeverAccepts, "connection_timeout", "connect"),
        ("--first-byte-timeout", Behaviour::Silent, "connection_read_timeout", "first_byte"),
        ("--upstream-idle-timeout", trickle(1), "connection_read_timeout", "idle"),
        ("--upstream-timeout", trickle(100), "http_response_timeout", "whole"),
    ];
    for (option, behaviour, error, statistic) in cases {
        let faulty = Faulty::start(behaviour);
        let url = format!("http://{}", faulty.address());
        let server = setup.proxy(&[&url], &[option, "300ms"]);
        let refused = server.get("/");
        assert_eq!(refused.status, 504, "{option}");
        let status = format!("weir; error={error}");
        assert_eq!(refused.field("Proxy-Status"), Some(&*status), "{option}");
        let stopped = server.stop_cleanly();
        let stats = stopped.stats()["total"].clone();
        for each in ["connect", "first_byte", "idle", "whole"] {
            let counted = stats[format!("upstream_timeout_{each}")].as_u64();
            assert_eq!(counted, Some(u64::from(each == statistic)), "{option}: {each}");
        }
        assert_eq!(stats["upstream_timeouts"], 1, "{option}");
    }
}

fn a_server_that_takes_nothing_of_the_content_is_a_504(setup: &Setup) {
    let faulty = Faulty::start(Behaviour::NeverReads);
    let url = format!("http://{}", faulty.address());
    let server = setup.proxy(&[&url], &["--upstream-idle-timeout", "300ms"]);
    let mut client = server.connect();
    let mut sending = client.another_end();
    // More than all buffers on the way hold; the rest of it is not taken any more.
    let sender = thread::spawn(move || {
        let _ = sending.try_send(request("POST", "/", &["Content-Length: 30000000"]));
        let _ = sending.try_send(vec![0; 30_000_000]);
    });
    let refused = client.reply();
    assert_eq!(refused.status, 504);
    let status = "weir; error=connection_write_timeout";
    assert_eq!(refused.field("Proxy-Status"), Some(status));
    drop(client);
    drop(server);
    sender.join().unwrap();
}

fn a_limit_holds_though_nothing_is_awaited_from_the_client(setup: &Setup) {
    let faulty = Faulty::start(Behaviour::Silent);
    let url = format!("http://{}", faulty.address());
    let server = setup.proxy(&[&url], &["--first-byte-timeout", "300ms"]);
    let mut client = server.connect();
    // In one write, and more than is read ahead: the client's socket is never found empty.
    client.send(request("GET", "/", &[]).repeat(1000));
    assert_eq!(client.reply().status, 504);
    drop(client);
    server.stop_cleanly();
}

fn content_that_does_not_come_is_the_client_s_fault(setup: &Setup) {
    let faulty = Faulty::start(Behaviour::Silent);
    let url = format!("http://{}", faulty.address());
    let server = setup.proxy(&[&url], &["--upstream-idle-timeout", "300ms"]);
    let mut client = server.connect();
    client.send(request("POST", "/", &["Content-Length: 10"]));
    client.send("hi");
    let refused = client.reply();
    assert_eq!(refused.status, 408);
    assert_eq!(refused.field("Proxy-Status"), Some("weir; error=http_request_error"));
    assert!(client.ends());
    drop(client);
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["upstream_timeouts"], 0);
}

fn an_interim_reply_is_not_the_first_byte_of_the_reply(setup: &Setup) {
    let origin = by_hand(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        thread::park();
    });
    let limits = ["--first-byte-timeout", "300ms", "--upstream-idle-timeout", "10m"];
    let server = setup.proxy(&[&format!("http://{origin}")], &limits);
    let mut client = server.connect();
    client.send(request("GET", "/", &[]));
    assert_eq!(client.head().unwrap().status, 103);
    assert_eq!(client.reply().status, 504);
    drop(client);
    let stats = server.stop_cleanly().stats()["total"].clone();
    assert_eq!(stats["upstream_timeout_first_byte"], 1);
}

fn content_that_trickles_in_keeps_no_connect_alive(setup: &Setup) {
    let faulty = Faulty::start(Behaviour::NeverAccepts);
    let url = format!("http://{}", faulty.address());
    let limits = ["--connect-timeout", "500ms", "--request-buffer", "0"];
    let server = setup.proxy(&[&url], &limits);
    let mut client = server.connect();
    client.send(request("POST", "/", &["Content-Length: 10000"]));
    // The client is told long before all is sent.
    assert!(!client.trickle(&[b'x'; 10_000], Duration::from_millis(20)));
    assert_eq!(client.reply().status, 504);
    drop(client);
    server.stop_cleanly();
}

fn a_request_that_is_overdue_for_its_client_is_the_client_s_fault(setup: &Setup) {
    for buffer in ["1M", "0"] {
        let faulty = Faulty::start(Behaviour::Silent);
        let url = format!("http://{}", faulty.address());
        let limits = ["--request-timeout", "300ms", "--request-buffer", buffer];
        let server = setup.proxy(&[&url], &limits);
        let mut client = server.connect();
        client.send(request("POST", "/", &["Content-Length: 10000"]));
        // The client is told long before all is sent.
        assert!(!client.trickle(&[b'x'; 10_000], Duration::from_millis(20)));
        let refused = client.reply();
        assert_eq!(refused.status, 408, "{buffer}");
        assert_eq!(refused.field("Proxy-Status"), Some("weir; error=http_request_error"));
        assert!(client.ends());
        drop(client);
        let stats = server.stop_cleanly().stats()["total"].clone();
        assert_eq!(stats["upstream_timeouts"], 0, "{buffer}");
        assert_eq!(stats["timeout_request"], 1, "{buffer}");
    }
}

fn a_request_that_is_overdue_at_its_server_is_a_504(setup: &Setup) {
    let faulty = Faulty::start(Behaviour::Silent);
    let url = format!("http://{}", faulty.address());
    let server = setup.proxy(&[&url], &["--request-timeout", "300ms"]);
    let late = server.get("/");
    assert_eq!(late.status, 504);
    assert_eq!(late.field("Proxy-Status"), Some("weir; error=http_response_timeout"));
    assert_eq!(server.stop_cleanly().stats()["total"]["upstream_timeouts"], 0);
}
