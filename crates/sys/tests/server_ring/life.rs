//! Lifetime of a ring: settings refused at its start, more operations than entries, overflowing
//! completions, and a drop with operations in progress.

use super::*;
use std::io::{ErrorKind, Write};

use weir_sys::ring::server::SqPoll;

#[test]
fn more_operations_than_entries_are_all_done() {
    let Some(mut bench) = Bench::new(RingConfig { entries: 4, ..SETTING }) else { return };
    let wakers: Vec<_> = (0..200).map(|_| waker()).collect();
    for (data, waker) in (0..).zip(&wakers) {
        bench.ring.poll(SharedFd::of(waker), libc::POLLIN as u32, data);
    }
    bench.turn();
    assert_eq!((bench.told.len(), bench.ring.pending()), (0, 200));
    wakers.iter().for_each(|waker| waker.wake());
    (0..200).for_each(|data| assert_eq!(bench.end(data), i32::from(libc::POLLIN)));
    bench.assert_idle();
    assert_eq!(bench.ring.counts().submitted, 200);
    assert_eq!(bench.ring.counts().completed, 200);
}

#[test]
fn nothing_is_lost_when_completions_find_no_room() {
    let setting = RingConfig { entries: 4, completions: 4, ..SETTING };
    let Some(mut bench) = Bench::new(setting) else { return };
    let mut peer = bench.connect(0);
    let wakers: Vec<_> = (0..100).map(|_| waker()).collect();
    for (data, waker) in (0..).zip(&wakers) {
        bench.ring.poll(SharedFd::of(waker), libc::POLLIN as u32, data);
    }
    bench.ring.submit().unwrap();
    wakers.iter().for_each(|waker| waker.wake());
    for data in 200..300 {
        let piece = SendBuffer::Bytes(vec![data as u8]);
        bench.ring.send(slot(0), piece, 0..1, SendOptions::default(), Then::Nothing, data);
    }
    bench.ring.submit().unwrap();
    (0..100).for_each(|data| assert_eq!(bench.end(data), i32::from(libc::POLLIN)));
    for data in 200..300 {
        let completion = bench.next(data);
        assert!(matches!(completion.returned, Returned::Buffer(piece) if *piece == [data as u8]));
    }
    bench.close(0);
    assert_eq!(rest(&mut peer), Vec::from_iter((200..300).map(|data| data as u8)));
    bench.assert_idle();
    assert!(bench.ring.counts().overflows > 0, "{:?}", bench.ring.counts());
}

#[test]
fn repeated_receives_end_or_go_on_when_completions_find_no_room() {
    let setting = RingConfig { entries: 4, completions: 4, buffers: 64, ..SETTING };
    let Some(mut bench) = Bench::new(setting) else { return };
    let mut peers: Vec<_> = (0..20).map(|slot| bench.connect(slot)).collect();
    for at in 0..20 {
        bench.ring.receive(slot(at), true, at.into());
    }
    bench.turn();
    peers.iter_mut().for_each(|peer| peer.write_all(b"first").unwrap());
    for (at, peer) in (0..).zip(&mut peers) {
        let completion = bench.next(at.into());
        assert_eq!(completion.result, 5);
        bench.ring.give_back(completion.filled.unwrap());
        if !completion.more {
            bench.ring.receive(slot(at), true, at.into());
        }
        peer.write_all(b"second").unwrap();
        let second = bench.next(at.into());
        let filled = second.filled.unwrap();
        assert_eq!(bench.ring.buffer(&filled), b"second");
        bench.ring.give_back(filled);
    }
    assert_eq!(bench.ring.buffers_out(), 0);
}

#[test]
fn wake_ups_are_told_twenty_at_a_call_until_there_are_none() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let wakers: Vec<_> = (0..150).map(|_| waker()).collect();
    for (data, waker) in (0..).zip(&wakers) {
        bench.ring.poll(SharedFd::of(waker), libc::POLLIN as u32, data);
    }
    bench.turn();
    wakers.iter().for_each(|waker| waker.wake());
    for told in 1..=8 {
        bench.turn();
        assert!(bench.told.len() >= (20 * told).min(150), "{} by call {told}", bench.told.len());
    }
}

#[test]
fn a_round_with_much_to_hand_over_is_one_call() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let peers: Vec<_> = (0..16).map(|slot| bench.connect(slot)).collect();
    let before = bench.ring.counts();
    for at in 0..16 {
        bench.send(at, b"x", Then::OnSuccess, 1);
        bench.ring.close(at, Then::Nothing, 2);
    }
    bench.ring.wait(LONG).unwrap();
    bench.ring.take(&mut bench.told);
    assert_eq!(bench.told.len(), 32);
    let after = bench.ring.counts();
    assert_eq!((after.enters - before.enters, after.submitted - before.submitted), (1, 32));
    peers.into_iter().for_each(|mut peer| assert_eq!(rest(&mut peer), b"x"));
}

#[test]
fn a_wait_that_nothing_ends_ends_with_its_time() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let waker = waker();
    bench.ring.poll(SharedFd::of(&waker), libc::POLLIN as u32, 1);
    for timeout in [NOW, Some(Duration::from_millis(1))] {
        bench.ring.wait(timeout).unwrap();
        bench.ring.take(&mut bench.told);
        assert!(bench.told.is_empty());
    }
    assert_eq!(bench.ring.pending(), 1);
}

#[test]
fn a_ring_dropped_with_operations_under_way_lets_go_of_all() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let (mut receiving, mut idle, mut sending) =
        (bench.connect(0), bench.connect(1), bench.connect(2));
    let (near, mut far) = pair();
    let near = Arc::new(near);
    let piece: Arc<[u8]> = Arc::from(vec![1; 20_000_000]);
    let how = SendOptions { whole: true, ..SendOptions::default() };
    let all = 0..piece.len();
    let ring = &mut bench.ring;
    ring.receive(slot(0), true, 1);
    ring.receive(Handle::Fd(&SharedFd::of(&near)), true, 2);
    ring.accept(
        SharedFd::of(&listener),
        AcceptTarget::Fd,
        AcceptWait::AfterAttempt,
        Then::Nothing,
        3,
    );
    ring.accept(
        SharedFd::of(&listener),
        AcceptTarget::Slot(9),
        AcceptWait::AfterAttempt,
        Then::Nothing,
        4,
    );
    ring.send(slot(2), SendBuffer::Shared(piece.clone()), all, how, Then::Always, 5);
    ring.receive(slot(2), true, 6);
    bench.turn();
    assert_eq!(bench.ring.pending(), 6);
    assert_eq!(Arc::strong_count(&piece), 2);
    drop(bench);
    assert_eq!(Arc::strong_count(&piece), 1);
    for peer in [&mut receiving, &mut idle] {
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "closed when the drop is done");
    }
    assert!(rest(&mut sending).len() < piece.len());
    drop(near);
    assert_eq!(rest(&mut far), b"");
    let _late = call(&listener);
    assert!(listener.accept().is_ok(), "no accept was left behind");
}

#[test]
fn a_descriptor_that_nobody_took_is_closed_with_the_ring() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let mut peers = [call(&listener), call(&listener)];
    bench.accept(&listener, AcceptTarget::Fd, Then::Nothing, 1);
    bench.ring.submit().unwrap();
    bench.accept(&listener, AcceptTarget::Fd, Then::Nothing, 2);
    drop(bench);
    drop(listener);
    assert_eq!(rest(&mut peers[0]), b"");
    let end = peers[1].read(&mut [0]);
    assert!(matches!(end, Ok(0)) || end.unwrap_err().kind() == ErrorKind::ConnectionReset);
}

#[test]
fn a_ring_that_is_dropped_waits_for_memory_that_is_being_sent() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    let piece: Arc<[u8]> = Arc::from(vec![1; 20_000_000]);
    let how = SendOptions { zero_copy: true, whole: true, ..SendOptions::default() };
    let all = 0..piece.len();
    bench.ring.send(slot(0), SendBuffer::Shared(piece.clone()), all, how, Then::Nothing, 1);
    bench.turn();
    assert_eq!((bench.ring.pending(), Arc::strong_count(&piece)), (1, 2));
    let reader = std::thread::spawn(move || rest(&mut peer).len());
    drop(bench);
    assert_eq!(Arc::strong_count(&piece), 1);
    assert!(reader.join().unwrap() > 0);
}

#[test]
fn a_thread_may_have_more_rings_than_the_kernel_has_numbers_for() {
    let Some(first) = Bench::new(RingConfig { buffers: 0, ..SETTING }) else { return };
    let mut rings = vec![first];
    rings.extend((0..19).filter_map(|_| Bench::new(RingConfig { buffers: 0, ..SETTING })));
    assert_eq!(rings.len(), 20);
    let waker = waker();
    waker.wake();
    for bench in &mut rings {
        bench.ring.poll(SharedFd::of(&waker), libc::POLLIN as u32, 1);
        assert_eq!(bench.end(1), i32::from(libc::POLLIN));
    }
}

#[test]
fn a_setting_that_makes_no_sense_is_refused_in_a_sentence() {
    let wrong = [
        RingConfig { entries: 0, ..SETTING },
        RingConfig { buffers: 3, ..SETTING },
        RingConfig { completions: 1, ..SETTING },
        RingConfig { sqpoll: Some(SqPoll { idle_ms: 1, cpu: Some(1 << 20) }), ..SETTING },
    ];
    if Bench::new(SETTING).is_none() {
        return;
    }
    for setting in wrong {
        let error = ServerRing::open(&setting).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
