//! The TCP that connections use: the kernel's ([`kernel`]) or weir's own ([`packet`]). To the
//! worker both are the same: sockets that do not block, and events on those that are watched.

pub(super) mod kernel;
pub(super) mod packet;

use std::io;
use std::time::Duration;

use super::action::{Interest, SocketEvent};
use crate::config::AddressPair;
use crate::measure::PacketCounts;

/// Use of a socket, which decides about its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Requests of the load, and idle connections.
    Load,
    /// Requests sent in small parts, each at once.
    SlowSender,
    /// Replies read in small parts, with a receive buffer that soon fills.
    SlowReader,
}

/// The client that a connection is of. Its path is drawn from this and from the seed, so that the
/// number of threads changes none, but for background connections that are opened again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Client {
    /// Group in which it is counted.
    pub(super) group: Group,
    /// Number in its group, over all threads, from 0.
    pub(super) number: u64,
    /// Number of its connections before this one.
    pub(super) opened: u32,
}

/// A group of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Group {
    /// Clients of arrivals, by the arrival's number.
    #[default]
    Arrivals,
    /// Clients of shared connections that are opened before the first arrival.
    Shared,
    /// Idle clients.
    Idle,
    /// Slow senders.
    SlowSenders,
    /// Slow readers.
    SlowReaders,
}

/// An event of a watched socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The number it was watched with.
    pub(super) token: u64,
    /// Readiness, or its loss.
    pub(super) event: SocketEvent,
}

/// A TCP.
pub(super) trait Stack {
    /// A socket, closed by [`Stack::close`].
    type Socket;

    /// Opens a socket of a client, and begins to connect it.
    ///
    /// # Errors
    /// Errors of socket(2), bind(2) and connect(2).
    fn open(
        &mut self,
        pair: AddressPair<'_>,
        client: Client,
        purpose: Purpose,
    ) -> io::Result<Self::Socket>;

    /// Removes and returns the error of a socket; `None` if it is connected or connects.
    fn take_error(&mut self, socket: &Self::Socket) -> Option<io::Error>;

    /// Writes bytes, as far as there is room.
    ///
    /// # Errors
    /// Errors of send(2).
    fn write(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Reads bytes; 0 at the end of the stream.
    ///
    /// # Errors
    /// Errors of recv(2).
    fn read(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;

    /// Returns the time at which the bytes read last were received, if that is known; it may be
    /// long before they were read. Nanoseconds on the run's clock.
    fn received_ns(&self, socket: &Self::Socket) -> Option<u64>;

    /// Watches a socket, edge-triggered; `watched` is how it is watched already. What is ready is
    /// reported once more.
    ///
    /// # Errors
    /// Errors of epoll_ctl(2).
    fn watch(
        &mut self,
        socket: &Self::Socket,
        token: u64,
        wanted: Interest,
        watched: Option<Interest>,
    ) -> io::Result<()>;

    /// Closes a socket, with a reset if `reset` says so.
    fn close(&mut self, socket: Self::Socket, reset: bool);

    /// Waits until there are events, or until `timeout` has passed. Earlier events are forgotten.
    fn wait(&mut self, timeout: Duration);

    /// Returns event number `nth` of the last wait; `None` behind the last.
    fn event(&self, nth: usize) -> Option<Event>;

    /// Ends the run: closes go out, and the counts of packets come back, if they are counted here.
    fn finish(&mut self) -> Option<PacketCounts>;
}
