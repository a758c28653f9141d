//! Presets: every set-up with every preset serves the file set byte for byte to simultaneous
//! connections, and its statistics agree with the clients' counts and with the accept-rate identity
//! (Pariag 2004, equations 4.1 and 4.2). A preset that does not apply to an architecture is
//! refused.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use serde_json::Value;
use weir_server::accept::{self, Limit};
use weir_server::architecture::Choice;
use weir_server::{PRESETS, Preset, Strategy};
use weir_tests::files::{Served, settled_file_set};
use weir_tests::server::{Attempt, attempt};
use weir_tests::{Server, Setup, assert_same, suite};

use crate::WEIR;

const CONNECTIONS: usize = 8;

/// Settled files, so that they may be cached and sent with sendfile.
static FILES: OnceLock<Vec<Served>> = OnceLock::new();

macro_rules! presets {
    ($($test:ident $preset:literal,)+) => {
        suite! {
            every_setup:
            $($test,)+
        }

        $(fn $test(setup: &Setup) {
            try_preset(setup, $preset);
        })+

        const TRIED: &[&str] = &[$($preset),+];
    };
}

presets! {
    default "default",
    accept1 "accept1",
    accept10 "accept10",
    accept25 "accept25",
    acceptinf "acceptinf",
    eager "eager",
    eager_full "eager+full",
    eager_close "eager+close",
    cm "cm",
    accept25_caching "accept25+$",
}

#[test]
fn every_preset_is_tried() {
    assert!(PRESETS.iter().map(|preset| preset.name).eq(TRIED.iter().copied()));
}

fn try_preset(setup: &Setup, name: &str) {
    let preset = PRESETS.iter().find(|preset| preset.name == name).unwrap();
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("presets");
    let files = FILES.get_or_init(|| settled_file_set(&root));
    match setup.excludes(preset) {
        None => serves_everything(setup, preset, files, &root),
        Some(choice) => is_refused(setup, name, choice, &root),
    }
}

/// Asserts that a preset is refused in a sentence that names both the architecture and the choice.
fn is_refused(setup: &Setup, preset: &str, choice: Choice, root: &Path) {
    let mut command = Command::new(WEIR);
    command.arg("serve").arg(root).args(setup.with(&["--preset", preset]));
    let Attempt::Refused(stopped) = attempt(&mut command) else {
        panic!("{}: {preset} is served", setup.name);
    };
    let message = stopped.stderr.trim_end();
    assert_eq!((stopped.status.code(), message.lines().count()), (Some(2), 1), "{message}");
    let arch = format!("--arch {}", setup.arch.spelling);
    assert!(message.contains(&arch) && message.contains(choice.spelling()), "{message}");
}

fn serves_everything(setup: &Setup, preset: &Preset, files: &[Served], root: &Path) {
    let server = setup.serve(root, &["--preset", preset.name]);
    thread::scope(|scope| {
        for i in 0..CONNECTIONS {
            let server = &server;
            let client = if i % 2 == 0 { keep_alive } else { connection_per_request };
            scope.spawn(move || client(server, files, i));
        }
    });
    let stats = server.stop_cleanly().stats();
    let per_request = CONNECTIONS / 2 * files.len();
    check(&stats, CONNECTIONS / 2 + per_request, 2 * per_request);
    check_limit(&stats, &preset.strategy);
    let waits = stats["total"]["getevents_calls"].as_u64().unwrap();
    assert!(waits >= 1 || !setup.arch.takes_mechanism, "{stats}");
}

fn keep_alive(server: &Server, files: &[Served], first: usize) {
    let mut client = server.connect();
    for file in files.iter().cycle().skip(first).take(files.len()) {
        assert_same(&client.get(&file.target).body, &file.body, &file.target);
    }
}

fn connection_per_request(server: &Server, files: &[Served], first: usize) {
    for file in files.iter().cycle().skip(first).take(files.len()) {
        let mut client = server.connect();
        let reply = client.get_with(&file.target, &["Connection: close"]);
        assert_same(&reply.body, &file.body, &file.target);
        assert!(client.is_closed(), "{}", file.target);
    }
}

fn check(stats: &Value, connections: usize, requests: usize) {
    let total = &stats["total"];
    assert_eq!(total["accepted"], connections, "{stats}");
    assert_eq!(total["requests"], requests, "{stats}");
    assert_eq!(total["replies"], requests, "{stats}");
    let (phases, c_avg) = (number(stats, "accept_phases"), number(stats, "c_avg"));
    assert!(phases >= 1.0 && number(stats, "accepts_max") >= c_avg, "{stats}");
    let rate = phases * c_avg / stats["elapsed_s"].as_f64().unwrap();
    assert!((number(stats, "accept_rate") / rate - 1.0).abs() < 1e-6, "{stats}: not {rate}");
}

/// Asserts that no accept-phase exceeds a fixed limit.
fn check_limit(stats: &Value, strategy: &Strategy) {
    if let (accept::PolicyName::Limit, Limit::Count(limit)) =
        (strategy.accept_policy, strategy.accept_limit)
    {
        assert!(number(stats, "c_avg") <= limit as f64, "{stats}");
        assert!(number(stats, "accepts_max") <= limit as f64, "{stats}");
    }
}

fn number(stats: &Value, name: &str) -> f64 {
    stats["total"][name].as_f64().unwrap_or_else(|| panic!("{name}: no number in {stats}"))
}
