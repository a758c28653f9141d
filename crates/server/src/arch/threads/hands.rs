//! Starting and joining the threads of a group. Knows nothing of what a thread does.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::crew::Id;
use super::monitor::Monitor;

/// Starts threads, and joins them.
pub(super) struct Hands {
    monitor: Arc<Monitor>,
    stack_bytes: usize,
    handles: HashMap<Id, JoinHandle<()>>,
    next: Id,
}

impl Hands {
    pub(super) fn new(monitor: &Arc<Monitor>, stack_bytes: usize) -> Self {
        Self { monitor: Arc::clone(monitor), stack_bytes, handles: HashMap::new(), next: 0 }
    }

    /// Starts a thread that does `work`. It runs on the caller's processors (sched_setaffinity(2)).
    ///
    /// # Errors
    /// EAGAIN past a limit of threads, ENOMEM: pthread_create(3).
    pub(super) fn start(
        &mut self,
        work: impl FnOnce(&Monitor, Id) + Send + 'static,
    ) -> io::Result<()> {
        let (id, monitor) = (self.next, Arc::clone(&self.monitor));
        let thread = std::thread::Builder::new()
            .name("weir-thread".into())
            .stack_size(self.stack_bytes)
            .spawn(move || {
                monitor.turn(|group| group.crew.join(id));
                work(&monitor, id);
                monitor.turn(|group| group.crew.leave(id));
            })?;
        self.next += 1;
        self.handles.insert(id, thread);
        Ok(())
    }

    /// Joins the threads that have ended.
    pub(super) fn join_ended(&mut self) {
        for id in self.monitor.turn(|group| std::mem::take(&mut group.crew.ended)) {
            if let Some(handle) = self.handles.remove(&id) {
                // One that panicked has said so.
                let _ = handle.join();
            }
        }
    }

    /// Ends every thread, and joins it.
    pub(super) fn dismiss(self) {
        self.monitor.turn(|group| group.crew.end());
        self.monitor.knock.wake();
        for handle in self.handles.into_values() {
            let _ = handle.join();
        }
    }
}
