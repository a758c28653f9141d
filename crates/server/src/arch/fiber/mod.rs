//! Knot: user-level threads, each with a stack of its own and code in the blocking style, over any
//! readiness mechanism (pariag-accept §3.1.2).
//!
//! A thread polls the mechanism and switches to the fibers that waited for the reported events,
//! in their order; a fiber runs until it would block. The code of the fibers is in [`script`],
//! their shared state in [`common`].

mod common;
mod scheduler;
mod script;
mod stacks;
mod turns;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use weir_dispatch::readiness::Mechanism;
use weir_dispatch::readiness::settings::Tunable;

use super::listener::Socket;
use super::watched::{HELPERS, Watched};
use super::{Housekeeping, Start};
use crate::config::Config;
use crate::control::Control;
use crate::service::Service;

use common::{Birth, Common};
use scheduler::Scheduler;
use script::Here;
use stacks::Stacks;

/// Option: number of fibers per loop.
pub(super) const POOL: Tunable = Tunable {
    name: "pool",
    help: "fibers of a loop, each serving all it accepted before it accepts again (Knot-C); \
           0: one for each connection (Knot-A)",
    default: 0,
    min: 0,
    max: 100_000,
};

const STACK_KIB: Tunable = Tunable {
    name: "stack-kib",
    help: "size of a fiber's stack; what is never touched costs no memory",
    default: 64,
    min: 32,
    max: 1024,
};

/// Options of this architecture.
pub(super) const TUNABLES: &[Tunable] = &[POOL, STACK_KIB, HELPERS];

/// A loop whose connections are served by fibers.
pub(crate) struct Fibers<M> {
    common: Rc<RefCell<Common<M>>>,
    scheduler: Scheduler,
}

impl<M: Mechanism> Start for Fibers<M> {
    fn start(
        service: Service,
        sockets: Vec<Socket>,
        control: Arc<Control>,
        open_max: usize,
    ) -> io::Result<Self> {
        let config = service.config();
        let pool = tunable(&config, &POOL);
        let open_max = fit(&config, pool, open_max)?;
        let stacks = Stacks::new(tunable(&config, &STACK_KIB) << 10);
        let watched = Watched::open(service, sockets, control, open_max)?;
        let common = Rc::new(RefCell::new(Common::new(watched, stacks, pool > 0)));
        let mut fibers = Self { common, scheduler: Scheduler::default() };
        if pool == 0 {
            fibers.employ(script::acceptor)?;
        }
        for _ in 0..pool {
            fibers.employ(script::member)?;
        }
        Ok(fibers)
    }

    fn run(mut self) {
        while !self.common.borrow().watched.floor.is_over() {
            self.common.borrow_mut().getevents_phase();
            self.run_fibers();
            self.common.borrow_mut().end_round();
            self.keep_time();
            self.run_fibers();
        }
        self.end();
    }
}

impl<M: Mechanism> Fibers<M> {
    /// Switches to each runnable fiber until all of them wait.
    fn run_fibers(&mut self) {
        loop {
            self.beget();
            let Some(id) = self.common.borrow_mut().next() else { return };
            if let Some(stack) = self.scheduler.switch_to(id) {
                self.common.borrow_mut().bury(stack);
            }
        }
    }

    /// Creates the fibers requested for accepted connections.
    fn beget(&mut self) {
        loop {
            let Some(Birth { stack, task }) = self.common.borrow_mut().next_birth() else { return };
            let common = Rc::clone(&self.common);
            let id = self.scheduler.spawn(stack, move |id, pause| {
                script::worker(&Here { common: &common, id, pause }, task);
            });
            self.common.borrow_mut().admit(id, self.scheduler.alive());
        }
    }

    /// Creates a fiber that accepts connections.
    fn employ(&mut self, script: fn(&Here<'_, M>)) -> io::Result<()> {
        let stack = self.common.borrow_mut().take_stack()?;
        let common = Rc::clone(&self.common);
        let id = self.scheduler.spawn(stack, move |id, pause| {
            script(&Here { common: &common, id, pause });
        });
        self.common.borrow_mut().employ(id, self.scheduler.alive());
        Ok(())
    }

    fn keep_time(&mut self) {
        self.common.borrow_mut().keep_time();
    }

    /// Ends the fibers, and then the connections that are still open.
    fn end(&mut self) {
        let mut common = self.common.borrow_mut();
        common.end_fibers();
        drop(common);
        self.scheduler.run_out(|stack| self.common.borrow_mut().bury(stack));
        self.common.borrow_mut().end();
    }
}

fn tunable(config: &Config, tunable: &Tunable) -> usize {
    usize::try_from(config.arch_settings.get(tunable)).unwrap_or(usize::MAX)
}

/// Returns the maximum number of connections when each needs a fiber, bounded by the mappings that
/// the kernel allows a process. Fails if a pool does not fit.
fn fit(config: &Config, pool: usize, open_max: usize) -> io::Result<usize> {
    let room = stacks::room(config.workers);
    if pool > room {
        return Err(io::Error::other(format!(
            "there is room for {room} fibers a loop and not for {pool}: each takes two mappings of \
             memory (vm.max_map_count)"
        )));
    }
    if pool == 0 && open_max > room {
        (config.tell)(&format!(
            "{room} connections a loop at most, not {open_max}: each has a fiber, which takes two \
             mappings of memory (vm.max_map_count)"
        ));
        return Ok(room);
    }
    Ok(open_max)
}
