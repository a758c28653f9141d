//! `weir load` over TLS: the servers of the other tests behind a front that ends TLS and counts
//! handshakes. What both sides have counted is compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;

use rustls::{SupportedProtocolVersion, version};
use tempfile::{NamedTempFile, TempDir};
use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::load::{LoadRun, RecordingServer, load};
use weir_tests::tls_front::{Fault, FrontSettings, Signer, TlsFront, VERSIONS};

use crate::WEIR;

/// Timeout for runs without timeouts: longer than the machine may be busy with something else.
const PATIENT: &str = "--timeout 20s";

/// Each version by itself, with its name as an option.
const EACH_VERSION: [(&str, &[&SupportedProtocolVersion]); 2] =
    [("1.2", &[&version::TLS12]), ("1.3", &[&version::TLS13])];

/// Runs a load of thirty arrivals, whatever their outcome, with the front's certificate trusted.
fn thirty(options: &str, front: &TlsFront) -> LoadRun {
    let ca = front.ca_file();
    let options = format!("--cacert {} {options}", ca.display());
    thirty_trusting_none(&options, front)
}

fn thirty_trusting_none(options: &str, front: &TlsFront) -> LoadRun {
    let common = "--rate 300 --num 30 --duration 60 --quiet";
    let ran = load(WEIR, &format!("{common} {options}"), front.url("/"));
    assert_eq!((ran.count("planned"), ran.count("started")), (30, 30));
    ran
}

fn front_of(server: &Faulty, settings: &FrontSettings) -> TlsFront {
    TlsFront::start(server.address(), settings)
}

fn good(body_bytes: usize) -> Faulty {
    Faulty::start(Behaviour::Good { body_bytes })
}

#[test]
fn every_connection_has_a_full_handshake_which_is_a_time_of_its_own() {
    for (name, versions) in EACH_VERSION {
        let server = good(100);
        let front = front_of(&server, &FrontSettings { versions, ..FrontSettings::default() });
        let ran = thirty(PATIENT, &front);
        assert_eq!(ran.count("replies"), 30, "{name}: {:?}", ran.errors());
        assert_eq!((ran.count("handshakes"), ran.count("handshakes_resumed")), (30, 0));
        assert_eq!(front.handshakes(), (30, 0), "{name}");
        assert_eq!((front.accepted(), server.requests()), (30, 30));
        for line in &ran.each {
            // Connected, secured, sent: in this order, as is checked for all. Work takes time.
            assert!(line.secured > line.clocks[2], "{line:?}");
        }
        let handshake = &ran.json["clocks"]["handshake"];
        assert!(handshake["min_us"].as_f64() > Some(0.0), "{handshake}");
    }
}

#[test]
fn a_resumed_session_is_counted_by_both_sides() {
    for (name, versions) in EACH_VERSION {
        let server = good(100);
        let front = front_of(&server, &FrontSettings { versions, ..FrontSettings::default() });
        let options = format!("--insecure --closed 1 --num 20 --tls-resume --quiet {PATIENT}");
        let ran = load(WEIR, &options, front.url("/"));
        assert_eq!(ran.count("replies"), 20, "{:?}", ran.errors());
        // One after the other: each finds the ticket that one before it has brought.
        assert_eq!((ran.count("handshakes"), ran.count("handshakes_resumed")), (20, 19), "{name}");
        assert_eq!(front.handshakes(), (1, 19), "{name}");
        assert!(ran.json["description"]["tls"].as_str().unwrap().contains("sessions resumed"));
    }
}

#[test]
fn a_version_is_offered_alone_or_refused_by_the_server() {
    for (wanted, _) in EACH_VERSION {
        for (name, versions) in EACH_VERSION {
            let server = good(100);
            let front = front_of(&server, &FrontSettings { versions, ..FrontSettings::default() });
            let ran = thirty(&format!("--tls-version {wanted} {PATIENT}"), &front);
            let expected = if wanted == name { 30 } else { 0 };
            assert_eq!(ran.count("replies"), expected, "{wanted} of {name}: {:?}", ran.errors());
            if wanted != name {
                assert_eq!(ran.errors(), BTreeMap::from([("tls-protocol", 30)]));
                assert_eq!((ran.count("connected"), ran.count("handshakes")), (30, 0));
            }
        }
    }
}

#[test]
fn a_cipher_suite_is_offered_by_either_name() {
    let server = good(100);
    let front = front_of(&server, &FrontSettings::default());
    for suite in ["ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_AES_128_GCM_SHA256"] {
        let ran = thirty(&format!("--tls-ciphers {suite} {PATIENT}"), &front);
        assert_eq!(ran.count("replies"), 30, "{suite}: {:?}", ran.errors());
    }
    // The front's key is of ECDSA.
    let ran = thirty(&format!("--tls-ciphers ECDHE-RSA-AES128-GCM-SHA256 {PATIENT}"), &front);
    assert_eq!(ran.errors(), BTreeMap::from([("tls-protocol", 30)]));
}

#[test]
fn a_certificate_is_trusted_that_was_given_or_signed_by_one_that_was() {
    for signer in [Signer::Itself, Signer::ItselfAsAuthority, Signer::Authority] {
        let server = good(100);
        let front = front_of(&server, &FrontSettings { signer, ..FrontSettings::default() });
        assert_eq!(thirty(PATIENT, &front).count("replies"), 30, "{signer:?}");
        let ran = thirty(&format!("--sni localhost {PATIENT}"), &front);
        assert_eq!(ran.count("replies"), 30, "{signer:?}: {:?}", ran.errors());
        let ran = thirty(&format!("--sni example.org {PATIENT}"), &front);
        assert_eq!(ran.errors(), BTreeMap::from([("tls-certificate", 30)]), "{signer:?}");
    }
}

#[test]
fn a_certificate_that_is_not_trusted_is_an_error_of_its_kind_unless_any_is() {
    let server = good(100);
    let (front, other) = (
        front_of(&server, &FrontSettings::default()),
        front_of(&server, &FrontSettings::default()),
    );
    let others = format!("--cacert {} {PATIENT}", other.ca_file().display());
    let ran = thirty_trusting_none(&others, &front);
    assert_eq!(ran.errors(), BTreeMap::from([("tls-certificate", 30)]));
    assert_eq!((ran.count("connected"), ran.count("handshakes")), (30, 0));
    assert_eq!((front.accepted(), server.requests()), (30, 0));
    assert!(ran.each.iter().all(|line| line.secured.is_none()));
    let any = thirty_trusting_none(&format!("--insecure {PATIENT}"), &front);
    assert_eq!((any.count("replies"), server.requests()), (30, 30));
}

#[test]
fn a_server_may_ask_for_the_clients_certificate() {
    for (name, versions) in EACH_VERSION {
        let server = good(100);
        let settings =
            FrontSettings { versions, asks_for_certificate: true, ..FrontSettings::default() };
        let front = front_of(&server, &settings);
        let with = format!("--cert {} {PATIENT}", front.client_file().display());
        assert_eq!(thirty(&with, &front).count("replies"), 30, "{name}");
        // With TLS 1.3 the client hears of it when it waits for the reply.
        let ran = thirty(PATIENT, &front);
        assert_eq!(ran.errors(), BTreeMap::from([("tls-certificate", 30)]), "{name}");
    }
}

#[test]
fn each_end_of_a_handshake_is_an_error_of_its_kind() {
    let table = [
        (Fault::CloseInHandshake, "handshake-reset", PATIENT),
        (Fault::ResetInHandshake, "handshake-reset", PATIENT),
        (Fault::CloseMidHandshake, "handshake-reset", PATIENT),
        (Fault::SilentInHandshake, "handshake-timeout", "--timeout 500ms"),
    ];
    for (fault, kind, options) in table {
        let server = good(100);
        let front = front_of(&server, &FrontSettings { fault, ..FrontSettings::default() });
        let ran = thirty(options, &front);
        assert_eq!(ran.errors(), BTreeMap::from([(kind, 30)]), "{fault:?}");
        assert_eq!((ran.count("connected"), ran.count("handshakes")), (30, 0), "{fault:?}");
        assert_eq!((front.handshakes(), server.requests()), ((0, 0), 0), "{fault:?}");
    }
}

#[test]
fn what_is_not_tls_is_a_protocol_error_before_the_handshake_and_after_it() {
    // It answers, and closes.
    let plain = Faulty::start(Behaviour::Garbage);
    let url = format!("https://{}/", plain.address());
    let options = format!("--rate 300 --num 30 --duration 60 --quiet --insecure {PATIENT}");
    let ran = load(WEIR, &options, url);
    let errors = ran.errors();
    // A server that parses HTTP may close without an answer.
    let of = |kind| errors.get(kind).copied().unwrap_or(0);
    assert_eq!(of("tls-protocol") + of("handshake-reset"), 30, "{errors:?}");
    assert_eq!(ran.count("handshakes"), 0);

    let server = Faulty::start(Behaviour::Silent);
    let fault = Fault::Garbage;
    let front = front_of(&server, &FrontSettings { fault, ..FrontSettings::default() });
    assert_eq!(thirty(PATIENT, &front).errors(), BTreeMap::from([("tls-protocol", 30)]));
}

#[test]
fn errors_after_the_handshake_are_those_of_plain_http() {
    let table = [
        (Behaviour::Silent, "--timeout 500ms", "reply-timeout"),
        (Behaviour::CloseAfterRequest, PATIENT, "closed-early"),
        (Behaviour::CloseMidBody, PATIENT, "closed-early"),
        (Behaviour::ResetMidReply, PATIENT, "reset"),
        (Behaviour::Garbage, PATIENT, "bad-reply"),
        (Behaviour::Sleep { ms: 20_000 }, "--timeout 20s --deadline 500ms", "deadline"),
    ];
    for (behaviour, options, kind) in table {
        let server = Faulty::start(behaviour.clone());
        let front = front_of(&server, &FrontSettings::default());
        let ran = thirty(options, &front);
        assert_eq!(ran.errors(), BTreeMap::from([(kind, 30)]), "{behaviour:?}");
        assert_eq!((ran.count("handshakes"), server.requests()), (30, 30), "{behaviour:?}");
    }
}

#[test]
fn a_reply_without_a_length_is_whole_only_if_tls_says_so() {
    let kept = RecordingServer::plain();
    for (fault, expected) in [
        (Fault::None, BTreeMap::new()),
        (Fault::NoCloseNotify, BTreeMap::from([("tls-truncated", 30)])),
    ] {
        let server = Faulty::start(Behaviour::CloseFramed);
        let settings = FrontSettings { fault, ..FrontSettings::default() };
        let front = front_of(&server, &settings);
        let ran = thirty(PATIENT, &front);
        assert_eq!(ran.errors(), expected, "{fault:?}");
        assert_eq!(ran.count("replies"), 30 - expected.values().sum::<u64>());
        // One that has a length is whole by it.
        let front = TlsFront::start(kept.address(), &settings);
        assert_eq!(thirty(PATIENT, &front).count("replies"), 30, "{fault:?}");
        // And one that ends before it is not.
        let server = Faulty::start(Behaviour::CloseMidBody);
        let ran = thirty(PATIENT, &front_of(&server, &settings));
        assert_eq!(ran.errors(), BTreeMap::from([("closed-early", 30)]), "{fault:?}");
    }
}

#[test]
fn large_replies_and_large_requests_pass_whole() {
    for versions in [VERSIONS, EACH_VERSION[0].1] {
        let server = good(3_000_000);
        let front = front_of(&server, &FrontSettings { versions, ..FrontSettings::default() });
        let options = format!("--insecure --requests-per-conn 2 --num 3 --quiet {PATIENT}");
        let ran = load(WEIR, &options, front.url("/"));
        assert_eq!((ran.count("replies"), ran.count("errors")), (6, 0), "{:?}", ran.errors());
        assert!(ran.count("received_bytes") >= 6 * 3_000_000);
    }
    let recording = RecordingServer::plain();
    let front = TlsFront::start(recording.address(), &FrontSettings::default());
    let body = NamedTempFile::new().unwrap();
    let content: Vec<u8> = (0..1_500_000_u32).map(|number| (number % 251) as u8).collect();
    fs::write(body.path(), &content).unwrap();
    let path = body.path().display();
    let options = format!("--insecure --method POST --body {path} --num 3 --quiet {PATIENT}");
    let ran = load(WEIR, &options, front.url("/"));
    assert_eq!(ran.count("replies"), 3, "{:?}", ran.errors());
    let connections = recording.connections();
    assert!(connections.iter().all(|connection| connection.requests[0].body == content));
}

#[test]
fn a_request_that_is_not_taken_is_a_send_timeout() {
    let body = NamedTempFile::new().unwrap();
    fs::write(body.path(), vec![b'x'; 24 << 20]).unwrap();
    let server = Faulty::start(Behaviour::NeverReads);
    let front = front_of(&server, &FrontSettings::default());
    let path = body.path().display();
    let options = format!("--insecure --method POST --body {path} --timeout 1s --quiet");
    let ran = load(WEIR, &format!("{options} --rate 50 --num 3 --duration 60"), front.url("/"));
    assert_eq!(ran.errors(), BTreeMap::from([("send-timeout", 3)]));
    assert!((1..3 * (24 << 20)).contains(&ran.count("sent_bytes")));
}

#[test]
fn connections_that_stay_have_one_handshake() {
    let server = RecordingServer::plain();
    let front = TlsFront::start(server.address(), &FrontSettings::default());
    let ran = thirty(&format!("--conns 3 {PATIENT}"), &front);
    assert_eq!(ran.count("replies"), 30, "{:?}", ran.errors());
    assert_eq!((front.handshakes(), server.lines().len()), ((3, 0), 30));
    // On an open connection there is none to wait for.
    assert!(ran.each.iter().all(|line| line.secured.is_some()));

    let options = format!("--insecure --closed 2 --requests-per-conn 10 --pipeline 5 {PATIENT}");
    let ran = load(WEIR, &format!("{options} --num 6 --quiet"), front.url("/"));
    assert_eq!((ran.count("replies"), ran.count("handshakes")), (60, 6), "{:?}", ran.errors());

    let options = format!("--insecure --wsess 10,3,0.01 --quiet {PATIENT}");
    let ran = load(WEIR, &options, front.url("/"));
    assert_eq!((ran.count("sessions"), ran.count("errors")), (10, 0), "{:?}", ran.errors());
}

#[test]
fn keys_may_change_while_nothing_is_due() {
    let server = RecordingServer::plain();
    let settings = FrontSettings {
        versions: EACH_VERSION[1].1,
        fault: Fault::KeyUpdates,
        ..FrontSettings::default()
    };
    let front = TlsFront::start(server.address(), &settings);
    let options = format!("--insecure --wsess 5,8,0.02 --quiet {PATIENT}");
    let ran = load(WEIR, &options, front.url("/"));
    assert_eq!((ran.count("replies"), ran.count("errors")), (40, 0), "{:?}", ran.errors());
    // An update is content of no reply, and costs no connection.
    assert_eq!((ran.count("reconnects"), front.handshakes()), (0, (5, 0)));
    assert!(front.key_updates() >= 40);
}

#[test]
fn a_request_in_pieces_waits_for_its_handshake() {
    let server = good(10);
    let front = front_of(&server, &FrontSettings::default());
    let ran = thirty("--send-rate 200 --timeout 10s", &front);
    assert_eq!(ran.count("replies"), 30, "{:?}", ran.errors());
    let server = Faulty::start(Behaviour::Silent);
    let front = front_of(&server, &FrontSettings::default());
    let ran = thirty("--send-rate 0 --timeout 1s", &front);
    assert_eq!(ran.errors(), BTreeMap::from([("send-timeout", 30)]));
    assert_eq!(front.handshakes(), (30, 0));
}

#[test]
fn background_connections_have_tls_too() {
    let server = RecordingServer::plain();
    let front = TlsFront::start(server.address(), &FrontSettings::default());
    let slow = "--slow-senders 2 --slow-readers 2 --slow-rate 2000";
    let options = format!("--insecure --idle 20 {slow} --rate 20 --duration 3 --quiet {PATIENT}");
    let ran = load(WEIR, &options, front.url("/"));
    assert_eq!((ran.count("replies"), ran.count("background_lost")), (60, 0), "{ran:?}");
    assert!(ran.count("background_replies") >= 4, "{ran:?}");
    assert_eq!(front.handshakes(), (60 + 24, 0));
}

#[test]
fn the_report_has_a_line_of_handshakes_and_httperf_s_form_another() {
    let server = good(100);
    let front = front_of(&server, &FrontSettings::default());
    let ran = thirty(PATIENT, &front);
    let text = &ran.stdout;
    assert!(text.contains("\nTLS handshakes: 30 ("), "{text}");
    assert!(text.contains("\nConnection time [ms]: handshake "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("  handshake       30 ")), "{text}");
    let ran =
        thirty(&format!("--fail-if handshake.max<1us --fail-if tls-protocol>0 {PATIENT}"), &front);
    assert_eq!(ran.json["conditions"][0]["holds"], false);
}

#[test]
fn another_address_may_be_connected_to() {
    let server = RecordingServer::plain();
    let front = TlsFront::start(server.address(), &FrontSettings::default());
    let (to, ca) = (front.address(), front.ca_file());
    let options = format!("--connect-to {to} --cacert {} --num 5 --quiet {PATIENT}", ca.display());
    let ran = load(WEIR, &options, "https://localhost/x");
    assert_eq!(ran.count("replies"), 5, "{:?}", ran.errors());
    let head = &server.connections()[0].requests[0].head;
    assert!(head.contains("\r\nHost: localhost\r\n"), "{head}");
    let ran = load(WEIR, &options, "https://example.org/x");
    assert_eq!(ran.errors(), BTreeMap::from([("tls-certificate", 5)]));
}

#[test]
fn a_unix_socket_is_a_server_too() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = RecordingServer::plain();
    let (address, shown) = (server.address(), path.display());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (unix, tcp) = (stream.unwrap(), std::net::TcpStream::connect(address).unwrap());
            let (mut from, mut to) = (unix.try_clone().unwrap(), tcp.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
            thread::spawn(move || {
                let _ = std::io::copy(&mut &tcp, &mut &unix);
                let _ = unix.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    let options = format!("--unix-socket {shown} --num 5 --quiet {PATIENT}");
    let ran = load(WEIR, &options, "http://some.name/");
    assert_eq!((ran.count("replies"), server.lines().len()), (5, 5), "{:?}", ran.errors());
    let none = format!("--unix-socket {shown}x --num 5 --quiet {PATIENT}");
    let ran = load(WEIR, &none, "http://some.name/");
    assert_eq!(ran.errors(), BTreeMap::from([("connect-refused", 5)]));
}

#[test]
fn a_scan_speaks_tls() {
    let server = good(100);
    let front = front_of(&server, &FrontSettings::default());
    let output = Command::new(WEIR)
        .args(["load", "scan", "--insecure", "--quiet", "--json", "-", "--from", "20"])
        .args(["--rate-max", "40", "--duration", "300ms", "--warmup", "100ms", "--pause", "0"])
        .args(["--repetitions", "1", "--multiples", "1", &front.url("/")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.trim_start().starts_with('{') && front.handshakes().0 > 0, "{output:?}");
}
