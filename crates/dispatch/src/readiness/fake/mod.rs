//! An adversarial fake kernel, which does everything that Linux may do to a mechanism, and seldom
//! does: it reports late, twice, in any order, for members that have gone, and withholds everything
//! that its rules allow it to.
//!
//! The true state is in [`world`] and [`file`]; each family of calls has its own rules in its own
//! file. Nothing here knows a mechanism, or decides whether one is right.

mod batch;
mod bits;
mod epoll;
mod epoll_set;
mod file;
mod ring;
mod ring_state;
mod rng;
mod signal_queue;
mod signals;
mod world;

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use weir_sys::poll::PollFd;
use weir_sys::select::WORD_BITS;

use super::kernel::Kernel;

use bits::{ALWAYS, EBADF, NVAL, errno};

pub(super) use bits::{ERR, HUP, IN, OUT, RDHUP};
pub(super) use file::{CallFailure, Kind};
pub(super) use rng::SeededRng;
pub(super) use world::{Descriptor, PeerAction, Sleep, World, world};

/// The fake kernel of this thread.
#[derive(Debug)]
pub(super) struct Fake;

impl Kernel for Fake {
    type Epoll = epoll::FakeEpoll;
    type Signals = signals::FakeSignals;
    type Ring = ring::FakeRing;
    type Batch = batch::FakeBatch;

    /// Implements poll(2), which checks all files: it never misses a ready one, and is never late.
    fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
        let attempt = |w: &mut World, _| {
            fds.iter_mut().for_each(|entry| entry.revents = w.poll_one(entry));
            let found = fds.iter().filter(|entry| entry.revents != 0).count();
            (found > 0).then_some(found)
        };
        Ok(world(|w| w.wait(timeout, attempt)).unwrap_or(0))
    }

    fn select(
        nfds: usize,
        read: &mut [u64],
        write: &mut [u64],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let asked = (read.to_vec(), write.to_vec());
        world(|w| w.all_open(nfds, &asked))?;
        let attempt = |w: &mut World, _| {
            let mut found = 0;
            for (word, bit) in (0..nfds).map(|number| (number / WORD_BITS, number % WORD_BITS)) {
                let number = (word * WORD_BITS + bit) as RawFd;
                let asked = (asked.0[word] >> bit & 1, asked.1[word] >> bit & 1);
                found += w.select_one(number, asked.0, &mut read[word], IN | HUP | ERR);
                found += w.select_one(number, asked.1, &mut write[word], OUT | ERR);
            }
            (found > 0).then_some(found)
        };
        Ok(world(|w| w.wait(timeout, attempt)).unwrap_or(0))
    }
}

impl World {
    fn poll_one(&mut self, entry: &PollFd) -> i16 {
        if entry.fd < 0 {
            return 0;
        }
        if entry.fd >= signals::NUMBERS {
            let queue = &self.queues[(entry.fd - signals::NUMBERS) as usize];
            return if queue.is_ready() { entry.events & IN as i16 } else { 0 };
        }
        let Some(&file) = self.numbers.get(&entry.fd) else { return NVAL };
        let asked = u32::from(entry.events as u16);
        let spurious = if self.misbehaves(64) { IN | OUT } else { 0 };
        ((self.files[file].poll() | spurious) & (asked | ALWAYS)) as i16
    }

    /// Fails with EBADF, which only select returns, if a requested descriptor is not open.
    fn all_open(&self, nfds: usize, asked: &(Vec<u64>, Vec<u64>)) -> io::Result<()> {
        let is_asked = |number: usize| {
            let (word, bit) = (number / WORD_BITS, number % WORD_BITS);
            (asked.0[word] | asked.1[word]) >> bit & 1 == 1
        };
        let is_open = |number: usize| self.numbers.contains_key(&(number as RawFd));
        errno(if (0..nfds).all(|n| !is_asked(n) || is_open(n)) { 0 } else { EBADF })
    }

    /// Writes the answer of one bit; returns 1 when it is set.
    fn select_one(&mut self, number: RawFd, asked: u64, map: &mut u64, bits: u32) -> usize {
        let mask = 1 << (number as usize % WORD_BITS);
        *map &= !mask;
        if asked == 0 {
            return 0;
        }
        let file = self.numbers[&number];
        let ready = self.files[file].poll() & bits != 0 || self.misbehaves(64);
        *map |= if ready { mask } else { 0 };
        usize::from(ready)
    }
}
