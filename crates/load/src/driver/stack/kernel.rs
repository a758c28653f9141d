//! The kernel's TCP: sockets and epoll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use weir_sys::epoll::{self, EventFlags};
use weir_sys::{client, socket};

use super::super::action::{Interest, SocketEvent};
use super::{Client, Event, Purpose, Stack};
use crate::config::{AddressPair, Destination};
use crate::measure::PacketCounts;

/// Events per wait. Late starts are begun between two events, so that a large batch does not delay
/// them.
const EVENTS_MAX: usize = 256;

/// Receive buffer of a slow reader: the kernel's minimum, so that the server notices the slow
/// reading.
const SLOW_BUFFER_BYTES: usize = 2048;

const GONE: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// The kernel's TCP.
pub(in super::super) struct KernelStack {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl KernelStack {
    /// Creates an interest set.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub(in super::super) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create()?, events: Vec::with_capacity(EVENTS_MAX) })
    }
}

impl Stack for KernelStack {
    type Socket = OwnedFd;

    fn open(
        &mut self,
        pair: AddressPair<'_>,
        _client: Client,
        purpose: Purpose,
    ) -> io::Result<OwnedFd> {
        let destination = match pair.destination {
            Destination::Inet(destination) => destination,
            // The options are of TCP.
            Destination::Unix(path) => return client::connect_unix(path),
        };
        let fd = client::stream(&destination)?;
        if let Some(source) = pair.source {
            client::bind_source(fd.as_fd(), source)?;
        }
        set_options(fd.as_fd(), purpose)?;
        client::connect(fd.as_fd(), &destination)?;
        Ok(fd)
    }

    fn take_error(&mut self, socket: &OwnedFd) -> Option<io::Error> {
        client::take_error(socket.as_fd()).unwrap_or_else(Some)
    }

    fn write(&mut self, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        socket::write(socket.as_fd(), bytes, false)
    }

    fn read(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        socket::read_slice(socket.as_fd(), buffer)
    }

    fn received_ns(&self, _socket: &OwnedFd) -> Option<u64> {
        None
    }

    fn watch(
        &mut self,
        socket: &OwnedFd,
        token: u64,
        wanted: Interest,
        watched: Option<Interest>,
    ) -> io::Result<()> {
        let read = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let flags = if wanted == Interest::ReadWrite { read | EventFlags::OUT } else { read };
        match watched {
            None => epoll::add(self.epoll.as_fd(), socket.as_fd(), token, flags),
            Some(_) => epoll::modify(self.epoll.as_fd(), socket.as_fd(), token, flags),
        }
    }

    fn close(&mut self, socket: OwnedFd, reset: bool) {
        if reset {
            socket::reset_on_close(socket.as_fd());
        }
        socket::close(socket);
    }

    fn wait(&mut self, timeout: Duration) {
        if epoll::wait(self.epoll.as_fd(), &mut self.events, Some(timeout)).is_err() {
            // The set is ours and sound; the rest is lack of memory, which may pass.
            self.events.clear();
        }
    }

    fn event(&self, nth: usize) -> Option<Event> {
        let epoll::Event { data, flags } = *self.events.get(nth)?;
        let hung_up = flags.intersects(GONE);
        let has_bytes = flags.intersects(EventFlags::IN);
        Some(Event { token: data.u64(), event: SocketEvent { hung_up, has_bytes } })
    }

    fn finish(&mut self) -> Option<PacketCounts> {
        None
    }
}

fn set_options(fd: BorrowedFd<'_>, purpose: Purpose) -> io::Result<()> {
    match purpose {
        Purpose::Load => Ok(()),
        Purpose::SlowSender => client::send_at_once(fd),
        Purpose::SlowReader => client::limit_receive_buffer(fd, SLOW_BUFFER_BYTES),
    }
}
