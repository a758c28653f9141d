//! Statistics that cost something, and so are gathered when they are asked for.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use weir_sys::proc;
use weir_tests::server::run;
use weir_tests::wait::until;
use weir_tests::{Client, Root, Server, Setup, Stopped, suite};

use crate::WEIR;

suite! {
    every_architecture:
    each_accept_is_timed_when_that_is_asked_for_and_none_otherwise,
    phases_have_the_time_of_their_loop_when_that_is_asked_for_and_none_otherwise,
}

fn counted(stopped: &Stopped, name: &str) -> u64 {
    stopped.stats()["total"][name].as_u64().unwrap()
}

fn connect(server: &Server, count: usize) -> Vec<Client> {
    (0..count).map(|_| server.connect()).collect()
}

/// Returns whether all threads of a process are stopped: a signal does not wait for that.
fn all_are_stopped(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let state =
        |task: fs::DirEntry| proc::state(&fs::read_to_string(task.path().join("stat")).ok()?);
    tasks.flatten().all(|task| state(task) == Some('T'))
}

/// Processes that accept go on while their main process is stopped: their clients wait for nobody.
fn each_accept_is_timed_when_that_is_asked_for_and_none_otherwise(setup: &Setup) {
    const CLIENTS: usize = 8;
    let root = Root::with_hello();
    let stopped = |options: &[&str]| {
        let server = setup.serve(&root, &[&["--accept-limit", "1"], options].concat());
        server.signal(Signal::STOP);
        until("each thread had stopped", || all_are_stopped(server.id()));
        let mut clients = connect(&server, CLIENTS);
        sleep(Duration::from_millis(50));
        server.signal(Signal::CONT);
        for client in &mut clients {
            assert_eq!(client.get_with("/hello.txt", &["Connection: close"]).text(), "hello");
        }
        server.stop_cleanly()
    };
    let timed = stopped(&["--accept-queue-times"]);
    let [count, sum_ns, max_ns] = ["accept_queue_timed", "accept_queue_ns", "accept_queue_ns_max"]
        .map(|name| counted(&timed, name));
    assert_eq!(count, CLIENTS as u64);
    assert!(sum_ns <= count * max_ns, "{sum_ns} ns, at most {max_ns} ns each");
    if setup.arch.spelling != "processes" {
        assert!(sum_ns >= count * 30_000_000, "{sum_ns} ns for {count} connections");
    }
    assert_eq!(counted(&stopped(&[]), "accept_queue_timed"), 0);
}

/// Statistics of the phases.
const PHASES: [&str; 7] = [
    "getevents_user_ns",
    "getevents_system_ns",
    "accept_user_ns",
    "accept_system_ns",
    "work_user_ns",
    "work_system_ns",
    "phases_timed",
];

fn phases_have_the_time_of_their_loop_when_that_is_asked_for_and_none_otherwise(setup: &Setup) {
    let root = Root::with_hello();
    if !setup.arch.has_phases {
        let arguments = setup.with(&["--phase-times", "--listen", "127.0.0.1:0"]);
        let refused = run(Command::new(WEIR).arg("serve").arg(root.as_ref()).args(arguments));
        assert_eq!(refused.status.code(), Some(2));
        assert!(refused.stderr.contains("--phase-times makes no sense"), "{}", refused.stderr);
        return;
    }
    let stopped = |options: &[&str]| {
        let server = setup.serve(&root, &[&["--bench-endpoints"], options].concat());
        for _ in 0..20 {
            assert_eq!(server.get("/.weir/burn?us=100").status, 200);
        }
        server.stop_cleanly()
    };
    let timed = stopped(&["--phase-times"]);
    let counts = PHASES.map(|name| counted(&timed, name));
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let of_phases = counts[..6].iter().sum::<u64>();
    let of_loops = counted(&timed, "cpu_user_ns") + counted(&timed, "cpu_system_ns");
    assert!(of_phases <= of_loops, "{of_phases} ns of {of_loops} ns");
    let untimed = stopped(&[]);
    assert_eq!(PHASES.map(|name| counted(&untimed, name)), [0; 7]);
}
