//! The connection machine and its calls, opened to a test that plays the client, the kernel, the
//! loop and the clock. Adds no behaviour, and no server uses it.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_content::Fetch;
use weir_stats::Counters;

use crate::config::{Config, Error};
use crate::context::WorkerContext;
use crate::context::clock::Clock;
use crate::context::close_reason::CloseReason;
use crate::context::stores::Stores;
use crate::http::socket_connection::SocketConnection;

pub use crate::http::connection::Action;
pub use crate::http::socket::Socket;

/// State shared by connections, with its clock.
pub struct Shared(WorkerContext);

impl Shared {
    /// Opens the content to serve. The clock begins at `unix_ns`, nanoseconds since 1970, and
    /// advances by `step_ns` at each reading.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn open(config: Config, unix_ns: u64, step_ns: u64) -> Result<Self, Error> {
        let stores = Stores::open(&config, None)?;
        let clock = Clock::Manual { now_ns: 0.into(), step_ns, unix_ns };
        Ok(Self(WorkerContext::with_clock(Arc::new(config), stores, None, clock)))
    }

    /// Begins an iteration of a loop, which reads the clock, `later_ns` nanoseconds later.
    pub fn begin_iteration(&mut self, later_ns: u64) {
        self.0.advance(later_ns);
        self.0.tick();
        self.0.write_budget.begin_iteration();
        self.0.tls_budget.begin_round();
    }

    /// Returns the time at which the iteration began, nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    /// Returns whether this iteration has no time left for yielded connections.
    pub fn write_budget_is_spent(&self) -> bool {
        self.0.write_budget.is_spent()
    }

    /// Sets whether connections close after the current reply because too many are open.
    pub fn set_pressure(&mut self, on: bool) {
        self.0.pressure = on;
    }

    /// Makes connections close after the current reply because the server stops.
    pub fn drain(&mut self) {
        self.0.draining = true;
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }
}

/// Capacities of a connection's buffers, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Capacity for received bytes.
    pub input_bytes: usize,
    /// Capacity for bytes to be sent, except for bodies of files.
    pub output_bytes: usize,
}

/// A connection.
pub struct Connection<S>(SocketConnection<S>);

impl<S: Socket> Connection<S> {
    /// Creates a connection on a socket that was just accepted.
    pub fn new(socket: S, peer: SocketAddr, shared: &Shared) -> Self {
        Self(SocketConnection::on(socket, peer, &shared.0))
    }

    /// Makes as much progress as it can.
    pub fn proceed(&mut self, shared: &mut Shared) -> Action {
        self.0.proceed(&mut shared.0)
    }

    /// Returns the fetch it waits for, after [`Action::Fetch`].
    pub fn fetch(&mut self) -> Option<Fetch> {
        self.0.fetch()
    }

    /// Refuses an idle connection with a 503.
    pub fn refuse_with_503(&mut self, shared: &mut Shared) -> Action {
        self.0.refuse_with_503(&mut shared.0)
    }

    /// Returns when [`Connection::expire`] is due, nanoseconds; `u64::MAX` is never.
    pub fn deadline_ns(&self) -> u64 {
        self.0.deadline_ns()
    }

    /// Handles its deadline: ends or prolongs what it does.
    pub fn expire(&mut self, shared: &mut Shared) -> Action {
        self.0.expire(&mut shared.0)
    }

    /// Moves its deadline forward to `deadline_ns`, if that is earlier.
    pub fn shorten_deadline(&mut self, deadline_ns: u64) {
        self.0.shorten_deadline(deadline_ns);
    }

    /// Closes it, and returns its socket.
    pub fn close(self, shared: &mut Shared) -> S {
        self.0.into_socket(CloseReason::Evicted, &mut shared.0)
    }

    /// Returns whether it is between two requests.
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// Returns whether its client has ever sent anything.
    pub fn has_received_bytes(&self) -> bool {
        self.0.has_received_bytes()
    }

    /// Returns whether it may be closed to make room.
    pub fn is_evictable(&self, shared: &Shared) -> bool {
        self.0.eviction_rank(shared.now_ns()).is_some()
    }

    /// Returns the number of bytes received but not used yet.
    pub fn unread(&self) -> usize {
        self.0.unread()
    }

    /// Returns whether the last read left the socket empty, and whether the last write left it
    /// full; clears both.
    pub fn blocked(&mut self) -> (bool, bool) {
        self.0.blocked()
    }

    /// Returns the capacities of its buffers.
    pub fn buffer_sizes(&mut self) -> BufferSizes {
        BufferSizes {
            input_bytes: self.0.input_bytes(),
            output_bytes: self.0.output().map_or(0, |output| output.buffer_bytes()),
        }
    }
}
