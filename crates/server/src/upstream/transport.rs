//! The kernel's socket as the transport of a TLS session with a server.

use std::io;
use std::os::fd::BorrowedFd;

use weir_sys::socket;

/// A socket.
pub(super) struct Kernel<'s>(pub(super) BorrowedFd<'s>);

impl io::Read for Kernel<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        socket::read_slice(self.0, buffer)
    }
}

impl io::Write for Kernel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::write(self.0, bytes, false)
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        socket::write_pieces(self.0, pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
