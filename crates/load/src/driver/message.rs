//! Messages from the driving threads to the thread that started them.

use std::io;

use super::spare_intervals::LentInterval;
use crate::config::RequestSample;
use crate::measure::RunOutcome;

/// A message from a driving thread.
pub(super) enum Message {
    /// It is set up, or cannot be.
    Ready(io::Result<()>),
    /// A second has ended.
    Second(LentInterval),
    /// Requests have completed.
    Samples(Vec<RequestSample>),
    /// The run is over.
    Done(Box<ThreadReport>),
}

/// The final report of a driving thread. Times are nanoseconds on the run's clock.
pub(super) struct ThreadReport {
    /// The thread's part of the outcome.
    pub(super) outcome: RunOutcome,
    /// Number of seconds reported.
    pub(super) seconds: u64,
    /// End of the plan: no arrival began from then on.
    pub(super) plan_ends_ns: u64,
    /// Planned time of the thread's first arrival behind the last of the run, if a number ended it;
    /// else `u64::MAX`.
    pub(super) first_left_out_ns: u64,
    /// End of the last request.
    pub(super) ended_ns: u64,
}
