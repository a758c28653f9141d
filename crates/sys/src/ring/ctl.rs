//! epoll_ctl(2) in batches. Knows nothing of whose interest changes, or why. Members are known by
//! their numbers, as to epoll_ctl(2) itself.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::opcode;
use io_uring::types::Fd;

use super::Ring;
use crate::epoll::EventFlags;

/// What an epoll_ctl does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// EPOLL_CTL_ADD
    Add,
    /// EPOLL_CTL_MOD
    Modify,
    /// EPOLL_CTL_DEL
    Delete,
}

/// One epoll_ctl of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Ctl {
    /// What it does.
    pub change: Change,
    /// To which descriptor.
    pub fd: RawFd,
    /// What comes back with its events.
    pub data: u64,
    /// What is asked of it.
    pub flags: EventFlags,
}

/// A ring for nothing but epoll_ctl.
pub struct CtlRing {
    entries: u32,
    /// None after a failure: what was left in its queue goes with it.
    ring: Option<Ring>,
    /// What the queued entries point to. The kernel copies it when they are handed over.
    events: Vec<libc::epoll_event>,
}

impl CtlRing {
    /// Of `entries` at a time, from 1 to 32,768, for the calling thread.
    ///
    /// # Errors
    /// As [`PollRing::open`](super::PollRing::open).
    pub fn open(entries: u32) -> io::Result<Self> {
        let ring = Some(Ring::open(entries)?);
        Ok(Self { entries, ring, events: Vec::with_capacity(entries as usize) })
    }

    /// Makes all `changes`, each independent of the others, and appends what became of each, in
    /// their order: 0, or a negative errno of epoll_ctl(2). One call for as many as there are
    /// entries; it ends when all of them are made.
    ///
    /// # Errors
    /// EAGAIN, ENOMEM for want of memory, EMFILE when a ring is to be made anew: some of the
    /// changes may have been made, and `results` is as it was.
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
            let applied = self.apply_some(epoll.as_raw_fd(), changes, results);
            applied.inspect_err(|_| self.ring = None)?;
        }
        Ok(())
    }
}

impl CtlRing {
    /// Makes at most as many changes as there are entries.
    fn apply_some(&mut self, epoll: RawFd, changes: &[Ctl], results: &mut [i32]) -> io::Result<()> {
        let ring = match &mut self.ring {
            Some(ring) => ring,
            lost => lost.insert(Ring::open(self.entries)?),
        };
        self.events.clear();
        self.events.extend(
            changes
                .iter()
                .map(|change| libc::epoll_event { events: change.flags.bits(), u64: change.data }),
        );
        for (index, (change, event)) in (0..).zip(changes.iter().zip(&self.events)) {
            let event = std::ptr::from_ref(event).cast();
            let op = operation(change.change);
            let entry = opcode::EpollCtl::new(Fd(epoll), Fd(change.fd), op, event).build();
            // SAFETY: the event stays where it is until the entry is handed over: below, or, when
            // that fails, never, for the ring is dropped then.
            unsafe { ring.0.submission().push(&entry.user_data(index)) }
                .map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        ring.finish(results)
    }
}

fn operation(change: Change) -> i32 {
    match change {
        Change::Add => libc::EPOLL_CTL_ADD,
        Change::Modify => libc::EPOLL_CTL_MOD,
        Change::Delete => libc::EPOLL_CTL_DEL,
    }
}
