//! Child processes: fork(2), waitpid(2), a message channel between parent and child, and a pipe
//! that tells of the end of all who have it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions, WaitStatus};

use crate::process::{Usage, threads};
use crate::ring;

/// Forks this process and returns the child's ID; returns 0 in the child.
///
/// Allowed only while this process has one thread: a child has only the calling thread, and locks
/// held by other threads, the allocator's among them, would stay locked for ever. Also allowed only
/// while there is no ring: its memory would be missing in the child.
///
/// # Errors
/// EAGAIN past a limit on processes, ENOMEM: fork(2). EDEADLK when there are other threads, EBUSY
/// when there is a [`ring`].
pub fn fork() -> io::Result<u32> {
    if ring::exists() {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    if threads()? != 1 {
        return Err(io::Error::from_raw_os_error(libc::EDEADLK));
    }
    // SAFETY: there is one thread, as just seen, and only it could have started another, or made a
    // ring, since. So no lock is held by anybody who is not copied, all memory is copied, none is
    // shared, and the copy may do whatever this may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        id => Ok(id.unsigned_abs()),
    }
}

/// Starts a process that is no child of this one and belongs to no terminal, and runs `run` in it.
/// Of all descriptors it has `channel` alone, and /dev/null in place of the standard ones. Allowed
/// where [`fork`] is.
///
/// # Errors
/// Those of [`fork`]; a sentence if the second fork fails.
pub fn detached<T>(channel: OwnedFd, data: T, run: fn(OwnedFd, T) -> i32) -> io::Result<()> {
    let child = fork()?;
    if child != 0 {
        return match wait_child(child)? {
            ExitStatus::Status(0) => Ok(()),
            _ => Err(io::Error::other("a process cannot be started")),
        };
    }
    let code = match fork() {
        Ok(0) => leave(&channel).map_or(1, |()| unwound(|| run(channel, data))),
        Ok(_) => 0,
        Err(_) => 1,
    };
    // SAFETY: it ends the process, in which nothing is left to be dropped that matters.
    unsafe { libc::_exit(code) }
}

/// Returns the exit status of a process that runs this, whether it panics or not.
fn unwound(run: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(101)
}

/// Leaves the session, and closes all descriptors but one. Their owners are not reached any more:
/// the process ends without returning to them.
fn leave(kept: &OwnedFd) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    let kept = kept.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, kept.saturating_sub(1)), (kept.max(2) + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: as the caller says, nobody uses what these numbers stand for any more.
            let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) };
            crate::check(closed as libc::c_int)?;
        }
    }
    Ok(())
}

/// Exit of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Exited with this status.
    Status(i32),
    /// Killed by this signal.
    Signal(i32),
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedChild {
    /// Its ID.
    pub id: u32,
    /// The way in which it ended.
    pub end: ExitStatus,
    /// Usage of all its threads, and of its own children that it has waited for.
    pub usage: Usage,
}

/// Reaps a child that has ended, if there is one (wait4(2)).
pub fn reap_child() -> Option<EndedChild> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the kernel fills in both during the call.
    let id = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    let id = u32::try_from(id).ok().filter(|id| *id > 0)?;
    let end = if libc::WIFSIGNALED(status) {
        ExitStatus::Signal(libc::WTERMSIG(status))
    } else {
        ExitStatus::Status(libc::WEXITSTATUS(status))
    };
    // SAFETY: it is filled in, and all zeroes would be a valid value of it.
    let usage = unsafe { usage.assume_init() };
    Some(EndedChild { id, end, usage: Usage::of(&usage) })
}

/// Waits for a child to end.
///
/// # Errors
/// ECHILD when there is no such child: waitpid(2).
pub fn wait_child(id: u32) -> io::Result<ExitStatus> {
    // Pid 0 would match any child.
    let pid = pid(id).ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))?;
    let wait = || rustix::process::waitpid(Some(pid), WaitOptions::empty());
    match rustix::io::retry_on_intr(wait)? {
        Some((_, status)) => Ok(end(status)),
        None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

fn end(status: WaitStatus) -> ExitStatus {
    match status.terminating_signal() {
        Some(signal) => ExitStatus::Signal(signal),
        None => ExitStatus::Status(status.exit_status().unwrap_or(0)),
    }
}

/// Creates a bidirectional channel that preserves message boundaries and order (SOCK_SEQPACKET,
/// unix(7)). When all copies of one end are closed, the other receives an empty message.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM: socketpair(2).
pub fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Creates a pipe that tells when processes have ended: they inherit the second descriptor, and
/// once the last of them has ended, or closed it, poll(2) reports POLLHUP at the first. A poll(2)
/// for no events does not see bytes that one of them writes.
///
/// # Errors
/// EMFILE, ENFILE: pipe2(2).
pub fn lifeline() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Sends a message; waits for space only if `waits` is set.
///
/// # Errors
/// EAGAIN when there is no space and `waits` is not set, EPIPE when the other end is closed:
/// send(2).
pub fn send(line: BorrowedFd<'_>, message: &[u8], waits: bool) -> io::Result<()> {
    let wait = if waits { SendFlags::empty() } else { SendFlags::DONTWAIT };
    rustix::io::retry_on_intr(|| rustix::net::send(line, message, wait | SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives the next message if one is queued, truncated to the buffer; `Some(0)` when the other
/// end is closed and all that it sent was received.
///
/// # Errors
/// ENOMEM, EBADF: recv(2).
pub fn receive(line: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let mut read =
        || rustix::io::retry_on_intr(|| rustix::net::recv(line, &mut *buffer, RecvFlags::DONTWAIT));
    let received = match read() {
        // Told once, ahead of what is queued: the other end was closed with a message unread. Its
        // own messages are there all the same.
        Err(Errno::CONNRESET) => read(),
        received => received,
    };
    match received {
        Ok((_, bytes)) => Ok(Some(bytes)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{POLLHUP, PollFd, poll};
    use rustix::process::{Signal, kill_process};
    use std::os::fd::AsFd;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_process_with_several_threads_is_not_copied() {
        // The test's own thread is the second, and another test may have a ring at the same time.
        let refusals = [Some(libc::EDEADLK), Some(libc::EBUSY)];
        assert!(refusals.contains(&fork().unwrap_err().raw_os_error()));
    }

    #[test]
    fn messages_come_whole_and_the_end_is_heard() {
        let (one, other) = channel().unwrap();
        let mut buffer = [0; 8];
        assert_eq!(receive(other.as_fd(), &mut buffer).unwrap(), None);
        send(one.as_fd(), b"abc", false).unwrap();
        send(one.as_fd(), b"d", true).unwrap();
        assert_eq!(receive(other.as_fd(), &mut buffer).unwrap(), Some(3));
        assert_eq!(receive(other.as_fd(), &mut buffer).unwrap(), Some(1));
        drop(one);
        // Until its exec, a process that another test starts has the end too.
        let end = (0..10_000).find_map(|_| {
            let received = receive(other.as_fd(), &mut buffer).unwrap();
            received.is_none().then(|| std::thread::sleep(Duration::from_millis(1)));
            received
        });
        assert_eq!(end, Some(0));
        let error = send(other.as_fd(), b"e", false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_one_has_sent_that_ended_with_a_message_unread_is_received_before_its_end() {
        let (one, other) = channel().unwrap();
        send(other.as_fd(), b"unread", false).unwrap();
        send(one.as_fd(), b"last", false).unwrap();
        send(one.as_fd(), b"words", false).unwrap();
        drop(one);
        let mut buffer = [0; 8];
        let mut received = || receive(other.as_fd(), &mut buffer).unwrap();
        assert_eq!([received(), received()], [Some(4), Some(5)]);
        // Until its exec, a process that another test starts has the end too.
        let end = (0..10_000).find_map(|_| {
            let received = received();
            received.is_none().then(|| std::thread::sleep(Duration::from_millis(1)));
            received
        });
        assert_eq!(end, Some(0));
    }

    #[test]
    fn a_lifeline_hangs_up_when_its_last_copy_is_closed_and_not_for_bytes() {
        let (here, there) = lifeline().unwrap();
        let other = there.try_clone().unwrap();
        let hangs_up = |wait_ms| {
            let mut entry = [PollFd { fd: here.as_raw_fd(), events: 0, revents: 0 }];
            poll(&mut entry, Some(Duration::from_millis(wait_ms))).unwrap();
            entry[0].revents == POLLHUP
        };
        drop(there);
        rustix::io::write(&other, b"a").unwrap();
        assert!(!hangs_up(0));
        drop(other);
        // Until its exec, a process that another test starts has the end too.
        assert!((0..10_000).any(|_| hangs_up(1)));
    }

    #[test]
    fn a_child_is_waited_for_and_its_end_is_told() {
        let start = |program: &str| Command::new(program).arg("1000").spawn().map(|it| it.id());
        assert_eq!(wait_child(start("false").unwrap()).unwrap(), ExitStatus::Status(1));
        let id = start("sleep").unwrap();
        kill_process(pid(id).unwrap(), Signal::KILL).unwrap();
        assert_eq!(wait_child(id).unwrap().to_string(), "signal 9");
        assert!(wait_child(id).is_err());
        assert!(wait_child(0).is_err() && wait_child(u32::MAX).is_err(), "nobody has these");
    }
}
