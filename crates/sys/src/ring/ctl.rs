//! Batches of epoll_ctl(2) calls. Members are identified by descriptor number, as in epoll_ctl(2)
//! itself.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::opcode;
use io_uring::types::Fd;

use super::Ring;
use crate::epoll::{self, EventFlags};

/// Operation of an epoll_ctl call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// EPOLL_CTL_ADD
    Add,
    /// EPOLL_CTL_MOD
    Modify,
    /// EPOLL_CTL_DEL
    Delete,
}

/// An epoll_ctl call in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Ctl {
    /// Operation to perform.
    pub change: Change,
    /// Descriptor to act on.
    pub fd: RawFd,
    /// User data returned with the descriptor's events.
    pub data: u64,
    /// Events to report.
    pub flags: EventFlags,
}

/// A ring used only for epoll_ctl.
pub struct CtlRing {
    entries: u32,
    /// `None` after a failure: entries left in the queue are discarded with the ring.
    ring: Option<Ring>,
    /// Events that the queued entries point to. The kernel copies them on submission.
    events: Vec<libc::epoll_event>,
}

impl CtlRing {
    /// Opens a ring of `entries` changes per batch, from 1 to 32,768, for the calling thread.
    ///
    /// # Errors
    /// As [`PollRing::open`](super::PollRing::open).
    pub fn open(entries: u32) -> io::Result<Self> {
        let ring = Some(Ring::open(entries)?);
        Ok(Self { entries, ring, events: Vec::with_capacity(entries as usize) })
    }

    /// Applies all `changes`, each independent of the others, and appends their results in order:
    /// 0, or a negative errno of epoll_ctl(2). Makes one call per `entries` changes, which returns
    /// when all of them are done.
    ///
    /// # Errors
    /// EAGAIN, ENOMEM for lack of memory: some of the changes may have been made, and `results` is
    /// unchanged. The next call opens another ring; while that fails, each change is a call.
    pub fn apply(
        &mut self,
        epoll: BorrowedFd<'_>,
        changes: &[Ctl],
        results: &mut Vec<i32>,
    ) -> io::Result<()> {
        let before = results.len();
        results.resize(before + changes.len(), 0);
        let entries = self.entries as usize;
        let chunks = changes.chunks(entries).zip(results[before..].chunks_mut(entries));
        for (changes, results) in chunks {
            let applied = self.apply_some(epoll, changes, results);
            applied.inspect_err(|_| self.ring = None)?;
        }
        Ok(())
    }
}

impl CtlRing {
    /// Applies at most as many changes as there are entries.
    fn apply_some(
        &mut self,
        epoll: BorrowedFd<'_>,
        changes: &[Ctl],
        results: &mut [i32],
    ) -> io::Result<()> {
        if self.ring.is_none() {
            self.ring = Ring::open(self.entries).ok();
        }
        let Some(ring) = &mut self.ring else {
            one_by_one(epoll, changes, results);
            return Ok(());
        };
        self.events.clear();
        self.events.extend(
            changes
                .iter()
                .map(|change| libc::epoll_event { events: change.flags.bits(), u64: change.data }),
        );
        let number = Fd(epoll.as_raw_fd());
        for (index, (change, event)) in (0..).zip(changes.iter().zip(&self.events)) {
            let event = std::ptr::from_ref(event).cast();
            let op = operation(change.change);
            let entry = opcode::EpollCtl::new(number, Fd(change.fd), op, event).build();
            // SAFETY: the event stays where it is until the entry is handed over: below, or, when
            // that fails, never, for the ring is dropped then.
            unsafe { ring.0.submission().push(&entry.user_data(index)) }
                .map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        ring.finish(results)
    }
}

/// Applies changes without a ring, which a confined thread may be unable to open.
fn one_by_one(epoll: BorrowedFd<'_>, changes: &[Ctl], results: &mut [i32]) {
    for (Ctl { change, fd, data, flags }, result) in changes.iter().zip(results) {
        let applied = match change {
            Change::Add => epoll::add_raw(epoll, *fd, *data, *flags),
            Change::Modify => epoll::modify_raw(epoll, *fd, *data, *flags),
            Change::Delete => epoll::delete_raw(epoll, *fd),
        };
        *result = applied.map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
    }
}

fn operation(change: Change) -> i32 {
    match change {
        Change::Add => libc::EPOLL_CTL_ADD,
        Change::Modify => libc::EPOLL_CTL_MOD,
        Change::Delete => libc::EPOLL_CTL_DEL,
    }
}
