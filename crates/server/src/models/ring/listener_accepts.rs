//! The accept operations under way at one listener.

use weir_accept::AcceptPhase;
use weir_sys::ring::server::Op;

/// Operations under way at a listener.
#[derive(Default)]
pub(super) struct ListenerAccepts {
    /// The operation that waits for connections.
    pub(super) waiting: Option<Op>,
    /// True if it is a multishot accept.
    pub(super) is_many: bool,
    /// True if it was told to end.
    pub(super) is_cancelled: bool,
    /// First receive of the connection that the waiting accept will bring.
    pub(super) receive: Option<Op>,
    /// Accepts of the chain that have not ended.
    pub(super) chain: u64,
    /// True if accepts of the chain found the queue empty, or were not tried.
    pub(super) is_drained: bool,
    /// True if the last phase left no connection pending.
    pub(super) was_drained: bool,
    /// The accept-phase in progress.
    pub(super) phase: Option<AcceptPhase>,
}

impl ListenerAccepts {
    /// Records that the operation that waited has ended.
    pub(super) fn end_wait(&mut self) {
        self.waiting = None;
        (self.is_many, self.is_cancelled) = (false, false);
    }

    /// Returns whether its operations may still bring connections.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting.is_some() || self.is_chained()
    }

    /// Returns whether accepts are under way that end at once.
    pub(super) fn is_chained(&self) -> bool {
        self.chain > 0
    }
}
