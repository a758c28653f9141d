//! The classic accept-limit: at most N connections per accept-phase (brecht-select §4.1,
//! `accept-count`; pariag-accept ch. 3, `accept-limit`).

use crate::{Decision, PhaseOutcome, Policy, Signals, View};

/// A policy whose budget is always its limit; without a limit only max-conns bounds it.
#[derive(Clone, Copy, Debug)]
pub struct FixedLimit(pub Option<u64>);

impl Policy for FixedLimit {
    fn decide(&mut self, _: u64, view: &View, _: &Signals) -> Decision {
        Decision::accept(self.0.map_or(view.room(), |limit| limit.min(view.room())))
    }

    fn finished(&mut self, _: u64, _: &PhaseOutcome) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_the_limit_or_the_room_left() {
        let view = |open| View { open, open_max: 100, ..View::default() };
        let budget =
            |limit, open| FixedLimit(limit).decide(0, &view(open), &Signals::default()).budget;
        assert_eq!(budget(Some(25), 0), 25);
        assert_eq!(budget(Some(25), 90), 10);
        assert_eq!(budget(None, 1), 99);
        assert_eq!(budget(None, 101), 0);
    }
}
