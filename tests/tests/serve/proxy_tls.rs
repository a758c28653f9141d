//! Servers behind a proxy that speak TLS: what passes, whom the proxy trusts, and what a client is
//! told when TLS fails.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::path::Path;
use std::thread;

use weir_tests::origin::reply;
use weir_tests::server::run;
use weir_tests::tls_front::{Fault, FrontSettings, Signer, TlsFront};
use weir_tests::wait::until;
use weir_tests::{Origin, Server, Setup, assert_same, request, suite};

use crate::WEIR;
use crate::proxy_streams::{answers_and_reads_nothing, post_large};

suite! {
    every_tls_forwarder:
    a_thousand_requests_go_over_connections_that_are_kept,
    large_bodies_pass_both_ways,
    another_protocol_passes,
    an_answer_before_the_content_is_passed_on_though_the_server_reads_no_more,
    sessions_are_resumed_by_new_connections,
    a_certificate_that_is_not_trusted_is_told,
    what_is_no_tls_is_told,
    a_handshake_that_is_cut_is_told,
    a_reply_that_is_cut_is_not_taken_for_whole,
    a_client_certificate_is_presented,
    new_keys_are_taken,
    health_checks_speak_tls,
}

fn path(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Starts a proxy of a front, whose certificate it trusts.
fn proxy(setup: &Setup, front: &TlsFront, options: &[&str]) -> Server {
    let ca = path(&front.ca_file());
    setup.proxy(&[&front.url("")], &[&["--upstream-ca", ca.as_str()], options].concat())
}

fn total(server: Server, name: &str) -> u64 {
    server.stop_cleanly().stats()["total"][name].as_u64().expect(name)
}

fn a_thousand_requests_go_over_connections_that_are_kept(setup: &Setup) {
    let origin = Origin::echo();
    let front = TlsFront::start(origin.address(), &FrontSettings::default());
    let server = proxy(setup, &front, &[]);
    let mut client = server.connect();
    for number in 0..1_000 {
        let target = format!("/{number}");
        assert_eq!(client.get(&target).text(), format!("GET {target} HTTP/1.1\n"));
    }
    assert_eq!(front.accepted(), 1);
    let stats = server.stop_cleanly();
    let stats = &stats.stats()["total"];
    assert_eq!(stats["upstream_tls_full"], 1);
    assert_eq!(stats["upstream_reused"], 999);
}

fn large_bodies_pass_both_ways(setup: &Setup) {
    let body = weir_tests::files::noise(7, 3 << 20);
    let content = body.clone();
    let origin = Origin::start(move |received| match received.body.len() {
        0 => reply(&content),
        _ => reply(&received.body),
    });
    let front = TlsFront::start(origin.address(), &FrontSettings::default());
    let server = proxy(setup, &front, &[]);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_same(&client.get("/").body, &body, "the reply");
        let length = format!("Content-Length: {}", body.len());
        client.send([request("POST", "/", &[&length]).as_bytes(), &body].concat());
        assert_same(&client.reply().body, &body, "the request");
    }
    server.stop_cleanly();
}

fn another_protocol_passes(setup: &Setup) {
    let origin = weir_tests::origin::by_hand(|mut connection, _| {
        let head =
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        connection.write_all(head).unwrap();
        let mut said = Vec::new();
        connection.read_to_end(&mut said).unwrap();
        connection.write_all(&said).unwrap();
    });
    let front = TlsFront::start(origin, &FrontSettings::default());
    let server = proxy(setup, &front, &[]);
    let mut client = server.connect();
    client.send(request("GET", "/", &["Connection: upgrade", "Upgrade: echo"]));
    assert_eq!(client.head().unwrap().status, 101);
    client.send("said");
    client.finish_sending();
    assert_eq!(client.rest().unwrap(), b"said");
    server.stop_cleanly();
}

fn an_answer_before_the_content_is_passed_on_though_the_server_reads_no_more(setup: &Setup) {
    let origin = answers_and_reads_nothing();
    let front = TlsFront::start(origin, &FrontSettings::default());
    let server = proxy(setup, &front, &["--upstream-idle-timeout", "20s"]);
    let mut client = server.connect();
    let _sender = post_large(&client);
    let reply = client.reply();
    assert_eq!((reply.status, reply.text().as_str()), (413, "no"));
}

fn sessions_are_resumed_by_new_connections(setup: &Setup) {
    let origin = Origin::echo();
    let front = TlsFront::start(origin.address(), &FrontSettings::default());
    let server = proxy(setup, &front, &["--keep-idle", "0"]);
    let mut client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/").status, 200);
    }
    let (full, resumed) = front.handshakes();
    assert_eq!((full + resumed, full), (5, 1));
    assert_eq!(total(server, "upstream_tls_resumed"), 4);
}

/// Asserts that a request is answered with 502, this error, and this count.
fn assert_told(server: Server, error: &str, name: &str) {
    let refused = server.get("/");
    assert_eq!(refused.status, 502);
    assert_eq!(refused.expect_field("Proxy-Status"), format!("weir; error={error}"));
    assert_eq!(total(server, name), 1);
}

fn a_certificate_that_is_not_trusted_is_told(setup: &Setup) {
    let origin = Origin::echo();
    let start = |signer| {
        TlsFront::start(origin.address(), &FrontSettings { signer, ..FrontSettings::default() })
    };
    let (good, other) = (start(Signer::Authority), start(Signer::Itself));
    let expired = start(Signer::ItselfExpired);
    let (told, name) = ("tls_certificate_error", "upstream_tls_certificate");
    assert_told(proxy(setup, &good, &["--upstream-name", "other.example"]), told, name);
    assert_told(proxy(setup, &expired, &[]), told, name);
    let ca = path(&other.ca_file());
    assert_told(setup.proxy(&[&good.url("")], &["--upstream-ca", &ca]), told, name);
    assert!(origin.received().is_empty());
    // With the name that it is for, with its own authority, and with none.
    assert_eq!(proxy(setup, &good, &["--upstream-name", "localhost"]).get("/").status, 200);
    let insecure = setup.proxy(&[&expired.url("")], &["--upstream-insecure"]);
    assert_eq!(insecure.get("/").status, 200);
}

fn what_is_no_tls_is_told(setup: &Setup) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let _ = connection.read(&mut [0; 4096]).unwrap();
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        connection.shutdown(Shutdown::Write).unwrap();
        let _ = connection.read_to_end(&mut Vec::new());
    });
    let server = setup.proxy(&[&url], &["--upstream-insecure"]);
    assert_told(server, "tls_protocol_error", "upstream_tls_protocol");
}

fn a_handshake_that_is_cut_is_told(setup: &Setup) {
    let origin = Origin::echo();
    for fault in [Fault::CloseInHandshake, Fault::ResetInHandshake, Fault::CloseMidHandshake] {
        let settings = FrontSettings { fault, ..FrontSettings::default() };
        let front = TlsFront::start(origin.address(), &settings);
        assert_told(proxy(setup, &front, &[]), "connection_terminated", "upstream_failed");
    }
    let settings = FrontSettings { fault: Fault::SilentInHandshake, ..FrontSettings::default() };
    let front = TlsFront::start(origin.address(), &settings);
    let server = proxy(setup, &front, &["--connect-timeout", "200ms"]);
    let late = server.get("/");
    assert_eq!(late.status, 504);
    assert_eq!(late.expect_field("Proxy-Status"), "weir; error=connection_timeout");
    server.stop_cleanly();
}

fn a_reply_that_is_cut_is_not_taken_for_whole(setup: &Setup) {
    let origin = Origin::start(|_| b"HTTP/1.0 200 OK\r\n\r\nuntil the end".to_vec());
    let ends = |fault| {
        let settings = FrontSettings { fault, ..FrontSettings::default() };
        let front = TlsFront::start(origin.address(), &settings);
        let server = proxy(setup, &front, &[]);
        let mut client = server.connect();
        client.send(request("GET", "/", &[]));
        client.try_reply().map(|reply| reply.text())
    };
    assert_eq!(ends(Fault::None).unwrap(), "until the end");
    assert!(ends(Fault::NoCloseNotify).is_err());
}

fn a_client_certificate_is_presented(setup: &Setup) {
    let origin = Origin::echo();
    let settings = FrontSettings { asks_for_certificate: true, ..FrontSettings::default() };
    let front = TlsFront::start(origin.address(), &settings);
    assert_told(proxy(setup, &front, &[]), "tls_alert_received", "upstream_tls_alert");
    let client = path(&front.client_file());
    let server = proxy(setup, &front, &["--upstream-cert", &client, "--upstream-key", &client]);
    assert_eq!(server.get("/").status, 200);
    server.stop_cleanly();
}

fn new_keys_are_taken(setup: &Setup) {
    let body = weir_tests::files::noise(7, 200_000);
    let content = body.clone();
    let origin = Origin::start(move |_| reply(&content));
    let settings = FrontSettings { fault: Fault::KeyUpdates, ..FrontSettings::default() };
    let front = TlsFront::start(origin.address(), &settings);
    let server = proxy(setup, &front, &[]);
    let mut client = server.connect();
    for _ in 0..5 {
        assert_same(&client.get("/").body, &body, "the reply");
    }
    assert!(front.key_updates() > 0);
    server.stop_cleanly();
}

fn health_checks_speak_tls(setup: &Setup) {
    let origin = Origin::echo();
    let front = TlsFront::start(origin.address(), &FrontSettings::default());
    let checks = ["--health-check", "/health", "--health-interval", "20ms"];
    let server = proxy(setup, &front, &checks);
    let is_checked = || {
        let lines = origin.received();
        lines.iter().filter(|received| received.line().starts_with("GET /health ")).count() > 4
    };
    until("checks have passed", is_checked);
    assert_eq!(server.get("/").status, 200);
    assert_eq!(total(server, "upstream_checks_failed"), 0);
}

#[test]
fn what_does_not_fit_together_is_refused_in_a_sentence() {
    let https = "https://127.0.0.1:1";
    for (arguments, wanted) in [
        (vec!["http://127.0.0.1:1", "--upstream-insecure"], "is for servers with https://"),
        (vec![https, "--upstream-ca", "/nowhere"], "No such file"),
        (vec![https, "--upstream-cert", "x", "--upstream-insecure"], "go together"),
        (vec![https, "--upstream-insecure", "--arch", "ring"], "--arch ring speaks no TLS"),
        (vec![https, "--upstream-insecure", "--proxy-protocol-out", "v1"], "without TLS"),
        (vec![https, "--upstream-insecure", "--upstream-name", "a b"], "is no name"),
    ] {
        let mut command = std::process::Command::new(WEIR);
        let stopped = run(command.arg("proxy").args(&arguments));
        assert_eq!(stopped.status.code(), Some(2), "{arguments:?}: {}", stopped.stderr);
        assert_eq!(stopped.stderr.trim_end().lines().count(), 1, "{}", stopped.stderr);
        assert!(stopped.stderr.contains(wanted), "{arguments:?}: {}", stopped.stderr);
    }
}
