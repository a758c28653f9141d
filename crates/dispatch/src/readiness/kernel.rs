//! The kernel as mechanisms see it: one trait a family of calls, so that a kernel which delivers
//! late, twice, in any order and to those who have gone can stand in for the real one in tests.
//!
//! Nothing here decides anything: [`Linux`] passes each call on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use weir_sys::epoll::{self, BusyPoll, Event, EventFlags};
use weir_sys::poll::PollFd;
use weir_sys::ring::{Completion, Ctl, CtlRing};
use weir_sys::rtsig::{self, Notice};

/// Every family of calls that a mechanism is made of.
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
    /// As it says.
    fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize>;

    /// pselect6(2): see [`weir_sys::select::select`].
    ///
    /// # Errors
    /// As it says.
    fn select(
        nfds: usize,
        read: &mut [u64],
        write: &mut [u64],
        timeout: Option<Duration>,
    ) -> io::Result<usize>;
}

/// An interest set kept by the kernel: epoll(7).
pub trait EpollSet: Sized {
    /// Makes an empty one.
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

    /// epoll_pwait2(2): replaces `events` by at most its capacity of them.
    ///
    /// # Errors
    /// As [`epoll::wait`].
    fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;

    /// EPOLL_CTL_ADD by number, where the caller has nothing else.
    ///
    /// # Errors
    /// As [`epoll::add_raw`]; Unsupported where a kernel knows descriptors only.
    fn add_raw(&self, _fd: RawFd, _data: u64, _flags: EventFlags) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// EPOLL_CTL_MOD by number.
    ///
    /// # Errors
    /// As [`epoll::modify_raw`]; Unsupported.
    fn modify_raw(&self, _fd: RawFd, _data: u64, _flags: EventFlags) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// EPOLL_CTL_DEL by number.
    ///
    /// # Errors
    /// As [`epoll::delete_raw`]; Unsupported.
    fn delete_raw(&self, _fd: RawFd) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets how devices are polled before a sleep.
    ///
    /// # Errors
    /// As [`epoll::set_busy`]; Unsupported where a kernel has no devices.
    fn set_busy(&self, _busy: BusyPoll) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The signals queued for one thread: see [`rtsig::SignalQueue`].
pub trait SignalQueue: Sized {
    /// A read that takes fewer than this many has left the queue empty. 0: none tells so.
    const READ_MAX: usize = 0;

    /// For the calling thread; `pending_max` bounds what is queued for all of the user's processes
    /// (RLIMIT_SIGPENDING).
    ///
    /// # Errors
    /// As it says.
    fn open(pending_max: Option<u64>) -> io::Result<Self>;

    /// Has events of `fd` queued from now on; those before are not told. False when there will
    /// be none, because the descriptor cannot signal.
    ///
    /// # Errors
    /// As it says.
    fn arm(&self, fd: BorrowedFd<'_>) -> io::Result<bool>;

    /// The same for a file that other threads or processes may hold too: false also when another
    /// has its signals.
    ///
    /// # Errors
    /// As it says.
    fn arm_shared(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.arm(fd)
    }

    /// Has no more events of `fd` queued, for one that others keep open.
    ///
    /// # Errors
    /// As it says.
    fn disarm(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// A descriptor that [`Kernel::poll`] reports readable while something is queued.
    fn poll_fd(&self) -> RawFd;

    /// Waits for one notice.
    ///
    /// # Errors
    /// As it says.
    fn take_one(&mut self, timeout: Option<Duration>) -> io::Result<Option<Notice>>;

    /// Waits for notices, and appends as many as come with one read; none only when none are
    /// queued.
    ///
    /// # Errors
    /// As it says.
    fn take_many(&mut self, notices: &mut Vec<Notice>, timeout: Option<Duration>)
    -> io::Result<()>;
}

/// Polls kept by the kernel: see [`weir_sys::ring::PollRing`].
pub trait PollRing: Sized {
    /// Of `entries` submissions at a time.
    ///
    /// # Errors
    /// As it says.
    fn open(entries: u32) -> io::Result<Self>;

    /// Queues a poll of `fd` for the poll(2) bits `poll`, once or, with `many`, of every change.
    ///
    /// # Errors
    /// As it says.
    fn arm(&mut self, fd: RawFd, data: u64, poll: u32, many: bool) -> io::Result<()>;

    /// Queues the end of a poll. What it says of itself has no completion; the poll that ends so
    /// has one, with -ECANCELED.
    ///
    /// # Errors
    /// As it says.
    fn disarm(&mut self, data: u64) -> io::Result<()>;

    /// Hands over what is queued, without waiting.
    ///
    /// # Errors
    /// As it says.
    fn submit(&mut self) -> io::Result<()>;

    /// Hands over what is queued, waits for a completion, and appends all there are.
    ///
    /// # Errors
    /// As it says.
    fn wait(
        &mut self,
        completions: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> io::Result<()>;
}

/// epoll_ctl(2) in batches: see [`CtlRing`].
pub trait CtlBatch<E>: Sized {
    /// Of `entries` at a time.
    ///
    /// # Errors
    /// As it says.
    fn open(entries: u32) -> io::Result<Self>;

    /// Makes all `changes`, and appends what became of each: 0 or a negative errno.
    ///
    /// # Errors
    /// As it says.
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
