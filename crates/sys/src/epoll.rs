//! epoll(7): an interest set kept by the kernel. Says nothing of how a server uses it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll as raw;
pub use rustix::event::epoll::{Event, EventFlags};
use rustix::fs::Timespec;

use crate::profile::{Call, timed};

/// Makes an epoll instance, closed on exec.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM: epoll_create1(2).
pub fn create() -> io::Result<OwnedFd> {
    Ok(raw::create(raw::CreateFlags::CLOEXEC)?)
}

/// EPOLL_CTL_ADD: `data` comes back with every event of `fd`.
///
/// # Errors
/// EEXIST, ENOMEM, ENOSPC, EPERM: epoll_ctl(2).
pub fn add(
    epoll: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    data: u64,
    flags: EventFlags,
) -> io::Result<()> {
    timed(Call::EpollCtl, || raw::add(epoll, fd, raw::EventData::new_u64(data), flags))?;
    Ok(())
}

/// EPOLL_CTL_MOD: replaces what is asked of `fd`, and checks its state anew.
///
/// # Errors
/// ENOENT when `fd` was never added: epoll_ctl(2).
pub fn modify(
    epoll: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    data: u64,
    flags: EventFlags,
) -> io::Result<()> {
    timed(Call::EpollCtl, || raw::modify(epoll, fd, raw::EventData::new_u64(data), flags))?;
    Ok(())
}

/// EPOLL_CTL_DEL. A close of the last descriptor of a file does the same without a call.
///
/// # Errors
/// ENOENT when `fd` was never added: epoll_ctl(2).
pub fn delete(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    timed(Call::EpollCtl, || raw::delete(epoll, fd))?;
    Ok(())
}

/// Waits up to `timeout` (forever when `None`) and replaces `events` by at most its capacity of
/// them.
///
/// A signal counts as nothing ready.
///
/// # Errors
/// EBADF, EINVAL: epoll_pwait2(2).
pub fn wait(
    epoll: BorrowedFd<'_>,
    events: &mut Vec<Event>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    events.clear();
    let timeout = timeout.map(timespec);
    match timed(Call::EpollWait, || raw::wait(epoll, spare_capacity(events), timeout.as_ref())) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A timeout as the kernel takes it; past what it can hold, the longest it can.
pub(crate) fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}
