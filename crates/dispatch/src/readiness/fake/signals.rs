//! Fake real-time signals: one notice per event, in a bounded queue; notices that do not fit are
//! lost, and an overflow is reported before the queued ones. A notice outlives its descriptor, and
//! is then mistaken for one of the number's next owner.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::rtsig::Notice;

use super::super::kernel::SignalQueue;
use super::bits::{EBADF, errno};
use super::file::Kind;
use super::signal_queue::Queue;
use super::world::{World, world};

/// Queue sizes so small that a queue overflows now and then.
const PENDING_MAX: [usize; 4] = [1, 3, 8, 64];

/// First of the descriptor numbers by which poll(2) knows queues, far above any other.
pub(super) const NUMBERS: RawFd = 1 << 30;

/// A queue, by its number in the world.
#[derive(Debug)]
pub(in crate::readiness) struct FakeSignals(usize);

impl World {
    fn signal_arm(&mut self, queue: usize, number: RawFd) -> io::Result<bool> {
        let Some(&file) = self.numbers.get(&number) else {
            return errno(EBADF).map(|()| false);
        };
        let file = &mut self.files[file];
        if file.kind == Kind::Waker {
            return Ok(false);
        }
        file.owner = Some((queue, number));
        Ok(true)
    }

    fn signal_take(
        &mut self,
        queue: usize,
        max: usize,
        timeout: Option<Duration>,
    ) -> Option<Vec<Notice>> {
        self.wait(timeout, |w, _| w.queues[queue].take_up_to(max))
    }
}

impl SignalQueue for FakeSignals {
    const READ_MAX: usize = 3;

    fn open(pending_max: Option<u64>) -> io::Result<Self> {
        world(|w| {
            let asked = pending_max.map_or(usize::MAX, |max| max as usize);
            let pending_max = w.rng.pick(&PENDING_MAX).min(asked);
            w.queues.push(Queue { notices: VecDeque::new(), overflow: false, pending_max });
            Ok(Self(w.queues.len() - 1))
        })
    }

    fn arm(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        world(|w| w.signal_arm(self.0, fd.as_raw_fd()))
    }

    /// Fails at random: another thread may own the signals of a listening socket.
    fn arm_shared(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let theirs = world(|w| w.rng.one_in(4));
        if theirs { Ok(false) } else { self.arm(fd) }
    }

    fn disarm(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        world(|w| match w.numbers.get(&fd.as_raw_fd()) {
            Some(&file) => {
                w.files[file].owner = None;
                Ok(())
            }
            None => errno(EBADF),
        })
    }

    fn poll_fd(&self) -> RawFd {
        NUMBERS + self.0 as RawFd
    }

    fn take_one(&mut self, timeout: Option<Duration>) -> io::Result<Option<Notice>> {
        Ok(world(|w| w.signal_take(self.0, 1, timeout)).and_then(|mut taken| taken.pop()))
    }

    fn take_many(
        &mut self,
        notices: &mut Vec<Notice>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        world(|w| {
            notices.extend(w.signal_take(self.0, Self::READ_MAX, timeout).unwrap_or_default());
        });
        Ok(())
    }
}
