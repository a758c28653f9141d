//! TLS on one connection, over a transport that never waits. A read returns all the plaintext there
//! is, so that none is left behind when the transport has nothing more to report.

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};

use rustls::{HandshakeKind, ServerConnection};

/// Maximum number of bytes of plaintext encrypted before what is encrypted is sent: two records. A
/// client that reads nothing costs no more memory.
const CHUNK_BYTES: usize = 32 << 10;

/// Maximum number of reads of the transport in a row that bring no plaintext.
const READS_MAX: usize = 16;

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The server has answered nothing yet: most of the work is to come.
    Pending,
    /// The server has answered, and the client has not ended it yet.
    Answered,
    /// It has ended with a new key exchange and a signature.
    Full,
    /// It has ended with the keys of an earlier session.
    Resumed,
    /// It has failed, or something after it has: nothing more can be received or sent.
    Failed,
    /// It has not begun: the client speaks without TLS, and so is it to be answered.
    Plain,
}

/// The server's end of a TLS connection.
#[derive(Debug)]
pub struct Session {
    conn: ServerConnection,
    handshake: Handshake,
    /// True before the first byte.
    is_new: bool,
    /// True if the last read has left the transport empty.
    is_drained: bool,
    /// True once the client has said that it sends no more.
    client_has_ended: bool,
    /// True once [`Session::receive`] has returned that end.
    is_end_told: bool,
    /// True once the server has said that it sends no more.
    has_ended: bool,
    /// Bytes of plaintext taken that the transport has not taken all of yet.
    unsent_bytes: usize,
    /// True while what was encrypted is held back for more.
    is_held: bool,
    /// Time that the handshake has taken so far, nanoseconds.
    handshake_ns: u64,
}

impl Session {
    pub(crate) fn new(conn: ServerConnection) -> Self {
        Self {
            conn,
            handshake: Handshake::Pending,
            is_new: true,
            is_drained: false,
            client_has_ended: false,
            is_end_told: false,
            has_ended: false,
            unsent_bytes: 0,
            is_held: false,
            handshake_ns: 0,
        }
    }

    /// Returns how far it has come.
    pub fn handshake(&self) -> Handshake {
        self.handshake
    }

    /// Adds to the time that the handshake has taken, and returns the sum, nanoseconds.
    pub fn add_handshake_ns(&mut self, ns: u64) -> u64 {
        self.handshake_ns += ns;
        self.handshake_ns
    }

    /// Returns whether the last [`Session::receive`] has left the transport empty, and nothing to
    /// be told here.
    pub fn is_drained(&self) -> bool {
        self.is_drained && !self.has_end_to_tell()
    }

    /// Returns whether [`Session::receive`] would tell the end although the transport has nothing.
    pub fn has_end_to_tell(&self) -> bool {
        self.client_has_ended && !self.is_end_told
    }

    /// Number of bytes of plaintext that were taken, of which not everything was sent; not zero
    /// while anything at all is to be sent.
    pub fn unsent_bytes(&self) -> usize {
        match self.conn.wants_write() {
            true => self.unsent_bytes.max(1),
            false => 0,
        }
    }

    /// Appends to `out` what the client has sent, and answers what belongs to the handshake; 0 is
    /// the end of what it sends.
    ///
    /// # Errors
    /// WouldBlock: there is nothing now. UnexpectedEof: the transport has ended, and the client has
    /// not said so; what it sent may have been cut. InvalidData: see [`Session::handshake`], which
    /// is
    /// `Failed` or `Plain`. Others are the transport's.
    pub fn receive(
        &mut self,
        transport: &mut (impl Read + Write),
        out: &mut Vec<u8>,
    ) -> io::Result<usize> {
        if matches!(self.handshake, Handshake::Failed | Handshake::Plain) {
            return Err(ErrorKind::InvalidData.into());
        }
        for _ in 0..READS_MAX {
            if self.client_has_ended {
                self.is_end_told = true;
                return Ok(0);
            }
            let mut wire =
                Wire { transport, is_new: self.is_new, is_plain: false, is_short: false };
            let read = self.conn.read_tls(&mut wire);
            let Wire { is_plain, is_short, .. } = wire;
            self.is_drained = is_short;
            match read {
                // A client that connects and goes without a word has cut nothing.
                Ok(0) if self.is_new => return Ok(0),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => self.is_new = false,
                Err(_) if is_plain => {
                    self.handshake = Handshake::Plain;
                    return Err(ErrorKind::InvalidData.into());
                }
                Err(error) => {
                    self.is_drained = error.kind() == ErrorKind::WouldBlock;
                    return Err(error);
                }
            }
            let bytes = self.decrypt(transport, out)?;
            if bytes > 0 {
                return Ok(bytes);
            }
            if self.is_drained && !self.client_has_ended {
                break;
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// Handles what was read. Returns the number of bytes of plaintext appended to `out`.
    fn decrypt(&mut self, transport: &mut impl Write, out: &mut Vec<u8>) -> io::Result<usize> {
        let Ok(state) = self.conn.process_new_packets() else {
            self.handshake = Handshake::Failed;
            // The alert that says why. It is lost if there is no room for it.
            let _ = self.flush(transport);
            return Err(ErrorKind::InvalidData.into());
        };
        self.client_has_ended = state.peer_has_closed();
        if matches!(self.handshake, Handshake::Pending | Handshake::Answered) {
            self.handshake = match self.conn.handshake_kind() {
                _ if self.conn.is_handshaking() && self.conn.wants_write() => Handshake::Answered,
                _ if self.conn.is_handshaking() => self.handshake,
                Some(HandshakeKind::Resumed) => Handshake::Resumed,
                _ => Handshake::Full,
            };
        }
        let bytes = state.plaintext_bytes_to_read();
        if bytes > 0 {
            take_plaintext(&mut self.conn, bytes, out)?;
        } else if self.conn.wants_write() {
            // With a request, what is to be sent goes out before the reply and in one call with it.
            match self.flush(transport) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(bytes)
    }

    /// Encrypts and sends some of two buffers, one after the other. Less than all of it is taken
    /// only if the transport is full. `more`: others follow at once, and it may be held back for
    /// them.
    ///
    /// # Errors
    /// WouldBlock: the transport is full. Others are the transport's.
    pub fn send(
        &mut self,
        transport: &mut impl Write,
        mut first: &[u8],
        mut second: &[u8],
        more: bool,
    ) -> io::Result<usize> {
        if self.conn.wants_write() && !self.is_held {
            self.flush(transport)?;
        }
        let mut taken = 0;
        while !first.is_empty() || !second.is_empty() {
            let in_first = first.len().min(CHUNK_BYTES);
            let in_second = second.len().min(CHUNK_BYTES - in_first);
            let pieces = [IoSlice::new(&first[..in_first]), IoSlice::new(&second[..in_second])];
            let bytes = self.conn.writer().write_vectored(&pieces)?;
            taken += bytes;
            self.unsent_bytes += bytes;
            let from_first = bytes.min(in_first);
            first = &first[from_first..];
            second = &second[bytes - from_first..];
            let is_last = first.is_empty() && second.is_empty();
            self.is_held = more && is_last && self.unsent_bytes < CHUNK_BYTES;
            if self.is_held {
                break;
            }
            match self.flush(transport) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
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
        self.is_held = false;
        while self.conn.wants_write() {
            if self.conn.write_tls(transport)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        self.unsent_bytes = 0;
        Ok(())
    }

    /// Tells the client, behind what was sent before, that nothing follows (close_notify, RFC 8446
    /// section 6.1). It goes out with the next [`Session::flush`].
    pub fn end(&mut self) {
        let is_open = matches!(self.handshake, Handshake::Full | Handshake::Resumed);
        if is_open && !std::mem::replace(&mut self.has_ended, true) {
            self.conn.send_close_notify();
        }
    }
}

fn take_plaintext(conn: &mut ServerConnection, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
    out.reserve(bytes);
    let (mut reader, mut left) = (conn.reader(), bytes);
    while left > 0 {
        let chunk = reader.fill_buf()?;
        let taken = chunk.len().min(left);
        if taken == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        out.extend_from_slice(&chunk[..taken]);
        reader.consume(taken);
        left -= taken;
    }
    Ok(())
}

/// A transport whose first byte shows whether the client speaks TLS at all: a record begins with a
/// number below 32 (RFC 8446 section 5.1), a request with a capital letter.
struct Wire<'t, T> {
    transport: &'t mut T,
    is_new: bool,
    is_plain: bool,
    is_short: bool,
}

impl<T: Read> Read for Wire<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.transport.read(buffer)?;
        self.is_short = bytes < buffer.len();
        let first = buffer.first().filter(|_| self.is_new && bytes > 0);
        if first.is_some_and(u8::is_ascii_uppercase) {
            self.is_plain = true;
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(bytes)
    }
}
