//! The wrapper that keeps a policy to the promise of work conservation.

use crate::{Busy, Decision, PhaseOutcome, Policy, PolicyConfig, Signals, Spare, View, Wanted};

/// A policy whose decisions refuse nothing while the loop has time to spare.
#[derive(Clone, Debug)]
pub struct Conserving<P> {
    policy: P,
    busy: Busy,
}

impl<P: Policy> Conserving<P> {
    /// Wraps a policy.
    pub fn new(policy: P, config: &PolicyConfig) -> Self {
        Self { policy, busy: Busy::new(config.target_ns) }
    }
}

impl<P: Policy> Policy for Conserving<P> {
    fn wants(&mut self, now_ns: u64, view: &View) -> Wanted {
        self.policy.wants(now_ns, view)
    }

    fn decide(&mut self, now_ns: u64, view: &View, signals: &Signals) -> Decision {
        let spare = self.busy.spare(now_ns, view);
        let (busy, saturated) = (spare != Spare::Much, spare == Spare::None);
        let decision = self.policy.decide(now_ns, &View { busy, saturated, ..*view }, signals);
        match spare {
            Spare::Much => decision.open(),
            Spare::Moment => decision.spare(),
            Spare::None => decision,
        }
    }

    fn finished(&mut self, now_ns: u64, outcome: &PhaseOutcome) {
        self.policy.finished(now_ns, outcome);
    }

    fn due_ns(&self) -> Option<u64> {
        self.policy.due_ns()
    }

    fn is_overloaded(&self) -> bool {
        self.policy.is_overloaded()
    }

    fn is_alert(&self) -> bool {
        self.policy.is_alert()
    }
}
