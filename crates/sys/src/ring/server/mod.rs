//! io_uring(7) for a completion-based server: accept, receive, send, files, chains of operations,
//! and their completions.
//!
//! Methods queue operations or read memory. [`submit`](ServerRing::submit) and
//! [`wait`](ServerRing::wait) enter the kernel, and so does a method that finds the queue full.
//! Queuing cannot fail: an invalid operation is reported by its completion, like any other error.
//!
//! **Memory** lent to the kernel belongs to the ring until the operation's last completion, which
//! returns it. A ring that is dropped cancels all operations and waits for them to end; memory that
//! the kernel does not release within a second is leaked.
//!
//! **Descriptors** are looked up by number when an operation starts, perhaps in a kernel thread,
//! long after it was queued; by then a closed descriptor's number may refer to another file. So an
//! operation holds a share in the owner of its descriptor, a
//! [`SharedFd`](crate::descriptor::SharedFd), until its last completion, even if the caller drops
//! its own. That takes no call and no allocation.
//!
//! **Slots** hold sockets that have no descriptor.
//! - An accept into an occupied slot replaces its socket, and so closes it.
//! - A close empties the slot at once but ends no operation: one in progress keeps the socket open,
//!   and the peer sees no close until it has ended. So an armed receive is cancelled in the same
//!   chain: `send`, [`Then::Always`], `cancel`, [`Then::Always`], `close`.
//! - When the kernel chooses the slot, it takes any empty one, and fails with ENFILE if there is
//!   none: the connection is lost.
//!
//! **Chains** are operations begun one after the other, each but the last with a [`Then`]. An
//! operation that takes no `Then` can only be the last: for example, a receive may follow its
//! accept. Chains are submitted whole. A chain still open at a `submit` ends there. A chain longer
//! than [`chain_max`](ServerRing::chain_max) is not begun at all, and all its operations end with
//! E2BIG.
//!
//! Nothing here knows of HTTP, connections or deadlines.

use std::io;
use std::time::{Duration, Instant};

mod buffers;
mod chain;
mod completion;
mod config;
mod entry;
mod operations;
mod queues;
mod resources;
mod send_buffer;
mod submit;

pub use buffers::ReceivedBuffer;
pub use chain::Then;
pub use completion::{Completion, Returned};
pub use config::{Counts, RingConfig, SqPoll};
pub use operations::Op;
pub use send_buffer::SendBuffer;
pub use submit::{AcceptTarget, AcceptWait, Handle, ReadThread, SendOptions};

use super::{Entered, NO_TIME};
use buffers::Buffers;
use operations::{Operations, RawCompletion};
use queues::Queues;

/// A server's ring, bound to the thread that created it.
pub struct ServerRing {
    queues: Queues,
    operations: Operations,
    buffers: Buffers,
    /// Completions taken to free space for others, and those of operations never begun.
    taken: Vec<Completion>,
    /// Operations of chains that were too long.
    refused: Vec<u64>,
}

impl ServerRing {
    /// Creates a ring.
    ///
    /// # Errors
    /// Unsupported, with an explanatory sentence, where the kernel has no ring, forbids it, or is
    /// older than Linux 6.10. InvalidInput, also with a sentence, for an invalid config. EMFILE
    /// when RLIMIT_NOFILE is less than the number of slots, ENFILE, ENOMEM: io_uring_setup(2),
    /// io_uring_register(2).
    pub fn open(config: &RingConfig) -> io::Result<Self> {
        config.check()?;
        let queues = Queues::open(config)?;
        let buffers = Buffers::open(&queues.io, config)?;
        queues.enable()?;
        Ok(Self {
            queues,
            operations: Operations::default(),
            buffers,
            taken: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// Submits queued operations without waiting, and turns pending events into completions. Takes
    /// one call, or none if the kernel's polling thread takes the queue and is awake.
    ///
    /// # Errors
    /// EAGAIN, ENOMEM for lack of memory; queued operations remain queued. EBADR when the kernel
    /// had no memory for a completion, which is lost, so that the ring is no longer usable.
    /// EOWNERDEAD when the kernel's thread has ended. (io_uring_enter(2))
    pub fn submit(&mut self) -> io::Result<()> {
        self.queues.end_chain();
        if self.queues.is_polled() {
            return self.submit_polled();
        }
        // The kernel turns at most 20 wake-ups into completions (IO_LOCAL_TW_DEFAULT_MAX); the next
        // call gets the others. Requesting more from one call takes a timer, which costs more than
        // that.
        self.enter(0, NO_TIME)
    }

    /// Submits like [`submit`](Self::submit), and waits up to `timeout` (for ever when `None`) for
    /// a completion, unless there is one already. A signal ends the wait, and so may the end of a
    /// cancel request, which is not reported.
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

    /// Waits like [`wait`](Self::wait), but for `want` completions as long as they arrive within
    /// `within`; after that, one is enough. Kernels before Linux 6.12 wait for one.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn wait_batch(
        &mut self,
        want: u32,
        within: Duration,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if want < 2 || !self.queues.can_wait_batch() || self.queues.is_polled() {
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

    /// Appends all available completions. Makes no system call.
    #[inline]
    pub fn take(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.taken);
        let Self { queues, operations, buffers, .. } = self;
        let (mut completed, mut copied) = (0, 0);
        for raw in queues.completions().map(RawCompletion::from) {
            completed += 1;
            copied += u64::from(raw.was_copied());
            into.extend(operations.complete(raw, buffers));
        }
        queues.counts.completed += completed as u64;
        queues.counts.copied += copied;
    }

    /// Returns the received bytes; empty if they belong to another ring.
    #[inline]
    pub fn buffer(&self, filled: &ReceivedBuffer) -> &[u8] {
        self.buffers.bytes(filled)
    }

    /// Gives a buffer back: the kernel may write to it again from now on.
    #[inline]
    pub fn give_back(&mut self, filled: ReceivedBuffer) {
        self.buffers.give_back(filled);
    }

    /// Returns whether [`submit`](Self::submit) would have anything to submit.
    #[inline]
    pub fn has_queued(&mut self) -> bool {
        self.queues.is_polled() || !self.queues.is_handed_over()
    }

    /// Number of filled buffers not yet given back.
    pub fn buffers_out(&self) -> usize {
        self.buffers.out()
    }

    /// Number of operations begun whose last completion has not been taken.
    pub fn pending(&self) -> usize {
        self.operations.len()
    }

    /// Maximum number of operations in a chain.
    pub fn chain_max(&self) -> usize {
        self.queues.io.params().sq_entries() as usize
    }

    /// Counters of the ring so far.
    pub fn counts(&self) -> Counts {
        self.queues.counts
    }
}

impl ServerRing {
    fn has_completions(&mut self) -> bool {
        !self.taken.is_empty() || !self.queues.completions().is_empty()
    }

    /// Enters the kernel only if its thread must be woken or completions wait for space.
    fn submit_polled(&mut self) -> io::Result<()> {
        self.fill();
        let queues = &mut self.queues;
        if queues.is_filled() && !queues.needs_wakeup() && !queues.is_overflown() {
            return Ok(());
        }
        self.enter(0, NO_TIME)
    }

    /// Enters the kernel until all queued operations are submitted and all overflowed completions
    /// delivered.
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

    /// Moves queued operations to the kernel's queue, and submits that when it is full. Errors are
    /// left to the next submit, which tries again.
    fn fill_or_enter(&mut self) {
        self.fill();
        if !self.queues.is_filled() {
            let _ = self.enter(0, NO_TIME);
        }
    }

    /// Takes available completions for a later [`take`](Self::take). Returns how much space that
    /// freed in the completion queue.
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
        let refused = refused.drain(..).map(|op| RawCompletion::refusal(op, libc::E2BIG));
        taken.extend(refused.filter_map(|raw| operations.complete(raw, buffers)));
    }

    /// Ends all operations. Returns whether the kernel has released all memory lent to it.
    fn end_all(&mut self) -> bool {
        let start = Instant::now();
        self.queues.end_chain();
        while self.operations.len() > 0 {
            self.cancel_any();
            if start.elapsed() > END_MAX || self.enter(1, Some(END_STEP)).is_err() {
                return false;
            }
            self.make_room();
            // This closes descriptors among them.
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

/// Errno of an operation that was cancelled or followed a failed one in its chain.
pub const ECANCELED: i32 = libc::ECANCELED;

/// Errno of a send or a receive on a connection that the peer has reset: send(2), recv(2).
pub const ECONNRESET: i32 = libc::ECONNRESET;

/// Errno of an accept for which the process has no descriptor left: accept4(2).
pub const EMFILE: i32 = libc::EMFILE;

/// Errno of a send without a copy on a socket of a kind that always copies: send(2).
pub const EOPNOTSUPP: i32 = libc::EOPNOTSUPP;

/// Maximum time that a dropped ring waits for its operations to end.
const END_MAX: Duration = Duration::from_secs(1);

/// Interval between cancellations of operations started since, such as the rest of a chain.
const END_STEP: Duration = Duration::from_millis(20);
