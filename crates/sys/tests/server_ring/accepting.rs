//! Accepts: exactly the requested number, waiting or not, into slots and descriptors.

use super::*;

fn waits(listener: &TcpListener) -> bool {
    listener.accept().is_ok()
}

#[test]
fn a_chain_takes_those_who_wait_and_ends_with_the_first_who_does_not() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let _peers: Vec<_> = (0..3).map(|_| call(&listener)).collect();
    bench.chain(&listener, 5, 0);
    let results: Vec<_> = (0..5).map(|data| bench.end(data)).collect();
    assert_eq!(results, [0, 0, 0, -libc::EAGAIN, -libc::ECANCELED]);
    (0..3).for_each(|slot| bench.close(slot));
    bench.assert_idle();
}

#[test]
fn a_chain_takes_no_more_than_it_is_long() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let _peers: Vec<_> = (0..3).map(|_| call(&listener)).collect();
    bench.chain(&listener, 2, 0);
    let completions = [bench.next(0), bench.next(1)];
    assert!(completions.iter().all(|completion| completion.result == 0 && completion.nonempty));
    bench.assert_idle();
    assert!(waits(&listener));
    assert!(!waits(&listener));
    (0..2).for_each(|slot| bench.close(slot));
}

#[test]
fn an_accept_that_waits_takes_the_next_who_calls_and_says_whether_more_wait() {
    for patience in [AcceptWait::AfterAttempt, AcceptWait::PollFirst] {
        let Some(mut bench) = Bench::new(SETTING) else { return };
        let listener = listener();
        let into = AcceptTarget::Slot(7);
        bench.ring.accept(SharedFd::of(&listener), into, patience, Then::Nothing, 1);
        bench.turn();
        assert!(bench.told.is_empty());
        let caller = call(&listener).local_addr().unwrap();
        let completion = bench.next(1);
        assert!(matches!(completion.returned, Returned::Peer(at) if at == caller));
        assert!(!completion.nonempty, "{completion:?}");
        let _peers = [call(&listener), call(&listener)];
        for (data, nonempty) in [(2, true), (3, false)] {
            bench.ring.accept(SharedFd::of(&listener), into, patience, Then::Nothing, data);
            assert_eq!(bench.next(data).nonempty, nonempty);
        }
        bench.close(7);
        bench.assert_idle();
    }
}

#[test]
fn an_accept_that_is_cancelled_takes_nobody() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let op = bench.accept(&listener, AcceptTarget::Fd, Then::Nothing, 1);
    bench.turn();
    bench.ring.cancel(op, Then::Nothing);
    bench.cancel(op, 1);
    let _peer = call(&listener);
    bench.ring.cancel(op, Then::Nothing);
    bench.assert_idle();
    assert!(waits(&listener));
}

#[test]
fn a_connection_comes_as_a_descriptor_that_does_not_block() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let peer = call(&listener);
    bench.accept(&listener, AcceptTarget::Fd, Then::Nothing, 1);
    let completion = bench.next(1);
    let Returned::Connection(socket, address) = completion.returned else { panic!("no socket") };
    assert_eq!(address, peer.local_addr().unwrap());
    let error = TcpStream::from(socket).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    bench.assert_idle();
}

#[test]
fn the_address_of_a_caller_by_version_6_is_told() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let Ok(listener) = TcpListener::bind("[::1]:0").map(Arc::new) else {
        eprintln!("SKIPPED: no IPv6 here");
        return;
    };
    let peer = call(&listener);
    bench.accept(&listener, AcceptTarget::Slot(0), Then::Nothing, 1);
    let completion = bench.next(1);
    assert!(matches!(completion.returned, Returned::Peer(at) if at == peer.local_addr().unwrap()));
    bench.close(0);
}

#[test]
fn repeated_accepts_take_all_who_call_into_slots_of_the_kernels_choice() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let op = bench.ring.accept_many(SharedFd::of(&listener), 1);
    let mut peers: Vec<_> = (0..5).map(|_| call(&listener)).collect();
    let mut slots: Vec<_> = (0..5)
        .map(|_| {
            let completion = bench.next(1);
            assert!(completion.more);
            completion.outcome().unwrap()
        })
        .collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4]);
    bench.cancel(op, 1);
    slots.into_iter().for_each(|slot| bench.close(slot));
    peers.iter_mut().for_each(|peer| assert_eq!(rest(peer), b""));
    bench.assert_idle();
}

#[test]
fn a_table_without_an_empty_slot_ends_repeated_accepts() {
    let Some(mut bench) = Bench::new(RingConfig { files: 2, ..SETTING }) else { return };
    let listener = listener();
    bench.ring.accept_many(SharedFd::of(&listener), 1);
    let mut peers: Vec<_> = (0..3).map(|_| call(&listener)).collect();
    let results: Vec<_> = (0..3).map(|_| bench.next(1)).collect();
    assert!(results[..2].iter().all(|completion| completion.more));
    assert_eq!((results[2].result, results[2].more), (-libc::ENFILE, false));
    assert_eq!(rest(&mut peers[2]), b"", "the one that found no slot was closed");
    (0..2).for_each(|slot| bench.close(slot));
    bench.assert_idle();
}

#[test]
fn an_accept_into_a_slot_in_use_closes_what_it_holds() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut first = bench.connect(3);
    let mut second = bench.connect(3);
    assert_eq!(rest(&mut first), b"");
    bench.close(3);
    assert_eq!(rest(&mut second), b"");
    bench.assert_idle();
}

#[test]
fn a_slot_that_does_not_exist_takes_nobody_and_breaks_the_chain() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let mut peer = call(&listener);
    for missing in [SETTING.files, u32::MAX - 1, u32::MAX] {
        bench.try_accept(&listener, AcceptTarget::Slot(missing), Then::OnSuccess, 1);
        bench.ring.close(missing, Then::Nothing, 2);
        assert_eq!(bench.end(1), -libc::EINVAL);
        assert!(is_cancelled(bench.end(2)));
        bench.ring.close(missing, Then::Nothing, 3);
        assert!(bench.end(3) < 0);
    }
    let _ = rest(&mut peer);
    bench.assert_idle();
}

#[test]
fn a_socket_that_has_a_descriptor_gets_a_slot_and_the_descriptor_comes_back() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let listener = listener();
    let mut peer = call(&listener);
    bench.try_accept(&listener, AcceptTarget::Fd, Then::Nothing, 1);
    let Returned::Connection(fd, _) = bench.next(1).returned else { panic!("no connection") };
    bench.ring.adopt(fd, 3, Then::Nothing, 2);
    let completion = bench.next(2);
    assert!(completion.result >= 0, "{completion:?}");
    // The slot keeps the connection open when the descriptor is closed.
    drop(completion);
    bench.send(3, b"hello", Then::Nothing, 3);
    assert_eq!(bench.end(3), 5);
    bench.close(3);
    assert_eq!(rest(&mut peer), b"hello");
    bench.assert_idle();
}
