//! Packet sockets: whole frames of one interface, received through memory that is shared with the
//! kernel and sent in batches (packet(7)).
//!
//! With a frame comes whether its checksum was left to the hardware, or must be verified: between
//! namespaces of one machine nobody computes them, and segments of up to 64 KiB pass uncut.

mod filter;
mod memory;
mod receive_ring;
mod room;
mod xdp_sender;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

pub use self::receive_ring::{ReceiveRing, ReceivedFrame};
pub use self::xdp_sender::{XdpLosses, XdpSender};
use crate::network::Network;
use crate::poll::{POLLERR, POLLIN, PollFd, poll};
use crate::{check, client, set_option};

/// Frames sent per call.
pub const BATCH: usize = 64;

/// A packet socket.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens a socket on the interface number `index`, which receives TCP for the addresses of
    /// `network`, and the questions of neighbours. What this machine sends is not received.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; ENODEV, ENXIO, ENETDOWN when the interface is not there or down.
    pub fn open(index: u32, network: Network) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: numbers in, a number out. With protocol 0 nothing is received yet.
        let number = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        check(number)?;
        // SAFETY: a descriptor that was just opened and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        filter::attach(fd.as_fd(), network)?;
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        // Without a queue on the way out; an interface that has one loses it here only.
        let _ = set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32);
        room::to_receive(fd.as_fd())?;
        room::to_send(fd.as_fd())?;
        bind(fd.as_fd(), index)?;
        if !network.first.is_ipv4() {
            receive_all_multicast(fd.as_fd(), index)?;
        }
        Ok(Self { fd })
    }

    /// Has the kernel put received frames into a ring of `places`, a multiple of 32. Those that
    /// wait in the socket are dropped.
    ///
    /// # Errors
    /// ENOMEM; EINVAL for a wrong number of places: setsockopt(2), mmap(2).
    pub fn receive_ring(&self, places: usize) -> io::Result<ReceiveRing> {
        ReceiveRing::new(self.fd.as_fd(), places)
    }

    /// Waits for a frame, at most for `timeout`, or until a signal comes, or the interface goes
    /// down.
    pub fn wait(&self, timeout: Duration) {
        let mut fds = [PollFd { fd: self.fd.as_raw_fd(), events: POLLIN, revents: 0 }];
        let _ = poll(&mut fds, Some(timeout));
        if fds[0].revents & POLLERR != 0 {
            // It would be reported again and again.
            let _ = client::take_error(self.fd.as_fd());
        }
    }

    /// Sends frames that stand behind each other in `frames`, the first from `start` on; `ends` are
    /// their ends. Returns how many were sent, at most [`BATCH`]; one that the interface refuses
    /// stops the rest.
    ///
    /// # Errors
    /// ENOBUFS, EAGAIN when the first finds no room; ENETDOWN, EMSGSIZE: sendmmsg(2).
    pub fn send(&self, frames: &[u8], start: usize, ends: &[usize]) -> io::Result<usize> {
        // SAFETY: all zeroes is a value of these structures of numbers and null pointers.
        let mut vectors: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: likewise.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut start = start;
        let mut wanted = 0;
        for ((message, vector), end) in messages.iter_mut().zip(&mut vectors).zip(ends) {
            let Some(frame) = frames.get(start..*end) else { break };
            vector.iov_base = frame.as_ptr().cast_mut().cast();
            vector.iov_len = frame.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            start = *end;
            wanted += 1;
        }
        if wanted == 0 {
            return Ok(0);
        }
        // SAFETY: the first `wanted` messages have a vector each, whose bytes are only read.
        let sent = unsafe {
            libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), wanted, libc::MSG_DONTWAIT)
        };
        check(sent.min(0))?;
        Ok(sent as usize)
    }

    /// Returns how many frames found no room since the last call (PACKET_STATISTICS).
    ///
    /// # Errors
    /// getsockopt(2).
    pub fn take_dropped(&self) -> io::Result<u64> {
        // struct tpacket_stats: packets, drops.
        let mut counts = [0_u32; 2];
        let mut bytes = size_of::<[u32; 2]>() as libc::socklen_t;
        // SAFETY: the option gives two numbers, whose address and size are given.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        })?;
        Ok(counts[1].into())
    }
}

/// Returns whether a frame that could not be sent was dropped behind the interface: between
/// namespaces because the receiver's queue was full (net.core.netdev_max_backlog), on a wire
/// because the card's was (ENOBUFS).
pub fn is_drop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bind(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: all zeroes is a value of this structure of numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is there, and as long as said.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) })
}

/// Has the card receive every multicast frame while the socket is open: a question for an IPv6
/// address comes to a group of its own (RFC 4291 section 2.7.1), and a card receives only those
/// that somebody has joined.
fn receive_all_multicast(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}
