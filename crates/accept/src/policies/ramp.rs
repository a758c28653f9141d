//! A limit that follows the queue: one connection per accept-phase while they arrive one by one, up
//! to [`RAMP_MAX`] while they have been waiting at every iteration.
//!
//! An accept that fails with EWOULDBLOCK is not free: the kernel creates a socket before it looks.
//! A fixed limit above one pays for it in nearly every phase of a server that keeps up; a limit of
//! one pays a wait for each connection of a server that does not. This policy pays neither. It does
//! not use time.

use crate::{Decision, PhaseOutcome, Policy, Signals, View};

/// Maximum number of accepts per phase, however long the queue: with eager reads each connection is
/// served too, and those accepted earlier wait meanwhile.
pub const RAMP_MAX: u64 = 16;

/// A budget that doubles while every iteration finds all of it waiting, and restarts at one
/// otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Ramp {
    budget: u64,
    /// True if the last phase found fewer connections than it could have accepted.
    drained: bool,
}

impl Default for Ramp {
    fn default() -> Self {
        Self { budget: 1, drained: true }
    }
}

impl Ramp {
    /// Returns whether connections have been waiting since the last phase, which left some.
    pub fn is_queued(&self, view: &View) -> bool {
        !self.drained && view.iterations_since <= 1
    }

    /// Returns the next phase's budget, judging the queue by the iterations.
    pub fn budget(&mut self, view: &View) -> u64 {
        self.budget_when(self.is_queued(view), view)
    }

    /// Returns the next phase's budget, for a caller that knows whether there is a queue.
    pub fn budget_when(&mut self, queued: bool, view: &View) -> u64 {
        self.budget = if queued { (2 * self.budget).min(RAMP_MAX) } else { 1 };
        self.budget.min(view.room())
    }

    /// Records whether a phase found fewer connections than it could have accepted.
    pub fn heard(&mut self, outcome: &PhaseOutcome) {
        self.drained = outcome.drained;
    }
}

impl Policy for Ramp {
    fn decide(&mut self, _: u64, view: &View, _: &Signals) -> Decision {
        Decision::accept(self.budget(view))
    }

    fn finished(&mut self, _: u64, outcome: &PhaseOutcome) {
        self.heard(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs accept-phases over a queue that grows by one number of `arrivals` per iteration;
    /// returns the connections each accepted, and the number of failed accepts.
    fn run(arrivals: &[u64]) -> (Vec<u64>, u64) {
        let (mut ramp, mut queue, mut iterations_since, mut failed) = (Ramp::default(), 0, 0, 0);
        let mut accepted = Vec::new();
        for arrived in arrivals {
            queue += arrived;
            iterations_since += 1;
            if queue == 0 {
                continue;
            }
            let view = View { open_max: 1000, iterations_since, ..View::default() };
            let budget = ramp.budget(&view);
            let taken = budget.min(queue);
            failed += u64::from(taken < budget);
            let drained = taken < budget;
            ramp.finished(0, &PhaseOutcome { accepted: taken, drained, ..PhaseOutcome::default() });
            queue -= taken;
            iterations_since = 0;
            accepted.push(taken);
        }
        (accepted, failed)
    }

    #[test]
    fn those_who_come_one_by_one_cost_no_failed_accept() {
        assert_eq!(run(&[1, 0, 1, 0, 0, 1, 0, 1]), (vec![1, 1, 1, 1], 0));
    }

    #[test]
    fn a_queue_is_met_with_doubling_up_to_the_bound() {
        let (accepted, failed) = run(&[100, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(accepted, [1, 2, 4, 8, 16, 16, 16, 16, 16]);
        assert_eq!(failed, 0);
    }

    #[test]
    fn it_starts_again_once_the_queue_is_empty() {
        assert_eq!(run(&[4, 0, 0, 1]), (vec![1, 2, 1, 1], 1));
    }

    #[test]
    fn max_conns_bounds_it() {
        let view = View { open: 99, open_max: 100, ..View::default() };
        let mut ramp = Ramp { budget: 16, drained: false };
        assert_eq!(ramp.budget(&view), 1);
    }
}
