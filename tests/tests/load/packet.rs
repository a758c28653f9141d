//! `weir load --stack packet`: a TCP of its own against a real server on the kernel's. Skipped
//! where there is no network namespace to be had.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::thread;

use serde_json::Value;
use weir_tests::load::{LoadRun, load};
use weir_tests::own_link::{self, CLIENTS_V4, CLIENTS_V6, INTERFACE, SERVER_V4, SERVER_V6};
use weir_tests::remote_link::tcp_count;
use weir_tests::server::run;
use weir_tests::wait::until;
use weir_tests::{Root, Server};

use crate::WEIR;

/// Runs a test on a link of its own, or skips it if that is not possible.
fn on_a_link(test: impl FnOnce() + Send) {
    let run = || match own_link::enter() {
        Ok(()) => test(),
        Err(why) => println!("skipped: {why}"),
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
}

fn start(address: &str, root: &Root) -> Server {
    let listen =
        if address.contains(':') { format!("[{address}]:0") } else { format!("{address}:0") };
    Server::start(WEIR, &["--listen", &listen], root)
}

fn packet_load(options: &str, server: &Server, file: &str) -> LoadRun {
    let sources = if server.authority().starts_with('[') { CLIENTS_V6 } else { CLIENTS_V4 };
    let options = format!("{options} --stack packet --interface {INTERFACE} --source {sources}");
    load(WEIR, &options, format!("http://{}/{file}", server.authority()))
}

fn count(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
fn each_connection_is_one_of_the_server_s_and_costs_the_packets_of_any_other() {
    on_a_link(|| {
        for address in [SERVER_V4, SERVER_V6] {
            let root = Root::with_hello();
            let server = start(address, &root);
            let resent_before = tcp_count("TCPSynRetrans");
            let ran = packet_load("--rate 300 --num 300", &server, "hello.txt");
            let (counts, packets) = (&ran.json["counts"], &ran.json["packets"]);
            assert_eq!(count(&counts["statuses"], "2xx"), 300, "{address}: {}", ran.stdout);
            assert_eq!(count(packets, "malformed"), 0);
            assert!(packets["violations"].as_object().unwrap().values().all(|n| n == 0));
            // Where the client was held up for a second, it has received what was sent again twice.
            let resent = tcp_count("TCPSynRetrans") - resent_before;
            assert!(resent <= count(packets, "duplicates"), "{resent}: {packets}");
            let stopped = server.stop();
            assert_eq!(count(&stopped.stats()["total"], "accepted"), 300);
            assert_eq!(count(&stopped.stats()["total"], "replies"), 300);
        }
    });
}

#[test]
fn tls_is_spoken_on_it_as_on_the_kernel_s() {
    on_a_link(|| {
        let root = Root::new();
        root.write("large", vec![7_u8; 100_000]);
        let listen = format!("https://{SERVER_V4}:0");
        let server = Server::start(WEIR, &["--listen", &listen, "--tls-self-signed"], &root);
        let url = format!("https://{}/large", server.authority());
        let client = format!("--stack packet --interface {INTERFACE} --source {CLIENTS_V4}");
        for (options, resumed) in [("", 0..=0), ("--tls-resume", 1..=99)] {
            let common = "--quiet --insecure --rate 100 --num 100 --timeout 20s";
            let ran = load(WEIR, &format!("{common} {client} {options}"), &url);
            assert_eq!((ran.count("replies"), ran.count("handshakes")), (100, 100), "{ran:?}");
            assert!(resumed.contains(&ran.count("handshakes_resumed")), "{ran:?}");
            assert!(
                ran.json["packets"]["violations"].as_object().unwrap().values().all(|n| n == 0)
            );
        }
        let total = &server.stop().stats()["total"];
        assert_eq!(count(total, "tls_full") + count(total, "tls_resumed"), 200);
    });
}

#[test]
fn what_is_lost_reordered_and_doubled_is_received_whole() {
    on_a_link(|| {
        let root = Root::with_hello();
        let body: Vec<u8> = (0..200_000_u32).map(|at| (at * 7) as u8).collect();
        root.write("large", &body);
        let server = start(SERVER_V4, &root);
        // Each loss by itself: in bursts a request may be lost until the server gives up on it.
        let storm = "--path rtt=2ms,jitter=1ms,loss=3%,reorder=2%,duplicate=2%";
        let options = format!("--rate 20 --num 60 --timeout 60s {storm}");
        let ran = packet_load(&options, &server, "large");
        let (counts, packets) = (&ran.json["counts"], &ran.json["packets"]);
        assert_eq!(count(&counts["statuses"], "2xx"), 60, "{}", ran.stdout);
        let heads = count(counts, "received_head_bytes");
        assert_eq!(count(counts, "received_bytes") - heads, 60 * body.len() as u64);
        for name in ["lost_on_paths", "out_of_order", "duplicates"] {
            assert!(count(packets, name) > 0, "{name}: {packets}");
        }
        assert!(packets["violations"].as_object().unwrap().values().all(|n| n == 0));
        server.stop();
    });
}

#[test]
fn more_packets_than_wait_at_once_are_received() {
    on_a_link(|| {
        let root = Root::with_hello();
        let server = start(SERVER_V4, &root);
        // The places of the ring are used again.
        let options = "--conns 2 --requests-per-conn inf --rate 4000 --num 6000";
        let ran = packet_load(options, &server, "hello.txt");
        assert_eq!(count(&ran.json["counts"]["statuses"], "2xx"), 6000, "{}", ran.stdout);
        assert!(count(&ran.json["packets"], "received") >= 6000, "{}", ran.json["packets"]);
        server.stop();
    });
}

#[test]
fn packets_that_wait_for_each_other_are_received_all_the_same() {
    on_a_link(|| {
        let root = Root::with_hello();
        let server = start(SERVER_V4, &root);
        let ran = packet_load("--closed 16 --num 200 --coalesce 1ms", &server, "hello.txt");
        assert_eq!(count(&ran.json["counts"]["statuses"], "2xx"), 200, "{}", ran.stdout);
        server.stop();
    });
}

#[test]
fn idle_and_slow_clients_are_what_they_are_with_the_kernel_s_tcp() {
    on_a_link(|| {
        let root = Root::with_hello();
        let server = start(SERVER_V4, &root);
        let options = "--rate 50 --num 50 --idle 500 --slow-senders 3 --slow-readers 3 \
                       --slow-rate 1000 --background-rate 10000";
        let ran = packet_load(options, &server, "hello.txt");
        let counts = &ran.json["counts"];
        assert_eq!(count(&counts["statuses"], "2xx"), 50, "{}", ran.stdout);
        assert!(count(&ran.json["connections"], "open_max") >= 500, "{}", ran.json["connections"]);
        server.stop();
    });
}

#[test]
fn a_refused_connection_and_clients_that_vanish() {
    on_a_link(|| {
        let root = Root::with_hello();
        let server = start(SERVER_V4, &root);
        let ran = packet_load("--rate 20 --num 20 --vanish --close client", &server, "hello.txt");
        assert_eq!(count(&ran.json["counts"]["statuses"], "2xx"), 20);
        // Nobody has told the server.
        assert_eq!(server.open_connections(), 20);
        let authority = server.authority();
        server.stop();
        let options = format!(
            "--rate 20 --num 20 --stack packet --interface {INTERFACE} --source {CLIENTS_V4}"
        );
        let refused = load(WEIR, &options, format!("http://{authority}/"));
        assert_eq!(count(&refused.json["errors"], "connect-refused"), 20);
    });
}

#[test]
fn a_server_reads_the_end_of_each_connection_that_its_client_closes() {
    on_a_link(|| {
        let root = Root::with_hello();
        let listen = format!("{SERVER_V4}:0");
        let options = ["--listen", &listen, "--preset", "eager+full", "--mechanism", "select"];
        // Reads that find something, its end included, and closes by the client, per connection.
        for (who, found, ended) in [("server", 1, 0), ("client", 2, 1)] {
            let server = Server::start(WEIR, &options, &root);
            let load = format!("--rate 300 --num 150 --close {who}");
            let ran = packet_load(&load, &server, "hello.txt");
            assert_eq!(count(&ran.json["counts"]["statuses"], "2xx"), 150, "{}", ran.stdout);
            until("the server has heard of each close", || server.open_connections() == 0);
            let total = &server.stop().stats()["total"];
            let reads = count(total, "reads") - count(total, "read_would_block");
            assert_eq!(reads, 150 * found, "{who}: {total}");
            assert_eq!(count(total, "end_client_closed"), 150 * ended, "{who}: {total}");
        }
    });
}

#[test]
fn what_is_under_way_at_the_end_of_a_run_still_arrives() {
    on_a_link(|| {
        let root = Root::with_hello();
        let listen = format!("{SERVER_V4}:0");
        let server = Server::start(WEIR, &["--listen", &listen, "--idle-timeout", "10m"], &root);
        // The last reset has half a round trip before it when the last reply has come.
        let options = "--rate 50 --num 20 --close reset --path rtt=200ms";
        let ran = packet_load(options, &server, "hello.txt");
        assert_eq!(count(&ran.json["counts"]["statuses"], "2xx"), 20, "{}", ran.stdout);
        until("the server has heard of each close", || server.open_connections() == 0);
        server.stop();
    });
}

#[test]
fn what_is_not_a_laboratory_s_link_is_refused_in_one_sentence() {
    on_a_link(|| {
        let packet = "load --stack packet --source 10.77.128.0/17 --interface";
        for (line, word) in [
            (format!("{packet} nothing0 http://10.77.0.2/"), "no such interface"),
            ("load --coalesce 1ms http://10.77.0.2/".into(), "--coalesce is for --stack packet"),
            (format!("{packet} lo --coalesce 1s http://10.77.0.2/"), "10 ms at most"),
            (format!("{packet} lo http://10.77.0.2/"), "not of Ethernet"),
            (format!("{packet} weir-c http://10.99.0.2/"), "not on the link"),
            (format!("{packet} weir-c http://10.77.0.1/"), "this side"),
            (format!("{packet} weir-c http://10.77.0.2/ --path slow"), "one of lan"),
            ("load --path lan http://10.77.0.2/".into(), "--stack packet"),
            ("load --stack packet http://10.77.0.2/".into(), "--interface"),
        ] {
            let stopped = run(std::process::Command::new(WEIR).args(line.split_whitespace()));
            assert_eq!(stopped.status.code(), Some(2), "{line}: {stopped:?}");
            assert!(stopped.stderr.contains(word), "{line}: {}", stopped.stderr);
            assert!(!stopped.stderr.contains("panicked"), "{}", stopped.stderr);
        }
    });
}
