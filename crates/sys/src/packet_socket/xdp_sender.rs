//! Frames sent through memory shared with the kernel: AF_XDP (the kernel's
//! Documentation/networking/af_xdp.rst), in copy mode, which every interface has. Nothing is
//! received here, so that no program is attached to the interface.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use libc::{xdp_desc, xdp_mmap_offsets, xdp_ring_offset, xdp_umem_reg};

use super::memory::Memory;
use super::room;
use crate::{check, set_option};

/// Room for a frame, bytes.
const PLACE_BYTES: usize = 2048;

/// Frames that may be on their way: about as many as an input queue holds
/// (net.core.netdev_max_backlog). A power of two, which a ring's length must be.
const PLACES: usize = 1024;

/// Sends frames on a queue of an interface.
#[derive(Debug)]
pub struct XdpSender {
    fd: OwnedFd,
    frames: Memory,
    /// Places that wait to be sent, and those that were.
    transmit: Ring,
    complete: Ring,
    /// Places without a frame, by their offset.
    free: Vec<u64>,
    losses: XdpLosses,
}

/// Frames that were not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpLosses {
    /// Dropped behind the interface.
    pub dropped: u64,
    /// Refused by the interface.
    pub refused: u64,
}

/// A ring with one producer and one consumer.
#[derive(Debug)]
struct Ring {
    memory: Memory,
    offsets: xdp_ring_offset,
}

impl XdpSender {
    /// Largest frame, bytes.
    pub const FRAME_MAX: usize = PLACE_BYTES;

    /// Opens a socket on the queue number `queue` of the interface number `index`.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; EAFNOSUPPORT where the kernel has no AF_XDP; EBUSY for a queue
    /// that another socket has; EINVAL for one that the interface has not.
    pub fn open(index: u32, queue: u32) -> io::Result<Self> {
        // SAFETY: numbers in, a number out.
        let number = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        check(number)?;
        // SAFETY: a descriptor that was just opened and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        let frames = Memory::anonymous(PLACES * PLACE_BYTES)?;
        // SAFETY: all zeroes is a value of this structure of numbers.
        let mut register: xdp_umem_reg = unsafe { std::mem::zeroed() };
        register.addr = frames.part(0, PLACES * PLACE_BYTES).as_ptr() as u64;
        register.len = (PLACES * PLACE_BYTES) as u64;
        register.chunk_size = PLACE_BYTES as u32;
        let set = |option| set_option(fd.as_fd(), libc::SOL_XDP, option, &(PLACES as u32));
        set_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &register)?;
        // A socket has no queue without a ring to fill, though nothing is received.
        set(libc::XDP_UMEM_FILL_RING)?;
        set(libc::XDP_UMEM_COMPLETION_RING)?;
        set(libc::XDP_TX_RING)?;
        let offsets = offsets(&fd)?;
        let complete_at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let transmit = Ring::map::<xdp_desc>(&fd, offsets.tx, libc::XDP_PGOFF_TX_RING)?;
        let complete = Ring::map::<u64>(&fd, offsets.cr, complete_at)?;
        room::to_send(fd.as_fd())?;
        bind(&fd, index, queue)?;
        let free = (0..PLACES).map(|place| (place * PLACE_BYTES) as u64).collect();
        Ok(Self { fd, frames, transmit, complete, free, losses: XdpLosses::default() })
    }

    /// Sends frames that stand behind each other in `frames`, the first from `start` on; `ends` are
    /// their ends. Returns how many left, losses included.
    ///
    /// # Errors
    /// ENOBUFS if the first finds no room, since the other end takes none; EMSGSIZE if it is too
    /// large.
    pub fn send(&mut self, frames: &[u8], start: usize, ends: &[usize]) -> io::Result<usize> {
        self.take_back();
        let mut start = start;
        let mut wanted = 0;
        for end in ends {
            let frame = frames.get(start..*end).filter(|frame| frame.len() <= PLACE_BYTES);
            let Some((frame, place)) = frame.zip(self.free.last().copied()) else { break };
            self.free.pop();
            self.put(place, frame, wanted);
            start = *end;
            wanted += 1;
        }
        if wanted == 0 {
            let is_full = self.free.is_empty();
            self.kick();
            let errno = if is_full { libc::ENOBUFS } else { libc::EMSGSIZE };
            return Err(io::Error::from_raw_os_error(errno));
        }
        let producer = self.transmit.producer();
        self.transmit
            .memory
            .word(self.transmit.offsets.producer as usize)
            .store(producer.wrapping_add(wanted), Ordering::Release);
        self.kick();
        Ok(wanted as usize)
    }

    /// Returns what was lost since the last call.
    pub fn take_losses(&mut self) -> XdpLosses {
        std::mem::take(&mut self.losses)
    }

    /// Puts a frame into its place, and the place into the ring, `nth` behind those of the kernel.
    fn put(&mut self, place: u64, frame: &[u8], nth: u32) {
        let room = self.frames.part(place as usize, frame.len());
        // SAFETY: the part is as long as the frame, and the kernel reads none of a place that is
        // not in its ring.
        unsafe { room.copy_from_nonoverlapping(NonNull::from(frame).cast(), frame.len()) };
        let slot = self.transmit.producer().wrapping_add(nth);
        let desc = xdp_desc { addr: place, len: frame.len() as u32, options: 0 };
        // SAFETY: slots from the producer's number on are this side's: there are as many as places.
        unsafe { self.transmit.slot::<xdp_desc>(slot).write(desc) };
    }

    /// Has the kernel send what is in the ring.
    fn kick(&mut self) {
        for _ in 0..2 * PLACES {
            let flags = libc::MSG_DONTWAIT;
            // SAFETY: no bytes and no address.
            let sent = unsafe {
                libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, flags, std::ptr::null(), 0)
            };
            if sent >= 0 {
                return;
            }
            match io::Error::last_os_error().raw_os_error() {
                // The interface has dropped a frame; the rest remains.
                Some(libc::EBUSY) => self.losses.dropped += 1,
                // As many frames as one call sends.
                Some(libc::EAGAIN) => {}
                // No memory for another: what remains is sent by the next call.
                Some(libc::ENOBUFS) => return,
                _ => {
                    self.losses.refused += 1;
                    return;
                }
            }
        }
    }

    /// Takes back the places of frames that were sent.
    fn take_back(&mut self) {
        let offsets = &self.complete.offsets;
        let consumer = self.complete.memory.word(offsets.consumer as usize);
        let mut next = consumer.load(Ordering::Relaxed);
        let end = self.complete.producer();
        while next != end {
            // SAFETY: slots before the producer's number are filled, and left alone until the
            // consumer's has passed them.
            self.free.push(unsafe { self.complete.slot::<u64>(next).read() });
            next = next.wrapping_add(1);
        }
        consumer.store(end, Ordering::Release);
    }
}

impl Ring {
    /// Maps a ring of [`PLACES`] slots.
    fn map<T>(fd: &OwnedFd, offsets: xdp_ring_offset, at: libc::off_t) -> io::Result<Self> {
        let bytes = offsets.desc as usize + PLACES * size_of::<T>();
        Ok(Self { memory: Memory::of_socket(fd.as_fd(), at, bytes)?, offsets })
    }

    /// Returns the number behind the last slot that was filled.
    fn producer(&self) -> u32 {
        self.memory.word(self.offsets.producer as usize).load(Ordering::Acquire)
    }

    /// Returns the address of a slot, which is valid and aligned.
    fn slot<T>(&self, number: u32) -> NonNull<T> {
        let at = self.offsets.desc as usize + number as usize % PLACES * size_of::<T>();
        self.memory.part(at, size_of::<T>()).cast()
    }
}

/// Returns where in the rings of a socket their numbers and slots are.
fn offsets(fd: &OwnedFd) -> io::Result<xdp_mmap_offsets> {
    // SAFETY: all zeroes is a value of this structure of numbers.
    let mut offsets: xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the option gives such a structure, whose address and size are given.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut bytes,
        )
    })?;
    Ok(offsets)
}

fn bind(fd: &OwnedFd, index: u32, queue: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address is there, and as long as said.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) })
}
