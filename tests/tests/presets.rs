//! Every mechanism with every preset serves the file set byte for byte to connections at once,
//! and its statistics agree with what the clients did and with the accept-rate identity
//! (Pariag 2004, equations 4.1 and 4.2).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken expectation is a failed test"
)]

use std::path::Path;
use std::sync::OnceLock;
use std::thread;

use serde_json::Value;
use weir_tests::Server;
use weir_tests::files::{Served, settled_file_set};

const WEIR: &str = env!("CARGO_BIN_EXE_weir-under-test");

const CONNECTIONS: usize = 8;

/// Files that have settled, so that they may be cached and sent with sendfile.
static FILES: OnceLock<Vec<Served>> = OnceLock::new();

macro_rules! presets {
    ($($test:ident $preset:literal $limit:literal,)+) => {
        mod each_mechanism {
            $(#[test]
            fn $test() {
                for mechanism in weir_tests::mechanisms() {
                    println!("{mechanism}");
                    super::serves_everything(mechanism, $preset, $limit);
                }
            })+
        }
    };
}

// The last column is the accept-limit, 0 where there is none or where it is not fixed.
presets! {
    default "default" 0,
    accept1 "accept1" 1,
    accept10 "accept10" 10,
    accept25 "accept25" 25,
    acceptinf "acceptinf" 0,
    eager "eager" 0,
    eager_full "eager+full" 0,
    eager_close "eager+close" 0,
    cm "cm" 0,
    accept25_caching "accept25+$" 25,
}

fn serves_everything(mechanism: &str, preset: &str, accept_limit: u32) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("presets");
    let files = FILES.get_or_init(|| settled_file_set(&root));
    let server = Server::start(WEIR, &["--mechanism", mechanism, "--preset", preset], &root);
    thread::scope(|scope| {
        for i in 0..CONNECTIONS {
            let server = &server;
            let client = if i % 2 == 0 { keep_alive } else { connection_per_request };
            scope.spawn(move || client(server, files, i));
        }
    });
    let stats = server.stop_cleanly().stats();
    let per_request = CONNECTIONS / 2 * files.len();
    check(&stats, CONNECTIONS / 2 + per_request, 2 * per_request, accept_limit);
}

fn keep_alive(server: &Server, files: &[Served], first: usize) {
    let mut client = server.connect();
    for file in files.iter().cycle().skip(first).take(files.len()) {
        assert!(client.get(&file.target).body == file.body, "{}", file.target);
    }
}

fn connection_per_request(server: &Server, files: &[Served], first: usize) {
    for file in files.iter().cycle().skip(first).take(files.len()) {
        let mut client = server.connect();
        let reply = client.get_with(&file.target, &["Connection: close"]);
        assert!(reply.body == file.body, "{}", file.target);
        assert!(client.is_closed(), "{}", file.target);
    }
}

fn check(stats: &Value, connections: usize, requests: usize, accept_limit: u32) {
    let total = &stats["total"];
    assert_eq!(total["accepted"], connections, "{stats}");
    assert_eq!(total["requests"], requests, "{stats}");
    assert_eq!(total["replies"], requests, "{stats}");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("a number in {stats}"));
    let (phases, c_avg) = (number(&total["accept_phases"]), number(&total["c_avg"]));
    assert!(phases >= 1.0 && number(&total["getevents_calls"]) >= 1.0, "{stats}");
    assert!(accept_limit == 0 || c_avg <= f64::from(accept_limit), "{stats}");
    let rate = phases * c_avg / number(&stats["elapsed_s"]);
    assert!((number(&total["accept_rate"]) / rate - 1.0).abs() < 1e-6, "{stats}: not {rate}");
}
