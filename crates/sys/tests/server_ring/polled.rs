//! A ring whose queue is taken by a kernel thread.

use super::*;
use std::io::Write;

use weir_sys::ring::server::SqPoll;

const POLLED: RingConfig =
    RingConfig { sqpoll: Some(SqPoll { idle_ms: 10_000, cpu: None }), ..SETTING };

#[test]
fn a_round_trip_needs_no_call_per_operation_while_the_thread_is_awake() {
    let Some(mut bench) = Bench::new(POLLED) else { return };
    let mut peer = bench.connect(0);
    let op = bench.ring.receive(slot(0), true, 1);
    bench.turn();
    let before = bench.ring.counts();
    for _ in 0..100 {
        peer.write_all(b"ask").unwrap();
        while !bench.told.iter().any(|completion| completion.data == 1) {
            bench.turn();
        }
        assert_eq!(bench.received(1), b"ask");
        bench.send(0, b"tell", Then::Nothing, 2);
        while !bench.told.iter().any(|completion| completion.data == 2) {
            bench.turn();
        }
        assert_eq!(bench.end(2), 4);
        peer.read_exact(&mut [0; 4]).unwrap();
    }
    let after = bench.ring.counts();
    assert!(after.submitted - before.submitted >= 100);
    assert_eq!(after.enters - before.enters, after.wakeups - before.wakeups, "{after:?}");
    assert!(after.enters - before.enters < 10, "{after:?}");
    bench.cancel(op, 1);
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn a_thread_that_sleeps_is_woken() {
    let polled = Some(SqPoll { idle_ms: 1, cpu: Some(0) });
    let Some(mut bench) = Bench::new(RingConfig { sqpoll: polled, ..SETTING }) else { return };
    let mut peer = bench.connect(0);
    while bench.ring.counts().wakeups < 2 {
        bench.send(0, b"x", Then::Nothing, 1);
        assert_eq!(bench.end(1), 1);
        // Nothing is submitted for longer than the thread stays awake.
        bench.ring.wait(Some(Duration::from_millis(20))).unwrap();
        peer.read_exact(&mut [0]).unwrap();
    }
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn chains_are_whole_to_the_thread_and_more_than_entries_are_done() {
    let Some(mut bench) = Bench::new(RingConfig { entries: 8, ..POLLED }) else { return };
    bench.assert_chains_are_whole(30);
    bench.assert_idle();
}

#[test]
fn nothing_is_lost_when_the_thread_finds_no_room_for_completions() {
    let Some(mut bench) = Bench::new(RingConfig { entries: 4, completions: 4, ..POLLED }) else {
        return;
    };
    let mut peer = bench.connect(0);
    for data in 0..100 {
        let piece = SendBuffer::Bytes(vec![data as u8]);
        bench.ring.send(slot(0), piece, 0..1, SendOptions::default(), Then::Nothing, data);
    }
    (0..100).for_each(|data| assert_eq!(bench.end(data), 1));
    bench.close(0);
    assert_eq!(rest(&mut peer).len(), 100);
    bench.assert_idle();
}

#[test]
fn a_ring_with_a_thread_lets_go_of_all_when_dropped() {
    let Some(mut bench) = Bench::new(POLLED) else { return };
    let (mut receiving, mut idle) = (bench.connect(0), bench.connect(1));
    bench.ring.receive(slot(0), true, 1);
    bench.turn();
    drop(bench);
    assert_eq!((rest(&mut receiving), rest(&mut idle)), (Vec::new(), Vec::new()));
}
