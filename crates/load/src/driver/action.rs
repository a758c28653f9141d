//! The operations that an exchange wants from its worker, and the events it is told of.

use std::io;

use weir_sys::is_exhaustion;

use crate::measure::ErrorKind;

/// Operation that an exchange wants from its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Open a socket and begin to connect it: `Exchange::opened` or `Exchange::open_failed`.
    Connect,
    /// Take the result of the connect: `Exchange::connect_checked`.
    CheckConnect,
    /// Continue the TLS handshake: `Exchange::handshaken`.
    Handshake,
    /// Write `Exchange::unsent`: `Exchange::written`.
    Send,
    /// Watch the socket: `Exchange::watched` or `Exchange::watch_failed`.
    Watch(Interest),
    /// The same for [`Interest::ReadWrite`], and `Exchange::allow` once the next part of the
    /// requests may be sent.
    WatchUntilNextPart,
    /// Read: `Exchange::received` or `Exchange::read_failed`.
    Read,
    /// Nothing, until the next event.
    Wait,
    /// Nothing, until the next event or `Exchange::expires_ns`.
    AwaitClose,
    /// Close the socket.
    Close,
    /// Treat the socket as told, and wait for the end of a think time: `Exchange::resume`.
    Think {
        /// End of the think time.
        until_ns: u64,
        /// Use of the socket meanwhile.
        socket: SocketUse,
    },
    /// Treat the socket as told, and release the slot: the session is over.
    End(SocketUse),
}

impl Action {
    /// Adds the close of a socket to an action that would keep it.
    pub(super) fn and_close(self) -> Self {
        match self {
            Action::Think { until_ns, .. } => Action::Think { until_ns, socket: SocketUse::Close },
            Action::End(_) => Action::End(SocketUse::Close),
            other => other,
        }
    }
}

/// Events to watch a socket for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// Bytes to read, and the peer's shutdown.
    Read,
    /// Room to write as well.
    ReadWrite,
}

/// Use of a socket when its exchange pauses or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketUse {
    /// It stays open for the next requests.
    Keep,
    /// It is closed.
    Close,
}

/// An event of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketEvent {
    /// The peer has shut down its sending side, hung up or failed.
    pub(super) hung_up: bool,
    /// There are bytes to read.
    pub(super) has_bytes: bool,
}

/// Maps an error of socket, bind, connect or the first write to its kind.
pub(super) fn connect_error_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        // The last two are of a Unix socket: none is there, or its queue is full.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound | io::ErrorKind::WouldBlock => {
            ErrorKind::ConnectRefused
        }
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ErrorKind::ConnectReset,
        io::ErrorKind::TimedOut => ErrorKind::ConnectTimeout,
        io::ErrorKind::InvalidData => ErrorKind::TcpViolation,
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => ErrorKind::PortUnavail,
        _ if is_exhaustion(error) => ErrorKind::FdUnavail,
        _ => ErrorKind::Other,
    }
}

/// Maps an error of epoll_ctl(2) to its kind. `StorageFull` is ENOSPC: as many descriptors are
/// watched as fs.epoll.max_user_watches allows.
pub(super) fn watch_error_kind(error: &io::Error) -> ErrorKind {
    let is_full = error.kind() == io::ErrorKind::StorageFull || is_exhaustion(error);
    if is_full { ErrorKind::FdUnavail } else { ErrorKind::Other }
}
