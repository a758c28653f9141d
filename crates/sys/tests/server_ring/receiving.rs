//! Receives: into the ring's buffers, once or repeatedly, and without any buffer left.

use super::*;
use std::io::Write;
use std::time::Instant;

use rustix::net::sockopt;

#[test]
fn repeated_receives_tell_of_bytes_as_they_come_and_of_their_end() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    bench.ring.receive(slot(0), true, 1);
    for text in ["one", "two", "three"] {
        peer.write_all(text.as_bytes()).unwrap();
        assert_eq!(bench.received(1), text.as_bytes());
    }
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(bench.end(1), 0);
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn one_receive_tells_once_and_says_whether_there_is_more() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    peer.write_all(&[b'x'; 1500]).unwrap();
    for (data, bytes, nonempty) in [(1, 1024, true), (2, 476, false)] {
        bench.ring.receive(slot(0), false, data);
        let completion = bench.next(data);
        assert_eq!((completion.result, completion.nonempty), (bytes, nonempty));
        assert!(!completion.more);
        let filled = completion.filled.unwrap();
        assert_eq!((filled.len(), filled.is_empty()), (bytes as usize, false));
        assert!(bench.ring.buffer(&filled).iter().all(|byte| *byte == b'x'));
        bench.ring.give_back(filled);
    }
    bench.close(0);
    bench.assert_idle();
}

/// Number of buffers that a peer fills before its reset: more than the kernel receives at a time.
const SENT: u16 = 36;

/// Returns a ring with a connection in slot 0 that its peer has reset, behind bytes that are there.
fn reset_behind_much() -> Option<Bench> {
    let setting = RingConfig { buffers: 64, buffer_bytes: 4096, ..SETTING };
    let mut bench = Bench::new(setting)?;
    let listener = listener();
    // Inherited, with the window that it allows.
    sockopt::set_socket_recv_buffer_size(&listener, 1 << 20).unwrap();
    let (near, mut far) = pair_at(&listener);
    let near = Arc::new(near);
    bench.ring.adopt(near.try_clone().unwrap().into(), 0, Then::Nothing, 1);
    assert!(bench.end(1) >= 0);
    let bytes = vec![b'x'; usize::from(SENT) * 4096];
    far.write_all(&bytes).unwrap();
    let mut peeked = vec![0; bytes.len()];
    let deadline = Instant::now() + Duration::from_secs(20);
    while near.peek(&mut peeked).unwrap() < bytes.len() {
        assert!(Instant::now() < deadline, "not all has arrived");
    }
    sockopt::set_socket_linger(&far, Some(Duration::ZERO)).unwrap();
    drop(far);
    bench.ring.poll(SharedFd::of(&near), 0, 1);
    assert!(bench.end(1) & i32::from(libc::POLLHUP) != 0);
    Some(bench)
}

#[test]
fn single_receives_find_all_that_was_sent_before_a_reset_and_the_reset() {
    let Some(mut bench) = reset_behind_much() else { return };
    for left in (0..SENT).rev() {
        bench.ring.receive(slot(0), false, 2);
        let mut completion = bench.next(2);
        assert_eq!((completion.result, completion.nonempty), (4096, left > 0));
        bench.ring.give_back(completion.filled.take().unwrap());
    }
    bench.ring.receive(slot(0), false, 2);
    assert_eq!(bench.end(2), -libc::ECONNRESET);
    bench.close(0);
    bench.assert_idle();
}

/// The kernel may never tell a repeated receive of a reset that came before it had all.
#[test]
fn a_repeated_receive_that_is_begun_again_on_an_empty_socket_finds_the_reset() {
    let Some(mut bench) = reset_behind_much() else { return };
    let op = bench.ring.receive(slot(0), true, 2);
    for left in (0..SENT).rev() {
        let mut completion = bench.next(2);
        assert_eq!((completion.result, completion.nonempty), (4096, left > 0));
        assert!(completion.more);
        bench.ring.give_back(completion.filled.take().unwrap());
    }
    bench.ring.cancel(op, Then::Nothing);
    let first = bench.end(2);
    if is_cancelled(first) {
        bench.ring.receive(slot(0), true, 2);
        assert_eq!(bench.end(2), -libc::ECONNRESET);
    } else {
        assert_eq!(first, -libc::ECONNRESET);
    }
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn an_ordinary_descriptor_receives_as_a_slot_does() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let (near, mut far) = pair();
    let near = Arc::new(near);
    let op = bench.ring.receive(Handle::Fd(&SharedFd::of(&near)), true, 1);
    far.write_all(b"here").unwrap();
    assert_eq!(bench.received(1), b"here");
    bench.cancel(op, 1);
    bench.assert_idle();
}

#[test]
fn a_receive_without_a_buffer_ends_and_goes_on_when_there_is_one() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    let sent: Vec<u8> = (0..6 * 1024_u32).map(|index| (index % 251) as u8).collect();
    peer.write_all(&sent).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let (mut got, mut starved) = (Vec::new(), 0);
    let mut out = Vec::new();
    bench.ring.receive(slot(0), true, 1);
    loop {
        let mut completion = bench.next(1);
        if let Some(filled) = completion.filled.take() {
            got.extend_from_slice(bench.ring.buffer(&filled));
            out.push(filled);
        }
        if completion.failed_with(libc::ENOBUFS) {
            assert!(!completion.more);
            assert_eq!((out.len(), bench.ring.buffers_out()), (4, 4));
            starved += 1;
            out.drain(..).for_each(|filled| bench.ring.give_back(filled));
            bench.ring.receive(slot(0), true, 1);
        } else if completion.result == 0 {
            break;
        }
    }
    out.drain(..).for_each(|filled| bench.ring.give_back(filled));
    assert_eq!((got == sent, starved), (true, 1));
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn a_receive_begun_without_a_buffer_ends_though_there_is_nothing_to_receive() {
    let Some(mut bench) = Bench::new(RingConfig { buffers: 1, ..SETTING }) else { return };
    let (mut first, _second) = (bench.connect(0), bench.connect(1));
    first.write_all(b"x").unwrap();
    bench.ring.receive(slot(0), false, 1);
    let filled = bench.next(1).filled.unwrap();
    bench.ring.receive(slot(1), true, 2);
    assert_eq!(bench.end(2), -libc::ENOBUFS);
    bench.ring.give_back(filled);
    (0..2).for_each(|slot| bench.close(slot));
    bench.assert_idle();
}

#[test]
fn buffers_go_round_many_times() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    let op = bench.ring.receive(slot(0), true, 1);
    for index in 0..200_000_u32 / 100 {
        let bytes = index.to_ne_bytes();
        peer.write_all(&bytes).unwrap();
        assert_eq!(bench.received(1), bytes);
    }
    bench.cancel(op, 1);
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn the_buffer_of_another_ring_reads_as_empty() {
    let (Some(mut one), Some(mut other)) = (Bench::new(SETTING), Bench::new(SETTING)) else {
        return;
    };
    let mut peer = one.connect(0);
    peer.write_all(b"secret").unwrap();
    one.ring.receive(slot(0), false, 1);
    let filled = one.next(1).filled.unwrap();
    assert_eq!(one.ring.buffer(&filled), b"secret");
    assert_eq!(other.ring.buffer(&filled), b"");
    other.ring.give_back(filled);
    assert_eq!((one.ring.buffers_out(), other.ring.buffers_out()), (1, 0));
}

#[test]
fn a_ring_without_buffers_receives_nothing() {
    let Some(mut bench) = Bench::new(RingConfig { buffers: 0, ..SETTING }) else { return };
    let mut peer = bench.connect(0);
    peer.write_all(b"x").unwrap();
    bench.ring.receive(slot(0), false, 1);
    assert_eq!(bench.end(1), -libc::ENOBUFS);
    bench.close(0);
    bench.assert_idle();
}
