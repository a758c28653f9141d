//! Units of time.

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const MILLI_NS: u64 = 1_000_000;
