//! TLS as clients see it: handshakes, what goes through them, their ends, and clients that break
//! the rules. The client is rustls; curl and openssl are in `tls_peers.rs`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};

use weir_tests::client::request;
use weir_tests::family::{children_of, is_stopped};
use weir_tests::origin::reply;
use weir_tests::tls::{Authority, Issued, NAMES, VERSIONS, client_hello, false_record};
use weir_tests::wait::until;
use weir_tests::{Client, Origin, Root, Server, Setup, assert_same, suite};

use crate::WEIR;
use crate::proxy_cache::gated;

suite! {
    every_tls_setup:
    files_of_every_size_arrive_on_one_connection,
    pipelined_requests_are_answered_in_order,
    a_large_file_reaches_a_client_that_reads_slowly,
}

suite! {
    every_tls_architecture:
    a_session_is_resumed_by_any_loop,
    a_session_is_resumed_by_a_successor,
    a_session_ends_with_the_trust_in_its_client,
    the_end_is_said_after_the_last_reply,
    the_end_of_an_idle_connection_is_said,
    a_client_that_says_its_end_gets_its_reply_and_the_end,
    the_certificate_is_the_one_of_the_name,
    only_http_is_spoken,
    a_request_without_tls_gets_a_400_without_tls,
    a_hello_may_be_cut_at_every_byte,
    a_hello_may_come_byte_by_byte,
    a_giant_hello_is_refused,
    half_a_hello_meets_its_deadline,
    half_done_handshakes_are_evicted_first,
    idle_connections_are_evicted_before_young_handshakes,
    handshakes_that_wait_when_the_server_stops_are_not_reset,
    a_client_without_a_certificate_is_refused_where_one_is_asked_for,
    certificates_are_read_again_and_no_connection_is_dropped,
    a_storm_of_handshakes_is_served_beside_an_open_connection,
}

suite! {
    every_tls_forwarder:
    a_proxy_speaks_tls_with_its_clients,
    a_large_reply_and_a_large_request_pass_a_proxy,
    a_client_that_says_its_end_behind_two_requests_gets_both_replies_and_the_end,
    what_breaks_the_rules_while_a_request_is_forwarded_is_counted_as_that,
}

/// A server with its issuer, and a client's configuration.
struct Site {
    root: Root,
    authority: Authority,
    issued: Issued,
    clients: Arc<ClientConfig>,
}

impl Site {
    fn new() -> Site {
        let authority = Authority::new();
        let issued = authority.issue("server", &NAMES);
        let clients = Arc::new(authority.clients(&VERSIONS));
        Site { root: Root::with_hello(), authority, issued, clients }
    }

    fn serve(&self, setup: &Setup, options: &[&str]) -> Server {
        setup.serve(&self.root, &[&self.issued.options()[..], options].concat())
    }

    /// Starts a server with room for [`ROOM`] connections, whose deadlines never pass.
    fn serve_few(&self, setup: &Setup) -> Server {
        let patient =
            ["--header-timeout", "10m", "--idle-timeout", "10m", "--drain-timeout", "10ms"];
        let room = ["--workers", "1", "--max-conns", "40"];
        self.serve(setup, &[&patient[..], &room].concat())
    }

    fn connect(&self, server: &Server) -> Client {
        Client::connect_tls(server.address(), &self.clients, NAMES[0])
    }
}

fn total(server: Server, name: &str) -> u64 {
    server.stop_cleanly().stats()["total"][name].as_u64().expect(name)
}

fn files_of_every_size_arrive_on_one_connection(setup: &Setup) {
    let mut site = Site::new();
    let files = site.root.write_file_set();
    let server = site.serve(setup, &[]);
    for version in VERSIONS {
        site.clients = Arc::new(site.authority.clients(&[version]));
        let mut client = site.connect(&server);
        for file in &files {
            let reply = client.get(&file.target);
            assert_eq!(reply.status, 200, "{}", file.target);
            assert_same(&reply.body, &file.body, &file.target);
        }
        assert_eq!(client.tls().protocol_version(), Some(version.version));
    }
    assert_eq!(total(server, "tls_full"), 2);
}

fn pipelined_requests_are_answered_in_order(setup: &Setup) {
    let site = Site::new();
    let file = site.root.write_noise("noise", 100_000);
    let server = site.serve(setup, &[]);
    let mut client = site.connect(&server);
    let requests = [request("GET", "/hello.txt", &[]), request("GET", &file.target, &[])].concat();
    client.send(requests.repeat(20));
    for _ in 0..20 {
        assert_eq!(client.reply().text(), "hello");
        assert_same(&client.reply().body, &file.body, &file.target);
    }
    server.stop_cleanly();
}

fn a_large_file_reaches_a_client_that_reads_slowly(setup: &Setup) {
    let site = Site::new();
    let file = site.root.write_noise("large", 3 << 20);
    let server = site.serve(setup, &[]);
    let narrow = Client::connect_narrow(server.address());
    let mut client = narrow.with_tls(weir_tests::tls::client(&site.clients, NAMES[0]));
    client.send(request("GET", &file.target, &[]));
    let reply = client.head().unwrap();
    assert!(client.read_slowly(100_000, 5_000, Duration::from_millis(1)));
    assert_same(&client.body(reply).unwrap().body, &file.body, &file.target);
    assert_eq!(client.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

fn a_session_is_resumed_by_any_loop(setup: &Setup) {
    let mut site = Site::new();
    let server = site.serve(setup, &["--workers", "2"]);
    for version in [&TLS13, &TLS12] {
        site.clients = Arc::new(site.authority.clients(&[version]));
        for turn in 0..8 {
            let mut client = site.connect(&server);
            assert_eq!(client.get("/hello.txt").text(), "hello");
            let kind = client.tls().handshake_kind();
            let wanted = if turn == 0 { HandshakeKind::Full } else { HandshakeKind::Resumed };
            assert_eq!(kind, Some(wanted), "{version:?}, turn {turn}");
        }
    }
    let stats = server.stop_cleanly().stats();
    let of = |name: &str| stats["total"][name].as_u64().unwrap();
    assert_eq!((of("tls_full"), of("tls_resumed"), of("tls_failed")), (2, 14, 0), "{stats}");
    assert!(of("tls_full_ns") > 0 && of("tls_resumed_ns") > 0, "{stats}");
}

fn a_session_is_resumed_by_a_successor(setup: &Setup) {
    let mut site = Site::new();
    let server = site.serve(setup, &[]);
    let clients = VERSIONS.map(|version| Arc::new(site.authority.clients(&[version])));
    for wanted in [HandshakeKind::Full, HandshakeKind::Resumed] {
        for clients in &clients {
            site.clients = Arc::clone(clients);
            let mut client = site.connect(&server);
            assert_eq!(client.get("/hello.txt").text(), "hello");
            assert_eq!(client.tls().handshake_kind(), Some(wanted));
        }
        if wanted == HandshakeKind::Full {
            server.signal(Signal::USR2);
            until("another process serves", || {
                server.stderr_so_far().contains("serves from now on")
            });
        }
    }
    server.stop();
}

/// A resumed handshake shows no certificate of the client.
fn a_session_ends_with_the_trust_in_its_client(setup: &Setup) {
    let mut site = Site::new();
    let ca = site.authority.file();
    let server = site.serve(setup, &["--tls-client-ca", ca.to_str().unwrap()]);
    let known = site.authority.issue("known", &["known"]);
    let clients =
        VERSIONS.map(|version| Arc::new(site.authority.clients_with(&[version], Some(&known))));
    for clients in &clients {
        site.clients = Arc::clone(clients);
        for wanted in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut client = site.connect(&server);
            assert_eq!(client.get("/hello.txt").text(), "hello");
            assert_eq!(client.tls().handshake_kind(), Some(wanted));
        }
    }
    std::fs::copy(Authority::new().file(), &ca).unwrap();
    server.signal(Signal::HUP);
    let is_refused = |clients: &Arc<ClientConfig>| {
        let mut client = Client::connect_tls(server.address(), clients, NAMES[0]);
        let sent = client.try_send(request("GET", "/hello.txt", &[]));
        sent.is_err() || client.try_reply().is_err()
    };
    until("a client without a session is refused", || {
        is_refused(&Arc::new(site.authority.clients_with(&[&TLS13], Some(&known))))
    });
    for clients in &clients {
        assert!(is_refused(clients));
    }
    server.stop_cleanly();
}

fn the_end_is_said_after_the_last_reply(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &[]);
    let mut client = site.connect(&server);
    assert_eq!(client.get_with("/hello.txt", &["Connection: close"]).text(), "hello");
    // Without the word for it, this would be an error.
    assert_eq!(client.rest().unwrap(), b"");
    server.stop_cleanly();
}

fn the_end_of_an_idle_connection_is_said(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &["--idle-timeout", "50ms"]);
    let mut client = site.connect(&server);
    assert_eq!(client.get("/hello.txt").text(), "hello");
    assert_eq!(client.rest().unwrap(), b"");
    server.stop_cleanly();
}

/// Sends a request and says the end, in one segment, so that the kernel has nothing more to report
/// once the request has been read.
fn send_last(client: &mut Client, request: &str) {
    let tls = client.tls();
    std::io::Write::write_all(&mut tls.writer(), request.as_bytes()).unwrap();
    tls.send_close_notify();
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes).unwrap();
    }
    client.send_raw(&bytes).unwrap();
}

fn a_client_that_says_its_end_gets_its_reply_and_the_end(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &["--idle-timeout", "10m"]);
    let mut client = site.connect(&server);
    client.handshake().unwrap();
    send_last(&mut client, &request("GET", "/hello.txt", &[]));
    assert_eq!(client.reply().text(), "hello");
    assert_eq!(client.rest().unwrap(), b"");
    server.stop_cleanly();
}

fn the_certificate_is_the_one_of_the_name(setup: &Setup) {
    let site = Site::new();
    let other = site.authority.issue("other", &["other.example", "*.wild.example"]);
    let [.., certificate_option, certificate, key_option, key] = other.options();
    let server = site.serve(setup, &[certificate_option, certificate, key_option, key]);
    for (name, wanted) in [
        ("localhost", &site.issued),
        ("test.example", &site.issued),
        ("other.example", &other),
        ("a.wild.example", &other),
    ] {
        let mut client = Client::connect_tls(server.address(), &site.clients, name);
        assert_eq!(client.get("/hello.txt").text(), "hello");
        let shown = client.tls().peer_certificates().unwrap();
        assert_eq!(shown[0], wanted.certificate, "{name}");
    }
    let mut unknown = Client::connect_tls(server.address(), &site.clients, "unknown.example");
    assert!(unknown.handshake().is_err());
    server.stop_cleanly();
}

fn only_http_is_spoken(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &[]);
    let offers = |protocols: &[&[u8]]| {
        let mut config = site.authority.clients(&VERSIONS);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Client::connect_tls(server.address(), &Arc::new(config), NAMES[0])
    };
    let mut client = offers(&[b"h2", b"http/1.1"]);
    assert_eq!(client.get("/hello.txt").text(), "hello");
    assert_eq!(client.tls().alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(offers(&[b"h2"]).handshake().is_err());
    until("it was counted", || {
        server.signal(Signal::USR1);
        server.stats_so_far().is_some_and(|stats| stats["total"]["tls_failed"] == 1)
    });
    server.stop_cleanly();
}

fn a_request_without_tls_gets_a_400_without_tls(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &[]);
    let mut client = server.connect();
    let reply = client.get("/hello.txt");
    assert_eq!((reply.status, reply.field("Connection")), (400, Some("close")));
    assert!(client.is_closed());
    assert_eq!(site.connect(&server).get("/hello.txt").text(), "hello");
    assert_eq!(total(server, "tls_plain"), 1);
}

fn a_hello_may_be_cut_at_every_byte(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &[]);
    let hello = client_hello(&site.clients);
    for end in 0..hello.len() {
        let mut client = server.connect();
        client.send_raw(&hello[..end]).unwrap();
        client.finish_sending();
        assert!(client.ends(), "cut at {end}");
    }
    assert_eq!(site.connect(&server).get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

fn a_hello_may_come_byte_by_byte(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &[]);
    let mut client = site.connect(&server);
    client.send_at_once();
    let mut hello = Vec::new();
    client.tls().write_tls(&mut hello).unwrap();
    for byte in hello {
        client.send_raw(&[byte]).unwrap();
    }
    assert_eq!(client.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

/// Records of a handshake message that says it has 16 MB.
fn a_giant_hello_is_refused(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &[]);
    let mut client = server.connect();
    let mut record = vec![22, 3, 1, 0x40, 0, 1, 255, 255, 255];
    record.resize(5 + 0x4000, 0);
    for _ in 0..64 {
        if client.send_raw(&record).is_err() {
            break;
        }
    }
    assert!(client.ends());
    assert_eq!(site.connect(&server).get("/hello.txt").text(), "hello");
    assert_eq!(total(server, "tls_failed"), 1);
}

fn half_a_hello_meets_its_deadline(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &["--header-timeout", "100ms"]);
    let hello = client_hello(&site.clients);
    let mut client = server.connect();
    client.send_raw(&hello[..hello.len() / 2]).unwrap();
    assert!(client.is_closed());
    let stats = server.stop_cleanly().stats();
    assert_eq!(stats["total"]["timeout_header"], 1, "{stats}");
    assert_eq!(stats["total"]["tls_unfinished"], 1, "{stats}");
}

/// Number of connections that a server of [`Site::serve_few`] has room for.
const ROOM: usize = 40;

fn check_served(client: &mut Client) {
    assert_eq!(client.get("/hello.txt").text(), "hello");
}

fn half_done_handshakes_are_evicted_first(setup: &Setup) {
    let site = Site::new();
    let server = site.serve_few(setup);
    let mut kept: Vec<_> = (0..4).map(|_| site.connect(&server)).collect();
    kept.iter_mut().for_each(check_served);
    let hello = client_hello(&site.clients);
    let begin = || {
        let mut client = server.connect();
        // It may have been closed for another already.
        let _ = client.send_raw(&hello[..hello.len() / 2]);
        client
    };
    let mut crowd: Vec<_> = (0..ROOM - kept.len()).map(|_| begin()).collect();
    until("the server is full", || server.open_connections() == ROOM);
    let full = Instant::now();
    until("no handshake is young", || full.elapsed() > Duration::from_secs(1));
    crowd.extend((0..24).map(|_| begin()));
    kept.push(site.connect(&server));
    kept.iter_mut().for_each(check_served);
    assert!(total(server, "evicted") > 0);
    drop(crowd);
}

/// The hellos have all come when the server goes on, so that it needs room at once.
fn idle_connections_are_evicted_before_young_handshakes(setup: &Setup) {
    let site = Site::new();
    let server = site.serve_few(setup);
    let mut idle: Vec<_> = (0..ROOM - 4).map(|_| site.connect(&server)).collect();
    idle.iter_mut().for_each(check_served);
    server.signal(Signal::STOP);
    until("it is stopped", || is_stopped(server.id()));
    let begin = |_| {
        let mut client = site.connect(&server);
        let mut hello = Vec::new();
        client.tls().write_tls(&mut hello).unwrap();
        client.send_raw(&hello).unwrap();
        client
    };
    let mut newcomers: Vec<_> = (0..8).map(begin).collect();
    server.signal(Signal::CONT);
    newcomers.iter_mut().for_each(check_served);
    assert!(total(server, "evicted") > 0);
    drop(idle);
}

/// They are more than begin in a round.
fn handshakes_that_wait_when_the_server_stops_are_not_reset(setup: &Setup) {
    const WAITING: usize = 100;
    let site = Site::new();
    let server = site.serve(setup, &["--workers", "1"]);
    let hello = client_hello(&site.clients);
    server.signal(Signal::STOP);
    until("it is stopped", || is_stopped(server.id()));
    let mut crowd: Vec<_> = (0..WAITING).map(|_| server.connect()).collect();
    crowd.iter_mut().for_each(|client| client.send_raw(&hello).unwrap());
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    let stopped = server.wait();
    stopped.check_end();
    assert_eq!(stopped.stats()["total"]["accepted"], WAITING);
    drop(crowd);
}

fn a_client_without_a_certificate_is_refused_where_one_is_asked_for(setup: &Setup) {
    let mut site = Site::new();
    let ca = site.authority.file();
    let server = site.serve(setup, &["--tls-client-ca", ca.to_str().unwrap()]);
    let stranger = Authority::new().issue("stranger", &["stranger"]);
    let known = site.authority.issue("known", &["known"]);
    for (own, is_served) in [(None, false), (Some(&stranger), false), (Some(&known), true)] {
        for version in VERSIONS {
            site.clients = Arc::new(site.authority.clients_with(&[version], own));
            let mut client = site.connect(&server);
            // A client of TLS 1.3 learns it only after its own part of the handshake.
            let sent = client.try_send(request("GET", "/hello.txt", &[]));
            let served = sent.is_ok() && client.try_reply().is_ok_and(|reply| reply.status == 200);
            assert_eq!(served, is_served);
        }
    }
    server.stop_cleanly();
}

fn certificates_are_read_again_and_no_connection_is_dropped(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &["--idle-timeout", "10m"]);
    let mut before = site.connect(&server);
    assert_eq!(before.get("/hello.txt").text(), "hello");
    let shows = |wanted: &Issued| {
        let mut client = site.connect(&server);
        client.handshake().unwrap();
        client.tls().peer_certificates().unwrap()[0] == wanted.certificate
    };
    // The two files do not fit until both are there.
    let renewed = site.authority.issue("server", &NAMES);
    until("the new certificate was shown", || shows(&renewed));
    // Every process has read them once it has answered a question that was asked later.
    server.signal(Signal::USR1);
    until("every loop has answered", || server.stats_so_far().is_some());
    std::fs::write(&renewed.certificate_file, "no certificate").unwrap();
    server.signal(Signal::HUP);
    until("it was said", || server.stderr_so_far().contains("no certificate in PEM"));
    assert!(shows(&renewed));
    assert_eq!(before.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

/// Sets the number of descriptors that a process may have; `None`: as many as this one.
pub(crate) fn limit_descriptors(pid: u32, count: Option<u64>) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: count.or(maximum), maximum };
    prlimit(Pid::from_raw(pid as i32), Resource::Nofile, limit).unwrap();
}

/// Returns the lowest number that no descriptor of a process has.
pub(crate) fn lowest_free(pid: u32) -> u64 {
    let is_free =
        |number: &u64| std::fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_err();
    (0..).find(is_free).unwrap()
}

/// The files do not change any more when they can be read, and the main process has read them.
#[test]
fn a_child_that_could_not_read_the_certificates_reads_them_once_it_can() {
    let site = Site::new();
    let processes = ["--arch", "processes", "--arch-option", "pool=1", "--workers", "1"];
    let options = [&site.issued.options()[..], &processes, &["--stat-page=off"]].concat();
    let server = Server::start(WEIR, &options, &site.root);
    // It is there wholly once it has served.
    site.connect(&server).handshake().unwrap();
    until("the connection is closed", || server.open_connections() == 0);
    let children: Vec<_> = children_of(server.id()).into_iter().flat_map(children_of).collect();
    let [child] = children[..] else { panic!("{children:?}") };
    limit_descriptors(child, Some(lowest_free(child)));
    let renewed = site.authority.issue("server", &NAMES);
    until("it could not read them", || server.stderr_so_far().contains("Too many open files"));
    limit_descriptors(child, None);
    until("the new certificate is shown", || {
        let mut client = site.connect(&server);
        client.handshake().unwrap();
        client.tls().peer_certificates().unwrap()[0] == renewed.certificate
    });
    assert_eq!(server.stderr_so_far().matches("Too many open files").count(), 1);
    server.stop_cleanly();
}

fn a_storm_of_handshakes_is_served_beside_an_open_connection(setup: &Setup) {
    let site = Site::new();
    let server = site.serve(setup, &["--workers", "1"]);
    let mut open = site.connect(&server);
    assert_eq!(open.get("/hello.txt").text(), "hello");
    let mut storm: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for client in &mut storm {
        // New keys for each: nothing is resumed.
        let hello = client_hello(&Arc::new(site.authority.clients(&[&TLS13])));
        client.send_raw(&hello).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(open.get("/hello.txt").text(), "hello");
    }
    drop(storm);
    server.stop_cleanly();
}

fn a_proxy_speaks_tls_with_its_clients(setup: &Setup) {
    let site = Site::new();
    let origin = Origin::echo();
    let server = setup.proxy(&[&origin.url()], &site.issued.options());
    let mut client = site.connect(&server);
    for target in ["/a", "/b"] {
        assert_eq!(client.get(target).text(), format!("GET {target} HTTP/1.1\n"));
    }
    client.send(request("POST", "/c", &["Content-Length: 3"]) + "abc");
    assert_eq!(client.reply().text(), "POST /c HTTP/1.1\nabc");
    for received in origin.received() {
        assert_eq!(received.fields("X-Forwarded-Proto"), ["https"]);
        assert!(received.fields("Forwarded")[0].contains("proto=https"));
    }
    server.stop_cleanly();
}

fn a_large_reply_and_a_large_request_pass_a_proxy(setup: &Setup) {
    let site = Site::new();
    let body = weir_tests::files::noise(7, 3 << 20);
    let content = body.clone();
    let origin = Origin::start(move |received| match received.body.len() {
        0 => reply(&content),
        _ => reply(&received.body),
    });
    let server = setup.proxy(&[&origin.url()], &site.issued.options());
    let narrow = Client::connect_narrow(server.address());
    let mut client = narrow.with_tls(weir_tests::tls::client(&site.clients, NAMES[0]));
    assert_same(&client.get("/").body, &body, "the reply");
    let length = format!("Content-Length: {}", body.len());
    client.send([request("POST", "/", &[&length]).as_bytes(), &body].concat());
    assert_same(&client.reply().body, &body, "the request");
    server.stop_cleanly();
}

fn a_client_that_says_its_end_behind_two_requests_gets_both_replies_and_the_end(setup: &Setup) {
    let site = Site::new();
    let (origin, gate) = gated("", b"held");
    let patient = ["--idle-timeout", "10m"];
    let server = setup.proxy(&[&origin.url()], &[&site.issued.options()[..], &patient].concat());
    let bytes_in = || server.new_report()["total"]["bytes_in"].as_u64().unwrap();
    let get = request("GET", "/", &[]);
    // A client that ends its side long after its request counts as gone: on a busy machine, again.
    until("both are answered, and the end is said", || {
        gate.close();
        let (asked, before) = (origin.received().len(), bytes_in());
        let mut client = site.connect(&server);
        client.send(&get);
        until("the first is at the origin", || origin.received().len() > asked);
        send_last(&mut client, &get);
        until("both have been read", || bytes_in() == before + 2 * get.len() as u64);
        gate.open();
        let replies = [client.try_reply(), client.try_reply()];
        replies.iter().flatten().filter(|reply| reply.text() == "held").count() == 2
            && client.rest().is_ok_and(|rest| rest.is_empty())
    });
    server.stop_cleanly();
}

fn what_breaks_the_rules_while_a_request_is_forwarded_is_counted_as_that(setup: &Setup) {
    let site = Site::new();
    let (origin, gate) = gated("", b"held");
    let server = setup.proxy(&[&origin.url()], &site.issued.options());
    let begun = |count: u64| {
        until("it is forwarded", || server.new_report()["total"]["upstream_requests"] == count);
    };
    let mut waiting = site.connect(&server);
    waiting.send(request("GET", "/", &[]));
    begun(1);
    let mut sending = site.connect(&server);
    sending.send(request("POST", "/", &["Content-Length: 4"]) + "ha");
    begun(2);
    for mut client in [waiting, sending] {
        client.send_raw(&false_record()).unwrap();
        assert!(client.ends());
    }
    gate.open();
    assert_eq!(total(server, "end_tls"), 2);
}

#[test]
fn a_plain_address_redirects_to_the_one_with_tls_which_says_to_stay() {
    let site = Site::new();
    let options = site.issued.options();
    let more = ["--listen", "127.0.0.1:0", "--redirect-https", "--hsts", "31536000"];
    let server = Server::start(WEIR, &[&options[..], &more].concat(), &site.root);
    let [tls, plain] = &server.addresses[..] else { panic!("two addresses") };
    let mut client = Client::connect(plain);
    let redirected = client.get("/a%20b?c");
    let weir_tests::Address::Tcp(address) = tls else { panic!("a TCP address") };
    let wanted = format!("https://test.example:{}/a%20b?c", address.port());
    assert_eq!((redirected.status, redirected.expect_field("Location")), (308, &*wanted));
    assert_eq!(redirected.field("Strict-Transport-Security"), None);
    // That of a whole server has no path (RFC 9112 section 3.2.4).
    client.send(request("OPTIONS", "*", &[]));
    let whole = format!("https://test.example:{}", address.port());
    assert_eq!(client.reply().expect_field("Location"), whole);
    let mut client = Client::connect_tls(tls, &site.clients, NAMES[0]);
    assert_eq!(client.get("https://test.example/hello.txt").text(), "hello");
    let served = client.get("/hello.txt");
    assert_eq!(served.text(), "hello");
    assert_eq!(served.field("Strict-Transport-Security"), Some("max-age=31536000"));
    server.stop_cleanly();
}

#[test]
fn what_has_come_to_a_trusted_proxy_by_tls_is_not_redirected() {
    let site = Site::new();
    let options = site.issued.options();
    let more = ["--listen", "127.0.0.1:0", "--redirect-https", "--trusted-proxy", "127.0.0.0/8"];
    let server = Server::start(WEIR, &[&options[..], &more].concat(), &site.root);
    let mut client = Client::connect(&server.addresses[1]);
    assert_eq!(client.get("https://test.example/hello.txt").text(), "hello");
    assert_eq!(client.get("http://test.example/hello.txt").status, 308);
    server.stop_cleanly();
}

#[test]
fn what_does_not_fit_together_is_refused_in_a_sentence() {
    let site = Site::new();
    let other = site.authority.issue("other", &NAMES);
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (certificate, key) = (path(&site.issued.certificate_file), path(&site.issued.key_file));
    let (other_key, https) = (path(&other.key_file), "https://127.0.0.1:0".to_owned());
    let ring = ["--arch", "ring", "--tls-self-signed"];
    for (options, wanted) in [
        (vec!["--listen", &https], "--tls-cert"),
        (vec!["--tls-self-signed"], "--listen https://"),
        (vec!["--hsts", "1"], "--listen https://"),
        (vec!["--listen", &https, "--tls-cert", &certificate], "1 and 0"),
        (vec!["--listen", &https, "--tls-cert", &key, "--tls-key", &key], "no certificate"),
        (
            vec!["--listen", &https, "--tls-cert", &certificate, "--tls-key", &certificate],
            "no private key",
        ),
        (
            vec!["--listen", &https, "--tls-cert", &certificate, "--tls-key", &other_key],
            "is not the key of",
        ),
        (vec!["--listen", &https, "--tls-cert", "/nowhere", "--tls-key", &key], "No such file"),
        ([&["--listen", https.as_str()], &ring[..]].concat(), "--arch ring speaks no TLS"),
        (vec!["--admin", &https], "--admin speaks no TLS"),
    ] {
        let mut command = std::process::Command::new(WEIR);
        let stopped =
            weir_tests::server::run(command.arg("serve").arg(site.root.path()).args(&options));
        assert_eq!(stopped.status.code(), Some(2), "{options:?}: {}", stopped.stderr);
        assert_eq!(stopped.stderr.trim_end().lines().count(), 1, "{}", stopped.stderr);
        assert!(stopped.stderr.contains(wanted), "{options:?}: {}", stopped.stderr);
    }
}
