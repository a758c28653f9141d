//! Connections of a probe. The far ends of the idle ones are held by another process, so that each
//! takes one descriptor of this one. Descriptor numbers are arranged deliberately, because the cost
//! of some mechanisms depends on them.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener, UnixStream};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_sys::{client, socket};

/// Number of sockets that are added and removed, one after the other, in one membership run.
pub(super) const TEMPORARY: usize = 512;

/// Maximum number of other descriptors open in a process, including its mechanism's.
const OTHERS: usize = 32;

/// Connections made before they are accepted: fewer than the listen backlog of the standard
/// library.
const BATCH: usize = 100;

/// Connections per source address: fewer than half its ports, because the kernel searches long for
/// a free port when every other one is taken.
const PER_SOURCE: usize = 10_000;

/// Socket type of a held connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP over the loopback.
    Tcp,
    /// A Unix stream socket.
    Unix,
}

/// Address at which another process of this machine finds a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RendezvousAddress {
    Tcp(SocketAddr),
    /// An abstract name: unix(7).
    Unix(String),
}

impl fmt::Display for RendezvousAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(name) => write!(f, "unix:{name}"),
        }
    }
}

impl FromStr for RendezvousAddress {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        match text.split_once(':') {
            Some(("tcp", address)) => address.parse().map(Self::Tcp).map_err(io::Error::other),
            Some(("unix", name)) => Ok(Self::Unix(name.to_owned())),
            _ => Err(io::Error::other("no place of a probe")),
        }
    }
}

impl RendezvousAddress {
    /// Starts the `nth` connection, which will be reset on close, so that no port stays in
    /// TIME_WAIT. It may not be established yet, but will be: the listener has space for it.
    fn connect(&self, nth: usize) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(address) => {
                let conn = client::stream(address)?;
                client::bind_source(conn.as_fd(), source(nth))?;
                // Otherwise a byte would wait until the preceding one is acknowledged.
                socket::set_nodelay(conn.as_fd());
                socket::reset_on_close(conn.as_fd());
                client::connect(conn.as_fd(), address)?;
                Ok(conn)
            }
            Self::Unix(name) => {
                UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?).map(OwnedFd::from)
            }
        }
    }
}

/// Source address of a connection.
fn source(nth: usize) -> IpAddr {
    let host = (2 + nth / PER_SOURCE) as u32;
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 0).to_bits() | host & 0x00ff_ffff).into()
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listener at which both ends of connections meet.
#[derive(Debug)]
pub struct Rendezvous {
    listener: Listener,
    place: RendezvousAddress,
}

impl Rendezvous {
    /// Opens a listener at a free loopback port, or under a unique abstract name.
    ///
    /// # Errors
    /// As socket(2), bind(2) and listen(2).
    pub fn open(kind: Kind) -> io::Result<Self> {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        match kind {
            Kind::Tcp => {
                let listener = TcpListener::bind(("127.0.0.1", 0))?;
                let place = RendezvousAddress::Tcp(listener.local_addr()?);
                Ok(Self { listener: Listener::Tcp(listener), place })
            }
            Kind::Unix => {
                let number = OPENED.fetch_add(1, Ordering::Relaxed);
                let name = format!("weir-probe-{}-{number}", std::process::id());
                let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?;
                Ok(Self {
                    listener: Listener::Unix(listener),
                    place: RendezvousAddress::Unix(name),
                })
            }
        }
    }

    /// Address of the listener, as an argument for [`hold`].
    pub fn place(&self) -> String {
        self.place.to_string()
    }

    fn accept(&self) -> io::Result<OwnedFd> {
        let conn: OwnedFd = match &self.listener {
            Listener::Tcp(listener) => listener.accept()?.0.into(),
            Listener::Unix(listener) => listener.accept()?.0.into(),
        };
        socket::set_nonblocking(conn.as_fd())?;
        Ok(conn)
    }

    /// Creates connections with both ends in this process.
    pub(super) fn pairs(&self, count: usize) -> io::Result<Vec<Pair>> {
        let pair = |_| {
            let far = self.place.connect(0)?;
            Ok(Pair { near: self.accept()?, far })
        };
        (0..count).map(pair).collect()
    }
}

/// A connection with both ends in this process.
#[derive(Debug)]
pub(super) struct Pair {
    /// The end that may become a member; it never blocks.
    pub near: OwnedFd,
    /// The other end.
    pub far: OwnedFd,
}

/// Holds the far ends of connections to `place`. For each line of `orders`, a number, makes that
/// many more connections and writes the total to `answers`. Returns at the end of `orders`, and
/// closes all connections.
///
/// # Errors
/// A `place` that does not come from [`Rendezvous::place`], or an order that is not a number; as
/// connect(2); those of reading `orders` and writing `answers`.
pub fn hold(place: &str, orders: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    let place: RendezvousAddress = place.parse()?;
    let mut held = Vec::new();
    for order in orders.lines() {
        let count: usize = order?.trim().parse().map_err(io::Error::other)?;
        for _ in 0..count {
            held.push(place.connect(1 + held.len())?);
        }
        writeln!(answers, "{}", held.len())?;
        answers.flush()?;
    }
    Ok(())
}

/// Creates sockets to be added as members and closed. They have no peer, because making and ending
/// a connection takes far longer than the operation measured.
///
/// # Errors
/// As socket(2).
pub(super) fn temporary() -> io::Result<Vec<OwnedFd>> {
    let socket = |_| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    (0..TEMPORARY).map(socket).collect()
}

/// The connections of a plan, whose far ends another process holds.
#[derive(Debug)]
pub struct ConnectionPool {
    rendezvous: Rendezvous,
    /// In the order of their descriptor numbers, except those displaced during a cell.
    held: Vec<OwnedFd>,
}

/// Number of connections in a pool for the given numbers of idle and active members.
pub(super) fn connections(idle: usize, active: usize) -> usize {
    idle + active
}

/// Number of descriptors that a process needs besides its idle members: both ends of the active
/// connections and of the control connections, duplicates while some are moved, and temporary
/// members.
pub(super) fn other_descriptors(active: usize) -> usize {
    connections(0, active) + 6 * active + TEMPORARY + OTHERS
}

impl ConnectionPool {
    /// Orders `count` connections to `rendezvous` from a [`hold`] that reads `orders` and writes
    /// `answers`.
    ///
    /// # Errors
    /// UnexpectedEof when the holder has gone; as accept(2).
    pub fn fill(
        rendezvous: Rendezvous,
        count: usize,
        mut orders: impl Write,
        mut answers: impl BufRead,
    ) -> io::Result<Self> {
        let mut held = Vec::with_capacity(count);
        let mut line = String::new();
        while held.len() < count {
            let wanted = BATCH.min(count - held.len());
            writeln!(orders, "{wanted}")?;
            orders.flush()?;
            line.clear();
            if answers.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for _ in 0..wanted {
                held.push(rendezvous.accept()?);
            }
        }
        Ok(Self { rendezvous, held })
    }

    /// Lays out a cell. The descriptor numbers of the active members lie in the middle of those of
    /// the idle ones, and all together are as low as possible.
    ///
    /// # Errors
    /// EMFILE; InvalidInput when the pool has too few connections; the errors of making new ones.
    pub(super) fn set(&mut self, idle: usize, active: usize) -> io::Result<Set<'_>> {
        if self.held.len() < connections(idle, active) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let unwatched = self.rendezvous.pairs(active)?;
        let mut pairs = self.rendezvous.pairs(active)?;
        let middle = idle / 2;
        move_all(self.held.iter_mut().skip(middle).take(active))?;
        move_all(pairs.iter_mut().map(|pair| &mut pair.near))?;
        Ok(Set { pool: self, pairs, unwatched, middle, idle })
    }
}

/// Moves each descriptor to the lowest number that was free before any of them moved.
fn move_all<'a>(fds: impl Iterator<Item = &'a mut OwnedFd>) -> io::Result<()> {
    let mut fds: Vec<&mut OwnedFd> = fds.collect();
    let moved: Vec<OwnedFd> = fds.iter().map(|fd| fd.try_clone()).collect::<io::Result<_>>()?;
    for (fd, moved) in fds.iter_mut().zip(moved) {
        **fd = moved;
    }
    Ok(())
}

/// The connections of a cell. On drop they return to their places.
pub(super) struct Set<'a> {
    pool: &'a mut ConnectionPool,
    /// Connections of the active members.
    pub pairs: Vec<Pair>,
    /// Control connections, as many, which are never members.
    pub unwatched: Vec<Pair>,
    middle: usize,
    idle: usize,
}

impl Set<'_> {
    /// The members in the order of their descriptors: half of the idle ones, the active ones, the
    /// rest.
    pub(super) fn members(&self) -> impl Iterator<Item = &OwnedFd> {
        let above = self.middle + self.pairs.len();
        let held = &self.pool.held;
        let below = held.iter().take(self.middle);
        let active = self.pairs.iter().map(|pair| &pair.near);
        below.chain(active).chain(held.iter().skip(above).take(self.idle - self.middle))
    }

    /// Index of the first active member among the members.
    #[cfg(test)]
    pub(super) fn first_active(&self) -> usize {
        self.middle
    }
}

impl Drop for Set<'_> {
    fn drop(&mut self) {
        let active = self.pairs.len();
        self.pairs.clear();
        // There is space: as many descriptors were just closed.
        let _ = move_all(self.pool.held.iter_mut().skip(self.middle).take(active));
    }
}
