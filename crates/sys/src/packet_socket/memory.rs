//! Memory shared with the kernel: mmap(2) of a socket's rings, or of nothing for frames.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// A mapping, which is one value's own.
#[derive(Debug)]
pub(super) struct Memory {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps `bytes` of a socket's memory from `offset` on.
    ///
    /// # Errors
    /// EINVAL, ENOMEM: mmap(2).
    pub(super) fn of_socket(
        fd: BorrowedFd<'_>,
        offset: libc::off_t,
        bytes: usize,
    ) -> io::Result<Self> {
        Self::map(fd.as_raw_fd(), libc::MAP_SHARED, offset, bytes)
    }

    /// Maps `bytes`, all zero.
    ///
    /// # Errors
    /// ENOMEM: mmap(2).
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 0, bytes)
    }

    fn map(fd: i32, flags: i32, offset: libc::off_t, bytes: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, bytes })
    }

    /// Returns the address of the `bytes` from `offset` on, which are valid while `self` is.
    pub(super) fn part(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(bytes <= self.bytes && offset <= self.bytes - bytes, "a part of the mapping");
        // SAFETY: the part lies within the mapping.
        unsafe { self.at.add(offset) }
    }

    /// Returns the word at `offset`, a multiple of 4, which both sides read and write whole.
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "a word is aligned");
        // SAFETY: the word is in the mapping, which is aligned to a page and lives as long as
        // `self`, and is accessed by atomic operations only.
        unsafe { self.part(offset, 4).cast().as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no borrow of it is left.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
