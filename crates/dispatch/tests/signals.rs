//! Tests specific to the mechanisms based on real-time signals: a queue that overflows, signals of
//! removed members, an end of file hidden behind bytes. The contract itself is tested with all
//! other mechanisms.
//!
//! The limit on queued signals and the descriptor numbers belong to the process, so one test runs
//! at a time.

#![allow(clippy::unwrap_used)] // lints take a helper of a test for no test

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use weir_dispatch::readiness::settings::Settings;
use weir_dispatch::readiness::{Counts, Interest, Mechanism, Rtsig, RtsigBulk, SignalPerFd, Token};
use weir_sys::epoll::{self, EventFlags};

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(20));
const PLENTY: u64 = 10_000;

macro_rules! for_each_mechanism {
    ($($test:ident $body:ident,)+) => {
        $(#[test]
        fn $test() {
            let _alone = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
            $body::<Rtsig>();
            $body::<RtsigBulk>();
            $body::<SignalPerFd>();
        })+
    };
}

static PROCESS: Mutex<()> = Mutex::new(());

for_each_mechanism! {
    a_queue_that_overflows_loses_no_event overflow,
    a_work_phase_overflows_the_queue_unless_it_is_coalesced work,
    a_signal_of_one_who_has_gone_is_not_believed_of_who_has_the_number_now reuse,
    an_end_announced_before_the_last_bytes_are_read_is_found end,
    an_end_announced_after_a_poll_found_the_bytes_is_found end_after_poll,
    a_member_is_asked_once_and_then_believed ask,
    a_member_that_cannot_signal_wakes_a_wait_all_the_same mute,
    loops_that_share_a_listening_socket_all_hear_of_a_connection share,
    a_listening_socket_is_asked_about_until_an_accept_fails_or_it_is_removed listen,
}

#[test]
fn select_stands_in_after_an_overflow_and_signals_come_back() {
    let _alone = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    fall_back::<Rtsig>();
    fall_back::<RtsigBulk>();
}

#[test]
fn what_is_unsure_waits_for_an_empty_queue_if_a_wait_reports_one_signal() {
    let _alone = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    for (choice, reported) in [("one-per-wait=1", [1, 4]), ("one-per-wait=0", [5, 5])] {
        assert_eq!(reported_by_two_waits::<Rtsig>(choice), reported, "{choice}");
        assert_eq!(reported_by_two_waits::<SignalPerFd>(choice), reported, "{choice}");
    }
}

#[test]
fn a_wait_takes_the_first_descriptor_of_many_if_it_is_to_and_keeps_the_others() {
    let _alone = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut m, pairs) = with_two_signals_each("one-per-wait=1");
    for slot in [0, 1, 3] {
        assert_eq!(ready(&mut m, LONG), [token(slot)], "the next that has not left");
        assert_eq!(read_all(&mut m, &pairs[slot as usize].0, token(slot)), 2);
        if slot == 0 {
            m.remove(pairs[2].0.as_fd(), token(2)).unwrap();
        }
        let Counts { notices, coalesced, .. } = m.counts();
        assert_eq!((notices, coalesced), (8, 4), "the first wait took all that were queued");
    }
    assert_eq!(ready(&mut m, NOW), []);
    let (mut m, _pairs) = with_two_signals_each("one-per-wait=0");
    assert_eq!(ready(&mut m, LONG), [0, 1, 2, 3].map(token));
}

#[test]
fn no_event_is_lost_by_an_overflow_while_descriptors_are_kept() {
    const MEMBERS: u32 = 50;
    let _alone = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut m: SignalPerFd =
        open_with(&["pending-signals=8".to_owned(), "one-per-wait=1".to_owned()]);
    let pairs = members(&mut m, MEMBERS);
    pairs[..4].iter().for_each(|(_, far)| send(far));
    assert_eq!(ready(&mut m, LONG), [token(0)]);
    pairs.iter().for_each(|(_, far)| send(far));
    let sent = MEMBERS as usize + 4;
    assert_eq!(read_until(&mut m, &pairs, sent), sent);
    assert!(m.counts().overflows > 0);
}

fn open<M: Mechanism>(pending_max: u64) -> M {
    open_with(&[format!("pending-signals={pending_max}")])
}

fn open_with<M: Mechanism>(choices: &[String]) -> M {
    M::open(&Settings::parse(M::TUNABLES, choices).unwrap()).unwrap()
}

fn token(slot: u32) -> Token {
    Token { slot, generation: slot + 100 }
}

fn ready<M: Mechanism>(mechanism: &mut M, timeout: Option<Duration>) -> Vec<Token> {
    let mut ready = Vec::new();
    mechanism.wait(timeout, &mut ready).unwrap();
    ready
}

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    (near, far)
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let near = listener.accept().unwrap().0;
    near.set_nonblocking(true).unwrap();
    (near, far)
}

/// Adds members that wait to read, and of which the mechanism is sure.
fn members<M: Mechanism>(mechanism: &mut M, count: u32) -> Vec<(UnixStream, UnixStream)> {
    let pairs: Vec<_> = (0..count).map(|_| pair()).collect();
    for (slot, (near, _)) in (0..).zip(&pairs) {
        mechanism.add(near.as_fd(), token(slot), Interest::Read).unwrap();
    }
    assert_eq!(ready(mechanism, NOW), []);
    pairs
}

fn send(mut far: &UnixStream) {
    far.write_all(b"x").unwrap();
}

/// Reads all available bytes, calls `blocked`, and returns their number.
fn read_all<M: Mechanism>(mechanism: &mut M, mut near: &UnixStream, token: Token) -> usize {
    let mut sum = 0;
    while let Ok(bytes @ 1..) = near.read(&mut [0; 64]) {
        sum += bytes;
    }
    mechanism.blocked(token, Interest::Read);
    sum
}

/// Waits and reads until `bytes` have arrived.
fn read_until<M: Mechanism>(
    mechanism: &mut M,
    pairs: &[(UnixStream, UnixStream)],
    bytes: usize,
) -> usize {
    let mut sum = 0;
    while sum < bytes {
        for token in ready(mechanism, LONG) {
            sum += read_all(mechanism, &pairs[token.slot as usize].0, token);
        }
    }
    sum
}

fn overflow<M: Mechanism>() {
    const MEMBERS: u32 = 50;
    const PENDING: u32 = 8;
    let mut m: M = open(PENDING.into());
    let pairs = members(&mut m, MEMBERS);
    for round in 1..=3 {
        for (_, far) in &pairs {
            send(far);
        }
        assert_eq!(read_until(&mut m, &pairs, MEMBERS as usize), MEMBERS as usize);
        let Counts { overflows, swept, .. } = m.counts();
        assert!(overflows >= round, "{round} queues were too short: {overflows} overflows");
        assert!(swept >= round * u64::from(MEMBERS - PENDING), "{swept} were looked at");
    }
    assert_eq!(ready(&mut m, NOW), []);
    send(&pairs[7].1);
    assert_eq!(ready(&mut m, LONG), [token(7)], "signals come as before");
}

fn fall_back<M: Mechanism>() {
    const MEMBERS: u32 = 50;
    let mut m: M = open_with(&["pending-signals=8".to_owned(), "fallback=1".to_owned()]);
    let pairs = members(&mut m, MEMBERS);
    for round in 1..=3 {
        for (_, far) in &pairs {
            send(far);
        }
        let first = ready(&mut m, LONG);
        assert!(m.accepts_all(), "no connection may be missed while signals are");
        let mut sum = 0;
        for token in first {
            sum += read_all(&mut m, &pairs[token.slot as usize].0, token);
        }
        sum += read_until(&mut m, &pairs, MEMBERS as usize - sum);
        assert_eq!(sum, MEMBERS as usize);
        // What is writable may be reported once: it is presumed.
        while m.accepts_all() {
            ready(&mut m, NOW);
        }
        let Counts { overflows, fallbacks, swept, .. } = m.counts();
        assert!(overflows >= round && fallbacks >= 2 * round, "{overflows}, {fallbacks}");
        assert_eq!(swept, 0);
    }
    assert_eq!(ready(&mut m, NOW), []);
    let asked = m.counts().fallbacks;
    send(&pairs[7].1);
    assert_eq!(ready(&mut m, LONG), [token(7)], "signals come as before");
    assert_eq!(m.counts().fallbacks, asked);
}

/// Returns the number of members that two waits report, of five with a byte to read. One has a
/// signal; the bytes of the others came before they were added.
fn reported_by_two_waits<M: Mechanism>(choice: &str) -> [usize; 2] {
    let mut m: M = open_with(&[format!("pending-signals={PLENTY}"), choice.to_owned()]);
    let signalled = members(&mut m, 1);
    let unsure: Vec<_> = (0..4).map(|_| pair()).collect();
    for (slot, (near, far)) in (1..).zip(&unsure) {
        send(far);
        m.add(near.as_fd(), token(slot), Interest::Read).unwrap();
    }
    send(&signalled[0].1);
    let first = ready(&mut m, LONG);
    if first == [token(0)] {
        assert_eq!(read_all(&mut m, &signalled[0].0, token(0)), 1);
    }
    [first.len(), ready(&mut m, LONG).len()]
}

/// Returns four members with two signals each.
fn with_two_signals_each(choice: &str) -> (SignalPerFd, Vec<(UnixStream, UnixStream)>) {
    let mut m = open_with(&[choice.to_owned()]);
    let pairs = members(&mut m, 4);
    for _ in 0..2 {
        pairs.iter().for_each(|(_, far)| send(far));
    }
    (m, pairs)
}

/// Checks that no event is lost when three arrive per member while one member is served, and the
/// queue holds two per member.
fn work<M: Mechanism>() {
    const MEMBERS: u32 = 100;
    let mut m: M = open(2 * u64::from(MEMBERS));
    let pairs = members(&mut m, MEMBERS);
    let mut read = 0;
    for (slot, (near, far)) in (0..).zip(&pairs) {
        (0..3).for_each(|_| send(far));
        read += read_all(&mut m, near, token(slot));
    }
    assert_eq!(read, 3 * MEMBERS as usize);
    ready(&mut m, NOW);
    let Counts { overflows, coalesced, .. } = m.counts();
    assert_eq!(overflows == 0, coalesced > 0, "{overflows} overflows, {coalesced} coalesced");
    let coalesces = std::any::type_name::<M>() == std::any::type_name::<SignalPerFd>();
    assert_eq!(coalesced > 0, coalesces);
}

fn reuse<M: Mechanism>() {
    let mut m: M = open(PLENTY);
    let pairs = members(&mut m, 1);
    let (near, far) = &pairs[0];
    let number = near.as_raw_fd();
    send(far);
    m.remove(near.as_fd(), token(0)).unwrap();
    drop(pairs);
    let mut others: Vec<(UnixStream, UnixStream)> = Vec::new();
    while !others.iter().any(|(near, _)| near.as_raw_fd() == number) {
        others.push(pair());
    }
    let (near, far) = others.iter().find(|(near, _)| near.as_raw_fd() == number).unwrap();
    m.add(near.as_fd(), token(1), Interest::Read).unwrap();
    for _ in 0..4 {
        assert_eq!(ready(&mut m, NOW), [], "what was queued is not the new one's");
    }
    let stale = m.counts().stale;
    assert!(stale >= 1, "{stale} were stale");
    send(far);
    assert_eq!(ready(&mut m, LONG), [token(1)]);
    assert_eq!(m.counts().stale, stale);
}

fn end<M: Mechanism>() {
    let mut m: M = open(PLENTY);
    let (mut near, mut far) = tcp_pair();
    m.add(near.as_fd(), token(3), Interest::Read).unwrap();
    assert_eq!(ready(&mut m, NOW), []);
    far.write_all(b"last").unwrap();
    assert_eq!(ready(&mut m, LONG), [token(3)]);
    far.shutdown(Shutdown::Write).unwrap();
    // The end's notices are taken before the bytes are read.
    while m.counts().notices < 2 {
        assert_eq!(ready(&mut m, LONG), [token(3)]);
    }
    for _ in 0..3 {
        assert_eq!(ready(&mut m, NOW), [token(3)]);
    }
    assert_eq!(near.read(&mut [0; 64]).unwrap(), 4);
    m.blocked(token(3), Interest::Read);
    assert_eq!(ready(&mut m, Some(Duration::from_secs(5))), [token(3)], "the end is to be seen");
    assert_eq!(near.read(&mut [0; 64]).unwrap(), 0);
}

fn end_after_poll<M: Mechanism>() {
    let mut m: M = open(PLENTY);
    let (mut near, far) = pair();
    send(&far);
    m.add(near.as_fd(), token(3), Interest::Read).unwrap();
    assert_eq!(ready(&mut m, NOW), [token(3)]);
    far.shutdown(Shutdown::Write).unwrap();
    while m.counts().notices == 0 {
        assert_eq!(ready(&mut m, LONG), [token(3)]);
    }
    assert_eq!(near.read(&mut [0; 64]).unwrap(), 1);
    m.blocked(token(3), Interest::Read);
    assert_eq!(ready(&mut m, Some(Duration::from_secs(5))), [token(3)], "the end is to be seen");
    assert_eq!(near.read(&mut [0; 64]).unwrap(), 0);
}

fn ask<M: Mechanism>() {
    let mut m: M = open(PLENTY);
    let pairs = members(&mut m, 5);
    assert_eq!(m.counts().checked, 5);
    for round in 1..=4 {
        for (_, far) in &pairs {
            send(far);
        }
        assert_eq!(read_until(&mut m, &pairs, 5), 5);
        assert_eq!(m.counts().notices, 5 * round);
    }
    assert_eq!(m.counts().checked, 5, "one notice before a read leaves no doubt");
}

/// Checks members that cannot signal. An epoll instance, which cannot either, replaces the loop's
/// bell, an eventfd.
fn mute<M: Mechanism>() {
    let mut m: M = open(PLENTY);
    let (bell, rope) = pair();
    let silent = epoll::create().unwrap();
    epoll::add(silent.as_fd(), bell.as_fd(), 0, EventFlags::IN).unwrap();
    m.add(silent.as_fd(), token(9), Interest::Accept).unwrap();
    let pairs = members(&mut m, 1);
    send(&rope);
    assert_eq!(ready(&mut m, LONG), [token(9)]);
    send(&pairs[0].1);
    let heard: Vec<_> = (0..32).flat_map(|_| ready(&mut m, LONG)).collect();
    assert!(heard.contains(&token(0)) && heard.contains(&token(9)), "neither starves the other");
    m.change(silent.as_fd(), token(9), Interest::Nothing).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(0)]);
    assert_eq!(read_all(&mut m, &pairs[0].0, token(0)), 1);
    assert_eq!(ready(&mut m, NOW), []);
    m.change(silent.as_fd(), token(9), Interest::Accept).unwrap();
    assert_eq!(ready(&mut m, NOW), [token(9)]);
    m.remove(silent.as_fd(), token(9)).unwrap();
    assert_eq!(ready(&mut m, NOW), []);
}

/// Checks two loops, as threads, that share a listening socket.
fn share<M: Mechanism>() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.try_clone().unwrap();
    let mut m: M = open(PLENTY);
    m.add(listener.as_fd(), token(1), Interest::Accept).unwrap();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let second = scope.spawn(move || {
            let mut m: M = open(PLENTY);
            m.add(other.as_fd(), token(2), Interest::Accept).unwrap();
            tell.send(()).unwrap();
            ready(&mut m, LONG)
        });
        told.recv().unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(ready(&mut m, LONG), [token(1)]);
        assert_eq!(second.join().unwrap(), [token(2)]);
    });
}

fn listen<M: Mechanism>() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut m: M = open(PLENTY);
    m.add(listener.as_fd(), token(1), Interest::Accept).unwrap();
    assert_eq!(ready(&mut m, NOW), []);
    let _client = connect();
    assert_eq!(ready(&mut m, LONG), [token(1)]);
    assert_eq!(ready(&mut m, LONG), [token(1)], "somebody still waits");
    listener.accept().unwrap();
    assert!(listener.accept().is_err());
    m.blocked(token(1), Interest::Accept);
    let asked = m.counts().checked;
    assert_eq!(ready(&mut m, NOW), []);
    assert_eq!(m.counts().checked, asked, "the accept has said it");
    let other = listener.try_clone().unwrap();
    m.remove(listener.as_fd(), token(1)).unwrap();
    let told = m.counts().notices;
    let _client = connect();
    assert_eq!(ready(&mut m, NOW), []);
    assert_eq!(m.counts().notices, told, "nor does the kernel signal");
    drop(other);
}
