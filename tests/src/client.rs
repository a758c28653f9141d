//! A blocking HTTP/1.1 client for tests: sends arbitrary bytes and parses replies strictly. Never
//! repairs, retries or redirects.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustls::ClientConnection;
use rustls::client::ClientConfig;

use weir_http1::{Body, Framing};

use crate::wait::TIMEOUT;
use crate::{Address, Reply, tls};

/// Reason for the lack of a complete reply.
#[derive(Debug)]
pub enum Failure {
    /// The connection ended before the first byte of a reply: by end of file, or by this error.
    Closed(String),
    /// The connection ended inside the body: the head, and the body as far as it arrived.
    Short(Reply),
    /// The reply is not HTTP, or ended inside its head.
    Malformed(String),
    /// Nothing arrived within the timeout of a test.
    Silence,
}

/// A connection.
pub struct Client {
    /// A `TcpStream` even for a Unix socket: reads, writes, timeouts and shutdown are the same.
    stream: TcpStream,
    /// TLS on the stream, if it is to have any.
    tls: Option<Box<ClientConnection>>,
    unread: Vec<u8>,
}

/// Returns a request without a body; `fields` are lines such as `Range: bytes=0-1`.
pub fn request(method: &str, target: &str, fields: &[&str]) -> String {
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: test.example\r\n");
    for field in fields {
        request.push_str(field);
        request.push_str("\r\n");
    }
    request + "\r\n"
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// When no server listens at the address.
    pub fn connect(address: &Address) -> Client {
        Client::connect_with(address, None).unwrap()
    }

    /// Connects with a receive buffer as small as the kernel allows, so that a server soon has to
    /// wait for this client.
    pub fn connect_narrow(address: &Address) -> Client {
        Client::connect_with(address, Some(4096)).unwrap()
    }

    /// Connects. `receive_buffer` is in bytes (SO_RCVBUF, socket(7)).
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn connect_with(address: &Address, receive_buffer: Option<usize>) -> io::Result<Client> {
        let socket = |family| -> io::Result<OwnedFd> {
            // Not to be inherited by a server that another test starts meanwhile.
            let flags = SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            if let Some(size) = receive_buffer {
                sockopt::set_socket_recv_buffer_size(&socket, size)?;
            }
            Ok(socket)
        };
        let socket = match address {
            Address::Tcp(address) => connect_tcp(socket(family_of(address))?, address)?,
            Address::Unix(path) => {
                let socket = socket(AddressFamily::UNIX)?;
                rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
                socket
            }
        };
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Client { stream, tls: None, unread: Vec::new() })
    }

    /// Connects, and speaks TLS with the server of this name. The handshake begins with what is
    /// sent first.
    pub fn connect_tls(address: &Address, config: &Arc<ClientConfig>, name: &str) -> Client {
        Client::connect(address).with_tls(tls::client(config, name))
    }

    /// Returns the client with TLS on its connection.
    pub fn with_tls(self, tls: ClientConnection) -> Client {
        Client { tls: Some(Box::new(tls)), ..self }
    }

    /// Makes the TLS handshake.
    ///
    /// # Errors
    /// The server has refused it, or the client does.
    pub fn handshake(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.is_handshaking() {
            tls.complete_io(&mut self.stream)?;
        }
        Ok(())
    }

    /// Returns the state of TLS.
    ///
    /// # Panics
    /// Without TLS.
    pub fn tls(&mut self) -> &mut ClientConnection {
        self.tls.as_mut().expect("a connection with TLS")
    }

    /// Sends the bytes as they are, whether there is TLS or not.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Says that nothing follows, by the word that TLS has for it.
    pub fn finish_tls(&mut self) {
        self.tls().send_close_notify();
        let (tls, stream) = (self.tls.as_mut().expect("a connection with TLS"), &mut self.stream);
        while tls.wants_write() {
            tls.write_tls(stream).unwrap();
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => self.stream.write_all(bytes),
            Some(tls) => {
                let mut stream = rustls::Stream::new(tls.as_mut(), &mut self.stream);
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
        }
    }

    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.read(piece),
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).read(piece),
        }
    }

    /// Returns a second handle of the connection, to send on while this one reads.
    ///
    /// # Panics
    /// For lack of descriptors.
    pub fn another_end(&self) -> Client {
        Client { stream: self.stream.try_clone().unwrap(), tls: None, unread: Vec::new() }
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends `bytes` to a server that may refuse to read them all.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.write_all(bytes.as_ref())
    }

    /// Sends a GET on this connection and returns the reply.
    pub fn get(&mut self, target: &str) -> Reply {
        self.get_with(target, &[])
    }

    /// Sends a GET with fields on this connection and returns the reply.
    pub fn get_with(&mut self, target: &str, fields: &[&str]) -> Reply {
        self.send(request("GET", target, fields));
        self.reply()
    }

    /// Sends a HEAD with fields on this connection and returns the reply.
    pub fn head_with(&mut self, target: &str, fields: &[&str]) -> Reply {
        self.send(request("HEAD", target, fields));
        self.head().unwrap()
    }

    /// Reads the next reply, to anything but HEAD.
    ///
    /// # Panics
    /// When there is no complete and correct reply.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().unwrap()
    }

    /// Reads the next reply, to anything but HEAD.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn try_reply(&mut self) -> Result<Reply, Failure> {
        let reply = self.head()?;
        self.body(reply)
    }

    /// Reads the next reply that is not an interim one, to anything but HEAD.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn try_reply_after_interim(&mut self) -> Result<Reply, Failure> {
        loop {
            let reply = self.head()?;
            if !(100..200).contains(&reply.status) {
                return self.body(reply);
            }
        }
    }

    /// Reads the head of the next reply. After HEAD that is all of it.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn head(&mut self) -> Result<Reply, Failure> {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            match self.read_more() {
                Ok(0) if self.unread.is_empty() => {
                    return Err(Failure::Closed("end of file".to_owned()));
                }
                Ok(0) => return Err(Failure::Malformed("the end came inside a head".to_owned())),
                Ok(_) => (),
                Err(error) => return Err(failure(&error)),
            }
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        Reply::parse_head(&head).map_err(Failure::Malformed)
    }

    /// Reads the rest of a reply whose head has been read.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn body(&mut self, mut reply: Reply) -> Result<Reply, Failure> {
        if reply.field("Transfer-Encoding") == Some("chunked") && !reply.is_bodiless() {
            return self.chunks(reply);
        }
        let length = reply.content_length().map_err(Failure::Malformed)?;
        if reply.is_bodiless() {
            return Ok(reply);
        }
        let Some(length) = length else {
            return Err(Failure::Malformed("no Content-Length".to_owned()));
        };
        while self.unread.len() < length {
            match self.read_more() {
                Ok(0) => return Err(self.cut_short(reply)),
                Ok(_) => (),
                Err(error) if is_silence(&error) => return Err(Failure::Silence),
                Err(_) => return Err(self.cut_short(reply)),
            }
        }
        let next = self.unread.split_off(length);
        reply.body = std::mem::replace(&mut self.unread, next);
        Ok(reply)
    }

    /// Reads chunks up to the last one, as a proxy sends them.
    fn chunks(&mut self, mut reply: Reply) -> Result<Reply, Failure> {
        let (mut body, mut trailers) = (Body::new(Framing::Chunked), Vec::new());
        loop {
            let piece = body
                .next_piece(&self.unread, &mut trailers)
                .map_err(|error| Failure::Malformed(error.why.to_owned()))?;
            reply.body.extend_from_slice(&self.unread[piece.data]);
            self.unread.drain(..piece.consumed);
            if piece.done {
                return Ok(reply);
            }
            if piece.consumed == 0 && !matches!(self.read_more(), Ok(1..)) {
                return Err(self.cut_short(reply));
            }
        }
    }

    /// Reads up to `count` more bytes, `piece` bytes at a time with `pause` between, and keeps
    /// them for [`Client::body`]. Returns whether the connection is still open.
    pub fn read_slowly(&mut self, count: usize, piece: usize, pause: Duration) -> bool {
        let mut bytes = vec![0; piece];
        let goal = self.unread.len() + count;
        while self.unread.len() < goal {
            match self.read(&mut bytes) {
                Ok(n @ 1..) => self.unread.extend_from_slice(&bytes[..n]),
                _ => return false,
            }
            sleep(pause);
        }
        true
    }

    /// Sends `bytes` one at a time, `pause` apart, until all are sent or the server has ended the
    /// connection or replied. Returns whether all were sent.
    pub fn trickle(&mut self, bytes: &[u8], pause: Duration) -> bool {
        self.stream.set_read_timeout(Some(pause)).unwrap();
        let ended = |client: &mut Client| match client.read_more() {
            Ok(_) => true,
            Err(error) => !is_silence(&error),
        };
        let sent = bytes.iter().all(|&byte| self.try_send([byte]).is_ok() && !ended(self));
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        sent
    }

    /// Counts the replies that have begun to arrive and were not taken; does not wait for more.
    pub fn replies_there(&mut self) -> usize {
        self.stream.set_nonblocking(true).unwrap();
        while self.read_more().is_ok_and(|count| count > 0) {}
        self.stream.set_nonblocking(false).unwrap();
        let line = b"HTTP/1.1 ";
        self.unread.windows(line.len()).filter(|bytes| bytes == line).count()
    }

    /// Reads to the end of the connection and returns the bytes after the last reply.
    ///
    /// # Errors
    /// Those of read(2), including a reset and a timeout.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.read_more()? > 0 {}
        Ok(std::mem::take(&mut self.unread))
    }

    /// Returns whether the server ends the connection, by FIN or by reset, without another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.rest() {
            Ok(rest) => rest.is_empty(),
            Err(error) => self.unread.is_empty() && !is_silence(&error),
        }
    }

    /// Returns whether the server ends the connection, whatever it sends before.
    pub fn ends(&mut self) -> bool {
        match self.rest() {
            Ok(_) => true,
            Err(error) => !is_silence(&error),
        }
    }

    /// Shuts down the sending direction, unless a reset has ended it already.
    pub fn finish_sending(&self) {
        if let Err(error) = self.stream.shutdown(Shutdown::Write) {
            assert_eq!(error.kind(), ErrorKind::NotConnected);
        }
    }

    /// Sends all of `bytes` and shuts down the sending direction, in one segment if that has room
    /// (TCP_CORK, tcp(7)): the server learns of both at the same time.
    pub fn send_last(&mut self, bytes: impl AsRef<[u8]>) {
        sockopt::set_tcp_cork(&self.stream, true).unwrap();
        self.send(bytes);
        self.finish_sending();
    }

    /// Turns off Nagle's algorithm: each `send` is a segment of its own.
    pub fn send_at_once(&self) {
        self.stream.set_nodelay(true).unwrap();
    }

    /// Ends the connection with a reset instead of a FIN (SO_LINGER with 0 s, socket(7)).
    pub fn reset(self) {
        sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    fn read_more(&mut self) -> io::Result<usize> {
        let mut piece = [0; 65536];
        let count = self.read(&mut piece)?;
        self.unread.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    fn cut_short(&mut self, mut reply: Reply) -> Failure {
        reply.body = std::mem::take(&mut self.unread);
        Failure::Short(reply)
    }
}

fn connect_tcp(socket: OwnedFd, address: &SocketAddr) -> io::Result<OwnedFd> {
    rustix::net::connect(&socket, address)?;
    Ok(socket)
}

fn family_of(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn failure(error: &io::Error) -> Failure {
    if is_silence(error) { Failure::Silence } else { Failure::Closed(error.to_string()) }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
