//! The limits of each client: connections open at a time, requests in the long run, and bytes.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use weir_tests::family::{children_of, family_of, is_stopped, signal};
use weir_tests::files::{noise, settle};
use weir_tests::origin::reply;
use weir_tests::server::{UNHURRIED, run};
use weir_tests::tls::{Authority, NAMES, VERSIONS};
use weir_tests::wait::until;
use weir_tests::{Client, Origin, Root, Server, Setup, Stopped, request, suite};

use crate::WEIR;
use crate::admin::{ADMIN, admin};
use crate::memory::figure;

suite! {
    every_architecture:
    connections_past_the_limit_are_refused_until_one_ends,
    a_connection_refused_by_a_fin_is_not_reset_because_of_its_request,
    requests_past_the_burst_are_answered_with_429,
}

suite! {
    every_architecture_at_once:
    a_client_is_sent_its_burst_and_no_more,
    replies_beyond_the_burst_come_whole_after_pauses,
}

suite! {
    every_tls_architecture:
    replies_over_tls_beyond_the_burst_come_whole_after_pauses,
}

suite! {
    every_forwarding_architecture_at_once:
    forwarded_replies_beyond_the_burst_come_whole_after_pauses,
}

/// A rate that gives nothing back during a test.
const RARELY: [&str; 4] = ["--client-requests", "1/h", "--client-burst", "3"];

fn connections_past_the_limit_are_refused_until_one_ends(setup: &Setup) {
    let root = Root::with_hello();
    let server =
        setup.serve(&root, &["--client-connections", "2", "--workers", "2", "--refuse", "fin"]);
    let mut open: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut open {
        assert_eq!(client.get("/hello.txt").text(), "hello", "{}", setup.name);
    }
    for _ in 0..3 {
        let mut third = server.connect();
        let _ = third.try_send(request("GET", "/hello.txt", &[]));
        assert!(third.ends(), "{}", setup.name);
    }
    assert_eq!(open[0].get("/hello.txt").text(), "hello");
    drop(open.pop());
    until("another connection was let in", || {
        let mut next = server.connect();
        next.try_send(request("GET", "/hello.txt", &[])).is_ok()
            && next.try_reply().is_ok_and(|reply| reply.text() == "hello")
    });
    let stats = server.stop_cleanly().stats();
    let refused = &stats["total"]["refused_client_connections"];
    assert!(refused.as_u64().unwrap() >= 3, "{}: {refused}", setup.name);
    assert_eq!(stats["total"]["end_client_limit"], *refused);
    assert_eq!(stats["total"]["closed"], stats["total"]["accepted"]);
}

/// The request has come when the server sees the connection.
fn a_connection_refused_by_a_fin_is_not_reset_because_of_its_request(setup: &Setup) {
    let root = Root::with_hello();
    let limit = ["--client-connections", "2", "--refuse", "fin", "--workers", "1"];
    let server = setup.serve(&root, &limit);
    let mut open: Vec<_> = (0..2).map(|_| server.connect()).collect();
    assert!(open.iter_mut().all(is_served), "{}", setup.name);
    let processes = family_of(server.id());
    processes.iter().for_each(|&process| signal(process, Signal::STOP));
    until("they are stopped", || processes.iter().all(|&process| is_stopped(process)));
    let mut third = server.connect();
    third.send(request("GET", "/hello.txt", &[]));
    processes.iter().for_each(|&process| signal(process, Signal::CONT));
    assert_eq!(third.rest().unwrap(), b"", "{}", setup.name);
    assert_eq!(server.stop_cleanly().stats()["total"]["refused_client_connections"], 1);
}

fn requests_past_the_burst_are_answered_with_429(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[&RARELY[..], &["--workers", "2"]].concat());
    // Counted for the client, over all its connections.
    for _ in 0..3 {
        assert_eq!(server.get("/hello.txt").text(), "hello", "{}", setup.name);
    }
    let mut client = server.connect();
    for _ in 0..2 {
        let reply = client.get("/hello.txt");
        assert_eq!(reply.status, 429, "{}", setup.name);
        let seconds: u64 = reply.field("Retry-After").unwrap().parse().unwrap();
        assert!((3000..=3600).contains(&seconds), "{seconds}");
    }
    // What follows a head that is refused is no request.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nGET / HTTP/1.1\r\n");
    assert_eq!(client.reply().status, 429);
    assert!(client.ends());
    let total = server.stop_cleanly().stats()["total"].clone();
    assert_eq!((&total["refused_client_requests"], &total["status_2xx"]), (&3.into(), &3.into()));
}

/// Options of a server whose clients are sent so much at once, and then one byte a second.
fn burst_of(bytes: &str) -> [&str; 8] {
    let workers = ["--workers", "2", "--drain-timeout", "0"];
    let [a, b, c, d] = workers;
    ["--client-bandwidth", "1", "--client-bandwidth-burst", bytes, a, b, c, d]
}

fn a_client_is_sent_its_burst_and_no_more(setup: &Setup) {
    let root = Root::new();
    // One is sent from memory, the other from its file.
    for (name, size) in [("small", 40_000), ("large", 400_000)] {
        root.write(name, noise(1, size));
        let server = setup.serve(&root, &burst_of("30000"));
        let mut client = server.connect();
        client.send(request("GET", &format!("/{name}"), &[]));
        let mut other = server.connect();
        if setup.arch.spelling != "ring" {
            assert!(client.read_slowly(30_000, 4096, Duration::ZERO), "{}", setup.name);
        }
        other.send(request("GET", &format!("/{name}"), &[]));
        until("both pause", || {
            server.signal(Signal::USR1);
            server
                .stats_so_far()
                .is_some_and(|stats| stats["total"]["client_bandwidth_pauses"].as_u64() >= Some(2))
        });
        let stats = server.stop_cleanly().stats();
        // The ring lends a reply to the kernel as a whole, when there is room for all of it.
        let wanted = if setup.arch.spelling == "ring" { 0 } else { 30_000 };
        assert_eq!(stats["total"]["bytes_out"].as_u64(), Some(wanted), "{} {name}", setup.name);
    }
}

fn replies_beyond_the_burst_come_whole_after_pauses(setup: &Setup) {
    let root = Root::new();
    let (small, large) = (noise(2, 40_000), noise(3, 3_000_000));
    root.write("small", &small);
    root.write("large", &large);
    let rate = ["--client-bandwidth", "8M", "--client-bandwidth-burst", "10000"];
    let server = setup.serve(&root, &rate);
    let mut client = server.connect();
    assert!(client.get("/small").body == small, "{}", setup.name);
    assert!(client.get("/large").body == large, "{}", setup.name);
    let parts = client.get_with("/large", &["Range: bytes=0-99999,200000-2999999"]);
    assert_eq!(parts.status, 206, "{}", setup.name);
    assert!(parts.body.windows(100_000).any(|part| part == &large[..100_000]), "{}", setup.name);
    let total = server.stop_cleanly().stats()["total"].clone();
    assert!(total["client_bandwidth_pauses"].as_u64() >= Some(10), "{}: {total}", setup.name);
    assert_eq!((&total["timeout_rate"], &total["timeout_stall"]), (&0.into(), &0.into()));
}

fn replies_over_tls_beyond_the_burst_come_whole_after_pauses(setup: &Setup) {
    let root = Root::new();
    let large = noise(5, 3_000_000);
    root.write("large", &large);
    let authority = Authority::new();
    let issued = authority.issue("server", &NAMES);
    let rate = ["--client-bandwidth", "8M", "--client-bandwidth-burst", "10000"];
    let server = setup.serve(&root, &[&issued.options()[..], &rate].concat());
    let clients = Arc::new(authority.clients(&VERSIONS));
    let mut client = Client::connect_tls(server.address(), &clients, NAMES[0]);
    for _ in 0..2 {
        assert!(client.get("/large").body == large, "{}", setup.name);
    }
    let total = server.stop_cleanly().stats()["total"].clone();
    assert!(total["client_bandwidth_pauses"].as_u64() >= Some(10), "{}: {total}", setup.name);
    assert_eq!((&total["timeout_rate"], &total["timeout_stall"]), (&0.into(), &0.into()));
}

fn forwarded_replies_beyond_the_burst_come_whole_after_pauses(setup: &Setup) {
    let large = noise(4, 3_000_000);
    let content = large.clone();
    let origin = Origin::start(move |_| reply(&content));
    let rate = ["--client-bandwidth", "8M", "--client-bandwidth-burst", "10000"];
    let server = setup.proxy(&[&origin.url()], &rate);
    let mut client = server.connect();
    for _ in 0..2 {
        assert!(client.get("/large").body == large, "{}", setup.name);
    }
    let total = server.stop_cleanly().stats()["total"].clone();
    assert!(total["client_bandwidth_pauses"].as_u64() >= Some(5), "{}: {total}", setup.name);
}

#[test]
fn a_reply_that_pauses_leaves_its_place_at_once_though_a_thread_waits_for_it() {
    let root = Root::new();
    root.write("large", noise(6, 400_000));
    let full = ["--arch", "threads", "--workers", "1", "--max-conns", "1"];
    let rate = ["--client-bandwidth", "1", "--client-bandwidth-burst", "2000"];
    let server = Server::start(WEIR, &[&full[..], &rate, &UNHURRIED].concat(), &root);
    let mut first = server.connect();
    first.send(request("GET", "/large", &[]));
    // Once the pause has lasted for a while the place is this one's.
    let second = server.connect();
    assert!(first.ends());
    assert!(server.open_connections() <= 1, "its socket waits for its thread");
    assert_eq!(server.new_report()["total"]["evicted"].as_u64(), Some(1));
    drop(second);
    server.stop_cleanly();
}

#[test]
fn a_request_that_waits_for_a_disk_or_an_upstream_is_charged_once() {
    let origin = Origin::start(|_| reply(b"hello"));
    let root = Root::with_hello();
    let upstream = format!("app={}", origin.url());
    let forwards = ["--arch", "helpers", "--upstream", &upstream, "--route", "/up=app"];
    let options = [&RARELY[..], &forwards].concat();
    let server = Server::start(WEIR, &options, &root);
    assert_eq!(server.get("/hello.txt").status, 200);
    assert_eq!(server.get("/up/a").status, 200);
    assert_eq!(server.get("/up/b").status, 200);
    assert_eq!(server.get("/up/c").status, 429);
    server.stop_cleanly();
}

/// Starts a server with two masters of so many children each, which accept one at a time.
fn two_masters(pool: u32, options: &[&str], root: &Root) -> Server {
    let pool = format!("pool={pool}");
    let processes = ["--arch", "processes", "--arch-option", &pool];
    let all = [&processes[..], &["--workers", "2", "--accept-limit", "1"], options].concat();
    Server::start(WEIR, &all, root)
}

/// Returns the children of a server's masters.
fn child_processes(server: &Server) -> Vec<u32> {
    children_of(server.id()).into_iter().flat_map(children_of).collect()
}

#[test]
fn requests_on_connections_of_several_processes_are_one_clients() {
    let root = Root::with_hello();
    let server = two_masters(4, &RARELY, &root);
    // Each is served by a process of its own, as long as it is open.
    let mut open: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let statuses: Vec<_> = open.iter_mut().map(|client| client.get("/hello.txt").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert!(open.iter_mut().all(|client| client.get("/hello.txt").status == 429));
    assert_eq!(server.stop_cleanly().stats()["total"]["refused_client_requests"], 5);
}

fn is_served(client: &mut Client) -> bool {
    client.try_send(request("GET", "/hello.txt", &[])).is_ok()
        && client.try_reply().is_ok_and(|reply| reply.text() == "hello")
}

#[test]
fn connections_of_a_killed_process_count_no_more_and_those_of_others_do() {
    let root = Root::with_hello();
    let limit = ["--client-connections", "2", "--refuse", "fin"];
    // Each master has a child more than there may be connections.
    let server = two_masters(3, &limit, &root);
    let mut open: Vec<_> = (0..2).map(|_| server.connect()).collect();
    assert!(open.iter_mut().all(is_served));
    assert!(!is_served(&mut server.connect()), "it is the third");
    // Until it is one that serves a connection.
    for (earlier, child) in child_processes(&server).into_iter().enumerate() {
        signal(child, Signal::KILL);
        until("the death was noticed", || {
            server.stderr_so_far().matches("has died (signal 9)").count() > earlier
        });
        open.retain_mut(is_served);
        if open.len() < 2 {
            break;
        }
    }
    assert_eq!(open.len(), 1);
    until("another was let in", || {
        let mut next = server.connect();
        let is_in = is_served(&mut next);
        open.extend(is_in.then_some(next));
        is_in
    });
    assert!(!is_served(&mut server.connect()), "the one that was left counts");
    assert!(open.iter_mut().all(is_served));
    server.stop_cleanly();
}

#[test]
fn connections_and_memory_of_a_killed_masters_children_count_no_more() {
    const CACHED_BYTES: usize = 1 << 20;
    let root = Root::with_hello();
    settle(&root.write("cached", vec![b'a'; CACHED_BYTES]));
    let limit = ["--client-connections", "2", "--refuse", "fin", "--share-listener"];
    let memory = ["--memory", "64M", "--compress=off", "--sendfile-above", "8M"];
    let server = two_masters(3, &[&limit[..], &memory, &ADMIN].concat(), &root);
    let address = admin(&server);
    let masters = children_of(server.id());
    // While these are stopped the first master's children serve.
    let others = children_of(masters[1]);
    others.iter().for_each(|child| signal(*child, Signal::STOP));
    until("they are stopped", || others.iter().all(|child| is_stopped(*child)));
    let mut open: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut open {
        assert_eq!(client.get("/cached").body.len(), CACHED_BYTES);
    }
    assert!(!is_served(&mut server.connect()), "it is the third");
    until("the file counts", || figure(&address, "memory_content_bytes") >= CACHED_BYTES as u64);
    others.iter().for_each(|child| signal(*child, Signal::CONT));
    signal(masters[0], Signal::KILL);
    until("the death was noticed", || {
        server.stderr_so_far().contains("the master of a worker's children has died")
    });
    assert!(open.iter_mut().all(Client::ends));
    let mut open: Vec<_> = (0..2).map(|_| server.connect()).collect();
    assert!(open.iter_mut().all(is_served));
    assert!(!is_served(&mut server.connect()), "it is the third");
    until("the file counts no more", || {
        figure(&address, "memory_content_bytes") < CACHED_BYTES as u64
    });
    server.stop_cleanly();
}

#[test]
fn behind_a_trusted_proxy_the_client_is_the_one_that_it_names() {
    let root = Root::with_hello();
    let trusted = ["--trusted-proxy", "127.0.0.0/8", "--client-connections", "1"];
    let server = Server::start(WEIR, &[&RARELY[..], &trusted].concat(), &root);
    let mut proxy = [server.connect(), server.connect()];
    for said in [
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-For: 192.0.2.9, 192.0.2.2",
        "X-Forwarded-For: 192.0.2.3:4711",
        "Forwarded: for=\"[2001:db8::1]:4711\"",
        "X-Forwarded-For: unknown",
    ] {
        let statuses = [0, 1, 0, 1].map(|at| proxy[at].get_with("/hello.txt", &[said]).status);
        assert_eq!(statuses, [200, 200, 200, 429], "{said}");
    }
    server.stop_cleanly();
}

#[test]
fn limits_that_mean_nothing_are_refused_in_one_sentence() {
    for options in [
        &["--client-requests", "0"][..],
        &["--client-requests", "1/d"],
        &["--client-prefix", "33,64"],
        &["--client-connections", "0"],
        &["--client-bandwidth", "0"],
    ] {
        let Stopped { status, stderr, .. } = run(std::process::Command::new(WEIR)
            .args(["serve", "/", "--listen", "127.0.0.1:0"])
            .args(options));
        assert_eq!((status.code(), stderr.lines().count()), (Some(2), 1), "{options:?}: {stderr}");
    }
}
