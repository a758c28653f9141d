//! Kernel state of a TCP listener and of accepted connections: the accept queue, drops, and the age
//! of a request. Reports only; policies decide what a long queue means.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;
use crate::profile::{Call, timed};

/// Accept queue of a listener: connections that have completed the handshake and wait to be
/// accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Connections queued now.
    pub len: u32,
    /// Backlog: the value passed to listen(2), or net.core.somaxconn where that is less. The kernel
    /// refuses once `len` exceeds it, so that `max + 1` connections fit.
    pub max: u32,
}

/// Reads the accept queue of a TCP listener (TCP_INFO, tcp(7): on a listening socket `tcpi_unacked`
/// and `tcpi_sacked` are its length and its backlog). Takes no lock.
///
/// # Errors
/// EINVAL when a TCP socket is not listening; EOPNOTSUPP on a Unix socket; EBADF, ENOTSOCK:
/// getsockopt(2).
pub fn queue(listener: BorrowedFd<'_>) -> io::Result<Queue> {
    let info = tcp_info(listener)?;
    if info.tcpi_state != state::LISTEN {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(Queue { len: info.tcpi_unacked, max: info.tcpi_sacked })
}

/// Number of packets that a socket has dropped since its creation, modulo 2³² (SO_MEMINFO). For a
/// listener these are SYNs and third ACKs dropped because a queue is full, which also count as
/// ListenDrops in /proc/net/netstat, SYNs dropped by a filter ([`crate::syn_filter`]), and packets
/// that are not what a handshake needs, neither of which do. A third ACK counts twice, for its
/// connection and for its packet. Clients retransmit, so one connection may account for several
/// drops. [`crate::drop_trace`] tells the kinds apart.
///
/// # Errors
/// ENOPROTOOPT before Linux 4.12; EBADF, ENOTSOCK: getsockopt(2).
pub fn drops(listener: BorrowedFd<'_>) -> io::Result<u32> {
    let counts: MemInfo = option(listener, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(counts[libc::SK_MEMINFO_DROPS as usize])
}

/// Data received from the peer of an accepted TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time since the newest data arrived, nanoseconds, in steps of the kernel's tick (1 to 10 ms),
    /// accurate to one step either way. Neither reading nor a FIN changes it. 0 unless `spoken`:
    /// until data arrives the kernel counts from the end of the handshake.
    pub age_ns: u64,
    /// True if no more data will come: the peer's FIN or reset has arrived, or the connection was
    /// given up. A peer that only shuts down its write side and still expects its reply also sends
    /// a FIN.
    pub departed: bool,
    /// True if any data has arrived, whether read or not.
    pub spoken: bool,
    /// Smoothed round-trip time to the peer, nanoseconds (`tcpi_rtt`); for a connection just
    /// accepted, that of its handshake.
    pub rtt_ns: u64,
    /// Time since the end of the handshake, nanoseconds, in steps of the kernel's tick, accurate to
    /// one step either way: for a connection just accepted, the time that it spent in the accept
    /// queue. Data received does not change it. Meaningless once data has been sent: the kernel
    /// has it as the time of the last such data (`tcpi_last_data_sent`), which begins at the
    /// handshake (`tcp_create_openreq_child` of Linux).
    pub established_ns: u64,
}

/// Reads the arrival state of a TCP connection (TCP_INFO, tcp(7)) without reading its data.
///
/// # Errors
/// EOPNOTSUPP on a Unix socket; EBADF, ENOTSOCK: getsockopt(2).
pub fn arrival(conn: BorrowedFd<'_>) -> io::Result<Arrival> {
    use state::{CLOSE, CLOSE_WAIT, CLOSING, LAST_ACK, TIME_WAIT};
    let info = tcp_info(conn)?;
    let finished = matches!(info.tcpi_state, TIME_WAIT | CLOSE_WAIT | LAST_ACK | CLOSING);
    // A FIN takes a sequence number and is counted among the bytes. It is not counted among the
    // segments with data, but those include retransmitted or early ones, such as a keep-alive's
    // byte.
    let bytes = info.tcpi_bytes_received.saturating_sub(u64::from(finished));
    let spoken = bytes > 0 && info.tcpi_data_segs_in > 0;
    let age_ns = if spoken { u64::from(info.tcpi_last_data_recv) * 1_000_000 } else { 0 };
    let departed = finished || info.tcpi_state == CLOSE;
    Ok(Arrival {
        age_ns,
        departed,
        spoken,
        rtt_ns: u64::from(info.tcpi_rtt) * 1_000,
        established_ns: u64::from(info.tcpi_last_data_sent) * 1_000_000,
    })
}

/// TCP socket states (include/net/tcp_states.h of Linux) that are distinguished here.
mod state {
    pub(super) const TIME_WAIT: u8 = 6;
    pub(super) const CLOSE: u8 = 7;
    pub(super) const CLOSE_WAIT: u8 = 8;
    pub(super) const LAST_ACK: u8 = 9;
    pub(super) const LISTEN: u8 = 10;
    pub(super) const CLOSING: u8 = 11;
}

/// Socket memory counters up to SK_MEMINFO_DROPS; newer kernels may have more.
type MemInfo = [u32; libc::SK_MEMINFO_DROPS as usize + 1];

fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
}

/// Reads a socket option; bytes that the kernel does not fill in are 0.
fn option<T: Plain>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut size = size_of::<T>() as libc::socklen_t;
    timed(Call::Getsockopt, || {
        let place = value.as_mut_ptr().cast();
        // SAFETY: the kernel writes no more than `size` bytes to `place`, which has as many.
        check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, place, &raw mut size) })
    })?;
    // SAFETY: zeroed, then written in part or whole, and any bytes make a `Plain`.
    Ok(unsafe { value.assume_init() })
}

/// Types for which any bytes are a valid value.
///
/// # Safety
/// Nothing but integers, at any depth.
unsafe trait Plain: Copy {}
// SAFETY: integers only.
unsafe impl Plain for libc::tcp_info {}
// SAFETY: integers only.
unsafe impl Plain for MemInfo {}
