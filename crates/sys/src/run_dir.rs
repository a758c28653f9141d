//! The directory in which running servers leave a file each, named `PID.stat`, and those files:
//! creating, finding and removing them. What is in a file is not known here.
//!
//! The directory is `$WEIR_RUN_DIR` if that is set. Otherwise it is the first of `/run/weir`
//! (root's, or the user's own, as a unit's `RuntimeDirectory=` makes it), `$XDG_RUNTIME_DIR/weir`,
//! `/dev/shm/weir-UID` and `/tmp/weir-UID` that can be used and is in memory (tmpfs), or else the
//! first that can be used: where a file's pages are written to a disk, a store to one of them may
//! wait for that disk.
//!
//! A server holds a lock (flock(2)) on its file for as long as it, or a process that it forked,
//! lives. So a file that can be locked is of a server that is gone, whatever its number means now.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// Environment variable that names the directory.
pub const VARIABLE: &str = "WEIR_RUN_DIR";

const SUFFIX: &str = ".stat";

/// A server's file. Removed when dropped by the process that created it.
#[derive(Debug)]
pub struct RunFile {
    file: OwnedFd,
    path: PathBuf,
    /// Path of the file before it is published.
    hidden: PathBuf,
    owner: u32,
}

impl RunFile {
    /// Creates an empty file for the server with this process id, which nobody finds until it is
    /// published. Removes the files of servers that are gone.
    ///
    /// # Errors
    /// A sentence that names the directory.
    pub fn create(pid: u32) -> Result<Self, String> {
        Self::create_in(&usable()?, pid)
    }

    fn create_in(dir: &Path, pid: u32) -> Result<Self, String> {
        let _ = servers_in(dir);
        let hidden = dir.join(format!(".{pid}.new"));
        let blame = |error: Errno| format!("{}: {}", hidden.display(), io::Error::from(error));
        // Of a server that had the same number.
        let _ = std::fs::remove_file(&hidden);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::open(&hidden, flags | OFlags::NOFOLLOW, mode).map_err(blame)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(blame)?;
        let path = path_in(dir, pid);
        Ok(Self { file, path, hidden, owner: std::process::id() })
    }

    /// Makes the file readable for everybody, and gives it its name.
    ///
    /// # Errors
    /// EROFS, ENOSPC: fchmod(2), rename(2).
    pub fn publish(&self) -> io::Result<()> {
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        rustix::fs::fchmod(&self.file, mode)?;
        std::fs::rename(&self.hidden, &self.path)
    }
}

impl AsFd for RunFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            let _ = std::fs::remove_file(&self.hidden);
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// State of the server of a file.
#[derive(Debug)]
pub enum Server {
    /// It runs; its file, open for reading.
    Running(OwnedFd),
    /// It has ended.
    Gone,
}

/// Opens the file of the server with this process id.
///
/// # Errors
/// ENOENT when there is none; EACCES, ELOOP: open(2).
pub fn open(pid: u32) -> io::Result<Server> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for dir in places(pid) {
        match open_path(&path_in(&dir, pid)) {
            Ok(server) => return Ok(server),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the process ids of the running servers that have a file in this user's or root's
/// directories, lowest first. Removes the files of servers that are gone, where that is allowed.
pub fn servers() -> Vec<u32> {
    let uid = rustix::process::geteuid().as_raw();
    let mut dirs = trusted(candidates(uid), uid);
    if std::env::var_os(VARIABLE).is_none() {
        dirs.extend(trusted(own(0).into(), 0));
    }
    let mut pids: Vec<u32> = dirs.iter().flat_map(|dir| servers_in(dir)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn path_in(dir: &Path, pid: u32) -> PathBuf {
    dir.join(format!("{pid}{SUFFIX}"))
}

fn servers_in(dir: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_suffix(SUFFIX)?.parse::<u32>().ok()
    });
    pids.filter(|&pid| is_running(&path_in(dir, pid))).collect()
}

/// Returns whether the server of a file runs; removes the file if it does not.
fn is_running(path: &Path) -> bool {
    match open_path(path) {
        Ok(Server::Running(_)) => true,
        Ok(Server::Gone) => {
            let _ = std::fs::remove_file(path);
            false
        }
        Err(_) => false,
    }
}

fn open_path(path: &Path) -> io::Result<Server> {
    // A fifo would make a blocking open wait.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Server::Gone),
        Err(Errno::WOULDBLOCK) => Ok(Server::Running(file)),
        Err(error) => Err(error.into()),
    }
}

/// Returns the directories in which the file of a process can be: those of this user, and of the
/// process's.
fn places(pid: u32) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let uid = rustix::process::geteuid().as_raw();
    let mut places = trusted(candidates(uid), uid);
    if let Ok(status) = std::fs::metadata(format!("/proc/{pid}")) {
        let uid = status.uid();
        let [first, second] = own(uid);
        let its = vec![format!("/run/user/{uid}/weir").into(), first, second];
        places.extend(trusted(its, uid));
    }
    places
}

/// Returns the directories that nobody else can have made for this user's: where everybody may
/// write, another's directory could tell of servers that are none, and have them signalled.
fn trusted(mut dirs: Vec<PathBuf>, owner: u32) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let is_open =
        |dir: &Path| std::fs::metadata(dir).is_ok_and(|status| status.mode() & 0o002 != 0);
    dirs.retain(|dir| {
        std::fs::symlink_metadata(dir).is_ok_and(|status| {
            let is_its = [0, owner].contains(&status.uid()) || !dir.parent().is_some_and(is_open);
            status.is_dir() && is_its && status.mode() & 0o022 == 0
        })
    });
    dirs
}

/// Returns the directories that a user's server may choose from, the best first.
fn candidates(uid: u32) -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os(VARIABLE).filter(|dir| !dir.is_empty()) {
        return vec![dir.into()];
    }
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let session = session.filter(|dir| dir.is_absolute()).map(|dir| dir.join("weir"));
    std::iter::once(PathBuf::from("/run/weir")).chain(session).chain(own(uid)).collect()
}

fn own(uid: u32) -> [PathBuf; 2] {
    ["/dev/shm", "/tmp"].map(|dir| Path::new(dir).join(format!("weir-{uid}")))
}

/// Returns the directory for this user's servers, created if it was not there.
fn usable() -> Result<PathBuf, String> {
    let mut dirs = candidates(rustix::process::geteuid().as_raw());
    dirs.sort_by_key(|dir| !dir.parent().is_some_and(is_in_memory));
    let mut refusals = Vec::new();
    for dir in dirs {
        match make(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) => refusals.push(format!("{}: {error}", dir.display())),
        }
    }
    Err(refusals.join("; "))
}

/// Creates a directory unless it is there. It must be of this user, or of root, and only its owner
/// may write to it.
fn make(dir: &Path) -> io::Result<()> {
    let uid = rustix::process::geteuid();
    let mode = if uid.is_root() { 0o755 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let status = rustix::fs::fstat(rustix::fs::open(dir, flags, Mode::empty())?)?;
    if ![0, uid.as_raw()].contains(&status.st_uid) {
        return Err(io::Error::other("it belongs to another user"));
    }
    if status.st_mode & 0o022 != 0 {
        return Err(io::Error::other("others than its owner may write to it"));
    }
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}

fn is_in_memory(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|status| status.f_type == libc::TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory of a test's own.
    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weir-run-dir-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        make(&dir).unwrap();
        dir
    }

    #[test]
    fn a_file_is_found_while_its_server_runs_and_removed_with_it() {
        let dir = scratch("life");
        let file = RunFile::create_in(&dir, 7).unwrap();
        assert!(servers_in(&dir).is_empty(), "it is not published");
        file.publish().unwrap();
        assert_eq!(servers_in(&dir), [7]);
        assert!(matches!(open_path(&path_in(&dir, 7)), Ok(Server::Running(_))));
        drop(file);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn what_a_dead_server_left_is_removed_and_what_is_no_file_is_left_alone() {
        let dir = scratch("dead");
        std::fs::write(path_in(&dir, 8), "left").unwrap();
        std::fs::write(dir.join(".8.new"), "left").unwrap();
        std::fs::write(dir.join("other"), "kept").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path_in(&dir, 9)).unwrap();
        assert!(servers_in(&dir).is_empty());
        let file = RunFile::create_in(&dir, 8).unwrap();
        file.publish().unwrap();
        assert_eq!(servers_in(&dir), [8]);
        assert!(open_path(&path_in(&dir, 9)).is_err() && dir.join("other").exists());
        drop(file);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let dir = scratch("open");
        let uid = rustix::process::geteuid().as_raw();
        let is_trusted = |owner| !trusted(vec![dir.clone()], owner).is_empty();
        assert!(is_trusted(uid));
        // As if another user had made it, in a directory for everybody.
        if uid != 0 {
            assert!(!is_trusted(uid + 1));
        } else {
            std::os::unix::fs::chown(&dir, Some(4711), None).unwrap();
            assert!(!is_trusted(0) && is_trusted(4711));
            std::os::unix::fs::chown(&dir, Some(0), None).unwrap();
        }
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make(&dir).is_err() && !is_trusted(uid));
        assert!(make(Path::new("/proc/weir")).is_err());
        std::fs::remove_dir(&dir).unwrap();
    }
}
