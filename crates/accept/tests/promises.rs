//! Invariants of every policy under any history of a server: it never accepts more connections than
//! there is room for, and never stops accepting for good. Uses the public interface alone, and
//! takes the policies from their table.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use weir_accept::{
    Control, Controls, Inspect, Limit, PhaseOutcome, Policy, PolicyConfig, PolicyName, Refusal,
    Signals, SynFilter, Syns, TABLE, View,
};

const OPEN_MAX: usize = 500;

/// Number of iterations without trouble after which no connection may be kept out.
const PATIENCE_ITERATIONS: usize = 2_000;

/// An iteration of a server's life.
#[derive(Clone, Copy, Debug)]
struct Iteration {
    /// Duration of the iteration.
    passed_ns: u64,
    /// Connections that arrived.
    came: u64,
    /// Arrived connections that had gone before their accept, which then failed.
    lost: u64,
    /// Open connections closed in the work-phase.
    closed: usize,
    work_items: u64,
    /// Wait of the youngest connection in the queue.
    age_ns: u64,
    dropped: u32,
    /// True if the loop slept for half of the iteration.
    slept: bool,
}

/// An iteration in which a connection arrives and nothing else happens.
const BARREN: Iteration = Iteration {
    passed_ns: 1_000_000,
    came: 1,
    lost: 0,
    closed: 0,
    work_items: 0,
    age_ns: 0,
    dropped: 0,
    slept: false,
};

/// A policy and its view of a server that executes its decisions.
struct Server {
    policy: Box<dyn Policy>,
    target_ns: u64,
    now_ns: u64,
    view: View,
    queue: u64,
    passed: u64,
    drops: u32,
    /// Time of each iteration, and the total sleep by then.
    sleeps: Vec<(u64, u64)>,
}

impl Server {
    fn new(config: &PolicyConfig) -> Self {
        let view = View { open_max: OPEN_MAX, ..View::default() };
        let target_ns = config.target_ns;
        Self {
            policy: config.policy(),
            target_ns,
            now_ns: 0,
            view,
            queue: 0,
            passed: 0,
            drops: 0,
            sleeps: Vec::new(),
        }
    }

    /// Returns whether the loop has slept for more than a tenth of the last 200 ms, all sleep of an
    /// iteration that began before them left out.
    fn has_slept_much(&self) -> bool {
        let from_ns = self.now_ns.saturating_sub(200_000_000);
        let before = self.sleeps.iter().find(|(at_ns, _)| *at_ns >= from_ns);
        before.is_some_and(|(_, slept_ns)| self.view.slept_ns - slept_ns > 20_000_000)
    }

    /// Plays an iteration; returns its budget if a connection was pending.
    fn iteration(&mut self, iteration: &Iteration) -> Option<u64> {
        self.now_ns += iteration.passed_ns;
        self.queue += iteration.came;
        self.passed += iteration.came;
        if iteration.slept {
            self.view.slept_ns += iteration.passed_ns / 2;
            self.view.woke_ns = self.now_ns - iteration.passed_ns / 2;
        }
        self.sleeps.push((self.now_ns, self.view.slept_ns));
        self.drops = self.drops.wrapping_add(iteration.dropped);
        self.view.iterations_since += 1;
        let budget = (self.queue > 0).then(|| self.accept_phase(iteration));
        let closed = iteration.closed.min(self.view.open);
        self.view.open -= closed;
        self.view.served += iteration.work_items;
        self.view.work_items = iteration.work_items;
        self.view.work_ns = if iteration.work_items > 0 { iteration.passed_ns } else { 0 };
        self.view.served_ns += self.view.work_ns;
        budget
    }

    fn accept_phase(&mut self, iteration: &Iteration) -> u64 {
        let wanted = self.policy.wants(self.now_ns, &self.view);
        let queue = wanted.queue.then_some(self.queue as u32);
        let syns = Syns { passed: self.passed, dropped: self.drops.into(), ..Syns::default() };
        let signals = Signals { queue, syns: queue.map(|_| syns) };
        let decision = self.policy.decide(self.now_ns, &self.view, &signals);
        assert!(decision.budget <= self.view.room(), "{decision:?} of {:?}", self.view);
        let has_slept = self.now_ns - self.view.woke_ns < self.target_ns;
        assert!(!(has_slept && decision.refuses()), "{decision:?} of {:?}", self.view);
        let is_open = decision == decision.open();
        assert!(is_open || !self.has_slept_much(), "{decision:?} of {:?}", self.view);
        let refused = decision.refuse.min(self.queue);
        let drained = decision.budget > self.queue - refused;
        let lost = iteration.lost.min(self.queue - refused).min(decision.budget);
        self.queue -= lost;
        let served = (decision.budget - lost).min(self.queue - refused);
        let age_ns = (served > 0 && decision.inspect != Inspect::None).then_some(iteration.age_ns);
        self.queue -= refused + served;
        self.view.open += served as usize;
        self.view.begun += served;
        self.view.iterations_since = 0;
        let (age_first_ns, age_min_ns) = (age_ns, age_ns);
        let accepted = refused + served;
        self.view.accepted += accepted;
        self.policy.finished(
            self.now_ns,
            &PhaseOutcome { accepted, refused, drained, age_first_ns, age_min_ns, rtt_ns: age_ns },
        );
        decision.budget
    }
}

fn config() -> impl Strategy<Value = PolicyConfig> {
    let names: Vec<PolicyName> = TABLE.iter().map(|row| row.name).collect();
    let limit = prop_oneof![Just(Limit::Inf), Just(Limit::Auto), (1..50u64).prop_map(Limit::Count)];
    let controls = vec(select(Control::all().collect::<Vec<_>>()), 0..8)
        .prop_map(|off| off.into_iter().fold(Controls::ALL, Controls::without));
    let refusal = select(vec![Refusal::Kernel, Refusal::Rst, Refusal::Fin, Refusal::Status503]);
    let filter = select(vec![SynFilter::Tokens, SynFilter::Random, SynFilter::None]);
    let rest = (1..5_000u32, filter, any::<bool>());
    (select(names), limit, 0..100_000_000u64, controls, refusal, rest).prop_map(
        |(name, limit, target_ns, controls, refusal, (backlog, syn_filter, eager))| PolicyConfig {
            name,
            limit,
            target_ns,
            controls,
            refusal,
            backlog,
            syn_filter,
            eager,
        },
    )
}

fn iteration() -> impl Strategy<Value = Iteration> {
    (
        1..50_000_000u64,
        0..40u64,
        0..3u64,
        0..20usize,
        0..50u64,
        0..1_000_000_000u64,
        (0..50u32, any::<bool>()),
    )
        .prop_map(|(passed_ns, came, lost, closed, work_items, age_ns, (dropped, slept))| {
            Iteration { passed_ns, came, lost, closed, work_items, age_ns, dropped, slept }
        })
}

proptest! {
    #[test]
    fn nobody_is_let_in_without_room(config in config(), life in vec(iteration(), 1..200)) {
        let mut server = Server::new(&config);
        for iteration in &life {
            server.iteration(iteration);
        }
    }

    #[test]
    fn nobody_is_kept_out_for_ever_while_nothing_is_open(
        config in config(),
        life in vec(iteration(), 0..200),
        age_ns in 0..1_000_000_000u64,
    ) {
        let mut server = Server::new(&config);
        for iteration in &life {
            server.iteration(iteration);
        }
        server.queue = server.queue.max(1);
        let barren = Iteration { age_ns, closed: OPEN_MAX, work_items: 1, ..BARREN };
        let admits = |server: &mut Server| {
            let is_empty = server.view.open == 0;
            server.iteration(&barren).is_some_and(|budget| is_empty && budget > 0)
        };
        prop_assert!((0..PATIENCE_ITERATIONS).any(|_| admits(&mut server)));
    }

    #[test]
    fn nobody_is_kept_out_for_ever_by_connections_that_never_close(
        config in config(),
        life in vec(iteration(), 0..200),
        work_items in 0..3u64,
    ) {
        let mut server = Server::new(&config);
        for iteration in &life {
            server.iteration(iteration);
        }
        let barren = Iteration { work_items, ..BARREN };
        // Room for all that wait; those closed last may have made some for the first iteration.
        server.view.open_max = usize::MAX;
        server.iteration(&barren);
        let admits = |server: &mut Server| server.iteration(&barren).unwrap_or(0) > 0;
        prop_assert!((0..PATIENCE_ITERATIONS).any(|_| admits(&mut server)));
    }
}
