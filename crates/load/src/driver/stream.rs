//! The byte stream of a connection: a socket of the stack, as it is, or with TLS between it and
//! whoever sends and receives. Both stacks have TLS from here. It waits for nothing, and reads no
//! clock.
//!
//! With TLS, what is written counts as sent once the last byte of its record is with the stack, so
//! that a full send buffer looks as it does without. What was read is ciphertext until it is
//! [delivered](Stream::deliver): one read may hold several records, a record may need several
//! reads, and one that carries no content (a ticket, an alert, an update of keys) delivers nothing.
//! Nothing that was decrypted is left inside for the next read: the socket would not report it.

mod tls;

use std::io;

use rustls::Error;
use rustls::client::UnbufferedClientConnection;

use self::tls::Tls;
use super::action::Action;
use super::stack::Stack;
pub(super) use tls::Delivery;

/// A stream. It is closed by [`Stream::close`].
pub(super) struct Stream<K> {
    socket: K,
    tls: Option<Box<Tls>>,
}

/// Progress of a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handshake {
    /// The first message, or its beginning, is with the stack: the connection is established.
    pub(super) is_connected: bool,
    /// The rest of a message waits for room.
    pub(super) is_blocked: bool,
    /// `Some` once it is done; true if it resumed a session.
    pub(super) resumed: Option<bool>,
}

/// The end of a handshake that is not done.
#[derive(Debug)]
pub(super) enum HandshakeFailure {
    /// An error of the socket.
    Socket(io::Error),
    /// The server closed.
    Closed,
    /// The server sent what cannot be accepted, or an alert.
    Tls(Error),
}

impl<K> Stream<K> {
    /// Creates the stream of a socket that was opened.
    pub(super) fn new(socket: K) -> Self {
        Self { socket, tls: None }
    }

    /// Returns the socket.
    pub(super) fn socket(&self) -> &K {
        &self.socket
    }

    /// Returns the socket of a stream that has ended.
    pub(super) fn into_socket(self) -> K {
        self.socket
    }

    /// Puts TLS into the stream, before anything is sent.
    ///
    /// # Errors
    /// None that the server could cause.
    pub(super) fn secure(&mut self, connection: UnbufferedClientConnection) -> Result<(), Error> {
        self.tls = Some(Box::new(Tls::new(connection)?));
        Ok(())
    }

    /// Returns whether there is TLS in the stream.
    pub(super) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether a handshake is under way.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns whether the server has left out the word that it sends no more.
    pub(super) fn is_cut_off(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.server_has_ended())
    }

    /// Continues the handshake, as far as it goes without waiting: sends what is to be sent and,
    /// if it `reads`, reads what has come, into `buffer`. `to_end`: until a read fails, because no
    /// event follows. The client's last message stays here, to be sent with what is written first.
    ///
    /// # Errors
    /// The connection is of no further use; if the server is to be told so, it has been.
    pub(super) fn handshake(
        &mut self,
        stack: &mut impl Stack<Socket = K>,
        buffer: &mut [u8],
        reads: bool,
        to_end: bool,
    ) -> Result<Handshake, HandshakeFailure> {
        let Some(tls) = &mut self.tls else { return Ok(Handshake::default()) };
        let waits = |is_blocked| Handshake { is_connected: true, is_blocked, resumed: None };
        let (flushed, sent) = tls.flush(&self.socket, stack).map_err(HandshakeFailure::Socket)?;
        if !flushed {
            return Ok(Handshake { is_connected: sent > 0 || reads, ..waits(true) });
        }
        if !reads {
            return Ok(waits(false));
        }
        loop {
            let bytes = match stack.read(&self.socket, buffer) {
                Ok(0) => return Err(HandshakeFailure::Closed),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(waits(false)),
                Err(error) => return Err(HandshakeFailure::Socket(error)),
            };
            if let Err(error) = tls.take_in(buffer.get_mut(..bytes).unwrap_or_default()) {
                // The alert that says what is wrong; the connection ends either way.
                let _ = tls.flush(&self.socket, stack);
                return Err(HandshakeFailure::Tls(error));
            }
            if !tls.is_handshaking() {
                return Ok(Handshake { resumed: Some(tls.is_resumed()), ..waits(false) });
            }
            if !tls.flush(&self.socket, stack).map_err(HandshakeFailure::Socket)?.0 {
                return Ok(waits(true));
            }
            if bytes < buffer.len() && !to_end {
                return Ok(waits(false));
            }
        }
    }

    /// Writes bytes, as far as there is room. With TLS, bytes that are partly sent are to be
    /// offered again.
    ///
    /// # Errors
    /// Those of [`Stack::write`].
    pub(super) fn write(
        &mut self,
        stack: &mut impl Stack<Socket = K>,
        bytes: &[u8],
    ) -> io::Result<usize> {
        match &mut self.tls {
            None => stack.write(&self.socket, bytes),
            Some(tls) => tls.write(&self.socket, stack, bytes),
        }
    }

    /// Sends what TLS has to send of its own accord; returns whether that was all.
    ///
    /// # Errors
    /// Those of [`Stack::write`].
    pub(super) fn flush(&mut self, stack: &mut impl Stack<Socket = K>) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        tls.flush(&self.socket, stack).map(|(flushed, _)| flushed)
    }

    /// Returns whether TLS has something to send of its own accord.
    pub(super) fn wants_flush(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_flush())
    }

    /// Reads from the socket, into `buffer`, what [`Stream::deliver`] turns into content.
    ///
    /// # Errors
    /// Those of [`Stack::read`].
    pub(super) fn read(
        &self,
        stack: &mut impl Stack<Socket = K>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        stack.read(&self.socket, buffer)
    }

    /// Delivers what was read to `received`, and returns the last action that this returned; an
    /// action other than [`Action::Read`] expects nothing more, and closes if more comes.
    ///
    /// # Errors
    /// The server broke the rules of TLS, or sent an alert, before all was received that was
    /// expected.
    pub(super) fn deliver(
        &mut self,
        bytes: &mut [u8],
        mut received: impl FnMut(Delivery<'_>) -> Action,
    ) -> Result<Action, Error> {
        match &mut self.tls {
            None => Ok(received(Delivery::Bytes(bytes))),
            Some(tls) => tls.deliver(bytes, &mut received),
        }
    }

    /// Closes the stream, with a reset if `reset` says so. Unless it `is_silent`, the server is
    /// told that no more comes: one that has closed need not be.
    pub(super) fn close(
        mut self,
        stack: &mut impl Stack<Socket = K>,
        buffer: &mut [u8],
        reset: bool,
        is_silent: bool,
    ) {
        if let Some(tls) = &mut self.tls
            && !reset
            && !is_silent
            && !tls.is_handshaking()
        {
            tls.end();
            // The connection ends, whether there is room for it or not.
            let _ = tls.flush(&self.socket, stack);
            // With bytes unread a close would be a reset (RFC 2525 section 2.17); tickets may have
            // come behind the last reply.
            if let Ok(bytes @ 1..) = stack.read(&self.socket, buffer) {
                let _ = tls.take_in(&mut buffer[..bytes]);
            }
        }
        stack.close(self.socket, reset);
    }
}
