//! Guarantees of a server's ring, tested on the running kernel through the public interface, with
//! real sockets and files.

#![allow(clippy::unwrap_used, reason = "a broken expectation is a failed test")]
#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

mod accepting;
mod chains;
mod files;
mod life;
mod polled;
mod receiving;
mod sending;
mod storm;

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use weir_sys::descriptor::SharedFd;
use weir_sys::ring::server::{
    AcceptTarget, AcceptWait, Completion, Handle, Op, ReadThread, Returned, RingConfig, SendBuffer,
    SendOptions, ServerRing, Then,
};
use weir_sys::waker::Waker;

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(20));

const SETTING: RingConfig = RingConfig {
    entries: 64,
    completions: 256,
    files: 64,
    buffers: 4,
    buffer_bytes: 1024,
    sqpoll: None,
};

const WHOLE: SendOptions = SendOptions { more: false, whole: true, zero_copy: false };

/// A ring, and completions not yet asked for.
struct Bench {
    ring: ServerRing,
    told: Vec<Completion>,
}

impl Bench {
    /// Opens a ring; `None`, with a message, where the kernel has none or forbids it.
    fn new(setting: RingConfig) -> Option<Self> {
        ServerRing::open(&setting)
            .inspect_err(|error| eprintln!("SKIPPED: no ring here: {error}"))
            .ok()
            .map(|ring| Self { ring, told: Vec::new() })
    }

    /// Returns the next completion of the operation begun with `data`.
    fn next(&mut self, data: u64) -> Completion {
        loop {
            if let Some(at) = self.told.iter().position(|completion| completion.data == data) {
                return self.told.remove(at);
            }
            let before = self.told.len();
            for _ in 0..3 {
                self.ring.wait(LONG).unwrap();
                self.ring.take(&mut self.told);
                if self.told.len() > before {
                    break;
                }
            }
            assert!(self.told.len() > before, "nothing of {data}, but {:?}", self.told);
        }
    }

    /// Returns the result of the operation begun with `data`, and checks that it has ended.
    fn end(&mut self, data: u64) -> i32 {
        let completion = self.next(data);
        assert!(!completion.more, "{completion:?}");
        completion.result
    }

    /// Submits queued operations, and takes available completions.
    fn turn(&mut self) {
        self.ring.submit().unwrap();
        self.ring.take(&mut self.told);
    }

    /// Returns the bytes of the next completion of a receive, and gives its buffer back.
    fn received(&mut self, data: u64) -> Vec<u8> {
        let completion = self.next(data);
        assert!(completion.result >= 0, "{completion:?}");
        let Some(filled) = completion.filled else { return Vec::new() };
        let bytes = self.ring.buffer(&filled).to_vec();
        assert_eq!(bytes.len(), completion.result as usize);
        self.ring.give_back(filled);
        bytes
    }

    /// Checks that all operations have ended and all resources were returned.
    fn assert_idle(&mut self) {
        self.turn();
        assert!(self.told.is_empty(), "{:?}", self.told);
        assert_eq!((self.ring.pending(), self.ring.buffers_out()), (0, 0));
    }

    /// Begins an accept that waits if no connection is queued.
    fn accept(
        &mut self,
        listener: &Arc<TcpListener>,
        into: AcceptTarget,
        then: Then,
        data: u64,
    ) -> Op {
        self.ring.accept(SharedFd::of(listener), into, AcceptWait::AfterAttempt, then, data)
    }

    /// Begins an accept that does not wait.
    fn try_accept(
        &mut self,
        listener: &Arc<TcpListener>,
        into: AcceptTarget,
        then: Then,
        data: u64,
    ) {
        self.ring.accept(SharedFd::of(listener), into, AcceptWait::Never, then, data);
    }

    /// Begins a send of a whole text to the socket of a slot.
    fn send(&mut self, to: u32, text: &'static [u8], then: Then, data: u64) {
        self.ring.send(slot(to), SendBuffer::Static(text), 0..text.len(), WHOLE, then, data);
    }

    /// Accepts a connection into a slot and returns its peer.
    fn connect(&mut self, slot: u32) -> TcpStream {
        let listener = listener();
        let peer = call(&listener);
        self.accept(&listener, AcceptTarget::Slot(slot), Then::Nothing, ACCEPT);
        let completion = self.next(ACCEPT);
        assert_eq!(completion.result, 0);
        let Returned::Peer(address) = completion.returned else { panic!("{completion:?}") };
        assert_eq!(address, peer.local_addr().unwrap());
        peer
    }

    /// Begins a chain of non-waiting accepts, into the slots from 0 on.
    fn chain(&mut self, listener: &Arc<TcpListener>, count: u32, first_data: u64) {
        for slot in 0..count {
            let then = if slot + 1 < count { Then::OnSuccess } else { Then::Nothing };
            let (into, data) = (AcceptTarget::Slot(slot), first_data + u64::from(slot));
            self.try_accept(listener, into, then, data);
        }
    }

    /// Runs chains of five such accepts without clients: the first of each chain finds no
    /// connection, and the rest must not run, which they would if the chain were torn.
    fn assert_chains_are_whole(&mut self, chains: u64) {
        let listener = listener();
        (0..chains).for_each(|chain| self.chain(&listener, 5, chain * 5));
        for chain in 0..chains {
            let results: Vec<_> = (0..5).map(|index| self.end(chain * 5 + index)).collect();
            assert_eq!(results[0], -libc::EAGAIN);
            assert!(results[1..].iter().all(|result| is_cancelled(*result)), "{results:?}");
        }
    }

    /// Cancels an operation in progress, begun with `data`.
    fn cancel(&mut self, op: Op, data: u64) {
        self.ring.cancel(op, Then::Nothing);
        assert!(is_cancelled(self.end(data)));
    }

    /// Closes a socket left in a slot by a test.
    fn close(&mut self, slot: u32) {
        self.ring.close(slot, Then::Nothing, CLOSE);
        assert_eq!(self.end(CLOSE), 0);
    }
}

/// User data of operations begun by the helpers; tests use other values.
const ACCEPT: u64 = 1_000_001;
const CLOSE: u64 = 1_000_002;

fn listener() -> Arc<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    Arc::new(listener)
}

fn waker() -> Arc<Waker> {
    Arc::new(Waker::new().unwrap())
}

fn call(listener: &TcpListener) -> TcpStream {
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(LONG).unwrap();
    peer
}

/// Returns all bytes that a peer receives until the end.
fn rest(peer: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    peer.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns both ends of a connection that no ring has.
fn pair() -> (TcpStream, TcpStream) {
    pair_at(&listener())
}

/// Returns both ends of a connection that no ring has, made by way of a listener.
fn pair_at(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let far = call(listener);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match listener.accept() {
            Ok((near, _)) => return (near, far),
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
    }
}

const fn slot(slot: u32) -> Handle<'static> {
    Handle::Slot(slot)
}

fn is_cancelled(result: i32) -> bool {
    result == -libc::ECANCELED
}

#[test]
fn a_bell_is_heard_by_a_poll_once() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let waker = waker();
    bench.ring.poll(SharedFd::of(&waker), libc::POLLIN as u32, 1);
    bench.turn();
    assert!(bench.told.is_empty());
    waker.wake();
    assert_eq!(bench.end(1), i32::from(libc::POLLIN));
    bench.assert_idle();
}

#[test]
fn a_direction_that_was_shut_down_sends_its_end_to_the_peer() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(0);
    bench.ring.shutdown(slot(0), Shutdown::Write, Then::Nothing, 1);
    assert_eq!(bench.end(1), 0);
    assert_eq!(rest(&mut peer), b"");
    bench.close(0);
    bench.assert_idle();
}
