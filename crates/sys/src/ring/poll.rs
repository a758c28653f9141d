//! Polls kept by the kernel, for mechanisms that want to be told who is ready.
//!
//! Descriptors are known by their numbers, as to poll(2): whoever has the number when the poll is
//! handed over is watched. A number that was closed and given away again tells of readiness that is
//! another's, and keeps that file open until the poll has ended; nothing is read from it, written
//! to it or closed. So members are removed before they are closed.
//!
//! Some time after a ring was dropped the kernel ends what it still has, and interrupts the call
//! that the thread sleeps in then (EINTR): best the thread ends too. Knows nothing of what is
//! waited for, or why.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use super::{Entered, NO_TIME, NOBODY, Ring, WAKE_UPS_MAX};

/// The end of a poll, or one of many events of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the poll was armed with.
    pub data: u64,
    /// The poll(2) bits seen, or a negative errno.
    pub result: i32,
    /// The poll goes on (IORING_CQE_F_MORE).
    pub more: bool,
}

/// Polls kept by the kernel, and their results in memory shared with it.
///
/// An armed poll holds its file open: a close lets nothing go until the poll has ended.
pub struct PollRing {
    ring: Ring,
    /// Completions taken to make room for others.
    taken: Vec<Completion>,
    /// The last wait found so many that the next had better ask for all at once.
    is_busy: bool,
}

impl PollRing {
    /// Of `entries` submissions at a time, up to 32,768, for the calling thread.
    ///
    /// # Errors
    /// ENOSYS, EPERM where the kernel has no rings or forbids them; EMFILE, ENFILE, ENOMEM:
    /// io_uring_setup(2). Unsupported on a kernel before 5.11, whose waits have no timeout.
    pub fn open(entries: u32) -> io::Result<Self> {
        Ok(Self { ring: Ring::open(entries)?, taken: Vec::new(), is_busy: false })
    }

    /// Queues an IORING_OP_POLL_ADD of `fd` for the poll(2) bits `poll`, once or, with `many`, of
    /// every change. Errors, hang-ups and the end of the peer's bytes (POLLRDHUP) complete it
    /// unasked. Completions bear `data`, which is not `u64::MAX`.
    ///
    /// The descriptor is looked up when the poll is handed over; that it is none comes as the
    /// completion's EBADF.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), when the queue was full.
    pub fn arm(&mut self, fd: RawFd, data: u64, poll: u32, many: bool) -> io::Result<()> {
        self.push(&opcode::PollAdd::new(Fd(fd), poll).multi(many).build().user_data(data))
    }

    /// Queues the end of the poll armed with `data`. The poll ends with one last completion, which
    /// has the result -ECANCELED unless something was seen first; the order itself has none.
    ///
    /// The order is IORING_OP_ASYNC_CANCEL, because IORING_OP_POLL_REMOVE is refused while the
    /// kernel has a wake-up of the poll that it has not told of, and a repeated poll would go on.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), when the queue was full.
    pub fn disarm(&mut self, data: u64) -> io::Result<()> {
        let order = opcode::AsyncCancel::new(data).build().user_data(NOBODY);
        let is_silent = self.ring.0.params().is_feature_skip_cqe_on_success();
        self.push(&if is_silent { order.flags(squeue::Flags::SKIP_SUCCESS) } else { order })
    }

    /// Hands over what is queued, without waiting. A poll that was disarmed has let go of its file
    /// when this returns.
    ///
    /// # Errors
    /// EAGAIN, ENOMEM for want of memory; what was queued stays so: io_uring_enter(2).
    pub fn submit(&mut self) -> io::Result<()> {
        self.enter(self.completions_max(), NO_TIME)
    }

    /// Hands over what is queued, waits up to `timeout` (for ever when `None`) for a completion,
    /// and appends all there are. A signal counts as none.
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

    /// Sleeps until there is something, and takes all that there is then.
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

    /// As many wake-ups as this are turned into completions by a call that wants as many, though it
    /// does not wait for them.
    fn completions_max(&self) -> u32 {
        self.ring.0.params().cq_entries()
    }

    /// Enters the kernel until it has all that is queued.
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
        let told = self.ring.0.completion().filter(|entry| entry.user_data() != NOBODY);
        self.taken.extend(told.map(|entry| Completion {
            data: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        }));
    }
}

impl Drop for PollRing {
    /// Has the polls that were disarmed let go of their files at once, as the others will soon.
    fn drop(&mut self) {
        let _ = self.submit();
    }
}
