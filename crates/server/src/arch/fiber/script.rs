//! The code of the fibers, in the blocking style: a call that would block suspends the fiber, and a
//! reader need not know that others run meanwhile (pariag-accept §3.1.2). Knows no mechanism.

use std::cell::{RefCell, RefMut};

use weir_dispatch::readiness::{Mechanism, Token};

use super::common::{Common, Task};
use super::scheduler::{FiberId, Pause};
use crate::arch::Architecture;
use crate::arch::accepting::Accepting;

/// The fiber that a script runs on.
pub(super) struct Here<'a, M> {
    pub common: &'a RefCell<Common<M>>,
    pub id: FiberId,
    pub pause: Pause<'a>,
}

/// Knot-A: accepts connections as they arrive. Each has a fiber of its own.
pub(super) fn acceptor<M: Mechanism>(here: &Here<'_, M>) {
    while !here.is_over() {
        accept_phase(here);
        here.wait_for_somebody();
    }
}

/// Knot-A: serves one connection to its end.
pub(super) fn worker<M: Mechanism>(here: &Here<'_, M>, task: Task) {
    let mut goes_on = here.common().meet(task);
    while goes_on {
        here.wait_until_ready(task.token);
        goes_on = here.common().work(task.token);
    }
}

/// Knot-C: accepts some connections, and serves each to its end before it accepts again.
pub(super) fn member<M: Mechanism>(here: &Here<'_, M>) {
    while !here.is_over() {
        let tasks = here.common().take_some();
        tasks.into_iter().for_each(|task| worker(here, task));
        here.wait_for_somebody();
    }
}

fn accept_phase<M: Mechanism>(here: &Here<'_, M>) {
    here.common().floor().someone_waits = false;
    loop {
        let Some(index) = here.common().next_knock() else { break };
        accept(here, index);
    }
    here.common().consult();
    serve_deferred(here);
}

/// Works as [`Accepting::accept`], except that a connection read at once is served by its own fiber
/// before another is accepted.
fn accept<M: Mechanism>(here: &Here<'_, M>, index: usize) {
    let Some(mut phase) = here.common().begin_accepting(index) else { return };
    while here.common().accept_one(index, &mut phase) {
        here.let_newborn_run();
    }
    here.common().end_accepting(index, phase);
}

/// Works as [`Accepting::serve_deferred`], with a fiber of its own for each connection.
fn serve_deferred<M: Mechanism>(here: &Here<'_, M>) {
    let Some(until_ns) = here.common().sift_deferred() else { return };
    while !here.is_resting() && here.common().serve_newest() {
        here.let_newborn_run();
        if here.common().floor().service.read_clock_ns() >= until_ns {
            return;
        }
    }
}

impl<M: Mechanism> Here<'_, M> {
    /// Borrows the state shared by all fibers, until the end of the statement.
    fn common(&self) -> RefMut<'_, Common<M>> {
        self.common.borrow_mut()
    }

    fn is_over(&self) -> bool {
        self.common().is_over()
    }

    /// Returns whether accepting is paused: the last connection found no stack or no descriptor.
    fn is_resting(&self) -> bool {
        self.common().floor().paused_until_ns.is_some()
    }

    /// Waits until a connection is ready or closed.
    fn wait_until_ready(&self, token: Token) {
        self.common().wait_for(token, self.id);
        self.pause.wait();
    }

    /// Waits until there is a connection to accept.
    fn wait_for_somebody(&self) {
        self.common().wait_at_listeners(self.id);
        self.pause.wait();
    }

    /// Waits until the fiber of the connection just accepted has read and answered it, if it is to
    /// be served at once.
    fn let_newborn_run(&self) {
        if self.common().is_urgent() {
            self.common().give_way(self.id);
            self.pause.wait();
        }
    }
}
