//! Controlled delay for a server's accept queue: refuses connections that waited too long, judged
//! by the least wait of each interval. Its only measure of the queue is how long its members
//! waited.

use crate::{
    Control, Controls, Decision, Inspect, Order, PhaseOutcome, Policy, PolicyConfig, Ramp, Signals,
    View,
};

/// Length of an interval in targets: 100 ms for the default target, the interval of RFC 8289 and of
/// Maurer, whose targets are 5 ms; the kernel's tick is too coarse for such a target.
const INTERVAL_TARGETS: u64 = 5;

/// Maximum wait of a connection while the server is overloaded, in targets (folly's `Codel`, its
/// slough timeout).
const SLOUGH_TARGETS: u64 = 2;

/// CoDel as Facebook's servers have it (Maurer, "Fail at Scale", ACM Queue, 2015; folly's `Codel`).
///
/// CoDel (Nichols and Jacobson, RFC 8289) distinguishes a queue that absorbs a burst from a
/// standing queue by the *least* sojourn of an interval: a good queue is short at least once. Then
/// it drops packets one by one, faster and faster, until the flows slow down. Clients that open
/// connections do not slow down: each is a different client, and a refused one retries. So this
/// variant keeps the detector and changes the reaction. While the least sojourn of the last
/// interval was above the target, connections that waited longer than twice the target are refused;
/// otherwise those that waited longer than an interval: neither unless the loop is saturated
/// ([`crate::Conserving`]). Under overload the newest are served first: the others have waited so
/// long that their clients may be gone when their turn comes (adaptive LIFO, same article).
///
/// A phase's sojourn is [`PhaseOutcome::age_min_ns`]. While connections arrive one by one, with a
/// iteration between them, none is looked at, so that a calm server pays nothing; the sojourn is
/// then zero, because the queue was empty. While connections accepted before are deferred, the
/// phase says nothing: they are the queue then, and the kernel knows the ages of its youngest part
/// only.
///
/// Ages are rounded to the kernel's tick, 4 ms at 250 Hz and 10 ms at 100 Hz: a target of a tick or
/// two is a guess, one of 20 ms is distinguished well enough from twice as much. A connection whose
/// request has not arrived has no age: its wait counts from its accept. This policy uses neither
/// the backlog nor the SYN filter, so each connection it refuses has cost an accept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codel {
    target_ns: u64,
    interval_ns: u64,
    controls: Controls,
    ramp: Ramp,
    /// Least sojourn of the interval so far; `u64::MAX` before the first.
    least_ns: u64,
    interval_end_ns: u64,
    overloaded: bool,
    /// True if connections were deferred when the last phase began.
    holding: bool,
    /// True if connections were waiting then.
    queued: bool,
}

impl Codel {
    /// Creates the policy for a delay target and a set of controls.
    pub fn new(config: &PolicyConfig) -> Self {
        Self {
            target_ns: config.target_ns,
            interval_ns: config.target_ns.saturating_mul(INTERVAL_TARGETS),
            controls: config.controls,
            least_ns: u64::MAX,
            ..Self::default()
        }
    }

    /// Returns the maximum wait of a connection in the current state, nanoseconds.
    fn age_max_ns(&self) -> u64 {
        let targets = if self.overloaded { SLOUGH_TARGETS } else { INTERVAL_TARGETS };
        self.target_ns.saturating_mul(targets)
    }

    fn order(&self) -> Order {
        let newest = self.overloaded && self.controls.has(Control::Newest);
        if newest { Order::Newest } else { Order::Oldest }
    }

    /// Records a sojourn. It counts towards the current interval even if it completes it, because
    /// it began before it was recorded.
    fn heard(&mut self, now_ns: u64, sojourn_ns: u64) {
        self.least_ns = self.least_ns.min(sojourn_ns);
        if now_ns >= self.interval_end_ns {
            self.overloaded = self.least_ns > self.target_ns;
            self.least_ns = u64::MAX;
            self.interval_end_ns = now_ns.saturating_add(self.interval_ns);
        }
    }
}

impl Policy for Codel {
    fn decide(&mut self, now_ns: u64, view: &View, _: &Signals) -> Decision {
        let is_queued = self.ramp.is_queued(view);
        self.holding = view.deferred > 0;
        self.queued = is_queued;
        if !is_queued && !self.holding {
            self.heard(now_ns, 0);
        }
        Decision {
            budget: self.ramp.budget(view),
            inspect: if is_queued { Inspect::All } else { Inspect::None },
            stale_ns: self.controls.has(Control::Stale).then(|| self.age_max_ns()),
            drop_departed: self.controls.has(Control::Departed),
            order: self.order(),
            ..Decision::default()
        }
    }

    fn finished(&mut self, now_ns: u64, outcome: &PhaseOutcome) {
        self.ramp.heard(outcome);
        if let (Some(age_ns), false) = (outcome.age_min_ns, self.holding) {
            self.heard(now_ns, age_ns);
        }
    }

    fn is_overloaded(&self) -> bool {
        self.overloaded
    }

    fn is_alert(&self) -> bool {
        self.queued || self.overloaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{FakeServer, Load, Phase, TICK_NS, config};
    use crate::{PolicyName, TARGET_NS};

    const MS: u64 = 1_000_000;

    fn codel(controls: Controls) -> Codel {
        Codel::new(&PolicyConfig { controls, ..config(PolicyName::Codel) })
    }

    /// Returns a server that can serve a thousand connections per second.
    fn server(gap_ns: u64) -> FakeServer {
        burst(0, gap_ns)
    }

    /// Returns the same server with a burst of connections at the start.
    fn burst(burst: usize, gap_ns: u64) -> FakeServer {
        FakeServer::new(Load { burst, step_ns: MS, gap_ns, ..Load::default() })
    }

    fn queued(deferred: usize) -> View {
        View { open_max: 100, iterations_since: 1, deferred, ..View::default() }
    }

    /// Runs a phase that accepts its whole budget, of which the youngest connection waited
    /// `age_ns`.
    fn phase(codel: &mut Codel, now_ns: u64, view: &View, age_ns: u64) -> Decision {
        let decision = codel.decide(now_ns, view, &Signals::default());
        let age_min_ns = (decision.inspect == Inspect::All).then_some(age_ns);
        let outcome =
            PhaseOutcome { accepted: decision.budget, age_min_ns, ..PhaseOutcome::default() };
        codel.finished(now_ns, &outcome);
        decision
    }

    /// Returns a policy driven into overload by connections that waited 30 ms, and the time.
    fn overloaded() -> (Codel, u64) {
        let mut codel = codel(Controls::ALL);
        let mut now_ns = 0;
        while !codel.is_overloaded() {
            phase(&mut codel, now_ns, &queued(0), 30 * MS);
            now_ns += MS;
            assert!(now_ns < 1_000 * MS);
        }
        (codel, now_ns)
    }

    #[test]
    fn a_calm_server_looks_at_nobody_and_refuses_nobody() {
        let mut codel = codel(Controls::ALL);
        let phases = server(2 * MS).run(&mut codel, 1_000 * MS);
        assert!(phases.len() > 400);
        assert!(phases.iter().all(|phase| phase.decision.inspect == Inspect::None));
        assert!(phases.iter().all(|phase| phase.decision.stale_ns == Some(100 * MS)));
        assert!(phases.iter().all(|phase| phase.refused == 0));
        assert!(!codel.is_overloaded());
    }

    #[test]
    fn a_calm_server_that_sleeps_between_connections_may_look_and_is_calm() {
        let load = Load { eager: true, step_ns: MS, gap_ns: 2 * MS, ..Load::default() };
        let mut codel = codel(Controls::ALL);
        let phases = FakeServer::new(load).run(&mut codel, 1_000 * MS);
        assert!(phases.iter().any(|phase| phase.decision.inspect == Inspect::All));
        assert!(phases.iter().all(|phase| phase.decision.order == Order::Oldest));
        assert!(phases.iter().all(|phase| phase.refused == 0));
    }

    #[test]
    fn twice_the_load_is_overload_and_old_connections_are_refused() {
        let mut codel = codel(Controls::ALL.without(Control::Newest));
        let mut server = server(MS / 2);
        server.run(&mut codel, 1_000 * MS);
        assert!(codel.is_overloaded());
        let phases = server.run(&mut codel, 2_000 * MS);
        assert!(phases.iter().all(|phase| phase.decision.stale_ns == Some(40 * MS)));
        assert!(phases.iter().all(|phase| phase.decision.order == Order::Oldest));
        let waited_ns = phases.iter().filter_map(|phase| phase.waited_max_ns).max();
        assert!(waited_ns.is_some_and(|ns| ns > TARGET_NS && ns <= 40 * MS + TICK_NS));
        assert!(phases.iter().map(|phase| phase.refused).sum::<u64>() > 800);
    }

    #[test]
    fn without_its_control_nobody_is_refused() {
        let mut codel = codel(Controls::NONE);
        let phases = server(MS / 2).run(&mut codel, 2_000 * MS);
        assert!(codel.is_overloaded());
        assert!(phases.iter().all(|phase| phase.decision.stale_ns.is_none()));
        assert!(phases.iter().all(|phase| !phase.decision.drop_departed && phase.refused == 0));
    }

    #[test]
    fn overload_ends_with_the_load() {
        let mut codel = codel(Controls::ALL);
        let mut server = server(MS / 2);
        server.run(&mut codel, 1_000 * MS);
        assert!(codel.is_overloaded());
        server.load.gap_ns = 2 * MS;
        server.run(&mut codel, 2_000 * MS);
        let phases = server.run(&mut codel, 2_200 * MS);
        assert!(!codel.is_overloaded());
        assert!(phases.iter().all(|phase| phase.refused == 0 && phase.view.deferred == 0));
        assert!(phases.iter().all(|phase| phase.decision.inspect == Inspect::None));
    }

    #[test]
    fn a_burst_that_is_served_within_an_interval_is_no_overload() {
        let mut codel = codel(Controls::ALL);
        let mut server = burst(80, 20 * MS);
        let phases = server.run(&mut codel, 1_000 * MS);
        let waited_ns = phases.iter().filter_map(|phase| phase.waited_max_ns).max();
        assert!(waited_ns.is_some_and(|ns| ns > 2 * TARGET_NS));
        assert!(phases.iter().all(|phase| phase.refused == 0));
        assert!(!codel.is_overloaded());
    }

    #[test]
    fn one_short_wait_makes_an_interval_calm() {
        let (mut codel, mut now_ns) = overloaded();
        phase(&mut codel, now_ns, &queued(0), 20 * MS);
        let calm_ns = now_ns + 101 * MS;
        while now_ns < calm_ns {
            now_ns += MS;
            phase(&mut codel, now_ns, &queued(0), 30 * MS);
        }
        assert!(!codel.is_overloaded());
    }

    #[test]
    fn the_newest_come_first_under_overload_while_it_lasts() {
        let mut codel = codel(Controls::ALL);
        let mut server = server(MS / 2);
        server.run(&mut codel, 1_000 * MS);
        let phases = server.run(&mut codel, 3_000 * MS);
        assert!(phases.iter().all(|phase| phase.decision.order == Order::Newest));
        assert!(phases.iter().any(|phase| phase.view.deferred > 0));
    }

    #[test]
    fn ages_say_nothing_while_others_are_deferred() {
        let (mut codel, now_ns) = overloaded();
        for ms in 1..300 {
            phase(&mut codel, now_ns + ms * MS, &queued(1), MS);
        }
        assert!(codel.is_overloaded());
        let empty = View { iterations_since: 2, ..queued(1) };
        phase(&mut codel, now_ns + 300 * MS, &empty, 0);
        assert!(codel.is_overloaded());
        phase(&mut codel, now_ns + 301 * MS, &View { deferred: 0, ..empty }, 0);
        assert!(!codel.is_overloaded());
    }

    #[test]
    fn a_silent_queue_changes_nothing() {
        let (mut codel, now_ns) = overloaded();
        for ms in 1..300 {
            codel.decide(now_ns + ms * MS, &queued(0), &Signals::default());
            codel.finished(
                now_ns + ms * MS,
                &PhaseOutcome { accepted: 1, ..PhaseOutcome::default() },
            );
        }
        assert!(codel.is_overloaded());
    }

    #[test]
    fn the_queue_is_looked_at_from_the_second_phase_on_and_met_with_doubling() {
        let mut codel = codel(Controls::ALL);
        let phases: Vec<Phase> = burst(100, 1_000 * MS).run(&mut codel, 50 * MS);
        let seen: Vec<_> =
            phases.iter().take(4).map(|it| (it.decision.budget, it.decision.inspect)).collect();
        let each = Inspect::All;
        assert_eq!(seen, [(1, Inspect::None), (2, each), (4, each), (8, each)]);
    }

    #[test]
    fn backlog_and_syn_filter_are_left_alone() {
        let (mut codel, now_ns) = overloaded();
        let view = View { open: 95, ..queued(0) };
        let decision = phase(&mut codel, now_ns, &view, 30 * MS);
        let expected = Decision {
            inspect: Inspect::All,
            stale_ns: Some(40 * MS),
            drop_departed: true,
            order: Order::Newest,
            ..Decision::accept(5)
        };
        assert_eq!(decision, expected);
    }
}
