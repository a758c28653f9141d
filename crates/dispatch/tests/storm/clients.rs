//! Clients: some stay and expect an answer, some leave in every possible way. All run in the
//! server's thread, so that their actions lie between two of its waits.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use weir_dispatch::readiness::Mechanism;
use weir_sys::socket;

use crate::deadline::TIMEOUT;
use crate::rng::SeededRng;
use crate::server::{GREEDY, MESSAGE, Server, answer};

const COMING: usize = 50;
const BURST: usize = 120;

/// A client that stays. It is a `TcpStream` even for a Unix socket: all operations used are the
/// same.
struct Client {
    stream: TcpStream,
    message: [u8; MESSAGE],
    sent: usize,
    heard: Vec<u8>,
}

pub(crate) struct Crowd {
    clients: Vec<Client>,
    rng: SeededRng,
    address: std::net::SocketAddr,
    unix_address: std::os::unix::net::SocketAddr,
    messages: u32,
}

impl Client {
    fn send(&mut self, upto: usize) {
        self.stream.write_all(&self.message[self.sent..upto]).unwrap();
        self.sent = upto;
    }

    /// Leaves: resets a TCP connection, and loses unread bytes.
    fn reset(self) {
        socket::reset_on_close(self.stream.as_fd());
    }

    /// Reads available bytes.
    fn listen(&mut self) {
        let mut piece = [0; 65536];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => self.heard.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("a client that stayed was let down: {error}"),
            }
        }
    }
}

impl Crowd {
    pub(crate) fn new<M: Mechanism>(server: &Server<M>) -> Self {
        let address = server.tcp.local_addr().unwrap();
        let unix_address = server.unix.local_addr().unwrap();
        Self { clients: Vec::new(), rng: SeededRng(2), address, unix_address, messages: 0 }
    }

    fn connect(&mut self) -> Client {
        let unix = self.rng.below(2) == 0;
        let stream = if unix {
            OwnedFd::from(UnixStream::connect_addr(&self.unix_address).unwrap()).into()
        } else {
            TcpStream::connect(self.address).unwrap()
        };
        stream.set_nonblocking(true).unwrap();
        // Only a Unix peer learns at the same moment that there is space again.
        let greedy = unix && self.rng.below(8) == 0;
        self.messages += 1;
        let mut message = [if greedy { GREEDY } else { b'm' }; MESSAGE];
        message[MESSAGE - 4..].copy_from_slice(&self.messages.to_be_bytes());
        Client { stream, message, sent: 0, heard: Vec::new() }
    }

    /// Connects a wave of clients.
    pub(crate) fn come(&mut self, burst: bool) {
        for _ in 0..if burst { BURST } else { COMING } {
            let mut client = self.connect();
            match self.rng.below(8) {
                0 => client.reset(),
                1 => self.leave_half_way(client),
                2 => {
                    client.send(MESSAGE / 2);
                    drop(client);
                }
                fate => {
                    client.send([0, MESSAGE / 2, MESSAGE, MESSAGE, MESSAGE][fate - 3]);
                    if fate == 7 {
                        client.stream.shutdown(Shutdown::Write).unwrap();
                    }
                    self.clients.push(client);
                }
            }
        }
    }

    fn leave_half_way(&mut self, mut client: Client) {
        client.send(MESSAGE / 2);
        client.reset();
    }

    /// Acts in the middle of the server's turns: some clients continue, some change their mind, and
    /// others come and leave at once, on the numbers just closed.
    pub(crate) fn stir<M: Mechanism>(&mut self, server: &Server<M>) {
        let mut index = 0;
        while index < self.clients.len() {
            let client = &mut self.clients[index];
            client.listen();
            match self.rng.below(6) {
                0 if client.sent < MESSAGE => client.send(MESSAGE),
                1 if !server.answered.contains(&client.message) => {
                    self.clients.swap_remove(index).reset();
                    continue;
                }
                2 if client.heard == answer(&client.message) => {
                    self.clients.swap_remove(index).reset();
                    continue;
                }
                _ => {}
            }
            index += 1;
        }
        for _ in 0..self.rng.below(8) {
            let client = self.connect();
            self.leave_half_way(client);
        }
    }

    pub(crate) fn finish_sending(&mut self) {
        self.clients.iter_mut().for_each(|client| client.send(MESSAGE));
    }

    pub(crate) fn all_answered<M: Mechanism>(&mut self, server: &Server<M>) -> bool {
        self.clients.iter_mut().for_each(Client::listen);
        self.clients.iter().all(|client| server.answered.contains(&client.message))
    }

    /// Reads the answers on their way, and checks that they are the right ones.
    pub(crate) fn read_answers(&mut self) {
        assert!(!self.clients.is_empty(), "nobody stayed");
        for client in &mut self.clients {
            client.stream.set_nonblocking(false).unwrap();
            client.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let expected = answer(&client.message);
            let mut rest = vec![0; expected.len() - client.heard.len()];
            client.stream.read_exact(&mut rest).unwrap();
            client.heard.append(&mut rest);
            assert!(client.heard == expected, "an answer is not the client's own");
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.clients.drain(..).for_each(Client::reset);
    }
}
