//! Files without waiting for a disk: what the kernel's caches hold, how much of a file is in them,
//! and how to get the rest there.
//!
//! An answer from here is true when it is given. The kernel may evict anything a moment later, and
//! whoever relies on an answer then waits once, as he would have without asking. Nothing here knows
//! who waits instead, or in which thread.

use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::{File, open_beneath, open_with, pread, resolve, status};
use crate::profile::{Call, timed};

/// Opens as [`open_beneath`] does, but only if every name on the way is in the kernel's memory:
/// otherwise `WouldBlock` (`RESOLVE_CACHED`, openat2(2)). That nothing has a name is known without
/// a disk only where the file system remembers it: tmpfs and NFS do not.
///
/// A rename elsewhere that races with a `..` is `WouldBlock` too, and so are a link that climbs out
/// of the root and any name on a file system that must ask a server: after an [`open_beneath`] of
/// the same path this one may still fail. On a kernel before 5.12, which does not know the flag, it
/// waits as [`open_beneath`] does.
///
/// # Errors
/// As [`open_beneath`], and `WouldBlock`.
pub fn open_beneath_cached(root: BorrowedFd<'_>, path: &[u8], symlinks: bool) -> io::Result<File> {
    match open_with(root, path, resolve(symlinks) | ResolveFlags::CACHED) {
        Err(Errno::INVAL) => open_beneath(root, path, symlinks),
        fd => Ok(File::new(fd?)),
    }
}

/// Reads at `offset` what is in memory (`RWF_NOWAIT`, preadv2(2)): fewer bytes than asked for when
/// the next one is not there or the file ends, 0 at its end.
///
/// The kernel may begin to read what is missing, and for a file in many pieces may have to wait for
/// where that is. Where the file system knows no such reads, tmpfs among them, this is [`pread`].
///
/// # Errors
/// Those of reading, and `WouldBlock` when not even the first byte is in memory.
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

/// Fills `buffer` from `offset` on; fewer bytes than asked for mean that the file ends there.
///
/// # Errors
/// Those of reading, and `WouldBlock` when any of it is not in memory.
pub fn pread_full_nowait(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match pread_nowait(fd, rest, offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Whether the file system of an open file or directory has no disk: tmpfs or ramfs. What of it was
/// swapped out is none of its own doing.
pub fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstatfs(fd).map(|system| system.f_type as u32);
    kind.is_ok_and(|kind| kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// How closely [`resident`] looks for pages that are still being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// At the last byte of each piece of 128 KiB, the usual read-ahead of a disk. What remains
    /// untold is a page in flight between two of one piece that are there.
    Quick,
    /// At each page: for when somebody is known to read files, perhaps this one.
    Close,
}

impl Look {
    /// The bytes of which one is looked at.
    fn piece_bytes(self) -> u64 {
        match self {
            Self::Quick => PIECE_BYTES,
            Self::Close => rustix::param::page_size() as u64,
        }
    }
}

/// How many of the `len` bytes from `offset` on can be sent without waiting for a disk: those that
/// are in the page cache, up to the first gap. At the end of the file there is nothing to wait for,
/// and so from there on all are.
///
/// cachestat(2) says whether a range is in the page cache, but counts pages that are still being
/// read; and reads in flight end in any order. So single bytes are looked at too, as closely as
/// `look` says. Where there are gaps, it may say fewer than there are.
///
/// It takes one system call for each byte and one or two more; if the range has gaps, one for each
/// time that it can be halved. So a range should not be much longer than what is sent at a time.
///
/// Where cachestat(2) is refused (before Linux 6.5; the file is not ours and we may not write it),
/// what lies between two bytes that were looked at is taken to be like them, and a look may begin
/// to read what is missing. Where the file system knows no reads that do not wait, it is a read.
///
/// # Errors
/// Those of reading.
pub fn resident(fd: BorrowedFd<'_>, offset: u64, len: u64, look: Look) -> io::Result<u64> {
    let len = len.min(u64::MAX - offset);
    let cached = match counted(fd, offset, len) {
        Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP) => len,
        cached => cached?,
    };
    let there = probed(fd, offset, cached, look)?;
    let is_past = there == 0 && len > 0 && offset >= status(fd)?.len;
    Ok(if is_past { len } else { there })
}

/// Whether the page cache has all of a range, what is still being read included: one call
/// (cachestat(2)), which begins no read. Where that is refused (before Linux 6.5; the file is not
/// ours and we may not write it) it is said to be.
pub fn seems_cached(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    counted_bytes(fd, offset, len).map_or(true, |there| there == len)
}

/// Brings a range into the page cache, and waits for it: up to the end of the file, or to where it
/// cannot be read. Returns how many bytes are there.
///
/// The kernel is told the range first (`POSIX_FADV_WILLNEED`), so that it begins with large reads
/// wherever the range lies. That alone is not enough: nothing tells when they have ended, and no
/// more than the disk's read-ahead is begun. So the range is then read into `scratch`, each piece
/// over the last. The copy costs less than what would avoid it: a mapping, whose end interrupts
/// every thread of the process.
///
/// # Errors
/// Those of reading.
pub fn warm(fd: BorrowedFd<'_>, offset: u64, len: u64, scratch: &mut [u8]) -> io::Result<u64> {
    if let Some(advised) = NonZeroU64::new(len) {
        // Advice only: what comes of it shows when the range is read.
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

/// Has the kernel drop a range from the page cache, to the end of the file for a `len` of 0.
/// Returns whether nothing of it is left there. It is whole pages: of others nothing is dropped.
///
/// What is dirty is written first (fsync(2)): only clean pages are dropped (`POSIX_FADV_DONTNEED`,
/// posix_fadvise(2)). The kernel keeps those that somebody holds just then, such as the queues of
/// pages that were written or read a moment ago. So it is told again, some times, until
/// cachestat(2) counts none. A file system in memory drops nothing, and what another program has
/// locked or keeps reading stays too.
///
/// Where cachestat(2) is refused, a look at the first byte of the range and at the last tells; what
/// it begins to read is dropped too, unless it comes later.
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

/// Whether neither end of a range just dropped can be read without waiting.
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

/// How many bytes of the range, from its start on, have pages in the page cache.
fn counted(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let (mut guess, mut half) = (len, len);
    while guess > 0 {
        let there = counted_bytes(fd, offset, guess)?;
        if there == guess {
            break;
        }
        // How many are there is told, but not which. Mostly they are the first; if not, it is less.
        guess = there.min(half);
        half = guess / 2;
    }
    Ok(guess)
}

/// How many bytes of the range are in the page cache, were they its first.
fn counted_bytes(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let page_bytes = rustix::param::page_size() as u64;
    let there = cached_pages(fd, offset, len)?.saturating_mul(page_bytes);
    Ok(there.saturating_sub(offset % page_bytes).min(len))
}

/// How many pages of the range are in the page cache, those being read included: cachestat(2).
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

/// How many bytes of the range can be read without waiting, by a look at its first and at the last
/// of each piece.
fn probed(fd: BorrowedFd<'_>, offset: u64, len: u64, look: Look) -> Result<u64, Errno> {
    let (end, piece_bytes) = (offset + len, look.piece_bytes());
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

/// Whether the byte at `offset` can be read without waiting, if there is one.
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

/// The number of cachestat(2) on every machine Linux runs on but Alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// Words in what cachestat(2) writes: pages in the cache, dirty, being written, evicted, and
/// evicted lately.
const CACHESTAT_COUNTS: usize = 5;

/// What statfs(2) calls them.
const TMPFS_MAGIC: u32 = 0x0102_1994;
const RAMFS_MAGIC: u32 = 0x8584_58f6;

const NO_FLAGS: libc::c_uint = 0;

/// Before each time that the kernel is told to drop pages: what holds them, reads in flight among
/// it, lets go of them without telling anybody.
const EVICT_PAUSES_MS: [u64; 8] = [0, 1, 2, 5, 10, 50, 100, 200];

/// What a quick look looks at once: the usual read-ahead of a disk, and less than it reads at a
/// time.
const PIECE_BYTES: u64 = 128 << 10;
