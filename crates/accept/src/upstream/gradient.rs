//! The limit follows the ratio of the long-term response time to the present one, and leaves room
//! for a queue (Netflix concurrency-limits, Gradient2Limit). For comparison: where the response
//! time does not change with the limit, it grows to its maximum.

use super::policy::{Completion, InFlightPolicy, Outcome};

const INITIAL: f64 = 20.0;
const MAX: f64 = 200.0;

/// Requests that may queue in the server beyond what the gradient gives.
const QUEUE: f64 = 4.0;

/// Ratio that is tolerated.
const TOLERANCE: f64 = 1.5;

/// Weight of a new limit.
const SMOOTHING: f64 = 0.2;

/// Responses over which the long-term response time is averaged.
const LONG: f64 = 600.0;

/// Responses of which the long-term response time is a plain average at the start.
const WARM_UP: u32 = 10;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Gradient {
    limit: f64,
    long_ns: f64,
    count: u32,
}

impl Gradient {
    /// Creates the policy.
    #[must_use]
    pub fn new() -> Self {
        Self { limit: INITIAL, long_ns: 0.0, count: 0 }
    }

    fn average(&mut self, sample_ns: f64) {
        if self.count < WARM_UP {
            self.count += 1;
            self.long_ns += (sample_ns - self.long_ns) / f64::from(self.count);
        } else {
            self.long_ns += (sample_ns - self.long_ns) * 2.0 / (LONG + 1.0);
        }
        // After a slow time, the average comes down quickly.
        if self.long_ns / sample_ns > 2.0 {
            self.long_ns *= 0.95;
        }
    }
}

impl Default for Gradient {
    fn default() -> Self {
        Self::new()
    }
}

impl InFlightPolicy for Gradient {
    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn completed(&mut self, _now_ns: u64, completion: &Completion) {
        if completion.outcome == Outcome::Abandoned {
            return;
        }
        let short_ns = completion.took_ns.max(1) as f64;
        self.average(short_ns);
        // Not while the limit is hardly used.
        if (completion.in_flight as f64) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * self.long_ns / short_ns).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + QUEUE;
        let limit = self.limit * (1.0 - SMOOTHING) + wanted * SMOOTHING;
        self.limit = limit.clamp(QUEUE, MAX);
    }
}
