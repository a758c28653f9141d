//! Upstreams and routes from the configuration file, and the health of their servers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::process::Signal;
use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::origin::{Gate, Received, by_hand, reply};
use weir_tests::server::run;
use weir_tests::setups::forwarders;
use weir_tests::wait::until;
use weir_tests::{Origin, Root, Server, Setup, request};

use crate::WEIR;
use crate::admin::{ADMIN, admin, ask, metric};
use crate::proxy_cache::reply_with;

/// Health checks that come soon.
const CHECKS: [&str; 6] =
    ["--health-check", "/health", "--health-interval", "20ms", "--health-timeout", "200ms"];

fn write_config(root: &Root, text: &str) -> PathBuf {
    let config = root.outside().join("weir.toml");
    fs::write(&config, text).unwrap();
    config
}

/// An origin that says who it is, and is well as long as the flag says so.
fn origin(name: &'static str) -> (Origin, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&is_well);
    let origin = Origin::start(move |received| {
        let is_check = received.line().starts_with("GET /health ");
        if is_check && !asked.load(Ordering::Relaxed) {
            return b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        reply(name.as_bytes())
    });
    (origin, is_well)
}

#[test]
fn upstreams_and_routes_of_the_file_have_options_of_their_own() {
    let (app, search) = (Origin::echo(), Origin::echo());
    let root = Root::with_hello();
    let config = write_config(
        &root,
        &format!(
            "connect-timeout = '2s'\n\
             [[upstream]]\nname = 'app'\nservers = ['{}']\nupstream-host = 'server'\n\
             [[upstream]]\nname = 'search'\nservers = '{}'\nmax-in-flight = 3\n\
             [[route]]\npath = '/api'\nupstream = 'app'\n\
             [[route]]\npath = '/api/search'\nupstream = 'search'\n\
             [[route]]\nhost = 'b.example'\nupstream = 'search'\n\
             [[route]]\nhost = 'b.example'\npath = '/hello.txt'\nupstream = 'files'\n",
            app.url(),
            search.url()
        ),
    );
    let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
    assert_eq!(server.get("/hello.txt").text(), "hello");
    assert_eq!(server.get("/api/x").text(), "GET /api/x HTTP/1.1\n");
    assert_eq!(server.get("/api/search?q").text(), "GET /api/search?q HTTP/1.1\n");
    let mut client = server.connect();
    client.send("GET /any HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_eq!(client.reply().text(), "GET /any HTTP/1.1\n");
    client.send("GET /hello.txt HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_eq!(client.reply().text(), "hello");
    assert_eq!(app.received()[0].fields("host"), [app.address().to_string()]);
    assert_eq!(search.received()[0].fields("host"), ["test.example"]);
    assert_eq!((app.received().len(), search.received().len()), (1, 2));
}

#[test]
fn a_wrong_table_is_told_with_its_place() {
    let root = Root::with_hello();
    let app = "[[upstream]]\nname = 'app'\nservers = ['http://127.0.0.1:1']\n";
    let route = "[[route]]\nupstream = 'app'\n";
    for (text, says) in [
        (format!("{app}max-in-fligth = 3\n{route}"), "line 4, column 1: there is no option"),
        (format!("{app}queue-target = 'x'\n{route}"), "line 4, column 16: invalid value 'x'"),
        (format!("{app}{app}{route}"), "line 5, column 8: the name app is taken"),
        (format!("{app}[[route]]\nupstream = 'b'\n"), "line 5, column 12: there is no upstream b"),
        (app.replace("http:", "ftp:") + route, "line 3, column 12: ftp://127.0.0.1:1 is none of"),
        (app.to_owned(), "upstream app: no route leads to it"),
    ] {
        let config = write_config(&root, &text);
        let options = ["serve", ".", "--config", config.to_str().unwrap()];
        let stopped = run(Command::new(WEIR).args(options));
        assert_eq!(stopped.status.code(), Some(2), "{text}");
        assert!(stopped.stderr.contains(says), "{text}{}", stopped.stderr);
        assert_eq!(stopped.stderr.trim().lines().count(), 1, "{}", stopped.stderr);
    }
}

#[test]
fn a_server_that_fails_its_checks_gets_no_requests() {
    let ((one, one_is_well), (two, _)) = (origin("one"), origin("two"));
    let server = Server::proxy(WEIR, &[&one.url(), &two.url()], &CHECKS);
    let names = || -> Vec<String> { (0..8).map(|_| server.get("/").text()).collect() };
    let both = names();
    assert!(both.iter().any(|name| name == "one") && both.iter().any(|name| name == "two"));
    // A server that fails its first check is down at once.
    let is_check = |line: &str| line.starts_with("GET /health ");
    until("it is checked twice", || {
        one.received().iter().filter(|received| is_check(received.line())).count() > 1
    });
    one_is_well.store(false, Ordering::Relaxed);
    until("it is down", || server.stderr_so_far().contains("is down"));
    assert!(names().iter().all(|name| name == "two"));
    one_is_well.store(true, Ordering::Relaxed);
    until("it is up again", || server.stderr_so_far().contains("is up again"));
    assert!(names().iter().any(|name| name == "one"));
    let stopped = server.stop_cleanly();
    let stats = stopped.stats()["total"].clone();
    let count = |name: &str| stats[name].as_u64().unwrap();
    assert!(count("upstream_checks") > count("upstream_checks_failed"));
    assert!(count("upstream_checks_failed") >= 3);
    assert_eq!((count("upstream_servers_down"), count("upstream_failed")), (0, 0));
}

#[test]
fn a_server_that_dies_or_recovers_is_told_though_no_request_comes() {
    for setup in forwarders(WEIR) {
        let (app, is_well) = origin("app");
        let server = setup.proxy(&[&app.url()], &[&CHECKS[..], &ADMIN].concat());
        let address = admin(&server);
        let down = || {
            let text = ask(&address, "/metrics").text();
            metric(&text, "weir_upstream_servers_down{upstream=\"default\"}")
        };
        until("none is down", || down() == Some(0.0));
        is_well.store(false, Ordering::Relaxed);
        until("it is down", || server.stderr_so_far().contains("is down"));
        until("it is told as down", || down() == Some(1.0));
        is_well.store(true, Ordering::Relaxed);
        until("it is up again", || server.stderr_so_far().contains("is up again"));
        until("it is told as up", || down() == Some(0.0));
        let stats = server.stop_cleanly().stats()["total"].clone();
        assert_eq!(stats["upstream_requests"], 0, "{}", setup.name);
    }
}

/// The server has a Unix socket: nobody else can get its address while it is away.
#[test]
fn a_server_that_has_come_back_is_used_again() {
    let (root, other) = (Root::with_hello(), Origin::echo());
    let listen = format!("unix:{}", root.outside().join("one.socket").display());
    let start = || Server::start(WEIR, &["--listen", &listen], &root);
    let mut one = start();
    let server = Server::proxy(WEIR, &[&listen, &other.url()], &[]);
    let is_one = || server.get("/hello.txt").text() == "hello";
    until("it is used", is_one);
    one.signal(Signal::KILL);
    until("it was killed", || one.has_ended());
    until("its failure is told", || {
        assert_eq!(server.get("/hello.txt").status, 200);
        server.stderr_so_far().contains("has failed, and is passed over")
    });
    let _one = start();
    until("it is used again", is_one);
    until("its return is told", || server.stderr_so_far().contains("answers again"));
}

#[test]
fn an_absent_server_is_tried_as_often_as_ever() {
    let is_meant = |setup: &&Setup| ["loop", "ring"].contains(&setup.arch.spelling);
    for setup in forwarders(WEIR).iter().filter(is_meant) {
        let (other, absent) = (Origin::echo(), Faulty::start(Behaviour::Refuse));
        let absent = format!("http://{}", absent.address());
        let server = setup.proxy(&[&absent, &other.url()], &["--workers", "1"]);
        let mut client = server.connect();
        // At 0, 1, 3, 7, 15 and 31 seconds, were the pauses to become longer.
        until("it was tried ten times", || {
            assert_eq!(client.get("/").status, 200);
            let connects = server.new_report()["total"]["upstream_connects"].as_u64().unwrap();
            connects.saturating_sub(other.connections() as u64) >= 10
        });
    }
}

/// A connection for each request finds a process that has time for it; see docs/proxy.md.
#[test]
fn a_server_that_takes_long_for_a_reply_has_a_connection_for_each_request() {
    let is_meant = |setup: &&Setup| ["loop", "ring"].contains(&setup.arch.spelling);
    for setup in forwarders(WEIR).iter().filter(is_meant) {
        let origin = Origin::start(|_| {
            thread::sleep(Duration::from_millis(100));
            reply(b"slow")
        });
        let server = setup.proxy(&[&origin.url()], &["--workers", "1", "--keep-idle", "auto"]);
        let mut client = server.connect();
        for _ in 0..10 {
            assert_eq!(client.get("/").text(), "slow");
        }
        // The first says nothing: nobody knew.
        let is_told = |received: &Received| received.fields("Connection") == ["close"];
        let told: Vec<bool> = origin.received().iter().map(is_told).collect();
        assert_eq!(told, [&[false][..], &[true; 9]].concat());
        assert_eq!(origin.connections(), 10);
    }
}

/// The first reply says that it is a quick one.
#[test]
fn a_server_that_takes_long_for_a_validation_has_a_connection_for_each_request() {
    let is_meant = |setup: &&Setup| ["loop", "ring"].contains(&setup.arch.spelling);
    for setup in forwarders(WEIR).iter().filter(is_meant) {
        let origin = Origin::start(|received| {
            if received.fields("If-None-Match").is_empty() {
                return reply_with("Cache-Control: max-age=0\r\nETag: \"v\"\r\n", b"same");
            }
            thread::sleep(Duration::from_millis(20));
            b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\n\r\n".to_vec()
        });
        let options = ["--workers", "1", "--keep-idle", "auto", "--cache", "1M"];
        let server = setup.proxy(&[&origin.url()], &options);
        let mut client = server.connect();
        until("no connection is kept", || {
            assert_eq!(client.get("/").text(), "same", "{}", setup.name);
            origin.received().last().is_some_and(|last| last.fields("Connection") == ["close"])
        });
    }
}

/// Starts a server of one process, which serves a connection to its end before it accepts another:
/// it answers the first `quick` requests at once and each other one after 20 ms, `count` in all.
fn one_process(quick: usize, count: usize) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let mut served = 0;
        while served < count {
            let mut conn = BufReader::new(listener.accept().unwrap().0);
            loop {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && conn.read_line(&mut head).unwrap() > 0 {}
                if head.is_empty() {
                    break;
                }
                thread::sleep(Duration::from_millis(if served < quick { 0 } else { 20 }));
                served += 1;
                conn.get_mut().write_all(&reply(b"served")).unwrap();
                if head.to_ascii_lowercase().contains("connection: close") {
                    break;
                }
            }
        }
    };
    (address, thread::spawn(serve))
}

/// A connection that was kept while it seemed worth it would have the only process wait for it.
#[test]
fn connections_kept_before_are_closed_once_none_are_kept_any_more() {
    let is_meant = |setup: &&Setup| ["loop", "ring"].contains(&setup.arch.spelling);
    for setup in forwarders(WEIR).iter().filter(is_meant) {
        // On a busy machine a quick reply may seem slow, and so does the mean for a while.
        let (address, origin) = one_process(100, 160);
        let url = format!("http://{address}");
        let server = setup.proxy(&[&url], &["--workers", "1", "--keep-idle", "auto"]);
        let mut client = server.connect();
        for nth in 0..160 {
            assert_eq!(client.get("/").text(), "served", "{} {nth}", setup.name);
        }
        let stats = server.stop_cleanly().stats()["total"].clone();
        assert!(stats["upstream_reused"].as_u64() > Some(0), "{}", setup.name);
        assert!(stats["upstream_connects"].as_u64() > Some(10), "{}", setup.name);
        origin.join().unwrap();
    }
}

#[test]
fn a_server_that_lets_connects_hang_costs_no_reply_where_there_is_another() {
    for setup in forwarders(WEIR) {
        let (other, hangs) = (Origin::echo(), Faulty::start(Behaviour::NeverAccepts));
        let hangs = format!("http://{}", hangs.address());
        let options = ["--workers", "1", "--connect-timeout", "300ms"];
        let server = setup.proxy(&[&hangs, &other.url()], &options);
        let mut client = server.connect();
        for nth in 0..4 {
            assert_eq!(client.get(&format!("/{nth}")).status, 200, "{}", setup.name);
        }
        client.send(request("POST", "/posted", &["Content-Length: 7"]));
        client.send("content");
        assert_eq!(client.reply().text(), "POST /posted HTTP/1.1\ncontent", "{}", setup.name);
        drop(client);
        let stats = server.stop_cleanly().stats()["total"].clone();
        assert_eq!(stats["upstream_timeouts"], 0, "{}", setup.name);
        assert!(stats["upstream_repeated"].as_u64().unwrap() > 0, "{}", setup.name);
    }
}

/// Starts a server that answers the first request on its first connection, and resets that at the
/// second one. From then on a connect to it hangs, for as long as what is returned lives.
fn full_after_one_reply() -> (SocketAddr, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Its queue has room for one connection.
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let (lives, ends) = mpsc::channel();
    thread::spawn(move || {
        let mut conn = BufReader::new(listener.accept().unwrap().0);
        let skip_head = |conn: &mut BufReader<TcpStream>| {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && conn.read_line(&mut head).unwrap() > 0 {}
        };
        skip_head(&mut conn);
        conn.get_mut().write_all(&reply(b"one")).unwrap();
        skip_head(&mut conn);
        let hang = Duration::from_millis(100);
        let connect = || TcpStream::connect_timeout(&address, hang).ok();
        let _held: Vec<_> = std::iter::from_fn(connect).collect();
        sockopt::set_socket_linger(conn.get_ref(), Some(Duration::ZERO)).unwrap();
        drop(conn);
        let _ = ends.recv();
    });
    (address, lives)
}

#[test]
fn a_connect_that_hangs_after_a_kept_connection_has_ended_costs_no_reply_either() {
    for setup in forwarders(WEIR) {
        let gate = Gate::default();
        let at_other = gate.clone();
        let other = Origin::start(move |received| {
            if received.line().starts_with("GET /held ") {
                at_other.pass();
            }
            reply(b"other")
        });
        let (address, _lives) = full_after_one_reply();
        let one = format!("http://{address}");
        let options = ["--workers", "1", "--max-in-flight", "inf", "--connect-timeout", "300ms"];
        let server = setup.proxy(&[&one, &other.url()], &options);
        let mut client = server.connect();
        assert_eq!(client.get("/").text(), "one", "{}", setup.name);
        // The other is busy from now on, so that the first is asked, and asked again.
        let mut held = server.connect();
        held.send(request("GET", "/held", &[]));
        until("it is busy", || !other.received().is_empty());
        assert_eq!(client.get("/").text(), "other", "{}", setup.name);
        gate.open();
        assert_eq!(held.reply().text(), "other", "{}", setup.name);
        let stats = server.stop_cleanly().stats()["total"].clone();
        assert_eq!(stats["upstream_repeated"], 2, "{}", setup.name);
    }
}

/// Starts a server that passes one check and resets the first other request. From then on a connect
/// to it hangs for longer than a trial lasts, and then it answers. Returns its address, and what
/// tells that it was checked.
fn full_for_a_while() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Its queue has room for one connection.
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let (checked, is_checked) = mpsc::channel();
    let next = move || {
        let mut conn = BufReader::new(listener.accept().unwrap().0);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && conn.read_line(&mut head).unwrap_or(0) > 0 {}
        (conn.into_inner(), head)
    };
    thread::spawn(move || {
        next().0.write_all(&reply(b"well")).unwrap();
        checked.send(()).unwrap();
        let (conn, _) = next();
        let hang = Duration::from_millis(100);
        let connect = || TcpStream::connect_timeout(&address, hang).ok();
        let held: Vec<_> = std::iter::from_fn(connect).collect();
        sockopt::set_socket_linger(&conn, Some(Duration::ZERO)).unwrap();
        drop(conn);
        thread::sleep(Duration::from_millis(1500));
        drop(held);
        loop {
            let (mut conn, head) = next();
            if !head.is_empty() {
                let _ = conn.write_all(&reply(b"late"));
            }
        }
    });
    (address, is_checked)
}

/// A trial is cut short for the sake of another server, and the only one that is up has none.
#[test]
fn a_connect_to_the_only_server_that_is_up_may_take_as_long_as_any() {
    let is_meant = |setup: &&Setup| ["loop", "ring"].contains(&setup.arch.spelling);
    for setup in forwarders(WEIR).iter().filter(is_meant) {
        let absent = Faulty::start(Behaviour::Refuse);
        let (one, is_checked) = full_for_a_while();
        let urls = [absent.address(), one].map(|address| format!("http://{address}"));
        let checked = ["--health-check", "/health", "--health-interval", "1h"];
        let options = [&checked[..], &["--workers", "1", "--connect-timeout", "1h"]].concat();
        let server = setup.proxy(&urls.each_ref().map(String::as_str), &options);
        is_checked.recv().unwrap();
        until("the other is down", || server.stderr_so_far().contains("is down"));
        assert_eq!(server.get("/").status, 502, "{}", setup.name);
        assert_eq!(server.get("/").text(), "late", "{}", setup.name);
    }
}

/// Starts an origin that answers with streams of events without an end, and resets `resets`
/// connections before. Returns its URL, and the number of streams begun.
fn streams(resets: usize) -> (String, Arc<AtomicUsize>) {
    let (asked, begun) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&begun);
    let address = by_hand(move |mut stream, _| {
        if asked.fetch_add(1, Ordering::Relaxed) < resets {
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            return;
        }
        counted.fetch_add(1, Ordering::Relaxed);
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: a\n");
        // Until its client has gone.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    (format!("http://{address}"), begun)
}

#[test]
fn a_server_of_streams_without_an_end_is_used_again_after_a_failure() {
    for setup in forwarders(WEIR).iter().filter(|setup| setup.at_once.is_none()) {
        let ((one, begun), (other, _)) = (streams(1), streams(0));
        let server = setup.proxy(&[&one, &other], &["--workers", "1"]);
        let listen = || {
            let mut client = server.connect();
            client.send(request("GET", "/", &["Accept: text/event-stream"]));
            let status = client.head().unwrap().status;
            (client, status)
        };
        assert_eq!(listen().1, 502, "{}", setup.name);
        until("it is tried again", || {
            listen().0.reset();
            begun.load(Ordering::Relaxed) > 0
        });
        let before = begun.load(Ordering::Relaxed);
        let listening: Vec<_> = (0..20).map(|_| listen()).collect();
        assert!(listening.iter().all(|(_, status)| *status == 200), "{}", setup.name);
        // The one with the fewest is taken: half of them, or more while the other has some of those
        // that have gone. As a trial it would be given one a second.
        let more = begun.load(Ordering::Relaxed) - before;
        assert!(more >= 9, "{}: {more}", setup.name);
    }
}

#[test]
fn the_only_server_is_not_said_to_be_passed_over() {
    let absent = Faulty::start(Behaviour::Refuse);
    let url = format!("http://{}", absent.address());
    let server = Server::proxy(WEIR, &[&url], &[]);
    assert_eq!(server.get("/").status, 502);
    until("its failure is told", || {
        server.stderr_so_far().contains(&format!("{url} has failed\n"))
    });
    let stopped = server.stop_cleanly();
    assert!(!stopped.stderr.contains("passed over"), "{}", stopped.stderr);
}

#[test]
fn a_server_that_sends_no_http_is_passed_over() {
    for options in [&[][..], &["--cache", "1M"]] {
        let (bad, (good, _)) = (Faulty::start(Behaviour::Garbage), origin("good"));
        let url = format!("http://{}", bad.address());
        let server = Server::proxy(WEIR, &[&url, &good.url()], options);
        let mut client = server.connect();
        let replies: Vec<_> = (0..40).map(|nth| client.get(&format!("/{nth}"))).collect();
        let failed = replies.iter().filter(|reply| reply.status == 502).count();
        // The first, and a trial after one second, three and seven. It is half of them otherwise.
        assert!((1..=5).contains(&failed), "{failed}");
        assert!(replies.iter().all(|reply| reply.status == 502 || reply.text() == "good"));
        assert_eq!(server.stop_cleanly().stats()["total"]["upstream_failed"], failed as u64);
    }
}

#[test]
fn requests_are_answered_at_once_when_every_server_is_down() {
    let (app, is_well) = origin("app");
    let root = Root::with_hello();
    let upstream = format!("app={}", app.url());
    let options = [&["--upstream", &upstream, "--route", "/app=app"], &CHECKS[..]].concat();
    let server = Server::start(WEIR, &options, &root);
    assert_eq!(server.get("/app").text(), "app");
    is_well.store(false, Ordering::Relaxed);
    until("it is down", || server.stderr_so_far().contains("is down"));
    let mut client = server.connect();
    let refused = client.get("/app");
    assert_eq!(refused.status, 502);
    assert_eq!(refused.field("Proxy-Status"), Some("weir; error=destination_unavailable"));
    assert_eq!(client.get("/hello.txt").text(), "hello");
    let asked = app.received().iter().filter(|one| one.line().starts_with("GET /app")).count();
    assert_eq!(asked, 1);
    is_well.store(true, Ordering::Relaxed);
    until("it is up again", || server.stderr_so_far().contains("is up again"));
    assert_eq!(client.get("/app").text(), "app");
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["upstream_unavailable"], 1);
}

#[test]
fn a_silent_server_delays_no_check_of_another() {
    let silent = Faulty::start(Behaviour::Silent);
    let (gone, never) = (Faulty::start(Behaviour::Refuse), Faulty::start(Behaviour::NeverAccepts));
    let (well, _) = origin("well");
    let addresses = [silent.address(), gone.address(), never.address(), well.address()];
    let urls = addresses.map(|address| format!("http://{address}"));
    let server = Server::proxy(WEIR, &urls.each_ref().map(String::as_str), &CHECKS);
    until("three are down", || server.stderr_so_far().matches(" is down").count() == 3);
    for _ in 0..8 {
        assert_eq!(server.get("/").text(), "well");
    }
}

#[test]
fn a_slow_upstream_stops_neither_files_nor_other_routes() {
    let (slow, quick) = (Faulty::start(Behaviour::Silent), Origin::echo());
    let root = Root::with_hello();
    let config = write_config(
        &root,
        &format!(
            "workers = 1\n\
             [[upstream]]\nname = 'slow'\nservers = 'http://{}'\nmax-in-flight = 2\n\
             queue-target = '20s'\n\
             [[upstream]]\nname = 'quick'\nservers = '{}'\n\
             [[route]]\npath = '/slow'\nupstream = 'slow'\n\
             [[route]]\npath = '/quick'\nupstream = 'quick'\n",
            slow.address(),
            quick.url()
        ),
    );
    let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let mut client = server.connect();
            client.send(request("GET", "/slow", &[]));
            client
        })
        .collect();
    for nth in 0..20 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
        let target = format!("/quick/{nth}");
        assert_eq!(server.get(&target).text(), format!("GET {target} HTTP/1.1\n"));
    }
    // They have waited, and do not end their sides with their requests.
    thread::sleep(Duration::from_millis(150));
    drop(waiting);
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["upstream_departed"], 50);
}
