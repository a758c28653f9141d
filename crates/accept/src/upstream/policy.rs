//! Contract between a policy and the admission that asks it.

/// Outcome of a request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Answered with what was asked for.
    Answered,
    /// Refused by the server itself, which has no room: no goodput, however soon it came.
    Refused,
    /// Not answered: the connection failed, or a time limit came first.
    Failed,
    /// Replied to after its client had gone: work of the server that was of use to nobody.
    Departed,
    /// Given up because its client has gone, or because something was lacking here to send it:
    /// nothing is known of the server.
    Abandoned,
}

/// A request that has left the server.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Time from sending it to the end of the reply, or to its beginning if the client had gone and
    /// nobody else is to have it, nanoseconds.
    pub took_ns: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// Requests in flight with it when it ended, itself included.
    pub in_flight: usize,
    /// True if the limit was what bounded the number in flight: a request waited for a place when
    /// this one ended, or within the last twentieth of its time. Where all end at the same moment,
    /// they empty the queue.
    pub is_contended: bool,
}

/// Decides how many requests a server may have in flight. Times are nanoseconds of one monotonic
/// clock.
pub trait InFlightPolicy: Send {
    /// Returns the limit; at least 1.
    fn limit(&self) -> usize;

    /// Learns of a request that has ended.
    fn completed(&mut self, now_ns: u64, completion: &Completion);
}
