//! MT: kernel threads, one per connection on demand, or a pool of a fixed number (Pai, Druschel and
//! Zwaenepoel, Flash, section 3.2; pariag-accept ch. 3, for the pool's script). A thread runs what
//! looks like blocking code: it does what it can, waits for its connection's socket, and does what
//! it can again.
//!
//! The threads of one worker are a group, and share its state under one lock ([`shared_worker`]).
//! This module begins and ends a group; accepting is in [`acceptor`] and [`pool`].

mod acceptor;
pub(crate) mod listener_poll;
pub(crate) mod model;
pub(crate) mod park;
mod pool;
mod serve;
mod shared_worker;
mod thread_pool;
mod thread_spawner;

use std::io;
use std::sync::Arc;

use weir_stats::page::Usage;
use weir_sys::waker::Waker;

use crate::architecture::options::threads::{POOL, STACK_KIB};
use crate::worker::core::LoopCore;
use crate::worker::{RunWorker, Worker, WorkerParts};
use model::ThreadGroup;
use shared_worker::SharedWorker;
use thread_spawner::ThreadSpawner;

/// A group with its threads.
pub(crate) struct Threads {
    shared: Arc<SharedWorker>,
    spawner: ThreadSpawner,
    pooled: bool,
}

impl RunWorker for Threads {
    fn start(parts: WorkerParts) -> io::Result<Self> {
        let settings = &parts.context.config.arch_settings;
        let (pool, stack_kib) = (settings.get(&POOL), settings.get(&STACK_KIB));
        let waker = Arc::new(Waker::new()?);
        let control = Arc::clone(&parts.control);
        let model = ThreadGroup::new(pool > 0, Some(Arc::clone(&waker)));
        let mut core = LoopCore::new(parts);
        core.publisher.note_threads(Usage::default());
        let worker = Worker { core, model };
        let shared = Arc::new(SharedWorker::new(worker, waker, control));
        let mut spawner = ThreadSpawner::new(&shared, stack_kib as usize * 1024);
        for _ in 0..pool {
            // If one cannot be started, the others wait for the start until the process ends.
            spawner.spawn(pool::run_thread).map_err(|error| {
                io::Error::other(format!("cannot start {pool} threads: {error}"))
            })?;
        }
        Ok(Self { shared, spawner, pooled: pool > 0 })
    }

    fn run(mut self) {
        if self.pooled {
            pool::run_timekeeper(&self.shared);
        }
        acceptor::run_acceptor(&self.shared, &mut self.spawner, !self.pooled);
        acceptor::end(&self.shared, self.spawner);
    }
}
