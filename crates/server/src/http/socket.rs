//! The calls that a connection makes on its socket: the kernel's in a server, and simulated ones in
//! a test that plays the kernel. Knows neither what is sent nor how the socket is waited for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weir_sys::pipe::Pipe;
use weir_sys::{file, socket};

/// A non-blocking socket: a call that would have to wait fails with `WouldBlock`.
pub trait Socket {
    /// Receives into the spare capacity of a buffer; 0 is the end.
    ///
    /// # Errors
    /// Errors of recv(2).
    fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize>;

    /// Receives into a slice, whose content may be overwritten; 0 is the end.
    ///
    /// # Errors
    /// Errors of recv(2).
    fn read_slice(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends some of `bytes`; `more`: others follow at once.
    ///
    /// # Errors
    /// Errors of send(2).
    fn write(&self, bytes: &[u8], more: bool) -> io::Result<usize>;

    /// Holds back partial segments until it is called with `false`.
    fn set_cork(&self, on: bool);

    /// Sends some of two buffers, one after the other.
    ///
    /// # Errors
    /// Errors of writev(2).
    fn write_two(&self, first: &[u8], second: &[u8]) -> io::Result<usize>;

    /// Sends up to `count` bytes of a file, from `offset` on; 0 is the end of the file.
    ///
    /// # Errors
    /// Errors of sendfile(2).
    fn send_file(&self, file: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize>;

    /// Receives up to `count` bytes into a pipe, which is empty; 0 is the end. A socket of the
    /// kernel's only can.
    ///
    /// # Errors
    /// Errors of splice(2).
    fn fill_pipe(&self, _pipe: &mut Pipe, _count: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends what is in a pipe, as far as there is room. A socket of the kernel's only can.
    ///
    /// # Errors
    /// Errors of splice(2).
    fn drain_pipe(&self, _pipe: &mut Pipe) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Shuts down the sending side.
    ///
    /// # Errors
    /// Errors of shutdown(2).
    fn shutdown_write(&self) -> io::Result<()>;

    /// Makes the following close a reset.
    fn reset_on_close(&self);

    /// Returns the number of bytes written that have not reached the other side.
    ///
    /// # Errors
    /// Errors of SIOCOUTQ, tcp(7).
    fn unacknowledged(&self) -> io::Result<u64>;
}

impl Socket for OwnedFd {
    fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        socket::read(self.as_fd(), buffer)
    }

    fn read_slice(&self, buffer: &mut [u8]) -> io::Result<usize> {
        socket::read_slice(self.as_fd(), buffer)
    }

    fn write(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        socket::write(self.as_fd(), bytes, more)
    }

    fn set_cork(&self, on: bool) {
        socket::set_cork(self.as_fd(), on);
    }

    fn write_two(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        socket::write_two(self.as_fd(), first, second)
    }

    fn send_file(&self, file: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize> {
        file::sendfile(self.as_fd(), file, offset, count)
    }

    fn fill_pipe(&self, pipe: &mut Pipe, count: usize) -> io::Result<usize> {
        pipe.fill(self.as_fd(), count)
    }

    fn drain_pipe(&self, pipe: &mut Pipe) -> io::Result<usize> {
        pipe.drain(self.as_fd())
    }

    fn shutdown_write(&self) -> io::Result<()> {
        socket::shutdown_write(self.as_fd())
    }

    fn reset_on_close(&self) {
        socket::reset_on_close(self.as_fd());
    }

    fn unacknowledged(&self) -> io::Result<u64> {
        socket::unacknowledged(self.as_fd())
    }
}
