//! A server in small, for the tests of the policies: rounds of a getevents-, an accept- and a
//! work-phase over connections that come at a steady rate, on a clock of its own. Knows what a
//! [`Decision`] asks of a server, and nothing of how any policy decides.

use std::collections::VecDeque;

use crate::{Controls, Decision, Limit, Look, Name, Order, Outcome, Policy, Refusal, Setting};
use crate::{Signals, TARGET_NS, View};

/// What a getevents-phase takes, nanoseconds.
const GETEVENTS_NS: u64 = 10_000;

/// What an accept takes without the service, nanoseconds.
pub(crate) const ACCEPT_NS: u64 = 5_000;

/// The kernel's tick, nanoseconds: ages are so coarse.
pub(crate) const TICK_NS: u64 = 4_000_000;

/// Everything a policy is made of, by default.
pub(crate) fn setting(name: Name) -> Setting {
    Setting {
        name,
        limit: Limit::Auto,
        target_ns: TARGET_NS,
        controls: Controls::ALL,
        refusal: Refusal::Kernel,
        backlog: 1_000,
    }
}

/// What the server has to do, and how it does it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Another connection knocks after each of these.
    pub(crate) gap_ns: u64,
    /// So many more knock at the beginning.
    pub(crate) burst: usize,
    /// Rounds of work that a connection needs before it closes.
    pub(crate) steps: u64,
    /// How long each takes.
    pub(crate) step_ns: u64,
    /// A connection is served and closed as soon as it is accepted.
    pub(crate) eager: bool,
    /// The most that may be open at once.
    pub(crate) open_max: usize,
}

impl Default for Load {
    fn default() -> Self {
        let (gap_ns, step_ns) = (1_000_000, 100_000);
        Self { gap_ns, burst: 0, steps: 1, step_ns, eager: false, open_max: 100_000 }
    }
}

/// The server and those that wait for it.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) load: Load,
    /// Connections closed so far.
    pub(crate) closed: u64,
    now_ns: u64,
    knock_ns: u64,
    /// When each connection of the accept queue came.
    queue: VecDeque<u64>,
    /// When each connection that is held came.
    held: VecDeque<u64>,
    /// The steps that each open connection still needs.
    open: Vec<u64>,
    /// The last decision's bound on the wait of those held.
    stale_ns: Option<u64>,
    rounds_since: u64,
    waited_ns: u64,
    work_items: u64,
    work_ns: u64,
    /// Whether the kernel tells of the queue.
    pub(crate) tells: bool,
    /// Those that the kernel did not let into the queue.
    pub(crate) drops: u32,
    backlog: u32,
    gate: f64,
    /// What the gate owes: it drops evenly.
    owed: f64,
}

/// The accept queue's bound when nothing is decided.
pub(crate) const BACKLOG: u32 = 4_096;

/// What an accept-phase saw, was told and did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) view: View,
    pub(crate) decision: Decision,
    /// How many were in the accept queue when it began.
    pub(crate) waiting: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) drained: bool,
    /// The longest that one it accepted and did not refuse had waited.
    pub(crate) waited_max_ns: Option<u64>,
    pub(crate) spent_ns: u64,
}

impl Fake {
    pub(crate) fn new(load: Load) -> Self {
        Self {
            load,
            closed: 0,
            now_ns: 0,
            knock_ns: 0,
            queue: VecDeque::from(vec![0; load.burst]),
            held: VecDeque::new(),
            open: Vec::new(),
            stale_ns: None,
            rounds_since: 0,
            waited_ns: 0,
            work_items: 0,
            work_ns: 0,
            tells: false,
            drops: 0,
            backlog: BACKLOG,
            gate: 0.0,
            owed: 0.0,
        }
    }

    /// Rounds until a time; the accept-phases of them.
    pub(crate) fn run(&mut self, policy: &mut dyn Policy, end_ns: u64) -> Vec<Phase> {
        let mut phases = Vec::new();
        while self.now_ns < end_ns {
            self.now_ns += GETEVENTS_NS;
            if self.queue.is_empty() && self.held.is_empty() && self.open.is_empty() {
                let knock_ns = self.now_ns.max(self.knock_ns);
                self.waited_ns += knock_ns - self.now_ns;
                self.now_ns = knock_ns;
            }
            self.knock();
            self.rounds_since += 1;
            let ready = self.open.len();
            let mut leaves_some = false;
            if !self.queue.is_empty() {
                let phase = self.accept_phase(policy);
                leaves_some = !phase.drained && phase.decision.order == Order::Oldest;
                phases.push(phase);
            }
            if !leaves_some {
                self.serve_held();
            }
            self.work_phase(ready);
        }
        phases
    }

    /// How many wait to be accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.open.len() + self.held.len()
    }

    fn knock(&mut self) {
        while self.knock_ns <= self.now_ns {
            self.owed += self.gate;
            if self.owed >= 1.0 {
                self.owed -= 1.0;
                self.drops += 1;
            } else if self.queue.len() as u64 > self.backlog.into() {
                self.drops += 1;
            } else {
                self.queue.push_back(self.knock_ns);
            }
            self.knock_ns += self.load.gap_ns;
        }
    }

    fn view(&self) -> View {
        View {
            open: self.open(),
            open_max: self.load.open_max,
            rounds_since: self.rounds_since,
            closed: self.closed,
            waited_ns: self.waited_ns,
            work_items: self.work_items,
            work_ns: self.work_ns,
            held: self.held.len(),
        }
    }

    fn accept_phase(&mut self, policy: &mut dyn Policy) -> Phase {
        let (view, began_ns, waiting) = (self.view(), self.now_ns, self.queue.len() as u64);
        let wanted = policy.wants(began_ns, &view);
        let told = |wants: bool, value: u32| Some(value).filter(|_| wants && self.tells);
        let queue = told(wanted.queue, self.queue.len() as u32);
        let signals = Signals { queue, drops: told(wanted.drops, self.drops) };
        let decision = policy.decide(began_ns, &view, &signals);
        self.stale_ns = decision.stale_ns;
        self.backlog = decision.backlog.unwrap_or(BACKLOG);
        self.gate = decision.gate;
        let (outcome, waited_max_ns) = self.accept(&decision);
        self.rounds_since = 0;
        policy.finished(self.now_ns, &outcome);
        let Outcome { accepted, refused, drained, .. } = outcome;
        let spent_ns = self.now_ns - began_ns;
        Phase { view, decision, waiting, accepted, refused, drained, waited_max_ns, spent_ns }
    }

    /// As many as the decision allows, and the longest that one of them had waited.
    fn accept(&mut self, decision: &Decision) -> (Outcome, Option<u64>) {
        let (mut outcome, mut waited_max_ns) = (Outcome::default(), None);
        let mut served = 0;
        while served < decision.budget && (served == 0 || self.is_in_time(decision)) {
            self.knock();
            self.now_ns += ACCEPT_NS;
            let Some(came_ns) = self.queue.pop_front() else {
                outcome.drained = true;
                break;
            };
            outcome.accepted += 1;
            let waited_ns = self.now_ns - came_ns;
            if self.is_refused(decision, waited_ns, &mut outcome) {
                outcome.refused += 1;
                continue;
            }
            served += 1;
            waited_max_ns = waited_max_ns.max(Some(waited_ns));
            self.welcome(decision.order, came_ns);
        }
        (outcome, waited_max_ns)
    }

    fn is_in_time(&self, decision: &Decision) -> bool {
        decision.until_ns.is_none_or(|until_ns| self.now_ns < until_ns)
    }

    /// Looks at one that was accepted, if the decision says so: whether it is too old.
    fn is_refused(&self, decision: &Decision, waited_ns: u64, outcome: &mut Outcome) -> bool {
        let is_looked_at = match decision.look {
            Look::Nobody => false,
            Look::First => outcome.age_first_ns.is_none(),
            Look::Each => true,
        };
        if !is_looked_at {
            return false;
        }
        let age_ns = waited_ns - waited_ns % TICK_NS;
        outcome.age_first_ns.get_or_insert(age_ns);
        outcome.age_min_ns = Some(outcome.age_min_ns.map_or(age_ns, |least| least.min(age_ns)));
        decision.stale_ns.is_some_and(|stale_ns| age_ns > stale_ns)
    }

    fn welcome(&mut self, order: Order, came_ns: u64) {
        match order {
            Order::Newest => self.held.push_back(came_ns),
            Order::Oldest if self.load.eager => self.serve(),
            Order::Oldest => self.open.push(self.load.steps),
        }
    }

    /// A whole service at once.
    fn serve(&mut self) {
        self.now_ns += self.load.steps * self.load.step_ns;
        self.closed += 1;
    }

    /// A step for each that was open when the round began.
    fn work_phase(&mut self, ready: usize) {
        let began_ns = self.now_ns;
        self.work_items = ready as u64;
        self.now_ns += self.work_items * self.load.step_ns;
        self.open[..ready].iter_mut().for_each(|steps| *steps -= 1);
        let open = self.open.len();
        self.open.retain(|steps| *steps > 0);
        self.closed += (open - self.open.len()) as u64;
        self.work_ns = self.now_ns - began_ns;
    }

    /// Drops those held that are too old, and serves the newest.
    fn serve_held(&mut self) {
        let oldest_ns = self.stale_ns.map_or(0, |stale_ns| self.now_ns.saturating_sub(stale_ns));
        self.held.retain(|came_ns| *came_ns >= oldest_ns);
        if self.held.pop_back().is_some() {
            self.serve();
        }
    }
}
