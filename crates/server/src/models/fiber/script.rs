//! The code of the fibers, in the blocking style: a call that would block suspends the fiber, and a
//! reader need not know that others run meanwhile (pariag-accept §3.1.2). Knows no mechanism.

use std::cell::{RefCell, RefMut};

use weir_dispatch::readiness::{Mechanism, Token};

use super::model::{FiberModel, Task};
use super::scheduler::{FiberId, Pause};
use crate::worker::Worker;
use crate::worker::phase_times::LoopPhase;

/// The fiber that a script runs on.
pub(super) struct FiberHandle<'a, M: Mechanism> {
    pub worker: &'a RefCell<Worker<FiberModel<M>>>,
    pub id: FiberId,
    pub pause: Pause<'a>,
}

/// Knot-A: accepts connections as they arrive. Each has a fiber of its own.
pub(super) fn acceptor<M: Mechanism>(fiber: &FiberHandle<'_, M>) {
    while !fiber.is_over() {
        accept_phase(fiber);
        fiber.wait_at_listeners();
    }
}

/// Knot-A: serves one connection to its end.
pub(super) fn serve_connection<M: Mechanism>(fiber: &FiberHandle<'_, M>, task: Task) {
    let mut is_open = fiber.borrow().begin_task(task);
    while is_open {
        fiber.wait_until_ready(task.token);
        is_open = fiber.borrow().work(task.token);
    }
}

/// Knot-C: accepts some connections, and serves each to its end before it accepts again.
pub(super) fn pool_member<M: Mechanism>(fiber: &FiberHandle<'_, M>) {
    while !fiber.is_over() {
        let tasks = fiber.borrow().take_accepted();
        tasks.into_iter().for_each(|task| serve_connection(fiber, task));
        fiber.wait_at_listeners();
    }
}

fn accept_phase<M: Mechanism>(fiber: &FiberHandle<'_, M>) {
    fiber.borrow().core.enter_phase(LoopPhase::Accept);
    fiber.borrow().core.accepts_pending = false;
    loop {
        let Some(index) = fiber.borrow().next_ready_listener() else { break };
        accept(fiber, index);
    }
    fiber.borrow().poll_policies();
    serve_deferred(fiber);
    fiber.borrow().core.enter_phase(LoopPhase::Work);
}

/// Works as [`Worker::accept`], except that a connection read at once is served by its own fiber
/// before another is accepted.
fn accept<M: Mechanism>(fiber: &FiberHandle<'_, M>, index: usize) {
    let Some(mut phase) = fiber.borrow().begin_accept_phase(index) else { return };
    while fiber.borrow().accept_one(index, &mut phase) {
        fiber.run_new_fiber();
    }
    fiber.borrow().finish_accept_phase(index, phase);
}

/// Works as `Worker::serve_deferred`, with a fiber of its own for each connection: one for which
/// there is no stack stays deferred.
fn serve_deferred<M: Mechanism>(fiber: &FiberHandle<'_, M>) {
    let Some(until_ns) = fiber.borrow().refuse_stale() else { return };
    while fiber.borrow().may_serve_deferred() && fiber.borrow().serve_newest() {
        fiber.run_new_fiber();
        if fiber.borrow().core.context.read_clock_ns() >= until_ns {
            return;
        }
    }
}

impl<M: Mechanism> FiberHandle<'_, M> {
    /// Borrows the state shared by all fibers, until the end of the statement.
    fn borrow(&self) -> RefMut<'_, Worker<FiberModel<M>>> {
        self.worker.borrow_mut()
    }

    fn is_over(&self) -> bool {
        self.borrow().is_over()
    }

    /// Waits until a connection is ready or closed.
    fn wait_until_ready(&self, token: Token) {
        self.borrow().wait_for(token, self.id);
        self.pause.wait();
    }

    /// Waits until there is a connection to accept.
    fn wait_at_listeners(&self) {
        self.borrow().wait_at_listeners(self.id);
        self.pause.wait();
    }

    /// Waits until the fiber of the connection just accepted has read and answered it, if it is to
    /// be served at once.
    fn run_new_fiber(&self) {
        if self.borrow().last_is_read_at_once() {
            self.borrow().run_after_new_fibers(self.id);
            self.pause.wait();
        }
    }
}
