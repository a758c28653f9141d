//! What the kernel knows of a TCP listener and of those who call: the accept queue, the drops, the
//! age of a request; and a gate that drops calls before they cost anything. Decides nothing: what a
//! long queue means, and when the gate should close, is for others to say.

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

/// How many packets a socket has dropped since it was made, modulo 2³² (SO_MEMINFO). For a
/// listener these are SYNs and last ACKs of handshakes: for want of room in a queue, which counts
/// as ListenDrops in /proc/net/netstat too, or because of the gate, which does not. A client sends
/// again, so that one connection may be dropped several times.
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

/// Drops calls at random: of the SYNs that arrive from now on, a share of `share`, 0 to 1; less is
/// 0, more is 1, NaN is 0. 0 opens the gate. Replaces the gate that was there, at once.
///
/// A client whose SYN was dropped sends it again after a second or so (RFC 6298 section 2), and
/// each is a new draw. Nothing else is dropped: not the rest of a handshake that has begun, nor
/// what belongs to connections. Those accepted inherit the gate, and hold on to it when the
/// listener's changes; there it meets a SYN only from a peer that has forgotten the connection. On
/// a Unix socket it does nothing. (SO_ATTACH_FILTER, socket(7).)
///
/// # Errors
/// EPERM without CAP_NET_ADMIN over the network namespace, unless `share` is 0: Linux asks for it
/// since commit 5d39580f68e6 (June 2026; in stable kernels too), older ones do not. EPERM as well
/// when the filter is locked (SO_LOCK_FILTER). ENOMEM past net.core.optmem_max; EBADF, ENOTSOCK:
/// setsockopt(2). After an error the gate is as it was.
pub fn set_gate(listener: BorrowedFd<'_>, share: f64) -> io::Result<()> {
    // NaN is not above 0 either.
    if share > 0.0 { attach(listener, &mut gate(share)) } else { open_gate(listener) }
}

/// Lets every SYN through again (SO_DETACH_FILTER, socket(7)); nothing happens without a gate.
/// Needs no privilege, even where [`set_gate`] does.
///
/// # Errors
/// EPERM when the filter is locked (SO_LOCK_FILTER); EBADF, ENOTSOCK: setsockopt(2).
pub fn open_gate(listener: BorrowedFd<'_>) -> io::Result<()> {
    let unused: libc::c_int = 0;
    match set_option(listener, libc::SO_DETACH_FILTER, &unused) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
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

/// Where the flags stand in a TCP header, which is where a TCP socket's filter begins to count
/// (RFC 9293 section 3.1).
const FLAGS_AT: u32 = 13;
const FIN: u32 = 0x01;
const SYN: u32 = 0x02;
const RST: u32 = 0x04;
const ACK: u32 = 0x10;

/// The verdicts of a filter: how many bytes of the packet to keep.
const PASS: u32 = u32::MAX;
const DROP: u32 = 0;

/// A random number, as a filter loads it.
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;

/// Passes all but SYNs, and of those the ones that draw a number above `share` of 2³². (The flags
/// for ECN, RFC 3168 section 6.1.1, are not looked at: a SYN with them is a SYN.)
fn gate(share: f64) -> [libc::sock_filter; 7] {
    use libc::{
        BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_LD, BPF_RET, BPF_W,
    };
    // The conversion saturates, so that 1 and more leave no number above.
    let above = (share * 2f64.powi(32)) as u32;
    [
        step(BPF_LD | BPF_B | BPF_ABS, FLAGS_AT),
        step(BPF_ALU | BPF_AND, FIN | SYN | RST | ACK),
        branch(BPF_JMP | BPF_JEQ, SYN, 0, 2),
        step(BPF_LD | BPF_W | BPF_ABS, RANDOM),
        branch(BPF_JMP | BPF_JGT, above, 0, 1),
        step(BPF_RET, PASS),
        step(BPF_RET, DROP),
    ]
}

fn step(code: u32, k: u32) -> libc::sock_filter {
    branch(code, k, 0, 0)
}

/// Skips `yes` instructions or `no`, as the comparison turns out.
fn branch(code: u32, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: yes, jf: no, k }
}

fn attach(fd: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = program.len() as libc::c_ushort;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set_option(fd, libc::SO_ATTACH_FILTER, &program)
}

fn set_option<T>(fd: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    let value = (&raw const *value).cast();
    timed(Call::Setsockopt, || {
        // SAFETY: the kernel reads the value, whose address and size are given, and for a filter
        // the instructions, whose number stands next to their address; all outlive the call.
        check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, value, size) })
    })
}

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
