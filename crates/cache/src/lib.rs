//! A shared cache of HTTP replies (RFC 9111), as pure logic: which replies are stored, for how long
//! they are fresh, which request may be answered with which of them, and which requests wait for
//! the reply to another.
//!
//! A [`Cache`] is shared by all loops. A [`Stored`] reply is a [`weir_content::Entry`], so that it
//! is sent by the code that sends files, with what was decided about its freshness when it arrived:
//! a hit compares numbers. The rules are those of the crate `http-cache-semantics`, which is asked
//! once per reply ([`policy`]); what it does not know (RFC 5861, the age by `Date`, dates in
//! obsolete formats, quoted directives) is here.
//!
//! Nothing here knows of sockets, connections or clocks. Fields come from whoever has parsed them
//! ([`Fields`]), the time is an argument: nanoseconds since 1970 on the wall clock.

mod cache;
mod control;
mod fields;
mod flights;
mod key;
pub mod policy;
mod reuse;
mod selectors;
mod stored;
mod told;

pub use cache::{Cache, CacheConfig, CacheTotals, Found, Recurrence, Reservation};
pub use control::{ReplyControl, RequestControl};
pub use fields::Fields;
pub use flights::{Flight, Joined, Landed};
pub use key::Resource;
pub use reuse::{Reuse, reuse};
pub use selectors::Selector;
pub use stored::{Refreshed, Reply, Stored};
pub use told::Told;
