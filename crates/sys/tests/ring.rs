//! Guarantees of a poll ring, tested on the running kernel through the public interface.

#![allow(clippy::unwrap_used, reason = "a broken expectation is a failed test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_sys::epoll::{self, Event, EventFlags};
use weir_sys::ring::{Change, Completion, Ctl, CtlRing, PollRing};
use weir_sys::waker::Waker;

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(20));

const IN: u32 = EventFlags::IN.bits();
const OUT: u32 = EventFlags::OUT.bits();
const RDHUP: u32 = EventFlags::RDHUP.bits();

/// Opens a ring; `None`, with a message, where the kernel has none or forbids it.
fn ring(entries: u32) -> Option<PollRing> {
    PollRing::open(entries).inspect_err(|error| eprintln!("SKIPPED: no ring here: {error}")).ok()
}

fn wait(ring: &mut PollRing, timeout: Option<Duration>) -> Vec<Completion> {
    let mut completions = Vec::new();
    ring.wait(&mut completions, timeout).unwrap();
    completions
}

/// Waits until the completions of `data` have shown all of `wanted`; returns whether the poll stays
/// armed.
fn wait_for(ring: &mut PollRing, data: u64, wanted: u32) -> bool {
    let mut seen = 0;
    let mut more = true;
    while seen & wanted != wanted {
        let completions = wait(ring, LONG);
        assert!(!completions.is_empty(), "saw only {seen:#x} of {wanted:#x}");
        for completion in completions.iter().filter(|completion| completion.data == data) {
            assert!(completion.result > 0, "{completion:?}");
            seen |= completion.result as u32;
            more = completion.more;
        }
    }
    more
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    (near, far)
}

#[test]
fn a_descriptor_still_ready_completes_each_time_it_is_armed() {
    let Some(mut ring) = ring(8) else { return };
    let waker = Waker::new().unwrap();
    ring.arm(waker.as_fd().as_raw_fd(), 1, IN, false).unwrap();
    assert_eq!(wait(&mut ring, NOW), []);
    waker.wake();
    let expected = Completion { data: 1, result: IN as i32, more: false };
    assert_eq!(wait(&mut ring, LONG), [expected]);
    assert_eq!(wait(&mut ring, NOW), [], "once");
    ring.arm(waker.as_fd().as_raw_fd(), 2, IN, false).unwrap();
    assert_eq!(wait(&mut ring, NOW), [Completion { data: 2, ..expected }]);
}

#[test]
fn a_repeated_poll_tells_what_comes_though_what_came_is_unread() {
    let Some(mut ring) = ring(8) else { return };
    let (near, mut far) = tcp_pair();
    ring.arm(near.as_raw_fd(), 1, IN | OUT | RDHUP, true).unwrap();
    assert!(wait_for(&mut ring, 1, OUT));
    for _ in 0..3 {
        far.write_all(b"x").unwrap();
        assert!(wait_for(&mut ring, 1, IN));
    }
    assert_eq!(wait(&mut ring, NOW), [], "a repeated poll is of changes");
    far.shutdown(Shutdown::Write).unwrap();
    assert!(wait_for(&mut ring, 1, IN | RDHUP));
}

#[test]
fn bytes_and_their_end_are_told_when_they_come_at_once() {
    let Some(mut ring) = ring(8) else { return };
    let (near, mut far) = tcp_pair();
    ring.arm(near.as_raw_fd(), 1, IN | OUT | RDHUP, true).unwrap();
    assert!(wait_for(&mut ring, 1, OUT));
    far.write_all(b"last").unwrap();
    drop(far);
    wait_for(&mut ring, 1, IN | RDHUP);
}

#[test]
fn the_end_of_the_peers_bytes_is_told_unasked() {
    let Some(mut ring) = ring(8) else { return };
    let (mut near, far) = tcp_pair();
    while near.write(&[0; 65536]).is_ok() {}
    far.shutdown(Shutdown::Write).unwrap();
    for (data, many) in [(1, false), (2, true)] {
        ring.arm(near.as_raw_fd(), data, OUT, many).unwrap();
        assert_eq!(wait(&mut ring, LONG), [Completion { data, result: RDHUP as i32, more: many }]);
        assert_eq!(wait(&mut ring, NOW), []);
    }
}

#[test]
fn room_in_a_socket_that_was_full_is_told() {
    let Some(mut ring) = ring(8) else { return };
    let (mut near, mut far) = tcp_pair();
    ring.arm(near.as_raw_fd(), 1, IN | OUT | RDHUP, true).unwrap();
    assert!(wait_for(&mut ring, 1, OUT));
    let mut sent = 0;
    while let Ok(bytes) = near.write(&[0; 65536]) {
        sent += bytes;
    }
    far.read_exact(&mut vec![0; sent]).unwrap();
    assert!(wait_for(&mut ring, 1, OUT));
}

#[test]
fn a_close_lets_the_peer_go_once_the_poll_has_ended() {
    let Some(mut ring) = ring(8) else { return };
    for many in [false, true] {
        let (near, mut far) = tcp_pair();
        ring.arm(near.as_raw_fd(), 1, IN, many).unwrap();
        assert_eq!(wait(&mut ring, NOW), []);
        drop(near);
        far.set_nonblocking(true).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "held open");
        ring.disarm(1).unwrap();
        ring.submit().unwrap();
        far.set_nonblocking(false).unwrap();
        far.set_read_timeout(LONG).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        let expected = Completion { data: 1, result: -libc::ECANCELED, more: false };
        assert_eq!(wait(&mut ring, NOW), [expected]);
    }
}

#[test]
fn a_ring_that_is_dropped_has_ended_what_was_disarmed() {
    let Some(mut ring) = ring(8) else { return };
    let (near, mut far) = tcp_pair();
    ring.arm(near.as_raw_fd(), 1, IN, true).unwrap();
    assert_eq!(wait(&mut ring, NOW), []);
    drop(near);
    ring.disarm(1).unwrap();
    drop(ring);
    far.set_nonblocking(true).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_poll_ends_at_once_though_many_others_have_wake_ups_to_tell() {
    let Some(mut ring) = ring(256) else { return };
    let crowd: Vec<_> = (0..100).map(|_| Waker::new().unwrap()).collect();
    let (near, mut far) = tcp_pair();
    for (data, waker) in (0..).zip(&crowd) {
        ring.arm(waker.as_fd().as_raw_fd(), data, IN, false).unwrap();
    }
    ring.arm(near.as_raw_fd(), 1000, IN, false).unwrap();
    assert_eq!(wait(&mut ring, NOW), []);
    crowd.iter().for_each(Waker::wake);
    drop(near);
    ring.disarm(1000).unwrap();
    ring.submit().unwrap();
    far.set_read_timeout(LONG).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    assert_eq!(wait(&mut ring, NOW).len(), 101);
}

#[test]
fn a_poll_ends_though_something_happened_that_was_not_told_yet() {
    let Some(mut ring) = ring(8) else { return };
    for many in [false, true] {
        let (near, mut far) = tcp_pair();
        ring.arm(near.as_raw_fd(), 1, IN, many).unwrap();
        assert_eq!(wait(&mut ring, NOW), []);
        far.write_all(b"x").unwrap();
        ring.disarm(1).unwrap();
        let completions = wait(&mut ring, LONG);
        assert!(completions.iter().any(|last| !last.more), "{many} {completions:?}");
        drop(near);
        far.set_read_timeout(LONG).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn the_end_of_a_poll_that_is_none_says_nothing() {
    let Some(mut ring) = ring(8) else { return };
    ring.disarm(77).unwrap();
    assert_eq!(wait(&mut ring, NOW), []);
}

#[test]
fn a_closed_descriptor_completes_with_an_error() {
    let Some(mut ring) = ring(8) else { return };
    ring.arm(-1, 1, IN, false).unwrap();
    let expected = Completion { data: 1, result: -libc::EBADF, more: false };
    assert_eq!(wait(&mut ring, LONG), [expected]);
}

/// Arms more polls than there are entries, makes them all ready, and returns the user data of those
/// reported.
fn told_of_many(ring: &mut PollRing, many: bool) -> Vec<u64> {
    let wakers: Vec<_> = (0..200).map(|_| Waker::new().unwrap()).collect();
    for (data, waker) in (0..).zip(&wakers) {
        ring.arm(waker.as_fd().as_raw_fd(), data, IN, many).unwrap();
    }
    assert_eq!(wait(ring, NOW), []);
    wakers.iter().for_each(Waker::wake);
    let completions = wait(ring, LONG);
    assert!(completions.iter().all(|completion| completion.result == IN as i32));
    let mut told: Vec<_> = completions.iter().map(|completion| completion.data).collect();
    told.sort_unstable();
    told
}

#[test]
fn all_that_wake_between_two_waits_are_told_by_the_second() {
    let Some(mut ring) = ring(64) else { return };
    for many in [false, true] {
        assert_eq!(told_of_many(&mut ring, many), Vec::from_iter(0..200));
        (0..200).for_each(|data| ring.disarm(data).unwrap());
        wait(&mut ring, NOW);
    }
}

#[test]
fn nothing_is_lost_when_completions_overflow_their_queue() {
    for many in [false, true] {
        let Some(mut ring) = ring(1) else { return };
        assert_eq!(told_of_many(&mut ring, many), Vec::from_iter(0..200));
    }
}

#[test]
fn a_repeated_poll_goes_on_or_says_that_it_ended_when_its_queue_overflows() {
    let Some(mut ring) = ring(1) else { return };
    let waker = Waker::new().unwrap();
    let crowd: Vec<_> = (0..50).map(|_| Waker::new().unwrap()).collect();
    ring.arm(waker.as_fd().as_raw_fd(), 1000, IN, true).unwrap();
    for (data, other) in (0..).zip(&crowd) {
        other.wake();
        ring.arm(other.as_fd().as_raw_fd(), data, IN, false).unwrap();
    }
    waker.wake();
    let completions = wait(&mut ring, LONG);
    let last = completions.iter().rfind(|completion| completion.data == 1000).unwrap();
    if !last.more {
        ring.arm(waker.as_fd().as_raw_fd(), 1000, IN, true).unwrap();
        assert!(wait_for(&mut ring, 1000, IN));
    }
    waker.clear();
    waker.wake();
    assert!(wait_for(&mut ring, 1000, IN));
}

fn events(epoll: &impl AsFd) -> Vec<u64> {
    let mut events: Vec<Event> = Vec::with_capacity(64);
    epoll::wait(epoll.as_fd(), &mut events, NOW).unwrap();
    let mut data: Vec<_> = events.iter().map(|event| event.data.u64()).collect();
    data.sort_unstable();
    data
}

fn add(fd: &impl AsFd, data: u64) -> Ctl {
    Ctl { change: Change::Add, fd: fd.as_fd().as_raw_fd(), data, flags: EventFlags::OUT }
}

#[test]
fn each_change_of_a_batch_is_made_or_fails_by_itself() {
    let Ok(mut batch) = CtlRing::open(4) else { return };
    let epoll = epoll::create().unwrap();
    let ends: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
    let mut changes: Vec<_> = (0..).zip(&ends).map(|(data, (near, _))| add(near, data)).collect();
    changes.insert(3, Ctl { fd: -1, ..changes[0] });
    changes.insert(7, changes[2]);
    let mut results = vec![1];
    batch.apply(epoll.as_fd(), &changes, &mut results).unwrap();
    let mut expected = vec![0; 13];
    (expected[0], expected[4], expected[8]) = (1, -libc::EBADF, -libc::EEXIST);
    assert_eq!(results, expected);
    assert_eq!(events(&epoll), Vec::from_iter(0..10));
}

#[test]
fn a_batch_changes_and_deletes_in_the_order_given() {
    let Ok(mut batch) = CtlRing::open(8) else { return };
    let epoll = epoll::create().unwrap();
    let [first, second] = [0, 1].map(|_| UnixStream::pair().unwrap());
    let (one, two) = (add(&first.0, 1), add(&second.0, 2));
    let silent = Ctl { change: Change::Modify, flags: EventFlags::IN, ..one };
    let gone = Ctl { change: Change::Delete, ..two };
    let mut results = Vec::new();
    batch.apply(epoll.as_fd(), &[one, two, silent, gone, gone], &mut results).unwrap();
    assert_eq!(results, [0, 0, 0, 0, -libc::ENOENT]);
    assert_eq!(events(&epoll), []);
    let heard = Ctl { change: Change::Modify, data: 9, ..one };
    batch.apply(epoll.as_fd(), &[heard], &mut results).unwrap();
    assert_eq!(events(&epoll), [9]);
    batch.apply(epoll.as_fd(), &[], &mut results).unwrap();
    assert_eq!(results.len(), 6);
}
