//! Queries of the kernel's caches, on the file system of the temporary directory. If that is in
//! memory nothing can be cold, and the tests say that they skip.
//!
//! The kernel may drop cached data at any time, and checking an uncached page may start to read it:
//! a fast disk then delivers it during the check. So each check is repeated from the start until it
//! succeeds once ([`is_settled`]).

// Lints take a helper of a test for no test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{Advice, fadvise};
use weir_sys::file::{self, File, ResidencyCheck};

/// A scratch directory, removed on drop.
struct Scratch {
    path: PathBuf,
    root: File,
}

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("weir-sys-cached-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let root = file::open_root(&path).unwrap();
        Scratch { path, root }
    }

    /// Creates a file whose bytes are on the disk and depend on their position.
    fn written(&self, name: &str, len: usize) -> File {
        let bytes: Vec<u8> = (0..len).map(byte_at).collect();
        fs::write(self.path.join(name), bytes).unwrap();
        fs::File::open(self.path.join(name)).unwrap().sync_all().unwrap();
        self.open(name).unwrap()
    }

    fn open(&self, name: &str) -> io::Result<File> {
        file::open_beneath(self.root.as_fd(), name.as_bytes(), false)
    }

    fn open_cached(&self, name: &str) -> io::Result<File> {
        file::open_beneath_cached(self.root.as_fd(), name.as_bytes(), false)
    }

    /// Returns whether nothing here can be cold, and says so.
    fn is_in_memory(&self) -> bool {
        let is_so = file::is_in_memory(self.root.as_fd());
        if is_so {
            eprintln!("SKIPPED: {} is in memory", self.path.display());
        }
        is_so
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn byte_at(place: usize) -> u8 {
    (place % 251) as u8
}

/// Makes the kernel drop a file's pages from `offset` on; returns whether it has.
fn forgotten(file: &File, offset: u64) -> bool {
    file::evict(file.as_fd(), offset, 0).unwrap()
}

/// Returns whether files can be cold here; says so if not.
fn can_be_cold(scratch: &Scratch, file: &File) -> bool {
    if scratch.is_in_memory() {
        return false;
    }
    let can = forgotten(file, 0);
    if !can {
        eprintln!("SKIPPED: this file system forgets no file when asked to");
    }
    can
}

/// Creates a scratch directory with a file `a` that can be cold; `None` where none can be.
fn cold(name: &str, len: usize) -> Option<(Scratch, File)> {
    let scratch = Scratch::new(name);
    let file = scratch.written("a", len);
    can_be_cold(&scratch, &file).then_some((scratch, file))
}

fn resident(fd: BorrowedFd<'_>, offset: u64, len: u64) -> u64 {
    file::resident(fd, offset, len, ResidencyCheck::Quick).unwrap()
}

fn warm(file: &File, offset: u64, len: u64) -> u64 {
    file::warm(file.as_fd(), offset, len, &mut [0; 10_000]).unwrap()
}

/// Returns whether a condition that the kernel may undo at any moment holds in one of many tries.
fn is_settled(mut is_so: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| is_so())
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

const LEN: usize = 1_000_001;
const LEN_U64: u64 = LEN as u64;

/// At a page boundary for any page size, and past what is cached together for a small file.
const MIDDLE: u64 = 512 << 10;

#[test]
fn a_name_never_asked_for_is_cold_until_somebody_waits_for_it() {
    let scratch = Scratch::new("names");
    scratch.written("here", 1);
    assert!(is_settled(|| scratch.open("here").is_ok() && scratch.open_cached("here").is_ok()));
    if scratch.is_in_memory() {
        return;
    }
    let is_absent = |file: io::Result<File>| file.is_err_and(|error| file::is_absent(&error));
    assert!(would_block(&scratch.open_cached("missing")));
    assert!(is_settled(|| {
        is_absent(scratch.open("missing")) && is_absent(scratch.open_cached("missing"))
    }));
}

#[test]
fn a_cached_lookup_keeps_to_the_rules_of_the_root() {
    let scratch = Scratch::new("rules");
    scratch.written("a", 1);
    std::os::unix::fs::symlink("a", scratch.path.join("link")).unwrap();
    let cached = |path: &[u8], links| file::open_beneath_cached(scratch.root.as_fd(), path, links);
    assert!(cached(b"link", false).is_err());
    // A non-blocking lookup follows no link whose access time must be updated first (relatime,
    // mount(8)); a blocking lookup updates it.
    let waits = || file::open_beneath(scratch.root.as_fd(), b"link", true);
    assert!(is_settled(|| waits().is_ok() && cached(b"link", true).is_ok()));
    assert!(cached(b".", false).is_ok());
    std::os::unix::fs::symlink("../up", scratch.path.join("climbs")).unwrap();
    for path in [&b".."[..], b"/", b"/etc/passwd", b"climbs", b"a\0b"] {
        assert!(cached(path, true).is_err(), "{path:?}");
    }
}

#[test]
fn a_name_that_the_kernel_dropped_is_cold() {
    let scratch = Scratch::new("dropped");
    fs::create_dir(scratch.path.join("directory")).unwrap();
    scratch.written("directory/a", 1);
    if scratch.is_in_memory() {
        return;
    }
    // Names used since the last time are spared once.
    let drop_names = |_| fs::write("/proc/sys/vm/drop_caches", "2").is_ok();
    let is_cold = |_| would_block(&scratch.open_cached("directory/a"));
    if !(0..10).map(drop_names).take_while(|&dropped| dropped).any(is_cold) {
        return eprintln!("SKIPPED: may not have the kernel drop names, or it keeps them");
    }
    let name = "directory/a";
    assert!(is_settled(|| scratch.open(name).is_ok() && scratch.open_cached(name).is_ok()));
}

fn is_in_place(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(place, &byte)| byte == byte_at(place))
}

#[test]
fn a_read_gives_what_is_in_memory_and_waits_for_nothing() {
    let scratch = Scratch::new("reads");
    let file = scratch.written("a", LEN);
    let mut buffer = vec![0; LEN + 9];
    assert!(is_settled(|| {
        warm(&file, 0, LEN_U64);
        file::pread_full_nowait(file.as_fd(), &mut buffer, 0).is_ok_and(|count| count == LEN)
    }));
    assert!(is_in_place(&buffer[..LEN]));
    assert_eq!(file::pread_nowait(file.as_fd(), &mut buffer, LEN_U64).unwrap(), 0);
    if !can_be_cold(&scratch, &file) {
        return;
    }
    assert!(is_settled(|| {
        forgotten(&file, 0) && would_block(&file::pread_nowait(file.as_fd(), &mut buffer, 0))
    }));
    assert!(is_settled(|| {
        buffer.fill(0);
        assert_eq!(warm(&file, 0, LEN_U64), LEN_U64);
        let is_cut = forgotten(&file, MIDDLE);
        let count = file::pread_nowait(file.as_fd(), &mut buffer, 0).unwrap_or(0);
        assert!(is_in_place(&buffer[..count]));
        is_cut && (1..LEN).contains(&count)
    }));
}

#[test]
fn a_full_read_of_a_file_with_a_gap_is_none() {
    let Some((_scratch, file)) = cold("gap", LEN) else { return };
    let mut buffer = vec![0; LEN];
    assert!(is_settled(|| {
        warm(&file, 0, LEN_U64);
        let is_cut = forgotten(&file, MIDDLE);
        is_cut && would_block(&file::pread_full_nowait(file.as_fd(), &mut buffer, 0))
    }));
}

/// Checks `resident` on a file that is dropped from the cache, warmed, and dropped in part.
fn check_residence(file: &File, resident: impl Fn(u64, u64) -> u64) {
    assert!(is_settled(|| forgotten(file, 0) && resident(0, LEN_U64) == 0));
    let all = [(0, LEN_U64), (12_345, 54_321), (LEN_U64 - 1, 1)];
    assert!(is_settled(|| {
        assert_eq!(warm(file, 0, 2 * LEN_U64), LEN_U64);
        all.iter().all(|&(offset, len)| resident(offset, len) == len)
    }));
    for offset in [0, 12_345] {
        assert!(is_settled(|| {
            warm(file, 0, LEN_U64);
            let is_cut = forgotten(file, MIDDLE);
            is_cut && (1..=MIDDLE - offset).contains(&resident(offset, LEN_U64 - offset))
        }));
    }
    assert!(is_settled(|| {
        warm(file, 0, LEN_U64);
        forgotten(file, MIDDLE) && resident(MIDDLE, 100_000) == 0
    }));
}

#[test]
fn residency_is_reported_up_to_the_first_gap() {
    let Some((_scratch, file)) = cold("resident", LEN) else { return };
    check_residence(&file, |offset, len| resident(file.as_fd(), offset, len));
    assert!(is_settled(|| {
        warm(&file, 0, LEN_U64);
        let is_cut = file::evict(file.as_fd(), 0, MIDDLE).unwrap();
        let rest = LEN_U64 - MIDDLE;
        is_cut
            && resident(file.as_fd(), 0, LEN_U64) == 0
            && resident(file.as_fd(), MIDDLE, rest) == rest
    }));
}

#[test]
fn a_gap_in_the_middle_ends_what_is_resident() {
    let Some((_scratch, file)) = cold("holes", LEN) else { return };
    for gap in [256 << 10, MIDDLE, 768 << 10] {
        assert!(is_settled(|| {
            warm(&file, 0, LEN_U64);
            let is_cut = file::evict(file.as_fd(), gap, 128 << 10).unwrap();
            is_cut && (1..=gap).contains(&resident(file.as_fd(), 0, LEN_U64))
        }));
    }
}

#[test]
fn an_evicted_page_is_gone_and_is_read_again() {
    let scratch = Scratch::new("evicted");
    let file = scratch.written("a", LEN);
    if scratch.is_in_memory() {
        assert!(!file::evict(file.as_fd(), 0, 0).unwrap());
        return;
    }
    if !can_be_cold(&scratch, &file) {
        return;
    }
    let mut dirty = fs::File::options().write(true).open(scratch.path.join("a")).unwrap();
    dirty.write_all(&[byte_at(0)]).unwrap();
    assert!(file::evict(file.as_fd(), 0, 0).unwrap());
    assert!(!file::seems_cached(file.as_fd(), 0, 1));
    let mut buffer = vec![0; LEN];
    assert_eq!(file::pread_full(file.as_fd(), &mut buffer, 0).unwrap(), LEN);
    assert!(is_in_place(&buffer));
}

#[test]
fn a_page_being_read_is_hardly_ever_taken_for_resident() {
    let Some((_scratch, file)) = cold("flight", 8 * LEN) else { return };
    let mut buffer = vec![0; 8 * LEN];
    let (mut looks, mut wrong) = (0, 0);
    for _ in 0..20 {
        forgotten(&file, 0);
        fadvise(&file, 0, None, Advice::WillNeed).unwrap();
        // The kernel reads as much at a time as it likes, and may stop anywhere.
        for _ in 0..20 {
            let there = file::resident(file.as_fd(), 0, 8 * LEN_U64, ResidencyCheck::Thorough)
                .unwrap() as usize;
            let read = file::pread_nowait(file.as_fd(), &mut buffer[..there], 0).unwrap_or(0);
            looks += 1;
            wrong += usize::from(read < there);
        }
    }
    assert!(wrong * 20 <= looks, "{wrong} of {looks}");
}

#[test]
fn at_the_end_of_a_file_there_is_nothing_to_wait_for() {
    let scratch = Scratch::new("end");
    let file = scratch.written("a", 5000);
    forgotten(&file, 0);
    assert_eq!(resident(file.as_fd(), 5000, 77), 77);
    assert_eq!(resident(file.as_fd(), 1 << 40, 77), 77);
    assert_eq!(resident(file.as_fd(), u64::MAX >> 1, u64::MAX), 1 << 63);
    assert_eq!(resident(file.as_fd(), 0, 0), 0);
    assert_eq!(warm(&file, 5000, 77), 0);
    assert_eq!(warm(&file, 1000, 77_000), 4000);
}

#[test]
fn a_file_held_in_memory_is_resident() {
    let path = PathBuf::from(format!("/dev/shm/weir-sys-cached-{}", std::process::id()));
    let Ok(root) = file::open_root("/dev/shm".as_ref()) else {
        return eprintln!("SKIPPED: there is no /dev/shm");
    };
    assert_eq!(fs::write(&path, [7; 5000]).map_err(|error| error.kind()), Ok(()));
    let name = path.file_name().unwrap().as_encoded_bytes();
    let file = file::open_beneath(root.as_fd(), name, false).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(file::is_in_memory(file.as_fd()) && file::is_in_memory(root.as_fd()));
    assert_eq!(resident(file.as_fd(), 0, 5000), 5000);
    let mut buffer = [0; 9];
    assert_eq!(file::pread_nowait(file.as_fd(), &mut buffer, 4995).unwrap(), 5);
}

#[test]
fn where_cachestat_is_refused_the_ends_of_each_piece_are_looked_at() {
    let Some((_scratch, file)) = cold("refused", LEN) else { return };
    if as_nobody(|| ()).is_none() {
        return eprintln!("SKIPPED: only root can be nobody");
    }
    check_residence(&file, |offset, len| {
        as_nobody(|| resident(file.as_fd(), offset, len)).unwrap()
    });
}

/// Runs `act` with the rights of user nobody, in the calling thread only.
fn as_nobody<T>(act: impl FnOnce() -> T) -> Option<T> {
    const NOBODY: libc::uid_t = 65_534;
    let before = rustix::process::geteuid().as_raw();
    set_effective_user(NOBODY).then(|| {
        let done = act();
        assert!(set_effective_user(before));
        done
    })
}

fn set_effective_user(user: libc::uid_t) -> bool {
    const KEEP: libc::uid_t = libc::uid_t::MAX;
    // SAFETY: the raw call takes three numbers, and unlike the C library's is for one thread only.
    unsafe { libc::syscall(libc::SYS_setresuid, KEEP, user, KEEP) == 0 }
}

#[test]
fn a_range_with_a_gap_does_not_seem_cached() {
    let scratch = Scratch::new("seems");
    let file = scratch.written("gap", LEN);
    let seems_cached = |offset, len| file::seems_cached(file.as_fd(), offset, len);
    assert!(is_settled(|| warm(&file, 0, LEN_U64) == LEN_U64 && seems_cached(0, LEN_U64)));
    if !can_be_cold(&scratch, &file) {
        return;
    }
    assert!(is_settled(|| {
        warm(&file, 0, 1);
        forgotten(&file, MIDDLE);
        seems_cached(0, 1) && !seems_cached(0, LEN_U64) && !seems_cached(MIDDLE, 5000)
    }));
}
