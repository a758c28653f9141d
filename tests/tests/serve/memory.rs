//! The memory budget: the account is what the server takes, and the budget holds.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir_tests::files::settle;
use weir_tests::wait::{WhenDone, until};
use weir_tests::{Address, Client, Root, Server, Setup, request, suite};

use crate::WEIR;
use crate::admin::{ADMIN, admin, ask, metric};

suite! {
    every_architecture_at_once:
    the_account_is_published,
    a_server_that_is_full_refuses_and_serves_again,
}

/// A mebibyte, bytes.
pub(crate) const MIB: u64 = 1 << 20;

/// Nothing is refused because of load.
pub(crate) const ALL: [&str; 2] = ["--accept-limit", "inf"];

/// Deadlines that never pass during a test.
pub(crate) const PATIENT: [&str; 8] = [
    "--header-timeout",
    "10m",
    "--idle-timeout",
    "10m",
    "--stall-timeout",
    "10m",
    "--min-rate",
    "0",
];

/// Returns the resident memory of a server of one process that is of no file, bytes. The program's
/// own pages come as they are first needed, and go as the kernel likes.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Returns a figure of the metrics that the server at the admin address has.
pub(crate) fn figure(address: &Address, name: &str) -> u64 {
    let reply = ask(address, "/metrics");
    metric(&reply.text(), &format!("weir_{name}")).expect(name) as u64
}

/// Connects and sends, whether the server takes it or not; `None` if it has refused the connection.
/// `receive_buffer` is in bytes.
fn try_to_ask(
    server: &Server,
    receive_buffer: Option<usize>,
    bytes: impl AsRef<[u8]>,
) -> Option<Client> {
    let mut client = Client::connect_with(server.address(), receive_buffer).ok()?;
    let _ = client.try_send(bytes);
    Some(client)
}

/// Returns whether a new client gets its reply now.
pub(crate) fn is_served(server: &Server) -> bool {
    let ask = request("GET", "/hello.txt", &["Connection: close"]);
    let client = try_to_ask(server, None, ask);
    client.is_some_and(|mut it| it.try_reply().is_ok_and(|reply| reply.text() == "hello"))
}

/// Returns a request head that is not complete, of about `bytes`.
fn half_a_head(bytes: usize) -> String {
    let line = format!("X-Filler: {}\r\n", "x".repeat(1000));
    let fields = line.repeat(bytes / line.len());
    format!("GET /hello.txt HTTP/1.1\r\nHost: test.example\r\n{fields}")
}

fn the_account_is_published(setup: &Setup) {
    let root = Root::with_hello();
    settle(&root.path().join("hello.txt"));
    let server = setup.serve(&root, &[&["--memory", "1G"], &ADMIN[..]].concat());
    let address = admin(&server);
    let mut client = server.connect();
    until("the account is published", || {
        // The numbers may be of several moments, and stay so until there is something to tell.
        assert_eq!(client.get("/hello.txt").text(), "hello");
        let parts = ["connections", "content", "buffers", "tls", "listings", "upstreams"];
        let parts = parts.map(|part| figure(&address, &format!("memory_{part}_bytes")));
        let used = figure(&address, "memory_used_bytes");
        // A connection is open, and a file is cached.
        figure(&address, "memory_limit_bytes") == 1 << 30
            && parts[0] > 0
            && parts[1] > 0
            && (1..=used).contains(&parts.iter().sum())
    });
    drop(client);
    assert_eq!(figure(&address, "refusals_total{reason=\"memory\"}"), 0);
    server.stop_cleanly();
}

/// The least budget, and more than that in connections that each hold a part of a head.
fn a_server_that_is_full_refuses_and_serves_again(setup: &Setup) {
    let root = Root::with_hello();
    let options = ["--memory", "16M", "--workers", "1", "--refuse", "fin", ALL[0], ALL[1]];
    let server = setup.serve(&root, &[&options[..], &PATIENT, &ADMIN].concat());
    let head = half_a_head(60 << 10);
    let mut crowd = Vec::new();
    for _ in 0..600 {
        crowd.extend(try_to_ask(&server, None, &head));
    }
    until("a client was served beside the crowd", || is_served(&server));
    drop(crowd);
    until("the crowd was gone and clients were served", || is_served(&server));
    let stopped = server.stop_cleanly();
    let stats = stopped.stats();
    let of = |name: &str| stats["total"][name].as_u64().unwrap();
    let gave_way = of("end_memory") + of("refused_memory") + of("refused_memory_requests");
    assert!(gave_way > 0, "{}: {}", setup.name, stats["total"]["memory_used_bytes"]);
    assert!(stopped.stderr.contains("memory is short"), "{}", setup.name);
}

/// Number and size of the files that fill a cache, and of those that are sent to clients that do
/// not read: more than the kernel takes for them.
const SMALL_FILES: usize = 600;
const SMALL_BYTES: usize = 100 << 10;
const LARGE_FILES: usize = 12;
const LARGE_BYTES: usize = 12 << 20;

/// What the account says of some thousand connections, of large bodies that are sent to clients
/// that do not read, and of a full cache is what the kernel says, to a quarter and 8 MiB.
#[test]
fn the_account_is_the_resident_memory() {
    let root = Root::with_hello();
    let mut last = root.path().to_owned();
    for index in 0..SMALL_FILES {
        last = root.write(&format!("{index}"), vec![b'a'; SMALL_BYTES]);
    }
    for index in 0..LARGE_FILES {
        last = root.write(&format!("large{index}"), vec![b'a'; LARGE_BYTES]);
    }
    settle(&last);
    let options = [
        "--memory",
        "2G",
        "--workers",
        "2",
        "--cache-size",
        "512M",
        "--sendfile-above",
        "64M",
        "--compress=off",
        ALL[0],
        ALL[1],
    ];
    let server = Server::start(WEIR, &[&options[..], &PATIENT, &ADMIN].concat(), root.path());
    let address = admin(&server);
    assert_eq!(server.get("/hello.txt").text(), "hello");
    let before = (figure(&address, "memory_used_bytes"), resident(&server));
    let mut held = Vec::new();
    let mut compare = |what: &str, least: u64, more: Vec<Client>| {
        held.push(more);
        let mut seen = (0, 0);
        // The figures are those of a moment ago.
        until(&format!("the account has {what}"), || {
            let used = figure(&address, "memory_used_bytes").saturating_sub(before.0);
            seen = (used, resident(&server).saturating_sub(before.1));
            used > least
        });
        let (used, taken) = seen;
        println!("{what}: {} KiB in the account, {} KiB resident", used >> 10, taken >> 10);
        assert!(taken.abs_diff(used) <= used / 4 + 8 * MIB, "{what}: {used} and {taken}");
    };
    let head = half_a_head(14 << 10);
    let half = |_| {
        let mut client = server.connect();
        client.send(&head);
        client
    };
    let mut least = 3000 * (14 << 10);
    compare("connections", least, (0..3000).map(half).collect());
    let reads_nothing = |index: usize| {
        let mut client = Client::connect_narrow(server.address());
        client.send(request("GET", &format!("/large{index}"), &[]));
        client
    };
    least += (LARGE_FILES * LARGE_BYTES) as u64;
    compare("bodies that are not read", least, (0..LARGE_FILES).map(reads_nothing).collect());
    for index in 0..SMALL_FILES {
        assert_eq!(server.get(&format!("/{index}")).body.len(), SMALL_BYTES);
    }
    least += (SMALL_FILES * SMALL_BYTES) as u64;
    compare("a full cache", least, Vec::new());
    let parts = ["connections", "buffers", "content"];
    let parts = parts.map(|part| figure(&address, &format!("memory_{part}_bytes")));
    let (used, told) = (figure(&address, "memory_used_bytes"), parts.iter().sum::<u64>());
    assert!(told <= used + MIB && told >= used / 10 * 9, "{parts:?} of {used}");
    drop(held);
    server.stop_cleanly();
}

/// Budget of a server whose clients ask for ten times as much.
const BUDGET: u64 = 64 * MIB;

/// Number and size of the files that they ask for, for which each of two loops has a cache of its
/// own, and of those that they do not read: more than the kernel takes for them.
const FILES: usize = 800;
const FILE_BYTES: usize = 512 << 10;
const UNREAD_FILES: usize = 40;
const UNREAD_BYTES: usize = 7 << 20;

/// Size up to which files are sent from memory.
const UNREAD_LIMIT: &str = "8M";

/// Highest resident memory seen while a test runs.
struct Peak<'s> {
    server: &'s Server,
    bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Peak<'_> {
    fn watch(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.bytes.fetch_max(resident(self.server), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Writes what the clients ask for: files, those that they do not read, and directories.
fn write_site(root: &Root) {
    for index in 0..FILES {
        root.write(&format!("{index}"), vec![b'a' + (index % 26) as u8; FILE_BYTES]);
    }
    for index in 0..UNREAD_FILES {
        root.write(&format!("unread{index}"), vec![b'a'; UNREAD_BYTES]);
    }
    let mut last = root.path().to_owned();
    for directory in 0..20 {
        for name in 0..200 {
            last = root.write(&format!("d{directory}/{name}-{}", "n".repeat(200)), "");
        }
    }
    settle(&last);
}

/// Asks for a tenth of 190 MiB for heads, 280 MiB of bodies that are not read, 800 MiB of files for
/// the caches, and 200 listings. Adds the connections that stay open to the crowd.
fn ask_for_too_much(server: &Server, round: usize, crowd: &mut Vec<Client>) {
    let head = half_a_head(60 << 10);
    for index in 0..300 {
        crowd.extend(try_to_ask(server, None, &head));
        if index % 75 == 0 {
            let target = format!("/unread{}", round * 4 + index / 75);
            crowd.extend(try_to_ask(server, Some(4096), request("GET", &target, &[])));
        }
    }
    let files = (round * 160..(round + 1) * 160).map(|file| format!("/{}", file % FILES));
    for target in files.chain((0..20).map(|directory| format!("/d{directory}/"))) {
        let ask = request("GET", &target, &["Connection: close"]);
        let _ = try_to_ask(server, None, ask).map(|mut client| client.try_reply());
    }
}

#[test]
fn clients_that_ask_for_ten_times_the_budget_do_not_get_it_and_others_are_served() {
    let root = Root::with_hello();
    write_site(&root);
    let budget = BUDGET.to_string();
    let of_memory =
        ["--memory", &budget, "--cache-size", "1G", "--sendfile-above", UNREAD_LIMIT, "--workers"];
    let others = ["2", "--listing=on", "--compress=off", "--refuse", "rst"];
    let options = [&of_memory[..], &others, &ALL, &PATIENT, &ADMIN].concat();
    let server = Server::start(WEIR, &options, root.path());
    let address = admin(&server);
    assert!(is_served(&server));
    let baseline = resident(&server);
    let peak = Peak { server: &server, bytes: AtomicU64::new(0), is_over: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        scope.spawn(|| peak.watch());
        let _done = WhenDone(&peak.is_over);
        let mut crowd = Vec::new();
        for round in 0..10 {
            ask_for_too_much(&server, round, &mut crowd);
            until("a client was served beside them", || is_served(&server));
        }
    });
    let most = peak.bytes.load(Ordering::Relaxed);
    println!("resident: {} KiB at first, {} KiB at most", baseline >> 10, most >> 10);
    // What a loop allocates between two looks at the budget comes on top.
    let bound = baseline + BUDGET + BUDGET / 16;
    assert!(most <= bound, "{} KiB of {} KiB", most >> 10, bound >> 10);
    assert!(figure(&address, "memory_shortages_total") > 0);
    let stats = server.stop_cleanly().stats();
    let of = |name: &str| stats["total"][name].as_u64().unwrap();
    let gave_way = ["cache_evicted", "end_memory", "refused_memory"].map(of);
    assert!(gave_way.iter().all(|count| *count > 0), "{gave_way:?}");
}
