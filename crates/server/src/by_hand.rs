//! Connections driven by hand: the machine with the calls it makes, for a check that plays the
//! client, the kernel, the loop and the clock. Adds no behaviour, and no server uses it.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_content::Fetch;
use weir_stats::Counters;

use crate::clock::Clock;
use crate::link::Link;
use crate::run;
use crate::service::Service;
use crate::{Config, Error};

pub use crate::link::Next;
pub use crate::socket::Socket;

/// What connections share, and its clock.
pub struct Shared(Service);

impl Shared {
    /// Opens what is served. The clock begins at `unix_ns`, nanoseconds since 1970, and goes on by
    /// `step_ns` with each look at it.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn open(config: Config, unix_ns: u64, step_ns: u64) -> Result<Self, Error> {
        let store = run::open_store(&config)?;
        let clock = Clock::Hand { now_ns: 0.into(), step_ns, unix_ns };
        Ok(Self(Service::with_clock(Arc::new(config), store, None, clock)))
    }

    /// Begins a round of a loop, which takes the time, so much later.
    pub fn begin_round(&mut self, later_ns: u64) {
        self.0.pass(later_ns);
        self.0.tick();
        self.0.turn.begin_round();
    }

    /// Nanoseconds on the clock when the round began.
    pub fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    /// Whether this round has no time left for those who have yielded.
    pub fn turn_is_over(&self) -> bool {
        self.0.turn.is_over()
    }

    /// Has connections close after the reply that goes out, because those open are too many.
    pub fn set_pressure(&mut self, on: bool) {
        self.0.pressure = on;
    }

    /// Has connections close after the reply that goes out, because the server stops.
    pub fn drain(&mut self) {
        self.0.draining = true;
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }
}

/// Memory that a connection holds, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Room for what was received.
    pub input_bytes: usize,
    /// Room for what is to be sent, bodies of files aside.
    pub output_bytes: usize,
}

/// A connection.
pub struct Connection<S>(Link<S>);

impl<S: Socket> Connection<S> {
    /// One that was just accepted.
    pub fn new(socket: S, peer: SocketAddr, shared: &Shared) -> Self {
        Self(Link::on(socket, peer, &shared.0))
    }

    /// Makes what progress it can.
    pub fn proceed(&mut self, shared: &mut Shared) -> Next {
        self.0.proceed(&mut shared.0)
    }

    /// What it waits for, after [`Next::Fetch`].
    pub fn fetch(&mut self) -> Option<Fetch> {
        self.0.fetch()
    }

    /// Refuses it with a 503. For one that is idle.
    pub fn turn_away(&mut self, shared: &mut Shared) -> Next {
        self.0.turn_away(&mut shared.0)
    }

    /// When [`Connection::expire`] is due, nanoseconds; `u64::MAX` is never.
    pub fn deadline_ns(&self) -> u64 {
        self.0.deadline_ns()
    }

    /// Ends or prolongs what it does, whose deadline has come.
    pub fn expire(&mut self, shared: &mut Shared) -> Next {
        self.0.expire(&mut shared.0)
    }

    /// Moves its deadline forward.
    pub fn hurry(&mut self, deadline_ns: u64) {
        self.0.hurry(deadline_ns);
    }

    /// Lets go of it.
    pub fn close(self, shared: &mut Shared) -> S {
        self.0.part(&mut shared.0)
    }

    /// Whether it is between two requests.
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// Whether its client has ever sent anything.
    pub fn was_heard(&self) -> bool {
        self.0.was_heard()
    }

    /// Whether it may be closed to make room.
    pub fn can_be_spared(&self, shared: &Shared) -> bool {
        self.0.spare(shared.now_ns()).is_some()
    }

    /// Bytes received that are not used yet.
    pub fn unread(&self) -> usize {
        self.0.unread()
    }

    /// Whether the last read and the last write of this turn left the socket empty and full.
    pub fn blocked(&mut self) -> (bool, bool) {
        self.0.blocked()
    }

    /// The memory that it holds.
    pub fn held(&mut self) -> Held {
        Held {
            input_bytes: self.0.input_bytes(),
            output_bytes: self.0.output().map_or(0, |output| output.held_bytes()),
        }
    }
}
