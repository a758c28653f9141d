//! Features specific to the ring: buffers lent to the kernel come back, and are accounted for
//! meanwhile, the accept-limit is exact, and no connection is lost by an accept, a lack of buffers
//! is not treated as a client's error, and a client that sends more than it reads is bounded.
//! Features common to all architectures are tested with them.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use weir_dispatch::readiness::MechanismName;
use weir_tests::files::Served;
use weir_tests::server::{UNHURRIED, run};
use weir_tests::wait::{WhenDone, until};
use weir_tests::{Client, Root, Server, assert_same, request};

use crate::WEIR;
use crate::memory::{ALL, PATIENT, is_served};
use crate::peers::is_installed;
use crate::proxy_buffers::stat;
use crate::succession::{ConfigFile, stop, successions, upgrade};

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

/// Number of connections that a server has room for.
const ROOM: usize = 5;

#[test]
fn without_a_limit_no_connection_is_accepted_that_there_is_no_slot_for() {
    // Of a short queue all that wait can be taken, until there are slots for too few of them.
    ["4096", "2"].into_iter().for_each(accepts_no_more_than_its_slots);
}

fn accepts_no_more_than_its_slots(queue_max: &str) {
    let root = Root::with_hello();
    root.write_noise("large", 32 << 20);
    let room = ROOM.to_string();
    let bounds = ["--max-conns", &room, "--listenq", queue_max, "--drain-timeout", "10ms"];
    let Some(server) = ring(&[&bounds[..], &ALL, &PATIENT].concat(), &root) else { return };
    let mut readers: Vec<_> = (0..ROOM)
        .map(|_| {
            let mut client = Client::connect_narrow(server.address());
            client.send(request("GET", "/large", &[]));
            client.head().unwrap();
            client
        })
        .collect();
    let mut waiting = server.connect();
    waiting.send(request("GET", "/hello.txt", &[]));
    drop(readers.pop());
    assert_eq!(waiting.reply().text(), "hello", "{queue_max}");
    counters(server);
}

/// Two listeners of one loop.
const LISTENERS: [&str; 4] = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];

#[test]
fn the_kernel_chooses_no_slot_that_was_promised_to_another_listener() {
    let root = Root::with_hello();
    let bounds = ["--max-conns", "40", "--listenq", "5"];
    let options = [&LISTENERS[..], &bounds, &ALL, &PATIENT].concat();
    let Some(server) = ring(&options, &root) else { return };
    let connect = || {
        let mut client = Client::connect(&server.addresses[1]);
        assert_eq!(client.get("/hello.txt").text(), "hello");
        client
    };
    // Those left are too few for all that could wait in both queues.
    let mut clients: Vec<_> = (0..29).map(|_| connect()).collect();
    drop(clients.drain(..20));
    until("there is room again", || stat(&server, "closed") == 20);
    clients.push(connect());
    // The kernel chooses the slot that was emptied last, and then the one behind it.
    drop(clients.remove(8));
    until("another is closed", || stat(&server, "closed") == 21);
    clients.extend([connect(), connect()]);
    drop(clients);
    counters(server);
}

#[test]
fn the_only_slot_is_for_a_client_of_any_listener() {
    let root = Root::with_hello();
    let options = [&LISTENERS[..], &["--max-conns", "1"], &PATIENT].concat();
    let Some(server) = ring(&options, &root) else { return };
    for address in server.addresses.iter().rev() {
        assert_eq!(Client::connect(address).get("/hello.txt").text(), "hello");
    }
    counters(server);
}

/// Clients that come to a full queue at once, each of which has a descriptor until it has its slot.
const AT_ONCE: usize = 40;

#[test]
fn no_connection_is_closed_for_a_descriptor_that_it_does_not_hold() {
    let root = Root::with_hello();
    // The number of a client's connections is known of one that has a descriptor.
    let options = ["--client-connections", "1000", "--bench-endpoints", ALL[0], ALL[1]];
    let Some(server) = ring(&[&options[..], &PATIENT].concat(), &root) else { return };
    let burn = |client: &mut Client| assert_eq!(client.get("/.weir/burn?us=1").status, 200);
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(burn);
    server.limit_descriptors(AT_ONCE as u64 / 4);
    server.signal(Signal::STOP);
    clients.extend((0..AT_ONCE).map(|_| server.connect()));
    server.signal(Signal::CONT);
    clients.iter_mut().rev().for_each(burn);
    drop(clients);
    let total = counters(server);
    assert!(total["accept_failed"].as_u64().unwrap() > 0, "{total}");
    assert_eq!(total["evicted"], 0);
}

/// A loop hears of its successor after a request that takes it a while, during which clients come
/// to its second listener. What they have sent is there before the loop has accepted them.
#[test]
fn requests_that_come_while_listeners_are_given_up_are_answered() {
    let root = Root::with_hello();
    let options = [&LISTENERS[..], &["--bench-endpoints"], &UNHURRIED].concat();
    let Some(server) = ring(&options, &root) else { return };
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for nth in 0..6 {
            let (server, ends, is_kept) = (&server, &ends, nth < 2);
            scope.spawn(move || {
                let address = &server.addresses[usize::from(!is_kept)];
                let target = if is_kept { "/.weir/burn?us=20000" } else { "/hello.txt" };
                let mut client = Client::connect(address);
                while !ends.load(Ordering::Relaxed) {
                    let reply = client.get(target);
                    assert_eq!(reply.status, 200);
                    if !is_kept || reply.lists("connection", "close") {
                        client = Client::connect(address);
                    }
                }
            });
        }
        let _done = WhenDone(&ends);
        (0..3).for_each(|before| upgrade(&server, before));
        for address in &server.addresses {
            assert_eq!(Client::connect(address).get("/hello.txt").text(), "hello");
        }
    });
    stop(server, "ring");
}

const RING: &str = "arch = 'ring'\n";

/// Configurations of servers that take each other's place. A connection wakes one of those that
/// wait for it, in whichever server.
const SUCCESSORS: [&str; 5] = [
    "arch = 'ring'\nheader = 'X-Version: two'\n",
    "arch = 'processes'\n",
    RING,
    "arch = 'loop'\nmechanism = 'epoll-exclusive'\n",
    RING,
];

/// Number of times that each of them takes the place of the last.
const ROUNDS: usize = 5;

/// A loop that is busy is woken by a client, and then hears of its successor.
#[test]
fn a_client_that_comes_as_a_ring_gives_up_its_listener_is_served_by_any_successor() {
    if MechanismName::UringPoll.try_open().is_err() {
        return eprintln!("SKIPPED: no ring for servers is possible here");
    }
    let root = Root::with_hello();
    let file = ConfigFile::new(RING);
    let options = ["--config", file.path(), "--workers", "1", "--bench-endpoints", ALL[0], ALL[1]];
    let server = Server::start(WEIR, &options, &root);
    let (ends, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        // No other client comes meanwhile: it would wake the successor for both.
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(server.get("/hello.txt").text(), "hello");
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _done = WhenDone(&ends);
        let texts = SUCCESSORS.iter().cycle().take(ROUNDS * SUCCESSORS.len());
        for (before, text) in texts.enumerate() {
            file.set(text);
            keep_busy(&server, || {
                server.signal(Signal::HUP);
                until("another process serves", || successions(&server) == before + 1);
            });
            let seen = served.load(Ordering::Relaxed);
            until("a client is served", || served.load(Ordering::Relaxed) > seen);
        }
    });
    stop(server, "ring");
}

/// Has a server burn processor time, for clients that it has accepted, while `run` runs.
fn keep_busy(server: &Server, run: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..3 {
        let mut client = server.connect();
        assert_eq!(client.get("/hello.txt").text(), "hello");
        clients.push(client);
    }
    thread::scope(|scope| {
        for client in &mut clients {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut is_open = true;
                while is_open && !is_over.load(Ordering::Relaxed) {
                    is_open = !client.get("/.weir/burn?us=5000").lists("connection", "close");
                }
            });
        }
        let _done = WhenDone(&is_over);
        run();
    });
}

/// Number of clients that read nothing, each of which has a part of a file in memory: more than the
/// budget together.
const UNREAD: usize = 80;

#[test]
fn clients_that_read_nothing_give_way_when_memory_is_short() {
    let root = Root::with_hello();
    root.write("large", vec![b'a'; 1 << 20]);
    // Of what is sent to a Unix socket the kernel takes less than a part.
    let listen = format!("unix:{}", root.outside().join("weir.socket").display());
    let options = ["--listen", &listen, "--memory", "16M", "--refuse", "fin", ALL[0], ALL[1]];
    let Some(server) = ring(&[&options[..], &PATIENT].concat(), &root) else { return };
    let ask = |_| {
        let mut client = Client::connect_narrow(server.address());
        let _ = client.try_send(request("GET", "/large", &[]));
        client
    };
    let crowd: Vec<_> = (0..UNREAD).map(ask).collect();
    until("one of them gave way", || stat(&server, "end_memory") > 0);
    until("a client was served beside them", || is_served(&server));
    drop(crowd);
    until("clients were served without them", || is_served(&server));
    counters(server);
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

/// Returns a request that fills a receive buffer of the ring.
fn filling(field: &str) -> String {
    let padded = |bytes| {
        let pad = format!("X-Pad: {}", "x".repeat(bytes));
        request("GET", "/hello.txt", &[field, &pad])
    };
    padded(4096 - padded(0).len())
}

#[test]
fn a_receive_without_a_buffer_is_not_begun_again_where_the_connection_is_being_closed() {
    let root = Root::with_hello();
    let options = [&["--arch-option", "buffers=16"][..], &UNHURRIED, &PATIENT].concat();
    let Some(server) = ring(&options, &root) else { return };
    let (mut other, mut client) = (server.connect(), server.connect());
    for _ in 0..2 {
        // The second comes to a receive that serves for all that follows.
        assert_eq!(other.get("/hello.txt").text(), "hello");
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }
    server.signal(Signal::STOP);
    other.send(filling("X-More: 1").repeat(15));
    // The last buffer takes its request, and none is left for the byte behind that.
    client.send(filling("Connection: close") + "x");
    server.signal(Signal::CONT);
    assert_eq!(client.reply().text(), "hello");
    assert!(client.is_closed());
    for _ in 0..15 {
        assert_eq!(other.reply().text(), "hello");
    }
    drop(other);
    counters(server);
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
    thread::scope(|scope| {
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
fn replies_are_copied_where_the_kernel_refuses_to_do_without() {
    let root = Root::new();
    let files: Vec<_> =
        [5000, 40_000, 600_000].map(|size| root.write_noise(&format!("{size}"), size)).into();
    let listen = format!("unix:{}", root.outside().join("weir.socket").display());
    let memory = ["--sendfile-above", "1M", "--arch-option", "zero-copy-from=1000"];
    let Some(server) = ring(&[&["--listen", &listen], &memory[..]].concat(), &root) else { return };
    let mut client = server.connect();
    for file in files.iter().cycle().take(30) {
        check(&mut client, file);
    }
    drop(client);
    for file in &files {
        let reply = server.get_with(&file.target, &["Connection: close"]);
        assert_same(&reply.body, &file.body, "the last body");
    }
    counters(server);
}

#[test]
fn a_client_that_reads_a_zero_copy_reply_slowly_gets_all_of_it() {
    let root = Root::new();
    let file = root.write_noise("large", 16 << 20);
    let memory = ["--sendfile-above", "32M", "--arch-option", "zero-copy-from=1000"];
    let options = [&memory[..], &["--min-rate-grace", "1s"]].concat();
    let Some(server) = ring(&options, &root) else { return };
    let mut client = Client::connect_with(server.address(), Some(256 << 10)).unwrap();
    client.send(request("GET", &file.target, &[]));
    let head = client.head().unwrap();
    // A MiB per second, while more is to come than the kernel takes at once.
    assert!(client.read_slowly(3 << 20, 64 << 10, Duration::from_millis(60)));
    assert_same(&client.body(head).unwrap().body, &file.body, "the body");
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
