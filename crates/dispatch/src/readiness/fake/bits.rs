//! Numbers of Linux that the fake kernel shares with it: poll bits and errnos.

use std::io;

// The bits of poll(2), which epoll(7) and io_uring(7) share.
pub(in crate::readiness) const IN: u32 = 0x1;
pub(in crate::readiness) const OUT: u32 = 0x4;
pub(in crate::readiness) const ERR: u32 = 0x8;
pub(in crate::readiness) const HUP: u32 = 0x10;
pub(super) const NVAL: i16 = 0x20;
pub(in crate::readiness) const RDHUP: u32 = 0x2000;
/// Bits reported without being requested.
pub(super) const ALWAYS: u32 = ERR | HUP;

pub(super) const ENOENT: i32 = 2;
pub(super) const EBADF: i32 = 9;
pub(super) const ENOMEM: i32 = 12;
pub(super) const EEXIST: i32 = 17;
pub(super) const EINVAL: i32 = 22;
pub(super) const ECANCELED: i32 = 125;

/// Converts an errno, 0 for success.
pub(super) fn errno(number: i32) -> io::Result<()> {
    if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) }
}
