//! Limits of each client for several processes, in numbers that they share: [`SharedBuckets`] for
//! requests and bytes, [`Places`] for connections.
//!
//! There is no lock, which a process could take along when it is killed, and no count that it could
//! leave behind: a connection is a place in a row of its process, cleared by whoever sees that end.
//! All numbers are zero at first, and their size never changes. Where they are, this does not know.

mod buckets;
mod places;

pub use buckets::SharedBuckets;
pub use places::Places;
