//! The kernel as seen by mechanisms: one trait per family of calls. In tests a fake kernel takes
//! its place, which delivers late, twice, in any order and to members that have gone.
//!
//! [`Linux`] passes each call on unchanged.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use weir_sys::epoll::{self, BusyPoll, Event, EventFlags};
use weir_sys::poll::PollFd;
use weir_sys::ring::{Completion, Ctl, CtlRing};
use weir_sys::rtsig::{self, Notice};

/// The families of calls that mechanisms are built on.
pub trait Kernel: 'static {
    /// epoll(7).
    type Epoll: EpollSet;

    /// Real-time signals.
    type Signals: SignalQueue;

    /// Polls of io_uring(7).
    type Ring: PollRing;

    /// epoll_ctl(2) in batches.
    type Batch: CtlBatch<Self::Epoll>;

    /// ppoll(2): see [`weir_sys::poll::poll`].
    ///
    /// # Errors
    /// As [`weir_sys::poll::poll`].
    fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize>;

    /// pselect6(2): see [`weir_sys::select::select`].
    ///
    /// # Errors
    /// As [`weir_sys::select::select`].
    fn select(
        nfds: usize,
        read: &mut [u64],
        write: &mut [u64],
        timeout: Option<Duration>,
    ) -> io::Result<usize>;
}

/// An interest set kept by the kernel: epoll(7).
pub trait EpollSet: Sized {
    /// Opens an empty set.
    ///
    /// # Errors
    /// As [`epoll::create`].
    fn open() -> io::Result<Self>;

    /// EPOLL_CTL_ADD.
    ///
    /// # Errors
    /// As [`epoll::add`].
    fn add(&self, fd: BorrowedFd<'_>, data: u64, flags: EventFlags) -> io::Result<()>;

    /// EPOLL_CTL_MOD.
    ///
    /// # Errors
    /// As [`epoll::modify`].
    fn modify(&self, fd: BorrowedFd<'_>, data: u64, flags: EventFlags) -> io::Result<()>;

    /// EPOLL_CTL_DEL.
    ///
    /// # Errors
    /// As [`epoll::delete`].
    fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// epoll_pwait2(2): replaces the contents of `events` with the ready events, at most its
    /// capacity.
    ///
    /// # Errors
    /// As [`epoll::wait`].
    fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;

    /// EPOLL_CTL_ADD by descriptor number, for callers that have only that.
    ///
    /// # Errors
    /// As [`epoll::add_raw`]; Unsupported for a kernel without descriptor numbers.
    fn add_raw(&self, _fd: RawFd, _data: u64, _flags: EventFlags) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// EPOLL_CTL_MOD by descriptor number.
    ///
    /// # Errors
    /// As [`epoll::modify_raw`]; Unsupported.
    fn modify_raw(&self, _fd: RawFd, _data: u64, _flags: EventFlags) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// EPOLL_CTL_DEL by descriptor number.
    ///
    /// # Errors
    /// As [`epoll::delete_raw`]; Unsupported.
    fn delete_raw(&self, _fd: RawFd) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets busy polling of devices before a sleep.
    ///
    /// # Errors
    /// As [`epoll::set_busy`]; Unsupported for a kernel without devices.
    fn set_busy(&self, _busy: BusyPoll) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Signals queued for one thread: see [`rtsig::SignalQueue`].
pub trait SignalQueue: Sized {
    /// Number of notices below which a read has left the queue empty. 0 if no read tells.
    const READ_MAX: usize = 0;

    /// Opens a queue for the calling thread; `pending_max` bounds the signals queued for all of the
    /// user's processes (RLIMIT_SIGPENDING).
    ///
    /// # Errors
    /// As [`rtsig::SignalQueue::open`].
    fn open(pending_max: Option<u64>) -> io::Result<Self>;

    /// Queues future events of `fd`; earlier ones are not reported. Returns false when the
    /// descriptor cannot signal.
    ///
    /// # Errors
    /// As [`rtsig::SignalQueue::arm`].
    fn arm(&self, fd: BorrowedFd<'_>) -> io::Result<bool>;

    /// Like [`arm`](Self::arm), for a file that other threads or processes may hold too; also
    /// returns false when another one owns its signals.
    ///
    /// # Errors
    /// As [`rtsig::SignalQueue::arm_shared`].
    fn arm_shared(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.arm(fd)
    }

    /// Stops queuing events of `fd`, for a file that stays open elsewhere.
    ///
    /// # Errors
    /// As [`rtsig::SignalQueue::disarm`].
    fn disarm(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Descriptor that [`Kernel::poll`] reports readable while a signal is queued.
    fn poll_fd(&self) -> RawFd;

    /// Waits for one notice.
    ///
    /// # Errors
    /// As [`rtsig::SignalQueue::take_one`].
    fn take_one(&mut self, timeout: Option<Duration>) -> io::Result<Option<Notice>>;

    /// Waits for notices, and appends those taken by one read; none only if none are queued.
    ///
    /// # Errors
    /// As [`rtsig::SignalQueue::take_many`].
    fn take_many(&mut self, notices: &mut Vec<Notice>, timeout: Option<Duration>)
    -> io::Result<()>;
}

/// Polls kept by the kernel: see [`weir_sys::ring::PollRing`].
pub trait PollRing: Sized {
    /// Opens a ring of `entries` submissions.
    ///
    /// # Errors
    /// As [`weir_sys::ring::PollRing::open`].
    fn open(entries: u32) -> io::Result<Self>;

    /// Queues a poll of `fd` for the poll(2) bits `poll`, once or, with `many`, for every change.
    ///
    /// # Errors
    /// As [`weir_sys::ring::PollRing::arm`].
    fn arm(&mut self, fd: RawFd, data: u64, poll: u32, many: bool) -> io::Result<()>;

    /// Queues a cancellation of a poll. The cancellation has no completion of its own; the
    /// cancelled poll has one, with -ECANCELED.
    ///
    /// # Errors
    /// As [`weir_sys::ring::PollRing::disarm`].
    fn disarm(&mut self, data: u64) -> io::Result<()>;

    /// Submits queued entries without waiting.
    ///
    /// # Errors
    /// As [`weir_sys::ring::PollRing::submit`].
    fn submit(&mut self) -> io::Result<()>;

    /// Submits queued entries, waits for a completion, and appends all available ones.
    ///
    /// # Errors
    /// As [`weir_sys::ring::PollRing::wait`].
    fn wait(
        &mut self,
        completions: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> io::Result<()>;
}

/// Batches of epoll_ctl(2): see [`CtlRing`].
pub trait CtlBatch<E>: Sized {
    /// Opens a ring of `entries` changes per batch.
    ///
    /// # Errors
    /// As [`CtlRing::open`].
    fn open(entries: u32) -> io::Result<Self>;

    /// Applies all `changes`, and appends their results: 0 or a negative errno.
    ///
    /// # Errors
    /// As [`CtlRing::apply`].
    fn apply(&mut self, epoll: &E, changes: &[Ctl], results: &mut Vec<i32>) -> io::Result<()>;
}

/// The kernel that runs this process.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

impl Kernel for Linux {
    type Epoll = OwnedFd;
    type Signals = rtsig::SignalQueue;
    type Ring = weir_sys::ring::PollRing;
    type Batch = CtlRing;

    fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
        weir_sys::poll::poll(fds, timeout)
    }

    fn select(
        nfds: usize,
        read: &mut [u64],
        write: &mut [u64],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        weir_sys::select::select(nfds, read, write, timeout)
    }
}

impl EpollSet for OwnedFd {
    fn open() -> io::Result<Self> {
        epoll::create()
    }

    fn add(&self, fd: BorrowedFd<'_>, data: u64, flags: EventFlags) -> io::Result<()> {
        epoll::add(self.as_fd(), fd, data, flags)
    }

    fn modify(&self, fd: BorrowedFd<'_>, data: u64, flags: EventFlags) -> io::Result<()> {
        epoll::modify(self.as_fd(), fd, data, flags)
    }

    fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        epoll::delete(self.as_fd(), fd)
    }

    fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        epoll::wait(self.as_fd(), events, timeout)
    }

    fn add_raw(&self, fd: RawFd, data: u64, flags: EventFlags) -> io::Result<()> {
        epoll::add_raw(self.as_fd(), fd, data, flags)
    }

    fn modify_raw(&self, fd: RawFd, data: u64, flags: EventFlags) -> io::Result<()> {
        epoll::modify_raw(self.as_fd(), fd, data, flags)
    }

    fn delete_raw(&self, fd: RawFd) -> io::Result<()> {
        epoll::delete_raw(self.as_fd(), fd)
    }

    fn set_busy(&self, busy: BusyPoll) -> io::Result<()> {
        epoll::set_busy(self.as_fd(), busy)
    }
}

impl SignalQueue for rtsig::SignalQueue {
    const READ_MAX: usize = rtsig::READ_MAX;

    fn open(pending_max: Option<u64>) -> io::Result<Self> {
        Self::open(pending_max)
    }

    fn arm(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.arm(fd)
    }

    fn arm_shared(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.arm_shared(fd)
    }

    fn disarm(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.disarm(fd)
    }

    fn poll_fd(&self) -> RawFd {
        self.poll_fd()
    }

    fn take_one(&mut self, timeout: Option<Duration>) -> io::Result<Option<Notice>> {
        self.take_one(timeout)
    }

    fn take_many(
        &mut self,
        notices: &mut Vec<Notice>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.take_many(notices, timeout)
    }
}

impl PollRing for weir_sys::ring::PollRing {
    fn open(entries: u32) -> io::Result<Self> {
        Self::open(entries)
    }

    fn arm(&mut self, fd: RawFd, data: u64, poll: u32, many: bool) -> io::Result<()> {
        self.arm(fd, data, poll, many)
    }

    fn disarm(&mut self, data: u64) -> io::Result<()> {
        self.disarm(data)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.submit()
    }

    fn wait(
        &mut self,
        completions: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.wait(completions, timeout)
    }
}

impl CtlBatch<OwnedFd> for CtlRing {
    fn open(entries: u32) -> io::Result<Self> {
        Self::open(entries)
    }

    fn apply(
        &mut self,
        epoll: &OwnedFd,
        changes: &[Ctl],
        results: &mut Vec<i32>,
    ) -> io::Result<()> {
        self.apply(epoll.as_fd(), changes, results)
    }
}
