//! Contract between a policy for the queue and the admission that asks it.

/// Importance of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Goes first, and is refused last.
    High,
    /// All others.
    #[default]
    Normal,
}

/// A request, as far as its admission is concerned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Its class.
    pub class: Class,
    /// Hash of who asks: equal for all requests of a client.
    pub user: u32,
}

/// Decides which of the requests that wait is sent next, and how many may. A request that has
/// waited for the delay target is refused under each. Times are nanoseconds of one monotonic
/// clock.
pub trait QueuePolicy: Send {
    /// Returns whether a request that has just come, while `waiting` wait, may be sent or wait at
    /// all.
    fn admits(&mut self, _now_ns: u64, _asked: Asked, _waiting: usize) -> bool {
        true
    }

    /// Learns of a request that is sent as soon as it comes, without a wait.
    fn note_sent_at_once(&mut self) {}

    /// Returns whether the newest goes first while the oldest has waited for so long.
    fn takes_newest(&self, oldest_waited_ns: u64) -> bool;

    /// Learns of a request that is about to be sent after a wait; returns whether it is dropped
    /// instead.
    fn drops(&mut self, _now_ns: u64, _waited_ns: u64) -> bool {
        false
    }

    /// Returns how many may wait, if `in_time` can be answered within the delay target.
    fn waiting_max(&self, in_time: usize) -> usize;
}
