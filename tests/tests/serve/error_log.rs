//! The error log: its lines and levels, its destinations, that it is opened again, and the sample
//! of refusals.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::server::run;
use weir_tests::wait::{TIMEOUT, until};
use weir_tests::{Origin, Root, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_architecture_at_once:
    what_happens_is_in_the_log_and_a_hang_up_opens_it_again,
}

suite! {
    every_forwarding_architecture_at_once:
    refusals_are_sampled_and_the_others_counted,
}

const SAME: &str = "the configuration is the same";

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the level and the text of each line, which must be well formed.
fn messages(log: &str) -> Vec<(String, String)> {
    let line = regex::Regex::new(
        r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (error|warn|notice|info) weir\[\d+\]: ([ -~]+)$",
    )
    .unwrap();
    let parts = |text: &str| {
        let found = line.captures(text).unwrap_or_else(|| unreachable!("no line: {text:?}"));
        (found[1].to_owned(), found[2].to_owned())
    };
    log.lines().map(parts).collect()
}

fn has(log: &str, level: &str, text: &str) -> bool {
    messages(log).iter().any(|message| message.0 == level && message.1.contains(text))
}

fn what_happens_is_in_the_log_and_a_hang_up_opens_it_again(setup: &Setup) {
    let root = Root::with_hello();
    let dir = root.outside();
    let (log, rotated) = (dir.join(&setup.name), dir.join(format!("{}.1", setup.name)));
    let options = ["--workers", "1", "--error-level", "info", "--error-log"];
    let server = setup.serve(&root, &[&options[..], &[log.to_str().unwrap()]].concat());
    until("it serves", || has(&read(&log), "info", "serving "));
    fs::rename(&log, &rotated).unwrap();
    server.signal(Signal::HUP);
    until("the log was opened again", || log.exists());
    until("it was said", || [&log, &rotated].iter().any(|log| has(&read(log), "notice", SAME)));
    let stopped = server.stop_cleanly();
    assert!(!stopped.stderr.contains(SAME), "{}", stopped.stderr);
    assert!(has(&read(&log), "info", "stopping"), "{}: {}", setup.name, read(&log));
    assert!(!read(&rotated).contains("stopping"));
}

fn refusals_are_sampled_and_the_others_counted(setup: &Setup) {
    let root = Root::with_hello();
    let log = root.outside().join(&setup.name);
    let limits = ["--client-requests", "1/h", "--client-burst", "1", "--workers", "2"];
    let log_options = ["--refusal-sample", "2", "--error-log", log.to_str().unwrap()];
    let server = setup.serve(&root, &[&limits[..], &log_options].concat());
    let mut client = server.connect();
    assert_eq!(client.get("/hello.txt").status, 200);
    let unwritten = |text: &str| -> u64 {
        let (_, number) = text.split_once("unwritten=").unwrap();
        number.split(' ').next().unwrap().parse().unwrap()
    };
    until("some were not written", || {
        assert_eq!(client.get("/hello.txt").status, 429, "{}", setup.name);
        messages(&read(&log)).iter().any(|(_, text)| unwritten(text) > 0)
    });
    let total = server.stop_cleanly().stats()["total"].clone();
    let refused = total["refused_client_requests"].as_u64().unwrap();
    let lines = messages(&read(&log));
    let told: u64 = lines.iter().map(|(_, text)| 1 + unwritten(text)).sum();
    assert!(told <= refused && (lines.len() as u64) < refused, "{told} {refused} {lines:?}");
    for (level, text) in &lines {
        assert_eq!(level, "notice");
        assert!(text.starts_with("refused request client=127.0.0.1 unwritten="), "{text}");
        assert!(text.contains(" reason=client-requests retry_after_s="), "{text}");
    }
}

#[test]
fn refused_connections_and_those_for_an_upstream_have_their_reason() {
    let root = Root::with_hello();
    let log = root.outside().join("connections");
    let options = ["--client-connections", "1", "--refuse", "fin", "--error-log"];
    let server = Server::start(WEIR, &[&options[..], &[log.to_str().unwrap()]].concat(), &root);
    let mut first = server.connect();
    assert_eq!(first.get("/hello.txt").status, 200);
    until("a refusal is told", || {
        let _ = server.connect().ends();
        has(&read(&log), "notice", "refused connection client=127.0.0.1 unwritten=0 reason=client-")
    });
    assert!(read(&log).contains("client-connections limit=1"), "{}", read(&log));
    server.stop_cleanly();
}

#[test]
fn a_refusal_at_an_upstream_names_the_client_behind_a_trusted_proxy() {
    let root = Root::new();
    let log = root.outside().join("upstream");
    let silent = Faulty::start(Behaviour::Silent);
    let url = format!("http://{}", silent.address());
    let options = ["--trusted-proxy", "127.0.0.0/8", "--max-in-flight", "1", "--error-log"];
    let server = Server::proxy(WEIR, &[&url], &[&options[..], &[log.to_str().unwrap()]].concat());
    let mut first = server.connect();
    first.send(request("GET", "/", &[]));
    until("it is in flight", || silent.requests() > 0);
    assert_eq!(server.get_with("/", &["X-Forwarded-For: 192.0.2.7"]).status, 503);
    let refused = "refused request client=192.0.2.7 unwritten=0 reason=upstream-";
    until("it is told", || has(&read(&log), "notice", refused));
}

#[test]
fn an_upstream_that_is_down_is_an_error_and_none_of_a_level_that_is_left_out() {
    let root = Root::new();
    let log = root.outside().join("log");
    let origin = Origin::echo();
    let url = origin.url();
    drop(origin);
    let options = ["--health-check", "/", "--error-level", "error", "--error-log"];
    let server = Server::proxy(WEIR, &[&url], &[&options[..], &[log.to_str().unwrap()]].concat());
    until("it is down", || has(&read(&log), "error", " is down"));
    server.signal(Signal::HUP);
    server.stop_cleanly();
    assert!(messages(&read(&log)).iter().all(|(level, _)| level == "error"), "{}", read(&log));
}

/// Starts a server with its error log at a socket of this name, has it reload, and returns the
/// message about that.
fn sent_to(prefix: &str) -> String {
    let root = Root::with_hello();
    let path = root.outside().join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let target = format!("{prefix}:{}", path.display());
    let server = Server::start(WEIR, &["--error-log", &target], &root);
    server.signal(Signal::HUP);
    let mut datagram = [0; 4096];
    loop {
        let len = socket.recv(&mut datagram).unwrap();
        let message = String::from_utf8(datagram[..len].to_vec()).unwrap();
        if message.contains(SAME) {
            server.stop_cleanly();
            return message;
        }
    }
}

#[test]
fn the_systems_logger_and_journald_are_told_the_level() {
    let message = sent_to("syslog");
    // Facility daemon, severity notice (RFC 5424 section 6.2.1).
    assert!(message.starts_with("<29>1 ") && message.contains(" error - "), "{message}");
    let entry = sent_to("journald");
    assert!(entry.starts_with("MESSAGE=") && entry.contains("\nPRIORITY=5\n"), "{entry}");
}

#[test]
fn a_log_that_cannot_be_opened_is_refused_in_a_sentence() {
    let mut command = Command::new(WEIR);
    command.args([
        "serve",
        "/",
        "--listen",
        "127.0.0.1:0",
        "--error-log",
        "/no/such/directory/log",
    ]);
    let stopped = run(&mut command);
    assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
    assert!(stopped.stderr.starts_with("weir: cannot open the error log: "), "{}", stopped.stderr);
    assert_eq!(stopped.stderr.lines().count(), 1, "{}", stopped.stderr);
}
