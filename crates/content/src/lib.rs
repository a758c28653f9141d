//! Static content: resolves a request's path to a body with its header fields, ready to send.
//!
//! A [`Store`] belongs to one event loop and resolves paths below one root, through a bounded
//! cache. The rest is pure logic about representations: validators, conditions, ranges, codings.
//! Nothing here knows of sockets, connections or the HTTP parser: the input is byte slices and the
//! time, and the only I/O is opening, examining and reading files through `weir-sys`.

mod cache;
mod entry;
mod fetch;
mod listing;
mod mime;
pub mod path;
pub mod range;
mod resource;
mod stop;
mod store;
mod tree;
mod validators;
mod variants;

pub use cache::CacheCounts;
pub use entry::{Content, Entry, OpenFile};
pub use fetch::{ColdCounts, Fetch, FetchOp};
pub use listing::{ListingCounts, Waiter};
pub use mime::MimeTypes;
pub use store::{Found, Lookup, Options, Store};
pub use validators::{Conditions, PreconditionResult, Validators, evaluate, if_range_holds};
pub use variants::{Coding, negotiate};

/// The time, as last read by the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds on a monotonic clock, to measure the age of cached values.
    pub monotonic_ns: u64,
    /// Nanoseconds since the epoch, for comparison with file times.
    pub unix_ns: u64,
}
