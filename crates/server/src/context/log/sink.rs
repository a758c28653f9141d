//! Destinations of a log: a file or an output of the process, which take lines; the system's
//! logger (RFC 5424) and systemd-journald (its native protocol), which take a datagram each.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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

/// Most that a write to a pipe puts there in one piece, whoever else writes to it, bytes (PIPE_BUF,
/// pipe(7)).
const PIECE_BYTES_MAX: usize = 4096;

/// An open destination.
pub(crate) enum Sink {
    /// Lines as they are.
    Stream(Lines<File>),
    /// A datagram for each line, with the name of this host in its head.
    Syslog { logger: Logger, host: String },
    /// A datagram for each entry; entries end with an empty line.
    Journal(Logger),
}

impl Sink {
    /// Opens a destination.
    ///
    /// # Errors
    /// Those of opening it, with its path.
    pub(super) fn open(target: &LogTarget) -> io::Result<Self> {
        Ok(match target {
            LogTarget::Stdout => Self::Stream(Lines::of(copy(&io::stdout())?)),
            LogTarget::Stderr => Self::Stream(Lines::of(copy(&io::stderr())?)),
            LogTarget::File(path) => {
                let file = privileged::append(path).map_err(|error| at(path, error))?;
                Self::Stream(Lines::of(file))
            }
            LogTarget::Syslog(path) => Self::Syslog {
                logger: Logger::connect(path)?,
                host: weir_sys::process::host_name(),
            },
            LogTarget::Journal(path) => Self::Journal(Logger::connect(path)?),
        })
    }

    /// Opens a destination again; an output of the process is what it was.
    ///
    /// # Errors
    /// As of [`Sink::open`]; the log goes on where it was.
    pub(super) fn reopen(&mut self, target: &LogTarget) -> io::Result<()> {
        if !is_output(target) {
            *self = Self::open(target)?;
        }
        Ok(())
    }

    /// Tries whether a destination could be opened again.
    ///
    /// # Errors
    /// As of [`Sink::open`].
    pub(super) fn try_to_reopen(target: &LogTarget) -> io::Result<()> {
        if is_output(target) { Ok(()) } else { Self::open(target).map(drop) }
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
            Self::Stream(lines) => lines.out.as_fd(),
            Self::Syslog { logger, .. } | Self::Journal(logger) => logger.socket.as_fd(),
        };
        let mut entry = [PollFd { fd: fd.as_raw_fd(), events: POLLOUT, revents: 0 }];
        // An error or an end is found by the write, which does not wait then.
        poll::poll(&mut entry, Some(Duration::ZERO)).is_err() || entry[0].revents != 0
    }

    /// Returns how long the end of a server waits for what is still to be written.
    pub(super) fn stop_wait(&self) -> Duration {
        match self {
            Self::Stream(lines) if lines.is_on_disk => STOP_WAIT_DISK,
            _ => STOP_WAIT,
        }
    }

    /// Writes a batch of lines or entries. Returns how many were not written, and why.
    pub(super) fn write(&mut self, batch: &[u8], count: u64, time: &str) -> (u64, io::Result<()>) {
        match self {
            Self::Stream(lines) => {
                let (written, outcome) = lines.write(batch);
                (if outcome.is_err() { count.saturating_sub(written) } else { 0 }, outcome)
            }
            Self::Syslog { logger, host } => {
                let head =
                    format!("<{PRIORITY}>1 {time} {host} weir {} access - ", std::process::id());
                let lines = batch.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
                logger.send_all(lines.map(|line| [head.as_bytes(), line].concat()))
            }
            Self::Journal(logger) => logger.send_all(entries(batch).map(<[u8]>::to_vec)),
        }
    }
}

/// A file, or an output of the process, that lines are written to.
pub(crate) struct Lines<W> {
    out: W,
    is_on_disk: bool,
    /// True if an error has cut the line written last.
    is_torn: bool,
}

impl Lines<File> {
    fn of(out: impl Into<File>) -> Self {
        let out: File = out.into();
        let is_on_disk = file::status(out.as_fd()).is_ok_and(|status| status.kind == Kind::File);
        Self { out, is_on_disk, is_torn: false }
    }
}

impl<W: Write> Lines<W> {
    /// Writes lines, each of which ends with a line feed. Returns how many were written whole, and
    /// why the others were not.
    pub(super) fn write(&mut self, lines: &[u8]) -> (u64, io::Result<()>) {
        if self.is_torn
            && let Err(error) = self.out.write_all(b"\n")
        {
            return (0, Err(error));
        }
        let mut written = 0;
        let outcome = loop {
            let run = self.next_run(lines.get(written..).unwrap_or_default());
            if run.is_empty() {
                break Ok(());
            }
            match self.out.write(run) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => written += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let done = lines.get(..written).unwrap_or(lines);
        self.is_torn = done.last().is_some_and(|&byte| byte != b'\n');
        (memchr::memchr_iter(b'\n', done).count() as u64, outcome)
    }

    /// Returns the lines to be written at once. Several processes may write to what is no file: of
    /// theirs and these each stays whole, unless it is longer than a piece.
    fn next_run<'l>(&self, lines: &'l [u8]) -> &'l [u8] {
        if self.is_on_disk {
            return lines;
        }
        let piece = lines.get(..PIECE_BYTES_MAX).unwrap_or(lines);
        let end = memchr::memrchr(b'\n', piece).or_else(|| memchr::memchr(b'\n', lines));
        end.and_then(|end| lines.get(..=end)).unwrap_or(lines)
    }
}

/// Returns whether a destination is an output that the process was started with.
fn is_output(target: &LogTarget) -> bool {
    matches!(target, LogTarget::Stdout | LogTarget::Stderr)
}

/// Returns an output of the process without the standard library's buffer, which may keep back a
/// part of what is written.
fn copy(output: &impl AsFd) -> io::Result<OwnedFd> {
    output.as_fd().try_clone_to_owned()
}

/// A connection to one of the system's loggers.
pub(crate) struct Logger {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Logger {
    fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path).map_err(|error| at(path, error))?;
        Ok(Self { socket, path: path.into() })
    }

    /// Sends a datagram; to a logger that was started anew, once more.
    pub(super) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        let mut sent = self.socket.send(datagram);
        if sent.as_ref().is_err_and(is_gone) && self.socket.connect(&self.path).is_ok() {
            sent = self.socket.send(datagram);
        }
        sent.map(drop)
    }

    /// Sends datagrams. One that fails does not keep back the others.
    fn send_all(&self, datagrams: impl Iterator<Item = Vec<u8>>) -> (u64, io::Result<()>) {
        let (mut lost, mut outcome) = (0, Ok(()));
        for datagram in datagrams {
            if let Err(error) = self.send(&datagram) {
                lost += 1;
                outcome = Err(error);
            }
        }
        (lost, outcome)
    }
}

/// Returns whether an error says that the socket at the other end is there no longer.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, NotConnected};
    matches!(error.kind(), ConnectionRefused | NotConnected | BrokenPipe)
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

    /// An output that takes so many bytes, fails once and takes all from then on.
    #[derive(Default)]
    struct Output {
        /// Bytes until the failure; `None` for none.
        until_failure: Option<usize>,
        writes: Vec<Vec<u8>>,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.until_failure == Some(0) {
                self.until_failure = None;
                return Err(io::ErrorKind::StorageFull.into());
            }
            let taken = self.until_failure.map_or(bytes.len(), |left| left.min(bytes.len()));
            self.until_failure = self.until_failure.map(|left| left - taken);
            self.writes.push(bytes[..taken].to_vec());
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(is_on_disk: bool, until_failure: Option<usize>) -> Lines<Output> {
        let out = Output { until_failure, ..Output::default() };
        Lines { out, is_on_disk, is_torn: false }
    }

    /// Line of so many bytes.
    fn line(length: usize) -> Vec<u8> {
        [&vec![b'a'; length - 1][..], b"\n"].concat()
    }

    #[test]
    fn a_write_to_what_several_write_to_is_a_piece_of_whole_lines() {
        let sizes = [100, 3995, 2, 4096, 1, 5000, 4095, 1, 300];
        let batch = sizes.map(line).concat();
        let of = |is_on_disk| {
            let mut lines = lines(is_on_disk, None);
            let (written, outcome) = lines.write(&batch);
            assert!(outcome.is_ok());
            assert_eq!(written, 9);
            assert_eq!(lines.out.writes.concat(), batch);
            lines.out.writes
        };
        let writes = of(false);
        assert!(writes.iter().all(|write| write.ends_with(b"\n")));
        let lengths: Vec<_> = writes.iter().map(Vec::len).collect();
        assert_eq!(lengths, [4095, 2, 4096, 1, 5000, 4096, 300]);
        assert_eq!(of(true).len(), 1);
    }

    #[test]
    fn the_line_that_an_error_has_cut_ends_before_the_next() {
        let batch = b"one\ntwo\nthree\n";
        for (taken, whole, log) in [
            (0, 0, "four\n"),
            (4, 1, "one\nfour\n"),
            (6, 1, "one\ntw\nfour\n"),
            (13, 2, "one\ntwo\nthree\nfour\n"),
        ] {
            let mut lines = lines(true, Some(taken));
            let (written, outcome) = lines.write(batch);
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(written, whole, "{taken} bytes");
            assert!(matches!(lines.write(b"four\n"), (1, Ok(()))));
            assert_eq!(String::from_utf8(lines.out.writes.concat()).unwrap(), log);
        }
    }

    #[test]
    fn a_cut_line_stays_so_while_nothing_can_be_written() {
        let mut lines = lines(true, Some(2));
        assert!(lines.write(b"one\n").1.is_err());
        lines.out.until_failure = Some(0);
        assert!(matches!(lines.write(b"two\n"), (0, Err(_))));
        assert!(matches!(lines.write(b"three\n"), (1, Ok(()))));
        assert_eq!(lines.out.writes.concat(), b"on\nthree\n");
    }
}
