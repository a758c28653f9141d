//! The connections of the admin address, served by one thread: non-blocking sockets, and poll(2)
//! for all of them. No client holds up another, whatever it sends or does not send. Between them
//! the thread takes its samples.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use weir_sys::poll::{POLLIN, POLLOUT, PollFd, poll};
use weir_sys::process::{monotonic_ns, unix_ns};
use weir_sys::socket;

use crate::Resources;
use crate::answer::answer;
use crate::exchange::{Exchange, Now, Wants};

/// Maximum number of open connections. The oldest is closed for a new one.
const OPEN_MAX: usize = 32;

/// Maximum number of calls for a connection before the others have their turn.
const CALLS_MAX: usize = 16;

/// Size of a read, bytes.
const READ_BYTES: usize = 4096;

/// Pause after a failed accept, nanoseconds: most often there are no descriptors.
const PAUSE_NS: u64 = 100_000_000;

/// A listening socket and the connections that came from it.
pub(crate) struct Connections {
    /// `None` once a successor accepts.
    listener: Option<OwnedFd>,
    resources: Resources,
    /// Open connections, the oldest first.
    open: VecDeque<Connection>,
    /// Time until which none is accepted.
    paused_until_ns: u64,
}

impl Connections {
    /// Creates the connections of a listening socket, which is non-blocking.
    pub(crate) fn new(listener: OwnedFd, resources: Resources) -> Self {
        Self { listener: Some(listener), resources, open: VecDeque::new(), paused_until_ns: 0 }
    }

    /// Serves them until a successor does and none is left.
    pub(crate) fn serve(mut self) {
        while self.listener.is_some() || !self.open.is_empty() {
            self.run_round();
        }
    }

    /// Waits until a socket is ready or a deadline has come, and serves what is ready.
    fn run_round(&mut self) {
        let now_ns = monotonic_ns();
        if self.resources.lifecycle.has_successor() {
            self.listener = None;
        }
        self.resources.sample(now_ns);
        self.open.retain(|connection| !connection.exchange.is_over(now_ns));
        let mut watched = self.watched(now_ns);
        if poll(&mut watched, self.sleep_max(now_ns)).is_err() {
            // The kernel had no memory for it.
            return thread::sleep(Duration::from_nanos(PAUSE_NS));
        }
        let now = now();
        let Some((listener, connections)) = watched.split_first() else { return };
        for (entry, connection) in connections.iter().zip(&mut self.open) {
            if entry.revents != 0 {
                connection.proceed(now, &mut self.resources);
            }
        }
        if listener.revents != 0 && !self.resources.lifecycle.has_successor() {
            self.accept(now);
        }
    }

    /// Returns what is waited for: at the listener, then at each connection in order.
    fn watched(&self, now_ns: u64) -> Vec<PollFd> {
        // A negative number is passed over: poll(2).
        let listener = self.listener.as_ref().filter(|_| !self.is_paused(now_ns));
        let listener = listener.map_or(-1, AsRawFd::as_raw_fd);
        let listener = PollFd { fd: listener, events: POLLIN, revents: 0 };
        let connections = self.open.iter().map(|connection| {
            let events = if connection.exchange.wants() == Wants::Write { POLLOUT } else { POLLIN };
            PollFd { fd: connection.socket.as_raw_fd(), events, revents: 0 }
        });
        std::iter::once(listener).chain(connections).collect()
    }

    /// Returns the time to the first deadline, which may be that of a sample.
    fn sleep_max(&self, now_ns: u64) -> Option<Duration> {
        let deadlines = self.open.iter().map(|connection| connection.exchange.deadline_ns());
        let pause = Some(self.paused_until_ns).filter(|_| self.is_paused(now_ns));
        let first_ns = deadlines.chain(pause).chain([self.resources.due_ns()]).min()?;
        Some(Duration::from_nanos(first_ns.saturating_sub(now_ns)))
    }

    fn is_paused(&self, now_ns: u64) -> bool {
        now_ns < self.paused_until_ns
    }

    /// Accepts connections, and serves each at once as far as that is possible.
    fn accept(&mut self, now: Now) {
        for _ in 0..OPEN_MAX {
            let Some(listener) = &self.listener else { return };
            match socket::accept(listener.as_fd()) {
                Ok((socket, _)) => self.begin(socket, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if socket::is_lost_connection(&error) => {}
                Err(_) => {
                    self.paused_until_ns = now.ns + PAUSE_NS;
                    return;
                }
            }
        }
    }

    fn begin(&mut self, socket: OwnedFd, now: Now) {
        let mut connection = Connection::new(socket, now.ns);
        connection.proceed(now, &mut self.resources);
        if connection.exchange.is_over(now.ns) {
            return;
        }
        if self.open.len() >= OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(connection);
    }
}

/// A connection and its socket.
struct Connection {
    socket: OwnedFd,
    exchange: Exchange,
    /// True if it came to an address of this machine alone, which browsers here can reach.
    checks_host: bool,
}

impl Connection {
    fn new(socket: OwnedFd, now_ns: u64) -> Self {
        let checks_host = is_to_loopback(socket.as_fd());
        Self { socket, exchange: Exchange::new(now_ns), checks_host }
    }

    /// Reads and writes until the socket would block, but not for ever.
    fn proceed(&mut self, now: Now, resources: &mut Resources) {
        for _ in 0..CALLS_MAX {
            let result = match self.exchange.wants() {
                Wants::Read => self.read(now, resources),
                Wants::Write => self.write(now),
                Wants::Close => return,
            };
            match result.map_err(|error| error.kind()) {
                Ok(()) => {}
                Err(io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
                Err(_) => self.exchange.end(),
            }
        }
    }

    fn read(&mut self, now: Now, resources: &mut Resources) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        let count = socket::read_slice(self.socket.as_fd(), &mut bytes)?;
        let checks_host = self.checks_host;
        self.exchange.received(bytes.get(..count).unwrap_or_default(), now, |request| {
            answer(request, resources, checks_host, now.ns)
        });
        Ok(())
    }

    fn write(&mut self, now: Now) -> io::Result<()> {
        let count = socket::write(self.socket.as_fd(), self.exchange.pending(), false)?;
        if self.exchange.wrote(count, now.ns) {
            socket::shutdown_write(self.socket.as_fd())?;
        }
        Ok(())
    }
}

/// Returns whether a connection came to a loopback address; if that is not known, it may have.
fn is_to_loopback(socket: BorrowedFd<'_>) -> bool {
    match socket::local_address(socket) {
        Ok(Some(address)) => address.ip().to_canonical().is_loopback(),
        // A Unix socket: no browser connects to one.
        Ok(None) => false,
        Err(_) => true,
    }
}

fn now() -> Now {
    Now { ns: monotonic_ns(), unix_s: unix_ns() / 1_000_000_000 }
}
