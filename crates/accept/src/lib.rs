//! Accept policies: how many connections to take in at a time. Counters in, a decision out.
//!
//! A policy is a pure state machine: no I/O and no clock of its own, so that a server and a
//! simulator run the same code. Nothing here knows how a connection is accepted or served.

mod fixed;
mod limit;
mod ramp;

pub use fixed::FixedLimit;
pub use limit::{Limit, NotALimit};
pub use ramp::{RAMP_MAX, Ramp};

/// The policy that a limit stands for.
pub fn policy(limit: Limit) -> Box<dyn Policy> {
    match limit {
        Limit::Count(count) => Box::new(FixedLimit(Some(count))),
        Limit::Inf => Box::new(FixedLimit(None)),
        Limit::Auto => Box::new(Ramp::default()),
    }
}

/// What a policy may look at when an accept-phase begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Connections open now.
    pub open: usize,
    /// The most that may be open at once (max-conns).
    pub open_max: usize,
    /// Getevents-phases since the last accept-phase, this round's counted: one means that
    /// connections have been waiting round after round.
    pub rounds_since: u64,
}

impl View {
    /// How many more may be open.
    pub fn room(&self) -> u64 {
        self.open_max.saturating_sub(self.open) as u64
    }
}

/// How an accept-phase went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Connections accepted.
    pub accepted: u64,
    /// Whether it ended because none was waiting (EWOULDBLOCK).
    pub drained: bool,
}

/// Decides what each accept-phase may do.
pub trait Policy {
    /// How many connections this phase may accept; time in nanoseconds, monotonic.
    fn budget(&mut self, now_ns: u64, view: &View) -> u64;

    /// Hears what became of the budget.
    fn finished(&mut self, now_ns: u64, outcome: Outcome);
}
