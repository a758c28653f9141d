//! What the kernel knows of a TCP listener and of those who call: the accept queue, the drops, the
//! age of a request. Decides nothing: what a long queue means is for others to say.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::profile::{Call, timed};

/// The accept queue of a listener: connections whose handshake is done and that nobody accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// How many wait now.
    pub len: u32,
    /// The backlog: what listen(2) was told, or net.core.somaxconn where that is less. The kernel
    /// refuses once `len` is above it, so that `max + 1` connections fit.
    pub max: u32,
}

/// Looks at the accept queue of a TCP listener (TCP_INFO, tcp(7), whose fields `tcpi_unacked` and
/// `tcpi_sacked` mean this while a socket listens). Takes no lock.
///
/// # Errors
/// EINVAL when a TCP socket does not listen; EOPNOTSUPP on a Unix socket; EBADF, ENOTSOCK:
/// getsockopt(2).
pub fn queue(listener: BorrowedFd<'_>) -> io::Result<Queue> {
    let info = tcp_info(listener)?;
    if info.tcpi_state != state::LISTEN {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(Queue { len: info.tcpi_unacked, max: info.tcpi_sacked })
}

/// How many packets a socket has dropped since it was made, modulo 2³² (SO_MEMINFO). For a listener
/// these are SYNs and last ACKs of handshakes: for want of room in a queue, which counts as
/// ListenDrops in /proc/net/netstat too, or because of a SYN filter ([`crate::syn_filter`]), which
/// does not. A client sends again, so that one connection may be dropped several times.
///
/// # Errors
/// ENOPROTOOPT before Linux 4.12; EBADF, ENOTSOCK: getsockopt(2).
pub fn drops(listener: BorrowedFd<'_>) -> io::Result<u32> {
    let counts: MemInfo = option(listener, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(counts[libc::SK_MEMINFO_DROPS as usize])
}

/// What has come from the peer of an accepted TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time since the newest data came, nanoseconds, in steps of the kernel's tick (1 to 10 ms),
    /// and up to one too long or too short. Reading changes nothing in it, nor does a FIN. 0
    /// unless `spoken`: until there is data the kernel counts from the end of the handshake.
    pub age_ns: u64,
    /// Whether no more will come: the peer's FIN or reset is here, or the connection was given up.
    /// A FIN is also what a peer sends that only stops writing and still wants its reply.
    pub departed: bool,
    /// Whether data came, be it read since or not.
    pub spoken: bool,
    /// The round trip to the peer, smoothed, nanoseconds (`tcpi_rtt`): for one just accepted, that
    /// of its handshake.
    pub rtt_ns: u64,
}

/// Looks at what has come on a TCP connection (TCP_INFO, tcp(7)), without reading it.
///
/// # Errors
/// EOPNOTSUPP on a Unix socket; EBADF, ENOTSOCK: getsockopt(2).
pub fn arrival(conn: BorrowedFd<'_>) -> io::Result<Arrival> {
    use state::{CLOSE, CLOSE_WAIT, CLOSING, LAST_ACK, TIME_WAIT};
    let info = tcp_info(conn)?;
    let finished = matches!(info.tcpi_state, TIME_WAIT | CLOSE_WAIT | LAST_ACK | CLOSING);
    // A FIN takes a sequence number and is counted among the bytes. It is not among the segments
    // with data, but those count what came again or too early, such as a keep-alive's byte.
    let bytes = info.tcpi_bytes_received.saturating_sub(u64::from(finished));
    let spoken = bytes > 0 && info.tcpi_data_segs_in > 0;
    let age_ns = if spoken { u64::from(info.tcpi_last_data_recv) * 1_000_000 } else { 0 };
    let departed = finished || info.tcpi_state == CLOSE;
    Ok(Arrival { age_ns, departed, spoken, rtt_ns: u64::from(info.tcpi_rtt) * 1_000 })
}

/// The states of a TCP socket (include/net/tcp_states.h of Linux) told apart here.
mod state {
    pub(super) const TIME_WAIT: u8 = 6;
    pub(super) const CLOSE: u8 = 7;
    pub(super) const CLOSE_WAIT: u8 = 8;
    pub(super) const LAST_ACK: u8 = 9;
    pub(super) const LISTEN: u8 = 10;
    pub(super) const CLOSING: u8 = 11;
}

/// SK_MEMINFO_DROPS is the last of those read; newer kernels may have more.
type MemInfo = [u32; libc::SK_MEMINFO_DROPS as usize + 1];

fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
}

/// Reads an option; what the kernel does not fill in is 0.
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

/// Types of which any bytes are a value.
///
/// # Safety
/// Nothing but integers, at any depth.
unsafe trait Plain: Copy {}
// SAFETY: integers only.
unsafe impl Plain for libc::tcp_info {}
// SAFETY: integers only.
unsafe impl Plain for MemInfo {}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
