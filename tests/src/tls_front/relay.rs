//! A connection of a front: one thread takes what the client sends, the other what the server does.
//! They share the state of TLS, which is locked while it is used, and so while it writes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use rustls::{HandshakeKind, ServerConfig, ServerConnection};

use super::fault::{Counts, Fault};

/// Bytes read at a time.
const PIECE_BYTES: usize = 16 << 10;

/// A connection between a client, with TLS, and a server.
pub(super) struct Relay {
    client: TcpStream,
    server: TcpStream,
    tls: Mutex<ServerConnection>,
    fault: Fault,
}

impl Relay {
    /// Relays a connection until both sides have ended it.
    pub(super) fn run(
        client: TcpStream,
        server: SocketAddr,
        config: Arc<ServerConfig>,
        fault: Fault,
        counts: &Counts,
    ) {
        let Some(tls) = accept(&client, config, fault, counts) else { return };
        // A server that accepts no more is one that has closed.
        let Ok(server) = TcpStream::connect(server) else { return };
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let relay = Relay { client, server, tls: Mutex::new(tls), fault };
        thread::scope(|scope| {
            scope.spawn(|| relay.upstream());
            relay.downstream(counts);
        });
    }

    /// Passes on what the client sends.
    fn upstream(&self) {
        let mut piece = [0; PIECE_BYTES];
        // What came with the end of the handshake.
        let mut content = self.decrypted(&[]).unwrap_or_default();
        loop {
            if (&self.server).write_all(&content).is_err() {
                return;
            }
            let bytes = (&self.client).read(&mut piece).unwrap_or(0);
            content = match self.decrypted(&piece[..bytes]) {
                Some(content) if bytes > 0 => content,
                _ => {
                    let _ = self.server.shutdown(Shutdown::Write);
                    return;
                }
            };
        }
    }

    /// Returns the content of what the client has sent; `None` if it is not TLS.
    fn decrypted(&self, mut ciphertext: &[u8]) -> Option<Vec<u8>> {
        let (mut tls, mut content) = (self.tls.lock().unwrap(), Vec::new());
        loop {
            let waiting = tls.process_new_packets().ok()?.plaintext_bytes_to_read();
            let from = content.len();
            content.resize(from + waiting, 0);
            tls.reader().read_exact(&mut content[from..]).unwrap();
            if ciphertext.is_empty() || tls.read_tls(&mut ciphertext).ok()? == 0 {
                break;
            }
        }
        // Its answer to an update of keys.
        self.send(&mut tls).then_some(content)
    }

    /// Passes on what the server sends.
    fn downstream(&self, counts: &Counts) {
        let mut piece = [0; PIECE_BYTES];
        loop {
            let read = (&self.server).read(&mut piece);
            let mut tls = self.tls.lock().unwrap();
            match read {
                Ok(0) => {
                    if self.fault != Fault::NoCloseNotify {
                        tls.send_close_notify();
                        self.send(&mut tls);
                    }
                    let _ = self.client.shutdown(Shutdown::Write);
                    return;
                }
                Ok(bytes) => {
                    tls.writer().write_all(&piece[..bytes]).unwrap();
                    let mut goes_on = self.send(&mut tls);
                    if self.fault == Fault::KeyUpdates {
                        counts.key_updates.fetch_add(1, Ordering::Relaxed);
                        tls.refresh_traffic_keys().unwrap();
                        goes_on &= self.send(&mut tls);
                    }
                    if !goes_on {
                        let _ = self.server.shutdown(Shutdown::Both);
                        return;
                    }
                }
                Err(_) => {
                    reset(&self.client);
                    // It wakes the other thread; the reset comes with the close.
                    let _ = self.client.shutdown(Shutdown::Read);
                    return;
                }
            }
        }
    }

    /// Sends what there is to send; returns whether the client takes it.
    fn send(&self, tls: &mut ServerConnection) -> bool {
        while tls.wants_write() {
            if tls.write_tls(&mut &self.client).is_err() {
                return false;
            }
        }
        true
    }
}

/// Makes the server's part of the handshake; `None` if that ends the connection.
fn accept(
    mut client: &TcpStream,
    config: Arc<ServerConfig>,
    fault: Fault,
    counts: &Counts,
) -> Option<ServerConnection> {
    let mut tls = ServerConnection::new(config).unwrap();
    while tls.is_handshaking() {
        if tls.read_tls(&mut client).ok()? == 0 {
            return None;
        }
        let result = tls.process_new_packets();
        match fault {
            Fault::CloseInHandshake => return None,
            Fault::ResetInHandshake => {
                reset(client);
                return None;
            }
            Fault::SilentInHandshake => {
                // Until the client has had enough.
                client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                let _ = client.read(&mut [0]);
                return None;
            }
            Fault::CloseMidHandshake => {
                let mut flight = Vec::new();
                tls.write_tls(&mut flight).unwrap();
                client.write_all(&flight[..flight.len() / 2]).unwrap();
                return None;
            }
            _ => {}
        }
        while tls.wants_write() {
            tls.write_tls(&mut client).ok()?;
        }
        result.ok()?;
    }
    let is_resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
    let count = if is_resumed { &counts.resumed } else { &counts.full };
    count.fetch_add(1, Ordering::Relaxed);
    if fault == Fault::Garbage {
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    }
    Some(tls)
}

/// Makes the end of a connection a reset.
fn reset(client: &TcpStream) {
    sockopt::set_socket_linger(client, Some(Duration::ZERO)).unwrap();
}
