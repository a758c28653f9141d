//! Packet sockets: whole frames of one interface, received and sent in batches (packet(7)).
//!
//! Frames come with the head of virtio_net, which tells a checksum that was left to the hardware
//! from one that must be verified: between namespaces of one machine nobody computes them, and
//! segments of up to 64 KiB pass uncut.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use crate::network::Network;
use crate::poll::wait_readable;
use crate::{check, set_option};

/// Frames per call.
pub const BATCH: usize = 64;

/// Room for frames on their way, bytes.
const SEND_BYTES: i32 = 16 << 20;

/// Bytes of the head of virtio_net, version 0 (the OASIS specification, section 5.1.6).
const HEAD_BYTES: usize = 10;

/// Largest frame: an IP packet of 64 KiB in Ethernet with a VLAN tag.
const FRAME_MAX: usize = 65_536 + 18;

/// Flags of the head: the checksum is partial; it was verified.
const CHECKSUM_TRUSTED: u8 = 1 | 2;

/// A packet socket.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

/// Frames received by one call, [`BATCH`] at most. The default has no room for any.
#[derive(Debug, Default)]
pub struct Frames {
    /// `BATCH` buffers, each for a head and a frame.
    buffers: Vec<u8>,
    /// Bytes received in each buffer.
    lengths: Vec<usize>,
}

impl Frames {
    /// Creates room for [`BATCH`] frames.
    pub fn new() -> Self {
        Self { buffers: vec![0; BATCH * STRIDE], lengths: Vec::with_capacity(BATCH) }
    }

    /// Returns the frames, each with whether its TCP checksum is to be trusted.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let parts = self.buffers.chunks_exact(STRIDE);
        parts.zip(&self.lengths).filter_map(|(part, length)| {
            let (head, frame) = part.get(..*length)?.split_at_checked(HEAD_BYTES)?;
            Some((frame, head[0] & CHECKSUM_TRUSTED != 0))
        })
    }
}

/// Bytes from one buffer to the next.
const STRIDE: usize = (HEAD_BYTES + FRAME_MAX).next_multiple_of(64);

impl PacketSocket {
    /// Opens a socket on the interface number `index`, which receives TCP for the addresses of
    /// `network`, and the questions of neighbours. What this machine sends is not received.
    /// `receive_bytes`: room for frames that wait, as far as the kernel grants it.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; ENODEV, ENXIO, ENETDOWN when the interface is not there or down.
    pub fn open(index: u32, network: Network, receive_bytes: usize) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: numbers in, a number out. With protocol 0 nothing is received yet.
        let number = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        check(number)?;
        // SAFETY: a descriptor that was just opened and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        attach_filter(fd.as_fd(), network)?;
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)?;
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        // Without a queue on the way out; an interface that has one loses it here only.
        let _ = set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32);
        let wanted = i32::try_from(receive_bytes).unwrap_or(i32::MAX);
        set_room(fd.as_fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, wanted)?;
        // A frame counts as unsent until the other end has handled it. That end is to drop what it
        // has no room for, and not this one.
        set_room(fd.as_fd(), libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BYTES)?;
        bind(fd.as_fd(), index)?;
        if !network.first.is_ipv4() {
            receive_all_multicast(fd.as_fd(), index)?;
        }
        Ok(Self { fd })
    }

    /// Receives the frames that wait, at most as many as `frames` has room for; returns how many.
    /// 0: none waits.
    ///
    /// # Errors
    /// ENETDOWN when the interface goes down: recvmmsg(2).
    pub fn receive(&self, frames: &mut Frames) -> io::Result<usize> {
        frames.lengths.clear();
        // SAFETY: all zeroes is a value of these structures of numbers and null pointers.
        let mut vectors: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: likewise.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let parts = frames.buffers.chunks_exact_mut(STRIDE);
        let wanted = parts.len() as u32;
        for ((message, vector), part) in messages.iter_mut().zip(&mut vectors).zip(parts) {
            vector.iov_base = part.as_mut_ptr().cast();
            vector.iov_len = part.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each message has one vector, which is a part of the buffers of its own.
        let received = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                wanted,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        }
        let received = received as usize;
        frames.lengths.extend(messages[..received].iter().map(|message| message.msg_len as usize));
        Ok(received)
    }

    /// Waits for a frame, at most for `timeout`, or until a signal comes.
    pub fn wait(&self, timeout: Duration) {
        wait_readable([self.fd.as_fd()], timeout);
    }

    /// Sends frames that stand behind each other in `frames`, the first from `start` on; `ends` are
    /// their ends. Returns how many were sent, at most [`BATCH`]; one that the interface refuses
    /// stops the rest.
    ///
    /// # Errors
    /// ENOBUFS, EAGAIN when the first finds no room; ENETDOWN, EMSGSIZE: sendmmsg(2).
    pub fn send(&self, frames: &[u8], start: usize, ends: &[usize]) -> io::Result<usize> {
        let head = [0_u8; HEAD_BYTES];
        // SAFETY: all zeroes is a value of these structures of numbers and null pointers.
        let mut vectors: [[libc::iovec; 2]; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: likewise.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut start = start;
        let mut wanted = 0;
        for ((message, vector), end) in messages.iter_mut().zip(&mut vectors).zip(ends) {
            let Some(frame) = frames.get(start..*end) else { break };
            vector[0] =
                libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: HEAD_BYTES };
            vector[1] =
                libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            message.msg_hdr.msg_iov = vector.as_mut_ptr();
            message.msg_hdr.msg_iovlen = 2;
            start = *end;
            wanted += 1;
        }
        if wanted == 0 {
            return Ok(0);
        }
        // SAFETY: the first `wanted` messages have two vectors each, which the kernel only reads.
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

/// Sets the room of a buffer, beyond the limit for all if that is allowed.
fn set_room(fd: BorrowedFd<'_>, forced: i32, usual: i32, bytes: i32) -> io::Result<()> {
    let set = |option| set_option(fd, libc::SOL_SOCKET, option, &bytes);
    set(forced).or_else(|_| set(usual))
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

/// Attaches the filter (the kernel's Documentation/networking/filter.rst).
fn attach_filter(fd: BorrowedFd<'_>, network: Network) -> io::Result<()> {
    let mut steps = filter(network);
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Returns the filter: TCP for the addresses of `network`, and what neighbours say: ARP, or all of
/// ICMPv6.
fn filter(network: Network) -> Vec<libc::sock_filter> {
    let is_v4 = network.first.is_ipv4();
    let (ethertype, protocol_at, address_at) =
        if is_v4 { (libc::ETH_P_IP, 23, 30) } else { (libc::ETH_P_IPV6, 20, 38) };
    let is = |ethertype: i32| (load(libc::BPF_H, 12), None, ethertype as u32);
    let holds = |protocol: i32| (load(libc::BPF_B, protocol_at), None, protocol as u32);
    let words = network
        .words()
        .map(|word| (load(libc::BPF_W, address_at + word.at), Some(word.mask), word.wanted));
    let tcp: Vec<Test> =
        [is(ethertype), holds(libc::IPPROTO_TCP)].into_iter().chain(words).collect();
    let neighbour = if is_v4 {
        vec![is(libc::ETH_P_ARP)]
    } else {
        vec![is(ethertype), holds(libc::IPPROTO_ICMPV6)]
    };
    let mut steps = all_of(&tcp);
    steps.extend(all_of(&neighbour));
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0));
    steps
}

/// A load, a mask for what it loads, and the value that is wanted.
type Test = (libc::sock_filter, Option<u32>, u32);

/// Accepts a packet that passes every test; another goes on behind.
fn all_of(tests: &[Test]) -> Vec<libc::sock_filter> {
    let mut steps = Vec::new();
    let bytes: Vec<usize> = tests.iter().map(|test| 2 + usize::from(test.1.is_some())).collect();
    for (nth, (load, mask, wanted)) in tests.iter().enumerate() {
        steps.push(*load);
        steps.extend(mask.map(|mask| step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask)));
        // Behind the remaining tests and the acceptance.
        let skipped = bytes[nth + 1..].iter().sum::<usize>() + 1;
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        steps.push(libc::sock_filter { code, jt: 0, jf: skipped as u8, k: *wanted });
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, u32::MAX));
    steps
}

fn load(size: u32, at: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_ABS | size, at)
}

fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
