//! poll(2): an array of descriptors passed on every call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

pub use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDHUP, POLLRDNORM,
    POLLWRBAND, POLLWRNORM, pollfd as PollFd,
};

use crate::profile::{Call, timed};

/// Waits until a descriptor is ready or `timeout` passes (for ever when `None`). Fills in `revents`
/// of every entry and returns the number of nonzero ones.
///
/// A signal counts as an empty result, with every `revents` cleared.
///
/// # Errors
/// EINVAL past RLIMIT_NOFILE entries, ENOMEM: ppoll(2).
pub fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    let limit = timeout.map(timespec);
    let limit_ptr = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array and its length come from one slice, the timespec outlives the call, and a
    // null signal mask leaves the mask alone.
    let ready = timed(Call::Poll, || unsafe {
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit_ptr, std::ptr::null())
    });
    if ready >= 0 {
        return Ok(ready as usize);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        fds.iter_mut().for_each(|entry| entry.revents = 0);
        return Ok(0);
    }
    Err(error)
}

/// Waits until one of the descriptors can be read, at most for `timeout`, or until a signal comes.
/// An error leaves the caller to look again.
pub(crate) fn wait_readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Duration) {
    let mut fds = fds.map(|fd| PollFd { fd: fd.as_raw_fd(), events: POLLIN, revents: 0 });
    let _ = poll(&mut fds, Some(timeout));
}

/// Converts a timeout to the C library's type, saturating at the longest it can hold.
pub(crate) fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}
