//! Destinations of a log: a file or an output of the process, which take lines; the system's
//! logger (RFC 5424) and systemd-journald (its native protocol), which take a datagram each.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{error, fmt};

use weir_sys::file::{self, Kind};
use weir_sys::poll::{self, POLLOUT, PollFd};
use weir_sys::privileged;

use crate::config::LogTarget;

/// Facility `daemon` and severity `informational` (RFC 5424 section 6.2.1).
const PRIORITY: &str = "30";

/// Maximum wait for the writer at the end where a log has a reader, who may have stopped.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// Maximum wait for it where the log is on a disk, which may be busy but goes on. The process
/// cannot end in the middle of such a write anyway, only without those that wait behind it.
const STOP_WAIT_DISK: Duration = Duration::from_secs(10);

/// A file, or an output of the process.
pub(crate) trait Stream: Write + AsFd + Send {}

impl<T: Write + AsFd + Send> Stream for T {}

/// An open destination.
pub(crate) enum Sink {
    /// Lines as they are.
    Stream(Box<dyn Stream>),
    /// A datagram for each line, behind this head.
    Syslog { socket: UnixDatagram, host: String },
    /// A datagram for each entry; entries end with an empty line.
    Journal(UnixDatagram),
}

impl Sink {
    /// Opens a destination.
    ///
    /// # Errors
    /// Those of opening it, with its path.
    pub(super) fn open(target: &LogTarget) -> io::Result<Self> {
        Ok(match target {
            LogTarget::Stdout => Self::Stream(Box::new(io::stdout())),
            LogTarget::Stderr => Self::Stream(Box::new(io::stderr())),
            LogTarget::File(path) => {
                let file = privileged::append(path).map_err(|error| at(path, error))?;
                Self::Stream(Box::new(file))
            }
            LogTarget::Syslog(path) => {
                Self::Syslog { socket: connect(path)?, host: weir_sys::process::host_name() }
            }
            LogTarget::Journal(path) => Self::Journal(connect(path)?),
        })
    }

    /// Checks whether a destination can be opened, without creating it.
    ///
    /// # Errors
    /// As of [`Sink::open`].
    pub(super) fn check(target: &LogTarget) -> io::Result<()> {
        let LogTarget::File(path) = target else { return Self::open(target).map(drop) };
        let checked = match path.metadata() {
            Ok(about) if about.file_type().is_fifo() => file::may_write(path),
            Ok(_) => return Self::open(target).map(drop),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                file::may_create_in(folder.unwrap_or(Path::new(".")))
            }
            Err(error) => Err(error),
        };
        checked.map_err(|error| at(path, error))
    }

    /// Returns whether a short write does not wait for its reader now.
    pub(super) fn has_room(&self) -> bool {
        let fd = match self {
            Self::Stream(stream) => stream.as_fd(),
            Self::Syslog { socket, .. } | Self::Journal(socket) => socket.as_fd(),
        };
        let mut entry = [PollFd { fd: fd.as_raw_fd(), events: POLLOUT, revents: 0 }];
        // An error or an end is found by the write, which does not wait then.
        poll::poll(&mut entry, Some(Duration::ZERO)).is_err() || entry[0].revents != 0
    }

    /// Returns how long the end of a server waits for what is still to be written.
    pub(super) fn stop_wait(&self) -> Duration {
        match self {
            Self::Stream(stream) if is_on_disk(stream.as_fd()) => STOP_WAIT_DISK,
            _ => STOP_WAIT,
        }
    }

    /// Returns whether it is a socket, which may have to be connected again.
    pub(super) fn is_socket(&self) -> bool {
        !matches!(self, Self::Stream(_))
    }

    /// Writes a batch of lines or entries. Returns how many were not written, and why.
    pub(super) fn write(&mut self, batch: &[u8], count: u64, time: &str) -> (u64, io::Result<()>) {
        match self {
            Self::Stream(stream) => {
                let written = stream.write_all(batch).and_then(|()| stream.flush());
                (if written.is_err() { count } else { 0 }, written)
            }
            Self::Syslog { socket, host } => {
                let head =
                    format!("<{PRIORITY}>1 {time} {host} weir {} access - ", std::process::id());
                let lines = batch.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
                send_all(socket, lines.map(|line| [head.as_bytes(), line].concat()))
            }
            Self::Journal(socket) => send_all(socket, entries(batch).map(<[u8]>::to_vec)),
        }
    }
}

fn is_on_disk(fd: BorrowedFd<'_>) -> bool {
    file::status(fd).is_ok_and(|status| status.kind == Kind::File)
}

/// Returns whether a log is a pipe, whose reader sees its end once nobody has it open.
pub(super) fn is_pipe(target: &LogTarget) -> bool {
    let LogTarget::File(path) = target else { return false };
    path.metadata().is_ok_and(|about| about.file_type().is_fifo())
}

/// Splits a batch into its entries, each with the line feed of its last line.
fn entries(batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        let end = memchr::memmem::find(rest, b"\n\n")?;
        let (entry, behind) = rest.split_at_checked(end + 1)?;
        rest = behind.get(1..).unwrap_or_default();
        Some(entry)
    })
}

/// Sends datagrams. One that fails does not keep back the others.
fn send_all(
    socket: &UnixDatagram,
    datagrams: impl Iterator<Item = Vec<u8>>,
) -> (u64, io::Result<()>) {
    let (mut lost, mut outcome) = (0, Ok(()));
    for datagram in datagrams {
        if let Err(error) = socket.send(&datagram) {
            lost += 1;
            outcome = Err(error);
        }
    }
    (lost, outcome)
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path).map_err(|error| at(path, error))?;
    Ok(socket)
}

/// Returns whether an error of [`Sink::open`] says that this process, or the machine, has too
/// little of something.
pub(super) fn is_lack(error: &io::Error) -> bool {
    let failed = error.get_ref().and_then(|inner| inner.downcast_ref::<Failed>());
    let errno = failed.map_or(error, |failed| &failed.error).raw_os_error();
    errno.is_some_and(file::is_lack)
}

/// An error of a path, which says so.
#[derive(Debug)]
struct Failed {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.error)
    }
}

impl error::Error for Failed {}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::other(Failed { path: path.into(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_ends_with_an_empty_line() {
        let all: Vec<_> = entries(b"A=1\nB=2\n\nA=3\n\n").collect();
        assert_eq!(all, [&b"A=1\nB=2\n"[..], b"A=3\n"]);
        assert_eq!(entries(b"").count(), 0);
    }
}
