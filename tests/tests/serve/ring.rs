//! Features specific to the ring: buffers lent to the kernel come back, the accept-limit is exact,
//! a lack of buffers is not treated as a client's error, and a client that sends more than it reads
//! is bounded. Features common to all architectures are tested with them.

use std::process::Command;

use serde_json::Value;
use weir_dispatch::readiness::MechanismName;
use weir_tests::files::Served;
use weir_tests::server::run;
use weir_tests::{Client, Root, Server, assert_same, request};

use crate::WEIR;
use crate::peers::is_installed;

/// Starts a ring with these options; `None`, with a message, where that is not possible.
fn ring(options: &[&str], root: &Root) -> Option<Server> {
    if MechanismName::UringPoll.try_open().is_ok() {
        Some(Server::start(WEIR, &[&["--arch", "ring", "--workers", "1"], options].concat(), root))
    } else {
        eprintln!("SKIPPED: no ring for servers is possible here");
        None
    }
}

/// Stops a server and returns its counters; nothing may be left with the kernel.
fn counters(server: Server) -> Value {
    let stats = server.stop_cleanly().stats();
    let total = stats["total"].clone();
    for left in ["ring_pending_at_exit", "ring_buffers_out_at_exit", "ring_slots_taken_at_exit"] {
        assert_eq!(total[left], 0, "{left}");
    }
    assert_eq!(total["accepted"], total["closed"]);
    total
}

/// Has a program run where io_uring_setup(2), which is call 425 everywhere, is not permitted.
const WITHOUT_RINGS: &str = "
import ctypes, os, struct, sys
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
filter = struct.pack('HP', len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_check_tells_where_no_ring_is_possible() {
    if !is_installed("python3") {
        return;
    }
    let root = Root::new();
    let file = root.outside().join("weir.toml");
    for (arch, status) in [("ring", 2), ("loop", 0)] {
        let text = format!("root = '{}'\narch = '{arch}'\n", root.path().display());
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("python3");
        let stopped = run(command.args(["-c", WITHOUT_RINGS, WEIR, "check"]).arg(&file));
        assert_eq!(stopped.status.code(), Some(status), "{arch}: {}", stopped.stderr);
        let says = "line 2, column 8: --arch ring: io_uring is forbidden here";
        assert_eq!(stopped.stderr.contains(says), arch == "ring", "{}", stopped.stderr);
    }
}

fn check(client: &mut Client, file: &Served) {
    assert_same(&client.get(&file.target).body, &file.body, "the body");
}

#[test]
fn lent_buffers_come_back_however_the_client_leaves() {
    let root = Root::new();
    let (small, large) = (root.write_noise("small", 1000), root.write_noise("large", 3_000_000));
    for options in [&[][..], &["--preset", "acceptinf"], &["--preset", "accept10"]] {
        let Some(server) = ring(options, &root) else { return };
        for index in 0..60 {
            let mut client = server.connect();
            match index % 6 {
                0 => check(&mut client, &small),
                1 => check(&mut client, &large),
                2 => {
                    client.send(request("GET", &large.target, &[]));
                    client.reset();
                }
                3 => client.send(&request("GET", &small.target, &[])[..9]),
                4 => {
                    client.send(request("GET", &large.target, &["Connection: close"]));
                    client.finish_sending();
                    assert_same(&client.reply().body, &large.body, "the body");
                }
                _ => client.reset(),
            }
        }
        let half_open: Vec<_> = (0..20).map(|_| server.connect()).collect();
        check(&mut server.connect(), &small);
        drop(half_open);
        counters(server);
    }
}

#[test]
fn no_accept_phase_takes_more_than_the_limit() {
    let root = Root::with_hello();
    for (limit, c_avg_max) in [("1", 1.0), ("3", 3.0)] {
        let Some(server) = ring(&["--preset", "accept1", "--accept-limit", limit], &root) else {
            return;
        };
        // All are pending at once, so that an accept without a limit would take them all.
        let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/hello.txt").status, 200);
        }
        drop(clients);
        let total = counters(server);
        let (accepted, phases) = (total["accepted"].as_f64(), total["accept_phases"].as_f64());
        assert!(accepted.unwrap() / phases.unwrap() <= c_avg_max, "{accepted:?} in {phases:?}");
        assert_eq!(total["accepted"], 40);
    }
}

#[test]
fn receives_without_a_buffer_are_begun_again() {
    let root = Root::with_hello();
    let Some(server) = ring(&["--arch-option", "buffers=16"], &root) else { return };
    // More clients than buffers, whose requests come together.
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for _ in 0..5 {
        clients.iter_mut().for_each(|client| client.send(request("GET", "/hello.txt", &[])));
        for client in &mut clients {
            assert_eq!(client.reply().body, b"hello");
        }
    }
    drop(clients);
    assert_eq!(counters(server)["replies"], 1000);
}

#[test]
fn a_client_that_sends_more_than_it_reads_is_bounded_and_served() {
    let root = Root::new();
    let file = root.write_noise("body", 50_000);
    let Some(server) = ring(&[], &root) else { return };
    let count = 4000;
    let requests = request("GET", &file.target, &[]).repeat(count);
    let mut reader = server.connect();
    let mut writer = reader.another_end();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.send(requests));
        for _ in 0..count {
            assert_same(&reader.reply().body, &file.body, "the body");
        }
    });
    drop(reader);
    assert_eq!(counters(server)["replies"], count);
}

#[test]
fn zero_copy_replies_are_complete() {
    let root = Root::new();
    let files: Vec<_> =
        [5000, 40_000, 60_000].map(|size| root.write_noise(&format!("{size}"), size)).into();
    let Some(server) = ring(&["--arch-option", "zero-copy-from=1000"], &root) else { return };
    let mut client = server.connect();
    for file in files.iter().cycle().take(60) {
        check(&mut client, file);
    }
    drop(client);
    counters(server);
}

#[test]
fn replies_are_the_same_with_a_polling_thread_of_the_kernel() {
    let root = Root::new();
    let (small, large) = (root.write_noise("small", 1000), root.write_noise("large", 300_000));
    let Some(server) = ring(&["--arch-option", "sqpoll=1"], &root) else { return };
    let mut client = server.connect();
    for _ in 0..50 {
        check(&mut client, &small);
        check(&mut client, &large);
        check(&mut server.connect(), &small);
    }
    drop(client);
    assert_eq!(counters(server)["replies"], 150);
}
