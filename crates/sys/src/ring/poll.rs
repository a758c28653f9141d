//! Polls kept by the kernel, for readiness mechanisms.
//!
//! Descriptors are identified by number, as in poll(2): the file that has the number at submission
//! is watched. If the number was closed and reused by then, the poll reports the readiness of
//! another file and keeps that file open until the poll has ended; nothing is read from it, written
//! to it or closed. So members are removed before they are closed.
//!
//! Some time after a ring is dropped, the kernel ends its remaining polls and interrupts the call
//! in which the thread then sleeps (EINTR): preferably the thread ends too.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use super::{Entered, NO_OPERATION, NO_TIME, Ring, WAKE_UPS_MAX};

/// The end of a poll, or one of several events of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// User data that the poll was armed with.
    pub data: u64,
    /// Poll(2) bits seen, or a negative errno.
    pub result: i32,
    /// True if the poll stays armed (IORING_CQE_F_MORE).
    pub more: bool,
}

/// Polls kept by the kernel, with results in memory shared with it.
///
/// An armed poll holds its file open: a close releases nothing until the poll has ended.
pub struct PollRing {
    ring: Ring,
    /// Completions taken to free space for others.
    taken: Vec<Completion>,
    /// True if the last wait found so many completions that the next should request all at once.
    is_busy: bool,
}

impl PollRing {
    /// Opens a ring of `entries` submissions, up to 32,768, for the calling thread.
    ///
    /// # Errors
    /// ENOSYS, EPERM where the kernel has no rings or forbids them; EMFILE, ENFILE, ENOMEM:
    /// io_uring_setup(2). Unsupported on a kernel before 5.11, whose waits have no timeout.
    pub fn open(entries: u32) -> io::Result<Self> {
        Ok(Self { ring: Ring::open(entries)?, taken: Vec::new(), is_busy: false })
    }

    /// Queues an IORING_OP_POLL_ADD of `fd` for the poll(2) bits `poll`, one-shot or, with `many`,
    /// for every change (multishot). Errors, hang-ups and the end of the peer's bytes (POLLRDHUP)
    /// complete it even if not requested. Completions carry `data`, which must not be `u64::MAX`.
    ///
    /// The descriptor is looked up at submission; an invalid one is reported by a completion with
    /// EBADF.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), when the queue was full.
    pub fn arm(&mut self, fd: RawFd, data: u64, poll: u32, many: bool) -> io::Result<()> {
        self.push(&opcode::PollAdd::new(Fd(fd), poll).multi(many).build().user_data(data))
    }

    /// Queues a cancellation of the poll armed with `data`. The poll ends with one last completion,
    /// whose result is -ECANCELED unless an event came first; the cancel request itself has none.
    ///
    /// The request is IORING_OP_ASYNC_CANCEL. IORING_OP_POLL_REMOVE is refused while the kernel has
    /// an unreported wake-up of the poll, and a multishot poll would continue.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), when the queue was full.
    pub fn disarm(&mut self, data: u64) -> io::Result<()> {
        let order = opcode::AsyncCancel::new(data).build().user_data(NO_OPERATION);
        let is_silent = self.ring.0.params().is_feature_skip_cqe_on_success();
        self.push(&if is_silent { order.flags(squeue::Flags::SKIP_SUCCESS) } else { order })
    }

    /// Submits queued entries without waiting. A disarmed poll has released its file when this
    /// returns.
    ///
    /// # Errors
    /// EAGAIN, ENOMEM for lack of memory; queued entries remain queued: io_uring_enter(2).
    pub fn submit(&mut self) -> io::Result<()> {
        self.enter(self.completions_max(), NO_TIME)
    }

    /// Submits queued entries, waits up to `timeout` (for ever when `None`) for a completion, and
    /// appends all available ones. A signal counts as none.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn wait(
        &mut self,
        completions: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if self.is_busy || !self.taken.is_empty() {
            self.enter(self.completions_max(), NO_TIME)?;
            self.take();
            if self.taken.is_empty() && timeout == NO_TIME {
                return Ok(());
            }
        }
        if self.taken.is_empty() {
            self.sleep(timeout)?;
        }
        self.is_busy = self.taken.len() >= WAKE_UPS_MAX;
        while self.ring.0.submission().cq_overflow() {
            self.enter(0, NO_TIME)?;
            self.take();
        }
        completions.append(&mut self.taken);
        Ok(())
    }

    /// Sleeps until there is a completion, then takes all available ones.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enter(u32::from(timeout != NO_TIME), timeout)?;
        self.take();
        if self.taken.len() >= WAKE_UPS_MAX {
            self.enter(self.completions_max(), NO_TIME)?;
            self.take();
        }
        Ok(())
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: a poll, or its end, points to no memory.
        while unsafe { self.ring.0.submission().push(entry) }.is_err() {
            self.enter(0, NO_TIME)?;
        }
        Ok(())
    }

    /// Number of completions to request: a call that wants this many turns up to as many wake-ups
    /// into completions, though it does not wait for them.
    fn completions_max(&self) -> u32 {
        self.ring.0.params().cq_entries()
    }

    /// Enters the kernel until all queued entries are submitted.
    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        loop {
            if self.ring.enter(want, timeout)? == Entered::WantsRoom {
                self.take();
            }
            if self.ring.0.submission().is_empty() {
                return Ok(());
            }
        }
    }

    fn take(&mut self) {
        let raw = self.ring.0.completion().filter(|entry| entry.user_data() != NO_OPERATION);
        self.taken.extend(raw.map(|entry| Completion {
            data: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        }));
    }
}

impl Drop for PollRing {
    /// Submits pending cancellations, so that disarmed polls release their files at once; the
    /// others follow soon.
    fn drop(&mut self) {
        let _ = self.submit();
    }
}
