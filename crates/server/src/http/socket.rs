//! The calls that a connection makes on its socket: the kernel's in a server, and simulated ones in
//! a test that plays the kernel. Knows neither what is sent nor how the socket is waited for.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weir_sys::heap::Charged;
use weir_sys::pipe::Pipe;
use weir_sys::{file, socket};
use weir_tls::{Handshake, Session};

/// A non-blocking socket: a call that would have to wait fails with `WouldBlock`.
pub trait Socket {
    /// Receives into the spare capacity of a buffer; 0 is the end.
    ///
    /// # Errors
    /// Errors of recv(2).
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize>;

    /// Receives into a slice, whose content may be overwritten; 0 is the end.
    ///
    /// # Errors
    /// Errors of recv(2).
    fn read_slice(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends some of `bytes`; `more`: others follow at once.
    ///
    /// # Errors
    /// Errors of send(2).
    fn write(&mut self, bytes: &[u8], more: bool) -> io::Result<usize>;

    /// Sends what was taken by an earlier call and is not sent yet.
    ///
    /// # Errors
    /// Errors of send(2).
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Number of bytes taken by earlier calls that [`Socket::flush`] is to send, or about so many;
    /// 0 if there are none.
    fn unsent_bytes(&self) -> usize {
        0
    }

    /// Says to the other side, behind what was sent before, that nothing follows, where the
    /// protocol has a word for that. It goes out with the next [`Socket::flush`].
    fn end(&mut self) {}

    /// Returns whether the last read has left nothing to be read. `was_short`: it brought less than
    /// there was room for.
    fn is_drained(&self, was_short: bool) -> bool {
        was_short
    }

    /// Returns whether a read would bring something that the kernel does not report.
    fn has_unreported(&self) -> bool {
        false
    }

    /// Returns the memory that it takes besides its own size, bytes.
    fn session_bytes(&self) -> u64 {
        0
    }

    /// Returns whether the kernel can move bytes of files and pipes into the socket by itself.
    fn is_of_kernel(&self) -> bool {
        true
    }

    /// Returns how far the TLS handshake has come; `None` without TLS.
    fn handshake(&self) -> Option<Handshake> {
        None
    }

    /// Adds to the time that the handshake has taken, and returns the sum, nanoseconds.
    fn add_handshake_ns(&mut self, _ns: u64) -> u64 {
        0
    }

    /// Holds back partial segments until it is called with `false`.
    fn set_cork(&self, on: bool);

    /// Sends some of two buffers, one after the other.
    ///
    /// # Errors
    /// Errors of writev(2).
    fn write_two(&mut self, first: &[u8], second: &[u8]) -> io::Result<usize>;

    /// Sends up to `count` bytes of a file, from `offset` on; 0 is the end of the file.
    ///
    /// # Errors
    /// Errors of sendfile(2).
    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize>;

    /// Receives up to `count` bytes into a pipe, which is empty; 0 is the end. A socket of the
    /// kernel's only can.
    ///
    /// # Errors
    /// Errors of splice(2).
    fn fill_pipe(&mut self, _pipe: &mut Pipe, _count: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends what is in a pipe, as far as there is room. A socket of the kernel's only can.
    ///
    /// # Errors
    /// Errors of splice(2).
    fn drain_pipe(&mut self, _pipe: &mut Pipe) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Shuts down the sending side.
    ///
    /// # Errors
    /// Errors of shutdown(2).
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Makes the following close a reset.
    fn reset_on_close(&self);

    /// Returns the number of bytes written that have not reached the other side.
    ///
    /// # Errors
    /// Errors of SIOCOUTQ, tcp(7).
    fn unacknowledged(&self) -> io::Result<u64>;
}

/// A client's socket, with or without TLS on it.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    fd: OwnedFd,
    session: Option<Box<Charged<Session>>>,
}

impl ClientSocket {
    /// Creates it. `session`: TLS, which begins with the first byte.
    pub(crate) fn new(fd: OwnedFd, session: Option<Charged<Session>>) -> Self {
        Self { fd, session: session.map(Box::new) }
    }

    /// Returns the socket alone.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Returns the session, unless the client speaks without TLS.
    fn session(&mut self) -> Option<(&mut Charged<Session>, Kernel<'_>)> {
        let session = self.session.as_deref_mut()?;
        (session.handshake() != Handshake::Plain).then(|| (session, Kernel(self.fd.as_fd())))
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket for ClientSocket {
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        if let Some(session) = &mut self.session {
            let mut kernel = Kernel(self.fd.as_fd());
            return session
                .measure_beside(buffer, |session, buffer| session.receive(&mut kernel, buffer));
        }
        socket::read(self.fd.as_fd(), buffer)
    }

    /// What is thrown away is not decrypted.
    fn read_slice(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        socket::read_slice(self.fd.as_fd(), buffer)
    }

    fn write(&mut self, bytes: &[u8], more: bool) -> io::Result<usize> {
        match self.session() {
            Some((session, mut kernel)) => {
                session.measure(|session| session.send(&mut kernel, bytes, b"", more))
            }
            None => socket::write(self.fd.as_fd(), bytes, more),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.session() {
            Some((session, mut kernel)) => session.measure(|session| session.flush(&mut kernel)),
            None => Ok(()),
        }
    }

    fn unsent_bytes(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.unsent_bytes())
    }

    fn end(&mut self) {
        if let Some((session, _)) = self.session() {
            session.measure(Session::end);
        }
    }

    fn is_drained(&self, was_short: bool) -> bool {
        self.session.as_ref().map_or(was_short, |session| session.is_drained())
    }

    fn has_unreported(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_end_to_tell())
    }

    fn session_bytes(&self) -> u64 {
        self.session.as_ref().map_or(0, |session| session.charged_bytes())
    }

    fn is_of_kernel(&self) -> bool {
        self.session.is_none()
    }

    fn handshake(&self) -> Option<Handshake> {
        self.session.as_ref().map(|session| session.handshake())
    }

    fn add_handshake_ns(&mut self, ns: u64) -> u64 {
        let session = self.session.as_mut();
        session.map_or(0, |session| session.measure(|session| session.add_handshake_ns(ns)))
    }

    fn set_cork(&self, on: bool) {
        socket::set_cork(self.fd.as_fd(), on);
    }

    fn write_two(&mut self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        match self.session() {
            Some((session, mut kernel)) => {
                session.measure(|session| session.send(&mut kernel, first, second, false))
            }
            None => socket::write_two(self.fd.as_fd(), first, second),
        }
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize> {
        if self.session.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        file::sendfile(self.fd.as_fd(), file, offset, count)
    }

    fn fill_pipe(&mut self, pipe: &mut Pipe, count: usize) -> io::Result<usize> {
        if self.session.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        pipe.fill(self.fd.as_fd(), count)
    }

    fn drain_pipe(&mut self, pipe: &mut Pipe) -> io::Result<usize> {
        if self.session.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        pipe.drain(self.fd.as_fd())
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.end();
        // Without room for them, the last bytes are lost: this is the end.
        let _ = self.flush();
        socket::shutdown_write(self.fd.as_fd())
    }

    fn reset_on_close(&self) {
        socket::reset_on_close(self.fd.as_fd());
    }

    /// What is still to be encrypted or sent has not reached the other side either.
    fn unacknowledged(&self) -> io::Result<u64> {
        Ok(socket::unacknowledged(self.fd.as_fd())? + self.unsent_bytes() as u64)
    }
}

/// The kernel's socket as a session's transport.
struct Kernel<'s>(BorrowedFd<'s>);

impl io::Read for Kernel<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        socket::read_slice(self.0, buffer)
    }
}

impl io::Write for Kernel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::write(self.0, bytes, false)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        socket::write_pieces(self.0, pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
