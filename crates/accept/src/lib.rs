//! Accept policies and overload control: how many connections to accept at a time, in which order,
//! and how to treat those that cannot be served in time. Counters in, a decision out.
//!
//! # Work conservation
//!
//! While a loop has slept for any part of the last delay target, or was busy for less than nine
//! tenths of the last 200 ms, nothing is refused, dropped or told to close on account of load: the
//! SYN filter is open, the backlog is what the operator configured, no connection is stale and no
//! reply says `Connection: close`. [`Conserving`] wraps every policy that could do any of this,
//! asks [`Busy`] how much time the loop has to spare, and opens the decision while it has any
//! ([`Decision::open`]). A loop that is about to sleep opens it too, before it does. Want of room
//! (max-conns, descriptors) is not load: room is made by closing the connection that has waited
//! longest for its client.
//!
//! A loop of which only the first is true, a busy one that has slept for a moment, has time for
//! one target's work. When as much waits or is in its handshake, the SYN filter may drop what comes
//! on top ([`Decision::spare`]): in a flood, one that stayed open for a whole target would let in
//! more than is served in ten.
//!
//! A policy is a pure state machine: no I/O and no clock of its own, so that a server and a
//! simulator run the same code, the accept-phase included ([`AcceptPhase`]).

mod busy;
pub mod client_limits;
mod conserving;
mod controls;
mod decision;
mod deferred;
#[cfg(test)]
mod fixtures;
mod handshakes;
mod limit;
mod name;
mod phase;
mod policies;
mod policy;
pub mod shared_clients;
mod shares;
mod tls;
pub mod upstream;
mod view;

pub use busy::{Busy, Spare};
pub use conserving::Conserving;
pub use controls::{Control, Controls, Refusal, SynFilter};
pub use decision::{Decision, Inspect, Order, Share, SynDecision};
pub use deferred::Deferred;
pub use handshakes::Handshakes;
pub use limit::Limit;
pub use name::PolicyName;
pub use phase::{AcceptPhase, Arrival, Verdict};
pub use policies::{Adaptive, Codel, FixedLimit, MatchClose, RAMP_MAX, Ramp, Row, TABLE, Timed};
pub use policy::{PhaseOutcome, Policy, PolicyConfig, TARGET_NS};
pub use shares::{ADDRESSES_COUNTED_MAX, BURST, Claim, EPOCH_BITS, Shares, Source};
pub use tls::{Ended, TlsBudget, TlsWork};
pub use view::{Signals, Syns, View, Wanted};
