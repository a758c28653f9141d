//! The order of giving way under the memory budget, beyond plain files: requests on open
//! connections, sessions of TLS, the cache of a proxy, and processes that share one budget.

use std::sync::Arc;

use weir_tests::files::settle;
use weir_tests::origin::reply;
use weir_tests::tls::{Authority, NAMES, VERSIONS};
use weir_tests::wait::until;
use weir_tests::{Client, Origin, Root, Server, Setup, Stopped, request, suite};

use crate::WEIR;
use crate::admin::{ADMIN, admin};
use crate::memory::{ALL, MIB, PATIENT, figure, is_served};

suite! {
    every_architecture:
    requests_on_open_connections_are_refused_once_memory_is_nearly_used_up,
}

fn total(stopped: &Stopped, name: &str) -> u64 {
    stopped.stats()["total"][name].as_u64().expect(name)
}

/// Budget of a server that sends a body of most of it.
const OPEN_BUDGET: u64 = 64 * MIB;

/// A client that has sent nothing holds nothing that closing it would give back, and is there when
/// the memory is used up.
fn requests_on_open_connections_are_refused_once_memory_is_nearly_used_up(setup: &Setup) {
    let root = Root::with_hello();
    let budget = OPEN_BUDGET.to_string();
    let content = ["--cache-size", "0", "--sendfile-above", "64M", "--compress=off"];
    let options = ["--memory", &budget, "--workers", "1"];
    let server = setup.serve(&root, &[&options[..], &content, &PATIENT, &ADMIN].concat());
    let address = admin(&server);
    let mut used = 0;
    until("the account is published", || {
        assert!(is_served(&server), "{}", setup.name);
        used = figure(&address, "memory_used_bytes");
        used > 0
    });
    let body_bytes = OPEN_BUDGET / 100 * 97 - used;
    root.write("large", vec![b'a'; body_bytes as usize]);
    until("a request on an open connection was refused", || {
        let mut silent = server.connect();
        let mut reader = Client::connect_narrow(server.address());
        let _ = reader.try_send(request("GET", "/large", &[]));
        // The body gives way as well, once its client has taken nothing for a second.
        if reader.head().is_ok() {
            let _ = silent.try_send(request("GET", "/hello.txt", &[]));
            let _ = silent.try_reply();
        }
        figure(&address, "refusals_total{reason=\"memory_request\"}") > 0
    });
    until("clients were served again", || is_served(&server));
    server.stop_cleanly();
}

/// Most connections with TLS that a test opens: several times what the budget has room for.
const TLS_CLIENTS_MAX: usize = 4000;

/// Clients that come one by one and stay are never refused: the idle ones make room for them.
#[test]
fn idle_connections_with_tls_are_closed_before_others_are_refused() {
    let root = Root::with_hello();
    let authority = Authority::new();
    let issued = authority.issue("server", &NAMES);
    let clients = Arc::new(authority.clients(&VERSIONS));
    let options = ["--memory", "16M", "--workers", "1", ALL[0], ALL[1]];
    let options = [&issued.options()[..], &options, &PATIENT, &ADMIN].concat();
    let server = Server::start(WEIR, &options, &root);
    let address = admin(&server);
    let connect = || Client::connect_tls(server.address(), &clients, NAMES[0]);
    let mut crowd: Vec<Client> = Vec::new();
    let mut sessions_bytes = 0;
    for nth in 0..TLS_CLIENTS_MAX {
        let mut client = connect();
        assert_eq!(client.get("/hello.txt").text(), "hello", "client {nth}");
        crowd.push(client);
        if nth % 50 == 49 {
            sessions_bytes = sessions_bytes.max(figure(&address, "memory_tls_bytes"));
            if figure(&address, "connections_closed_total{reason=\"memory\"}") > 0 {
                break;
            }
        }
    }
    assert!(sessions_bytes > MIB, "{sessions_bytes} bytes for {} sessions", crowd.len());
    let open = server.open_connections();
    assert!((1..crowd.len()).contains(&open), "{open} of {}", crowd.len());
    drop(crowd);
    assert_eq!(connect().get("/hello.txt").text(), "hello");
    let stopped = server.stop_cleanly();
    assert!(total(&stopped, "end_memory") > 0);
    let refused = ["refused_memory", "refused_memory_requests"].map(|name| total(&stopped, name));
    assert_eq!(refused, [0, 0]);
}

/// Number and size of the replies that a proxy stores: several times its budget.
const REPLIES: usize = 300;
const REPLY_BYTES: usize = 256 << 10;

#[test]
fn the_cache_of_a_proxy_gives_way_before_a_client_is_refused() {
    let origin = Origin::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n";
        let head = format!("{head}Content-Length: {REPLY_BYTES}\r\n\r\n");
        [head.as_bytes(), &[b'a'; REPLY_BYTES]].concat()
    });
    let options = ["--memory", "24M", "--cache", "256M", "--workers", "1", ALL[0], ALL[1]];
    let server = Server::proxy(WEIR, &[&origin.url()], &[&options[..], &ADMIN].concat());
    let address = admin(&server);
    for nth in 0..REPLIES {
        let reply = server.get_with(&format!("/{nth}"), &["Connection: close"]);
        assert_eq!((reply.status, reply.body.len()), (200, REPLY_BYTES), "reply {nth}");
    }
    assert!(figure(&address, "memory_used_bytes") < 24 * MIB);
    until("what there is room for was stored again", || {
        server.get("/again").expect_field("Cache-Status").starts_with("weir; hit")
    });
    let stopped = server.stop_cleanly();
    let of = |name: &str| total(&stopped, name);
    assert!(of("memory_shortages") > 0 && of("proxy_cache_evicted") > 0);
    assert!(of("proxy_cache_stored") > REPLIES as u64 / 2, "{}", of("proxy_cache_stored"));
    let gave_way = ["refused_memory", "refused_memory_requests", "end_memory"].map(of);
    assert_eq!(gave_way, [0, 0, 0]);
}

/// Number of processes, and size of the body that each of them sends to a client that does not read
/// it: none of them needs half of the budget, all together more than there is.
const CHILDREN: usize = 8;
const BODY_BYTES: usize = 6 << 20;

#[test]
fn processes_share_one_budget() {
    let root = Root::with_hello();
    let mut last = root.path().to_owned();
    for child in 0..CHILDREN {
        last = root.write(&format!("unread{child}"), vec![b'a'; BODY_BYTES]);
    }
    settle(&last);
    let processes = ["--arch", "processes", "--arch-option", "pool=8", "--workers", "1"];
    let content = ["--memory", "24M", "--cache-size", "0", "--sendfile-above", "8M"];
    let others = ["--compress=off", "--drain-timeout", "10ms", ALL[0], ALL[1]];
    let options = [&processes[..], &content, &others, &PATIENT, &ADMIN].concat();
    let server = Server::start(WEIR, &options, &root);
    let address = admin(&server);
    let mut crowd = Vec::new();
    for child in 0..CHILDREN - 1 {
        let mut client = Client::connect_narrow(server.address());
        let _ = client.try_send(request("GET", &format!("/unread{child}"), &[]));
        crowd.push(client);
    }
    // Each of them holds less than a third, whatever a process has besides.
    until("one of them found the budget used up", || {
        figure(&address, "memory_shortages_total") > 0
    });
    drop(crowd);
    until("clients were served again", || is_served(&server));
    let stopped = server.stop_cleanly();
    assert_eq!(total(&stopped, "children_lost"), 0);
}

/// Processes that cache files, the files of each, and their size.
const SLEEPERS: usize = 16;
const CACHED_FILES: usize = 3;
const CACHED_BYTES: usize = 512 << 10;

/// Number and size of the bodies that are not read then. With what is cached they are more than the
/// budget, by more than those that send them have cached themselves.
const UNREAD: usize = 6;
const UNREAD_BYTES: usize = 3 << 20;

/// Processes that wait for a connection hear that memory is short: with what they keep the server
/// would stay beyond the share of its budget from which on caches give back.
#[test]
fn processes_that_sleep_give_back_what_they_cache() {
    let root = Root::with_hello();
    let mut last = root.path().to_owned();
    for file in 0..SLEEPERS * CACHED_FILES {
        last = root.write(&format!("cached{file}"), vec![b'a'; CACHED_BYTES]);
    }
    for file in 0..UNREAD {
        last = root.write(&format!("unread{file}"), vec![b'a'; UNREAD_BYTES]);
    }
    settle(&last);
    let processes = ["--arch", "processes", "--arch-option", "pool=16", "--workers", "1"];
    let content = ["--memory", "44M", "--cache-size", "128M", "--sendfile-above", "8M"];
    let others = ["--compress=off", "--drain-timeout", "10ms", ALL[0], ALL[1]];
    let options = [&processes[..], &content, &others, &PATIENT, &ADMIN].concat();
    let server = Server::start(WEIR, &options, root.path());
    let address = admin(&server);
    // Each has a process to itself for as long as it stays.
    let mut clients: Vec<Client> = (0..SLEEPERS).map(|_| server.connect()).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        for file in nth * CACHED_FILES..(nth + 1) * CACHED_FILES {
            assert_eq!(client.get(&format!("/cached{file}")).body.len(), CACHED_BYTES);
        }
    }
    drop(clients);
    let cached_bytes = (SLEEPERS * CACHED_FILES * CACHED_BYTES) as u64;
    until("all have cached what they were asked for", || {
        figure(&address, "memory_content_bytes") >= cached_bytes
    });
    assert_eq!(figure(&address, "memory_shortages_total"), 0);
    let mut unread = Vec::new();
    for file in 0..UNREAD {
        until("the reply has begun", || {
            let mut client = Client::connect_narrow(server.address());
            client.send(request("GET", &format!("/unread{file}"), &[]));
            let has_begun = client.head().is_ok();
            unread.push(client);
            has_begun
        });
        until("the processes that sleep gave back", || {
            figure(&address, "memory_used_bytes") < 44 * MIB / 10 * 8
        });
    }
    assert_eq!(server.open_connections(), UNREAD, "a reply that waits was given up");
    drop(unread);
    until("clients were served again", || is_served(&server));
    let stopped = server.stop_cleanly();
    assert!(total(&stopped, "memory_shortages") > 0);
    assert_eq!(total(&stopped, "children_lost"), 0);
}

/// Number and size of the replies that wait for clients that do not read them: with what the kernel
/// takes of each, twice the budget and more.
const SLOW_READERS: usize = 12;
const SLOW_BYTES: usize = 8 << 20;

#[test]
fn replies_for_slow_clients_wait_at_the_upstream_once_memory_is_short() {
    let origin = Origin::start(|_| reply(&[b'a'; SLOW_BYTES]));
    let memory = ["--memory", "24M", "--reply-buffer", "16M", "--buffers-total", "1G"];
    let others = ["--workers", "1", "--max-in-flight", "64", ALL[0], ALL[1]];
    let options = [&memory[..], &others, &PATIENT, &ADMIN].concat();
    let server = Server::proxy(WEIR, &[&origin.url()], &options);
    let address = admin(&server);
    let mut readers = Vec::new();
    for _ in 0..SLOW_READERS {
        let mut client = Client::connect_narrow(server.address());
        client.send(request("GET", "/", &["Connection: close"]));
        let head = client.head().unwrap();
        readers.push((client, head));
    }
    until("replies have taken what they may of the memory", || {
        figure(&address, "memory_shortages_total") > 0
    });
    for (client, head) in &mut readers {
        let whole = client.body(head.clone()).unwrap();
        assert_eq!(whole.body.len(), SLOW_BYTES);
        assert!(figure(&address, "memory_used_bytes") < 24 * MIB);
    }
    let stopped = server.stop_cleanly();
    let of = |name: &str| total(&stopped, name);
    assert!(of("proxy_buffered_bytes") > 0, "none waited in memory");
    let gave_way = ["refused_memory", "refused_memory_requests", "replies_cut"].map(of);
    assert_eq!((gave_way, of("proxy_buffers_bytes")), ([0; 3], 0));
}
