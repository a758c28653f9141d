//! A child process shares no ring with its parent: fork is refused while a ring exists. Runs as a
//! process of its own with one thread, as fork(2) here requires.

#![allow(clippy::unwrap_used, reason = "a broken expectation is a failed test")]

use weir_sys::fork::{ExitStatus, fork, wait_child};
use weir_sys::ring::PollRing;
use weir_sys::ring::server::{RingConfig, ServerRing};

const SETTING: RingConfig = RingConfig {
    entries: 4,
    completions: 8,
    files: 4,
    buffers: 4,
    buffer_bytes: 512,
    sqpoll: None,
};

fn main() {
    let (Ok(polls), Ok(server)) = (PollRing::open(4), ServerRing::open(&SETTING)) else {
        return eprintln!("SKIPPED: no ring here");
    };
    nothing_of_a_ring_is_in_memory_that_a_child_has();
    is_refused("two rings");
    drop(polls);
    is_refused("one ring");
    drop(server);
    is_made();
}

fn is_refused(with: &str) {
    let error = fork().map(|id| if id == 0 { std::process::exit(9) } else { id }).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{with}");
}

fn is_made() {
    match fork().unwrap() {
        0 => std::process::exit(7),
        id => assert_eq!(wait_child(id).unwrap(), ExitStatus::Status(7)),
    }
}

/// Checks `dc` in proc_pid_smaps(5): not copied on fork. Queues are mapped from their ring's
/// descriptor; receive buffers are anonymous memory.
fn nothing_of_a_ring_is_in_memory_that_a_child_has() {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_ring = false;
    let (mut queues, mut uncopied) = (0, 0);
    for line in smaps.lines() {
        if line.split_whitespace().next().is_some_and(|word| word.contains('-')) {
            is_ring = line.contains("[io_uring]");
            queues += u32::from(is_ring);
        }
        let is_uncopied = line.starts_with("VmFlags:") && line.contains(" dc");
        uncopied += u32::from(is_uncopied);
        assert!(!(is_ring && line.starts_with("VmFlags:")) || is_uncopied, "{smaps}");
    }
    assert!(queues >= 2 && uncopied > queues, "{queues} queues, {uncopied} not copied");
}
