//! Match-close: a saturated server accepts a connection for each that has closed, so that the
//! number of open connections stays constant. Counts open connections; does not use time.

use crate::{Decision, PhaseOutcome, Policy, Signals, View};

/// Consecutive iterations that must find connections waiting, and work in hand, before the server
/// counts as saturated. Also the maximum number of consecutive iterations in which a saturated
/// server may accept nothing.
const ITERATIONS: u64 = 8;

/// The dynamic policy that pariag-accept proposes and never built (ch. 6): it accepts all waiting
/// connections until the server is saturated, and then as many as were closed since the last
/// accept-phase.
///
/// The text does not say when a server is saturated. Here it is once connections have been waiting
/// in eight consecutive iterations, each of which had work in hand, and more are open than when
/// that began: it accepts them faster than it completes them. A single such iteration says little,
/// because a connection lives for several; eight of them are rare unless the work in hand is what
/// makes others wait. Taking a short burst for saturation costs little, because the way back is
/// short: the next phase that finds fewer than it might accept (they no longer wait), or that comes
/// after an iteration in which none waited or none had work to be done (the server has time).
///
/// Connections count as closed when they are no longer open, whether served or not: a client that
/// gave up makes room like one that was served. Closes alone would starve newcomers in two cases,
/// which are exceptions: with nothing open nothing closes, so one is accepted; and persistent
/// connections may be busy and never close, so one is accepted after eight iterations without any.
///
/// With eager reads and small replies a connection is closed in the accept-phase that accepted it.
/// Nothing then stays open, the server is never saturated in this sense, and the policy accepts all
/// that wait: [`crate::Timed`] bounds such phases.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchClose {
    saturated: bool,
    /// Consecutive iterations that found connections waiting and work in hand.
    waited_iterations: u64,
    /// Number of open connections before the first of these iterations.
    open_unwaited: usize,
    /// Consecutive phases that could accept nothing.
    barren_iterations: u64,
    /// Number of open connections after the last phase, had none closed in it.
    open_last: usize,
    /// True if the last phase found fewer connections than it could have accepted.
    drained: bool,
}

impl MatchClose {
    /// Updates whether the server is saturated.
    fn look(&mut self, view: &View) {
        let is_waited = view.iterations_since <= 1 && view.work_items > 0;
        if is_waited {
            self.waited_iterations = self.waited_iterations.saturating_add(1);
        } else {
            (self.waited_iterations, self.open_unwaited) = (0, view.open);
        }
        if self.saturated && self.drained {
            // Those that saturated it are dealt with: what comes now is another burst.
            (self.waited_iterations, self.open_unwaited) = (0, view.open);
        }
        self.saturated = self.waited_iterations >= ITERATIONS
            && (self.saturated || view.open > self.open_unwaited);
    }

    /// Returns the number of connections closed since the last phase, with the exceptions that
    /// prevent starvation.
    fn matched(&self, view: &View) -> u64 {
        let closed = self.open_last.saturating_sub(view.open) as u64;
        closed.max(u64::from(view.open == 0 || self.barren_iterations >= ITERATIONS))
    }
}

impl Policy for MatchClose {
    fn decide(&mut self, _: u64, view: &View, _: &Signals) -> Decision {
        self.look(view);
        let wanted = if self.saturated { self.matched(view) } else { u64::MAX };
        let budget = wanted.min(view.room());
        self.barren_iterations =
            if budget == 0 { self.barren_iterations.saturating_add(1) } else { 0 };
        self.open_last = view.open;
        Decision::accept(budget)
    }

    fn finished(&mut self, _: u64, outcome: &PhaseOutcome) {
        let accepted = usize::try_from(outcome.accepted).unwrap_or(usize::MAX);
        self.open_last = self.open_last.saturating_add(accepted);
        self.drained = outcome.drained;
    }

    fn is_overloaded(&self) -> bool {
        self.saturated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FixedLimit;
    use crate::fixtures::{FakeServer, Load};

    /// Returns a load of 300 µs of work per connection, in three iterations.
    fn load(gap_ns: u64) -> Load {
        Load { gap_ns, steps: 3, step_ns: 100_000, ..Load::default() }
    }

    fn server(gap_ns: u64) -> FakeServer {
        FakeServer::new(load(gap_ns))
    }

    /// Returns a saturated policy and the number of open connections after its last phase.
    fn saturated() -> (MatchClose, usize) {
        let (mut policy, mut server) = (MatchClose::default(), server(150_000));
        server.run(&mut policy, 200_000_000);
        assert!(policy.saturated && !policy.drained);
        (policy, policy.open_last)
    }

    fn busy(open: usize) -> View {
        View { open, open_max: 1_000, iterations_since: 1, work_items: 1, ..View::default() }
    }

    fn budget(policy: &mut MatchClose, view: &View) -> u64 {
        let budget = policy.decide(0, view, &Signals::default()).budget;
        policy.finished(0, &PhaseOutcome { accepted: budget, ..PhaseOutcome::default() });
        budget
    }

    #[test]
    fn all_that_wait_may_come_until_the_server_is_saturated() {
        let mut policy = MatchClose::default();
        let phases = server(600_000).run(&mut policy, 1_000_000_000);
        assert!(phases.len() > 1_000);
        assert!(phases.iter().all(|phase| phase.decision.budget == phase.view.room()));
        assert!(phases.iter().all(|phase| phase.accepted == phase.waiting));
    }

    #[test]
    fn twice_the_load_leaves_as_many_open_as_there_were() {
        let mut policy = MatchClose::default();
        let mut server = server(150_000);
        server.run(&mut policy, 500_000_000);
        assert!(policy.is_overloaded());
        let open = policy.open_last;
        let phases = server.run(&mut policy, 1_500_000_000);
        assert!(phases.len() > 10);
        for pair in phases.windows(2) {
            assert_eq!(pair[0].view.open as u64 + pair[0].accepted, open as u64);
            assert_eq!(pair[1].decision.budget, pair[1].closed - pair[0].closed);
        }
    }

    #[test]
    fn it_completes_what_no_limit_completes_with_far_fewer_open() {
        let (mut matching, mut unlimited) = (server(150_000), server(150_000));
        matching.run(&mut MatchClose::default(), 1_000_000_000);
        unlimited.run(&mut FixedLimit(None), 1_000_000_000);
        assert!(matching.closed * 10 > unlimited.closed * 9);
        assert!(matching.open() * 10 < unlimited.open());
    }

    #[test]
    fn it_takes_all_again_once_they_are_fewer_than_closed() {
        let (mut policy, mut server) = (MatchClose::default(), server(150_000));
        server.run(&mut policy, 200_000_000);
        assert!(policy.is_overloaded() && server.waiting() > 100);
        server.load.gap_ns = 600_000;
        server.run(&mut policy, 2_000_000_000);
        let phases = server.run(&mut policy, 2_100_000_000);
        assert!(!policy.is_overloaded());
        assert!(phases.iter().all(|phase| phase.decision.budget == phase.view.room()));
        assert!(phases.iter().all(|phase| phase.accepted == phase.waiting));
    }

    #[test]
    fn an_iteration_that_none_waited_for_ends_saturation() {
        let (mut policy, open) = saturated();
        let view = View { iterations_since: 2, ..busy(open) };
        assert_eq!(budget(&mut policy, &view), view.room());
        assert!(!policy.is_overloaded());
    }

    #[test]
    fn a_phase_that_finds_fewer_than_it_might_accept_ends_saturation() {
        let (mut policy, open) = saturated();
        assert_eq!(policy.decide(0, &busy(open - 3), &Signals::default()).budget, 3);
        policy.finished(0, &PhaseOutcome { accepted: 2, drained: true, ..PhaseOutcome::default() });
        let view = busy(open - 1);
        assert_eq!(budget(&mut policy, &view), view.room());
        assert!(!policy.is_overloaded());
    }

    #[test]
    fn a_queue_in_every_iteration_is_no_saturation_while_as_many_close() {
        let mut policy = MatchClose::default();
        budget(&mut policy, &View { iterations_since: 2, ..busy(50) });
        for _ in 0..100 {
            let view = busy(50);
            assert_eq!(policy.decide(0, &view, &Signals::default()).budget, view.room());
            policy.finished(
                0,
                &PhaseOutcome { accepted: 5, drained: true, ..PhaseOutcome::default() },
            );
        }
    }

    #[test]
    fn open_connections_without_work_do_not_keep_others_out() {
        let (mut policy, open) = saturated();
        assert_eq!(budget(&mut policy, &busy(open)), 0);
        let view = View { work_items: 0, ..busy(open) };
        assert_eq!(budget(&mut policy, &view), view.room());
    }

    #[test]
    fn connections_that_work_and_never_close_let_one_in_now_and_then() {
        let (mut policy, open) = saturated();
        let budgets: Vec<_> = (0..=ITERATIONS).map(|_| budget(&mut policy, &busy(open))).collect();
        assert_eq!(budgets, [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(budget(&mut policy, &busy(open + 1)), 0);
    }

    #[test]
    fn one_may_come_when_nothing_is_open() {
        let (mut policy, _) = saturated();
        policy.open_last = 0;
        assert_eq!(budget(&mut policy, &busy(0)), 1);
    }

    #[test]
    fn those_that_gave_up_make_room_like_those_that_were_served() {
        let (mut policy, open) = saturated();
        assert_eq!(budget(&mut policy, &busy(open - 3)), 3);
        assert_eq!(budget(&mut policy, &busy(open - 1)), 1);
    }

    #[test]
    fn max_conns_bounds_it() {
        let (mut policy, open) = saturated();
        let view = View { open_max: open - 1, ..busy(open - 3) };
        assert_eq!(budget(&mut policy, &view), 2);
        assert_eq!(budget(&mut MatchClose::default(), &View { iterations_since: 9, ..view }), 2);
    }

    #[test]
    fn a_server_that_serves_what_it_accepts_at_once_is_never_saturated() {
        let mut policy = MatchClose::default();
        let mut server = FakeServer::new(Load { eager: true, open_max: 100, ..load(150_000) });
        let phases = server.run(&mut policy, 1_000_000_000);
        assert!(phases.iter().all(|phase| phase.decision.budget == phase.view.room()));
        assert!(phases.len() > 10 && server.waiting() > 1_000);
    }
}
