//! Kernel state of a queue of real-time signals.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use weir_sys::rtsig::Notice;

/// Kernel state of a queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) notices: VecDeque<Notice>,
    pub(super) overflow: bool,
    pub(super) pending_max: usize,
}

impl Queue {
    pub(super) fn send(&mut self, fd: RawFd, band: u32) {
        if self.notices.len() < self.pending_max {
            self.notices.push_back(Notice::Event { fd, band: band as i16 });
        } else {
            self.overflow = true;
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.overflow || !self.notices.is_empty()
    }

    fn take(&mut self) -> Option<Notice> {
        if std::mem::take(&mut self.overflow) {
            return Some(Notice::Overflow);
        }
        self.notices.pop_front()
    }

    /// Takes up to `max` notices; `None` when none are queued.
    pub(super) fn take_up_to(&mut self, max: usize) -> Option<Vec<Notice>> {
        let taken: Vec<_> = std::iter::from_fn(|| self.take()).take(max).collect();
        (!taken.is_empty()).then_some(taken)
    }
}
