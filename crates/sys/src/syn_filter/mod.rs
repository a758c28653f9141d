//! Filters on a listening TCP socket that drop connection requests before the kernel keeps anything
//! of them: [`tokens`], a program that counts, and [`random`], which draws lots. Decides nothing:
//! how many are let in is for others to say.
//!
//! Either looks at SYNs alone. The rest of a handshake that has begun passes, and so does all that
//! belongs to connections, which inherit the filter when they are accepted and hold on to it when
//! the listener's changes; there it meets a SYN only from a peer that has forgotten the connection.
//! A client whose SYN was dropped sends it again after a second or so (RFC 6298 section 2). What
//! is dropped moves only the socket's own count of drops, none of the system's.

pub mod random;
pub mod tokens;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::profile::{Call, timed};

/// Lets every SYN through again (SO_DETACH_FILTER, socket(7)); nothing happens without a filter.
/// Needs no privilege, even where setting one does.
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

/// Where the flags stand in a TCP header, which is where a TCP socket's filter begins to count
/// (RFC 9293 section 3.1).
const FLAGS_AT: u32 = 13;

/// FIN, SYN, RST and ACK; and SYN alone. (The flags for ECN, RFC 3168 section 6.1.1, are not looked
/// at: a SYN with them is a SYN.)
const FLAGS: u32 = 0x17;
const SYN: u32 = 0x02;

/// The verdicts of a filter: how many bytes of the packet to keep.
const PASS: u32 = u32::MAX;
const DROP: u32 = 0;

fn set_option<T>(fd: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    let value = (&raw const *value).cast();
    let answer = timed(Call::Setsockopt, || {
        // SAFETY: the kernel reads the value, whose address and size are given, and for a classic
        // filter the instructions, whose number stands next to their address; all outlive the call.
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, value, size) }
    });
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
