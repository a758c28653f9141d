//! A flood on its way to an upstream that can do little of it: what is refused with a 503, and what
//! already as a SYN.

use std::thread;
use std::time::Duration;

use weir_tests::load::{LoadRun, load};
use weir_tests::origin::reply;
use weir_tests::server::{HURRIED, Stopped};
use weir_tests::wait::until;
use weir_tests::{Origin, Root, Server, Setup, suite};

use crate::WEIR;
use crate::floods::{counted, has_tokens};

/// Fifteen times what the upstream can do, for longer than it takes to notice.
const FLOOD: &str = "--rate 600 --duration 4s --timeout 500ms";

suite! {
    every_forwarding_architecture:
    a_flood_for_the_only_upstream_is_refused_by_the_kernel_in_the_end,
}

/// Starts an upstream that answers 40 requests a second.
fn slow_origin() -> Origin {
    Origin::start(|_| {
        thread::sleep(Duration::from_millis(25));
        reply(b"done")
    })
}

const ONE_AT_A_TIME: [&str; 4] = ["--workers", "1", "--max-in-flight", "1"];

/// Floods a server, and stops it once a client has been served.
fn flood(server: Server) -> (LoadRun, Stopped) {
    let ran = load(WEIR, FLOOD, format!("http://{}/app", server.authority()));
    assert_eq!(server.get("/app").text(), "done");
    (ran, server.stop_cleanly())
}

const NAMES: [&str; 4] =
    ["upstream_syn_dropped", "syn_dropped", "syn_filter_failed", "refused_idle"];

fn a_flood_for_the_only_upstream_is_refused_by_the_kernel_in_the_end(setup: &Setup) {
    let origin = slow_origin();
    let (ran, stopped) =
        flood(setup.proxy(&[&origin.url()], &[&ONE_AT_A_TIME[..], &HURRIED].concat()));
    let [dropped, others, failed, idle]: [u64; 4] = counted(&stopped, &NAMES).try_into().unwrap();
    assert_eq!((failed, idle), (0, 0));
    let of_5xx = ran.json["counts"]["statuses"]["5xx"].as_u64().unwrap();
    assert!(ran.count("replies") > of_5xx && of_5xx >= 100, "{of_5xx} of {ran:?}");
    if has_tokens() {
        assert!(dropped >= 100, "{dropped} and {others} dropped");
    }
}

/// The clients wait for longer than a second, after which a SYN that was dropped comes again.
#[test]
fn clients_whose_syns_were_dropped_come_behind_new_ones() {
    let origin = slow_origin();
    let server = Server::proxy(WEIR, &[&origin.url()], &ONE_AT_A_TIME);
    let flood = "--rate 600 --duration 4s --timeout 2500ms";
    load(WEIR, flood, format!("http://{}/app", server.authority()));
    let names = ["upstream_syn_dropped", "upstream_syn_dropped_again", "refused_idle"];
    let [dropped, again, idle]: [u64; 3] =
        counted(&server.stop_cleanly(), &names).try_into().unwrap();
    assert_eq!(idle, 0);
    if has_tokens() {
        assert!(again >= 100 && dropped > again, "{again} of {dropped} came again");
    }
}

/// A client that says half a request keeps the drain waiting.
#[test]
fn a_drain_in_a_flood_sleeps() {
    let origin = slow_origin();
    let options = [&ONE_AT_A_TIME[..], &["--drain-timeout", "2s"]].concat();
    let server = Server::proxy(WEIR, &[&origin.url()], &options);
    let mut half = server.connect();
    half.send("GET / HTTP/1.1\r\n");
    let url = format!("http://{}/app", server.authority());
    let flood = thread::spawn(move || load(WEIR, FLOOD, url));
    let total = |name: &str| server.new_report()["total"][name].as_u64().unwrap();
    until("SYNs were dropped", || total("upstream_syn_dropped") >= 100 || !has_tokens());
    let before = total("getevents_calls");
    let calls = counted(&server.stop(), &["getevents_calls"])[0] - before;
    assert!(calls < 5_000, "{calls}");
    flood.join().unwrap();
}

#[test]
fn no_syn_is_dropped_where_something_else_can_be_had() {
    let root = Root::with_hello();
    let origin = slow_origin();
    let (upstream, alone) = (format!("app={}", origin.url()), [&origin.url()[..]]);
    let with_files = ["--upstream", &upstream, "--route", "/app=app"];
    let with =
        |options: &[&str]| Server::proxy(WEIR, &alone, &[&ONE_AT_A_TIME[..], options].concat());
    for server in [
        Server::start(WEIR, &[&ONE_AT_A_TIME[..], &with_files].concat(), &root),
        with(&["--cache", "1M"]),
        with(&["--high-priority", "/checkout"]),
        with(&["--trusted-proxy", "10.0.0.0/8"]),
        with(&["--refuse", "503"]),
        with(&["--controls-off", "syn-filter"]),
    ] {
        let (ran, stopped) = flood(server);
        let counts = counted(&stopped, &NAMES);
        assert_eq!(counts[0], 0, "{counts:?}");
        let refused = ran.json["counts"]["statuses"]["5xx"].as_u64().unwrap();
        assert!(refused > 1000, "{refused}: {counts:?}");
    }
}
