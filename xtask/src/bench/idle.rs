//! Idle connections: opened, asked one question so that the server takes them for persistent, and
//! then left alone until they are dropped.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many connections come from one source address; far fewer than it has ports.
const PER_SOURCE: usize = 2_500;

const REPLY_WITHIN: Duration = Duration::from_secs(10);

/// The connections; dropping them closes them.
pub(super) struct Idle {
    connections: Vec<TcpStream>,
}

impl Idle {
    /// Opens `count` connections to `server`, from 127.0.0.2 upwards, and asks for `path`, a file
    /// without content, once on each.
    pub(super) fn open(server: SocketAddr, count: usize, path: &str) -> Result<Self> {
        let SocketAddr::V4(server) = server else { bail!("idle connections are IPv4") };
        let mut connections = Vec::with_capacity(count);
        for nth in 0..count {
            let source = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + nth / PER_SOURCE)?);
            let connection = open_one(source, server, path)
                .with_context(|| format!("idle connection {} of {count}", nth + 1))?;
            connections.push(connection);
        }
        Ok(Self { connections })
    }

    /// How many of them the server has closed meanwhile.
    pub(super) fn lost(&self) -> Result<usize> {
        let mut lost = 0;
        for mut connection in &self.connections {
            connection.set_nonblocking(true)?;
            // An open and silent connection has nothing to read: anything else is its end.
            let read = connection.read(&mut [0]);
            let silent = read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            lost += usize::from(!silent);
        }
        Ok(lost)
    }
}

fn open_one(source: Ipv4Addr, server: SocketAddrV4, path: &str) -> Result<TcpStream> {
    // Not for wrk to inherit: its event loop has no room for descriptors with high numbers.
    let flags = SocketFlags::CLOEXEC;
    let descriptor = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&descriptor, &SocketAddrV4::new(source, 0))?;
    connect(&descriptor, &server)?;
    let mut connection = TcpStream::from(descriptor);
    connection.set_read_timeout(Some(REPLY_WITHIN))?;
    connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: idle\r\n\r\n").as_bytes())?;
    let mut reply = Vec::new();
    let mut buffer = [0; 1024];
    while !reply.ends_with(b"\r\n\r\n") {
        match connection.read(&mut buffer)? {
            0 => bail!("closed after its first request"),
            read => reply.extend_from_slice(buffer.get(..read).unwrap_or_default()),
        }
    }
    if !reply.starts_with(b"HTTP/1.1 200") {
        bail!("refused: {}", String::from_utf8_lossy(&reply).lines().next().unwrap_or_default());
    }
    Ok(connection)
}

/// Raises the number of descriptors this process and its children may have to the hard limit, and
/// returns it; `None` is no limit.
pub(super) fn raise_descriptors() -> Result<Option<u64>> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    fn server(reply: &'static [u8], keep: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut kept = Vec::new();
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                assert!(connection.read(&mut [0; 1024]).unwrap() > 0);
                connection.write_all(reply).unwrap();
                kept.extend(keep.then_some(connection));
            }
        });
        address
    }

    #[test]
    fn connections_are_opened_and_kept() {
        let address = server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true);
        let idle = Idle::open(address, 20, "/empty").unwrap();
        assert_eq!(idle.connections.len(), 20);
        assert_eq!(idle.lost().unwrap(), 0);
        let source = idle.connections[0].local_addr().unwrap().ip();
        assert_eq!(source, Ipv4Addr::new(127, 0, 0, 2));
        let flags = rustix::io::fcntl_getfd(&idle.connections[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_refusal_is_an_error() {
        let address = server(b"HTTP/1.1 503 Busy\r\n\r\n", true);
        let error = Idle::open(address, 1, "/empty").err().unwrap();
        assert!(format!("{error:#}").contains("503 Busy"), "{error:#}");
    }

    #[test]
    fn a_reply_cut_short_is_an_error() {
        let address = server(b"HTTP/1.1 200 OK\r\n", false);
        assert!(Idle::open(address, 1, "/empty").is_err());
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let limit = raise_descriptors().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, limit);
    }
}
