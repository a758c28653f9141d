//! Chains: send and close, with a receive armed, with a reset; failures within chains, and their
//! ends.

use super::*;
use std::io::{ErrorKind, Write};

#[test]
fn a_close_behind_a_send_lets_the_peer_have_the_bytes_and_the_end() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    bench.send(0, b"reply", Then::OnSuccess, 1);
    bench.ring.close(0, Then::Nothing, 2);
    assert_eq!((bench.end(1), bench.end(2)), (5, 0));
    assert_eq!(rest(&mut peer), b"reply");
    bench.assert_idle();
}

#[test]
fn an_armed_receive_that_is_cancelled_in_the_chain_holds_up_no_close() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    let op = bench.ring.receive(slot(0), true, 1);
    peer.write_all(b"request").unwrap();
    assert_eq!(bench.received(1), b"request");
    bench.send(0, b"reply", Then::Always, 2);
    bench.ring.cancel(op, Then::Always);
    bench.ring.close(0, Then::Nothing, 3);
    bench.ring.submit().unwrap();
    assert_eq!(rest(&mut peer), b"reply");
    assert_eq!((bench.end(2), bench.end(3)), (5, 0));
    assert!(is_cancelled(bench.end(1)));
    bench.assert_idle();
}

#[test]
fn an_armed_receive_keeps_a_closed_slots_socket_open_until_it_is_cancelled() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    let op = bench.ring.receive(slot(0), true, 1);
    bench.close(0);
    peer.set_nonblocking(true).unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "held open");
    peer.write_all(b"late").unwrap();
    assert_eq!(bench.received(1), b"late");
    bench.cancel(op, 1);
    peer.set_nonblocking(false).unwrap();
    assert_eq!(rest(&mut peer), b"");
    bench.assert_idle();
}

#[test]
fn all_that_a_socket_has_under_way_is_cancelled_at_once() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let (mut peer, _other) = (bench.connect(0), bench.connect(1));
    let (near, mut far) = pair();
    let near = Arc::new(near);
    bench.ring.receive(slot(0), true, 1);
    bench.ring.receive(slot(0), false, 2);
    let kept = bench.ring.receive(slot(1), true, 3);
    let of_near = bench.ring.receive(Handle::Fd(&SharedFd::of(&near)), true, 4);
    bench.turn();
    bench.ring.cancel_all_of(0, Then::Always);
    bench.ring.close(0, Then::Nothing, 5);
    bench.ring.cancel(of_near, Then::Nothing);
    assert!([1, 2, 4].into_iter().all(|data| is_cancelled(bench.end(data))));
    assert_eq!(bench.end(5), 0);
    assert_eq!(rest(&mut peer), b"");
    drop(near);
    assert_eq!(rest(&mut far), b"");
    assert_eq!(bench.ring.pending(), 1);
    bench.cancel(kept, 3);
    bench.close(1);
    bench.assert_idle();
}

#[test]
fn a_receive_behind_an_accept_starts_with_the_connection() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    for many in [false, true] {
        bench.accept(&listener, AcceptTarget::Slot(0), Then::OnSuccess, 1);
        bench.ring.receive(slot(0), many, 2);
        bench.turn();
        let mut peer = call(&listener);
        assert_eq!(bench.end(1), 0);
        peer.write_all(b"request").unwrap();
        assert_eq!(bench.received(2), b"request");
        bench.ring.cancel_all_of(0, Then::Always);
        bench.close(0);
        assert_eq!(rest(&mut peer), b"");
        assert!(!many || is_cancelled(bench.end(2)));
    }
    bench.try_accept(&listener, AcceptTarget::Slot(0), Then::OnSuccess, 1);
    bench.ring.receive(slot(0), true, 2);
    assert_eq!((bench.end(1), bench.end(2)), (-libc::EAGAIN, -libc::ECANCELED));
    bench.assert_idle();
}

#[test]
fn a_close_that_is_to_reset_does() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    bench.ring.reset_on_close(slot(0), Then::OnSuccess, 1);
    bench.ring.close(0, Then::Nothing, 2);
    assert_eq!((bench.end(1), bench.end(2)), (0, 0));
    assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    bench.assert_idle();
}

#[test]
fn a_failure_ends_the_rest_of_a_chain_and_memory_comes_back() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    bench.ring.close(9, Then::OnSuccess, 1);
    let input = SharedFd::of(&Arc::new(std::io::stdin()));
    bench.ring.read(input, vec![1, 2], 0..5, ReadThread::Worker, Then::OnSuccess, 2);
    bench.send(9, b"abc", Then::OnSuccess, 3);
    bench.ring.close(9, Then::Nothing, 4);
    assert_eq!(bench.end(1), -libc::EBADF);
    let (read, sent) = (bench.next(2), bench.next(3));
    assert!(is_cancelled(read.result) && is_cancelled(sent.result) && is_cancelled(bench.end(4)));
    assert!(matches!(read.returned, Returned::Read(bytes) if bytes == [1, 2]));
    assert!(matches!(sent.returned, Returned::Buffer(_)));
    bench.assert_idle();
}

#[test]
fn an_order_that_finds_nothing_breaks_a_chain_and_everybody_is_told() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let _peer = bench.connect(0);
    bench.ring.close(9, Then::Nothing, 1);
    let op = bench.ring.receive(slot(0), true, 2);
    bench.cancel(op, 2);
    assert_eq!(bench.end(1), -libc::EBADF);
    bench.ring.cancel(op, Then::OnSuccess);
    bench.send(0, b"abc", Then::OnSuccess, 3);
    bench.ring.close(0, Then::Nothing, 4);
    assert!(is_cancelled(bench.end(3)) && is_cancelled(bench.end(4)));
    bench.ring.cancel(op, Then::Always);
    bench.ring.close(0, Then::Nothing, 5);
    assert_eq!(bench.end(5), 0);
    bench.assert_idle();
}

#[test]
fn a_failure_before_an_order_ends_the_chain_with_all_told() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let _peer = bench.connect(0);
    let op = bench.ring.receive(slot(0), true, 1);
    bench.turn();
    bench.ring.close(9, Then::OnSuccess, 2);
    bench.ring.cancel(op, Then::Always);
    bench.ring.close(0, Then::Nothing, 3);
    assert_eq!(bench.end(2), -libc::EBADF);
    assert!(is_cancelled(bench.end(3)));
    bench.turn();
    assert_eq!(bench.ring.pending(), 1, "the receive goes on");
    bench.cancel(op, 1);
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn chains_are_not_torn_where_the_queue_is_full() {
    let Some(mut bench) = Bench::new(RingConfig { entries: 8, ..SETTING }) else { return };
    // Five at a time into a queue of eight: if a chain were torn, its second part would run after
    // an EAGAIN.
    bench.assert_chains_are_whole(50);
    bench.assert_idle();
}

#[test]
fn a_chain_longer_than_the_queue_is_not_begun() {
    let Some(mut bench) = Bench::new(RingConfig { entries: 8, ..SETTING }) else { return };
    let mut peer = bench.connect(0);
    assert_eq!(bench.ring.chain_max(), 8);
    for data in 1..=8 {
        bench.send(0, b"no", Then::OnSuccess, data);
    }
    bench.send(0, b"no", Then::Nothing, 9);
    for data in 1..=7 {
        bench.send(0, b"yes", Then::OnSuccess, 100 + data);
    }
    bench.ring.close(0, Then::Nothing, 108);
    for data in 1..=9 {
        let completion = bench.next(data);
        assert_eq!(completion.result, -libc::E2BIG);
        assert!(matches!(completion.returned, Returned::Buffer(_)));
    }
    assert!((101..108).all(|data| bench.end(data) == 3));
    assert_eq!(bench.end(108), 0);
    assert_eq!(rest(&mut peer), b"yesyesyesyesyesyesyes");
    bench.assert_idle();
}

#[test]
fn a_chain_left_open_ends_where_it_is_handed_over() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    bench.ring.close(9, Then::OnSuccess, 1);
    bench.ring.submit().unwrap();
    bench.send(0, b"apart", Then::OnSuccess, 2);
    bench.turn();
    bench.ring.close(0, Then::Nothing, 3);
    assert_eq!((bench.end(1), bench.end(2), bench.end(3)), (-libc::EBADF, 5, 0));
    assert_eq!(rest(&mut peer), b"apart");
    bench.assert_idle();
}
