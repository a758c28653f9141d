//! Time as an argument.

/// The time, as last read by the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds on a monotonic clock, to measure the age of cached values.
    pub monotonic_ns: u64,
    /// Nanoseconds since the epoch, for comparison with file times.
    pub unix_ns: u64,
}
