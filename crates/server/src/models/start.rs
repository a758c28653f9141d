//! The start of a worker: the one place where an architecture's name becomes its code.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use weir_content::Compressor;
use weir_dispatch::readiness::{Mechanism, Visitor};

use super::event_loop::EventLoop;
use super::fiber::Fibers;
use super::ring::RingWorker;
use super::thread_per_connection::Threads;
use crate::architecture::ArchitectureName;
use crate::config::{Config, Error};
use crate::context::WorkerContext;
use crate::context::clients::Clients;
use crate::context::log::LogBuffer;
use crate::context::memory::MemoryBudget;
use crate::context::stores::Stores;
use crate::control::Control;
use crate::sandbox::{Confinement, Task};
use crate::stat_page::Publisher;
use crate::upstream::Upstreams;
use crate::upstream::shared::SharedUpstreams;
use crate::worker::listener::Socket;
use crate::worker::{RunWorker, Worker, WorkerParts, setup};

/// Everything needed to start a worker in its thread.
pub(crate) struct WorkerSpec {
    pub index: usize,
    pub sockets: Vec<Socket>,
    pub config: Arc<Config>,
    pub control: Arc<Control>,
    pub publisher: Publisher,
    pub log: Option<LogBuffer>,
    pub upstreams: Option<Arc<SharedUpstreams>>,
    pub clients: Option<Arc<Clients>>,
    pub memory: MemoryBudget,
    pub compressor: Option<Arc<Compressor>>,
    pub confinement: Confinement,
}

/// Starts a worker in its thread, and reports an error at the start.
pub(crate) struct StartWorker {
    pub spec: WorkerSpec,
    pub started: Sender<Error>,
}

impl Visitor for StartWorker {
    type Output = ();

    fn visit<M: Mechanism>(self) {
        match self.spec.config.arch {
            ArchitectureName::Loop | ArchitectureName::Helpers => {
                self.spec.start::<Worker<EventLoop<M>>>(self.started);
            }
            ArchitectureName::Ring => self.spec.start::<RingWorker>(self.started),
            ArchitectureName::Fiber => self.spec.start::<Fibers<M>>(self.started),
            ArchitectureName::Threads => self.spec.start::<Threads>(self.started),
            // The masters were forked before; a relay thread represents each.
            ArchitectureName::Processes => {}
        }
    }
}

impl WorkerSpec {
    /// Builds the worker in its own thread, reports success or the error, and runs it once the
    /// server serves: until then a socket may not listen, and another worker may fail.
    fn start<W: RunWorker>(self, started: Sender<Error>) {
        let control = Arc::clone(&self.control);
        match self.build::<W>() {
            Ok(worker) => {
                drop(started);
                control.await_start();
                worker.run();
            }
            // The receiver waits for the result.
            Err(error) => drop(started.send(error)),
        }
    }

    fn build<W: RunWorker>(self) -> Result<W, Error> {
        let (parts, confinement) = self.prepare()?;
        let worker =
            W::start(parts).map_err(|error| Error(format!("cannot start a loop: {error}")))?;
        confinement.seal()?;
        Ok(worker)
    }

    /// Makes what a worker of any architecture is built of. Apart from `build`, which is compiled
    /// for every architecture and mechanism, it is in the program once.
    fn prepare(mut self) -> Result<(WorkerParts, Confinement), Error> {
        let config = Arc::clone(&self.config);
        setup::pin(self.index, &config)?;
        self.confinement.enter(Task::Serve)?;
        let stores = Stores::open(&config, self.compressor.as_ref())?;
        let open_max = config.conns_max.div_ceil(config.workers).max(1);
        let mut context = WorkerContext::new(config, stores, self.log.take());
        let Self { sockets, control, publisher, upstreams, clients, memory, index, .. } = self;
        let confinement = self.confinement;
        context.clients = clients;
        context.memory = memory.of_loop(&control.waker);
        context.upstreams = upstreams.map(|shared| {
            let (config, waker) = (context.config(), Arc::clone(&control.waker));
            let now_ns = context.read_clock_ns();
            Box::new(Upstreams::new(shared, config, index, waker, now_ns))
        });
        let parts = WorkerParts { context, sockets, control, publisher, open_max };
        Ok((parts, confinement))
    }
}
