//! Forwarding to other servers, as the client on one side and the origin on the other see it.

use std::thread;
use std::time::Duration;

use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::origin::{Gate, Received, reply};
use weir_tests::wait::until;
use weir_tests::{Client, Origin, Root, Server, Setup, mechanisms, request, suite};

use crate::WEIR;
use crate::sites::write_config;

suite! {
    every_forwarding_architecture:
    pipelined_requests_are_answered_in_order,
    the_origin_learns_who_asks_and_only_from_us,
    large_content_passes_both_ways_and_is_exact,
    a_slow_client_holds_back_the_origin,
    a_client_that_waits_for_100_gets_the_origin_s,
    another_protocol_passes,
    replies_without_a_length_are_ended_for_every_client,
    a_request_is_sent_again_if_its_kept_connection_had_ended,
    a_dead_server_is_passed_over,
    no_more_are_in_flight_than_allowed_and_the_rest_wait,
    malformed_content_ends_both_connections,
    one_connection_to_the_origin_carries_many_requests,
}

suite! {
    every_forwarding_architecture_at_once:
    an_origin_that_misbehaves_is_a_502_or_a_cut,
}

fn proxy(origin: &Origin, options: &[&str]) -> Server {
    Server::proxy(WEIR, &[&origin.url()], options)
}

fn post(target: &str, body: &[u8]) -> Vec<u8> {
    let length = format!("Content-Length: {}", body.len());
    [request("POST", target, &[&length]).as_bytes(), body].concat()
}

#[test]
fn requests_and_replies_pass_under_every_mechanism() {
    let origin = Origin::echo();
    for mechanism in mechanisms() {
        let server = proxy(&origin, &["--mechanism", mechanism]);
        let mut client = server.connect();
        for nth in 0..3 {
            let target = format!("/{mechanism}/{nth}?a=b");
            assert_eq!(client.get(&target).text(), format!("GET {target} HTTP/1.1\n"));
            client.send(post(&target, b"content"));
            assert_eq!(client.reply().text(), format!("POST {target} HTTP/1.1\ncontent"));
        }
        assert_eq!(client.head_with("/", &[]).status, 200);
        server.stop_cleanly();
    }
    assert_eq!(origin.malformed(), 0);
}

#[test]
fn connections_find_a_slot_by_either_search() {
    let origin = Origin::echo();
    for slots in ["tree", "scan"] {
        let server =
            proxy(&origin, &["--slots", slots, "--mechanism", "select", "--keep-idle", "0"]);
        let mut clients: Vec<Client> = (0..70).map(|_| server.connect()).collect();
        // Every fifth gives its slot to one that comes later.
        for nth in (0..70).rev().step_by(5) {
            clients.swap_remove(nth);
        }
        clients.extend((0..30).map(|_| server.connect()));
        for client in &mut clients {
            assert_eq!(client.get("/a").text(), "GET /a HTTP/1.1\n");
        }
        server.stop_cleanly();
    }
    assert_eq!(origin.malformed(), 0);
}

#[test]
fn fibers_forward_too() {
    let origin = Origin::start(|received| {
        thread::sleep(Duration::from_millis(5));
        reply(received.line().as_bytes())
    });
    for pool in ["pool=0", "pool=8"] {
        let fiber = ["--arch", "fiber", "--arch-option", pool, "--accept-limit", "1"];
        let limit = ["--max-in-flight", "2", "--queue-target", "20s", "--workers", "2"];
        let server = proxy(&origin, &[&fiber[..], &limit].concat());
        let address = server.address().clone();
        let clients: Vec<_> = (0..20)
            .map(|nth| {
                let address = address.clone();
                thread::spawn(move || {
                    let mut client = Client::connect(&address);
                    for target in [format!("/{nth}/a"), format!("/{nth}/b")] {
                        assert_eq!(client.get(&target).text(), format!("GET {target} HTTP/1.1"));
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let stopped = server.stop_cleanly();
        assert!(stopped.stats()["total"]["upstream_waited"].as_u64().unwrap() > 0);
    }
    assert_eq!(origin.in_flight_max(), 2);
}

fn one_connection_to_the_origin_carries_many_requests(setup: &Setup) {
    let origin = Origin::echo();
    let server = setup.proxy(&[&origin.url()], &["--workers", "1"]);
    for _ in 0..5 {
        server.get("/a");
    }
    let mut client = server.connect();
    for _ in 0..5 {
        client.get("/a");
    }
    assert_eq!((origin.connections(), origin.received().len()), (1, 10));
    let stopped = server.stop_cleanly();
    let stats = stopped.stats()["total"].clone();
    assert_eq!(stats["upstream_requests"], 10);
    assert_eq!((&stats["upstream_connects"], &stats["upstream_reused"]), (&1.into(), &9.into()));
}

fn pipelined_requests_are_answered_in_order(setup: &Setup) {
    let origin = Origin::echo();
    let server = setup.proxy(&[&origin.url()], &[]);
    let mut client = server.connect();
    let many: String = (0..20).map(|nth| request("GET", &format!("/{nth}"), &[])).collect();
    client.send(many);
    for nth in 0..20 {
        assert_eq!(client.reply().text(), format!("GET /{nth} HTTP/1.1\n"));
    }
}

fn the_origin_learns_who_asks_and_only_from_us(setup: &Setup) {
    let origin = Origin::echo();
    let server = setup.proxy(&[&origin.url()], &[]);
    let said = ["X-Forwarded-For: 1.2.3.4", "Forwarded: for=1.2.3.4", "X_Forwarded_For: 1.2.3.4"];
    let reply = server.get_with("/", &said);
    assert!(reply.lists("Via", "1.1 weir"));
    let trusting = setup.proxy(&[&origin.url()], &["--trusted-proxy", "127.0.0.0/8"]);
    trusting.get_with("/", &said);
    let received = origin.received();
    assert_eq!(received[0].fields("x-forwarded-for"), ["127.0.0.1"]);
    let forwarded = "for=127.0.0.1;host=\"test.example\";proto=http";
    assert_eq!(received[0].fields("forwarded"), [forwarded]);
    assert_eq!(received[0].fields("host"), ["test.example"]);
    assert_eq!(received[0].fields("via"), ["1.1 weir"]);
    assert!(received[0].fields("x_forwarded_for").is_empty());
    assert_eq!(received[1].fields("x-forwarded-for"), ["1.2.3.4, 127.0.0.1"]);
    assert_eq!(received[1].fields("forwarded"), ["for=1.2.3.4", forwarded]);
}

#[test]
fn a_request_that_goes_round_is_refused() {
    let root = Root::new();
    let own = format!("unix:{}", root.outside().join("own.sock").display());
    let options = ["--listen", "127.0.0.1:0", "--listen", &own, "--max-in-flight", "inf"];
    let server = Server::proxy(WEIR, &[&own], &options);
    assert_eq!(server.get("/").status, 508);
    until("it is logged", || {
        let said = server.stderr_so_far();
        said.contains(" refused request client=unix ") && said.contains(" reason=loop passes=10 ")
    });
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["upstream_requests"], 10);
}

#[test]
fn many_proxies_may_stand_in_a_row() {
    let origin = Origin::echo();
    let server = proxy(&origin, &[]);
    let others = ["1.1 weir"; 9].join(", ");
    assert_eq!(server.get_with("/", &[&format!("Via: {others}")]).status, 200);
    let statuses = [11, 10].map(|times| {
        let others = vec!["1.1 weir"; times].join(", ");
        server.get_with("/", &[&format!("Via: {others}, 1.1 other")]).status
    });
    assert_eq!((statuses, origin.received().len()), ([508, 508], 1));
    // The first one; others may be too many for the log.
    until("it is logged", || server.stderr_so_far().contains(" reason=loop passes=11 "));
}

#[test]
fn the_host_may_be_the_server_s_own() {
    let origin = Origin::echo();
    let server = proxy(&origin, &["--upstream-host", "server"]);
    server.get("/");
    assert_eq!(origin.received()[0].fields("host"), [origin.address().to_string()]);
}

#[test]
fn each_server_is_asked_by_its_own_name() {
    let servers = [Origin::echo(), Origin::echo()];
    let [one, two] = servers.each_ref().map(Origin::url);
    // What is for it goes to another.
    let absent = Faulty::start(Behaviour::Refuse);
    let dead = format!("http://{}", absent.address());
    let server = Server::proxy(WEIR, &[&dead, &one, &two], &["--upstream-host", "server"]);
    for _ in 0..9 {
        assert_eq!(server.get("/").status, 200);
    }
    for origin in &servers {
        let (received, own) = (origin.received(), origin.address().to_string());
        assert!(!received.is_empty());
        assert!(received.iter().all(|one| one.fields("host") == [own.as_str()]), "{received:?}");
    }
}

#[test]
fn files_and_upstreams_live_in_one_server() {
    let origin = Origin::echo();
    let root = Root::with_hello();
    let upstream = format!("app={}", origin.url());
    let options = ["--upstream", &upstream, "--route", "/api=app", "--route", "b.example/=app"];
    let server = Server::start(WEIR, &options, &root);
    assert_eq!(server.get("/hello.txt").text(), "hello");
    assert_eq!(server.get("/api/x").text(), "GET /api/x HTTP/1.1\n");
    assert_eq!(server.get("/apix").status, 404);
    let mut client = server.connect();
    client.send("GET /hello.txt HTTP/1.1\r\nHost: B.example:80\r\n\r\n");
    assert_eq!(client.reply().text(), "GET /hello.txt HTTP/1.1\n");
    assert_eq!(client.get("/hello.txt").text(), "hello");
}

fn large_content_passes_both_ways_and_is_exact(setup: &Setup) {
    let body: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 3) as u8).collect();
    let expected = body.clone();
    let origin = Origin::start(move |received| {
        assert_eq!(received.body.len(), expected.len());
        reply(&received.body)
    });
    let server = setup.proxy(&[&origin.url()], &[]);
    let mut client = server.connect();
    let mut sending = client.another_end();
    let sent = post("/", &body);
    let sender = thread::spawn(move || sending.send(sent));
    assert!(client.reply().body == body);
    sender.join().unwrap();
    // In chunks, cut anywhere.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut sending = client.another_end();
    let chunks = body.clone();
    let sender = thread::spawn(move || {
        for chunk in chunks.chunks(77_777) {
            sending.send(format!("{:x};x=y\r\n", chunk.len()));
            sending.send(chunk);
            sending.send("\r\n");
        }
        sending.send("0\r\nTrailer: t\r\n\r\n");
    });
    assert!(client.reply().body == body);
    sender.join().unwrap();
}

fn a_slow_client_holds_back_the_origin(setup: &Setup) {
    let origin = Origin::start(|_| reply(&vec![7; 20_000_000]));
    let server = setup.proxy(&[&origin.url()], &["--workers", "1", "--min-rate", "0"]);
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", "/", &[]));
    thread::sleep(Duration::from_millis(300));
    let resident = resident_kb(server.id());
    assert!(resident < 60_000, "{resident} kB");
    assert_eq!(client.reply().body.len(), 20_000_000);
}

/// Resident memory of a process, kB (VmRSS, proc_pid_status(5)).
fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn a_client_that_waits_for_100_gets_the_origin_s(setup: &Setup) {
    let origin = Origin::echo();
    let server = setup.proxy(&[&origin.url()], &["--request-buffer", "0"]);
    let mut client = server.connect();
    client.send(request("POST", "/", &["Content-Length: 2", "Expect: 100-continue"]));
    assert_eq!(client.head().unwrap().status, 100);
    client.send("hi");
    assert_eq!(client.reply().text(), "POST / HTTP/1.1\nhi");
}

fn another_protocol_passes(setup: &Setup) {
    let origin = Origin::start(|received: &Received| {
        assert_eq!(received.fields("upgrade"), ["echo"]);
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello"
            .to_vec()
    });
    let server = setup.proxy(&[&origin.url()], &[]);
    let mut client = server.connect();
    client.send(request("GET", "/", &["Connection: Upgrade", "Upgrade: echo"]));
    let switched = client.head().unwrap();
    assert_eq!((switched.status, switched.field("Upgrade")), (101, Some("echo")));
    // The origin takes the next bytes for a request, answers, and so shows that they pass.
    client.send(request("GET", "/next", &["Connection: Upgrade", "Upgrade: echo"]));
    until("the bytes pass", || origin.received().len() == 2);
    assert_eq!(origin.received()[1].line(), "GET /next HTTP/1.1");
}

fn replies_without_a_length_are_ended_for_every_client(setup: &Setup) {
    let origin = Origin::start(|_| b"HTTP/1.0 200 OK\r\n\r\nuntil the end".to_vec());
    let server = setup.proxy(&[&origin.url()], &[]);
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "until the end");
    assert_eq!(client.get("/").text(), "until the end");
    let mut old = server.connect();
    old.send("GET / HTTP/1.0\r\n\r\n");
    let all = old.rest().unwrap();
    assert!(all.ends_with(b"\r\n\r\nuntil the end"), "{}", String::from_utf8_lossy(&all));
}

fn an_origin_that_misbehaves_is_a_502_or_a_cut(setup: &Setup) {
    for (behaviour, options, status) in [
        (Behaviour::Refuse, &[][..], 502),
        (Behaviour::CloseOnAccept, &[], 502),
        (Behaviour::ResetOnAccept, &[], 502),
        (Behaviour::CloseAfterRequest, &[], 502),
        (Behaviour::ResetAfterRequest, &[], 502),
        (Behaviour::CloseMidHead, &[], 502),
        (Behaviour::Garbage, &[], 502),
        (Behaviour::WrongLength, &[], 502),
        (Behaviour::Silent, &["--first-byte-timeout", "200ms"], 504),
        (Behaviour::NeverReads, &["--first-byte-timeout", "200ms"], 504),
        (Behaviour::NeverAccepts, &["--connect-timeout", "200ms"], 504),
    ] {
        let faulty = Faulty::start(behaviour.clone());
        let url = format!("http://{}", faulty.address());
        let server = setup.proxy(&[&url], options);
        let mut client = server.connect();
        for _ in 0..3 {
            let reply = client.get("/");
            assert_eq!(reply.status, status, "{behaviour:?}");
            assert!(reply.expect_field("Proxy-Status").starts_with("weir; error="));
        }
        server.stop_cleanly();
    }
    for behaviour in [Behaviour::CloseMidBody, Behaviour::ResetMidReply] {
        let faulty = Faulty::start(behaviour.clone());
        let url = format!("http://{}", faulty.address());
        let server = setup.proxy(&[&url], &[]);
        let mut client = server.connect();
        client.send(request("GET", "/", &[]));
        assert!(client.try_reply().is_err(), "{behaviour:?}: it looks whole");
        server.stop_cleanly();
    }
}

fn a_request_is_sent_again_if_its_kept_connection_had_ended(setup: &Setup) {
    let origin = Origin::start(|received| {
        // The second request on a connection is not answered.
        let is_second = received.line().contains("/second");
        if is_second && received.connection == 0 { Vec::new() } else { reply(b"here") }
    });
    let server = setup.proxy(&[&origin.url()], &["--workers", "1"]);
    let mut client = server.connect();
    assert_eq!(client.get("/first").text(), "here");
    assert_eq!(client.get("/second").text(), "here");
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["upstream_repeated"], 1);
    // A POST is not.
    let origin = Origin::start(|received| {
        if received.line().starts_with("POST") { Vec::new() } else { reply(b"here") }
    });
    let server = setup.proxy(&[&origin.url()], &["--workers", "1"]);
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "here");
    client.send(post("/", b"once"));
    assert_eq!(client.reply().status, 502);
    assert_eq!(origin.received().iter().filter(|one| one.line().starts_with("POST")).count(), 1);
}

fn a_dead_server_is_passed_over(setup: &Setup) {
    let (origin, dead) = (Origin::echo(), Faulty::start(Behaviour::Refuse));
    let dead = format!("http://{}", dead.address());
    let server = setup.proxy(&[&dead, &origin.url()], &["--workers", "1"]);
    for _ in 0..20 {
        assert_eq!(server.get("/").status, 200);
    }
    // A POST too: nothing of it was sent.
    let mut client = server.connect();
    client.send(post("/", b"once"));
    assert_eq!(client.reply().text(), "POST / HTTP/1.1\nonce");
}

fn no_more_are_in_flight_than_allowed_and_the_rest_wait(setup: &Setup) {
    let origin = Origin::start(|_| {
        thread::sleep(Duration::from_millis(20));
        reply(b"done")
    });
    let server = setup.proxy(&[&origin.url()], &["--max-in-flight", "3", "--queue-target", "20s"]);
    let address = server.address().clone();
    let clients: Vec<_> = (0..30)
        .map(|_| {
            let address = address.clone();
            thread::spawn(move || Client::connect(&address).get("/").status)
        })
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap() == 200));
    assert_eq!(origin.in_flight_max(), 3);
    let stopped = server.stop_cleanly();
    assert!(stopped.stats()["total"]["upstream_waited"].as_u64().unwrap() > 0);
}

#[test]
fn who_waits_for_too_long_is_told_to_come_again() {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |_| {
        at_origin.pass();
        reply(b"done")
    });
    let root = Root::with_hello();
    let upstream = format!("app={}", origin.url());
    let options = [
        "--upstream",
        &upstream,
        "--route",
        "/app=app",
        "--max-in-flight",
        "1",
        "--queue-target",
        "500ms",
    ];
    let server = Server::start(WEIR, &options, &root);
    let mut first = server.connect();
    first.send(request("GET", "/app", &[]));
    until("it is in flight", || !origin.received().is_empty());
    let mut second = server.connect();
    let refused = second.get("/app");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.field("Retry-After"), Some("1"));
    assert_eq!(refused.field("Proxy-Status"), Some("weir; error=connection_limit_reached"));
    // Files are served meanwhile, on the same connection.
    assert_eq!(second.get("/hello.txt").text(), "hello");
    // A client that goes while it waits is never sent.
    let mut third = server.connect();
    third.send(request("GET", "/app/third", &[]));
    thread::sleep(Duration::from_millis(150));
    drop(third);
    thread::sleep(Duration::from_millis(20));
    gate.open();
    assert_eq!(first.reply().text(), "done");
    assert_eq!(second.get("/app").text(), "done");
    assert!(origin.received().iter().all(|one| !one.line().contains("third")));
    let stopped = server.stop_cleanly();
    let stats = stopped.stats()["total"].clone();
    assert_eq!((&stats["upstream_stale"], &stats["upstream_departed"]), (&1.into(), &1.into()));
}

fn malformed_content_ends_both_connections(setup: &Setup) {
    let origin = Origin::echo();
    let server = setup.proxy(&[&origin.url()], &[]);
    for bad in
        ["x\r\n", "1\r\nab\r\n", "ffffffffffffffff1\r\n", "1\r\na\r\n0\r\nbad trailer\r\n\r\n"]
    {
        let mut client = server.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(bad);
        assert_eq!(client.reply().status, 400, "{bad:?}");
        assert!(client.ends());
    }
    assert!(origin.received().is_empty());
}

#[test]
fn nothing_smuggled_reaches_the_origin() {
    let origin = Origin::echo();
    let server = proxy(&origin, &[]);
    let next = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        "Content-Length: 0\r\nContent-Length: 44\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n",
        "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n",
        "Host: b\r\n",
        " Content-Length: 5\r\n",
        "Content-Length: +5\r\n",
        "A: b\nContent-Length: 39\r\n",
        "A: b\rContent-Length: 39\r\n",
    ] {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{next}"));
        let reply = client.reply();
        assert!(matches!(reply.status, 400 | 501), "{fields:?}: {}", reply.status);
        assert!(client.ends());
    }
    for line in ["POST / HTTP/1.0\r\nTransfer-Encoding: chunked", "GET /\rsmuggled HTTP/1.1"] {
        let mut client = server.connect();
        client.send(format!("{line}\r\nHost: a\r\n\r\n0\r\n\r\n{next}"));
        assert_eq!(client.reply().status, 400, "{line:?}");
        assert!(client.ends());
    }
    assert!(origin.received().is_empty());
    // What is well formed but unusual arrives as one request.
    let mut client = server.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 9\r\nTransfer_Encoding: chunked\r\n\
                 Content-Length: 2, 2\r\n\r\nhiGET /next HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(client.reply().text(), "POST / HTTP/1.1\nhi");
    assert_eq!(client.reply().text(), "GET /next HTTP/1.1\n");
    let first = &origin.received()[0];
    assert_eq!(first.fields("content-length"), ["2"]);
    assert!(first.fields("content_length").is_empty());
}

#[test]
fn content_larger_than_is_said_reaches_no_origin() {
    let origin = Origin::echo();
    let server = proxy(&origin, &["--max-body", "10"]);
    for (field, content) in [
        ("Content-Length: 11", "0123456789a"),
        ("Transfer-Encoding: chunked", "b\r\n0123456789a\r\n0\r\n\r\n"),
    ] {
        let mut client = server.connect();
        client.send(request("POST", "/", &[field]) + content);
        assert_eq!(client.reply().status, 413, "{field}");
    }
    assert_eq!((origin.connections(), origin.received().len()), (0, 0));
    let mut client = server.connect();
    client.send(post("/", b"0123456789"));
    assert_eq!(client.reply().text(), "POST / HTTP/1.1\n0123456789");
    server.stop_cleanly();
    // A route's own counts before that of the server, which is for files too.
    let root = Root::with_hello();
    let config = write_config(
        &root,
        &format!(
            "max-body = 10\nupstream = 'app={}'\n[[route]]\npath = '/app'\nupstream = 'app'\n\
             [[route]]\npath = '/app/large'\nupstream = 'app'\nmax-body = 11\n",
            origin.url()
        ),
    );
    let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
    let status = |target: &str| {
        let mut client = server.connect();
        client.send(post(target, b"0123456789a"));
        client.reply().status
    };
    assert_eq!(["/app", "/app/large", "/hello.txt"].map(status), [413, 200, 413]);
    server.stop_cleanly();
}

#[test]
fn methods_of_the_registry_pass_and_are_no_server_of_files() {
    let origin = Origin::echo();
    let server = proxy(&origin, &[]);
    let mut client = server.connect();
    let methods = ["PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK"];
    for method in methods.iter().chain(&["REPORT", "SEARCH", "ACL", "PATCH", "QUERY"]) {
        client.send(request(method, "/a", &["Content-Length: 2"]) + "hi");
        assert_eq!(client.reply().text(), format!("{method} /a HTTP/1.1\nhi"));
    }
    assert_eq!(origin.connections(), 1);
    server.stop_cleanly();
    let root = Root::with_hello();
    let server = Server::start(WEIR, &[], &root);
    let mut client = server.connect();
    for method in methods {
        client.send(request(method, "/hello.txt", &[]));
        assert_eq!(client.reply().status, 501, "{method}");
    }
    assert_eq!(client.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

#[test]
fn a_request_for_a_whole_server_stays_one() {
    let origin = Origin::echo();
    let server = proxy(&origin, &[]);
    let mut client = server.connect();
    for (target, expected) in
        [("*", "*"), ("http://a", "*"), ("http://a/", "/"), ("http://a?b", "/?b"), ("/", "/")]
    {
        client.send(request("OPTIONS", target, &[]));
        assert_eq!(client.reply().text(), format!("OPTIONS {expected} HTTP/1.1\n"), "{target}");
    }
    server.stop_cleanly();
}

#[test]
fn an_https_resource_is_asked_for_by_a_secured_connection_or_a_trusted_proxy() {
    let origin = Origin::echo();
    let ask = |options: &[&str]| {
        let server = proxy(&origin, options);
        let mut client = server.connect();
        client.send(request("GET", "https://test.example/a", &[]));
        let reply = client.reply();
        server.stop_cleanly();
        reply
    };
    assert_eq!(ask(&[]).status, 400);
    assert!(origin.received().is_empty());
    assert_eq!(ask(&["--trusted-proxy", "127.0.0.1"]).text(), "GET /a HTTP/1.1\n");
    assert_eq!(origin.received()[0].fields("X-Forwarded-Proto"), ["https"]);
}

#[test]
fn options_that_make_no_sense_get_one_sentence() {
    for (options, sentence) in [
        (&["proxy"][..], "URL"),
        (&["proxy", "127.0.0.1:1"], "none of http://HOST:PORT"),
        (&["proxy", "ftp://127.0.0.1"], "is none of http://"),
        (
            &["proxy", "http://127.0.0.1:1", "--arch", "threads", "--preset", "accept1"],
            "forwards no requests",
        ),
        (&["serve", "--route", "/a=b"], "there is no upstream b"),
        (&["serve", "--cache", "1M"], "--cache is for replies of upstreams"),
        (&["proxy", "http://127.0.0.1:1", "--cache", "1k"], "a cache has 1M or more"),
        (&["serve", "--upstream", "b=http://127.0.0.1:1"], "no route leads to it"),
        (&["serve", "--upstream", "b=http://127.0.0.1:1", "--route", "a=b"], "begins with a path"),
    ] {
        let output = std::process::Command::new(WEIR).args(options).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(sentence), "{options:?}: {text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    }
}

#[test]
fn large_replies_pass_through_a_pipe() {
    const BODY_BYTES: usize = 20_000_000;
    let body: Vec<u8> = (0..BODY_BYTES).map(|at| (at / 7) as u8).collect();
    let whole = body.clone();
    let origin = Origin::start(move |_| reply(&whole));
    let server = proxy(&origin, &["--workers", "1", "--min-rate", "0"]);
    // A client that is slow, one that is quick, and both again on connections that are kept.
    let mut slow = Client::connect_narrow(server.address());
    let mut quick = server.connect();
    for _ in 0..2 {
        slow.send(request("GET", "/", &[]));
        assert!(quick.get("/").body == body);
        assert!(slow.reply().body == body);
    }
    assert_eq!(quick.get_with("/", &["Connection: close"]).body.len(), BODY_BYTES);
    let stopped = server.stop_cleanly();
    let spliced = stopped.stats()["total"]["upstream_spliced_bytes"].as_u64().unwrap();
    assert!(spliced > BODY_BYTES as u64 * 4, "{spliced}");
}
