//! The files that the process with the privileges opens for others. A user that owns a directory on
//! the way could put a link to any file there, so that the file that was opened is looked at, and
//! not its name: it is a file like any other, has no second name, and is where it was at the start.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};

/// Flags of every open: none waits, and none makes a terminal this process's.
const NO_WAIT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Mode of a log that is created, less the process's umask.
const MODE: u32 = 0o666;

/// A file to be read.
#[derive(Debug)]
pub(super) struct Readable {
    path: PathBuf,
    /// Directories below which it is, links resolved: that of its path, and that of the file that
    /// was there at the start, if it was a link.
    pub within: Vec<PathBuf>,
}

impl Readable {
    /// Notes where a file is now.
    pub(super) fn new(path: PathBuf) -> Self {
        let real = path.canonicalize().ok();
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        let of_real = real.as_deref().and_then(Path::parent).map(Path::to_owned);
        let mut within: Vec<_> = parent.into_iter().chain(of_real).collect();
        within.dedup();
        Self { path, within }
    }

    /// Returns whether this is its path.
    pub(super) fn is_at(&self, path: &[u8]) -> bool {
        self.path.as_os_str().as_bytes() == path
    }

    /// Opens it for reading.
    ///
    /// # Errors
    /// EPERM: it is elsewhere now, has other names, or is no file; those of open(2).
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = NO_WAIT.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(&self.path)?;
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let is_within = self.within.iter().any(|dir| real.starts_with(dir));
        if is_within { plain(file) } else { Err(refused()) }
    }
}

/// A log.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Directory, links resolved, and the same one held open: its name may mean another one later.
    pub dir_path: PathBuf,
    dir: OwnedFd,
    name: OsString,
}

impl Log {
    /// Notes where a log is now; `None` if that is no file, or there is no directory for it.
    pub(super) fn new(path: &Path) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let real = match path.canonicalize() {
            Ok(real) if real.is_file() => real,
            Ok(_) => return None,
            Err(_) => path.parent()?.canonicalize().ok()?.join(path.file_name()?),
        };
        let (dir_path, name) = (real.parent()?.to_owned(), real.file_name()?.to_owned());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&dir_path, flags, Mode::empty()).ok()?;
        Some(Self { path, dir_path, dir, name })
    }

    /// Returns whether this is its path.
    pub(super) fn is_at(&self, path: &[u8]) -> bool {
        self.path.as_os_str().as_bytes() == path
    }

    /// Opens it for writing behind its end, and creates it if it is not there.
    ///
    /// # Errors
    /// EPERM: it has other names, or is no file; ELOOP: it is a link; others of open(2).
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | NO_WAIT;
        let file = openat(self.dir.as_fd(), &self.name, flags, Mode::from_raw_mode(MODE))?;
        plain(file.into())
    }
}

/// Returns a file that has one name and is no device, pipe or the like.
fn plain(file: File) -> io::Result<OwnedFd> {
    let status = file.metadata()?;
    if status.is_file() && status.nlink() == 1 { Ok(file.into()) } else { Err(refused()) }
}

fn refused() -> io::Error {
    io::Error::from_raw_os_error(libc::EPERM)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns a directory of a test's own, links resolved.
    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weir-places-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("own")).unwrap();
        dir.canonicalize().unwrap()
    }

    #[test]
    fn a_file_is_read_where_it_was_and_nowhere_else() {
        let dir = folder("read");
        let (path, secret) = (dir.join("own/key"), dir.join("secret"));
        fs::create_dir(dir.join("archive")).unwrap();
        fs::write(dir.join("archive/key1"), "1").unwrap();
        fs::write(dir.join("archive/key2"), "2").unwrap();
        fs::write(&secret, "secret").unwrap();
        symlink("../archive/key1", &path).unwrap();
        let file = Readable::new(path.clone());
        assert!(file.is_at(path.as_os_str().as_bytes()) && !file.is_at(b"/etc/shadow"));
        file.open().unwrap();
        // Renewed, as certbot does it.
        let replace = |target: &Path| {
            fs::remove_file(&path).unwrap();
            symlink(target, &path).unwrap();
        };
        replace(Path::new("../archive/key2"));
        file.open().unwrap();
        for elsewhere in [&secret, Path::new("/dev/null")] {
            replace(elsewhere);
            assert_eq!(file.open().unwrap_err().raw_os_error(), Some(libc::EPERM));
        }
        fs::remove_file(&path).unwrap();
        fs::hard_link(&secret, &path).unwrap();
        assert_eq!(file.open().unwrap_err().raw_os_error(), Some(libc::EPERM));
        fs::remove_file(&path).unwrap();
        assert_eq!(file.open().unwrap_err().raw_os_error(), Some(libc::ENOENT));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_log_is_neither_a_link_nor_another_files_name() {
        let dir = folder("log");
        let (path, secret) = (dir.join("own/access.log"), dir.join("secret"));
        fs::write(&secret, "secret").unwrap();
        let log = Log::new(&path).unwrap();
        log.open().unwrap();
        assert!(path.is_file());
        fs::remove_file(&path).unwrap();
        symlink(&secret, &path).unwrap();
        assert_eq!(log.open().unwrap_err().raw_os_error(), Some(libc::ELOOP));
        fs::remove_file(&path).unwrap();
        fs::hard_link(&secret, &path).unwrap();
        assert_eq!(log.open().unwrap_err().raw_os_error(), Some(libc::EPERM));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(log.open().is_err());
        // A directory put in place of the one that was there is another.
        fs::rename(dir.join("own"), dir.join("moved")).unwrap();
        fs::remove_dir(dir.join("moved/access.log")).unwrap();
        symlink(&dir, dir.join("own")).unwrap();
        log.open().unwrap();
        assert!(dir.join("moved/access.log").is_file() && !dir.join("access.log").exists());
        assert!(Log::new(Path::new("/dev/null")).is_none());
        assert!(Log::new(Path::new("/no-such-directory/log")).is_none());
        fs::remove_dir_all(dir).unwrap();
    }
}
