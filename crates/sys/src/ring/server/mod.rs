//! io_uring(7) for a server that waits for completions instead of readiness: accept, receive,
//! send, files, chains of them, and what became of each.
//!
//! Calls queue, or look at memory; [`submit`](ServerRing::submit) and [`wait`](ServerRing::wait)
//! enter the kernel, and so does a call that finds the queue full. Those that queue cannot fail:
//! what is wrong with an operation is told by its completion, like everything else.
//!
//! **Memory** lent to the kernel belongs to the ring until the operation's last completion, which
//! brings it back. A ring that is dropped cancels all operations and waits for their ends; what the
//! kernel does not let go of within a second is never freed.
//!
//! **Descriptors** are looked up by their numbers when an operation starts, perhaps by a thread of
//! the kernel's, long after it was queued: under the number of one that was closed another file may
//! be met. So an operation holds a share in what owns its descriptor, a
//! [`SharedFd`](crate::descriptor::SharedFd), until its last completion, whatever the caller drops
//! meanwhile. That takes no call and no allocation.
//!
//! **Slots** hold sockets that have no descriptor.
//! - An accept into a slot that holds a socket replaces it, which closes that one.
//! - A close empties the slot at once and ends nothing: an operation under way keeps the socket
//!   open, and the peer hears of no close until it has ended. So an armed receive is cancelled in
//!   the same chain: `send`, [`Then::Always`], `cancel`, [`Then::Always`], `close`.
//! - The kernel, choosing a slot itself, takes any that is empty. It says ENFILE when none is.
//!
//! **Chains** are made of operations begun one after the other, each but the last with a [`Then`].
//! Those that take none can be the last only: so may a receive follow its accept. Chains are handed
//! over whole. One open at a `submit` ends there; one longer than
//! [`chain_max`](ServerRing::chain_max) is not begun at all, and all of it ends with E2BIG.
//!
//! Nothing here knows of HTTP, connections or deadlines.

use std::io;
use std::time::{Duration, Instant};

use io_uring::squeue::Flags;

mod begin;
mod buffers;
mod completion;
mod entry;
mod held;
mod operations;
mod piece;
mod queues;
mod setting;

pub use begin::{Handle, Patience, Place, Reader, Sending};
pub use buffers::Filled;
pub use completion::{Completion, Returned};
pub use operations::Op;
pub use piece::Piece;
pub use setting::{Counts, Setting, SqPoll};

use super::{Entered, NO_TIME};
use buffers::Buffers;
use operations::{Operations, Told};
use queues::Queues;

/// What the next operation begun has to do with this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    #[default]
    Nothing,
    /// It starts when this one has succeeded; when this one fails, the rest of the chain ends with
    /// ECANCELED (IOSQE_IO_LINK). A send that was to be whole and was not has failed.
    OnSuccess,
    /// It starts when this one has ended, however (IOSQE_IO_HARDLINK).
    Always,
}

impl Then {
    fn flags(self) -> Flags {
        match self {
            Self::Nothing => Flags::empty(),
            Self::OnSuccess => Flags::IO_LINK,
            Self::Always => Flags::IO_HARDLINK,
        }
    }
}

/// A ring, for the thread that made it.
pub struct ServerRing {
    queues: Queues,
    operations: Operations,
    buffers: Buffers,
    /// Completions taken to make room for others, and those of operations never begun.
    taken: Vec<Completion>,
    /// Of chains that were too long.
    refused: Vec<u64>,
}

impl ServerRing {
    /// Makes a ring.
    ///
    /// # Errors
    /// Unsupported, with the reason in a sentence, where the kernel has no ring, forbids it, or is
    /// older than Linux 6.10. InvalidInput, with a sentence too, when the setting makes no sense.
    /// EMFILE when RLIMIT_NOFILE is less than the slots, ENFILE, ENOMEM: io_uring_setup(2),
    /// io_uring_register(2).
    pub fn open(setting: &Setting) -> io::Result<Self> {
        setting.check()?;
        let queues = Queues::open(setting)?;
        let buffers = Buffers::open(&queues.io, setting)?;
        Ok(Self {
            queues,
            operations: Operations::default(),
            buffers,
            taken: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// Hands over what is queued, without waiting, and turns what happened into completions: one
    /// call, and none when a thread of the kernel's takes what is queued and is awake.
    ///
    /// # Errors
    /// EAGAIN, ENOMEM for want of memory; what was queued stays so. EBADR when the kernel had no
    /// memory for a completion, which is lost, so that the ring is of no use any more. EOWNERDEAD
    /// when the kernel's thread has ended. (io_uring_enter(2))
    pub fn submit(&mut self) -> io::Result<()> {
        self.queues.end_chain();
        if self.queues.is_polled() {
            return self.submit_polled();
        }
        // The kernel turns 20 wake-ups at most into completions (IO_LOCAL_TW_DEFAULT_MAX); the next
        // call has the others. To want more of one call takes a timer, which costs more than that.
        self.enter(0, NO_TIME)
    }

    /// As [`submit`](Self::submit), and waits up to `timeout` (for ever when `None`) until there is
    /// a completion, unless there is one. A signal ends the wait, and so may the end of an order to
    /// cancel, of which nobody is told.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == NO_TIME || self.has_completions() {
            return self.submit();
        }
        self.queues.end_chain();
        self.enter(1, timeout)
    }

    /// As [`wait`](Self::wait), but for `want` completions, as long as they come within `within`:
    /// after that one will do. A kernel before Linux 6.12 waits for one.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn gather(
        &mut self,
        want: u32,
        within: Duration,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if want < 2 || !self.queues.can_gather() || self.queues.is_polled() {
            return self.wait(timeout);
        }
        if timeout == NO_TIME || self.has_completions() {
            return self.submit();
        }
        self.queues.end_chain();
        self.fill();
        let within_us = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
        match self.queues.enter(want, within_us, timeout)? {
            Entered::WantsRoom => self.enter(0, NO_TIME),
            Entered::Done if self.queues.is_handed_over() => Ok(()),
            Entered::Done => self.enter(0, NO_TIME),
        }
    }

    /// Appends all completions that there are. No system call.
    #[inline]
    pub fn take(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.taken);
        let Self { queues, operations, buffers, .. } = self;
        let (mut completed, mut copied) = (0, 0);
        for told in queues.completions().map(Told::from) {
            completed += 1;
            copied += u64::from(told.was_copied());
            into.extend(operations.complete(told, buffers));
        }
        queues.counts.completed += completed as u64;
        queues.counts.copied += copied;
    }

    /// The bytes received. None when they are another ring's.
    #[inline]
    pub fn buffer(&self, filled: &Filled) -> &[u8] {
        self.buffers.bytes(filled)
    }

    /// Lets the kernel write to a buffer again, from now on.
    #[inline]
    pub fn give_back(&mut self, filled: Filled) {
        self.buffers.give_back(filled);
    }

    /// Whether a [`submit`](Self::submit) would hand anything over.
    #[inline]
    pub fn has_queued(&mut self) -> bool {
        self.queues.is_polled() || !self.queues.is_handed_over()
    }

    /// How many buffers have been filled and not given back.
    pub fn buffers_out(&self) -> usize {
        self.buffers.out()
    }

    /// How many operations have begun whose last completion was not taken.
    pub fn pending(&self) -> usize {
        self.operations.len()
    }

    /// The most operations that a chain may have.
    pub fn chain_max(&self) -> usize {
        self.queues.io.params().sq_entries() as usize
    }

    /// What the ring has done so far.
    pub fn counts(&self) -> Counts {
        self.queues.counts
    }
}

impl ServerRing {
    fn has_completions(&mut self) -> bool {
        !self.taken.is_empty() || !self.queues.completions().is_empty()
    }

    /// Calls only when a call is what the kernel's thread waits for.
    fn submit_polled(&mut self) -> io::Result<()> {
        self.fill();
        let queues = &mut self.queues;
        if queues.is_filled() && !queues.needs_wakeup() && !queues.is_overflown() {
            return Ok(());
        }
        self.enter(0, NO_TIME)
    }

    /// Enters the kernel until it has all that is queued, and has told all that happened.
    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        loop {
            self.fill();
            let want = if self.taken.is_empty() { want } else { 0 };
            let entered = self.queues.enter(want, 0, timeout)?;
            let is_overflown = self.queues.is_overflown();
            self.queues.counts.overflows += u64::from(is_overflown);
            if is_overflown || entered == Entered::WantsRoom {
                let made = self.make_room();
                if entered == Entered::WantsRoom && made == 0 {
                    return Err(io::Error::from_raw_os_error(libc::EBUSY));
                }
            } else if self.queues.is_handed_over() {
                return Ok(());
            }
        }
    }

    /// Moves what is queued to the kernel's queue, and hands that over when it is full. What fails
    /// here is told by the next submit, which tries again.
    fn fill_or_enter(&mut self) {
        self.fill();
        if !self.queues.is_filled() {
            let _ = self.enter(0, NO_TIME);
        }
    }

    /// Takes what there is, to be asked for later. How many completions the kernel has room for now
    /// that it had not before.
    fn make_room(&mut self) -> u64 {
        let before = self.queues.counts.completed;
        let mut taken = std::mem::take(&mut self.taken);
        self.take(&mut taken);
        self.taken = taken;
        self.queues.counts.completed - before
    }

    #[inline]
    fn fill(&mut self) {
        if !self.queues.is_filled() {
            self.fill_waiting();
        }
    }

    fn fill_waiting(&mut self) {
        self.queues.fill(&mut self.refused);
        let Self { refused, operations, buffers, taken, .. } = self;
        let refused = refused.drain(..).map(|op| Told::refusal(op, libc::E2BIG));
        taken.extend(refused.filter_map(|told| operations.complete(told, buffers)));
    }

    /// Ends all operations. Whether the kernel holds nothing of ours any more.
    fn end_all(&mut self) -> bool {
        let start = Instant::now();
        self.queues.end_chain();
        while self.operations.len() > 0 {
            self.cancel_any();
            if start.elapsed() > END_MAX || self.enter(1, Some(END_STEP)).is_err() {
                return false;
            }
            self.make_room();
            // Descriptors among them are closed.
            self.taken.clear();
        }
        true
    }
}

impl Drop for ServerRing {
    fn drop(&mut self) {
        if self.end_all() {
            self.buffers.close(&self.queues.io);
        } else {
            std::mem::forget(std::mem::take(&mut self.operations));
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

/// The errno of an operation that was told to end, or stood in a chain behind one that failed.
pub const ECANCELED: i32 = libc::ECANCELED;

/// How long a ring that is dropped waits for its operations to end.
const END_MAX: Duration = Duration::from_secs(1);

/// After how long it cancels again what has begun since, as the rest of a chain.
const END_STEP: Duration = Duration::from_millis(20);
