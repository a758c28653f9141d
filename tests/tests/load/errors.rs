//! Errors while `weir load` runs: each kind is caused by a server with that one fault, and counted
//! by both sides. Successful requests are tested in `load_counts.rs`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;
use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::load::{LoadRun, load, load_through};

use crate::WEIR;

/// Timeout for runs without timeouts: longer than the machine may be busy with something else.
const PATIENT: &str = "--timeout 20s";

/// Runs a load of thirty arrivals, whatever their outcome.
fn thirty(options: &str, url: impl Display) -> LoadRun {
    let ran = load(WEIR, &format!("--rate 300 --num 30 --duration 60 --quiet {options}"), url);
    assert_eq!((ran.count("planned"), ran.count("started")), (30, 30));
    ran
}

fn url(server: &Faulty) -> String {
    format!("http://{}/", server.address())
}

/// Asserts that thirty arrivals at a faulty server all end as `kind`, and that the server has seen
/// `saw` (connections accepted, complete requests).
fn all_end_as(kind: &str, options: &str, behaviour: &Behaviour, saw: (u64, u64)) {
    let server = Faulty::start(behaviour.clone());
    let ran = thirty(options, url(&server));
    assert_eq!(ran.errors(), BTreeMap::from([(kind, 30)]), "{behaviour:?}");
    assert_eq!(ran.count("replies"), 0);
    assert_eq!(ran.count("connects"), 30);
    assert_eq!((server.accepted(), server.requests()), saw, "{behaviour:?}");
    assert!(ran.each.iter().all(|line| line.end == kind));
    // A connection that the client knows to be established has been accepted.
    assert_eq!(ran.count("connected"), saw.0);
}

#[test]
fn a_full_queue_is_a_connect_timeout() {
    let options = "--timeout 200ms";
    all_end_as("connect-timeout", options, &Behaviour::NeverAccepts, (0, 0));
}

#[test]
fn a_port_without_a_listener_is_connect_refused() {
    all_end_as("connect-refused", PATIENT, &Behaviour::Refuse, (0, 0));
}

/// The scheduler decides whether the client notices the connection before its reset; either way
/// there is a reset.
#[test]
fn a_reset_on_accept_is_a_connect_reset_or_a_reset() {
    let server = Faulty::start(Behaviour::ResetOnAccept);
    let ran = thirty(PATIENT, url(&server));
    let errors = ran.errors();
    let of = |kind| errors.get(kind).copied().unwrap_or(0);
    assert_eq!(of("connect-reset") + of("reset"), 30, "{errors:?}");
    assert_eq!(of("reset"), ran.count("connected"));
    assert_eq!(server.accepted(), 30);
}

#[test]
fn a_server_that_does_not_read_is_a_send_timeout() {
    let body = NamedTempFile::new().unwrap();
    fs::write(body.path(), vec![b'x'; 12 << 20]).unwrap();
    let server = Faulty::start(Behaviour::NeverReads);
    let path = body.path().display();
    let options = format!("--method POST --body {path} --timeout 300ms --quiet");
    let ran = load(WEIR, &format!("{options} --rate 50 --num 5 --duration 60"), url(&server));
    assert_eq!(ran.errors(), BTreeMap::from([("send-timeout", 5)]));
    assert_eq!((server.accepted(), server.requests()), (5, 0));
    // It sent what the kernel took, and no more.
    assert!((1..5 * (12 << 20)).contains(&ran.count("sent_bytes")));
}

#[test]
fn a_request_that_is_never_sent_is_a_send_timeout_on_a_connection_that_was_there() {
    all_end_as("send-timeout", "--send-rate 0 --timeout 200ms", &Behaviour::Silent, (30, 0));
}

#[test]
fn a_close_ends_a_connection_that_says_nothing() {
    let options = format!("--send-rate 0 {PATIENT}");
    all_end_as("closed-early", &options, &Behaviour::CloseOnAccept, (30, 0));
}

#[test]
fn a_request_in_pieces_is_a_request_and_each_piece_is_progress() {
    let server = Faulty::start(Behaviour::Good { body_bytes: 10 });
    // Longer than a second in all, and a piece each tenth of it.
    let ran = thirty("--send-rate 40 --timeout 900ms", url(&server));
    assert_eq!(ran.count("replies"), 30, "{:?}", ran.errors());
    assert_eq!((server.accepted(), server.requests()), (30, 30));
    assert!(ran.each.iter().all(|line| line.service_ns() > 900_000_000));
}

#[test]
fn no_free_connection_of_a_fixed_number_is_a_send_timeout() {
    let server = Faulty::start(Behaviour::Silent);
    let ran = thirty("--conns 2 --timeout 300ms", url(&server));
    let heard = server.requests();
    assert!(heard < 30, "{heard}");
    assert_eq!(
        ran.errors(),
        BTreeMap::from([("reply-timeout", heard), ("send-timeout", 30 - heard)])
    );
    assert_eq!(server.accepted(), ran.count("connects"));
}

#[test]
fn silence_is_a_reply_timeout() {
    all_end_as("reply-timeout", "--timeout 200ms", &Behaviour::Silent, (30, 30));
}

#[test]
fn a_slow_reply_that_keeps_coming_is_no_timeout() {
    // A thousand bytes, one at a time: all together they take longer than the timeout.
    let server = Faulty::start(Behaviour::Trickle { bytes_per_s: 650 });
    let ran = thirty("--timeout 1s", url(&server));
    assert_eq!(ran.count("replies"), 30, "{:?}", ran.errors());
    assert!(ran.each.iter().all(|line| line.service_ns() > 1_000_000_000));
}

#[test]
fn a_deadline_cuts_a_reply_that_has_begun() {
    let server = Faulty::start(Behaviour::Trickle { bytes_per_s: 10 });
    let ran = thirty("--timeout 20s --deadline 1s", url(&server));
    assert_eq!(ran.errors(), BTreeMap::from([("deadline", 30)]));
    assert!(ran.each.iter().any(|line| line.clocks[4].is_some()), "{:?}", ran.each);
    assert_eq!(server.requests(), 30);
}

#[test]
fn a_reset_is_a_reset_wherever_it_comes() {
    for behaviour in [Behaviour::ResetAfterRequest, Behaviour::ResetMidReply] {
        all_end_as("reset", PATIENT, &behaviour, (30, 30));
    }
}

#[test]
fn a_close_is_a_close_wherever_it_comes() {
    all_end_as("closed-early", PATIENT, &Behaviour::CloseOnAccept, (30, 0));
    for behaviour in
        [Behaviour::CloseAfterRequest, Behaviour::CloseMidHead, Behaviour::CloseMidBody]
    {
        all_end_as("closed-early", PATIENT, &behaviour, (30, 30));
    }
}

#[test]
fn a_reply_that_is_not_http_is_a_bad_reply() {
    for behaviour in [Behaviour::Garbage, Behaviour::WrongLength] {
        all_end_as("bad-reply", PATIENT, &behaviour, (30, 30));
    }
}

#[test]
fn a_reply_after_the_deadline_is_a_deadline() {
    let options = "--timeout 20s --deadline 200ms";
    all_end_as("deadline", options, &Behaviour::Sleep { ms: 20_000 }, (30, 30));
}

#[test]
fn a_net_that_cannot_be_reached_is_other() {
    // The broadcast address: connect(2) fails with ENETUNREACH, and nothing is sent.
    let ran = thirty(PATIENT, "http://255.255.255.255:9/");
    assert_eq!(ran.errors(), BTreeMap::from([("other", 30)]));
    assert_eq!((ran.count("connects"), ran.count("connected")), (30, 0));
}

#[test]
fn every_failed_session_leaves_its_other_requests_undone() {
    let server = Faulty::start(Behaviour::CloseAfterRequest);
    let ran = thirty("--timeout 20s --requests-per-conn 5", url(&server));
    assert_eq!(ran.errors(), BTreeMap::from([("closed-early", 30)]));
    assert_eq!((ran.count("due"), ran.count("abandoned")), (30 * 5, 30 * 4));
    assert_eq!((ran.count("sessions"), ran.count("sessions_failed")), (0, 30));
    assert_eq!(server.requests(), 30);
}

#[test]
fn good_and_bad_replies_are_told_apart_one_by_one() {
    let behaviours = vec![
        Behaviour::Good { body_bytes: 10 },
        Behaviour::ResetAfterRequest,
        Behaviour::CloseMidBody,
        Behaviour::Garbage,
        Behaviour::Chunked,
    ];
    let server = Faulty::start(Behaviour::Mixed(behaviours));
    let ran = thirty(PATIENT, url(&server));
    assert_eq!(ran.count("replies"), 12);
    let expected = BTreeMap::from([("reset", 6), ("closed-early", 6), ("bad-reply", 6)]);
    assert_eq!(ran.errors(), expected);
    assert_eq!(server.requests(), 30);
}

#[test]
fn running_out_of_descriptors_is_counted_and_makes_the_run_invalid() {
    let server = Faulty::start(Behaviour::Silent);
    let limit = ["sh", "-c", "ulimit -n 80 && exec \"$@\"", "sh"];
    let options = "--rate 300 --num 60 --duration 60 --timeout 1s --quiet";
    let ran = load_through(&limit, WEIR, options, url(&server));
    let heard = server.requests();
    assert!((1..60).contains(&heard), "{heard}");
    assert_eq!(
        ran.errors(),
        BTreeMap::from([("reply-timeout", heard), ("fd-unavail", 60 - heard)])
    );
    assert_eq!(server.accepted(), heard);
    assert_eq!(ran.json["connections"]["open_limit"], ran.json["connections"]["open_max"]);
    assert!(!ran.is_valid());
    assert_eq!(ran.code, 3);
}

#[test]
fn max_conns_is_a_limit_of_the_same_kind() {
    let server = Faulty::start(Behaviour::Silent);
    let ran = thirty("--max-conns 7 --timeout 1s", url(&server));
    let heard = server.requests();
    assert!((7..30).contains(&heard), "{heard}");
    assert_eq!(
        ran.errors(),
        BTreeMap::from([("reply-timeout", heard), ("fd-unavail", 30 - heard)])
    );
    assert_eq!(ran.json["connections"]["open_max"], 7);
    assert!(!ran.is_valid());
}

/// Environment variable set in the process that this test starts in a network namespace of its own.
const INSIDE: &str = "WEIR_TEST_FEW_PORTS";

/// Runs in a network namespace of its own, because the port range applies to a whole namespace.
#[test]
fn running_out_of_ports_is_counted_and_makes_the_run_invalid() {
    if std::env::var_os(INSIDE).is_some() {
        return few_ports();
    }
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    let prepare = format!("ip link set lo up && echo 20000 20019 > {range}");
    let as_root = ["--net", "--map-root-user", "sh", "-c"];
    let possible =
        Command::new("unshare").args(as_root).arg(&prepare).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("skipped: there is no network namespace to be had here");
        return;
    }
    let name = "errors::running_out_of_ports_is_counted_and_makes_the_run_invalid";
    let inside = Command::new("unshare")
        .args(as_root)
        .args([&format!("{prepare} && exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout);
    assert!(inside.status.success() && said.contains("1 passed"), "{inside:?}");
}

fn few_ports() {
    let server = Faulty::start(Behaviour::Silent);
    let ran = thirty("--timeout 1s", url(&server));
    let heard = server.requests();
    assert!((1..=20).contains(&heard), "{heard}");
    let expected = BTreeMap::from([("reply-timeout", heard), ("port-unavail", 30 - heard)]);
    assert_eq!(ran.errors(), expected);
    assert_eq!(server.accepted(), heard);
    assert!(!ran.is_valid());
    assert_eq!(ran.code, 3);
}
