//! When arrivals happen: planned starts, from a law and a seed. Pure: no clock, and no knowledge of
//! what an arrival does or whether anybody keeps to the plan.
//!
//! Where the rate is known at every moment, start `i` is at the moment its integral passes `i`, and
//! is computed from `i`: nothing drifts, and a count is the integral, rounded up. Where chance has
//! a part, gaps are added up, and the first start is one gap from the beginning.

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
    /// The same time between any two.
    Constant {
        /// Arrivals a second.
        rate: f64,
    },
    /// Exponential times between them: arrivals that know nothing of each other.
    Poisson {
        /// Arrivals a second, on average.
        rate: f64,
    },
    /// Times between them uniform from the shortest to the longest (httperf's `u`).
    Uniform {
        /// The shortest, seconds.
        shortest_s: f64,
        /// The longest, seconds.
        longest_s: f64,
    },
    /// Constant rates, one after the other; the last goes on to the end.
    Steps(Vec<Step>),
    /// A rate that grows, or falls, evenly over the whole duration.
    Ramp {
        /// Arrivals a second at the beginning.
        from: f64,
        /// Arrivals a second at the end.
        to: f64,
    },
    /// A rate that swings: `mean + amplitude * sin(2 pi t / period)`.
    Sine {
        /// Arrivals a second, on average.
        mean: f64,
        /// How far from the mean it goes, arrivals a second; not more than the mean.
        amplitude: f64,
        /// How long a swing takes, seconds.
        period_s: f64,
    },
    /// These starts, ascending, nanoseconds from the beginning.
    Trace(Arc<[u64]>),
}

/// A rate, held for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Arrivals a second; may be 0.
    pub rate: f64,
    /// For how long, seconds.
    pub duration_s: f64,
}

const NS_PER_S: f64 = 1e9;

/// The nearest whole nanosecond of a time that is not negative; what no `u64` holds is its largest.
fn whole_ns(time_ns: f64) -> u64 {
    (time_ns + 0.5) as u64
}

fn ns(time_s: f64) -> u64 {
    whole_ns(time_s * NS_PER_S)
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / NS_PER_S
}
