//! Laws of arrivals, as values.

use std::sync::Arc;

/// A law of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum ArrivalLaw {
    /// The same time between any two arrivals.
    Constant {
        /// Arrivals per second.
        rate: f64,
    },
    /// Exponential times between arrivals: a Poisson process.
    Poisson {
        /// Arrivals per second, on average.
        rate: f64,
    },
    /// Uniformly distributed times between arrivals (httperf's `u`).
    Uniform {
        /// Shortest time, seconds.
        shortest_s: f64,
        /// Longest time, seconds.
        longest_s: f64,
    },
    /// Constant rates, one after the other; the last one lasts to the end.
    Steps(Vec<RateStep>),
    /// A rate that grows or falls linearly over the whole duration.
    Ramp {
        /// Arrivals per second at the beginning.
        from: f64,
        /// Arrivals per second at the end.
        to: f64,
    },
    /// A sinusoidal rate: `mean + amplitude * sin(2 pi t / period)`.
    Sine {
        /// Arrivals per second, on average.
        mean: f64,
        /// Largest deviation from the mean, arrivals per second; not more than the mean.
        amplitude: f64,
        /// Period, seconds.
        period_s: f64,
    },
    /// Explicit starts, ascending, nanoseconds from the beginning.
    Trace(Arc<[u64]>),
}

/// A constant rate for a limited time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStep {
    /// Arrivals per second; may be 0.
    pub rate: f64,
    /// Duration, seconds.
    pub duration_s: f64,
}
