//! A server's end of TLS under any bytes, in pieces of any size. The client has no keys, so that no
//! plaintext can come out.

use std::io::{self, ErrorKind, Read, Write};

use weir_tls::{Acceptor, Handshake, Session, Settings};

/// Maximum number of bytes answered to bytes that complete no handshake: a certificate, twice.
const ANSWERED_BYTES_MAX: usize = 16 << 10;

thread_local! {
    static ACCEPTOR: Acceptor = {
        let settings = Settings { self_signed: vec!["localhost".into()], ..Settings::default() };
        Acceptor::new(settings, |path| std::fs::File::open(path)).unwrap()
    };
}

/// A socket that has received some bytes, and takes any.
#[derive(Default)]
struct Transport {
    arrived: Vec<u8>,
    has_ended: bool,
    sent: Vec<u8>,
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.arrived.is_empty() && !self.has_ended {
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

/// Checks the beginning of a connection: how it is split never matters; what comes back is bounded;
/// and nothing is taken for what a client has said.
pub fn tls(data: &[u8]) {
    let whole = receive(data, data.len().max(1));
    for piece in [1, 7, 1000] {
        assert_eq!(receive(data, piece), whole, "in pieces of {piece} bytes");
    }
}

/// Lets a session receive bytes in pieces, and then the end. Returns how far it came.
fn receive(data: &[u8], piece: usize) -> Handshake {
    let mut session = ACCEPTOR.with(|acceptor| acceptor.session().unwrap());
    let mut transport = Transport::default();
    let mut pieces = data.chunks(piece);
    loop {
        match pieces.next() {
            Some(bytes) => transport.arrived.extend_from_slice(bytes),
            None => transport.has_ended = true,
        }
        if read(&mut session, &mut transport) || transport.has_ended {
            break;
        }
    }
    assert!(transport.sent.len() <= ANSWERED_BYTES_MAX);
    match session.handshake() {
        Handshake::Plain => assert!(transport.sent.is_empty() && data[0].is_ascii_uppercase()),
        Handshake::Pending | Handshake::Answered | Handshake::Failed => {}
        Handshake::Full | Handshake::Resumed => panic!("a handshake without keys"),
    }
    session.handshake()
}

/// Reads all that has arrived. Returns whether it is over.
fn read(session: &mut Session, transport: &mut Transport) -> bool {
    let mut plaintext = Vec::new();
    loop {
        let result = session.receive(transport, &mut plaintext);
        assert!(plaintext.is_empty());
        match result {
            Ok(0) => return true,
            Ok(_) => panic!("plaintext without a handshake"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if session.is_drained() {
                    assert!(transport.arrived.is_empty());
                    return false;
                }
            }
            Err(_) => return true,
        }
    }
}
