//! Starting and joining the threads of a worker. Knows nothing of the threads' code.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use weir_stats::page;
use weir_sys::heap::{self, MappedCharge, Part, STACK_BYTES_USED};

use super::shared_worker::SharedWorker;
use super::thread_pool::Id;

/// Starts threads, and joins them.
pub(super) struct ThreadSpawner {
    shared: Arc<SharedWorker>,
    stack_bytes: usize,
    handles: HashMap<Id, JoinHandle<()>>,
    next: Id,
}

impl ThreadSpawner {
    pub(super) fn new(shared: &Arc<SharedWorker>, stack_bytes: usize) -> Self {
        Self { shared: Arc::clone(shared), stack_bytes, handles: HashMap::new(), next: 0 }
    }

    /// Starts a thread that does `work`. It runs on the caller's processors (sched_setaffinity(2)).
    ///
    /// # Errors
    /// EAGAIN past a limit of threads, ENOMEM: pthread_create(3).
    pub(super) fn spawn(
        &mut self,
        work: impl FnOnce(&SharedWorker, Id) + Send + 'static,
    ) -> io::Result<()> {
        let (id, shared) = (self.next, Arc::clone(&self.shared));
        let thread = std::thread::Builder::new()
            .name(page::thread_name(shared.control.index()))
            .stack_size(self.stack_bytes)
            .spawn(move || {
                heap::settle_at_end();
                let _stack = MappedCharge::of(Part::Stacks, STACK_BYTES_USED);
                // A thread of a pool may wait for its first connection for ever.
                heap::settle();
                shared.with_lock(|worker| worker.join_thread(id));
                work(&shared, id);
                shared.with_lock(|worker| {
                    worker.model.threads.leave(id);
                    let usage = worker.model.threads.usage_of_ended_divided;
                    worker.core.publisher.note_threads(usage);
                });
            })?;
        self.next += 1;
        self.handles.insert(id, thread);
        Ok(())
    }

    /// Joins the threads that have ended.
    pub(super) fn join_ended(&mut self) {
        for id in self.shared.with_lock(|worker| std::mem::take(&mut worker.model.threads.ended)) {
            if let Some(handle) = self.handles.remove(&id) {
                // A panic was reported when it happened.
                let _ = handle.join();
            }
        }
    }

    /// Ends every thread, and joins it.
    pub(super) fn shutdown(self) {
        self.shared.with_lock(|worker| worker.model.threads.end());
        self.shared.listener_waker.wake();
        for handle in self.handles.into_values() {
            let _ = handle.join();
        }
    }
}
