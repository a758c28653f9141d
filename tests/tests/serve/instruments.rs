//! Statistics that cost something, and so are gathered when they are asked for.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use weir_tests::{Client, Root, Server, Setup, Stopped, suite};

use crate::WEIR;

suite! {
    every_architecture:
    each_accept_is_timed_when_that_is_asked_for_and_none_otherwise,
}

fn counted(stopped: &Stopped, name: &str) -> u64 {
    stopped.stats()["total"][name].as_u64().unwrap()
}

fn connect(server: &Server, count: usize) -> Vec<Client> {
    (0..count).map(|_| server.connect()).collect()
}

/// Processes that accept go on while their main process is stopped: their clients wait for nobody.
fn each_accept_is_timed_when_that_is_asked_for_and_none_otherwise(setup: &Setup) {
    const CLIENTS: usize = 8;
    let root = Root::with_hello();
    let stopped = |options: &[&str]| {
        let server = setup.serve(&root, &[&["--accept-limit", "1"], options].concat());
        server.signal(Signal::STOP);
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
