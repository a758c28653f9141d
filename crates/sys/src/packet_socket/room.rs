//! Room of a socket's buffers.

use std::io;
use std::os::fd::BorrowedFd;

use crate::set_option;

/// Room for frames on their way, bytes. A frame counts as unsent until the other end has handled
/// it. That end is to drop what it has no room for, and not this one.
const SEND_BYTES: i32 = 16 << 20;

/// Room for received frames that have none in a ring, bytes.
const RECEIVE_BYTES: i32 = 16 << 20;

/// Makes room for frames to be sent, beyond the limit for all if that is allowed.
///
/// # Errors
/// setsockopt(2).
pub(super) fn to_send(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BYTES)
}

/// Makes room for received frames, likewise.
///
/// # Errors
/// setsockopt(2).
pub(super) fn to_receive(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BYTES)
}

fn set(fd: BorrowedFd<'_>, forced: i32, usual: i32, bytes: i32) -> io::Result<()> {
    let set = |option| set_option(fd, libc::SOL_SOCKET, option, &bytes);
    set(forced).or_else(|_| set(usual))
}
