//! What all architectures share: connections by slot, listeners and their policies, accepting,
//! deadlines, reports, the end. How a worker waits, and when it serves, is its model's.

mod accept;
mod admission;
pub(crate) mod connection_table;
pub(crate) mod core;
mod eviction;
mod lifecycle;
pub(crate) mod listener;
mod memory;
mod model;
pub(crate) mod phase_times;
pub(crate) mod setup;
pub(crate) mod syn_filter;

pub(crate) use self::core::WorkerParts;
pub(crate) use model::{Model, RunWorker, Worker};
