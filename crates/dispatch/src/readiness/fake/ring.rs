//! Fake io_uring(7) polls. A multishot poll behaves like an edge, may report several changes at
//! once, and may end by itself; the end is marked by the absence of F_MORE. A poll keeps its file
//! open. Completions of cancelled polls may come late.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use weir_sys::ring::Completion;

use super::super::kernel::PollRing;
use super::bits::{ALWAYS, EBADF, ECANCELED, RDHUP};
use super::ring_state::{Poll, Ring, Submission};
use super::world::{Delayed, World, world};

/// A ring, by its number in the world.
#[derive(Debug)]
pub(in crate::readiness) struct FakeRing(usize);

impl World {
    fn ring_submit(&mut self, ring: usize) {
        for submission in std::mem::take(&mut self.rings[ring].submissions) {
            match submission {
                Submission::Arm { number, data, asked, many } => {
                    self.ring_arm(ring, number, (data, asked, many));
                }
                Submission::Disarm(data) => self.ring_disarm(ring, data),
            }
        }
    }

    fn ring_arm(&mut self, ring: usize, number: RawFd, asked: (u64, u32, bool)) {
        let (data, asked, many) = asked;
        let Some(&file) = self.numbers.get(&number) else {
            let failed = Completion { data, result: -EBADF, more: false };
            return self.deliver_or_defer(Delayed::Completion(ring, failed));
        };
        let asked = asked | ALWAYS | RDHUP; // all three unasked
        self.rings[ring].polls.push(Poll { data, file, asked, many });
        let last = self.rings[ring].polls.len() - 1;
        self.poll_completes(ring, last);
    }

    /// Cancels a poll. One that has already completed has no further completion.
    fn ring_disarm(&mut self, ring: usize, data: u64) {
        let polls = &mut self.rings[ring].polls;
        if let Some(at) = polls.iter().position(|poll| poll.data == data) {
            let file = polls.remove(at).file;
            self.release(file);
            let ended = Completion { data, result: -ECANCELED, more: false };
            self.deliver_or_defer(Delayed::Completion(ring, ended));
        }
    }

    fn ring_queue(&mut self, ring: usize, submission: Submission) {
        self.rings[ring].submissions.push(submission);
        if self.misbehaves(8) {
            self.ring_submit(ring); // as when the queue is full
        }
    }

    fn ring_take(&mut self, ring: usize) -> Option<Vec<Completion>> {
        let taken: Vec<_> = self.rings[ring].completions.drain(..).collect();
        (!taken.is_empty()).then_some(taken)
    }
}

impl PollRing for FakeRing {
    fn open(_: u32) -> io::Result<Self> {
        world(|w| {
            let completions_max = w.rng.pick(&[1, 4, 64]);
            w.rings.push(Ring {
                submissions: Vec::new(),
                polls: Vec::new(),
                completions: VecDeque::new(),
                completions_max,
            });
            Ok(Self(w.rings.len() - 1))
        })
    }

    fn arm(&mut self, fd: RawFd, data: u64, poll: u32, many: bool) -> io::Result<()> {
        let arm = Submission::Arm { number: fd, data, asked: poll, many };
        world(|w| w.ring_queue(self.0, arm));
        Ok(())
    }

    fn disarm(&mut self, data: u64) -> io::Result<()> {
        world(|w| w.ring_queue(self.0, Submission::Disarm(data)));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        world(|w| w.ring_submit(self.0));
        Ok(())
    }

    fn wait(
        &mut self,
        completions: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        world(|w| {
            w.ring_submit(self.0);
            let taken = w.wait(timeout, |w, _| w.ring_take(self.0));
            completions.extend(taken.unwrap_or_default());
        });
        Ok(())
    }
}
