//! The admin address, as the programs of an operator see it.

use weir_tests::wait::until;
use weir_tests::{Address, Client, Failure, Reply, Root, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_architecture:
    the_metrics_are_the_statistics,
}

const ADMIN: [&str; 2] = ["--admin", "127.0.0.1:0"];

/// Returns the admin address, which the server says when it starts.
fn admin(server: &Server) -> Address {
    let prefix = "the admin address is http://";
    let find = || {
        let said = server.stderr_so_far();
        let address = said.split(prefix).nth(1)?.lines().next()?.to_owned();
        said.contains('\n').then_some(address)
    };
    until("the admin address is said", || find().is_some());
    Address::Tcp(find().unwrap().parse().unwrap())
}

fn ask(address: &Address, path: &str) -> Reply {
    let mut client = Client::connect(address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    client.reply()
}

/// Returns the value of a metric.
fn metric(text: &str, name: &str) -> Option<f64> {
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
fn a_name_that_leads_to_loopback_is_not_answered() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let address = admin(&server);
    let mut client = Client::connect(&address);
    client.send(request("GET", "/metrics", &[]));
    assert_eq!(client.reply().status, 421);
    // One that says nothing does not keep others waiting.
    let mut silent = Client::connect(&address);
    assert_eq!(ask(&address, "/healthz").status, 200);
    assert!(matches!(silent.try_reply(), Err(Failure::Closed(_))));
}

#[test]
fn an_address_that_is_taken_is_said_before_anything_is_served() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let Address::Tcp(taken) = admin(&server) else { panic!("a TCP address") };
    for (options, why) in [
        (vec!["--admin".to_owned(), taken.to_string()], "--admin: http://127.0.0.1:"),
        (vec!["--admin=127.0.0.1:0".into(), "--stat-page=off".into()], "--stat-page=off"),
    ] {
        let mut command = std::process::Command::new(WEIR);
        command.arg("serve").arg(root.path()).args(["--listen", "127.0.0.1:0"]).args(&options);
        let stopped = weir_tests::server::run(&mut command);
        assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
        assert!(stopped.stderr.contains(why), "{}", stopped.stderr);
    }
}
