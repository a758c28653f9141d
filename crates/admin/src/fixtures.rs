//! Fixtures of the tests: a page of statistics in memory, as a server would hand it over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_observe::OwnPage;
use weir_stats::TABLE;
use weir_stats::page::{Description, Layout, Owner, State, Words};
use weir_sys::process::ids_in_proc;

use crate::sampler::Sampler;
use crate::{Lifecycle, Resources};

/// A page in memory, and its slots.
#[derive(Clone)]
pub(crate) struct Page {
    layout: Layout,
    memory: Arc<Memory>,
}

struct Memory(Vec<AtomicU64>);

impl Words for Memory {
    fn load(&self, index: usize) -> Option<u64> {
        Some(self.0.get(index)?.load(Ordering::Relaxed))
    }
}

impl Page {
    /// Creates a page with free slots.
    pub(crate) fn new(slots: usize) -> Self {
        let layout = Layout::new(Description { slots, ..Description::of_this_build() });
        let memory = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
        Self { layout, memory: Arc::new(Memory(memory)) }
    }

    /// Publishes counters, by their names, in the slot of an owner; others are 0.
    pub(crate) fn publish(&self, slot: usize, owner: &Owner, counters: &[(&str, u64)]) {
        let mut values = [0; TABLE.len()];
        for (name, value) in counters {
            values[TABLE.iter().position(|row| row.name == *name).unwrap()] = *value;
        }
        let slot = self.layout.slot(&self.memory.0, slot).unwrap();
        slot.set_owner(owner);
        slot.publish(1, &values, &[]);
    }

    /// Returns the page as an observer is handed it.
    pub(crate) fn observed(&self) -> OwnPage {
        OwnPage::new(self.layout.clone(), self.memory.clone())
    }
}

/// Returns this thread as the owner of a slot.
pub(crate) fn this_thread() -> Owner {
    let (pid, tid) = ids_in_proc();
    Owner { state: State::Live, pid: pid.into(), tid: tid.into(), ..Owner::default() }
}

/// Returns the resources of a server with one loop, which is this thread.
pub(crate) fn resources() -> Resources {
    let page = Page::new(1);
    page.publish(0, &this_thread(), &[]);
    resources_of(&page)
}

/// Returns the resources of a server with this page.
pub(crate) fn resources_of(page: &Page) -> Resources {
    Resources::new(Lifecycle::default(), page.observed(), Sampler::default())
}
