//! What takes a privilege that the process has given up with its user
//! ([`User`](crate::user::User)): a process beside it keeps the privilege, and nothing else. It
//! attaches filters of SYNs, makes the programs of such filters, reads again the files of the
//! configuration that were read before the user changed, and opens the logs.
//!
//! Everything here tries by itself first, and asks the other process where there is one and the
//! kernel refuses. Threads, forked processes and successors ask by the same channel: each question
//! has a way of its own for the answer, so that they need not know of each other.
//!
//! Whoever asks may have been taken over by an intruder. So a question is of a fixed form
//! (`message.rs`), names nothing that was not named before the user changed (`places.rs`), and has
//! one answer, for which the other process waits for nobody (`helper.rs`).

mod helper;
mod message;
mod places;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt;

use crate::bpf::program_id;
use crate::poll::{self, POLLIN, PollFd};
use crate::syn_filter::random;
use crate::syn_filter::tokens::{Rules, TokenFilter};
use crate::{fork, user};
pub use helper::{Duties, EXIT_STATUS};
use message::{FDS_MAX, Message, Request};

/// Time for which a question may wait for room, and for its answer where a loop waits, which
/// attaches a filter.
const LOOP_WAIT: Duration = Duration::from_secs(1);

/// Time for which others wait for their answer.
const WAIT: Duration = Duration::from_secs(10);

/// What a process has done by its own privileges, and its way to the other process.
struct State {
    channel: Option<Arc<OwnedFd>>,
    /// Absolute paths of the files that were read.
    files: Vec<PathBuf>,
    /// Programs of filters that were made.
    programs: Vec<u32>,
}

static STATE: Mutex<State> =
    Mutex::new(State { channel: None, files: Vec::new(), programs: Vec::new() });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn other() -> Option<Arc<OwnedFd>> {
    state().channel.clone()
}

/// Starts the other process, with the privileges that this one has now. Must be called while this
/// process has one thread.
///
/// # Errors
/// Those of socketpair(2) and [`fork::fork`]; a sentence if it does not come up.
pub fn start(duties: Duties) -> io::Result<()> {
    let (ours, theirs) = fork::channel()?;
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Send, Some(LOOP_WAIT))?;
    let (files, programs) = {
        let state = state();
        (state.files.clone(), state.programs.clone())
    };
    fork::detached(theirs, helper::Work { duties, files, programs }, helper::run)?;
    ask(&ours, &Request::Hello, &[])?;
    state().channel = Some(Arc::new(ours));
    Ok(())
}

/// Goes on with the channel of a predecessor ([`channel`]), which has the user of this process.
///
/// # Errors
/// Those of prctl(2): none.
pub fn adopt(channel: OwnedFd) -> io::Result<()> {
    user::lock_down()?;
    state().channel = Some(Arc::new(channel));
    Ok(())
}

/// Returns the channel, for a successor.
pub fn channel() -> Option<Arc<OwnedFd>> {
    other()
}

/// Returns whether there is another process to ask.
pub fn is_there() -> bool {
    state().channel.is_some()
}

/// Asks nothing more. The other process ends when nobody can ask it.
pub fn close() {
    state().channel = None;
}

/// Opens a file of the configuration for reading.
///
/// # Errors
/// Those of open(2).
pub fn open(path: &Path) -> io::Result<File> {
    match (File::open(path), other()) {
        (Ok(file), None) => {
            note_file(path);
            Ok(file)
        }
        (Err(error), Some(channel)) if error.kind() == io::ErrorKind::PermissionDenied => {
            ask_for_file(&channel, path, |path| Request::Open(path), error)
        }
        (opened, _) => opened,
    }
}

/// Reads a file of the configuration.
///
/// # Errors
/// Those of open(2) and read(2).
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Reads a file of the configuration that is text.
///
/// # Errors
/// As of [`read`]; InvalidData: it is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut content = String::new();
    open(path)?.read_to_string(&mut content)?;
    Ok(content)
}

/// Opens a log, to write behind what it has, and creates it if it is not there. Does not wait for
/// who reads a pipe; a write to one may wait.
///
/// # Errors
/// Those of open(2); a sentence if it is a pipe that no process reads, or a socket.
pub fn append(path: &Path) -> io::Result<File> {
    match (append_at_once(path), other()) {
        (Err(error), Some(channel)) if error.kind() == io::ErrorKind::PermissionDenied => {
            ask_for_file(&channel, path, |path| Request::Append(path), error)
        }
        (Err(error), _) if error.raw_os_error() == Some(libc::ENXIO) => {
            let kind = path.metadata().map(|about| about.file_type());
            Err(match kind {
                Ok(kind) if kind.is_fifo() => io::Error::other("no process reads this pipe"),
                Ok(kind) if kind.is_socket() => io::Error::other("this is a socket, and no file"),
                _ => error,
            })
        }
        (opened, _) => opened,
    }
}

fn append_at_once(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Makes a filter that takes tokens. The other process makes it by the rules that it was given.
///
/// # Errors
/// Those of [`TokenFilter::new`]; EAGAIN: it has made too many.
pub fn token_filter(rules: Rules) -> io::Result<TokenFilter> {
    let Some(channel) = other() else {
        let filter = TokenFilter::new(rules)?;
        // Without its number it is only not attached by the other process.
        state().programs.extend(program_id(filter.program()));
        return Ok(filter);
    };
    let parts = ask(&channel, &Request::Tokens, &[])?;
    TokenFilter::of_parts(rules, parts)
}

/// Attaches a filter that takes tokens to a listening socket.
///
/// # Errors
/// Those of [`TokenFilter::attach`].
pub fn attach(filter: &TokenFilter, listener: BorrowedFd<'_>) -> io::Result<()> {
    by_itself_or(filter.attach(listener), Request::Attach, &[filter.program(), listener])
}

/// Drops a random share of the SYNs of a listening socket.
///
/// # Errors
/// Those of [`random::attach`].
pub fn attach_random(listener: BorrowedFd<'_>, share: f64) -> io::Result<()> {
    by_itself_or(random::attach(listener, share), Request::Random(share.min(1.0)), &[listener])
}

/// Returns what came of a call, or of asking for it where the kernel has refused.
fn by_itself_or(
    outcome: io::Result<()>,
    request: Request<'_>,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    match (outcome, other()) {
        (Err(error), Some(channel)) if error.kind() == io::ErrorKind::PermissionDenied => {
            ask(&channel, &request, fds).map(drop)
        }
        (outcome, _) => outcome,
    }
}

fn note_file(path: &Path) {
    let Ok(path) = std::path::absolute(path) else { return };
    let files = &mut state().files;
    if !files.contains(&path) {
        files.push(path);
    }
}

/// Asks for a file that this process may not open for the reason `refused`.
fn ask_for_file(
    channel: &OwnedFd,
    path: &Path,
    request: fn(&[u8]) -> Request<'_>,
    refused: io::Error,
) -> io::Result<File> {
    let path = std::path::absolute(path)?;
    match ask(channel, &request(path.as_os_str().as_bytes()), &[]) {
        Ok(fds) => fds.into_iter().next().map(File::from).ok_or_else(unanswered),
        // It is no file of its: then there is nothing to add.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(refused),
        Err(error) => Err(error),
    }
}

fn unanswered() -> io::Error {
    io::Error::other("the process that keeps the privileges has ended, or is another version's")
}

/// Asks the other process, and waits for its answer.
fn ask(
    channel: &OwnedFd,
    request: &Request<'_>,
    fds: &[BorrowedFd<'_>],
) -> io::Result<Vec<OwnedFd>> {
    let (ours, theirs) = fork::channel()?;
    let with_answer: Vec<_> = std::iter::once(theirs.as_fd()).chain(fds.iter().copied()).collect();
    message::send(channel.as_fd(), &request.to_bytes(), &with_answer, true)
        .map_err(|_| unanswered())?;
    // If the question is dropped, there is an end to hear.
    drop(theirs);
    let wait = match request {
        Request::Attach | Request::Random(_) => LOOP_WAIT,
        _ => WAIT,
    };
    let mut entry = [PollFd { fd: ours.as_raw_fd(), events: POLLIN, revents: 0 }];
    poll::poll(&mut entry, Some(wait))?;
    if entry[0].revents == 0 {
        return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
    }
    let Some(Message { bytes, fds }) = message::receive(ours.as_fd())? else {
        return Err(unanswered());
    };
    match message::errno(&bytes).ok_or_else(unanswered)? {
        0 => Ok(fds),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

const _: () = assert!(FDS_MAX >= TokenFilter::PARTS_MAX);
