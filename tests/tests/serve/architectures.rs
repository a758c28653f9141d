//! Features that each architecture may implement in its own way, with the same result: counting,
//! reporting while it works, logging, and stopping while it works. Listeners, limits and numbers of
//! loops are in `life.rs`, single connections in `behaviour.rs`, many at once in `mirror.rs` and
//! `storm.rs`.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;
use weir_server::architecture;
use weir_tests::files::Served;
use weir_tests::server::{Attempt, attempt};
use weir_tests::wait::until;
use weir_tests::{Client, Failure, Root, Server, Setup, assert_same, request, suite};

use crate::WEIR;

suite! {
    every_setup:
    the_counters_add_up,
    sigusr1_reports_under_load,
    sigterm_under_load_cuts_no_reply,
    the_access_log_has_one_line_for_each_request,
}

suite! {
    every_architecture_at_once:
    every_close_has_one_reason,
}

suite! {
    every_setup_at_once:
    sigterm_closes_silent_connections_and_finishes_replies,
}

const CLIENTS: usize = 8;

/// Every clean stop asserts that the reasons add up to the connections closed.
fn every_close_has_one_reason(setup: &Setup) {
    let root = Root::with_hello();
    root.write_noise("large", 32 << 20);
    let server = setup.serve(&root, &[]);
    let bodies = ["5;\r\nhello", "0x5\r\nhello"];
    for body in bodies {
        let chunked = request("POST", "/hello.txt", &["Transfer-Encoding: chunked"]) + body;
        assert_eq!(answer_to_all(&server, &chunked), 400);
    }
    assert_eq!(answer_to_all(&server, "GET / HTTP/9.9\r\n\r\n"), 505);
    let last = request("GET", "/hello.txt", &["Connection: close"]);
    assert_eq!(answer_to_all(&server, &last), 200);
    for _ in 0..4 {
        assert_eq!(server.get("/hello.txt").status, 200);
    }
    drop(server.connect());
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", "/large", &[]));
    assert_eq!(client.head().unwrap().status, 200);
    client.reset();
    until("all had ended", || {
        server.signal(Signal::USR1);
        server.stats_so_far().is_some_and(|stats| stats["total"]["closed"] == 10)
    });
    let mut kept: Vec<_> = (0..3).map(|_| server.connect()).collect();
    kept.iter_mut().for_each(|client| assert_eq!(client.get("/hello.txt").status, 200));
    let stats = server.stop_cleanly().stats();
    let of = |name: &str| stats["total"][name].as_u64().unwrap();
    let counted = ["refused", "finished", "client_closed", "client_reset", "drained"];
    let counted = counted.map(|reason| of(&format!("end_{reason}")));
    assert_eq!(counted, [3, 1, 5, 1, 3], "{stats}");
    // One said nothing, and one reset a reply that it was being sent.
    assert_eq!(of("never_completed"), 2, "{stats}");
    deadlines_are_reasons(setup, &root);
}

/// Returns the status of the reply to `bytes`, after which the server ends the connection.
fn answer_to_all(server: &Server, bytes: &str) -> u16 {
    let mut client = server.connect();
    client.send(bytes);
    let status = client.reply().status;
    assert!(client.is_closed(), "{bytes:?}");
    status
}

fn deadlines_are_reasons(setup: &Setup, root: &Root) {
    let options =
        ["--header-timeout", "500ms", "--body-timeout", "500ms", "--idle-timeout", "500ms"];
    let pace = ["--stall-timeout", "500ms", "--request-timeout", "10m"];
    let server = setup.serve(root, &[&options[..], &pace].concat());
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect_narrow(server.address())).collect();
    clients[0].send("GET /hel");
    clients[1].send(request("POST", "/hello.txt", &["Content-Length: 5"]));
    clients[2].send(request("GET", "/hello.txt", &[]));
    clients[3].send(request("GET", "/large", &[]));
    let names = ["timeout_header", "timeout_body", "timeout_idle", "timeout_stall"];
    until("each had met its deadline", || {
        server.signal(Signal::USR1);
        let stats = server.stats_so_far();
        stats.is_some_and(|stats| names.iter().all(|name| stats["total"][name] == 1))
    });
    server.stop_cleanly();
}

fn the_counters_add_up(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let silent: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..10 {
                    assert_eq!(client.get("/hello.txt").text(), "hello");
                    assert_eq!(client.head_with("/hello.txt", &[]).status, 200);
                    assert_eq!(client.get("/none").status, 404);
                    assert_eq!(client.get_with("/hello.txt", &["If-None-Match: *"]).status, 304);
                }
            });
        }
    });
    drop(silent);
    let stats = server.stop_cleanly().stats();
    let of = |name: &str| stats["total"][name].as_u64().unwrap() as usize;
    assert_eq!((of("accepted"), of("closed")), (2 * CLIENTS, 2 * CLIENTS), "{stats}");
    assert_eq!(of("never_completed"), CLIENTS, "{stats}");
    assert_eq!((of("requests"), of("replies")), (40 * CLIENTS, 40 * CLIENTS), "{stats}");
    let statuses = [of("status_2xx"), of("status_3xx"), of("status_4xx"), of("status_5xx")];
    assert_eq!(statuses, [20 * CLIENTS, 10 * CLIENTS, 10 * CLIENTS, 0], "{stats}");
    assert!(of("reads") >= 1 && of("bytes_in") > 40 * CLIENTS * 20, "{stats}");
    assert!(of("bytes_out") > 40 * CLIENTS * 20, "{stats}");
    assert!((1..=2 * CLIENTS).contains(&of("open_max")), "{stats}");
    assert_eq!((of("replies_cut"), of("gone"), of("refused_requests")), (0, 0, 0), "{stats}");
}

/// Clients that send requests in a loop.
struct Load<'a> {
    server: &'a Server,
    file: &'a Served,
    replies: AtomicUsize,
    over: AtomicBool,
}

impl<'a> Load<'a> {
    fn new(server: &'a Server, file: &'a Served) -> Self {
        Self { server, file, replies: AtomicUsize::new(0), over: AtomicBool::new(false) }
    }

    /// Connects all clients: none may connect after the server has stopped accepting.
    fn clients(&self) -> [Client; CLIENTS] {
        [(); CLIENTS].map(|()| self.server.connect())
    }

    fn replies(&self) -> usize {
        self.replies.load(Ordering::Relaxed)
    }

    /// Runs a client: sends requests until the load is over, or until the server ends the
    /// connection between two replies. Returns whether the server ended it.
    fn ask(&self, mut client: Client) -> bool {
        while !self.over.load(Ordering::Relaxed) {
            if client.try_send(request("GET", &self.file.target, &[])).is_err() {
                return true;
            }
            match client.try_reply() {
                Ok(reply) => assert_same(&reply.body, &self.file.body, "the body"),
                Err(Failure::Closed(_)) => return true,
                Err(failure) => panic!("{failure:?}"),
            }
            self.replies.fetch_add(1, Ordering::Relaxed);
        }
        false
    }
}

fn sigusr1_reports_under_load(setup: &Setup) {
    let root = Root::new();
    let file = root.write_noise("file", 10_000);
    let server = setup.serve(&root, &[]);
    let load = Load::new(&server, &file);
    thread::scope(|scope| {
        let clients = load.clients().map(|client| scope.spawn(|| load.ask(client)));
        for _ in 0..3 {
            let before = load.replies();
            until("more replies had come", || load.replies() > before + 50);
            let table = server.stderr_so_far().len();
            server.signal(Signal::USR1);
            until("the table was printed", || server.stderr_so_far().len() > table);
            until("the replies since are in the report", || {
                let requests = |stats: serde_json::Value| stats["total"]["requests"].as_u64();
                server.stats_so_far().and_then(requests) > Some(before as u64)
            });
        }
        load.over.store(true, Ordering::Relaxed);
        let left = clients.map(|client| client.join().unwrap());
        assert_eq!(left, [false; CLIENTS], "a connection was closed");
    });
    let replies = load.replies();
    let stats = server.stop_cleanly().stats();
    assert_eq!(stats["total"]["replies"], replies, "{stats}");
    assert_eq!(stats["total"]["requests"], replies, "{stats}");
}

fn sigterm_under_load_cuts_no_reply(setup: &Setup) {
    let root = Root::new();
    let file = root.write_noise("file", 100_000);
    let server = setup.serve(&root, &["--drain-timeout", "10m"]);
    let load = Load::new(&server, &file);
    thread::scope(|scope| {
        let clients = load.clients().map(|client| scope.spawn(|| load.ask(client)));
        until("all were busy", || load.replies() > 20 * CLIENTS);
        server.signal(Signal::TERM);
        let left = clients.map(|client| client.join().unwrap());
        assert_eq!(left, [true; CLIENTS]);
    });
    let replies = load.replies();
    let stopped = server.wait();
    stopped.check_end();
    let stats = stopped.stats();
    assert_eq!(stats["total"]["replies"], replies, "{stats}");
    assert_eq!(stats["total"]["requests"], replies, "{stats}");
}

fn sigterm_closes_silent_connections_and_finishes_replies(setup: &Setup) {
    let root = Root::with_hello();
    let large = root.write_noise("large", 8 << 20);
    let server = setup.serve(&root, &["--drain-timeout", "10m", "--idle-timeout", "10m"]);
    let silent: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let mut idle: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }
    // Too little buffer for the reply to go out unread, and enough to read it soon.
    let mut reading = Client::connect_with(server.address(), Some(32 << 10)).unwrap();
    reading.send(request("GET", &large.target, &[]).repeat(2));
    let head = reading.head().unwrap();
    server.signal(Signal::TERM);
    assert!(idle.into_iter().chain(silent).all(|mut client| client.is_closed()));
    assert_same(&reading.body(head).unwrap().body, &large.body, "the body");
    // The second request is answered completely, or not at all.
    match reading.try_reply() {
        Ok(reply) => assert_same(&reply.body, &large.body, "the body"),
        Err(Failure::Closed(_)) => (),
        Err(failure) => panic!("{failure:?}"),
    }
    drop(reading);
    server.wait().check_end();
}

/// Returns how often each target occurs in a log of the combined format.
fn logged(log: &str) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for line in log.lines() {
        let target = line.split('"').nth(1).and_then(|request| request.split(' ').nth(1));
        *times.entry(target.expect(line).to_owned()).or_default() += 1;
    }
    times
}

fn the_access_log_has_one_line_for_each_request(setup: &Setup) {
    let root = Root::with_hello();
    let log = root.outside().join("access.log");
    let logs = ["--access-log", log.to_str().unwrap()];
    let server = setup.serve(&root, &logs);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let target = |kind: &str| format!("/hello.txt?{kind}-{number}");
                for _ in 0..5 {
                    let mut client = server.connect();
                    client.send(request("GET", &target("pipelined"), &[]).repeat(20));
                    (0..20).for_each(|_| assert_eq!(client.reply().text(), "hello"));
                    client.head_with(&target("head"), &[]);
                    client.get(&format!("/none?{number}"));
                    client.send(request("POST", &target("post"), &["Content-Length: 2"]) + "hi");
                    assert_eq!(client.reply().status, 405);
                }
            });
        }
    });
    let stats = server.stop_cleanly().stats();
    let text = fs::read_to_string(&log).unwrap();
    let expected = (0..CLIENTS).flat_map(|number| {
        let of = |start: &str| format!("{start}-{number}");
        [
            (of("/hello.txt?pipelined"), 100),
            (of("/hello.txt?head"), 5),
            (of("/hello.txt?post"), 5),
            (format!("/none?{number}"), 5),
        ]
    });
    assert_eq!(logged(&text), expected.collect());
    assert!(text.ends_with('\n'));
    let lines = ["log_lines", "log_lines_lost"].map(|name| stats["total"][name].as_u64().unwrap());
    assert_eq!(lines, [115 * CLIENTS as u64, 0], "{stats}");
}

/// Starts a server with options that its architecture must refuse; returns the error message.
fn refused(arch: &architecture::Row, option: &str) -> String {
    let mut command = Command::new(WEIR);
    command.args(["serve", "/", "--arch", arch.spelling, "--arch-option", option]);
    match attempt(command.args(["--listen", "127.0.0.1:0"])) {
        Attempt::Serves(_) => panic!("--arch {} takes {option}", arch.spelling),
        Attempt::Refused(stopped) => {
            let message = stopped.stderr.trim_end().to_owned();
            assert_eq!((stopped.status.code(), message.lines().count()), (Some(2), 1), "{message}");
            message
        }
    }
}

#[test]
fn an_invalid_architecture_option_is_refused_with_one_sentence() {
    for row in architecture::TABLE {
        for wrong in ["no-such-tunable=1", "pool", "=", ""] {
            assert!(refused(row, wrong).contains("--arch-option"), "{}", row.spelling);
        }
        for tunable in row.tunables {
            let beyond =
                [tunable.min.checked_sub(1), tunable.max.checked_add(1)].into_iter().flatten();
            for number in beyond {
                let message = refused(row, &format!("{}={number}", tunable.name));
                assert!(message.contains(tunable.name), "{message}");
            }
        }
    }
}

#[test]
fn an_unknown_architecture_is_refused_with_one_sentence() {
    let mut command = Command::new(WEIR);
    let Attempt::Refused(stopped) = attempt(command.args(["serve", "/", "--arch", "cathedral"]))
    else {
        panic!("there is an architecture of this name");
    };
    assert_eq!(stopped.status.code(), Some(2));
    assert!(stopped.stderr.contains("cathedral"), "{}", stopped.stderr);
}
