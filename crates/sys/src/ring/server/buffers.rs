//! Receive buffers: provided to the kernel through a buffer ring, picked by it when bytes arrive,
//! and given back after use.
//!
//! The kernel writes only to the buffers provided to it, and those are never read here. A buffer in
//! use is read through its unique [`ReceivedBuffer`].

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use io_uring::IoUring;

use super::config::RingConfig;

/// Received bytes, in a buffer of the ring. Dropping it instead of giving it back loses the buffer.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the buffer is to be given back"]
pub struct ReceivedBuffer {
    owner: u32,
    len: u32,
    id: u16,
}

impl ReceivedBuffer {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The buffers, and the ring through which they are provided to the kernel.
#[derive(Default)]
pub(super) struct Buffers {
    /// Distinguishes the buffers of one ring from those of another.
    owner: u32,
    lent: Option<Lent>,
    out: usize,
}

impl Buffers {
    /// Registers the buffers and provides all of them to the kernel.
    pub(super) fn open(io: &IoUring, config: &RingConfig) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let owner = NEXT.fetch_add(1, Ordering::Relaxed);
        let lent = (config.buffers > 0).then(|| Lent::open(io, config)).transpose()?;
        Ok(Self { owner, lent, out: 0 })
    }

    /// Number of buffers not provided to the kernel.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// Records that the kernel has picked a buffer and written to it.
    #[inline]
    pub(super) fn taken(&mut self, id: u16, result: i32) -> ReceivedBuffer {
        self.out += 1;
        ReceivedBuffer { owner: self.owner, len: u32::try_from(result).unwrap_or(0), id }
    }

    #[inline]
    pub(super) fn bytes(&self, filled: &ReceivedBuffer) -> &[u8] {
        match &self.lent {
            Some(lent) if filled.owner == self.owner => lent.bytes(filled),
            _ => &[],
        }
    }

    #[inline]
    pub(super) fn give_back(&mut self, filled: ReceivedBuffer) {
        if let Some(lent) = &mut self.lent
            && filled.owner == self.owner
        {
            lent.provide(filled.id);
            self.out -= 1;
        }
    }

    /// Unregisters the buffers, which the kernel no longer uses; leaks them if that fails.
    pub(super) fn close(&mut self, io: &IoUring) {
        if let Some(lent) = self.lent.take()
            && io.submitter().unregister_buf_ring(GROUP).is_err()
        {
            std::mem::forget(lent);
        }
    }
}

/// Memory shared with the kernel.
struct Lent {
    /// Entries of type [`Provided`], a power of two of them.
    ring: Map,
    buffers: Map,
    count: u16,
    bytes_each: u32,
    tail: u16,
}

/// An entry of the buffer ring (struct io_uring_buf). The first also holds the ring's tail.
#[repr(C)]
struct Provided {
    address: u64,
    bytes: u32,
    id: u16,
    tail: u16,
}

impl Lent {
    fn open(io: &IoUring, config: &RingConfig) -> io::Result<Self> {
        let count = config.buffers;
        let bytes_each = config.buffer_bytes;
        let ring = Map::new(usize::from(count) * size_of::<Provided>())?;
        let buffers = Map::new(usize::from(count) * bytes_each as usize)?;
        let address = ring.0.as_ptr().expose_provenance() as u64;
        // SAFETY: the map has room for `count` entries, and lives until it is unregistered, or for
        // ever.
        unsafe { io.submitter().register_buf_ring_with_flags(address, count, GROUP, 0) }?;
        let mut lent = Self { ring, buffers, count, bytes_each, tail: 0 };
        (0..count).for_each(|id| lent.provide(id));
        Ok(lent)
    }

    #[inline]
    fn bytes(&self, filled: &ReceivedBuffer) -> &[u8] {
        let len = filled.len.min(self.bytes_each) as usize;
        // SAFETY: `at` is one of the buffers, at least `len` bytes long, all zeros or what the
        // kernel wrote. It is not with the kernel: there is one `ReceivedBuffer` of it, which
        // giving it takes.
        unsafe { std::slice::from_raw_parts(self.at(filled.id), len) }
    }

    /// Provides a buffer to the kernel, which may write to it from now on.
    #[inline]
    fn provide(&mut self, id: u16) {
        let index = usize::from(self.tail & (self.count - 1));
        let ring = self.ring.0.as_ptr().cast::<Provided>();
        // SAFETY: the ring has `count` entries, a power of two, and a page's alignment. The entry
        // is not the kernel's: there are as many entries as buffers, and this buffer was not there.
        unsafe {
            let entry = ring.add(index);
            (&raw mut (*entry).address).write(self.at(id).expose_provenance() as u64);
            (&raw mut (*entry).bytes).write(self.bytes_each);
            (&raw mut (*entry).id).write(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the end of the ring is in its first entry, and reached as an atomic by both
        // sides.
        unsafe { AtomicU16::from_ptr(&raw mut (*ring).tail) }.store(self.tail, Ordering::Release);
    }

    fn at(&self, id: u16) -> *mut u8 {
        let index = usize::from(id & (self.count - 1));
        // SAFETY: the map has `count` buffers, of which this is one.
        unsafe { self.buffers.0.as_ptr().add(index * self.bytes_each as usize) }
    }
}

/// Page-aligned, initially zero memory, allocated on first use of each page. Not inherited by
/// children.
struct Map(NonNull<u8>, usize);

impl Map {
    fn new(bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, where the kernel likes, replaces none.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = Self(at, bytes);
        // SAFETY: advice about memory that was mapped just now, all of it ours.
        match unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_DONTFORK) } {
            0 => Ok(map),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `new`, and nothing reaches it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), self.1) };
    }
}

/// The only buffer group of a ring.
pub(super) const GROUP: u16 = 0;
