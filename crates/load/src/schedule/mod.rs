//! Schedules of arrivals: planned starts, computed from a law and a seed. Pure: no clock, and no
//! knowledge of what an arrival does or whether the plan is kept.
//!
//! Where the rate is known at every moment, start `i` is at the moment its integral passes `i`, and
//! is computed from `i`: there is no drift, and the number of starts is the integral, rounded up.
//! Random laws add up gaps, and the first start is one gap from the beginning.

mod even;
mod figures;
mod gaps;
mod starts;
mod text;
mod trace;
mod varying;

use std::sync::Arc;

pub use figures::RATE_MAX;
pub use starts::Schedule;
pub use text::RATE_DEFAULT;

/// A law of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
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
    Steps(Vec<Step>),
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
pub struct Step {
    /// Arrivals per second; may be 0.
    pub rate: f64,
    /// Duration, seconds.
    pub duration_s: f64,
}

const NS_PER_S: f64 = 1e9;

/// Rounds a non-negative time to whole nanoseconds; saturates at `u64::MAX`.
fn whole_ns(time_ns: f64) -> u64 {
    (time_ns + 0.5) as u64
}

fn ns(time_s: f64) -> u64 {
    whole_ns(time_s * NS_PER_S)
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / NS_PER_S
}
