//! TLS on one connection, over a transport that never waits. A read returns all the plaintext there
//! is, so that none is left behind when the transport has nothing more to report.

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{HandshakeKind, ServerConnection};

/// Maximum number of bytes of plaintext encrypted before what is encrypted is sent: two records. A
/// client that reads nothing costs no more memory.
const CHUNK_BYTES: usize = 32 << 10;

/// Maximum number of reads of the transport in a row that bring no plaintext.
const READS_MAX: usize = 16;

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The server has answered nothing yet, unless it has asked for another hello
    /// (HelloRetryRequest, RFC 8446 section 4.1.4): most of the work is to come.
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

/// Check of a client's certificate that a ticket has brought along: it was valid when that was
/// made, and may have expired since, which rustls does not look at.
#[derive(Debug)]
pub(crate) struct ClientCheck {
    pub(crate) verifier: Arc<dyn ClientCertVerifier>,
    pub(crate) time: Arc<dyn TimeProvider>,
}

impl ClientCheck {
    fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let [certificate, issuers @ ..] = chain else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let now = self.time.current_time().ok_or(rustls::Error::FailedToGetCurrentTime)?;
        self.verifier.verify_client_cert(certificate, issuers, now).map(|_| ())
    }
}

/// The server's end of a TLS connection.
#[derive(Debug)]
pub struct Session {
    conn: ServerConnection,
    /// Check that is still to come if the client resumes a session; `None` if clients need no
    /// certificate.
    check: Option<ClientCheck>,
    handshake: Handshake,
    /// True once the client was asked for another hello.
    has_asked_again: bool,
    /// True before the first byte.
    is_new: bool,
    /// True if the last read has left the transport empty.
    is_drained: bool,
    /// True once the client has said that it sends no more.
    client_has_ended: bool,
    /// True once [`Session::receive`] has returned that end, and nothing was sent since: who waited
    /// for a reply when it was told is to be told again behind that.
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
    pub(crate) fn new(conn: ServerConnection, check: Option<ClientCheck>) -> Self {
        Self {
            conn,
            check,
            handshake: Handshake::Pending,
            has_asked_again: false,
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
        let processed = self.conn.process_new_packets();
        let verified = processed.and_then(|state| self.verify_resumed().map(|()| state));
        let Ok(state) = verified else {
            self.handshake = Handshake::Failed;
            // The alert that says why. It is lost if there is no room for it.
            let _ = self.flush(transport);
            return Err(ErrorKind::InvalidData.into());
        };
        self.client_has_ended = state.peer_has_closed();
        if matches!(self.handshake, Handshake::Pending | Handshake::Answered) {
            self.handshake = match self.conn.handshake_kind() {
                kind if self.conn.is_handshaking() && self.conn.wants_write() => self.answer(kind),
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

    /// Verifies the certificate of a client that resumes a session.
    fn verify_resumed(&mut self) -> Result<(), rustls::Error> {
        if self.conn.handshake_kind() != Some(HandshakeKind::Resumed) {
            return Ok(());
        }
        let Some(check) = self.check.take() else { return Ok(()) };
        let chain = self.conn.peer_certificates().unwrap_or_default();
        // rustls finds nothing wrong, and has no other alert sent.
        check.verify(chain).inspect_err(|_| self.conn.send_close_notify())
    }

    /// Returns how far the handshake has come with what is to be sent now. To ask for another hello
    /// has cost next to nothing, and the answer to that is still to come.
    fn answer(&mut self, kind: Option<HandshakeKind>) -> Handshake {
        let asks_again = kind == Some(HandshakeKind::FullWithHelloRetryRequest);
        match asks_again && !std::mem::replace(&mut self.has_asked_again, true) {
            true => Handshake::Pending,
            false => Handshake::Answered,
        }
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
            self.is_end_told = false;
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::client::{Trust, verifier};
    use crate::identity::Identity;
    use crate::resolver::Certificates;
    use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
    use rustls::crypto::{CryptoProvider, SupportedKxGroup};
    use rustls::pki_types::ServerName;
    use rustls::version::TLS13;
    use rustls::{ClientConfig, ClientConnection, ServerConfig};

    /// Bytes that have arrived at a session, and those that it has sent.
    #[derive(Default)]
    struct Transport {
        arrived: Vec<u8>,
        sent: Vec<u8>,
    }

    impl Read for Transport {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.arrived.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let bytes = self.arrived.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&self.arrived[..bytes]);
            self.arrived.drain(..bytes);
            Ok(bytes)
        }
    }

    impl Write for Transport {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Passes on what a client has to say, and what the session says to that; appends to `received`
    /// what the session receives. Returns whether there was anything.
    fn turn(client: &mut ClientConnection, session: &mut Session, received: &mut Vec<u8>) -> bool {
        let mut transport = Transport::default();
        while client.wants_write() {
            client.write_tls(&mut transport.arrived).unwrap();
        }
        let has_spoken = !transport.arrived.is_empty();
        loop {
            let result = session.receive(&mut transport, received);
            let has_failed = result.is_err_and(|error| error.kind() != ErrorKind::WouldBlock);
            if has_failed || transport.arrived.is_empty() {
                break;
            }
        }
        session.flush(&mut transport).unwrap();
        let mut sent = &transport.sent[..];
        while !sent.is_empty() && client.read_tls(&mut sent).unwrap() > 0 {
            client.process_new_packets().unwrap();
        }
        has_spoken
    }

    /// Has a client and a session talk until the client has nothing to say. Returns what the
    /// session has received.
    pub(crate) fn talk(client: &mut ClientConnection, session: &mut Session) -> Vec<u8> {
        let mut received = Vec::new();
        while turn(client, session, &mut received) {}
        received
    }

    /// Returns a client that trusts whomever it meets, and the session that it is to talk with.
    pub(crate) fn pair(
        here: Arc<CryptoProvider>,
        there: Arc<CryptoProvider>,
    ) -> (ClientConnection, Session) {
        let identity = Identity::make(&["test".to_owned()], &here).unwrap();
        let config = ServerConfig::builder_with_provider(here)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Certificates::new(&[identity])));
        let conn = ServerConnection::new(Arc::new(config)).unwrap();
        let session = Session::new(conn, None);
        let trusting = verifier(&Trust::Any, &there, "").unwrap();
        let config = ClientConfig::builder_with_provider(there)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(trusting)
            .with_no_client_auth();
        let name = ServerName::try_from("test").unwrap();
        (ClientConnection::new(Arc::new(config), name).unwrap(), session)
    }

    #[test]
    fn a_client_that_is_asked_for_another_hello_has_no_answer_yet() {
        let with = |groups: &[&'static dyn SupportedKxGroup]| {
            Arc::new(CryptoProvider { kx_groups: groups.to_vec(), ..default_provider() })
        };
        let here = with(&[kx_group::SECP384R1]);
        let there = with(&[kx_group::X25519, kx_group::SECP384R1]);
        let (mut client, mut session) = pair(here, there);
        let states = [(); 3].map(|()| {
            assert!(turn(&mut client, &mut session, &mut Vec::new()));
            session.handshake()
        });
        assert_eq!(states, [Handshake::Pending, Handshake::Answered, Handshake::Full]);
        let kind = Some(HandshakeKind::FullWithHelloRetryRequest);
        assert_eq!((client.handshake_kind(), session.conn.handshake_kind()), (kind, kind));
    }
}
