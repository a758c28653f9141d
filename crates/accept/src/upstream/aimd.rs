//! Additive increase, multiplicative decrease: the limit grows while requests are answered in time,
//! and shrinks by a tenth when one is not (Netflix concurrency-limits, AIMDLimit). For comparison.

use super::policy::{Completion, InFlightPolicy, Outcome};

const INITIAL: f64 = 20.0;
const MAX: f64 = 200.0;
const BACKOFF: f64 = 0.9;

/// Response time beyond which a request counts as late, nanoseconds: the original's default.
const TIMEOUT_NS: u64 = 5_000_000_000;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    limit: f64,
}

impl Aimd {
    /// Creates the policy.
    #[must_use]
    pub fn new() -> Self {
        Self { limit: INITIAL }
    }
}

impl Default for Aimd {
    fn default() -> Self {
        Self::new()
    }
}

impl InFlightPolicy for Aimd {
    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn completed(&mut self, _now_ns: u64, completion: &Completion) {
        let is_late = completion.took_ns > TIMEOUT_NS;
        match completion.outcome {
            Outcome::Abandoned => {}
            Outcome::Answered | Outcome::Departed if !is_late => {
                // Not while the limit is hardly used.
                if completion.in_flight as f64 * 2.0 >= self.limit {
                    self.limit = (self.limit + 1.0).min(MAX);
                }
            }
            Outcome::Answered | Outcome::Departed | Outcome::Refused | Outcome::Failed => {
                self.limit = (self.limit * BACKOFF).max(1.0);
            }
        }
    }
}
