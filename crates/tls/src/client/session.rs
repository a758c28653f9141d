//! The client's end of TLS on one connection, over a transport that never waits. What was decrypted
//! and not taken yet stays here, and is said to be there: the transport would not report it.

use std::io::{self, ErrorKind, Read, Write};

use rustls::{AlertDescription, ClientConnection, HandshakeKind};

/// Maximum number of bytes of plaintext encrypted before what is encrypted is sent: two records.
const CHUNK_BYTES: usize = 32 << 10;

/// Maximum number of reads of the transport in a row that bring no plaintext.
const READS_MAX: usize = 16;

/// Why a session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server's certificate is not trusted, not valid, or another name's.
    Certificate,
    /// The server has sent an alert (RFC 8446 section 6): it wants none of it.
    Alert,
    /// The server breaks the rules of TLS, or speaks something else.
    Protocol,
    /// The server has closed before the handshake was over.
    Cut,
}

/// The client's end of a TLS connection.
#[derive(Debug)]
pub struct ClientSession {
    conn: ClientConnection,
    failure: Option<Failure>,
    /// Bytes of plaintext that were decrypted, and not taken yet.
    decrypted: usize,
    /// True if the last read has left the transport empty.
    is_drained: bool,
    /// True once the client has said that it sends no more.
    has_ended: bool,
}

impl ClientSession {
    pub(super) fn new(conn: ClientConnection) -> Self {
        Self { conn, failure: None, decrypted: 0, is_drained: false, has_ended: false }
    }

    /// Returns whether the handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        self.conn.is_handshaking()
    }

    /// Returns whether the handshake has resumed an earlier session; `None` while it is not over.
    pub fn is_resumed(&self) -> Option<bool> {
        let is_over = !self.conn.is_handshaking();
        is_over.then(|| self.conn.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// Returns why it has failed, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Returns whether something encrypted is still to be sent.
    pub fn is_sending(&self) -> bool {
        self.conn.wants_write()
    }

    /// Returns whether a read would find nothing: neither here, nor at the transport as of the last
    /// read.
    pub fn is_drained(&self) -> bool {
        self.decrypted == 0 && self.is_drained
    }

    /// Continues the handshake until it is over.
    ///
    /// # Errors
    /// WouldBlock: it waits for the transport, for room if [`ClientSession::is_sending`], and
    /// otherwise for the server. InvalidData, UnexpectedEof: see [`ClientSession::failure`]. Others
    /// are the transport's.
    pub fn shake_hands(&mut self, transport: &mut (impl Read + Write)) -> io::Result<()> {
        if self.failure.is_some() {
            return Err(ErrorKind::InvalidData.into());
        }
        loop {
            self.flush(transport)?;
            if !self.conn.is_handshaking() {
                return Ok(());
            }
            self.take_in(transport)?;
        }
    }

    /// Receives some of what the server has sent; 0 is the end, which the server has said.
    ///
    /// # Errors
    /// WouldBlock: there is nothing now. UnexpectedEof: the transport has ended, and the server has
    /// not said so; what it sent may have been cut. InvalidData: see [`ClientSession::failure`].
    /// Others are the transport's.
    pub fn receive(
        &mut self,
        transport: &mut (impl Read + Write),
        into: &mut [u8],
    ) -> io::Result<usize> {
        if self.conn.is_handshaking() || self.failure.is_some() {
            self.shake_hands(transport)?;
        }
        // What the server says does not wait until it takes what is sent to it. Whether it has gone
        // is told by the read, behind what it has said.
        let _ = self.flush(transport);
        for _ in 0..READS_MAX {
            match self.conn.reader().read(into) {
                Ok(bytes) => {
                    self.decrypted = self.decrypted.saturating_sub(bytes);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.take_in(transport)?,
                Err(error) => return Err(error),
            }
            // An update of keys is answered; without room for it now, with what is sent next.
            let _ = self.flush(transport);
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// Reads and handles some of what the server has sent.
    fn take_in(&mut self, transport: &mut (impl Read + Write)) -> io::Result<()> {
        let mut noting = Noting { transport, is_short: false };
        let read = self.conn.read_tls(&mut noting);
        self.is_drained = noting.is_short;
        match read {
            Ok(0) if self.conn.is_handshaking() => {
                self.failure = Some(Failure::Cut);
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Ok(_) => {}
            Err(error) => {
                self.is_drained = error.kind() == ErrorKind::WouldBlock;
                if self.conn.is_handshaking() && !self.is_drained {
                    self.failure = Some(Failure::Cut);
                }
                return Err(error);
            }
        }
        match self.conn.process_new_packets() {
            Ok(state) => {
                self.decrypted = state.plaintext_bytes_to_read();
                Ok(())
            }
            Err(error) => {
                self.failure = Some(failure_of(&error));
                // The alert that says why. It is lost if there is no room for it.
                let _ = self.flush(transport);
                Err(ErrorKind::InvalidData.into())
            }
        }
    }

    /// Encrypts and sends some of `bytes`. Less than all of it is taken only if the transport is
    /// full, or has failed once any of it was sent: that may have arrived, and the next call meets
    /// the error.
    ///
    /// # Errors
    /// WouldBlock: the transport is full, or the handshake is not over. Others as of
    /// [`ClientSession::shake_hands`].
    pub fn send(
        &mut self,
        transport: &mut (impl Read + Write),
        mut bytes: &[u8],
    ) -> io::Result<usize> {
        self.shake_hands(transport)?;
        let (mut taken, mut sent) = (0, 0);
        while !bytes.is_empty() {
            let chunk = bytes.get(..CHUNK_BYTES).unwrap_or(bytes);
            let count = self.conn.writer().write(chunk)?;
            taken += count;
            bytes = bytes.get(count..).unwrap_or_default();
            match self.flush_counting(transport, &mut sent) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock || sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Sends what is encrypted and was not sent yet.
    ///
    /// # Errors
    /// WouldBlock: the transport is full. Others are the transport's.
    pub fn flush(&mut self, transport: &mut impl Write) -> io::Result<()> {
        self.flush_counting(transport, &mut 0)
    }

    /// Works as [`ClientSession::flush`], and adds what was sent to `sent`, bytes.
    fn flush_counting(&mut self, transport: &mut impl Write, sent: &mut usize) -> io::Result<()> {
        while self.conn.wants_write() {
            match self.conn.write_tls(transport)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                bytes => *sent += bytes,
            }
        }
        Ok(())
    }

    /// Tells the server, behind what was sent before, that nothing follows (close_notify, RFC 8446
    /// section 6.1). It goes out with the next [`ClientSession::flush`].
    pub fn end(&mut self) {
        let is_open = !self.conn.is_handshaking() && self.failure.is_none();
        if is_open && !std::mem::replace(&mut self.has_ended, true) {
            self.conn.send_close_notify();
        }
    }
}

/// Maps an error to why the session has failed. An alert about a certificate is about the client's.
fn failure_of(error: &rustls::Error) -> Failure {
    match error {
        // What the server says when it closes in the middle of a handshake is no complaint.
        rustls::Error::AlertReceived(AlertDescription::CloseNotify) => Failure::Cut,
        rustls::Error::AlertReceived(_) => Failure::Alert,
        rustls::Error::InvalidCertificate(_)
        | rustls::Error::InvalidCertRevocationList(_)
        | rustls::Error::NoCertificatesPresented
        | rustls::Error::UnsupportedNameType => Failure::Certificate,
        _ => Failure::Protocol,
    }
}

/// A transport that notes whether the last read brought less than there was room for.
struct Noting<'t, T> {
    transport: &'t mut T,
    is_short: bool,
}

impl<T: Read> Read for Noting<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.transport.read(buffer)?;
        self.is_short = bytes < buffer.len();
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;
    use crate::session::tests::{pair, talk};

    /// A transport that fails once it has taken so many bytes.
    struct Failing(usize);

    impl Read for Failing {
        fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::WouldBlock.into())
        }
    }

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(ErrorKind::ConnectionReset.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A session whose handshake is over.
    fn session() -> ClientSession {
        let provider = Arc::new(default_provider());
        let (mut conn, mut server) = pair(Arc::clone(&provider), provider);
        talk(&mut conn, &mut server);
        ClientSession::new(conn)
    }

    #[test]
    fn what_was_sent_before_the_transport_failed_counts_as_taken() {
        let content = vec![0; 100 << 10];
        for (room, is_taken) in [(0, false), (1, true), (40 << 10, true)] {
            let (mut session, mut transport) = (session(), Failing(room));
            let taken = session.send(&mut transport, &content).unwrap_or_default();
            assert_eq!(taken > 0, is_taken, "{room}: {taken}");
            let error = session.send(&mut transport, &content).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{room}");
        }
    }
}
