//! Architectures: each waits for events, accepts, and lets the connection machine proceed in its
//! own way. The common part is here and in `floor`; each architecture has a file of its own.

mod accepting;
pub(crate) mod event_loop;
pub(crate) mod fiber;
mod floor;
pub(crate) mod listener;
mod name;
pub(crate) mod processes;
pub(crate) mod ring;
mod syn_filter;
mod table;
pub(crate) mod threads;
mod watched;

use std::io;
use std::net::SocketAddr;
use std::ops::DerefMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_accept::PhaseOutcome;
use weir_stats::LoopReport;
use weir_sys::listener::Arrival;

use crate::conn::Conn;
use crate::control::{Control, LAST_WORD, Phase};
use crate::service::Service;

use accepting::Accepting;
use floor::Floor;
use listener::{Listener, Socket};

pub use name::{Choice, Exclusion, Name, Row, TABLE};

/// Time for which a client that has sent nothing yet may delay a server told to stop, nanoseconds.
const SILENCE_NS: u64 = 500_000_000;

/// An architecture as seen by its thread.
pub(crate) trait Start: Sized {
    /// Creates it in the thread that will run it, with room for `open_max` connections.
    fn start(
        service: Service,
        sockets: Vec<Socket>,
        control: Arc<Control>,
        open_max: usize,
    ) -> io::Result<Self>;

    /// Serves until told to stop, and reports its counters.
    fn run(self);
}

/// A connection with its socket and the state of its architecture.
pub(crate) trait Tenant: DerefMut<Target = Conn> + Sized {
    /// Creates a connection that was just accepted.
    fn new(fd: OwnedFd, peer: SocketAddr, service: &Service) -> Self;

    /// Returns the kernel's data on its request; `None` where the kernel cannot be asked.
    fn arrival(&self) -> Option<Arrival>;

    /// Makes the following close a reset.
    fn reset_on_close(&self);

    /// Releases everything it holds, and closes it.
    fn close(self, service: &mut Service);
}

/// Operations that each architecture implements in its own way.
pub(crate) trait Architecture: Sized {
    /// Type of its connections.
    type Tenant: Tenant;

    /// True if a close frees the descriptor before it returns.
    const CLOSES_AT_ONCE: bool = true;

    /// True if accepted connections are served only after the accept-phase.
    const SERVES_LATER: bool = false;

    /// Returns the state common to all architectures.
    fn floor(&mut self) -> &mut Floor<Self::Tenant>;

    /// Begins to serve a connection that has just got its slot. `at_once`: it is read now.
    fn begin(&mut self, slot: u32, at_once: bool);

    /// Lets a connection make progress; returns whether it was closed.
    fn serve(&mut self, slot: u32) -> bool;

    /// Answers a connection with 503.
    fn turn_away(&mut self, slot: u32);

    /// Handles the deadline of a connection.
    fn expire(&mut self, slot: u32);

    /// Closes a connection.
    fn close(&mut self, slot: u32);

    /// Closes an idle connection, unless its next request has arrived: a close with bytes unread
    /// would be a reset, and could cost the client the reply it is still reading.
    fn dismiss(&mut self, slot: u32) {
        self.serve(slot);
        if self.floor().table.conn(slot).is_some_and(|conn| conn.is_idle()) {
            self.close(slot);
        }
    }

    /// Returns whether this accept-phase may accept another connection.
    fn takes_more(&self) -> bool {
        true
    }

    /// Returns whether a connection already begun still awaits its first turn elsewhere; other
    /// deferred connections are then not begun yet.
    fn has_in_hand(&self) -> bool {
        false
    }

    /// Handles an accept that found a listener's queue empty.
    fn nobody_waits(&mut self, index: usize);

    /// Starts or stops watching a listener.
    fn watch(&mut self, index: usize, wanted: bool) -> io::Result<()>;

    /// Stops watching a listener, and closes it.
    fn leave(&mut self, listener: Listener);

    /// Returns the arrival data of a request on an open connection.
    fn arrival(&mut self, slot: u32) -> Option<Arrival> {
        self.floor().table.conn(slot)?.arrival()
    }

    /// Returns whether an acceptor is available.
    fn has_hands(&self) -> bool {
        true
    }

    /// Adds the architecture's own counts to the counters.
    fn count(&mut self) {}
}

/// Timekeeping, reports and shutdown, shared by all architectures.
pub(crate) trait Housekeeping: Accepting {
    /// Handles everything due by the clock: deadlines, the end of a pause, log lines.
    fn keep_time(&mut self) {
        let floor = self.floor();
        let mut expired = std::mem::take(&mut floor.expired);
        let now_ns = floor.service.now_ns();
        let table = &mut floor.table;
        let deadline_of = |slot| Some(table.conn(slot)?.deadline_ns()).filter(|&at| at < u64::MAX);
        floor.timers.expire(now_ns, deadline_of, &mut expired);
        for slot in expired.drain(..) {
            self.expire(slot);
        }
        self.floor().expired = expired;
        if self.floor().paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.floor().paused_until_ns = None;
            self.watch_listeners(true);
        }
        if let Some(log) = &mut self.floor().service.log {
            log.flush_if_old(now_ns);
        }
    }

    /// Answers the main thread's requests.
    fn answer_bell(&mut self) {
        self.floor().control.bell.clear();
        if let Some(question) = self.floor().question() {
            let report = self.report();
            self.floor().control.answer(question, report);
        }
        let floor = self.floor();
        if floor.control.phase() >= Phase::Drain && floor.drained_by_ns.is_none() {
            self.begin_drain();
        }
    }

    /// Begins a drain: accepts pending connections, closes the listeners, and lets open connections
    /// finish.
    fn begin_drain(&mut self) {
        let floor = self.floor();
        floor.service.draining = true;
        floor.drained_by_ns = Some(floor.service.now_ns() + floor.service.config.timeouts.drain_ns);
        for index in 0..floor.listeners.len() {
            self.accept_queue(index);
        }
        for listener in std::mem::take(&mut self.floor().listeners) {
            self.floor().forget(&listener);
            self.leave(listener);
        }
        for slot in self.floor().table.find(0, usize::MAX, |conn| conn.is_idle()) {
            self.take_leave(slot);
        }
    }

    /// Accepts the connections pending now: at most as many as the queue can hold, since more
    /// arrive meanwhile.
    fn accept_queue(&mut self, index: usize) {
        let queue_max = self.floor().service.config.listenq.unsigned_abs().into();
        let mut accepted = 0;
        while accepted < queue_max && self.floor().control.phase() < Phase::Stop {
            match self.accept(index) {
                PhaseOutcome { accepted: 0, .. } => return,
                outcome => accepted += outcome.accepted,
            }
        }
    }

    /// Closes an idle connection, except one that has sent nothing yet: its request may be on the
    /// way, and it gets [`SILENCE_NS`] more.
    fn take_leave(&mut self, slot: u32) {
        let floor = self.floor();
        let soon_ns = floor.service.now_ns() + SILENCE_NS;
        match floor.table.conn(slot) {
            Some(conn) if !conn.was_heard() => {
                conn.hurry(soon_ns);
                floor.timers.arm(slot, soon_ns);
            }
            _ => self.dismiss(slot),
        }
    }

    /// Ends the loop: closes open connections, and reports the counters.
    fn end(&mut self) {
        self.floor().service.draining = true;
        let all = self.floor().table.find(0, usize::MAX, |_| true);
        all.into_iter().for_each(|slot| self.close(slot));
        if let Some(log) = &mut self.floor().service.log {
            log.flush();
        }
        let report = self.report();
        self.floor().control.answer(LAST_WORD, report);
    }

    /// Returns the counters so far.
    fn report(&mut self) -> LoopReport {
        self.count();
        self.floor().report()
    }
}

impl<A: Architecture> Accepting for A {}
impl<A: Architecture> Housekeeping for A {}
