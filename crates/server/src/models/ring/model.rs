//! The state of a ring's loop, beside what all architectures share.

use std::collections::VecDeque;
use std::time::Duration;

use weir_dispatch::readiness::Token;
use weir_sys::ring::server::{Completion, Op, ServerRing};

use super::completion_batcher::CompletionBatcher;
use super::connection::BufferPair;
use super::disk_queue::DiskQueue;
use super::listener_accepts::ListenerAccepts;
use crate::worker::Worker;

/// A worker on a ring.
pub(crate) type RingWorker = Worker<Ring>;

/// A completion that has not been handled.
pub(super) struct Pending {
    pub(super) completion: Completion,
    /// Approximate time of its completion, nanoseconds on the loop's clock.
    pub(super) completed_ns: u64,
}

/// State of a loop on completions.
pub(crate) struct Ring {
    pub(super) ring: ServerRing,
    pub(super) accept_ops: Vec<ListenerAccepts>,
    /// The poll operation on the waker.
    pub(super) wake_poll: Op,
    /// Completions in the order in which they came, not sorted yet.
    pub(super) completions: Vec<Completion>,
    /// The accept queue: connections, and listeners with a pending connection.
    pub(super) arrived: VecDeque<Completion>,
    /// Completions of other operations that have not been handled.
    pub(super) work_pending: VecDeque<Pending>,
    /// Large replies that wait for the write budget, with the rest of each.
    pub(super) paced_sends: VecDeque<(Token, BufferPair)>,
    /// Connections that yielded and could continue, longest waiting first.
    pub(super) yielded: VecDeque<Token>,
    /// CPU time that the kernel took for this iteration's large replies, nanoseconds; `None` if it
    /// was not measured.
    pub(super) paced_ns: Option<u64>,
    /// Bytes of replies that this iteration found sent.
    pub(super) sent_bytes: u64,
    /// Connections whose receive ended for lack of buffers.
    pub(super) starved: Vec<Token>,
    /// Connections that wait for a disk, or have operations under way there.
    pub(super) disk_queue: DiskQueue,
    /// Time at which completions were last taken, nanoseconds.
    pub(super) taken_at_ns: u64,
    /// Approximate time of the completion being handled, nanoseconds.
    pub(super) completed_ns: u64,
    /// Time to poll for completions before sleeping; `None` without `sqpoll`.
    pub(super) spin: Option<Duration>,
    pub(super) zero_copy_from: u64,
    pub(super) batcher: CompletionBatcher,
    /// Completions that queued operations will bring at once and that no client waits for.
    pub(super) certain: u32,
    /// Time at which this iteration's sleep began, nanoseconds; `None` if it did not sleep.
    pub(super) slept_since_ns: Option<u64>,
}
