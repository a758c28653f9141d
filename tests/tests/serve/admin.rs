//! The admin address, as the programs of an operator see it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use weir_tests::family::family_of;
use weir_tests::wait::until;
use weir_tests::{Address, Client, Reply, Root, Server, Setup, Stopped, request, suite};

use crate::WEIR;
use crate::succession::{stop, upgrade};

suite! {
    every_architecture:
    the_metrics_are_the_statistics,
    connections_are_open_until_they_are_closed,
}

pub(crate) const ADMIN: [&str; 2] = ["--admin", "127.0.0.1:0"];

/// Number of connections that it keeps open.
const OPEN_MAX: usize = 32;

const HEALTHZ: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns the admin address, which the server says when it starts.
pub(crate) fn admin(server: &Server) -> Address {
    let prefix = "the admin address is http://";
    let find = || {
        let said = server.stderr_so_far();
        let (address, _) = said.split(prefix).nth(1)?.split_once('\n')?;
        Some(address.to_owned())
    };
    until("the admin address is said", || find().is_some());
    Address::Tcp(find().unwrap().parse().unwrap())
}

pub(crate) fn ask(address: &Address, path: &str) -> Reply {
    let mut client = Client::connect(address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    client.reply()
}

fn is_healthy(address: &Address) -> bool {
    ask(address, "/healthz").status == 200
}

/// Runs a server that ends at once.
fn refused(options: &[&str]) -> Stopped {
    let root = Root::with_hello();
    let mut command = Command::new(WEIR);
    command.arg("serve").arg(root.path()).args(["--listen", "127.0.0.1:0"]).args(options);
    let stopped = weir_tests::server::run(&mut command);
    assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
    assert_eq!((stopped.stdout.as_str(), stopped.stderr.lines().count()), ("", 1));
    stopped
}

/// Returns the value of a metric.
pub(crate) fn metric(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

fn the_metrics_are_the_statistics(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &ADMIN);
    let address = admin(&server);
    for _ in 0..3 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
        assert_eq!(server.get("/none").status, 404);
    }
    let text = || ask(&address, "/metrics").text();
    let counted = |name: &str| metric(&text(), name).expect(name);
    until("all replies are counted", || counted("weir_replies_total") == 6.0);
    assert_eq!(counted("weir_responses_total{code=\"2xx\"}"), 3.0);
    assert_eq!(counted("weir_responses_total{code=\"4xx\"}"), 3.0);
    assert_eq!(counted("weir_refusals_total{reason=\"syn_filter\"}"), 0.0);
    assert!(counted("weir_connections_closed_total{reason=\"finished\"}") >= 0.0);
    assert!(counted("process_resident_memory_bytes") > 1e6);
    let status = ask(&address, "/status.json").text();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["total"]["replies"], &status["state"]), (&6.into(), &"ready".into()));
    until("a second was measured", || {
        let status = ask(&address, "/status.json?since=0").text();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let is_shown = status["now"]["total"].is_object() && status["condition"] == "calm";
        is_shown && status["history"]["next"].as_u64() >= Some(1) && status.get("total").is_none()
    });
    server.stop_cleanly();
}

fn connections_are_open_until_they_are_closed(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &ADMIN);
    let address = admin(&server);
    let open = || metric(&ask(&address, "/metrics").text(), "weir_open_connections");
    assert_eq!(server.get("/hello.txt").text(), "hello");
    let mut kept = server.connect();
    assert_eq!(kept.get("/hello.txt").text(), "hello");
    until("one connection is open", || open() == Some(1.0));
    drop(kept);
    until("none is open", || open() == Some(0.0));
    server.stop_cleanly();
}

#[test]
fn a_server_that_stops_is_healthy_and_not_ready() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &[&ADMIN[..], &["--drain-timeout", "20s"]].concat(), &root);
    let address = admin(&server);
    assert_eq!(ask(&address, "/readyz").status, 200);
    // A request that is not whole keeps it from ending.
    let mut slow = server.connect();
    slow.send("GET /hello.txt HTTP/1.1\r\n");
    until("the connection is open", || server.open_connections() == 1);
    server.signal(rustix::process::Signal::TERM);
    until("it is not ready", || ask(&address, "/readyz").status == 503);
    assert_eq!(ask(&address, "/healthz").status, 200);
    slow.send("Host: test.example\r\n\r\n");
    assert_eq!(slow.reply().text(), "hello");
    server.wait().check_end();
}

#[test]
fn a_probe_that_an_upgrade_overtakes_finds_a_server_that_is_ready() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let mut probe = Client::connect(&admin(&server));
    let (first, rest) = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n".split_at(1);
    probe.send(first);
    upgrade(&server, 0);
    probe.send(rest);
    let reply = probe.reply();
    assert_eq!((reply.status, reply.text()), (200, "ready\n".into()));
    stop(server, "");
}

#[test]
fn a_name_that_leads_to_loopback_is_not_answered() {
    let root = Root::with_hello();
    for bound in ["127.0.0.1:0", "0.0.0.0:0"] {
        let server = Server::start(WEIR, &["--admin", bound], &root);
        let Address::Tcp(address) = admin(&server) else { panic!("a TCP address") };
        let loopback = SocketAddr::from(([127, 0, 0, 1], address.port()));
        let mut client = Client::connect(&Address::Tcp(loopback));
        client.send(request("GET", "/metrics", &[]));
        assert_eq!(client.reply().status, 421, "bound to {bound}");
    }
}

#[test]
fn the_live_page_may_run_its_own_script_and_nothing_else() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let address = admin(&server);
    let page = ask(&address, "/");
    assert_eq!(page.expect_field("Content-Type"), "text/html; charset=utf-8");
    assert_eq!(page.expect_field("Cache-Control"), "no-store");
    assert_eq!(page.expect_field("X-Content-Type-Options"), "nosniff");
    let policy = page.expect_field("Content-Security-Policy").to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
    assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
    let nonce = policy.split('\'').find_map(|word| word.strip_prefix("nonce-")).unwrap();
    assert_eq!(page.text().matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    let other = ask(&address, "/").expect_field("Content-Security-Policy").to_owned();
    assert_ne!(other, policy, "a nonce is of one reply");
}

#[test]
fn silent_connections_do_not_hold_up_others() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let address = admin(&server);
    let mut silent: Vec<_> = (0..=OPEN_MAX).map(|_| Client::connect(&address)).collect();
    assert!(silent.remove(0).is_closed(), "the oldest has made room");
    // Room for the one that asks: it would else close another, or none if it has done by then.
    drop(silent.remove(0));
    assert!(is_healthy(&address));
    for client in &mut silent {
        client.send(HEALTHZ);
        assert_eq!(client.reply().status, 200, "it was open all the time");
    }
}

#[test]
fn a_client_that_reads_a_byte_at_a_time_does_not_hold_up_others() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let address = admin(&server);
    let mut slow = Client::connect_narrow(&address);
    slow.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for _ in 0..20 {
        assert!(slow.read_slowly(1, 1, Duration::ZERO));
        assert!(is_healthy(&address));
    }
    assert!(slow.reply().text().contains("weir_build_info"), "it has the whole in the end");
}

#[test]
fn a_head_has_a_deadline_that_no_byte_extends() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let address = admin(&server);
    let mut silent = Client::connect(&address);
    let mut slow = Client::connect(&address);
    let head = format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(200));
    assert!(!slow.trickle(head.as_bytes(), Duration::from_millis(100)));
    assert!(silent.is_closed() && is_healthy(&address));
}

#[test]
fn a_large_request_is_read_to_its_end_so_that_its_refusal_arrives() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let address = admin(&server);
    let megabytes = "x".repeat(8 << 20);
    let length = megabytes.len();
    let post = "POST /metrics HTTP/1.1\r\nHost: localhost\r\n";
    for (request, status) in [
        (format!("{post}Content-Length: {length}\r\n\r\n{megabytes}"), 405),
        (format!("{post}X: {megabytes}\r\n\r\n"), 431),
        (format!("GET /{megabytes} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 414),
        (format!("BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n{megabytes}"), 501),
    ] {
        let mut client = Client::connect(&address);
        client.send(request);
        let reply = client.reply();
        assert_eq!((reply.status, reply.field("Connection")), (status, Some("close")));
        assert_eq!(reply.field("Allow"), (status == 405).then_some("GET, HEAD"));
        assert!(httpdate::parse_http_date(reply.expect_field("Date")).is_ok());
        client.finish_sending();
        assert!(client.is_closed());
    }
}

#[test]
fn a_server_that_publishes_no_file_is_observed_all_the_same() {
    let script = "WEIR_RUN_DIR=/proc/none exec \"$@\"";
    for arch in ["loop", "processes"] {
        let listen = ["--listen", "127.0.0.1:0", "--arch", arch];
        let words = [&[WEIR, "serve", "."][..], &listen, &ADMIN].concat();
        let server = Server::start_in_shell(script, Stdio::null(), &words);
        let address = admin(&server);
        assert_eq!(server.get("/none").status, 404);
        let replies = || metric(&ask(&address, "/metrics").text(), "weir_replies_total");
        until("the reply is counted", || replies() == Some(1.0));
        assert!(server.stop_cleanly().stderr.contains("cannot be read by `weir stat`"));
    }
}

#[test]
fn child_processes_are_loops_and_are_added_up() {
    let root = Root::with_hello();
    let pool = ["--arch", "processes", "--arch-option", "pool=3", "--workers", "1"];
    let server = Server::start(WEIR, &[&ADMIN[..], &pool].concat(), &root);
    let address = admin(&server);
    let of = |name: &str| metric(&ask(&address, "/metrics").text(), name);
    until("all children serve", || of("weir_loops") == Some(3.0));
    let fds = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let family = family_of(server.id());
    let (main, children) = family.split_first().unwrap();
    let serving = children.iter().filter(|pid| family_of(**pid).len() == 1);
    let of_children: usize = serving.map(|pid| fds(*pid)).sum();
    let all = (fds(*main) + of_children) as f64;
    // The connection by which it is asked is one more.
    until("all have theirs counted", || {
        of("process_open_fds").is_some_and(|open| (all..=all + 2.0).contains(&open))
    });
    assert!(of("process_resident_memory_bytes") > Some(4e6));
    assert!(of("process_cpu_seconds_total").is_some());
}

#[test]
fn an_upstream_without_a_limit_has_an_infinite_one() {
    let limit = |options: &[&str]| {
        let options = [&ADMIN[..], options].concat();
        let server = Server::proxy(WEIR, &["http://127.0.0.1:1"], &options);
        let address = admin(&server);
        let name = "weir_upstream_limit{upstream=\"default\"}";
        let limit = || metric(&ask(&address, "/metrics").text(), name);
        until("the limit is published", || limit().is_some_and(|limit| limit > 0.0));
        limit().unwrap()
    };
    assert_eq!(limit(&["--max-in-flight", "7"]), 7.0);
    assert_eq!(limit(&["--max-in-flight", "inf"]), f64::INFINITY);
}

#[test]
fn a_unix_socket_is_its_owners_and_is_not_taken_from_a_server() {
    let root = Root::with_hello();
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("admin.sock");
    let option = format!("unix:{}", path.display());
    let server = Server::start(WEIR, &["--admin", &option], &root);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let address = Address::Unix(path.clone());
    assert!(refused(&["--admin", &option]).stderr.contains("--admin: unix:"));
    assert!(is_healthy(&address), "it is still the first one's");
    server.stop_cleanly();
    assert!(!path.exists());
}

#[test]
fn an_address_that_is_taken_is_said_before_anything_is_served() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let Address::Tcp(taken) = admin(&server) else { panic!("a TCP address") };
    let stopped = refused(&["--admin", &taken.to_string()]);
    assert!(stopped.stderr.contains("--admin: http://127.0.0.1:"), "{}", stopped.stderr);
    let stopped = refused(&["--admin=127.0.0.1:0", "--stat-page=off"]);
    assert!(stopped.stderr.contains("--stat-page=off"), "{}", stopped.stderr);
}
