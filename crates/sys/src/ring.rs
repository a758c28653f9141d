//! io_uring(7) for what readiness mechanisms ask of it: polls, and epoll_ctl in batches.
//!
//! A ring belongs to the thread that made it. What is queued goes to the kernel with the next call
//! that enters it; a queue that is full is handed over at once, and a completion for which there is
//! no room is kept by the kernel until there is. Some time after a ring was dropped the kernel ends
//! what it still has, and interrupts the call that the thread sleeps in then (EINTR): best the
//! thread ends too. Knows nothing of what is waited for, or why.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, opcode, squeue};

use crate::epoll::EventFlags;
use crate::profile::{Call, timed};

/// Room for completions, as a multiple of that for submissions: polls complete at any time, those
/// of one submission all at once.
const COMPLETIONS_PER_ENTRY: u32 = 8;

/// How many wake-ups the kernel turns into completions in one call, unless more are wanted (Linux
/// 6.18, IO_LOCAL_TW_DEFAULT_MAX): a call that wants one ends with this many, though there be more.
const WAKE_UPS_MAX: usize = 20;

/// Marks what an order to end a poll says of itself.
const NOBODY: u64 = u64::MAX;

const NO_TIME: Option<Duration> = Some(Duration::ZERO);

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
    /// As [`PollRing::open`].
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

/// The two queues shared with the kernel. Not `Send`: the kernel takes entries from the thread that
/// made them only.
struct Ring(IoUring, PhantomData<*const ()>);

/// How a call ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entered {
    Done,
    /// Completions are to be taken before entries are.
    WantsRoom,
}

impl Ring {
    /// As the kernel can: completions made when asked for, or at least without an interrupt.
    fn open(entries: u32) -> io::Result<Self> {
        let mut newest = IoUring::builder();
        newest.setup_single_issuer().setup_defer_taskrun().setup_submit_all();
        let mut newer = IoUring::builder();
        newer.setup_coop_taskrun().setup_submit_all();
        let ring = build(&mut newest, entries)
            .or_else(|error| build_after(&error, &mut newer, entries))
            .or_else(|error| build_after(&error, &mut IoUring::builder(), entries))?;
        if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() {
            Ok(Self(ring, PhantomData))
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// One io_uring_enter(2): hands over what is queued, and waits for `want` completions to be
    /// there. Also with none wanted, what happened is turned into completions.
    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<Entered> {
        let to_submit = self.0.submission().len() as u32;
        let timeout = timeout.map(Timespec::from);
        let args =
            timeout.as_ref().map_or(SubmitArgs::new(), |time| SubmitArgs::new().timespec(time));
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: the argument is what the flags say, and lives until the call returns.
        let call =
            || unsafe { self.0.submitter().enter(to_submit, want, flags.bits(), Some(&args)) };
        match timed(Call::IoUringEnter, call) {
            Ok(_) => Ok(Entered::Done),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(Entered::Done),
                Some(libc::EBUSY) => Ok(Entered::WantsRoom),
                _ => Err(error),
            },
        }
    }

    /// Hands over all that is queued, and waits until it is done: a result for each, in its place.
    /// epoll_ctl is done by the call itself, or by a worker where it would have to wait.
    fn finish(&mut self, results: &mut [i32]) -> io::Result<()> {
        let mut left = results.len();
        while left > 0 {
            self.enter(left as u32, None)?;
            for entry in self.0.completion() {
                if let Some(result) = results.get_mut(entry.user_data() as usize) {
                    *result = entry.result();
                    left -= 1;
                }
            }
        }
        Ok(())
    }
}

fn build(builder: &mut Builder, entries: u32) -> io::Result<IoUring> {
    builder.setup_cqsize(entries.saturating_mul(COMPLETIONS_PER_ENTRY)).setup_clamp().build(entries)
}

/// Tries with less when it was a flag that the kernel did not know.
fn build_after(error: &io::Error, builder: &mut Builder, entries: u32) -> io::Result<IoUring> {
    match error.raw_os_error() {
        Some(libc::EINVAL) => build(builder, entries),
        errno => Err(errno.map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error)),
    }
}
