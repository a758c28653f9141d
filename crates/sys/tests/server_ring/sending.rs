//! Sends: pieces of each kind, ranges of them, two as one, and zero-copy.

use super::*;
use std::ops::Range;

const PLAIN: SendOptions = SendOptions { whole: false, ..WHOLE };
const ZERO_COPY: SendOptions = SendOptions { zero_copy: true, ..WHOLE };

fn each_kind(text: &'static [u8]) -> [SendBuffer; 3] {
    [
        SendBuffer::Bytes(text.to_vec()),
        SendBuffer::Shared(Arc::from(text)),
        SendBuffer::Static(text),
    ]
}

fn get(peer: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut got = vec![0; bytes];
    peer.read_exact(&mut got).unwrap();
    got
}

#[test]
fn a_part_of_each_kind_of_piece_arrives_and_the_piece_comes_back() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    for piece in each_kind(b"0123456789") {
        bench.ring.send(slot(0), piece, 2..7, PLAIN, Then::Nothing, 1);
        let completion = bench.next(1);
        assert_eq!((completion.result, completion.more), (5, false));
        assert!(matches!(completion.returned, Returned::Buffer(piece) if *piece == *b"0123456789"));
        assert_eq!(get(&mut peer, 5), b"23456");
    }
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn a_part_that_a_piece_has_not_is_refused_and_the_piece_comes_back() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let _peer = bench.connect(0);
    let (first, end) = (3, 2);
    for range in [0..4, 4..4, first..end, usize::MAX - 1..usize::MAX] {
        let one = SendBuffer::Static(b"abc");
        bench.ring.send(slot(0), one, range.clone(), PLAIN, Then::OnSuccess, 1);
        let two = [(SendBuffer::Static(b"abc"), 0..3), (SendBuffer::Bytes(b"def".to_vec()), range)];
        bench.ring.send_two(slot(0), two, PLAIN, Then::Nothing, 2);
        let [one, two] = [1, 2].map(|data| bench.next(data));
        assert_eq!(one.result, -libc::EINVAL);
        assert!(matches!(one.returned, Returned::Buffer(piece) if *piece == *b"abc"));
        assert!(is_cancelled(two.result));
        assert!(matches!(two.returned, Returned::Pair(_, piece) if *piece == *b"def"));
    }
    bench.close(0);
    bench.assert_idle();
}

/// Sends ranges of two pieces as one, for each kind of piece, and checks the received bytes.
fn two_of_each_kind(how: SendOptions) -> Option<()> {
    let mut bench = Bench::new(SETTING)?;
    let mut peer = bench.connect(0);
    for (first, second) in each_kind(b"head: ").into_iter().zip(each_kind(b"..body..")) {
        let two = [(first, 0..6), (second, 2..6)];
        bench.ring.send_two(slot(0), two, how, Then::Nothing, 1);
        let completion = bench.next(1);
        assert_eq!(completion.result, 10);
        let last = if completion.more { bench.next(1) } else { completion };
        assert_eq!(last.notice, how.zero_copy);
        let Returned::Pair(first, second) = last.returned else { panic!("nothing came back") };
        assert_eq!((&*first, &*second), (&b"head: "[..], &b"..body.."[..]));
        assert_eq!(get(&mut peer, 10), b"head: body");
    }
    bench.close(0);
    bench.assert_idle();
    Some(())
}

#[test]
fn two_pieces_arrive_as_one_and_both_come_back() {
    two_of_each_kind(PLAIN);
}

#[test]
fn two_pieces_arrive_as_one_without_a_copy() {
    two_of_each_kind(ZERO_COPY);
}

#[test]
fn a_piece_sent_without_a_copy_comes_back_after_its_result() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    for piece in each_kind(b"0123456789") {
        bench.ring.send(slot(0), piece, 5..10, ZERO_COPY, Then::Nothing, 1);
        let result = bench.next(1);
        assert_eq!((result.result, result.more, result.notice), (5, true, false));
        assert!(matches!(result.returned, Returned::Nothing));
        assert_eq!(get(&mut peer, 5), b"56789");
        let notice = bench.next(1);
        assert_eq!((notice.result, notice.more, notice.notice), (0, false, true));
        assert!(matches!(notice.returned, Returned::Buffer(piece) if *piece == *b"0123456789"));
    }
    bench.close(0);
    bench.assert_idle();
    assert!(bench.ring.counts().copied > 0, "loopback copies: {:?}", bench.ring.counts());
}

#[test]
fn a_piece_larger_than_the_socket_arrives_whole() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    for how in [WHOLE, ZERO_COPY] {
        let mut peer = bench.connect(0);
        let bytes: Vec<u8> = (0..20_000_000_u32).map(|index| (index % 251) as u8).collect();
        let sent: Arc<[u8]> = Arc::from(bytes);
        let all: Range<usize> = 0..sent.len();
        bench.ring.send(slot(0), SendBuffer::Shared(sent.clone()), all, how, Then::OnSuccess, 1);
        bench.ring.close(0, Then::Nothing, 2);
        let reader = std::thread::spawn(move || rest(&mut peer));
        let completion = bench.next(1);
        assert_eq!(completion.result as usize, sent.len());
        let last = if completion.more { bench.next(1) } else { completion };
        assert_eq!(last.notice, how.zero_copy);
        drop(last);
        assert_eq!(bench.end(2), 0);
        assert!(reader.join().unwrap() == *sent);
        assert_eq!(Arc::strong_count(&sent), 1);
    }
    bench.assert_idle();
}

#[test]
fn sends_that_follow_at_once_are_sent_together() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    let more = SendOptions { more: true, ..WHOLE };
    bench.ring.send(slot(0), SendBuffer::Static(b"head"), 0..4, more, Then::OnSuccess, 1);
    bench.ring.send(slot(0), SendBuffer::Static(b"body"), 0..4, WHOLE, Then::Nothing, 2);
    assert_eq!((bench.end(1), bench.end(2)), (4, 4));
    assert_eq!(get(&mut peer, 8), b"headbody");
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn a_send_to_one_who_has_gone_fails_and_raises_no_signal() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    for how in [PLAIN, ZERO_COPY] {
        let peer = bench.connect(0);
        bench.ring.shutdown(slot(0), Shutdown::Write, Then::Nothing, 1);
        assert_eq!(bench.end(1), 0);
        bench.ring.send(slot(0), SendBuffer::Bytes(vec![1; 10]), 0..10, how, Then::Nothing, 2);
        let completion = bench.next(2);
        assert_eq!(completion.result, -libc::EPIPE);
        let last = if completion.more { bench.next(2) } else { completion };
        assert!(matches!(last.returned, Returned::Buffer(_)), "{last:?}");
        drop(peer);
    }
    bench.close(0);
    bench.assert_idle();
}

#[test]
fn bytes_not_acknowledged_are_counted() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    let bytes = vec![7; 20_000_000];
    bench.ring.send(slot(0), SendBuffer::Bytes(bytes), 0..20_000_000, PLAIN, Then::Nothing, 1);
    let sent = bench.end(1);
    bench.ring.unacknowledged(slot(0), Then::Nothing, 2);
    let left = bench.end(2);
    assert!(left > 0 && left <= sent, "{left} of {sent}");
    get(&mut peer, sent as usize);
    let mut left = left;
    while left > 0 {
        bench.ring.unacknowledged(slot(0), Then::Nothing, 2);
        left = bench.end(2);
        assert!(left >= 0);
    }
    bench.close(0);
    bench.assert_idle();
}
