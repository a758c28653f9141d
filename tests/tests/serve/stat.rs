//! The statistics that a server publishes, read by `weir stat` while the server is idle, busy, in
//! the middle of a long accept-phase, stopped, or gone. No test here measures a duration.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_server::stats::{Merge, TABLE};
use weir_tests::family::{family_of, signal};
use weir_tests::server::run;
use weir_tests::wait::{until, until_ok};
use weir_tests::{Client, Root, Server, Setup, Stopped, request, suite};

use crate::WEIR;

suite! {
    every_architecture:
    what_is_read_agrees_with_the_clients_and_with_the_report,
    no_total_falls_while_connections_come_and_go,
}

/// Counters that a report changes as it is asked for, or that the kernel counts. What is allocated
/// of the whole process counts the report too.
const MOVING: [&str; 13] = [
    "getevents_",
    "event_",
    "ring_",
    "cpu_",
    "context_switches_",
    "accept_phases",
    "accept_would_block",
    "fibers_runnable",
    "fiber_switches",
    "lock_contended",
    "queue_asked",
    "memory_used_bytes",
    "memory_free_bytes",
];

fn command(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(WEIR);
    command.arg("stat").args(words).env("WEIR_RUN_DIR", dir);
    command
}

fn stat(dir: &Path, words: &[&str]) -> Stopped {
    run(&mut command(dir, words))
}

fn json(server: &Server) -> Value {
    let shown = stat(server.run_dir(), &[&server.id().to_string(), "--json"]);
    assert_eq!(shown.status.code(), Some(0), "{}", shown.stderr);
    serde_json::from_str(&shown.stdout).unwrap()
}

/// Returns whether a statistic is a present state, which may fall.
fn is_state(name: &str) -> bool {
    let row = TABLE.iter().find(|row| row.name == name);
    row.is_some_and(|row| matches!(row.merge, Merge::SumNow | Merge::Latest))
}

/// Returns the counters, without figures derived from them.
fn counters(json: &Value) -> BTreeMap<String, u64> {
    let total = json["total"].as_object().unwrap().iter();
    total.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

fn what_is_read_agrees_with_the_clients_and_with_the_report(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &["--workers", "2"]);
    for _ in 0..5 {
        let mut client = server.connect();
        assert_eq!(client.get("/hello.txt").text(), "hello");
        assert_eq!(client.get("/none").status, 404);
    }
    until("the connections were closed", || json(&server)["total"]["closed"] == 5);
    let read = json(&server);
    let of = |name: &str| read["total"][name].as_u64().unwrap();
    assert_eq!((of("accepted"), of("requests"), of("replies")), (5, 10, 10), "{}", setup.name);
    assert_eq!((of("status_2xx"), of("status_4xx")), (5, 5), "{}", setup.name);
    assert_eq!(read["pid"], server.id());
    assert_eq!(read["addresses"][0], format!("http://{}", server.authority()));
    let (read, report) = agreeing(&server);
    assert_eq!(report["loops"].as_array().unwrap().len(), read["loops"].as_array().unwrap().len());
    let names =
        |json: &Value| json["total"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&report), names(&read));
    let dir = server.run_dir().to_owned();
    let left =
        move || fs::read_dir(&dir).map_or(0, |entries| entries.flatten().filter(is_page).count());
    assert_eq!(left(), 1);
    let end = counters(&server.stop_cleanly().stats());
    assert_eq!((end["replies"], end["closed"], left()), (10, 5, 0), "{}", setup.name);
}

/// Asks for statistics and for a report until their counters agree, and returns both. Not every
/// loop or thread need have begun when the clients were answered.
fn agreeing(server: &Server) -> (Value, Value) {
    let is_moving = |name: &str| MOVING.iter().any(|moving| name.starts_with(moving));
    until_ok("what is read and the report agreed", || {
        let read = json(server);
        let report = server.new_report();
        let (of_page, of_report) = (counters(&read), counters(&report));
        let differing = of_report
            .iter()
            .find(|(name, value)| !is_moving(name) && of_page.get(*name) != Some(*value));
        match differing {
            Some((name, value)) => Err(format!("{name}: {:?}, {value}", of_page.get(name))),
            None => Ok((read, report)),
        }
    })
}

fn is_page(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().ends_with(".stat")
}

fn no_total_falls_while_connections_come_and_go(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &["--workers", "2"]);
    let over = AtomicBool::new(false);
    let count = thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let mut count: u64 = 0;
            while !over.load(Ordering::Relaxed) {
                assert_eq!(server.get("/hello.txt").text(), "hello");
                count += 1;
            }
            count
        });
        let mut last = counters(&json(&server));
        for _ in 0..10 {
            let next = counters(&json(&server));
            let fell = last.iter().find(|(name, value)| !is_state(name) && next[*name] < **value);
            if fell.is_some() {
                // The clients would go on, and nobody would hear of it.
                over.store(true, Ordering::Relaxed);
            }
            assert_eq!(fell, None, "{}", setup.name);
            assert!(next["closed"] <= next["accepted"] && next["replies"] <= next["requests"]);
            last = next;
        }
        over.store(true, Ordering::Relaxed);
        clients.join().unwrap()
    });
    until("every connection was closed", || json(&server)["total"]["closed"] == count);
    assert_eq!(json(&server)["total"]["replies"], count, "{}", setup.name);
    server.stop_cleanly();
}

#[test]
fn children_that_are_killed_leave_their_counts() {
    let root = Root::with_hello();
    let options = ["--arch", "processes", "--arch-option", "pool=2", "--workers", "1"];
    let server = Server::start(WEIR, &[&options[..], &["--bench-endpoints"]].concat(), &root);
    for _ in 0..5 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }
    // Enough to be seen in the ticks of /proc.
    assert_eq!(server.get("/.weir/burn?us=50000").status, 200);
    until("the connections were closed", || json(&server)["total"]["closed"] == 6);
    let of_kernel = || {
        let total = json(&server)["total"].clone();
        let of = |name: &str| total[name].as_u64();
        let cpu_ns = of("cpu_user_ns").zip(of("cpu_system_ns")).map(|(user, system)| user + system);
        (cpu_ns, of("context_switches_voluntary"), of("context_switches_involuntary"))
    };
    let before = of_kernel();
    assert!(before.0 > Some(0), "{before:?}");
    let masters = family_of(server.id());
    let children = masters.iter().filter(|pid| {
        // The main process has its master as a child, and the master the children.
        family_of(**pid).len() == 1
    });
    for child in children {
        signal(*child, Signal::KILL);
    }
    until("their ends were noticed", || json(&server)["total"]["children_lost"] == 2);
    assert_eq!(json(&server)["total"]["replies"], 6);
    let mut after = of_kernel();
    until("the kernel told of the new ones", || {
        after = of_kernel();
        after.0.is_some()
    });
    let fell = [after.0 < before.0, after.1 < before.1, after.2 < before.2];
    assert_eq!(fell, [false; 3], "{before:?} {after:?}");
    assert_eq!(server.get("/hello.txt").text(), "hello", "others take their places");
    until("the count went on", || json(&server)["total"]["replies"].as_u64() >= Some(7));
    let end = server.stop().stats();
    assert!(end["total"]["replies"].as_u64() >= Some(7), "{end}");
}

#[test]
fn a_server_in_the_middle_of_an_eager_accept_phase_is_read() {
    const CONNECTIONS: u64 = 60;
    let root = Root::with_hello();
    let options = ["--preset", "eager", "--bench-endpoints", "--workers", "1"];
    let server = Server::start(WEIR, &options, &root);
    let burn =
        |ms: u32| request("GET", &format!("/.weir/burn?us={}", ms * 1000), &["Connection: close"]);
    // While the first is served the others arrive, and none of the phase's accepts finds no more.
    let mut clients: Vec<Client> = Vec::new();
    for index in 0..CONNECTIONS {
        let mut client = server.connect();
        client.send(burn(if index == 0 { 300 } else { 30 }));
        clients.push(client);
    }
    let mut between = Vec::new();
    until("the phase had served some", || {
        let total = json(&server)["total"].clone();
        let of = |name: &str| total[name].as_u64().unwrap();
        between.push((of("accept_phases"), of("replies")));
        of("replies") == CONNECTIONS
    });
    let in_phase =
        |(phases, replies): &&(u64, u64)| *phases <= 2 && (2..CONNECTIONS).contains(replies);
    assert!(between.iter().filter(in_phase).count() >= 2, "{between:?}");
    server.stop_cleanly();
}

#[test]
fn top_needs_a_server_and_a_terminal() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &[], &root);
    let top = |words: &[&str]| {
        let mut command = Command::new(WEIR);
        let stopped = run(command.arg("top").args(words).env("WEIR_RUN_DIR", server.run_dir()));
        assert_eq!((stopped.status.code(), stopped.stdout.as_str()), (Some(2), ""));
        assert_eq!(stopped.stderr.lines().count(), 1, "{}", stopped.stderr);
        stopped.stderr
    };
    assert!(top(&[]).contains("needs a terminal"));
    assert!(top(&[&server.id().to_string()]).contains("needs a terminal"));
    assert!(top(&["999999999"]).contains("there is no process 999999999"));
    let other = std::process::id().to_string();
    assert!(top(&[&other]).contains("is no weir server"));
}

#[test]
fn calls_are_shown_while_they_are_profiled() {
    let root = Root::with_hello();
    for arch in ["loop", "processes"] {
        let options = ["--profile-calls", "--arch", arch, "--workers", "1"];
        let server = Server::start(WEIR, &options, &root);
        assert_eq!(server.get("/hello.txt").text(), "hello");
        until("the accept was shown", || {
            json(&server)["total"]["calls"]["accept4"]["count"].as_u64() >= Some(1)
        });
        server.stop_cleanly();
    }
}

mod command_line {
    use super::*;

    /// Starts a server that publishes its statistics in `dir`.
    fn serve_in(dir: &Path, root: &Root) -> Server {
        let script = format!("WEIR_RUN_DIR='{}' exec \"$@\"", dir.display());
        let root = root.as_ref().display().to_string();
        let words = [WEIR, "serve", &root, "--listen", "127.0.0.1:0", "--workers", "1"];
        Server::start_in_shell(&script, Stdio::null(), &words)
    }

    fn refused(dir: &Path, words: &[&str]) -> String {
        let shown = stat(dir, words);
        assert_eq!((shown.status.code(), shown.stdout.as_str()), (Some(2), ""), "{words:?}");
        assert_eq!(shown.stderr.lines().count(), 1, "{}", shown.stderr);
        shown.stderr
    }

    #[test]
    fn the_table_hides_what_never_happened() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--workers", "1"], &root);
        assert_eq!(server.get("/hello.txt").text(), "hello");
        until("the connection was closed", || json(&server)["total"]["closed"] == 1);
        // The only server is found without its number.
        let shown = stat(server.run_dir(), &[]);
        assert_eq!((shown.status.code(), shown.stderr.as_str()), (Some(0), ""));
        assert!(shown.stdout.contains("replies sent completely"), "{}", shown.stdout);
        assert!(!shown.stdout.contains("timeout_rate"), "{}", shown.stdout);
        let all = stat(server.run_dir(), &["--all"]).stdout;
        assert!(all.contains("timeout_rate"), "{all}");
        server.stop_cleanly();
    }

    #[test]
    fn several_servers_are_listed_and_dead_ones_are_forgotten() {
        let root = Root::with_hello();
        let dir = root.outside();
        let pages = || fs::read_dir(dir).unwrap().flatten().filter(is_page).count();
        assert!(refused(dir, &[]).contains("no weir server"));
        let (one, other) = (serve_in(dir, &root), serve_in(dir, &root));
        let list = stat(dir, &[]).stdout;
        let shown = |server: &Server| {
            let line = format!("http://{}", server.authority());
            list.lines().any(|row| row.contains(&server.id().to_string()) && row.contains(&line))
        };
        assert!(shown(&one) && shown(&other), "{list}");
        let json: Value = serde_json::from_str(&stat(dir, &["--json"]).stdout).unwrap();
        assert_eq!(json.as_array().unwrap().len(), 2);
        assert!(refused(dir, &["--watch"]).contains("several"));
        one.signal(Signal::KILL);
        one.wait();
        assert_eq!(pages(), 2);
        assert!(stat(dir, &[]).stdout.contains(&format!("process {}", other.id())));
        assert_eq!(pages(), 1);
        other.signal(Signal::KILL);
        other.wait();
        let third = serve_in(dir, &root);
        assert_eq!(pages(), 1);
        third.stop_cleanly();
        assert_eq!(pages(), 0);
    }

    #[test]
    fn what_is_no_server_is_refused_in_one_sentence() {
        let root = Root::with_hello();
        let dir = root.outside();
        assert!(refused(dir, &["4194999"]).contains("no process"));
        let own = std::process::id().to_string();
        assert!(refused(dir, &[&own]).contains("no weir server"));
        for words in [&["0"][..], &["x"], &["--watch", "0"], &["--watch", "4000"]] {
            refused(dir, words);
        }
    }

    #[test]
    fn a_file_that_is_no_page_is_refused_in_one_sentence() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--workers", "1"], &root);
        let path = server.run_dir().join(format!("{}.stat", server.id()));
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let pid = server.id().to_string();
        let write =
            |at, bytes: &[u8]| std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
        write(8, &9_u64.to_ne_bytes());
        assert!(refused(server.run_dir(), &[&pid]).contains("version 9"));
        write(8, &1_u64.to_ne_bytes());
        write(40, &u64::MAX.to_ne_bytes());
        assert!(refused(server.run_dir(), &[&pid]).contains("damaged"));
        write(0, b"NOTAPAGE");
        assert!(refused(server.run_dir(), &[]).contains("no page"));
        server.stop_cleanly();
    }

    #[test]
    fn a_server_serves_without_a_page() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--workers", "1", "--stat-page=off"], &root);
        assert!(refused(server.run_dir(), &[&server.id().to_string()]).contains("publishes"));
        server.stop_cleanly();
        for arch in ["loop", "processes"] {
            let words =
                [WEIR, "serve", ".", "--listen", "127.0.0.1:0", "--workers", "2", "--arch", arch];
            let script = "WEIR_RUN_DIR=/proc/none exec \"$@\"";
            let server = Server::start_in_shell(script, Stdio::null(), &words);
            assert_eq!(server.get("/none").status, 404);
            let stopped = server.stop_cleanly();
            assert_eq!(stopped.stats()["total"]["replies"], 1);
            assert_eq!(stopped.stderr.matches("cannot be read by `weir stat`").count(), 1);
        }
    }

    #[test]
    fn a_watch_ends_with_the_server_the_reader_or_a_signal() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--workers", "1"], &root);
        let dir = server.run_dir().to_owned();
        let start = |words: &[&str]| {
            command(&dir, words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut read = start(&["--watch", "0.01", "--json"]);
        let mut lines = std::io::BufReader::new(read.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["pid"], server.id());
        drop(lines);
        assert_eq!(read.wait().unwrap().code(), Some(0));
        let mut signalled = start(&["--watch"]);
        let mut first = [0; 4];
        std::io::Read::read_exact(signalled.stdout.as_mut().unwrap(), &mut first).unwrap();
        kill_process(Pid::from_child(&signalled), Signal::INT).unwrap();
        assert_eq!(signalled.wait().unwrap().code(), Some(0));
        let mut outlives = start(&["--watch", "0.01"]);
        std::io::Read::read_exact(outlives.stdout.as_mut().unwrap(), &mut first).unwrap();
        server.stop_cleanly();
        let ended = outlives.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&ended.stderr).contains("has ended"), "{ended:?}");
    }
}
