//! Costs of a connection and of a turn to the loop. Both are counted while connections stay open,
//! so that neither depends on whether anybody ever closes one.

use crate::View;

/// A stretch is over when the loop was busy for so long in it, nanoseconds,
const STRETCH_NS: u64 = 10_000_000;

/// or when so many were begun and served in it.
const STRETCH_COUNT: u64 = 32;

/// The busy time over which older stretches fade, nanoseconds.
const MEMORY_NS: f64 = 100_000_000.0;

/// The number after which they have faded as much, if that is sooner.
const MEMORY_COUNT: f64 = 256.0;

/// Mean times, nanoseconds, learnt while the loop's sleep is told exactly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Connections are served in a later work-phase, and not when they are accepted.
    serves_later: bool,
    /// Where the stretch began.
    before: Option<(u64, View)>,
    begin: Mean,
    turn: Mean,
    between: Mean,
    unit: Mean,
}

/// A mean in which what was long ago fades.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn learn(&mut self, spent_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        let (spent, count) = (spent_ns as f64, count as f64);
        let seen = spent / count;
        let weight = (spent / (spent + MEMORY_NS)).max(count / (count + MEMORY_COUNT));
        let mean = self.0.unwrap_or(seen);
        self.0 = Some(mean + weight * (seen - mean));
    }
}

impl Cost {
    pub(super) fn new(serves_later: bool) -> Self {
        Self { serves_later, ..Self::default() }
    }

    /// Looks again, in a stretch in which the loop's sleep was told exactly. One in which many were
    /// accepted and not served says nothing of those that were, unless that is what there always
    /// is to do.
    pub(super) fn see(&mut self, now_ns: u64, view: &View, refuses_always: bool) {
        let Some((before_ns, before)) = self.before else {
            self.before = Some((now_ns, *view));
            return;
        };
        let spent_ns = now_ns.saturating_sub(before_ns);
        let slept_ns = view.slept_ns.saturating_sub(before.slept_ns);
        let busy_ns = spent_ns.saturating_sub(slept_ns);
        let begun = view.begun.saturating_sub(before.begun);
        let turns = view.turns.saturating_sub(before.turns);
        if busy_ns < STRETCH_NS && begun + turns < STRETCH_COUNT {
            return;
        }
        self.before = Some((now_ns, *view));
        let accepted = view.accepted.saturating_sub(before.accepted);
        if accepted > begun + begun / 4 + 1 && !refuses_always {
            return;
        }
        let turns_ns = view.turns_ns.saturating_sub(before.turns_ns).min(busy_ns);
        self.turn.learn(turns_ns, turns);
        self.begin.learn(busy_ns - turns_ns, begun);
        self.between.learn(busy_ns, begun);
        self.unit.learn(busy_ns, begun + turns);
    }

    /// The stretch is over before its end: from now on sleep is not told exactly.
    pub(super) fn pause(&mut self) {
        self.before = None;
    }

    /// Cost of a connection that waits to be accepted, until its first reply.
    pub(super) fn connection_ns(&self) -> Option<f64> {
        let begin_ns = self.begin.0.filter(|ns| *ns > 0.0)?;
        Some(begin_ns + if self.serves_later { self.turn_ns() } else { 0.0 })
    }

    /// Cost of a turn of an open connection.
    pub(super) fn turn_ns(&self) -> f64 {
        self.turn.0.unwrap_or(0.0)
    }

    /// Time between two turns served while the loop is busy, be it a new connection's or another's,
    /// and half as often again: a source's share of that is not meant to be exact.
    pub(super) fn turn_share_ns(&self) -> Option<u64> {
        self.unit.0.map(|ns| (ns / 1.5) as u64)
    }

    /// Time between two connections begun while the loop is busy.
    pub(super) fn between_ns(&self) -> Option<f64> {
        self.between.0.filter(|ns| *ns > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Some milliseconds in each of which some are begun and some served, and the loop sleeps.
    fn run(
        cost: &mut Cost,
        view: &mut View,
        ms: u64,
        [begun, turns, turns_ns, slept_ns]: [u64; 4],
    ) {
        let from_ns = cost.before.map_or(0, |(at_ns, _)| at_ns);
        for step in 0..=ms {
            cost.see(from_ns + step * MS, view, false);
            view.begun += begun;
            view.accepted += begun;
            view.turns += turns;
            view.turns_ns += turns_ns;
            view.slept_ns += slept_ns;
        }
    }

    #[test]
    fn connections_that_stay_open_cost_what_they_cost() {
        for (begun, turns) in [(1, 19), (1, 0), (0, 20)] {
            let mut cost = Cost::new(false);
            let turns_ns = turns * 20_000;
            run(&mut cost, &mut View::default(), 400, [begun, turns, turns_ns, 500_000]);
            let expected = (500_000 - turns_ns) as f64;
            assert_eq!(cost.connection_ns(), (begun > 0).then_some(expected));
            assert_eq!(cost.turn_ns(), if turns > 0 { 20_000.0 } else { 0.0 });
        }
    }

    #[test]
    fn served_later_a_connection_costs_a_turn_more() {
        let mut cost = Cost::new(true);
        run(&mut cost, &mut View::default(), 400, [10, 10, 800_000, 0]);
        assert_eq!(cost.connection_ns(), Some(100_000.0));
        assert_eq!(cost.between_ns(), Some(100_000.0));
    }

    #[test]
    fn it_follows_a_change_within_some_hundred_milliseconds() {
        let (mut cost, mut view) = (Cost::new(false), View::default());
        run(&mut cost, &mut view, 100, [10, 0, 0, 0]);
        run(&mut cost, &mut view, 400, [1, 0, 0, 0]);
        let connection_ns = cost.connection_ns().unwrap();
        assert!((900_000.0..1_000_000.0).contains(&connection_ns), "{connection_ns}");
    }

    #[test]
    fn what_happens_in_a_pause_does_not_count() {
        let (mut cost, mut view) = (Cost::new(false), View::default());
        run(&mut cost, &mut view, 100, [10, 0, 0, 0]);
        cost.pause();
        view.begun += 1;
        view.accepted += 1;
        run(&mut cost, &mut view, 100, [10, 0, 0, 0]);
        assert_eq!(cost.connection_ns(), Some(100_000.0));
    }
}
