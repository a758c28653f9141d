//! The limit follows the number of requests that seem to queue in the server, by the ratio of the
//! shortest response time to the present one (Netflix concurrency-limits, VegasLimit). For
//! comparison. The original varies the time between two probes at random; here it is the mean.

use super::policy::{Completion, InFlightPolicy, Outcome};

const INITIAL: f64 = 20.0;
const MAX: f64 = 1000.0;

/// Requests in a queue that are wanted, and tolerated, for each power of ten of the limit.
const ALPHA: f64 = 3.0;
const BETA: f64 = 6.0;

/// Responses per request in flight after which the shortest response time is measured anew.
const PROBE_EACH: f64 = 30.0 * 0.75;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Vegas {
    limit: f64,
    shortest_ns: u64,
    responses: f64,
}

impl Vegas {
    /// Creates the policy.
    #[must_use]
    pub fn new() -> Self {
        Self { limit: INITIAL, shortest_ns: 0, responses: 0.0 }
    }

    fn follow(&mut self, completion: &Completion) {
        let step = self.limit.log10().floor().max(1.0);
        let unqueued = self.shortest_ns as f64 / completion.took_ns.max(1) as f64;
        let queued = (self.limit * (1.0 - unqueued)).ceil();
        let is_answered = matches!(completion.outcome, Outcome::Answered | Outcome::Departed);
        let limit = if !is_answered {
            self.limit - step
        } else if (completion.in_flight as f64) * 2.0 < self.limit {
            return;
        } else if queued <= step {
            self.limit + BETA * step
        } else if queued < ALPHA * step {
            self.limit + step
        } else if queued > BETA * step {
            self.limit - step
        } else {
            return;
        };
        self.limit = limit.clamp(1.0, MAX);
    }
}

impl Default for Vegas {
    fn default() -> Self {
        Self::new()
    }
}

impl InFlightPolicy for Vegas {
    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn completed(&mut self, _now_ns: u64, completion: &Completion) {
        if completion.outcome == Outcome::Abandoned {
            return;
        }
        self.responses += 1.0;
        let probes = self.responses >= PROBE_EACH * self.limit;
        if probes || self.shortest_ns == 0 || completion.took_ns < self.shortest_ns {
            self.shortest_ns = completion.took_ns;
            self.responses = if probes { 0.0 } else { self.responses };
            return;
        }
        self.follow(completion);
    }
}
