//! Conversion between seconds and nanoseconds.

/// Nanoseconds per second.
pub(super) const NS_PER_S: f64 = 1e9;

/// Rounds a non-negative time to whole nanoseconds; saturates at `u64::MAX`.
pub(super) fn whole_ns(time_ns: f64) -> u64 {
    (time_ns + 0.5) as u64
}

/// Converts seconds to nanoseconds, rounded.
pub(super) fn ns(time_s: f64) -> u64 {
    whole_ns(time_s * NS_PER_S)
}

/// Converts nanoseconds to seconds.
pub(super) fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / NS_PER_S
}
