//! File access without waiting for a disk: queries of the kernel's dentry and page caches, and the
//! means to fill them.
//!
//! An answer is true at the moment it is given. The kernel may evict anything a moment later; a
//! caller that relies on the answer then waits once, as it would have without asking. Which thread
//! does the waiting instead is the caller's decision.

use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::{File, fill, open_beneath, open_with, pread, resolve, status};
use crate::profile::{Call, timed};

/// Opens a path as [`open_beneath`] does, but only if every name on it is in the kernel's cache;
/// otherwise returns `WouldBlock` (`RESOLVE_CACHED`, openat2(2)). Absence of a name is known
/// without a disk access only where the file system caches it: tmpfs and NFS do not.
///
/// `WouldBlock` is also returned when a rename elsewhere races with a `..`, for a link that climbs
/// out of the root, and for any name on a file system that must ask a server: even after an
/// [`open_beneath`] of the same path this call may fail. Kernels before 5.12 do not know the flag;
/// there it waits as [`open_beneath`] does.
///
/// # Errors
/// As [`open_beneath`], and `WouldBlock`.
pub fn open_beneath_cached(root: BorrowedFd<'_>, path: &[u8], symlinks: bool) -> io::Result<File> {
    match open_with(root, path, resolve(symlinks) | ResolveFlags::CACHED) {
        Err(Errno::INVAL) => open_beneath(root, path, symlinks),
        fd => Ok(File::new(fd?)),
    }
}

/// Reads at `offset` whatever is in memory (`RWF_NOWAIT`, preadv2(2)). A short read means that the
/// next byte is not in memory or that the file ends; 0 is the end of the file.
///
/// The kernel may start to read the missing bytes. For a fragmented file it may have to wait for
/// the location of its extents. Where the file system does not support such reads, tmpfs among
/// them, this is [`pread`].
///
/// # Errors
/// Those of reading, and `WouldBlock` when the first byte is not in memory.
pub fn pread_nowait(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let read = || {
        let slices = &mut [IoSliceMut::new(&mut *buffer)];
        timed(Call::Preadv2, || rustix::io::preadv2(fd, slices, offset, ReadWriteFlags::NOWAIT))
    };
    match retry_on_intr(read) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => pread(fd, buffer, offset),
        count => Ok(count?),
    }
}

/// Fills `buffer` starting at `offset`; a short count means that the file ends there.
///
/// # Errors
/// Those of reading, and `WouldBlock` when any of the bytes is not in memory.
pub fn pread_full_nowait(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    fill(buffer, |rest, filled| pread_nowait(fd, rest, offset + filled))
}

/// Returns whether an open file or directory is on a file system without a disk: tmpfs or ramfs.
/// Pages of it that were swapped out are not considered.
pub fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstatfs(fd).map(|system| system.f_type as u32);
    kind.is_ok_and(|kind| kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// Granularity at which [`resident`] checks for pages that are still being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidencyCheck {
    /// Checks the last byte of each piece of 128 KiB, the usual read-ahead of a disk. A page in
    /// flight between two resident pages of one piece goes undetected.
    Quick,
    /// Checks each page: for use while other reads, perhaps of this file, are known to be in
    /// progress.
    Thorough,
}

impl ResidencyCheck {
    /// Bytes per byte checked.
    fn piece_bytes(self) -> u64 {
        match self {
            Self::Quick => PIECE_BYTES,
            Self::Thorough => rustix::param::page_size() as u64,
        }
    }
}

/// Returns the number of bytes, of the `len` from `offset` on, that can be sent without waiting for
/// a disk: those in the page cache up to the first gap. Nothing past the end of the file needs
/// waiting for, so an `offset` there yields `len`.
///
/// cachestat(2) tells whether a range is in the page cache, but includes pages that are still being
/// read, and reads in flight complete in any order. So single bytes are checked too, at the
/// granularity of `check`. Where the range has gaps, the result may be too low.
///
/// The cost is one system call per byte checked plus one or two; a range with gaps adds one for
/// each time that it can be halved. So a range should not be much longer than what is sent at a
/// time.
///
/// Where cachestat(2) is refused (before Linux 6.5; the file is not ours and we may not write it),
/// the bytes between two checked bytes are assumed to be like them, and a check may start to read
/// the missing bytes. Where the file system does not support non-blocking reads, a check is an
/// ordinary read.
///
/// # Errors
/// Those of reading.
pub fn resident(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    check: ResidencyCheck,
) -> io::Result<u64> {
    let len = len.min(u64::MAX - offset);
    let cached = match counted(fd, offset, len) {
        Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP) => len,
        cached => cached?,
    };
    let there = probed(fd, offset, cached, check)?;
    let is_past = there == 0 && len > 0 && offset >= status(fd)?.len;
    Ok(if is_past { len } else { there })
}

/// Returns whether the page cache holds a whole range, pages still being read included. Takes one
/// call (cachestat(2)), which starts no read. Where that is refused (before Linux 6.5; the file is
/// not ours and we may not write it) the answer is true.
pub fn seems_cached(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    counted_bytes(fd, offset, len).map_or(true, |there| there == len)
}

/// Reads a range into the page cache and waits for it, up to the end of the file or the first byte
/// that cannot be read. Returns the number of bytes that are there.
///
/// The kernel is first advised of the range (`POSIX_FADV_WILLNEED`), so that it starts large reads
/// wherever the range lies. Advice alone is not enough: its reads complete without notification,
/// and cover no more than the disk's read-ahead. So the range is then read into `scratch`, each
/// piece over the previous one. The copy costs less than a mapping, which would avoid it but
/// interrupts every thread of the process when it is unmapped.
///
/// # Errors
/// Those of reading.
pub fn warm(fd: BorrowedFd<'_>, offset: u64, len: u64, scratch: &mut [u8]) -> io::Result<u64> {
    if let Some(advised) = NonZeroU64::new(len) {
        // Advice only: any failure shows when the range is read.
        let advise = || rustix::fs::fadvise(fd, offset, Some(advised), Advice::WillNeed);
        let _ = timed(Call::Fadvise, advise);
    }
    let mut there = 0;
    while there < len {
        let wanted = scratch.len().min(usize::try_from(len - there).unwrap_or(usize::MAX));
        let room = scratch.get_mut(..wanted).unwrap_or_default();
        match pread(fd, room, offset + there)? {
            0 => break,
            count => there += count as u64,
        }
    }
    Ok(there)
}

/// Makes the kernel drop a range from the page cache, to the end of the file for a `len` of 0.
/// Returns whether nothing of it is left. Only whole pages are dropped.
///
/// Dirty pages are written first (fsync(2)), because only clean pages are dropped
/// (`POSIX_FADV_DONTNEED`, posix_fadvise(2)). The kernel keeps pages that are referenced at the
/// moment, for instance by its queues of pages written or read recently. So the advice is repeated
/// several times, until cachestat(2) counts none. A file system in memory drops nothing, and pages
/// that another program has locked or keeps reading stay too.
///
/// Where cachestat(2) is refused, the first and the last byte of the range are checked instead;
/// pages that these checks start to read are dropped too, unless they arrive later.
///
/// # Errors
/// Those of fsync(2), posix_fadvise(2) and reading.
pub fn evict(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<bool> {
    if is_in_memory(fd) {
        return Ok(false);
    }
    for pause_ms in EVICT_PAUSES_MS {
        thread::sleep(Duration::from_millis(pause_ms));
        drop_pages(fd, offset, len)?;
        let is_gone = match cached_pages(fd, offset, len) {
            Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP) => {
                seems_gone(fd, offset, len)?
            }
            pages => pages? == 0,
        };
        if is_gone {
            return Ok(true);
        }
    }
    Ok(false)
}

fn drop_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), Errno> {
    retry_on_intr(|| rustix::fs::fsync(fd))?;
    let advise = || rustix::fs::fadvise(fd, offset, NonZeroU64::new(len), Advice::DontNeed);
    timed(Call::Fadvise, advise)
}

/// Returns whether both ends of a range just dropped would block a read.
fn seems_gone(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<bool> {
    let file_len = status(fd)?.len;
    let end = if len == 0 { file_len } else { offset.saturating_add(len).min(file_len) };
    if offset >= end {
        return Ok(true);
    }
    let is_gone = !is_ready(fd, offset)? && !is_ready(fd, end - 1)?;
    drop_pages(fd, offset, len)?;
    Ok(is_gone)
}

/// Length, in bytes, of the leading part of the range that has pages in the page cache.
fn counted(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let (mut guess, mut half) = (len, len);
    while guess > 0 {
        let there = counted_bytes(fd, offset, guess)?;
        if there == guess {
            break;
        }
        // The count is known, but not which pages. Mostly they are the first; if not, it is less.
        guess = there.min(half);
        half = guess / 2;
    }
    Ok(guess)
}

/// Bytes of the range in the page cache, assuming that they are its first.
fn counted_bytes(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let page_bytes = rustix::param::page_size() as u64;
    let there = cached_pages(fd, offset, len)?.saturating_mul(page_bytes);
    Ok(there.saturating_sub(offset % page_bytes).min(len))
}

/// Pages of the range in the page cache, including those being read: cachestat(2).
fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let range = [offset, len];
    let mut counts = [0_u64; CACHESTAT_COUNTS];
    let (range_at, counts_at) = (range.as_ptr(), counts.as_mut_ptr());
    // SAFETY: the call reads two words and writes five, where two and five are, and both arrays
    // outlive it. The descriptor is borrowed, so open.
    let call =
        || unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), range_at, counts_at, NO_FLAGS) };
    match timed(Call::Cachestat, call) {
        0 => Ok(counts[0]),
        _ => Err(last_error()),
    }
}

/// Bytes of the range that can be read without waiting, found by checking its first byte and the
/// last byte of each piece.
fn probed(fd: BorrowedFd<'_>, offset: u64, len: u64, check: ResidencyCheck) -> Result<u64, Errno> {
    let (end, piece_bytes) = (offset + len, check.piece_bytes());
    let mut there = offset;
    while there < end && (there > offset || is_ready(fd, there)?) {
        let piece_end = (there - there % piece_bytes).saturating_add(piece_bytes).min(end);
        if !is_ready(fd, piece_end - 1)? {
            break;
        }
        there = piece_end;
    }
    Ok(there - offset)
}

/// Returns whether the byte at `offset`, if there is one, can be read without waiting.
fn is_ready(fd: BorrowedFd<'_>, offset: u64) -> Result<bool, Errno> {
    match pread_nowait(fd, &mut [0], offset) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// System call number of cachestat(2) on every architecture but Alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// Words written by cachestat(2): pages in the cache, dirty, under writeback, evicted, and recently
/// evicted.
const CACHESTAT_COUNTS: usize = 5;

/// File system types as reported by statfs(2).
const TMPFS_MAGIC: u32 = 0x0102_1994;
const RAMFS_MAGIC: u32 = 0x8584_58f6;

const NO_FLAGS: libc::c_uint = 0;

/// Pauses before each attempt to drop pages, milliseconds. References to pages, reads in flight
/// among them, are released without notification.
const EVICT_PAUSES_MS: [u64; 8] = [0, 1, 2, 5, 10, 50, 100, 200];

/// Bytes per check of a quick check: the usual read-ahead of a disk, and less than it reads at a
/// time.
const PIECE_BYTES: u64 = 128 << 10;
