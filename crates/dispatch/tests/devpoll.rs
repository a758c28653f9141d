//! Tests of what a wait of devpoll gives to the kernel: the whole set by poll(2) with `scan=1`, as
//! the device went through its set (chandra-dispatch §3.2), and an entry of a ring without.
//!
//! The profile belongs to the process, and its table to the thread.

#![allow(clippy::unwrap_used)] // lints take a helper of a test for no test

use std::cell::RefCell;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_dispatch::readiness::kernel::{Kernel, Linux};
use weir_dispatch::readiness::settings::Settings;
use weir_dispatch::readiness::{DevPoll, Interest, Mechanism, Token};
use weir_sys::poll::PollFd;
use weir_sys::profile::{self, Call};

const NOW: Option<Duration> = Some(Duration::ZERO);

thread_local! {
    /// Number of entries given to each poll(2).
    static SCANNED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Linux, and a note of what poll(2) is given.
struct Noted;

impl Kernel for Noted {
    type Epoll = <Linux as Kernel>::Epoll;
    type Signals = <Linux as Kernel>::Signals;
    type Ring = <Linux as Kernel>::Ring;
    type Batch = <Linux as Kernel>::Batch;

    fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
        SCANNED.with_borrow_mut(|scanned| scanned.push(fds.len()));
        Linux::poll(fds, timeout)
    }

    fn select(
        nfds: usize,
        read: &mut [u64],
        write: &mut [u64],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        Linux::select(nfds, read, write, timeout)
    }
}

fn token(slot: u32) -> Token {
    Token { slot, generation: slot + 100 }
}

/// Opens devpoll; `None`, with a message, where the kernel does not have it.
fn open(choices: &[&str]) -> Option<DevPoll<Noted>> {
    let choices: Vec<_> = choices.iter().map(ToString::to_string).collect();
    DevPoll::open(&Settings::parse(DevPoll::<Noted>::TUNABLES, &choices).unwrap())
        .inspect_err(|error| eprintln!("SKIPPED: not possible here: {error}"))
        .ok()
}

fn ready(m: &mut DevPoll<Noted>) -> Vec<Token> {
    let mut ready = Vec::new();
    m.wait(NOW, &mut ready).unwrap();
    ready
}

/// Returns the numbers of polls and of io_uring_enters that two waits make, beside idle members
/// and one that is ready.
fn calls_of_two_waits(choices: &[&str]) -> Option<(u64, u64)> {
    profile::enable();
    let mut m = open(choices)?;
    let mut pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
    for (slot, (near, _)) in (0..).zip(&pairs) {
        m.add(near.as_fd(), token(slot), Interest::Read).unwrap();
    }
    pairs[2].1.write_all(b"x").unwrap();
    let calls = |call| profile::table().unwrap()[call as usize].count;
    let before = (calls(Call::Poll), calls(Call::IoUringEnter));
    assert_eq!(ready(&mut m), [token(2)]);
    assert_eq!(ready(&mut m), [token(2)], "level-triggered");
    Some((calls(Call::Poll) - before.0, calls(Call::IoUringEnter) - before.1))
}

#[test]
fn a_wait_is_a_poll_with_scan_and_a_call_of_the_ring_without() {
    assert_eq!(calls_of_two_waits(&["scan=1"]), Some((2, 0)));
    for choices in [&["scan=0"][..], &[]] {
        assert_eq!(calls_of_two_waits(choices).unwrap_or((0, 2)), (0, 2), "{choices:?}");
    }
}

#[test]
fn a_scan_goes_through_all_that_wait_whether_ready_or_idle() {
    let mut m = open(&["scan=1"]).unwrap();
    let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
    for (slot, (near, _)) in (0..).zip(&pairs) {
        m.add(near.as_fd(), token(slot), Interest::Read).unwrap();
    }
    assert_eq!(ready(&mut m), []);
    assert_eq!(ready(&mut m), []);
    m.change(pairs[7].0.as_fd(), token(7), Interest::Write).unwrap();
    assert_eq!(ready(&mut m), [token(7)]);
    m.change(pairs[8].0.as_fd(), token(8), Interest::Nothing).unwrap();
    m.remove(pairs[7].0.as_fd(), token(7)).unwrap();
    assert_eq!(ready(&mut m), []);
    assert_eq!(SCANNED.take(), [100, 100, 100, 98]);
}
