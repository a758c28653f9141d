//! Times reported by `weir load`, compared with servers whose delay is known. The order of the
//! clocks, and the agreement of histograms and requests, is checked for every run by `load`.
//!
//! A lower bound is exact: no machine makes a sleep shorter. An upper bound is either known to the
//! server too, or required only of a run that found itself valid.

use std::fmt::Display;
use std::time::Duration;

use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::load::{LoadRun, RecordingServer, RequestLine, load};

use crate::WEIR;

const MS: u64 = 1_000_000;

fn quiet(options: &str, url: impl Display) -> LoadRun {
    load(WEIR, &format!("--quiet --timeout 20s {options}"), url)
}

fn url(server: &Faulty) -> String {
    format!("http://{}/", server.address())
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Returns the share of replies that took longer than `limit_ns` from their planned start.
fn share_slower(ran: &LoadRun, limit_ns: u64) -> f64 {
    let slower = ran.each.iter().filter(|line| line.response_ns() > limit_ns).count();
    slower as f64 / ran.each.len() as f64
}

#[test]
fn planned_starts_are_those_of_the_law() {
    let server = Faulty::start(Behaviour::Good { body_bytes: 10 });
    let ran = quiet("--rate 200 --num 100 --duration 60", url(&server));
    assert_eq!(ran.count("replies"), 100);
    let planned: Vec<u64> = ran.each.iter().map(RequestLine::planned_ns).collect();
    let expected: Vec<u64> = (0..100).map(|number| number * 5 * MS).collect();
    assert_eq!(planned, expected);
}

#[test]
fn a_trace_is_kept_to_the_microsecond_whatever_the_server_does() {
    let server = Faulty::start(Behaviour::Silent);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# seconds\n0\n0.05\n0.050001\n0.125\n").unwrap();
    let options = format!("--arrivals trace:{} --timeout 200ms --quiet", file.path().display());
    let ran = load(WEIR, &options, url(&server));
    let planned: Vec<u64> = ran.each.iter().map(RequestLine::planned_ns).collect();
    assert_eq!(planned, [0, 50 * MS, 50 * MS + 1000, 125 * MS]);
    assert_eq!(server.requests(), 4);
}

#[test]
fn a_response_is_never_shorter_than_the_servers_sleep() {
    let server = Faulty::start(Behaviour::Sleep { ms: 60 });
    for options in ["", "--requests-per-conn 2", "--requests-per-conn 4 --pipeline 2"] {
        let ran = quiet(&format!("--rate 200 --num 40 --duration 60 {options}"), url(&server));
        assert_eq!(ran.count("errors"), 0);
        for line in &ran.each {
            assert!(line.service_ns() >= 60 * MS, "{options}: {line:?}");
            assert!(line.response_ns() >= line.service_ns(), "{options}: {line:?}");
        }
        // Requests sleep side by side, so that forty of them one after the other would show.
        let least = ran.each.iter().map(RequestLine::response_ns).min().unwrap();
        let lag_ns = ran.json["verdict"]["lag_max_us"].as_f64().unwrap() * 1e3;
        let allowed_ns = 60 * MS + lag_ns as u64 + 500 * MS;
        assert!(least < allowed_ns, "{least} of {allowed_ns}");
    }
}

#[test]
fn in_a_closed_loop_of_one_client_and_server_time_the_same_requests() {
    let server = RecordingServer::plain();
    let options = "--closed 1 --requests-per-conn inf --num 300 --duration 60";
    let ran = quiet(options, server.url("/"));
    let connections = server.connections();
    let [connection] = &connections[..] else { panic!("{} connections", connections.len()) };
    assert_eq!((ran.each.len(), connection.requests.len()), (300, 300));
    for (number, line) in ran.each.iter().enumerate() {
        let request = &connection.requests[number];
        let within = ns(request.answered.unwrap() - request.read);
        assert!(line.service_ns() >= within, "{number}: {line:?}, the server took {within}");
        // It began after the reply before it was sent, and was over before the next was read.
        let (Some(before), Some(after)) = (
            number.checked_sub(1).map(|n| &connection.requests[n]),
            connection.requests.get(number + 1),
        ) else {
            continue;
        };
        let around = ns(after.read - before.answered.unwrap());
        assert!(line.service_ns() <= around, "{number}: {line:?}, within {around}");
    }
}

#[test]
fn the_wait_is_the_servers_and_the_transfer_the_replys() {
    // One byte every two milliseconds: the first after one pause, the last after a thousand.
    let server = Faulty::start(Behaviour::Trickle { bytes_per_s: 2000 });
    let ran = quiet("--rate 100 --num 10 --duration 60", url(&server));
    for line in &ran.each {
        let [.., Some(sent), Some(first), Some(last)] = line.clocks else { panic!("{line:?}") };
        assert!(last - sent >= 500 * MS, "{line:?}");
        assert!(first - sent < last - sent, "{line:?}");
    }
    assert!(ran.json["clocks"]["transfer"]["mean_us"].as_f64() > Some(0.0));
}

/// Period and length of the stall in the tests below: the last part of each period.
const PERIOD_MS: u64 = 1000;
const STALL_MS: u64 = 300;
/// Response time from which a reply counts as slow.
const SLOW_MS: u64 = 150;

fn stalling() -> Faulty {
    Faulty::start(Behaviour::Stall { every_ms: PERIOD_MS, length_ms: STALL_MS })
}

/// A request planned `t` after a stall began waits for the rest of the stall, so that all requests
/// planned in its first `STALL_MS - SLOW_MS` are slow: over whole periods their share is this,
/// wherever the run begins.
fn a_stall_is_seen_by_all_it_would_have_met(options: &str) {
    let server = stalling();
    let ran = quiet(&format!("--rate 200 --duration 2 {options}"), url(&server));
    assert_eq!((ran.count("replies"), ran.count("planned")), (400, 400));
    let truth = (STALL_MS - SLOW_MS) as f64 / PERIOD_MS as f64;
    let share = share_slower(&ran, SLOW_MS * MS);
    // A late start or reply makes a response longer, never shorter. One request a stall is at its
    // edge.
    assert!(share >= truth - 0.01, "{share}, not {truth}");
    if ran.is_valid() {
        assert!(share <= truth + 0.05, "{share}, not {truth}");
    }
    let longest = ran.each.iter().map(RequestLine::response_ns).max().unwrap();
    assert!(longest >= (STALL_MS - 10) * MS, "{longest}");
}

#[test]
fn requests_planned_during_a_stall_count_with_the_whole_of_their_wait() {
    a_stall_is_seen_by_all_it_would_have_met("");
}

#[test]
fn requests_that_a_stall_keeps_from_being_sent_count_with_the_whole_of_their_wait() {
    a_stall_is_seen_by_all_it_would_have_met("--conns 3");
}

#[test]
fn a_closed_loop_omits_what_an_open_one_sees() {
    let server = stalling();
    let options = "--closed 1 --requests-per-conn inf --duration 2";
    let ran = quiet(options, url(&server));
    let slow = ran.each.iter().filter(|line| line.response_ns() > SLOW_MS * MS).count();
    // One connection meets each stall with one request.
    assert!(slow > 0, "{:?}", ran.json["clocks"]["response"]);
    let truth = (STALL_MS - SLOW_MS) as f64 / PERIOD_MS as f64;
    let share = share_slower(&ran, SLOW_MS * MS);
    assert!(share < truth / 5.0, "{share} of {}", ran.each.len());
    let notes = ran.json["verdict"]["notes"].to_string();
    assert!(notes.contains("Closed loop") && ran.stdout.contains("closed loop"), "{notes}");
    assert_eq!(ran.json["description"]["loop"], "closed");
}

#[test]
fn waiting_for_a_connection_counts_from_the_planned_start() {
    // Three at a time, 100 ms each: the last of 12 arrivals at once is answered after 400 ms.
    let server = Faulty::start(Behaviour::Sleep { ms: 100 });
    let ran = quiet("--conns 3 --rate 10000 --num 12 --duration 60", url(&server));
    assert_eq!((ran.count("replies"), server.accepted()), (12, 3));
    let mut responses: Vec<u64> = ran.each.iter().map(RequestLine::response_ns).collect();
    responses.sort_unstable();
    let spread_ns = 12 * MS / 10;
    for (number, response_ns) in responses.iter().enumerate() {
        let turns = number as u64 / 3 + 1;
        assert!(response_ns + spread_ns >= turns * 100 * MS, "{number}: {response_ns}");
    }
    // The wait is the server's doing and not this client's: its starts were not late.
    let lag_ns = (ran.json["verdict"]["lag_max_us"].as_f64().unwrap() * 1e3) as u64;
    assert!(lag_ns < *responses.last().unwrap() - 100 * MS, "{lag_ns}");
}
