//! Fairness between clients: long work is divided into parts, and shared where several clients ask
//! for the same. The assertions are about counts or an order, never a time.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use weir_tests::server::HURRIED;
use weir_tests::wait::until;
use weir_tests::{Client, Root, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_architecture:
    a_large_directory_is_listed_in_parts_and_once_for_all_who_ask,
    a_listing_is_made_for_nobody_who_asks_for_its_fields_alone,
    a_listing_nobody_waits_for_any_more_leaves_nothing_behind,
}

suite! {
    every_setup_at_once:
    another_client_is_served_between_requests_that_came_together,
    requests_that_came_together_are_answered_without_another_byte,
}

/// Number of directory entries examined, or written, before other connections are served.
const PART_ROWS_MAX: u64 = 400;

const FILES: usize = 3000;

/// Creates a root with a directory that takes many parts to list.
fn root_with_large_directory() -> Root {
    let root = Root::with_hello();
    fs::create_dir(root.path().join("large")).unwrap();
    for index in 0..FILES {
        fs::write(root.path().join(format!("large/file-{index:05}")), "").unwrap();
    }
    root
}

/// Starts a server with one loop, so that the same loop serves all connections.
fn serve(setup: &Setup, root: &Root, options: &[&str]) -> Server {
    let own = ["--workers", "1", "--listing", "--bench-endpoints"];
    setup.serve(root, &[&own[..], &HURRIED, options].concat())
}

fn is_processes(setup: &Setup) -> bool {
    setup.arch.spelling == "processes"
}

fn counted(server: &Server, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut counted = None;
    until(what, || {
        server.signal(Signal::USR1);
        counted = server.stats_so_far().filter(|stats| is_so(&stats["total"]));
        counted.is_some()
    });
    counted.unwrap()
}

fn a_large_directory_is_listed_in_parts_and_once_for_all_who_ask(setup: &Setup) {
    let root = root_with_large_directory();
    let server = serve(setup, &root, &[]);
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect_narrow(server.address())).collect();
    for client in &mut clients {
        client.send(request("GET", "/large/", &[]));
    }
    let pages: Vec<_> = clients.iter_mut().map(Client::reply).collect();
    assert!(pages.iter().all(|page| page.status == 200 && page.body == pages[0].body));
    assert_eq!(pages[0].text().matches("href=\"file-").count(), FILES);
    assert!(!pages[0].text().contains("entries are shown"));
    let stats = server.stop_cleanly().stats();
    let total = |name: &str| stats["total"][name].as_u64().unwrap();
    // A child has a cache of its own.
    assert!(total("listings_made") == 1 || is_processes(setup), "{stats}");
    assert!(total("listing_part_rows_max") <= PART_ROWS_MAX, "{stats}");
    let parts_min = 2 * FILES as u64 / PART_ROWS_MAX;
    assert!(total("listing_parts") >= parts_min && total("yields") >= parts_min, "{stats}");
}

fn a_listing_is_made_for_nobody_who_asks_for_its_fields_alone(setup: &Setup) {
    let root = root_with_large_directory();
    let server = serve(setup, &root, &["--cache-valid", "1h"]);
    let mut client = server.connect();
    client.send(request("HEAD", "/large/", &[]).repeat(15));
    for _ in 0..15 {
        let head = client.head().unwrap();
        assert_eq!((head.status, head.field("Content-Length")), (200, None));
        assert_eq!(head.expect_field("Content-Type"), "text/html; charset=utf-8");
    }
    let stats = counted(&server, "the heads were counted", |total| total["status_2xx"] == 15);
    assert_eq!(stats["total"]["listing_parts"], 0, "{stats}");
    let page = client.get("/large/");
    let head = client.head_with("/large/", &[]);
    assert_eq!(head.expect_field("Content-Length"), page.body.len().to_string());
    assert_eq!(client.head_with("/nothing/", &[]).status, 404);
    server.stop_cleanly();
}

fn a_listing_nobody_waits_for_any_more_leaves_nothing_behind(setup: &Setup) {
    let root = root_with_large_directory();
    let server = serve(setup, &root, &[]);
    for _ in 0..20 {
        let mut client = server.connect();
        client.send(request("GET", "/large/", &[]));
        client.reset();
    }
    let mut client = server.connect();
    client.send([request("GET", "/large/", &[]), request("GET", "/hello.txt", &[])].concat());
    assert_eq!(client.reply().text().matches("href=\"file-").count(), FILES);
    assert_eq!(client.reply().text(), "hello");
    server.stop_cleanly();
}

/// The requests take four seconds together, if none is interrupted.
fn another_client_is_served_between_requests_that_came_together(setup: &Setup) {
    const REQUESTS: usize = 200;
    let root = Root::with_hello();
    let server = serve(setup, &root, &[]);
    let mut other = server.connect();
    assert_eq!(other.get("/hello.txt").text(), "hello");
    let mut greedy = server.connect();
    greedy.send(request("GET", "/.weir/burn?us=20000", &[]).repeat(REQUESTS));
    assert_eq!(greedy.reply().status, 200);
    assert_eq!(other.get("/hello.txt").text(), "hello");
    let answered = 1 + greedy.replies_there();
    assert!(answered < REQUESTS, "all {answered} were answered before another client's");
    greedy.reset();
    assert_eq!(other.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

fn requests_that_came_together_are_answered_without_another_byte(setup: &Setup) {
    let root = Root::with_hello();
    let server = serve(setup, &root, &[]);
    let mut client = server.connect();
    let numbers = [300, 1, 2, 300, 300, 3];
    let requests = numbers.map(|us| request("GET", &format!("/.weir/burn?us={us}"), &[])).concat();
    client.send(requests.repeat(20) + &request("GET", "/hello.txt", &["Connection: close"]));
    for number in numbers.repeat(20) {
        assert_eq!(client.reply().text(), format!("burnt {number} us\n"));
    }
    assert_eq!(client.reply().text(), "hello");
    assert!(client.is_closed());
    let stats = server.stop_cleanly().stats();
    // Where the kernel sends, what has been answered is on its way before the next is begun.
    let has_yielded = stats["total"]["yields"].as_u64().unwrap() > 0;
    assert!(has_yielded || setup.arch.spelling == "ring", "{stats}");
}
