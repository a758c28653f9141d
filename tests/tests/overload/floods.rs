//! Overload, on real sockets: floods of several times the capacity of a server, and the server's
//! report of its reaction. Timeliness of replies is measured elsewhere; no test here measures a
//! duration.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::process::geteuid;
use weir_sys::syn_filter::tokens::{Rules, TokenFilter};
use weir_sys::user::User;
use weir_tests::load::{LoadRun, load};
use weir_tests::server::{HURRIED, Stopped};
use weir_tests::wait::{TIMEOUT, until_within};
use weir_tests::{Address, Client, Root, Server, Setup, request, suite};

use crate::WEIR;

/// Six times the capacity of the server.
const FLOOD: &str = "--rate 3000 --duration 1s --timeout 1s";

suite! {
    every_architecture:
    a_flood_is_survived,
    a_flood_is_noticed_and_refused_by_the_kernel,
    a_long_work_phase_is_cut_to_accept_others,
    every_policy_serves_all_clients_it_has_time_for,
}

/// Options that make requests expensive.
const COSTLY: [&str; 3] = ["--bench-endpoints", "--workers", "1"];

/// Runs a flood over a server whose requests take 2 ms of its processor each.
fn flood(options: &[&str]) -> (LoadRun, Stopped) {
    let root = Root::with_hello();
    flood_over(Server::start(WEIR, &[&COSTLY, options].concat(), &root))
}

/// Starts a server of a set-up whose requests take much, and wait for no longer than by default.
fn serve_costly(setup: &Setup, root: &Root) -> Server {
    setup.serve(root, &[&COSTLY[..], &HURRIED].concat())
}

fn flood_over(server: Server) -> (LoadRun, Stopped) {
    let url = format!("http://{}/.weir/burn/2000/hello.txt", server.authority());
    let ran = load(WEIR, FLOOD, url);
    // A client is served once the flood's queue is empty. Where nothing is refused, that takes up
    // to six seconds of a processor's work.
    until_within(4 * TIMEOUT, "a client was served", || is_served(&server));
    (ran, server.stop_cleanly())
}

fn is_served(server: &Server) -> bool {
    let Ok(mut client) = Client::connect_with(server.address(), None) else { return false };
    client.try_send(request("GET", "/hello.txt", &[])).is_ok()
        && client.try_reply().is_ok_and(|reply| reply.status == 200)
}

pub(crate) fn counted(stopped: &Stopped, names: &[&str]) -> Vec<u64> {
    let stats = stopped.stats();
    names.iter().map(|name| stats["total"][name].as_u64().unwrap()).collect()
}

/// Counters of all controls.
const OF_CONTROLS: [&str; 11] = [
    "overloads",
    "queue_asked",
    "backlog_changes",
    "syn_filter_changes",
    "syn_filter_failed",
    "syn_dropped",
    "refused_excess",
    "refused_stale",
    "departed",
    "turned_away",
    "closed_by_pressure",
];

fn a_flood_is_survived(setup: &Setup) {
    let root = Root::with_hello();
    let (ran, stopped) = flood_over(serve_costly(setup, &root));
    assert!(ran.count("replies") > 0, "{ran:?}");
    assert!(counted(&stopped, &["replies"])[0] > ran.count("replies"));
}

fn a_flood_is_noticed_and_refused_by_the_kernel(setup: &Setup) {
    let root = Root::with_hello();
    let (ran, stopped) = flood_over(serve_costly(setup, &root));
    let names = ["overloads", "syn_filter_changes", "syn_dropped", "syn_filter_failed"];
    let [overloads, changes, dropped, failed]: [u64; 4] =
        counted(&stopped, &names).try_into().unwrap();
    assert!(overloads >= 1 && failed == 0, "{overloads} overloads, {failed} failed");
    if has_tokens() {
        assert!(changes >= 1 && dropped > 100, "{changes} changes, {dropped} dropped");
    }
    assert!(ran.count("replies") > 0, "{ran:?}");
    assert_eq!(counted(&stopped, &["refused_excess", "turned_away"]), [0, 0]);
}

/// Who faces the network may attach no filter then: another process does.
#[test]
fn a_flood_is_refused_by_the_kernel_after_the_user_has_changed() {
    if !geteuid().is_root() || User::find("nobody", None).is_err() || !has_tokens() {
        return println!("SKIPPED: this takes root, and a user nobody");
    }
    let root = Root::with_hello();
    for dir in [root.outside(), root.path()] {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    let as_nobody = ["--user", "nobody", "--syn-filter", "tokens", "--stat-page=off"];
    let server = Server::start(WEIR, &[&COSTLY[..], &as_nobody].concat(), &root);
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    assert!(status.contains("CapEff:\t0000000000000000\n"), "{status}");
    // It writes its statistics as the user that it is.
    fs::set_permissions(server.run_dir(), Permissions::from_mode(0o777)).unwrap();
    let (ran, stopped) = flood_over(server);
    let names = ["syn_filter_changes", "syn_dropped", "syn_filter_failed"];
    let [changes, dropped, failed]: [u64; 3] = counted(&stopped, &names).try_into().unwrap();
    assert!(changes >= 1 && dropped > 100, "{changes} changes, {dropped} dropped");
    assert_eq!(failed, 0);
    assert!(ran.count("replies") > 0, "{ran:?}");
}

/// Many connected clients send requests at once while one keeps the loop busy: that work takes many
/// times as long as any client should wait to be admitted.
fn a_long_work_phase_is_cut_to_accept_others(setup: &Setup) {
    let root = Root::with_hello();
    let server = serve_costly(setup, &root);
    let mut crowd: Vec<_> = (0..40).map(|_| server.connect()).collect();
    crowd.iter_mut().for_each(|client| assert_eq!(client.get("/hello.txt").text(), "hello"));
    let mut first = server.connect();
    first.send(request("GET", "/.weir/burn?us=300000", &[]));
    let burn = request("GET", "/.weir/burn?us=5000", &[]);
    crowd.iter_mut().for_each(|client| drop(client.try_send(&burn)));
    assert_eq!(first.reply().status, 200);
    // Some may be refused: they had to wait longer than they should.
    let answered = crowd.iter_mut().filter_map(|client| client.try_reply().ok()).count();
    assert!(answered > 0);
    assert_eq!(server.get("/hello.txt").text(), "hello");
    assert!(counted(&server.stop_cleanly(), &["work_cuts"])[0] > 0);
}

/// Returns whether a token SYN filter is available here; prints the reason if not.
pub(crate) fn has_tokens() -> bool {
    let rules = Rules { burst: 1, addresses_counted_max: 1, epoch_bits: 30, dropped_max: 0 };
    let filter =
        TokenFilter::new(rules).map_err(|error| println!("skipped: no SYN filter: {error}"));
    filter.is_ok()
}

#[test]
fn without_tokens_the_random_filter_or_the_queue_refuses() {
    let random = if has_tokens() { &["--syn-filter", "random"][..] } else { &[] };
    let (ran, stopped) = flood(random);
    let counts = counted(&stopped, &["backlog_changes", "syn_filter_failed", "syn_dropped"]);
    assert!(counts[0] >= 1 && counts[1..] == [0, 0], "{counts:?}");
    assert!(ran.count("replies") > 0, "{ran:?}");
    let (ran, stopped) = flood(&["--syn-filter", "none"]);
    let counts = counted(&stopped, &["backlog_changes", "syn_filter_changes"]);
    assert!(counts[0] >= 1 && counts[1] == 0, "{counts:?}");
    assert!(ran.count("replies") > 0, "{ran:?}");
}

#[test]
fn refused_connections_can_get_a_503() {
    let (ran, stopped) = flood(&["--refuse", "503"]);
    let of_5xx = ran.json["counts"]["statuses"]["5xx"].as_u64().unwrap();
    let [turned_away, refused]: [u64; 2] =
        counted(&stopped, &["turned_away", "refused_excess"]).try_into().unwrap();
    assert!(of_5xx > 0 && of_5xx <= turned_away, "{of_5xx} of {turned_away}");
    assert!(refused > 0, "none was refused without a reply");
}

#[test]
fn refused_connections_can_be_reset_or_closed() {
    for (how, error) in [("rst", "reset"), ("fin", "closed-early")] {
        let (ran, stopped) = flood(&["--refuse", how]);
        let errors = ran.errors();
        let after_accept = errors.get(error).copied().unwrap_or(0);
        let early = errors.get("connect-reset").copied().unwrap_or(0);
        assert!(after_accept + early > 0, "{how}: {errors:?}");
        assert_eq!(counted(&stopped, &["turned_away"]), [0]);
        let counts = counted(&stopped, &["refused_excess", "never_completed"]);
        assert!(counts[0] > 0 && counts[1] >= counts[0], "{how}: {counts:?}");
    }
}

#[test]
fn a_control_turned_off_is_not_used() {
    let (_, stopped) = flood(&["--controls-off", "syn-filter"]);
    assert_eq!(counted(&stopped, &["syn_filter_changes", "syn_dropped"]), [0, 0]);
    assert!(counted(&stopped, &["backlog_changes"])[0] > 0);
    let (_, stopped) = flood(&["--controls-off", "syn-filter,backlog,newest"]);
    assert_eq!(counted(&stopped, &["backlog_changes", "deferred_max"]), [0, 0]);
    assert!(counted(&stopped, &["refused_stale"])[0] > 0);
}

/// Floods the second of two listeners, with options; returns what was counted.
fn flood_one_of_two(options: &[&str], names: &[&str]) -> Vec<u64> {
    let root = Root::with_hello();
    let listen = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let server = Server::start(WEIR, &[&COSTLY[..], &listen, options].concat(), &root);
    let tcp = |address: &Address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    };
    let flooded = tcp(&server.addresses[1]).unwrap();
    load(WEIR, FLOOD, format!("http://{flooded}/.weir/burn/2000/hello.txt"));
    until_within(4 * TIMEOUT, "a client was served", || is_served(&server));
    counted(&server.stop_cleanly(), names)
}

/// The first has no overload, and decides nothing that would end their wait.
#[test]
fn those_who_wait_at_the_second_listener_are_refused_in_time() {
    let counts = flood_one_of_two(&[], &["deferred_max", "end_stale"]);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn where_the_stale_are_not_refused_their_deadline_ends_the_wait_to_be_served() {
    let options = ["--controls-off", "stale", "--header-timeout", "200ms"];
    let counts = flood_one_of_two(&options, &["deferred_max", "timeout_header"]);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn without_controls_and_under_a_plain_limit_nothing_is_refused() {
    for options in
        [["--controls-off", "all"], ["--accept-policy", "limit"], ["--preset", "accept10"]]
    {
        let (_, stopped) = flood(&options);
        assert_eq!(counted(&stopped, &OF_CONTROLS), [0; OF_CONTROLS.len()], "{options:?}");
    }
}

fn every_policy_serves_all_clients_it_has_time_for(setup: &Setup) {
    let root = Root::with_hello();
    let policies = ["limit", "match-close", "timed", "codel", "adaptive"];
    let takes = |policy: &&str| *policy == "limit" || setup.takes_policies();
    for policy in policies.into_iter().filter(takes) {
        let server = setup.serve(&root, &[HURRIED, ["--accept-policy", policy]].concat());
        let url = format!("http://{}/hello.txt", server.authority());
        let ran = load(WEIR, "--closed 16 --num 2000 --timeout 20s", url);
        assert_eq!((ran.count("replies"), ran.count("errors")), (2000, 0), "{policy}");
        server.stop_cleanly();
    }
}

#[test]
fn an_unknown_policy_or_control_is_refused_with_one_sentence() {
    for (option, value, says) in [
        ("--accept-policy", "best", "adaptive"),
        ("--controls-off", "stale,doors", "\"doors\" is no overload control"),
        ("--syn-filter", "best", "tokens"),
        ("--refuse", "404", "kernel, rst, fin or 503"),
        ("--delay-target", "soon", "soon"),
        ("--delay-target", "2h", "--delay-target is a time from 1ms to 1m"),
    ] {
        let stopped = weir_tests::server::run(
            std::process::Command::new(WEIR).args(["serve", option, value, "/"]),
        );
        assert_eq!(stopped.status.code(), Some(2), "{option}");
        assert!(stopped.stderr.contains(says), "{}", stopped.stderr);
    }
}
