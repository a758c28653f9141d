//! A small model of a server, for the tests of the policies: iterations of a getevents-, an accept-
//! and a work-phase over connections that arrive at a steady rate, with simulated time. Executes
//! each [`Decision`], and is independent of how any policy makes it.

use std::collections::VecDeque;

use crate::{
    AcceptPhase, Arrival, Decision, Deferred, Handshakes, Order, PhaseOutcome, Policy,
    PolicyConfig, PolicyName, Signals, Source, SynDecision, Syns, Verdict, View,
};

/// Duration of a getevents-phase, nanoseconds.
const GETEVENTS_NS: u64 = 10_000;

/// Duration of an accept without the service, nanoseconds.
pub(crate) const ACCEPT_NS: u64 = 5_000;

/// The kernel's tick, nanoseconds: the resolution of ages.
pub(crate) const TICK_NS: u64 = 4_000_000;

/// Returns the default setting of a policy.
pub(crate) fn config(name: PolicyName) -> PolicyConfig {
    PolicyConfig { name, backlog: 1_000, ..PolicyConfig::default() }
}

/// Load of the server, and how it serves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Interval between arrivals.
    pub(crate) gap_ns: u64,
    /// Additional connections at the start.
    pub(crate) burst: usize,
    /// Iterations of work that a connection needs before it closes.
    pub(crate) steps: u64,
    /// Duration of each iteration of work.
    pub(crate) step_ns: u64,
    /// True if a connection is served and closed as soon as it is accepted.
    pub(crate) eager: bool,
    /// Maximum number of open connections.
    pub(crate) open_max: usize,
}

impl Default for Load {
    fn default() -> Self {
        let (gap_ns, step_ns) = (1_000_000, 100_000);
        Self { gap_ns, burst: 0, steps: 1, step_ns, eager: false, open_max: 100_000 }
    }
}

/// The server and its queues.
#[derive(Debug)]
pub(crate) struct FakeServer {
    pub(crate) load: Load,
    /// Connections closed so far.
    pub(crate) closed: u64,
    now_ns: u64,
    knock_ns: u64,
    /// Arrival time of each connection in the accept queue.
    queue: VecDeque<u64>,
    deferred: Deferred<()>,
    /// Remaining steps of each open connection.
    open: Vec<u64>,
    /// Bound of the last decision on the wait of deferred connections.
    stale_ns: Option<u64>,
    /// State of the loop that its policy is told, as far as it is not kept elsewhere.
    known: View,
    /// True if the kernel reports the length of the queue.
    pub(crate) tells: bool,
    /// Connections that the kernel did not let into the queue.
    pub(crate) drops: u32,
    backlog: u32,
    syn: SynDecision,
    syns: Syns,
    handshakes: Handshakes,
    /// Fraction of a drop owed by the random filter, which drops at even intervals.
    owed: f64,
}

/// Bound of the accept queue without a decision.
pub(crate) const BACKLOG: u32 = 4_096;

/// View, decision and outcome of an accept-phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) view: View,
    /// Connections closed before it.
    pub(crate) closed: u64,
    pub(crate) decision: Decision,
    /// Length of the accept queue at its start.
    pub(crate) waiting: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) drained: bool,
    /// Longest wait among the connections it accepted and did not refuse.
    pub(crate) waited_max_ns: Option<u64>,
    pub(crate) spent_ns: u64,
}

impl FakeServer {
    pub(crate) fn new(load: Load) -> Self {
        Self {
            load,
            closed: 0,
            now_ns: 0,
            knock_ns: 0,
            queue: VecDeque::from(vec![0; load.burst]),
            deferred: Deferred::default(),
            open: Vec::new(),
            stale_ns: None,
            known: View { open_max: load.open_max, ..View::default() },
            tells: false,
            drops: 0,
            backlog: BACKLOG,
            syn: SynDecision::Open,
            syns: Syns::default(),
            handshakes: Handshakes::begin(0, load.burst as u32),
            owed: 0.0,
        }
    }

    /// Runs iterations until `end_ns`; returns their accept-phases.
    pub(crate) fn run(&mut self, policy: &mut dyn Policy, end_ns: u64) -> Vec<Phase> {
        let mut phases = Vec::new();
        while self.now_ns < end_ns {
            self.now_ns += GETEVENTS_NS;
            if self.queue.is_empty() && self.deferred.is_empty() && self.open.is_empty() {
                // Before it sleeps it opens everything.
                (self.syn, self.backlog) = (SynDecision::Open, BACKLOG);
                let knock_ns = self.now_ns.max(self.knock_ns);
                self.known.slept_ns += knock_ns - self.now_ns;
                (self.now_ns, self.known.woke_ns) = (knock_ns, knock_ns);
            }
            self.client_connects();
            self.known.iterations_since += 1;
            let ready = self.open.len();
            let mut leaves_some = false;
            if !self.queue.is_empty() {
                let phase = self.accept_phase(policy);
                leaves_some = !phase.drained && phase.decision.order == Order::Oldest;
                phases.push(phase);
            }
            if !leaves_some {
                self.serve_deferred();
            }
            self.work_phase(ready);
        }
        phases
    }

    /// Returns the number of connections waiting to be accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of open connections, including deferred ones.
    pub(crate) fn open(&self) -> usize {
        self.open.len() + self.deferred.len()
    }

    fn client_connects(&mut self) {
        while self.knock_ns <= self.now_ns {
            if !self.passes() || self.queue.len() as u64 > self.backlog.into() {
                self.drops += 1;
            } else {
                self.queue.push_back(self.knock_ns);
            }
            self.knock_ns += self.load.gap_ns;
        }
    }

    /// Returns whether a SYN passes the filter.
    fn passes(&mut self) -> bool {
        let limit = match self.syn {
            SynDecision::Open => u64::MAX,
            SynDecision::Guard { window, each_ns } => {
                self.handshakes.limit(window.min(BACKLOG), each_ns)
            }
            SynDecision::Tokens { window, share_ns, .. } => self.handshakes.limit(window, share_ns),
            SynDecision::Random(share) => {
                self.owed += share;
                let dropped = self.owed >= 1.0;
                self.owed -= f64::from(u8::from(dropped));
                return !dropped;
            }
        };
        let passes = self.syns.passed < limit;
        self.syns.passed += u64::from(passes);
        self.syns.dropped += u64::from(!passes);
        passes
    }

    fn view(&self) -> View {
        View {
            open: self.open(),
            ready: self.open.len() as u64,
            deferred: self.deferred.len(),
            ..self.known
        }
    }

    fn accept_phase(&mut self, policy: &mut dyn Policy) -> Phase {
        let (view, began_ns, waiting) = (self.view(), self.now_ns, self.queue.len() as u64);
        let wanted = policy.wants(began_ns, &view);
        let queue = Some(self.queue.len() as u32).filter(|_| wanted.queue && self.tells);
        self.handshakes.see(began_ns, self.syns.passed, queue);
        let needs = matches!(self.syn, SynDecision::Tokens { .. });
        let syns = self.tells.then(|| self.handshakes.syns(self.syns, needs));
        let signals = Signals { queue, syns };
        let decision = policy.decide(began_ns, &view, &signals);
        self.stale_ns = decision.stale_ns;
        self.backlog = decision.backlog.unwrap_or(BACKLOG);
        self.syn = decision.syn;
        let closed = self.closed;
        let (outcome, waited_max_ns) = self.accept(&decision);
        self.known.iterations_since = 0;
        policy.finished(self.now_ns, &outcome);
        let PhaseOutcome { accepted, refused, drained, .. } = outcome;
        let spent_ns = self.now_ns - began_ns;
        Phase {
            view,
            closed,
            decision,
            waiting,
            accepted,
            refused,
            drained,
            waited_max_ns,
            spent_ns,
        }
    }

    /// Accepts as many connections as the decision allows; returns the outcome and the longest wait
    /// among those served.
    fn accept(&mut self, decision: &Decision) -> (PhaseOutcome, Option<u64>) {
        let mut phase = AcceptPhase::new(*decision, self.now_ns);
        let mut waited_max_ns = None;
        while phase.may_continue(false, || self.now_ns) {
            self.client_connects();
            self.now_ns += ACCEPT_NS;
            let Some(came_ns) = self.queue.pop_front() else {
                phase.outcome.drained = true;
                break;
            };
            self.handshakes.accepted(1);
            let waited_ns = self.now_ns - came_ns;
            let age_ns = waited_ns - waited_ns % TICK_NS;
            let arrival = Arrival { age_ns, departed: false, spoken: true, rtt_ns: 0 };
            let arrival = phase.inspects().then_some(arrival);
            if let Verdict::Admit { .. } = phase.judge(self.now_ns, arrival) {
                waited_max_ns = waited_max_ns.max(Some(waited_ns));
                self.admit(decision.order, came_ns);
            }
        }
        self.known.accepted += phase.outcome.accepted;
        (phase.outcome, waited_max_ns)
    }

    fn admit(&mut self, order: Order, came_ns: u64) {
        self.known.begun += u64::from(order == Order::Oldest);
        match order {
            Order::Newest => self.deferred.push(self.now_ns, (), came_ns, Source::v4(0), None),
            Order::Oldest if self.load.eager => self.serve(),
            Order::Oldest => self.open.push(self.load.steps),
        }
    }

    /// Serves a connection completely.
    fn serve(&mut self) {
        self.now_ns += self.load.steps * self.load.step_ns;
        self.closed += 1;
    }

    /// Runs a step of each connection that was open when the iteration began.
    fn work_phase(&mut self, ready: usize) {
        let began_ns = self.now_ns;
        self.known.work_items = ready as u64;
        self.now_ns += self.known.work_items * self.load.step_ns;
        self.open[..ready].iter_mut().for_each(|steps| *steps -= 1);
        let open = self.open.len();
        self.open.retain(|steps| *steps > 0);
        self.closed += (open - self.open.len()) as u64;
        self.known.work_ns = self.now_ns - began_ns;
        self.known.served += self.known.work_items;
        self.known.served_ns += self.known.work_ns;
    }

    /// Drops deferred connections that are too old, and serves the newest.
    fn serve_deferred(&mut self) {
        let oldest_ns = self.stale_ns.map_or(0, |stale_ns| self.now_ns.saturating_sub(stale_ns));
        while self.deferred.pop_stale(oldest_ns).is_some() {}
        if self.deferred.pop_newest().is_some() {
            self.known.begun += 1;
            self.serve();
        }
    }
}
