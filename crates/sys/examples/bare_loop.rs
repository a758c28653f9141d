//! The performance floor: a loop that only accepts, reads, writes a fixed reply and closes, on
//! epoll, through the same system calls as the server. It has no parser, files, timers or limits.
//! Any further cost of the server is due to its work; this loop is not fit for use.
//!
//! `bare_loop --listen ADDR --reply BYTES [--eager] [--silent accept|reply]`: BYTES is the length
//! of the body; `--eager` reads right after the accept and registers a connection with epoll only
//! if it had no bytes; `--silent` makes a server that never accepts, or reads and never replies,
//! for tests of clients.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use weir_sys::epoll::{self, EventFlags};
use weir_sys::socket;

const LISTENER: u64 = u64::MAX;

struct Bare {
    epoll: OwnedFd,
    listener: OwnedFd,
    /// Replies for a connection that is kept open, and for one that is closed.
    replies: [Vec<u8>; 2],
    eager: bool,
    silent: Silent,
    /// Open connections, by descriptor.
    conns: Vec<Option<Conn>>,
    buffer: Vec<u8>,
}

/// The part of its work that the loop leaves undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Silent {
    Nothing,
    Accept,
    Reply,
}

struct Conn {
    fd: OwnedFd,
    /// Bytes of the reply still to be written.
    left: usize,
    /// True if the request was the last of its connection.
    last: bool,
}

fn main() -> ExitCode {
    match arguments().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bare_loop: {error}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    address: SocketAddr,
    body: usize,
    eager: bool,
    silent: Silent,
}

fn arguments() -> io::Result<Arguments> {
    let usage = || {
        io::Error::other(
            "usage: bare_loop --listen ADDR --reply BYTES [--eager] [--silent accept|reply]",
        )
    };
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)).map(String::as_str).ok_or_else(usage)
    };
    let address = value("--listen")?.parse().map_err(|_| usage())?;
    let body = value("--reply")?.parse().map_err(|_| usage())?;
    let silent = match value("--silent") {
        Err(_) => Silent::Nothing,
        Ok("accept") => Silent::Accept,
        Ok("reply") => Silent::Reply,
        Ok(_) => return Err(usage()),
    };
    let eager = args.iter().any(|arg| arg == "--eager");
    Ok(Arguments { address, body, eager, silent })
}

fn run(Arguments { address, body, eager, silent }: Arguments) -> io::Result<()> {
    let listener = socket::bind_tcp(address, false)?;
    socket::listen(listener.as_fd(), 4096)?;
    let epoll = epoll::create()?;
    if silent != Silent::Accept {
        epoll::add(epoll.as_fd(), listener.as_fd(), LISTENER, EventFlags::IN)?;
    }
    let replies = ["keep-alive", "close"].map(|connection| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: {connection}\r\nContent-Length: {body}\r\n\r\n"
        );
        let mut reply = head.into_bytes();
        reply.resize(reply.len() + body, b'x');
        reply
    });
    let buffer = Vec::with_capacity(16 << 10);
    let mut bare = Bare { epoll, listener, replies, eager, silent, conns: Vec::new(), buffer };
    let mut events = Vec::with_capacity(1024);
    loop {
        epoll::wait(bare.epoll.as_fd(), &mut events, None)?;
        for event in &events {
            match event.data.u64() {
                LISTENER => bare.accept_all()?,
                number => {
                    bare.answer(number as usize);
                }
            }
        }
    }
}

impl Bare {
    fn accept_all(&mut self) -> io::Result<()> {
        while let Ok((fd, _)) = socket::accept(self.listener.as_fd()) {
            let number = fd.as_raw_fd() as usize;
            if number >= self.conns.len() {
                self.conns.resize_with(number + 1, || None);
            }
            self.conns[number] = Some(Conn { fd, left: 0, last: false });
            if !self.eager || self.answer(number) {
                self.watch(number)?;
            }
        }
        Ok(())
    }

    fn watch(&self, number: usize) -> io::Result<()> {
        let Some(Some(conn)) = self.conns.get(number) else { return Ok(()) };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(self.epoll.as_fd(), conn.fd.as_fd(), number as u64, flags)
    }

    /// Reads a request and writes the reply; returns whether the connection is still open.
    fn answer(&mut self, number: usize) -> bool {
        let Some(Some(conn)) = self.conns.get_mut(number) else { return false };
        let open = match self.silent {
            Silent::Reply => read_all(conn, &mut self.buffer),
            _ => converse(conn, &mut self.buffer, &self.replies),
        };
        if !open && let Some(conn) = self.conns[number].take() {
            socket::close(conn.fd);
        }
        open
    }
}

/// Reads what is there; returns whether the connection is still open.
fn read_all(conn: &Conn, buffer: &mut Vec<u8>) -> bool {
    loop {
        buffer.clear();
        match socket::read(conn.fd.as_fd(), buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

fn converse(conn: &mut Conn, buffer: &mut Vec<u8>, replies: &[Vec<u8>; 2]) -> bool {
    if conn.left == 0 {
        buffer.clear();
        match socket::read(conn.fd.as_fd(), buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
        conn.last = buffer.windows(17).any(|part| part == b"Connection: close");
        conn.left = replies[usize::from(conn.last)].len();
    }
    let reply = &replies[usize::from(conn.last)];
    while conn.left > 0 {
        match socket::write(conn.fd.as_fd(), &reply[reply.len() - conn.left..], false) {
            Ok(bytes) => conn.left -= bytes,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    !conn.last
}
