//! The mechanisms based on signals under more events than a loop has taken in: how many signals a
//! call takes, and the fallback of the papers' server when their queue overflows.
//!
//! A stopped process takes no signal, so that what is sent meanwhile is queued for it, all of it.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use weir_tests::wait::until;
use weir_tests::{Client, Root, Server, request};

use crate::WEIR;

const CLIENTS: u64 = 64;

fn serve(root: &Root, mechanism: &str, settings: &[&str]) -> Server {
    serve_with(root, mechanism, settings, &[])
}

/// Like [`serve`], with other options besides.
fn serve_with(root: &Root, mechanism: &str, settings: &[&str], options: &[&str]) -> Server {
    let own = ["--workers", "1", "--preset", "accept1", "--mechanism", mechanism];
    let mut options = [&own[..], options].concat();
    for setting in settings {
        options.extend(["--mechanism-option", setting]);
    }
    Server::start(WEIR, &options, root)
}

/// Runs `act` while no thread of the server runs.
fn while_stopped<T>(server: &Server, act: impl FnOnce() -> T) -> T {
    server.signal(Signal::STOP);
    let tasks = format!("/proc/{}/task", server.id());
    until("all threads had stopped", || {
        fs::read_dir(&tasks).unwrap().all(|task| {
            let status = fs::read_to_string(task.unwrap().path().join("status"));
            status.is_ok_and(|status| status.contains("State:\tT"))
        })
    });
    let result = act();
    server.signal(Signal::CONT);
    result
}

/// Returns open connections, each of which has had a reply and is waited for.
fn connected(server: &Server) -> Vec<Client> {
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }
    clients
}

fn send_all(clients: &mut [Client]) {
    for client in clients {
        client.send(request("GET", "/hello.txt", &[]));
    }
}

fn all_are_answered(clients: &mut [Client]) {
    for client in clients {
        assert_eq!(client.reply().text(), "hello");
    }
}

fn total(server: Server) -> Value {
    server.stop_cleanly().stats()["total"].clone()
}

fn number(total: &Value, name: &str) -> u64 {
    total[name].as_u64().unwrap()
}

#[test]
fn one_call_takes_the_signals_of_all_connections_or_of_one() {
    let root = Root::with_hello();
    for (mechanism, takes_many) in [("rtsig", false), ("rtsig-bulk", true)] {
        let server = serve(&root, mechanism, &["pending-signals=4096"]);
        let mut clients = connected(&server);
        while_stopped(&server, || send_all(&mut clients));
        all_are_answered(&mut clients);
        drop(clients);
        let total = total(server);
        assert_eq!(number(&total, "event_overflows"), 0, "{total}");
        let (taken_max, takes) = (number(&total, "event_taken_max"), number(&total, "event_takes"));
        if takes_many {
            assert!(taken_max >= CLIENTS, "{mechanism}: at most {taken_max} signals per call");
        } else {
            assert_eq!((taken_max, takes), (1, number(&total, "event_notices")), "{total}");
        }
    }
}

#[test]
fn after_an_overflow_all_who_wait_are_accepted_and_answered_under_multi_accept_select() {
    let root = Root::with_hello();
    for (fallback, falls_back) in [("fallback=1", true), ("fallback=0", false)] {
        for mechanism in ["rtsig", "rtsig-bulk"] {
            let server = serve(&root, mechanism, &["pending-signals=16", fallback]);
            let mut clients = connected(&server);
            let more = while_stopped(&server, || {
                send_all(&mut clients);
                (0..CLIENTS).map(|_| server.connect()).collect::<Vec<_>>()
            });
            all_are_answered(&mut clients);
            clients.extend(more);
            for client in &mut clients {
                assert_eq!(client.get("/hello.txt").text(), "hello");
            }
            drop(clients);
            let total = total(server);
            assert!(number(&total, "event_overflows") >= 1, "{total}");
            let selects = number(&total, "event_fallbacks");
            assert_eq!((selects > 0, number(&total, "event_swept") > 0), (falls_back, !falls_back));
            let accepts_max = number(&total, "accepts_max");
            assert_eq!(accepts_max > 1, falls_back, "an accept-limit of 1: {accepts_max}");
        }
    }
}

#[test]
fn after_an_overflow_no_more_are_accepted_than_may_be_open() {
    let root = Root::with_hello();
    let room = (CLIENTS + 8).to_string();
    for mechanism in ["rtsig", "rtsig-bulk"] {
        let settings = ["pending-signals=16", "fallback=1"];
        let server = serve_with(&root, mechanism, &settings, &["--max-conns", &room]);
        let mut clients = connected(&server);
        let more = while_stopped(&server, || {
            send_all(&mut clients);
            (0..CLIENTS).map(|_| server.connect()).collect::<Vec<_>>()
        });
        all_are_answered(&mut clients);
        drop((clients, more));
        let total = total(server);
        assert!(number(&total, "event_fallbacks") > 0, "{mechanism}: {total}");
        assert!(number(&total, "accepts_max") > 1, "{mechanism}: {total}");
        assert_eq!(number(&total, "end_failed"), 0, "{mechanism}: {total}");
    }
}

#[test]
fn every_connection_is_answered_though_a_wait_reports_one_signal() {
    let root = Root::with_hello();
    for mechanism in ["rtsig", "signal-per-fd"] {
        let server = serve(&root, mechanism, &["pending-signals=4096", "one-per-wait=1"]);
        let mut clients = connected(&server);
        let mut more = while_stopped(&server, || {
            send_all(&mut clients);
            let mut more: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
            send_all(&mut more);
            more
        });
        all_are_answered(&mut clients);
        all_are_answered(&mut more);
        drop((clients, more));
        let total = total(server);
        assert!(number(&total, "getevents_calls") >= 2 * CLIENTS, "one at a time: {total}");
        let takes_one = number(&total, "event_taken_max") == 1;
        assert_eq!(takes_one, mechanism == "rtsig", "{mechanism}: {total}");
    }
}
