//! Random operations, in any order and in any chains: each ends once, and everything lent is
//! returned.

use super::*;
use std::collections::HashMap;
use std::io::Write;

use weir_sys::ring::server::{Op, SendBuffer, SendOptions, SqPoll};

const SLOTS: u32 = 6;

/// A pseudorandom generator (xorshift64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

struct Storm {
    bench: Bench,
    dice: Dice,
    listener: Arc<TcpListener>,
    waker: Arc<Waker>,
    ops: Vec<Op>,
    /// Operations in progress, and whether each lent memory.
    under_way: HashMap<u64, bool>,
    begun: u64,
    called: u32,
}

impl Storm {
    fn begin(&mut self, then: Then) {
        let (kind, at) = (self.dice.roll(14), self.dice.roll(SLOTS.into()) as u32);
        let how = SendOptions {
            more: self.dice.roll(8) == 0,
            whole: self.dice.roll(2) == 0,
            zero_copy: self.dice.roll(3) == 0,
        };
        let patience = [AcceptWait::Never, AcceptWait::AfterAttempt, AcceptWait::PollFirst]
            [self.dice.roll(3) as usize];
        let (ring, data) = (&mut self.bench.ring, self.begun);
        let listener = SharedFd::of(&self.listener);
        let piece = SendBuffer::Bytes(vec![b'x'; 3000]);
        let two =
            [(SendBuffer::Static(b"head"), 0..4), (SendBuffer::Bytes(vec![b'y'; 50]), 10..20)];
        let op = match kind {
            0 | 1 => ring.accept(listener, AcceptTarget::Slot(at), patience, then, data),
            2 => ring.accept(listener, AcceptTarget::Fd, AcceptWait::Never, then, data),
            3 | 4 => ring.send(slot(at), piece, 0..3000, how, then, data),
            5 => ring.send(slot(at), piece, 0..3001, how, then, data),
            6 => ring.send_two(slot(at), two, how, then, data),
            7 => {
                ring.read(SharedFd::of(&self.waker), vec![1], 0..8, ReadThread::Worker, then, data)
            }
            8 => ring.close(at, then, data),
            9 => ring.reset_on_close(slot(at), then, data),
            10 => ring.install(at, then, data),
            11 => ring.unacknowledged(slot(at), then, data),
            12 => ring.shutdown(slot(at), Shutdown::Write, then, data),
            _ => ring.close(at + 1000, then, data),
        };
        self.under_way.insert(data, matches!(kind, 3..=7));
        self.began(op);
    }

    /// Begins an operation outside any chain.
    fn begin_apart(&mut self) {
        let at = slot(self.dice.roll(SLOTS.into()) as u32);
        let (ring, data) = (&mut self.bench.ring, self.begun);
        let op = match self.dice.roll(4) {
            0 => ring.receive(at, true, data),
            1 => ring.receive(at, false, data),
            2 => ring.accept_many(SharedFd::of(&self.listener), data),
            _ => ring.poll(SharedFd::of(&self.waker), libc::POLLIN as u32, data),
        };
        self.under_way.insert(data, false);
        self.began(op);
    }

    fn began(&mut self, op: Op) {
        self.begun += 1;
        self.ops.push(op);
    }

    fn cancel(&mut self, then: Then) {
        let at = self.dice.roll(self.ops.len() as u64 + 1) as usize;
        match self.ops.get(at) {
            Some(op) => self.bench.ring.cancel(*op, then),
            None => self.bench.ring.cancel_all_of(at as u32 % SLOTS, then),
        }
    }

    fn chain(&mut self) {
        for _ in 0..self.dice.roll(12) {
            let then = if self.dice.roll(2) == 0 { Then::OnSuccess } else { Then::Always };
            if self.dice.roll(5) == 0 { self.cancel(then) } else { self.begin(then) }
        }
        self.begin(Then::Nothing);
    }

    fn hear(&mut self) {
        let mut told = Vec::new();
        self.bench.ring.take(&mut told);
        for completion in told {
            let lent = self.under_way.get(&completion.data);
            let lent = *lent.unwrap_or_else(|| panic!("ended before: {completion:?}"));
            if !completion.more {
                let returned = matches!(
                    completion.returned,
                    Returned::Buffer(_) | Returned::Pair(..) | Returned::Read(_)
                );
                assert_eq!(returned, lent, "{completion:?}");
                self.under_way.remove(&completion.data);
            }
            if let Some(filled) = completion.filled {
                self.bench.ring.give_back(filled);
            }
        }
        assert_eq!(self.bench.ring.pending(), self.under_way.len());
    }

    /// Connects peers that send a little and leave without reading.
    fn peers(&mut self) {
        for _ in 0..self.dice.roll(3) {
            // As many as fit into the listener's queue, in case none is accepted.
            if self.called < 100 {
                self.called += 1;
                let _ = call(&self.listener).write_all(b"request");
            }
        }
    }

    fn end(&mut self) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !self.under_way.is_empty() {
            self.ops.iter().for_each(|op| self.bench.ring.cancel(*op, Then::Nothing));
            self.bench.ring.wait(Some(Duration::from_millis(5))).unwrap();
            self.hear();
            assert!(std::time::Instant::now() < deadline, "{:?}", self.under_way);
        }
        self.bench.assert_idle();
    }
}

fn weather(setting: RingConfig, seed: u64) -> Option<()> {
    let (listener, waker) = (listener(), waker());
    let bench = Bench::new(setting)?;
    let (ops, under_way) = (Vec::new(), HashMap::new());
    let dice = Dice(seed);
    let mut storm = Storm { bench, dice, listener, waker, ops, under_way, begun: 0, called: 0 };
    for _ in 0..200 {
        storm.peers();
        for _ in 0..storm.dice.roll(6) {
            match storm.dice.roll(4) {
                0 => storm.begin_apart(),
                1 => storm.cancel(Then::Nothing),
                _ => storm.chain(),
            }
        }
        if storm.dice.roll(4) > 0 {
            storm.bench.ring.wait(NOW).unwrap();
            storm.hear();
        }
    }
    storm.end();
    Some(())
}

#[test]
fn all_that_is_begun_ends_once_and_brings_back_what_it_was_lent() {
    for seed in 1..=20 {
        weather(RingConfig { entries: 16, files: SLOTS + 2, ..SETTING }, seed);
    }
}

#[test]
fn all_that_is_begun_ends_once_though_nothing_ever_has_room() {
    for seed in 101..=120 {
        let setting =
            RingConfig { entries: 8, completions: 8, files: SLOTS, buffers: 1, ..SETTING };
        weather(setting, seed);
    }
}

#[test]
fn all_that_is_begun_ends_once_when_a_thread_of_the_kernels_takes_it() {
    for seed in 201..=205 {
        let sqpoll = Some(SqPoll { idle_ms: 1, cpu: None });
        weather(RingConfig { entries: 16, files: SLOTS, sqpoll, ..SETTING }, seed);
    }
}
