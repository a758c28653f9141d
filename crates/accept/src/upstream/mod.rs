//! Admission to another server: how many requests it has in flight, which of those that wait are
//! sent next, and which are refused.
//!
//! The rules at an upstream are those at accept. Nothing is refused while a place is free
//! ([`Admission`] gives places before it queues), what waits is what can be served within the delay
//! target, and when not all of it can be, the newest goes first: its client is the one most likely
//! to be still there. How many places there are is an [`InFlightPolicy`]'s decision; the order, and
//! how many may wait, a [`QueuePolicy`]'s.
//!
//! Where refusals are most of what a proxy does, [`Shedding`] says how many new connections come
//! in.
//!
//! There are two classes of requests. The high one goes first and is refused last, but while both
//! wait, every eighth place, in the queue too, is a normal one's.

mod admission;
mod aimd;
mod auto;
mod codel;
mod dagor;
mod departed;
mod fixed;
mod fresh;
mod gradient;
mod policy;
mod queue;
mod queue_policy;
mod shedding;
mod table;
mod vegas;

pub use admission::{Admission, Arrived, Granted, Load, Reason, Ticket};
pub use aimd::Aimd;
pub use auto::Auto;
pub use codel::Codel;
pub use dagor::Dagor;
pub use departed::Departure;
pub use fixed::Fixed;
pub use fresh::Fresh;
pub use gradient::Gradient;
pub use policy::{Completion, InFlightPolicy, Outcome};
pub use queue_policy::{Asked, Class, QueuePolicy};
pub use shedding::{FilteredSyns, Shedding, SynLimits};
pub use table::{QUEUE_TABLE, QueueRow, Row, TABLE, UpstreamConfig};
pub use vegas::Vegas;
