//! The TLS of a stream: what is received and sent passes through it, and it keeps neither longer
//! than it has to. All ciphertext is in buffers of this crate (the unbuffered interface of rustls),
//! because those of a connection that rustls would hold take 4 KiB for as long as it is open.

use std::io;

use rustls::Error;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedStatus, WriteTraffic,
};

use super::super::action::Action;
use super::super::stack::Stack;

/// Plaintext encrypted at a time: a record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 16 << 10;

/// Room for what encryption adds to a record, or for an alert: more than any cipher suite takes.
const OVERHEAD_BYTES: usize = 64;

/// Delivery of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Delivery<'a> {
    /// Bytes; none at the end of the stream.
    Bytes(&'a [u8]),
    /// The server's word that it sends no more (close_notify, RFC 8446 section 6.1). The end of the
    /// connection is to follow.
    CloseNotify,
}

/// The TLS of a stream.
pub(super) struct Tls {
    connection: UnbufferedClientConnection,
    /// Ciphertext that was received and is a part of a message only.
    received: Vec<u8>,
    /// Content that came with the end of the handshake.
    early: Vec<u8>,
    /// Ciphertext that the stack has not taken yet.
    unsent: Vec<u8>,
    /// Plaintext among it that was not reported as sent.
    held: usize,
    /// True once the server has said that it sends no more.
    server_has_ended: bool,
    /// True once the server has broken the rules, or has sent an alert.
    has_failed: bool,
}

/// Encrypts, or alerts, into the buffer; returns the number of bytes.
type Put<'p> = &'p mut dyn FnMut(&mut Writer<'_>, &mut [u8]) -> Result<usize, EncryptError>;

type Writer<'c> = WriteTraffic<'c, ClientConnectionData>;

impl Tls {
    /// Begins a handshake: the first message is to be sent.
    ///
    /// # Errors
    /// None that the server could cause.
    pub(super) fn new(connection: UnbufferedClientConnection) -> Result<Self, Error> {
        let mut tls = Self {
            connection,
            received: Vec::new(),
            early: Vec::new(),
            unsent: Vec::new(),
            held: 0,
            server_has_ended: false,
            has_failed: false,
        };
        tls.take_in(&mut [])?;
        Ok(tls)
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns whether the handshake has resumed a session.
    pub(super) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// Returns whether the server has said that it sends no more.
    pub(super) fn server_has_ended(&self) -> bool {
        self.server_has_ended
    }

    /// Returns whether something is to be sent that is nobody's content.
    pub(super) fn wants_flush(&self) -> bool {
        // Before the handshake is done, and of what is being written, another is to send the rest.
        self.held == 0 && !self.is_handshaking() && !self.unsent.is_empty()
    }

    /// Sends what there is to send; returns whether that was all, and the number of bytes.
    pub(super) fn flush<S: Stack>(
        &mut self,
        socket: &S::Socket,
        stack: &mut S,
    ) -> io::Result<(bool, usize)> {
        if self.unsent.is_empty() {
            return Ok((true, 0));
        }
        let sent = match stack.write(socket, &self.unsent) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if sent < self.unsent.len() {
            self.unsent.drain(..sent);
            return Ok((false, sent));
        }
        // An idle connection keeps no buffer.
        self.unsent = Vec::new();
        Ok((true, sent))
    }

    pub(super) fn write<S: Stack>(
        &mut self,
        socket: &S::Socket,
        stack: &mut S,
        bytes: &[u8],
    ) -> io::Result<usize> {
        let mut written = 0;
        loop {
            let rest = bytes.get(written..).unwrap_or_default();
            if self.held == 0 && !rest.is_empty() {
                // The client's last message of the handshake goes out with its first request.
                self.held = self.encrypt(rest.get(..RECORD_BYTES).unwrap_or(rest))?;
            }
            if !self.flush(socket, stack)?.0 {
                break;
            }
            written += std::mem::take(&mut self.held);
            if written >= bytes.len() {
                return Ok(written);
            }
        }
        if written > 0 { Ok(written) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Encrypts a record to be sent; returns the number of bytes of content in it.
    fn encrypt(&mut self, record: &[u8]) -> io::Result<usize> {
        self.put(record.len(), &mut |writer, room| writer.encrypt(record, room))
            .map_err(io::Error::other)?;
        Ok(record.len())
    }

    /// Tells the server, behind what was sent before, that nothing follows.
    pub(super) fn end(&mut self) {
        // The connection ends, whether it can be told or not.
        let _ = self.put(0, &mut |writer, room| writer.queue_close_notify(room));
    }

    /// Appends to what is to be sent.
    fn put(&mut self, bytes: usize, put: Put<'_>) -> Result<(), Error> {
        let mut result = Err(Error::HandshakeNotComplete);
        let mut received = std::mem::take(&mut self.received);
        let (done, processed) = self.process(&mut received, &mut |_| {}, &mut |writer, unsent| {
            result = append(unsent, bytes + OVERHEAD_BYTES, |room| put(writer, room));
        });
        self.keep(received, done);
        processed.and(result)
    }

    /// Takes in ciphertext, and keeps what content there is in it.
    ///
    /// # Errors
    /// The server has broken the rules of TLS, or has sent an alert. The alert that says so is to
    /// be sent.
    pub(super) fn take_in(&mut self, ciphertext: &mut [u8]) -> Result<(), Error> {
        let mut early = std::mem::take(&mut self.early);
        let result = self.decrypt(ciphertext, &mut |content| early.extend_from_slice(content));
        self.early = early;
        result
    }

    /// Delivers what there is in ciphertext; none is the end of the stream.
    ///
    /// # Errors
    /// As of [`Tls::take_in`], if something was still expected.
    pub(super) fn deliver(
        &mut self,
        ciphertext: &mut [u8],
        received: &mut dyn FnMut(Delivery<'_>) -> Action,
    ) -> Result<Action, Error> {
        let mut action = Action::Read;
        let early = std::mem::take(&mut self.early);
        if !early.is_empty() {
            action = next(action, Delivery::Bytes(&early), received);
        }
        if ciphertext.is_empty() {
            return Ok(next(action, Delivery::Bytes(b""), received));
        }
        let result = self.decrypt(ciphertext, &mut |content| {
            action = next(action, Delivery::Bytes(content), received);
        });
        match result {
            Err(_) if action != Action::Read => Ok(action.and_close()),
            Err(error) => Err(error),
            Ok(()) if self.server_has_ended => Ok(next(action, Delivery::CloseNotify, received)),
            Ok(()) => Ok(action),
        }
    }

    /// Decrypts what was received, and hands the content of each record to `content`.
    fn decrypt(
        &mut self,
        ciphertext: &mut [u8],
        content: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Error> {
        if self.received.is_empty() {
            let (done, result) = self.process(ciphertext, content, &mut |_, _| {});
            if !self.server_has_ended {
                self.received.extend_from_slice(ciphertext.get(done..).unwrap_or_default());
            }
            return result;
        }
        let mut received = std::mem::take(&mut self.received);
        received.extend_from_slice(ciphertext);
        let (done, result) = self.process(&mut received, content, &mut |_, _| {});
        self.keep(received, done);
        result
    }

    /// Keeps what was received and is still needed.
    fn keep(&mut self, mut received: Vec<u8>, done: usize) {
        // An idle connection keeps no buffer; what is behind the server's end is not taken.
        if done < received.len() && !self.server_has_ended {
            received.drain(..done);
            self.received = received;
        }
    }

    /// Handles what was received as far as it goes, and then lets `write` encrypt, if the handshake
    /// is far enough. Returns the number of bytes that are needed no more.
    fn process(
        &mut self,
        received: &mut [u8],
        content: &mut dyn FnMut(&[u8]),
        write: &mut dyn FnMut(&mut Writer<'_>, &mut Vec<u8>),
    ) -> (usize, Result<(), Error>) {
        let mut done = 0;
        // rustls asserts that one which has failed is not asked again, but for its last messages.
        let result = loop {
            if self.has_failed {
                break Err(Error::HandshakeNotComplete);
            }
            let rest = received.get_mut(done..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(rest);
            done += discard;
            match state {
                Err(error) => {
                    self.has_failed = true;
                    self.encode_last();
                    break Err(error);
                }
                Ok(ConnectionState::EncodeTlsData(message)) => encode(message, &mut self.unsent),
                // It is with what is to be sent.
                Ok(ConnectionState::TransmitTlsData(messages)) => messages.done(),
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(Ok(record)) = records.next_record() {
                        content(record.payload);
                    }
                }
                Ok(ConnectionState::PeerClosed) => self.server_has_ended = true,
                Ok(ConnectionState::WriteTraffic(mut writer)) => {
                    write(&mut writer, &mut self.unsent);
                    break Ok(());
                }
                Ok(_) => break Ok(()),
            }
        };
        (done, result)
    }

    /// Encodes what a connection that has failed has still to say: the alert that says why.
    fn encode_last(&mut self) {
        while self.connection.wants_write() {
            let UnbufferedStatus { state, .. } = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(message)) = state else { return };
            encode(message, &mut self.unsent);
        }
    }
}

/// Appends a message of the handshake, or an alert.
fn encode(mut message: EncodeTlsData<'_, ClientConnectionData>, out: &mut Vec<u8>) {
    // It has not been encoded before, and there is as much room as it asks for.
    let _ = append(out, 0, |room| message.encode(room).map_err(|error| needed_size(&error)));
}

/// Maps the error of a message that does not fit to that of a record.
fn needed_size(error: &EncodeError) -> EncryptError {
    match error {
        EncodeError::InsufficientSize(size) => EncryptError::InsufficientSize(*size),
        EncodeError::AlreadyEncoded => EncryptError::EncryptExhausted,
    }
}

/// Appends what `put` writes into the room behind `out`: `room_bytes`, or as many as it asks for.
fn append(
    out: &mut Vec<u8>,
    room_bytes: usize,
    mut put: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    let start = out.len();
    out.resize(start + room_bytes, 0);
    let mut result = put(&mut out[start..]);
    if let Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) = result {
        out.resize(start + required_size, 0);
        result = put(&mut out[start..]);
    }
    out.truncate(start + result.as_ref().map_or(0, |bytes| *bytes));
    result.map(|_| ()).map_err(|error| Error::General(error.to_string()))
}

/// Delivers, if anything is still expected; else the connection is of no further use.
fn next(
    action: Action,
    delivery: Delivery<'_>,
    received: &mut dyn FnMut(Delivery<'_>) -> Action,
) -> Action {
    if action == Action::Read { received(delivery) } else { action.and_close() }
}
