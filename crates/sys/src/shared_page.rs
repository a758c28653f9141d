//! Numbers in memory that processes share: mmap(2) of a file, or of no file for a process and those
//! it forks. What the numbers mean, and who writes which, is theirs to agree on.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;

/// Mapped numbers, written by this process and those it forks.
#[derive(Debug)]
pub struct SharedNumbers(Mapping);

/// Mapped numbers of a file, which this process only reads.
#[derive(Debug)]
pub struct ReadNumbers(Mapping);

#[derive(Debug)]
struct Mapping {
    numbers: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the memory is accessed by atomic operations only, from any thread, and nothing in this
// process but the mapping's owner unmaps it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl SharedNumbers {
    /// Maps `len` numbers, all zero, that only this process and those it forks see.
    ///
    /// # Errors
    /// ENOMEM: mmap(2).
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        map(-1, len, libc::PROT_READ | libc::PROT_WRITE, flags).map(Self)
    }

    /// Makes an empty file `len` numbers long, all zero, and maps it. Its blocks are allocated now:
    /// a store to a block that a full disk cannot provide would be a SIGBUS.
    ///
    /// # Errors
    /// ENOSPC, EOPNOTSUPP: fallocate(2). ENOMEM: mmap(2).
    pub fn of_file(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes(len)? as u64)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        map(file.as_raw_fd(), len, access, libc::MAP_SHARED).map(Self)
    }

    /// The numbers.
    pub fn numbers(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is aligned to a page, is as long as this, is writable, and lives as
        // long as `self`; everyone who accesses it does so by aligned 64-bit operations.
        unsafe { std::slice::from_raw_parts(self.0.numbers.as_ptr(), self.0.len) }
    }
}

impl ReadNumbers {
    /// Maps a file for reading: as many whole numbers as it has now. A file that is truncated
    /// later is a SIGBUS; only its owner can do that.
    ///
    /// # Errors
    /// EINVAL for an empty file, EACCES for what is no regular file, ENOMEM: mmap(2), fstat(2).
    pub fn of_file(file: BorrowedFd<'_>) -> io::Result<Self> {
        let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        let len = usize::try_from(size).unwrap_or(0) / size_of::<u64>();
        map(file.as_raw_fd(), len, libc::PROT_READ, libc::MAP_SHARED).map(Self)
    }

    /// Number of numbers.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns whether there is no number.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Loads a number; `None` past the end.
    #[inline]
    pub fn load(&self, index: usize) -> Option<u64> {
        if index >= self.0.len {
            return None;
        }
        // SAFETY: the index is within the mapping, which is aligned to a page and lives as long as
        // `self`. A `Relaxed` load of 64 bits works on memory mapped read-only (std::sync::atomic).
        let number = unsafe { self.0.numbers.add(index).as_ref() };
        Some(number.load(Ordering::Relaxed))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and the slices lent out are gone.
        unsafe {
            libc::munmap(self.numbers.as_ptr().cast(), self.len * size_of::<u64>());
        }
    }
}

fn bytes(len: usize) -> io::Result<usize> {
    let bytes = len.checked_mul(size_of::<u64>()).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

fn map(fd: i32, len: usize, access: i32, flags: i32) -> io::Result<Mapping> {
    let bytes = bytes(len)?;
    // SAFETY: a new mapping at an address of the kernel's choice: no memory of ours is replaced.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    match NonNull::new(address.cast()) {
        Some(numbers) => Ok(Mapping { numbers, len }),
        None => Err(io::Error::other("a page was mapped at address 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::os::fd::AsFd;

    #[test]
    fn what_one_stores_the_other_loads() {
        let file = rustix::fs::memfd_create("numbers", MemfdFlags::CLOEXEC).unwrap();
        let written = SharedNumbers::of_file(file.as_fd(), 3).unwrap();
        let read = ReadNumbers::of_file(file.as_fd()).unwrap();
        written.numbers()[2].store(7, Ordering::Relaxed);
        assert_eq!([0, 2, 3].map(|index| read.load(index)), [Some(0), Some(7), None]);
        assert_eq!((read.len(), read.is_empty()), (3, false));
    }

    #[test]
    fn an_empty_file_and_a_directory_are_errors() {
        let file = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC).unwrap();
        assert!(ReadNumbers::of_file(file.as_fd()).is_err());
        let dir = std::fs::File::open("/proc").unwrap();
        assert!(ReadNumbers::of_file(dir.as_fd()).is_err());
        assert!(SharedNumbers::anonymous(0).is_err());
        assert_eq!(SharedNumbers::anonymous(5).unwrap().numbers().len(), 5);
    }
}
