//! splice(2): bytes go from one socket to another through a pipe, and are not copied.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::profile::{Call, timed};

/// A pipe, with what is in it.
#[derive(Debug)]
pub struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
    held: usize,
}

impl Pipe {
    /// Creates a pipe, non-blocking and close-on-exec, that holds `bytes` if the kernel allows it
    /// (F_SETPIPE_SZ, fcntl(2)), and otherwise as many as pipes do.
    ///
    /// # Errors
    /// EMFILE, ENFILE: pipe2(2).
    pub fn new(bytes: usize) -> io::Result<Self> {
        let flags = PipeFlags::NONBLOCK | PipeFlags::CLOEXEC;
        let (output, input) = timed(Call::Pipe, || rustix::pipe::pipe_with(flags))?;
        let _ = timed(Call::Fcntl, || rustix::pipe::fcntl_setpipe_size(&input, bytes));
        Ok(Self { output, input, held: 0 })
    }

    /// Number of bytes in it.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Moves up to `count` bytes from a socket into the pipe; 0 is the end. To be called while it
    /// is empty: otherwise it does not show which of the two is the reason for `WouldBlock`.
    ///
    /// # Errors
    /// EAGAIN while the socket has nothing; errors of the socket: splice(2).
    pub fn fill(&mut self, from: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
        let splice =
            || rustix::pipe::splice(from, None, &self.input, None, count, SpliceFlags::NONBLOCK);
        let bytes = timed(Call::Splice, splice)?;
        self.held += bytes;
        Ok(bytes)
    }

    /// Moves what is in the pipe to a socket, as far as there is room.
    ///
    /// # Errors
    /// EAGAIN while the socket is full; EPIPE, ECONNRESET: splice(2).
    pub fn drain(&mut self, to: BorrowedFd<'_>) -> io::Result<usize> {
        let splice =
            || rustix::pipe::splice(&self.output, None, to, None, self.held, SpliceFlags::NONBLOCK);
        let bytes = timed(Call::Splice, splice)?;
        self.held = self.held.saturating_sub(bytes);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_pass_from_one_socket_to_another() {
        let (mut from, near) = UnixStream::pair().unwrap();
        let (far, mut to) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut pipe = Pipe::new(1 << 18).unwrap();
        let nothing = pipe.fill(near.as_fd(), 100).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        from.write_all(b"passed on").unwrap();
        assert_eq!(pipe.fill(near.as_fd(), 6).unwrap(), 6);
        assert_eq!(pipe.held(), 6);
        assert_eq!(pipe.drain(far.as_fd()).unwrap(), 6);
        assert_eq!(pipe.held(), 0);
        let mut passed = [0; 6];
        to.read_exact(&mut passed).unwrap();
        assert_eq!(&passed, b"passed");
        drop(from);
        assert_eq!(pipe.fill(near.as_fd(), 100).unwrap(), 3);
        pipe.drain(far.as_fd()).unwrap();
        assert_eq!(pipe.fill(near.as_fd(), 100).unwrap(), 0);
    }
}
