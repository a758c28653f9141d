//! Admission to another server: how many requests it has in flight, which of those that wait are
//! sent next, and which are refused.
//!
//! The rules at an upstream are those at accept. Nothing is refused while a place is free
//! ([`Admission`] gives places before it queues), what waits is what can be served within the delay
//! target, and when not all of it can be, the newest goes first: its client is the one most likely
//! to be still there. How many places there are is an [`InFlightPolicy`]'s decision.

mod admission;
mod aimd;
mod auto;
mod fixed;
mod gradient;
mod policy;
mod queue;
mod table;

pub use admission::{Admission, Arrived, Granted, Reason, Ticket};
pub use aimd::Aimd;
pub use auto::Auto;
pub use fixed::Fixed;
pub use gradient::Gradient;
pub use policy::{Completion, InFlightPolicy, Outcome};
pub use table::{Row, TABLE, UpstreamConfig};
