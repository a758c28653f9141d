//! Schedules of arrivals: planned starts, computed from a law and a seed. Pure: no clock, and no
//! knowledge of what an arrival does or whether the plan is kept.
//!
//! Where the rate is known at every moment, start `i` is at the moment its integral passes `i`, and
//! is computed from `i`: there is no drift, and the number of starts is the integral, rounded up.
//! Random laws add up gaps, and the first start is one gap from the beginning.

mod gaps;
mod law;
mod law_parameters;
mod rate_steps;
mod starts;
mod text;
mod trace;
mod units;
mod varying;

pub use law::{ArrivalLaw, RateStep};
pub use law_parameters::RATE_MAX;
pub use starts::{Arrival, Schedule};
pub use text::RATE_DEFAULT;
