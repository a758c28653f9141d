//! Received frames in memory shared with the kernel (packet(7), PACKET_RX_RING; the kernel's
//! Documentation/networking/packet_mmap.rst), version 2: each frame has a place of its own, and is
//! there as soon as it is received. Version 3 packs frames more densely, but hands them over in
//! blocks, a millisecond late.

use std::io;
use std::os::fd::BorrowedFd;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{tpacket_req, tpacket2_hdr};

use super::memory::Memory;
use crate::{set_option, socket};

/// Bytes of a frame's place, its header included: a frame of an Ethernet's MTU fits.
const PLACE_BYTES: usize = 2048;

/// Bytes of memory that the kernel allocates at a time.
const BLOCK_BYTES: usize = 1 << 16;

/// Largest frame: an IP packet of 64 KiB in Ethernet with a VLAN tag.
const FRAME_MAX: usize = 65_536 + 18;

/// Largest part of a second.
const NANOSECONDS: u32 = 999_999_999;

/// Marks of a frame whose segment's checksum is partial, or was verified.
const CHECKSUM_TRUSTED: u32 = libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID;

/// A ring of received frames.
#[derive(Debug)]
pub struct ReceiveRing {
    memory: Memory,
    places: usize,
    /// The place that is read next.
    next: usize,
    /// True if the frame of that place is the caller's.
    is_lent: bool,
    /// Takes a frame that has no room in a place.
    large: Vec<u8>,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedFrame<'a> {
    /// The frame, from its Ethernet header on.
    pub bytes: &'a [u8],
    /// True if its TCP checksum is to be trusted.
    pub is_trusted: bool,
    /// Time at which the kernel had it, since 1970.
    pub received: Duration,
}

impl ReceiveRing {
    /// Has the kernel put the frames that a packet socket receives into a ring of `places`.
    pub(super) fn new(fd: BorrowedFd<'_>, places: usize) -> io::Result<Self> {
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        // What has no room in a place waits in the socket, whole.
        set_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &1_i32)?;
        let bytes = places * PLACE_BYTES;
        let request = tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (bytes / BLOCK_BYTES) as u32,
            tp_frame_size: PLACE_BYTES as u32,
            tp_frame_nr: places as u32,
        };
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory = Memory::of_socket(fd, 0, bytes)?;
        Ok(Self { memory, places, next: 0, is_lent: false, large: Vec::new() })
    }

    /// Returns the next frame, if one waits in the ring of `socket`. The last one goes back to the
    /// kernel.
    pub fn next(&mut self, socket: BorrowedFd<'_>) -> Option<ReceivedFrame<'_>> {
        if std::mem::take(&mut self.is_lent) {
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.places;
        }
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.is_lent = true;
        let is_trusted = status & CHECKSUM_TRUSTED != 0;
        let is_large = status & libc::TP_STATUS_COPY != 0;
        let head = self.head();
        let received = Duration::new(head.tp_sec.into(), head.tp_nsec.min(NANOSECONDS));
        let bytes = if is_large { self.receive_large(socket) } else { self.frame(&head) };
        Some(ReceivedFrame { bytes, is_trusted, received })
    }

    /// Returns the header of the place that is read next, which must be full.
    fn head(&self) -> tpacket2_hdr {
        let place = self.memory.part(self.start(), PLACE_BYTES);
        // SAFETY: the place begins with the header, which is aligned, and the kernel leaves a place
        // alone while its status is not `TP_STATUS_KERNEL`.
        unsafe { place.cast::<tpacket2_hdr>().read() }
    }

    /// Returns the frame of that place.
    fn frame(&self, head: &tpacket2_hdr) -> &[u8] {
        let place = self.memory.part(self.start(), PLACE_BYTES);
        let from = usize::from(head.tp_mac).min(PLACE_BYTES);
        let bytes = (head.tp_snaplen as usize).min(PLACE_BYTES - from);
        // SAFETY: these bytes are in the place, and left alone as the header is: until the next
        // call of `next`, which the borrow of `self` holds off.
        unsafe { slice::from_raw_parts(place.add(from).as_ptr(), bytes) }
    }

    /// Receives a frame that waits in the socket.
    fn receive_large(&mut self, socket: BorrowedFd<'_>) -> &[u8] {
        self.large.resize(FRAME_MAX, 0);
        let received = socket::read_slice(socket, &mut self.large).unwrap_or(0);
        self.large.get(..received).unwrap_or_default()
    }

    /// Returns where the place that is read next begins.
    fn start(&self) -> usize {
        self.next * PLACE_BYTES
    }

    /// Returns the status of that place, with which its header begins.
    fn status(&self) -> &AtomicU32 {
        self.memory.word(self.start())
    }
}
