//! Files: opening below a root, status, positional reads, directories, sendfile.
//!
//! Every path is resolved by `openat2(2)` with `RESOLVE_BENEATH`, so that no name, link or
//! concurrent rename leads out of the root. Which files may be served is the caller's decision: it
//! checks [`Status::kind`] before it reads.

mod cached;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, accessat};
use rustix::io::{Errno, retry_on_intr};

pub use self::cached::{
    ResidencyCheck, evict, is_in_memory, open_beneath_cached, pread_full_nowait, pread_nowait,
    resident, seems_cached, warm,
};
use crate::profile::{Call, timed};

/// An open file or directory. Its close is timed like every other call.
#[derive(Debug)]
pub struct File(ManuallyDrop<OwnedFd>);

impl File {
    fn new(fd: OwnedFd) -> File {
        File(ManuallyDrop::new(fd))
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is dropped here only, and `self` is not used again.
        timed(Call::Close, || unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// File type of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file: the only kind that may be read.
    File,
    /// A directory: the only kind that may be listed.
    Directory,
    /// A symbolic link; an open descriptor never has this kind.
    Symlink,
    /// A FIFO, socket or device, none of which is ever read.
    Other,
}

/// Status of a file. Two equal values, taken with time between them, are the same version of the
/// same file: every write advances `ctime_ns`, which cannot be set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// File type.
    pub kind: Kind,
    /// Device number of the file system.
    pub dev: u64,
    /// Inode number within the file system.
    pub ino: u64,
    /// Length, bytes.
    pub len: u64,
    /// Number of hard links; 0 for a file that was removed or replaced.
    pub nlink: u64,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID of the owner.
    pub gid: u32,
    /// Permission bits (inode(7)), at most `0o7777`. Write access granted by an ACL (acl(5)) shows
    /// in the group's bits.
    pub mode: u32,
    /// Last modification, nanoseconds since the epoch; the owner may set it at will.
    pub mtime_ns: i128,
    /// Last change of contents or attributes, nanoseconds since the epoch.
    pub ctime_ns: i128,
}

/// Opens the root directory, below which all other paths are opened. Follows links in `path`.
pub fn open_root(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || timed(Call::Open, || rustix::fs::open(path, flags, Mode::empty()));
    Ok(File::new(retry_on_intr(open)?))
}

/// Opens `path`, relative to `root`, for reading; `.` is the root itself.
///
/// Without `symlinks`, a link anywhere in the path fails with `ELOOP`. With it, links are followed
/// as long as they stay below the root; an absolute link, or one that climbs out, fails with
/// `EXDEV`. Opening neither waits for a FIFO nor takes over a terminal, but may return either:
/// check the kind.
pub fn open_beneath(root: BorrowedFd<'_>, path: &[u8], symlinks: bool) -> io::Result<File> {
    let open = || open_with(root, path, resolve(symlinks));
    let mut fd = open();
    // A rename elsewhere raced with a `..` in a link: openat2(2) asks for a retry.
    for _ in 0..AGAIN_RETRIES {
        if !matches!(fd, Err(Errno::AGAIN)) {
            break;
        }
        fd = open();
    }
    Ok(File::new(fd?))
}

/// Checks that this process's user may write to a file that is there.
///
/// # Errors
/// EACCES, EROFS: access(2).
pub fn may_write(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Checks that this process's user may create files in a folder.
///
/// # Errors
/// ENOENT, ENOTDIR: there is no such folder; EACCES, EROFS: access(2).
pub fn may_create_in(folder: &Path) -> io::Result<()> {
    // What is below it is looked for, which a file does not have.
    let folder = folder.join(".");
    Ok(accessat(CWD, &folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
}

/// Checks that this process's user may open what is below a folder, and if `lists`, read the names
/// there.
///
/// # Errors
/// ENOENT, ENOTDIR: there is no such folder; EACCES: access(2).
pub fn may_enter(folder: &Path, lists: bool) -> io::Result<()> {
    let names = if lists { Access::READ_OK } else { Access::empty() };
    // A file has nothing below it, and is refused.
    let folder = folder.join(".");
    Ok(accessat(CWD, &folder, names | Access::EXEC_OK, AtFlags::EACCESS)?)
}

/// Returns whether an errno says that this process, or the machine, has too little of something to
/// open a file (open(2)), which another process, or a later attempt, may have.
pub fn is_lack(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM)
}

/// Returns whether an error of [`open_beneath`] means that no readable file has that name, as
/// opposed to a local problem (descriptors, memory, the disk) that may pass.
pub fn is_absent(error: &io::Error) -> bool {
    use Errno as E;
    const ABSENT: [Errno; 9] = [
        E::NOENT,
        E::NOTDIR,
        E::LOOP,
        E::XDEV,
        E::ACCESS,
        E::PERM,
        E::NAMETOOLONG,
        E::NXIO,
        E::NODEV,
    ];
    Errno::from_io_error(error).is_some_and(|errno| ABSENT.contains(&errno))
}

/// Returns the status of an open file: `fstat(2)`.
pub fn status(fd: BorrowedFd<'_>) -> io::Result<Status> {
    Ok(from_stat(&timed(Call::Fstat, || rustix::fs::fstat(fd))?))
}

/// Returns the status of a name in an open directory; for a link, its own and not its target's.
pub fn status_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Status> {
    let stat = || rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    Ok(from_stat(&timed(Call::Fstat, stat)?))
}

/// Reads at `offset` without moving any file position; 0 means end of file.
pub fn pread(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let read = || timed(Call::Pread, || rustix::io::pread(fd, &mut *buffer, offset));
    Ok(retry_on_intr(read)?)
}

/// Fills `buffer` starting at `offset`; a short count means that the file ends there.
pub fn pread_full(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    fill(buffer, |rest, filled| pread(fd, rest, offset + filled))
}

/// Repeats a read, which is told how many bytes are there, until the buffer is full or it gives
/// none.
fn fill(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read(rest, filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Passes to `each` the next names in an open directory, except `.` and `..`, in the kernel's
/// order: the yield of one `getdents64(2)`, a few hundred names. Returns whether there may be more.
pub fn read_names(directory: BorrowedFd<'_>, mut each: impl FnMut(&[u8])) -> io::Result<bool> {
    let mut buffer = Vec::with_capacity(NAMES_BUFFER_BYTES);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = next_entry(&mut entries) {
        let entry = entry?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => each(name),
        }
        if entries.is_buffer_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sends up to `count` bytes of `file`, starting at `offset`, to a socket without copying them
/// through the process: `sendfile(2)`. 0 means end of file; a full socket is `WouldBlock`.
///
/// The socket holds references to the page cache: if a file is modified in place while its bytes
/// wait in the socket, the modified bytes are sent.
pub fn sendfile(
    out: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    count: usize,
) -> io::Result<usize> {
    let mut position = offset;
    let mut send = || rustix::fs::sendfile(out, file, Some(&mut position), count);
    Ok(retry_on_intr(|| timed(Call::Sendfile, &mut send))?)
}

fn resolve(symlinks: bool) -> ResolveFlags {
    let links = if symlinks { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
    ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | links
}

fn open_with(root: BorrowedFd<'_>, path: &[u8], resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let open = || rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
    retry_on_intr(|| timed(Call::Open, open))
}

fn next_entry<'a>(
    entries: &'a mut RawDir<'_, BorrowedFd<'_>>,
) -> Option<rustix::io::Result<rustix::fs::RawDirEntry<'a>>> {
    if entries.is_buffer_empty() {
        timed(Call::Getdents, || entries.next())
    } else {
        entries.next()
    }
}

#[allow(clippy::unnecessary_cast, clippy::cast_lossless)] // the fields' types differ by machine
fn from_stat(stat: &rustix::fs::Stat) -> Status {
    let kind = match FileType::from_raw_mode(stat.st_mode as _) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    };
    Status {
        kind,
        dev: stat.st_dev as u64,
        ino: stat.st_ino as u64,
        nlink: stat.st_nlink as u64,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mode: stat.st_mode as u32 & 0o7777,
        len: stat.st_size as u64,
        mtime_ns: nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        ctime_ns: nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

/// Number of retries of `openat2` after `EAGAIN`.
const AGAIN_RETRIES: usize = 3;

/// Space for some 200 names: reading them takes about as long as examining 20 files.
const NAMES_BUFFER_BYTES: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A scratch directory, removed on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("weir-sys-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("root/sub")).unwrap();
            fs::write(path.join("secret"), b"secret").unwrap();
            fs::write(path.join("root/a"), b"alpha").unwrap();
            Scratch(path)
        }

        fn root(&self) -> File {
            open_root(&self.0.join("root")).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn absent(root: &File, path: &[u8], symlinks: bool) -> bool {
        open_beneath(root.as_fd(), path, symlinks).is_err_and(|error| is_absent(&error))
    }

    #[test]
    fn opens_below_the_root_only() {
        let scratch = Scratch::new("beneath");
        let root = scratch.root();
        symlink("../secret", scratch.0.join("root/out")).unwrap();
        symlink("..", scratch.0.join("root/up")).unwrap();
        symlink("a", scratch.0.join("root/in")).unwrap();
        assert!(open_beneath(root.as_fd(), b"a", false).is_ok());
        assert!(open_beneath(root.as_fd(), b"in", true).is_ok());
        assert!(absent(&root, b"in", false));
        let outside: [&[u8]; 5] = [b"../secret", b"/etc/passwd", b"out", b"up/secret", b"missing"];
        for path in outside {
            assert!(absent(&root, path, true), "{path:?}");
            assert!(absent(&root, path, false), "{path:?}");
        }
        assert!(!is_absent(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(is_lack(libc::EMFILE) && !is_lack(libc::EACCES) && !is_lack(libc::ENOENT));
        assert!(!is_absent(&io::Error::other("not from the kernel")));
    }

    #[test]
    fn status_tells_the_kinds_apart() {
        let scratch = Scratch::new("status");
        let root = scratch.root();
        symlink("a", scratch.0.join("root/link")).unwrap();
        let fifo = scratch.0.join("root/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let kind = |path: &[u8]| {
            status(open_beneath(root.as_fd(), path, false).unwrap().as_fd()).unwrap().kind
        };
        assert_eq!(kind(b"a"), Kind::File);
        assert_eq!(kind(b"sub"), Kind::Directory);
        assert_eq!(kind(b"fifo"), Kind::Other);
        assert_eq!(status_at(root.as_fd(), b"link").unwrap().kind, Kind::Symlink);
        assert_eq!(status_at(root.as_fd(), b"a").unwrap().len, 5);
    }

    #[test]
    fn reads_stop_at_the_end_of_the_file() {
        let scratch = Scratch::new("pread");
        let file = open_beneath(scratch.root().as_fd(), b"a", false).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(pread_full(file.as_fd(), &mut buffer, 1).unwrap(), 4);
        assert_eq!(&buffer[..4], b"lpha");
        assert_eq!(pread(file.as_fd(), &mut buffer, 5).unwrap(), 0);
    }

    #[test]
    fn names_come_in_parts_and_each_once() {
        let scratch = Scratch::new("names");
        let written: Vec<_> = (0..3000).map(|index| format!("{index:060}")).collect();
        for name in &written {
            fs::write(scratch.0.join("root/sub").join(name), b"").unwrap();
        }
        let directory = open_beneath(scratch.root().as_fd(), b"sub", false).unwrap();
        let (mut names, mut parts, mut more) = (Vec::new(), 0, true);
        while more {
            let before = names.len();
            more = read_names(directory.as_fd(), |name| names.push(name.to_vec())).unwrap();
            assert!(names.len() - before <= NAMES_BUFFER_BYTES / 80);
            parts += 1;
        }
        names.sort_unstable();
        assert!(names.iter().map(Vec::as_slice).eq(written.iter().map(String::as_bytes)));
        assert!(parts > 20, "{parts}");
    }

    #[test]
    fn sendfile_sends_from_the_offset() {
        let scratch = Scratch::new("sendfile");
        let file = open_beneath(scratch.root().as_fd(), b"a", false).unwrap();
        let mut out = fs::File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(scratch.0.join("out"))
            .unwrap();
        out.write_all(b">").unwrap();
        assert_eq!(sendfile(out.as_fd(), file.as_fd(), 2, 100).unwrap(), 3);
        assert_eq!(sendfile(out.as_fd(), file.as_fd(), 5, 100).unwrap(), 0);
        let mut text = String::new();
        out.seek(SeekFrom::Start(0)).unwrap();
        out.read_to_string(&mut text).unwrap();
        assert_eq!(text, ">pha");
    }
}
