//! Knot: user-level threads, each with a stack of its own and code in the blocking style, over any
//! readiness mechanism (pariag-accept §3.1.2).
//!
//! A thread polls the mechanism and switches to the fibers that waited for the reported events,
//! in their order; a fiber runs until it would block. The code of the fibers is in [`script`],
//! their shared state in [`model`].

mod model;
mod run_queue;
mod scheduler;
mod script;
mod stacks;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use weir_dispatch::readiness::Mechanism;
use weir_dispatch::readiness::settings::Tunable;

use super::readiness_driver::ReadinessDriver;
use crate::architecture::options::fiber::{POOL, STACK_KIB};
use crate::config::Config;
use crate::worker::core::LoopCore;
use crate::worker::{RunWorker, Worker, WorkerParts};

use model::{FiberModel, NewFiber};
use scheduler::Scheduler;
use script::FiberHandle;
use stacks::Stacks;

/// A loop whose connections are served by fibers.
pub(crate) struct Fibers<M: Mechanism> {
    worker: Rc<RefCell<Worker<FiberModel<M>>>>,
    scheduler: Scheduler,
}

impl<M: Mechanism> RunWorker for Fibers<M> {
    fn start(parts: WorkerParts) -> io::Result<Self> {
        let config = parts.context.config();
        let pool = setting(&config, &POOL);
        let open_max = fit(&config, pool, parts.open_max)?;
        let stacks = Stacks::new(setting(&config, &STACK_KIB) << 10);
        let core = LoopCore::new(WorkerParts { open_max, ..parts });
        let model = FiberModel::new(ReadinessDriver::open(&core)?, stacks, pool > 0);
        let worker = Rc::new(RefCell::new(Worker { core, model }));
        let mut fibers = Self { worker, scheduler: Scheduler::default() };
        if pool == 0 {
            fibers.spawn_acceptor(script::acceptor)?;
        }
        for _ in 0..pool {
            fibers.spawn_acceptor(script::pool_member)?;
        }
        Ok(fibers)
    }

    fn run(mut self) {
        while !self.worker.borrow().core.is_over() {
            self.worker.borrow_mut().publish_before_wait();
            self.worker.borrow_mut().getevents_phase();
            self.run_fibers();
            self.worker.borrow_mut().end_iteration();
            self.worker.borrow_mut().handle_timers();
            self.worker.borrow_mut().poll_upstreams();
            self.run_fibers();
        }
        self.end();
    }
}

impl<M: Mechanism> Fibers<M> {
    /// Switches to each runnable fiber until all of them wait.
    fn run_fibers(&mut self) {
        loop {
            self.spawn_fibers();
            let Some(id) = self.worker.borrow_mut().next() else { return };
            if let Some(stack) = self.scheduler.switch_to(id) {
                self.worker.borrow_mut().fiber_ended(stack);
            }
        }
    }

    /// Creates the fibers requested for accepted connections.
    fn spawn_fibers(&mut self) {
        loop {
            let new = self.worker.borrow_mut().next_new_fiber();
            let Some(NewFiber { stack, task }) = new else { return };
            let worker = Rc::clone(&self.worker);
            let id = self.scheduler.spawn(stack, move |id, pause| {
                script::serve_connection(&FiberHandle { worker: &worker, id, pause }, task);
            });
            self.worker.borrow_mut().fiber_started(id, self.scheduler.alive());
        }
    }

    /// Creates a fiber that accepts connections.
    fn spawn_acceptor(&mut self, script: fn(&FiberHandle<'_, M>)) -> io::Result<()> {
        let stack = self.worker.borrow_mut().take_stack()?;
        let worker = Rc::clone(&self.worker);
        let id = self.scheduler.spawn(stack, move |id, pause| {
            script(&FiberHandle { worker: &worker, id, pause });
        });
        self.worker.borrow_mut().acceptor_started(id, self.scheduler.alive());
        Ok(())
    }

    /// Ends the fibers, and then the connections that are still open.
    fn end(&mut self) {
        self.worker.borrow_mut().end_fibers();
        self.scheduler.run_to_end(|stack| self.worker.borrow_mut().fiber_ended(stack));
        self.worker.borrow_mut().end();
    }
}

fn setting(config: &Config, tunable: &Tunable) -> usize {
    usize::try_from(config.arch_settings.get(tunable)).unwrap_or(usize::MAX)
}

/// Returns the maximum number of connections when each needs a fiber, bounded by the mappings that
/// the kernel allows a process where a stack takes some. Fails if a pool does not fit.
fn fit(config: &Config, pool: usize, open_max: usize) -> io::Result<usize> {
    let Some(room) = stacks::room(config.workers) else { return Ok(open_max) };
    if pool > room {
        return Err(io::Error::other(format!(
            "there is room for {room} fibers a loop and not for {pool}: each takes two mappings of \
             memory (vm.max_map_count)"
        )));
    }
    if pool == 0 && open_max > room {
        config.errors.warn(&format!(
            "{room} connections a loop at most, not {open_max}: each has a fiber, which takes two \
             mappings of memory (vm.max_map_count)"
        ));
        return Ok(room);
    }
    Ok(open_max)
}
