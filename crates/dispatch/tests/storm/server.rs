//! The smallest server over a mechanism: a message of eight bytes is its own answer, once or many
//! times. It keeps the readiness contract, and checks that each reported token is a member.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weir_dispatch::readiness::settings::Settings;
use weir_dispatch::readiness::{Interest, Mechanism, Token};
use weir_sys::socket;

use crate::rng::SeededRng;

pub(crate) const MESSAGE: usize = 8;
/// First byte of a message that is answered at length.
pub(crate) const GREEDY: u8 = b'g';
pub(crate) const GREEDY_TIMES: usize = 50_000;

const LISTENERS: usize = 2;
/// More than connect at once.
const QUEUE_MAX: i32 = 1024;

pub(crate) struct Server<M> {
    mechanism: M,
    pub(crate) tcp: TcpListener,
    pub(crate) unix: UnixListener,
    conns: Vec<Option<Conn>>,
    generations: Vec<u32>,
    /// Messages that were answered completely.
    pub(crate) answered: HashSet<[u8; MESSAGE]>,
    rng: SeededRng,
}

struct Conn {
    fd: OwnedFd,
    token: Token,
    interest: Option<Interest>,
    heard: Vec<u8>,
    to_say: Vec<u8>,
    said: usize,
}

/// Outcome of a connection's turn.
enum Next {
    Wait(Interest),
    Close,
}

impl<M: Mechanism> Server<M> {
    pub(crate) fn open() -> Self {
        let mut mechanism = M::open(&Settings::default()).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind_addr(&unused_address()).unwrap();
        for (slot, fd) in (0..).zip([tcp.as_fd(), unix.as_fd()]) {
            socket::set_nonblocking(fd).unwrap();
            socket::listen(fd, QUEUE_MAX).unwrap();
            mechanism.add(fd, Token { slot, generation: 0 }, Interest::Accept).unwrap();
        }
        let (conns, generations) = (Vec::new(), Vec::new());
        let (answered, rng) = (HashSet::new(), SeededRng(1));
        Self { mechanism, tcp, unix, conns, generations, answered, rng }
    }

    pub(crate) fn has_connections(&self) -> bool {
        self.conns.iter().any(Option::is_some)
    }

    /// Waits once, and gives each reported member a turn; calls `between` in the middle of them.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>, mut between: impl FnMut(&mut Self)) {
        let mut ready = Vec::new();
        self.mechanism.wait(timeout, &mut ready).unwrap();
        let reported: HashSet<Token> = ready.iter().copied().collect();
        assert_eq!(reported.len(), ready.len(), "somebody was reported twice in one wait");
        for token in &ready {
            assert!(self.is_present(*token), "{token:?} was reported, but has gone");
        }
        let middle = ready.len() / 2;
        for (index, token) in ready.into_iter().enumerate() {
            if index == middle {
                between(self);
            }
            if (token.slot as usize) < LISTENERS {
                self.accept(token);
            } else if self.is_present(token) {
                self.serve(token);
            }
        }
    }

    fn place(token: Token) -> usize {
        token.slot as usize - LISTENERS
    }

    fn is_present(&self, token: Token) -> bool {
        let is_conn = || {
            let conn = self.conns.get(Self::place(token)).and_then(Option::as_ref);
            conn.is_some_and(|conn| conn.token == token && conn.interest.is_some())
        };
        (token.slot as usize) < LISTENERS && token.generation == 0 || is_conn()
    }

    /// Accepts some of the queued connections, or all.
    fn accept(&mut self, token: Token) {
        for _ in 0..1 + self.rng.below(40) {
            let listener = if token.slot == 0 { self.tcp.as_fd() } else { self.unix.as_fd() };
            match socket::accept(listener) {
                Ok((fd, _)) => self.begin(fd),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.mechanism.blocked(token, Interest::Accept);
                }
                Err(error) => assert!(socket::is_lost_connection(&error), "{error}"),
            }
        }
    }

    /// Takes a connection over. It becomes a member now, or when it first has to wait.
    fn begin(&mut self, fd: OwnedFd) {
        let free = self.conns.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.conns.push(None);
            self.generations.push(0);
            self.conns.len() - 1
        });
        self.generations[place] += 1;
        let slot = (place + LISTENERS) as u32;
        let token = Token { slot, generation: self.generations[place] };
        let (heard, to_say) = (Vec::new(), Vec::new());
        let conn = Conn { fd, token, interest: None, heard, to_say, said: 0 };
        self.conns[place] = Some(conn);
        if self.rng.below(2) == 0 {
            self.watch(place, Interest::Read);
        } else {
            self.serve(token);
        }
    }

    fn watch(&mut self, place: usize, wanted: Interest) {
        let Some(conn) = &mut self.conns[place] else { return };
        let (fd, token) = (conn.fd.as_fd(), conn.token);
        match conn.interest.replace(wanted) {
            None => self.mechanism.add(fd, token, wanted).unwrap(),
            Some(before) if before == wanted => {}
            Some(_) => self.mechanism.change(fd, token, wanted).unwrap(),
        }
    }

    fn serve(&mut self, token: Token) {
        let place = Self::place(token);
        // A member whose turn is put off must be reported again.
        let watched = self.conns[place].as_ref().is_some_and(|conn| conn.interest.is_some());
        if watched && self.rng.below(8) == 0 {
            return;
        }
        match self.proceed(place) {
            Next::Wait(interest) => self.watch(place, interest),
            Next::Close => self.close(place),
        }
    }

    fn proceed(&mut self, place: usize) -> Next {
        let Some(conn) = &mut self.conns[place] else { return Next::Close };
        let asked = 1 + self.rng.below(12);
        let mut piece = vec![0; asked];
        while conn.to_say.is_empty() {
            let count = match socket::read_slice(conn.fd.as_fd(), &mut piece) {
                Ok(0) => return Next::Close,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(_) => return Next::Close,
            };
            conn.heard.extend_from_slice(&piece[..count]);
            if count < asked && conn.interest.is_some() {
                self.mechanism.blocked(conn.token, Interest::Read);
            }
            if conn.heard.len() >= MESSAGE {
                conn.to_say = answer(&conn.heard[..MESSAGE]);
            } else if count < asked {
                return Next::Wait(Interest::Read);
            }
        }
        self.say(place)
    }

    fn say(&mut self, place: usize) -> Next {
        let Some(conn) = &mut self.conns[place] else { return Next::Close };
        let left = &conn.to_say[conn.said..];
        let (asked, written) = (left.len(), socket::write(conn.fd.as_fd(), left, false));
        let count = match written {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return Next::Close,
        };
        conn.said += count;
        if count < asked {
            if conn.interest.is_some() {
                self.mechanism.blocked(conn.token, Interest::Write);
            }
            return Next::Wait(Interest::Write);
        }
        let message: Vec<u8> = conn.heard.drain(..MESSAGE).collect();
        self.answered.insert(message.try_into().unwrap());
        (conn.to_say, conn.said) = (Vec::new(), 0);
        // Bytes beyond the message are handled in the next turn, so there must be none.
        assert!(conn.heard.is_empty(), "a client sends one message");
        Next::Wait(Interest::Read)
    }

    fn close(&mut self, place: usize) {
        let Some(conn) = self.conns[place].take() else { return };
        if conn.interest.is_some() {
            self.mechanism.remove(conn.fd.as_fd(), conn.token).unwrap();
        }
    }
}

/// Returns an abstract name that is not in use.
fn unused_address() -> SocketAddr {
    static SERVERS: AtomicU32 = AtomicU32::new(0);
    let number = SERVERS.fetch_add(1, Ordering::Relaxed);
    let name = format!("weir-storm-{}-{number}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

/// Returns the answer to a message.
pub(crate) fn answer(message: &[u8]) -> Vec<u8> {
    let times = if message[0] == GREEDY { GREEDY_TIMES } else { 1 };
    message.repeat(times)
}
