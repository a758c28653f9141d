//! Servers that misbehave on purpose, each in one known way, for the tests of a client.
//!
//! They listen on a free port of 127.0.0.1 and stop when dropped. Each is served by one thread,
//! with any number of connections and a queue of timers. Requests are parsed with weir-http1, which
//! is tested separately.

mod behaviour;
mod connection;
mod script;
mod serve;

use std::io::{ErrorKind, PipeWriter, pipe};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

pub use self::behaviour::Behaviour;
use self::script::Script;
use self::serve::Counters;

/// Listen backlog: more connections than a test opens at a time.
const BACKLOG: i32 = 4096;

/// Time for which a connect must hang for the queue to count as full.
const HANG: Duration = Duration::from_millis(100);

/// A server that misbehaves; stopped when dropped.
pub struct Faulty {
    address: SocketAddr,
    counters: Arc<Counters>,
    /// The thread, and the pipe whose close tells it to stop.
    thread: Option<(PipeWriter, JoinHandle<()>)>,
    /// Sockets that are only kept open.
    _held: Vec<OwnedFd>,
}

impl Faulty {
    /// Starts a server. It listens when this returns, unless its behaviour is not to.
    ///
    /// # Panics
    /// When a socket is not available, or for a mix of what cannot be mixed.
    #[must_use]
    pub fn start(behaviour: Behaviour) -> Faulty {
        match behaviour {
            Behaviour::Refuse => Faulty::deaf(),
            Behaviour::NeverAccepts => Faulty::full(),
            Behaviour::Mixed(behaviours) => Faulty::serve(&behaviours),
            behaviour => Faulty::serve(&[behaviour]),
        }
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.counters.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of complete requests read so far.
    pub fn requests(&self) -> u64 {
        self.counters.requests.load(Ordering::Relaxed)
    }

    /// Reserves a port without listening, so that no other process listens on it either.
    fn deaf() -> Faulty {
        let (socket, address) = bound(false);
        Faulty { address, counters: Arc::default(), thread: None, _held: vec![socket] }
    }

    /// Returns a listener whose queue is filled until a connect hangs: Linux then drops the SYN.
    fn full() -> Faulty {
        let (socket, address) = bound(false);
        rustix::net::listen(&socket, 0).unwrap();
        let mut held = vec![socket];
        loop {
            match TcpStream::connect_timeout(&address, HANG) {
                Ok(stream) => held.push(stream.into()),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    return Faulty { address, counters: Arc::default(), thread: None, _held: held };
                }
            }
        }
    }

    fn serve(behaviours: &[Behaviour]) -> Faulty {
        let scripts: Vec<_> = behaviours.iter().map(Script::of).collect();
        let (socket, address) = bound(scripts.iter().any(|script| !script.reads));
        rustix::net::listen(&socket, BACKLOG).unwrap();
        let (stopped, stop) = pipe().unwrap();
        let counters = Arc::<Counters>::default();
        let shared = Arc::clone(&counters);
        let listener = TcpListener::from(socket);
        let thread = thread::spawn(move || {
            serve::Loop::new(listener, stopped, scripts, shared).unwrap().run().unwrap();
        });
        Faulty { address, counters, thread: Some((stop, thread)), _held: Vec::new() }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let Some((stop, thread)) = self.thread.take() else { return };
        drop(stop);
        let result = thread.join();
        if !thread::panicking() {
            result.unwrap();
        }
    }
}

/// Binds a TCP socket to a free port. If `narrow`, it has the smallest possible receive buffer,
/// which the connections accepted from it inherit (tcp(7)).
fn bound(narrow: bool) -> (OwnedFd, SocketAddr) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::INET;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
    if narrow {
        sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
    }
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::wait::{TIMEOUT, until};
    use crate::{Address, Client, Failure, Reply, request};

    fn start(behaviour: Behaviour) -> (Faulty, Client) {
        let server = Faulty::start(behaviour);
        let client = connect(&server);
        (server, client)
    }

    fn connect(server: &Faulty) -> Client {
        Client::connect(&Address::Tcp(server.address()))
    }

    fn ask(behaviour: Behaviour) -> Result<Reply, Failure> {
        let (_server, mut client) = start(behaviour);
        client.send(request("GET", "/", &[]));
        client.try_reply()
    }

    /// Sends a request and returns all bytes until the server closes.
    fn ask_raw(behaviour: Behaviour) -> String {
        let (_server, mut client) = start(behaviour);
        client.send(request("GET", "/", &["Connection: close"]));
        String::from_utf8(client.rest().unwrap()).unwrap()
    }

    #[test]
    fn a_good_one_keeps_the_connection_until_it_is_asked_not_to() {
        let (server, mut client) = start(Behaviour::Good { body_bytes: 3 });
        assert_eq!(client.get("/").body.len(), 3);
        assert_eq!(client.head_with("/", &[]).expect_field("Content-Length"), "3");
        client.send(request("GET", "/", &[]).repeat(2));
        assert_eq!([client.reply().status, client.reply().status], [200, 200]);
        client.send(request("POST", "/", &["Content-Length: 2"]) + "ab");
        assert_eq!(client.reply().status, 200);
        assert!(client.get_with("/", &["Connection: close"]).lists("Connection", "close"));
        assert!(client.is_closed());
        assert_eq!((server.accepted(), server.requests()), (1, 6));
    }

    #[test]
    fn forms_of_a_good_reply() {
        let body = "x".repeat(Behaviour::BODY_BYTES);
        for (behaviour, front, back) in [
            (Behaviour::GoodOneRequest, "HTTP/1.1 200 OK\r\nConnection: close\r\n", &*body),
            (Behaviour::Http10, "HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n", &body),
            (Behaviour::Chunked, "HTTP/1.1 200 OK\r\n", "x\r\n0\r\n\r\n"),
            (Behaviour::CloseFramed, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", &body),
            (Behaviour::Interim100, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", &body),
        ] {
            let reply = ask_raw(behaviour.clone());
            assert!(reply.starts_with(front) && reply.ends_with(back), "{behaviour:?}: {reply}");
        }
        assert!(ask_raw(Behaviour::Chunked).contains("\r\n\r\n190\r\nx"));
    }

    #[test]
    fn nobody_listens_on_the_port_of_one_that_refuses() {
        let server = Faulty::start(Behaviour::Refuse);
        let error = TcpStream::connect(server.address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_connect_to_a_full_queue_hangs() {
        let server = Faulty::start(Behaviour::NeverAccepts);
        let error = TcpStream::connect_timeout(&server.address(), HANG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn resets_are_resets() {
        let server = Faulty::start(Behaviour::ResetOnAccept);
        let client = Client::connect_with(&Address::Tcp(server.address()), None);
        assert!(client.and_then(|mut client| client.rest()).is_err());
        assert!(matches!(ask(Behaviour::ResetAfterRequest), Err(Failure::Closed(_))));
        let (server, mut client) = start(Behaviour::ResetMidReply);
        client.send(request("GET", "/", &[]));
        assert_eq!(client.rest().unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(server.requests(), 1);
    }

    #[test]
    fn closes_come_where_they_should() {
        let (server, mut client) = start(Behaviour::CloseOnAccept);
        assert_eq!(client.rest().unwrap(), b"");
        assert_eq!((server.accepted(), server.requests()), (1, 0));
        assert_eq!(ask_raw(Behaviour::CloseAfterRequest), "");
        let Err(Failure::Malformed(why)) = ask(Behaviour::CloseMidHead) else { panic!() };
        assert_eq!(why, "the end came inside a head");
        let Err(Failure::Short(reply)) = ask(Behaviour::CloseMidBody) else { panic!() };
        assert_eq!(reply.body.len(), Behaviour::BODY_BYTES / 2);
    }

    #[test]
    fn garbage_is_sent_on_an_open_connection() {
        assert!(matches!(ask(Behaviour::Garbage), Err(Failure::Malformed(_))));
        assert!(ask_raw(Behaviour::WrongLength).contains("Content-Length: 1001\r\n"));
    }

    #[test]
    fn a_silent_one_has_heard() {
        let (server, mut client) = start(Behaviour::Silent);
        client.send(request("GET", "/", &[]).repeat(2));
        until("both are read", || server.requests() == 2);
        drop(server);
        assert!(client.is_closed());
    }

    #[test]
    fn nothing_large_can_be_sent_to_one_that_never_reads() {
        let server = Faulty::start(Behaviour::NeverReads);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let piece = [0; 1 << 16];
        let full = (0..1000).find_map(|_| stream.write(&piece).err()).unwrap();
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn paced_and_late_replies_are_whole() {
        for behaviour in [
            Behaviour::Trickle { bytes_per_s: 200_000 },
            Behaviour::Sleep { ms: 5 },
            Behaviour::Stall { every_ms: 20, length_ms: 10 },
            Behaviour::Stall { every_ms: 5, length_ms: 5 },
        ] {
            let (_server, mut client) = start(behaviour);
            client.send(request("GET", "/", &[]).repeat(3));
            for _ in 0..3 {
                assert_eq!(client.reply().body.len(), Behaviour::BODY_BYTES);
            }
        }
    }

    #[test]
    fn a_trickle_comes_in_pieces() {
        let server = Faulty::start(Behaviour::Trickle { bytes_per_s: 10 });
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(request("GET", "/", &[]).as_bytes()).unwrap();
        let mut piece = [0; 1024];
        assert!(stream.read(&mut piece).unwrap() < 1024);
    }

    #[test]
    fn requests_sleep_together() {
        let server = Faulty::start(Behaviour::Sleep { ms: 200 });
        let mut clients: Vec<_> = (0..200).map(|_| connect(&server)).collect();
        for client in &mut clients {
            client.send(request("GET", "/", &[]));
        }
        until("all are read", || server.requests() == 200);
        // One after the other, the last would come later than a test waits.
        clients.iter_mut().rev().for_each(|client| assert_eq!(client.reply().status, 200));
    }

    #[test]
    fn mixed_ones_take_turns() {
        let behaviours = vec![Behaviour::CloseOnAccept, Behaviour::Good { body_bytes: 1 }];
        let server = Faulty::start(Behaviour::Mixed(behaviours));
        for _ in 0..2 {
            assert!(connect(&server).is_closed());
            assert_eq!(connect(&server).get("/").status, 200);
        }
    }
}
