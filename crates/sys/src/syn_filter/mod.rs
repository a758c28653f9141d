//! SYN filters for a listening TCP socket, which drop connection requests before the kernel
//! allocates any state for them: [`tokens`], a program that counts, and [`random`], which drops by
//! chance. How many SYNs to admit is the decision of a policy elsewhere.
//!
//! Both inspect SYNs only. Other packets of a handshake pass, and so do all packets of connections.
//! A connection inherits the filter when it is accepted and keeps it when the listener's changes;
//! there the filter sees a SYN only from a peer that has forgotten the connection. A client whose
//! SYN was dropped retransmits it after about a second (RFC 6298 section 2). Drops count only in
//! the socket's own drop counter, not in any system-wide one.

mod link;
pub mod random;
pub mod tokens;

use std::io;
use std::os::fd::BorrowedFd;

use crate::profile::{Call, timed};

/// Removes the filter, so that every SYN passes again (SO_DETACH_FILTER, socket(7)); does nothing
/// without a filter. Needs no privilege, even where attaching one does.
///
/// # Errors
/// EPERM when the filter is locked (SO_LOCK_FILTER); EBADF, ENOTSOCK: setsockopt(2).
pub fn detach(listener: BorrowedFd<'_>) -> io::Result<()> {
    let unused: libc::c_int = 0;
    match set_option(listener, libc::SO_DETACH_FILTER, &unused) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

/// Offset of the flags in a TCP header, which is where the data of a TCP socket's filter begins
/// (RFC 9293 section 3.1).
const FLAGS_AT: u32 = 13;

/// Mask of FIN, SYN, RST and ACK; and SYN alone. (The ECN flags, RFC 3168 section 6.1.1, are
/// ignored: a SYN that has them is a SYN.)
const FLAGS: u32 = 0x17;
const SYN: u32 = 0x02;

/// Verdicts of a filter: the number of bytes of the packet to keep.
const PASS: u32 = u32::MAX;
const DROP: u32 = 0;

fn set_option<T>(fd: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    timed(Call::Setsockopt, || crate::set_option(fd, libc::SOL_SOCKET, name, value))
}
