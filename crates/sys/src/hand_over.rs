//! A channel between a server and the process that takes its place: lines of text, each with a
//! descriptor or without (unix(7), SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt,
};

use crate::poll::{self, POLLIN, PollFd};

/// Maximum length of a line, bytes: longer than the longest path. A longer line is cut.
const LINE_MAX: usize = 4096;

/// Time for which a line may wait for room in the channel.
const SEND_MAX: Duration = Duration::from_secs(5);

/// One end of a channel.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Creates both ends. Neither survives an execve(2), unless it becomes another descriptor.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: socketpair(2).
    pub fn pair() -> io::Result<[Self; 2]> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        for end in [&one, &other] {
            sockopt::set_socket_timeout(end, sockopt::Timeout::Send, Some(SEND_MAX))?;
        }
        Ok([Self(one), Self(other)])
    }

    /// Takes the standard input, where a predecessor puts the channel of its successor, and leaves
    /// /dev/null in its place: while a copy is open, the other end sees no end.
    ///
    /// # Errors
    /// EMFILE: fcntl(2); ENOTSOCK: it is something else.
    pub fn take_stdin() -> io::Result<Self> {
        let fd = io::stdin().as_fd().try_clone_to_owned()?;
        if sockopt::socket_type(&fd)? != SocketType::SEQPACKET {
            return Err(io::Error::from_raw_os_error(libc::ENOTSOCK));
        }
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok(Self(fd))
    }

    /// Returns the descriptor, to become another process's.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends a line, and a descriptor with it. Waits for room for at most five seconds.
    ///
    /// # Errors
    /// EPIPE, ECONNRESET: the other end is closed; EAGAIN: there was no room; others of sendmsg(2).
    pub fn send(&self, line: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let line = line.as_bytes();
        let line = line.get(..LINE_MAX).unwrap_or(line);
        sendmsg(&self.0, &[IoSlice::new(line)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a line, and the descriptor that came with it, which is close-on-exec; `None` once
    /// the other end is closed. Waits for at most `wait`. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// ETIMEDOUT when nothing comes; others of recvmsg(2).
    pub fn receive(&self, wait: Duration) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        let mut fds = [PollFd { fd: self.0.as_raw_fd(), events: POLLIN, revents: 0 }];
        if poll::poll(&mut fds, Some(wait))? == 0 {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut line = vec![0; LINE_MAX];
        let mut slices = [IoSliceMut::new(&mut line)];
        let received = match recvmsg(&self.0, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            received => received?,
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        line.truncate(received.bytes);
        Ok(Some((String::from_utf8_lossy(&line).into_owned(), fd)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    use super::*;

    const WAIT: Duration = Duration::from_secs(5);

    #[test]
    fn lines_keep_their_bounds_and_their_descriptors() {
        let [one, other] = Channel::pair().unwrap();
        let path = std::env::temp_dir().join(format!("weir-hand-over-{}", std::process::id()));
        let mut file = File::create_new(&path).unwrap();
        file.write_all(b"theirs").unwrap();
        one.send("first", None).unwrap();
        one.send("second", Some(file.as_fd())).unwrap();
        drop(one);
        assert_eq!(
            other.receive(WAIT).unwrap().map(|(line, fd)| (line, fd.is_some())),
            Some(("first".into(), false))
        );
        let (line, fd) = other.receive(WAIT).unwrap().unwrap();
        assert_eq!(line, "second");
        let mut same = File::options().read(true).open(&path).unwrap();
        let mut passed = File::from(fd.unwrap());
        passed.rewind().unwrap();
        let mut text = String::new();
        same.read_to_string(&mut text).unwrap();
        passed.write_all(b"OURS!!").unwrap();
        assert_eq!(text, "theirs");
        assert_eq!(std::fs::read(&path).unwrap(), b"OURS!!");
        assert!(other.receive(WAIT).unwrap().is_none(), "the other end is closed");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_wait_for_nothing_ends() {
        let [one, other] = Channel::pair().unwrap();
        let error = other.receive(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
        drop(one);
    }
}
