//! Static content: resolves a request's path to a body with its header fields, ready to send.
//!
//! A [`Store`] belongs to one event loop and resolves paths below one root, through a bounded
//! cache. The rest is pure logic about representations: validators, conditions, ranges, codings,
//! compressed forms. Nothing here knows of sockets, connections or the HTTP parser: the input is
//! byte slices and the time, and the only I/O is opening, examining and reading files through
//! `weir-sys`.

mod cache;
mod cold_error;
mod compression;
mod entry;
mod fetch;
#[cfg(test)]
mod fixtures;
mod listing;
mod mime;
mod options;
pub mod path;
pub mod range;
mod resource;
mod store;
mod time;
mod tree;
mod validators;
mod variants;

pub use cache::CacheCounts;
pub use compression::{
    CompressionOptions, CompressionTask, Compressor, Form, FormCounts, Forms, Level, SpareTime,
    StartWorker,
};
pub use entry::{Content, Entry, OpenFile, Received};
pub use fetch::{ColdCounts, Fetch, FetchOp};
pub use listing::{ListingCounts, Waiter};
pub use mime::MimeTypes;
pub use options::Options;
pub use store::{Compress, Found, Lookup, Store};
pub use time::Now;
pub use validators::{Conditions, PreconditionResult, Validators, evaluate, if_range_holds};
pub use variants::{Coding, negotiate};
