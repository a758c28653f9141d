//! A worker: the state common to all architectures, beside a model, which is an architecture's own
//! state and code. Serving may close a connection, closing resumes accepting, and accepting begins
//! to serve: so a model's operations take the whole worker.

use std::io;

use weir_sys::listener::Arrival;

use super::core::{LoopCore, WorkerParts};
use super::listener::Listener;
use crate::context::close_reason::CloseReason;
use crate::http::connection_io::ConnectionIo;

/// One loop, or its equivalent: a group of threads, or a process.
pub(crate) struct Worker<M: Model> {
    /// Connections, listeners, deadlines, counters.
    pub core: LoopCore<M::Connection>,
    /// The architecture's own state: how the worker waits and serves.
    pub model: M,
}

/// A worker as seen by the thread that runs it.
pub(crate) trait RunWorker: Sized {
    /// Creates it in the thread that will run it.
    ///
    /// # Errors
    /// The kernel lacks, or refuses, what the architecture needs.
    fn start(parts: WorkerParts) -> io::Result<Self>;

    /// Serves until told to stop, and reports its counters.
    fn run(self);
}

/// Operations that each architecture implements in its own way.
pub(crate) trait Model: Sized {
    /// Type of its connections.
    type Connection: ConnectionIo;

    /// True if a close frees the descriptor before it returns.
    const CLOSES_AT_ONCE: bool = true;

    /// True if accepted connections are served only after the accept-phase.
    const SERVES_LATER: bool = false;

    /// Begins to serve a connection that has just got its slot. `at_once`: it is read now.
    fn begin(worker: &mut Worker<Self>, slot: u32, at_once: bool);

    /// Lets a connection make progress; returns whether it was closed.
    fn serve(worker: &mut Worker<Self>, slot: u32) -> bool;

    /// Answers a connection with 503.
    fn refuse_with_503(worker: &mut Worker<Self>, slot: u32);

    /// Handles the deadline of a connection.
    fn expire(worker: &mut Worker<Self>, slot: u32);

    /// Closes a connection. `reason`: why, if no other was recorded before.
    fn close(worker: &mut Worker<Self>, slot: u32, reason: CloseReason);

    /// Closes an idle connection, unless its next request has arrived: a close with bytes unread
    /// would be a reset, and could cost the client the reply it is still reading.
    fn close_idle(worker: &mut Worker<Self>, slot: u32, reason: CloseReason) {
        Self::serve(worker, slot);
        if worker.core.table.conn(slot).is_some_and(|conn| conn.is_idle()) {
            Self::close(worker, slot, reason);
        }
    }

    /// Returns whether the close of connections gives back what an accept has failed for the lack
    /// of.
    fn closing_helps(_error: &io::Error) -> bool {
        true
    }

    /// Prepares for a drain, which accepts by calls what is left in the queues.
    fn before_drain(_worker: &mut Worker<Self>) {}

    /// Returns whether this accept-phase may accept another connection.
    fn takes_more(_worker: &Worker<Self>) -> bool {
        true
    }

    /// Returns whether a connection already begun is still to be served for the first time; other
    /// deferred connections are then not begun yet.
    fn has_unserved(&self) -> bool {
        false
    }

    /// Handles an accept that found a listener's queue empty.
    fn listener_drained(_worker: &mut Worker<Self>, _index: usize) {}

    /// Starts or stops watching a listener.
    ///
    /// # Errors
    /// ENOMEM, or a limit of the mechanism.
    fn watch_listener(worker: &mut Worker<Self>, index: usize, wanted: bool) -> io::Result<()>;

    /// Stops watching a listener, and closes it.
    fn close_listener(worker: &mut Worker<Self>, listener: Listener);

    /// Returns the arrival data of a request on an open connection.
    fn arrival(worker: &mut Worker<Self>, slot: u32) -> Option<Arrival> {
        worker.core.table.conn(slot)?.arrival()
    }

    /// Returns whether there is a thread or a fiber to serve another connection.
    fn can_accept(&self) -> bool {
        true
    }

    /// Adds the architecture's own counts to the counters, without a system call.
    fn count(_worker: &mut Worker<Self>) {}

    /// Measures what only the kernel knows of the architecture's other threads.
    fn measure(_worker: &mut Worker<Self>) {}
}
