//! The kernel as mechanisms see it: one trait a family of calls, so that a kernel which delivers
//! late, twice, in any order and to those who have gone can stand in for the real one in tests.
//!
//! Nothing here decides anything: [`Linux`] passes each call on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use weir_sys::epoll::{self, Event, EventFlags};
use weir_sys::poll::PollFd;

/// Every family of calls that a mechanism is made of.
pub trait Kernel: 'static {
    /// epoll(7).
    type Epoll: EpollSet;

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
}

/// The kernel that runs this process.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

impl Kernel for Linux {
    type Epoll = OwnedFd;

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
}
