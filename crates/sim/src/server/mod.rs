//! The server's loop on one core: rounds of a wait, an accept-phase and a work-phase, each made of
//! steps that take time. Knows the order of steps; what they do stands in the other files.
//!
//! What a core will do next lies on a stack, the next on top. A step has its effect at its end, and
//! may put others on top of what remains. Packets that come meanwhile make the end later.

mod accept;
mod connection;
mod phase;
mod work;

use std::collections::VecDeque;

use weir_accept::{AcceptPhase, Deferred, Policy, Shares, SynDecision, View, Wanted};

use crate::conns::Token;
use crate::events::Event;
use crate::filter::Filter;
use crate::harm::Sleeps;
use crate::kernel::Listener;
use crate::scenario::Scenario;
use crate::softirq::Softirq;
use crate::world::World;
use connection::End;

/// Requests that a source may be served at once on open connections, beyond its share.
const OPEN_BURST: u64 = 16;

/// How many events a wait returns at most.
const EVENTS_MAX: usize = 4096;

/// What a loop does next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Wait,
    Consult,
    /// A policy is to be asked: for an accept-phase, or because its time has come.
    Knock {
        accepts: bool,
    },
    Decide(Wanted, bool),
    Backlog(u32),
    Filter,
    Accept,
    Accepted(Token),
    Blocked,
    Look(Token),
    /// Its request came at this time, as far as is known.
    Admit(Token, u64),
    Finish {
        accepts: bool,
    },
    Hold,
    /// The newest of those deferred is served, if it is the first or there is time.
    DeferredNewest(u64, bool),
    WorkBegin,
    Work(Token),
    WorkLook(Token),
    WorkEnd,
    Serve(Token),
    Watch(Token),
    Refuse(Token),
    Close(Token, End),
    KeepTime,
}

/// A core: its loop, its listening socket, and what its packets cost.
pub(crate) struct Core {
    pub(crate) listener: Listener,
    pub(crate) softirq: Softirq,
    /// What drops SYNs before it.
    pub(crate) filter: Filter,
    /// When the loop slept.
    pub(crate) sleeps: Sleeps,
    /// The listening socket is a member of the interest set.
    pub(crate) watched: bool,
    /// Members that will be reported by the next wait.
    pub(crate) ready: Vec<Token>,
    policy: Box<dyn Policy>,
    steps: Vec<Step>,
    doing: Step,
    asleep: bool,
    asleep_since_ns: u64,
    /// How long it has slept, as it knows, and when it last woke.
    slept_ns: u64,
    woke_ns: u64,
    naps: u32,
    rounds: u64,
    /// When the last wait ended: the time the round goes by.
    clock_ns: u64,
    accepted_round: u64,
    /// An accept-phase of this round has left somebody, who is newer than those deferred.
    someone_waits: bool,
    open: usize,
    begun: u64,
    accepted: u64,
    turns: u64,
    turns_ns: u64,
    /// What open connections were served, by source.
    shares: Shares,
    work_began_ns: u64,
    /// Served in the work-phase that runs.
    working: u64,
    /// Connections that this round's wait reported.
    reported: u64,
    work_items: u64,
    work_ns: u64,
    phase: AcceptPhase,
    /// Accepted and not yet served.
    deferred: Deferred<Token>,
    /// Connections whose deadline has come.
    expired: Vec<Token>,
    /// Connections that wait for their client, with the time they began to: those that were served
    /// before, and those that have said nothing whole yet.
    idle: VecDeque<(Token, u64)>,
    silent: VecDeque<(Token, u64)>,
}

impl Core {
    pub(crate) fn new(scenario: &Scenario, policy: Box<dyn Policy>) -> Self {
        Self {
            listener: Listener::new(scenario.setting.backlog),
            softirq: Softirq::new(&scenario.costs),
            filter: Filter::new(scenario.setting.backlog),
            sleeps: Sleeps::default(),
            watched: true,
            ready: Vec::new(),
            policy,
            steps: vec![Step::Wait],
            doing: Step::Wait,
            asleep: false,
            asleep_since_ns: 0,
            slept_ns: 0,
            woke_ns: 0,
            naps: 0,
            rounds: 0,
            clock_ns: 0,
            accepted_round: 0,
            someone_waits: false,
            open: 0,
            begun: 0,
            accepted: 0,
            turns: 0,
            turns_ns: 0,
            shares: Shares::new(OPEN_BURST),
            work_began_ns: 0,
            working: 0,
            reported: 0,
            work_items: 0,
            work_ns: 0,
            phase: AcceptPhase::default(),
            deferred: Deferred::default(),
            expired: Vec::new(),
            idle: VecDeque::new(),
            silent: VecDeque::new(),
        }
    }

    /// `knocked`: somebody waits at the listener.
    fn view(&self, open_max: usize, knocked: bool) -> View {
        View {
            open: self.open,
            open_max,
            rounds_since: self.rounds - self.accepted_round + u64::from(!knocked),
            slept_ns: self.slept_ns,
            woke_ns: self.woke_ns,
            begun: self.begun,
            accepted: self.accepted,
            turns: self.turns,
            turns_ns: self.turns_ns,
            ready: self.reported,
            work_items: self.work_items,
            work_ns: self.work_ns,
            deferred: self.deferred.len(),
            saturated: false,
        }
    }
}

impl World<'_> {
    /// Lets a core go on until a step takes time, or it sleeps.
    pub(crate) fn advance(&mut self, core: u32) {
        while !self.cores[core as usize].asleep {
            let Some(step) = self.cores[core as usize].steps.pop() else { return };
            let Some((step, cost_ns)) = self.begin(core, step) else { continue };
            if cost_ns > 0 {
                self.cores[core as usize].doing = step;
                return self.events.push(self.done_ns(cost_ns), Event::StepEnd(core));
            }
            self.end(core, step);
        }
    }

    pub(crate) fn step_ends(&mut self, core: u32) {
        let late_ns = self.cores[core as usize].softirq.pay();
        if late_ns > 0 {
            return self.events.push(self.done_ns(late_ns), Event::StepEnd(core));
        }
        let step = self.cores[core as usize].doing;
        self.end(core, step);
        self.advance(core);
    }

    /// Something has come that the wait reports.
    pub(crate) fn rouse(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        if std::mem::take(&mut state.asleep) {
            state.slept_ns += self.now_ns - state.asleep_since_ns;
            state.woke_ns = self.now_ns;
            state.sleeps.wake(self.now_ns);
            let late_ns = state.softirq.wake(self.now_ns) + self.scenario.costs.wake;
            state.doing = Step::Wait;
            self.events.push(self.done_ns(late_ns), Event::StepEnd(core));
        }
    }

    pub(crate) fn wake(&mut self, core: u32, nap: u32) {
        if self.cores[core as usize].naps == nap {
            self.rouse(core);
        }
    }

    /// What a step costs, and what it has become now that it begins; nothing, when there is nothing
    /// to do.
    fn begin(&mut self, core: u32, step: Step) -> Option<(Step, u64)> {
        let costs = &self.scenario.costs;
        let cost_ns = match step {
            Step::Wait => costs.wait,
            Step::Knock { accepts } => return Some(self.knock(core, accepts)),
            Step::Backlog(_) => costs.listen,
            Step::Filter => costs.filter,
            Step::Accept => return self.accept(core),
            Step::Look(_) | Step::WorkLook(_) => costs.tcp_info,
            Step::Work(token) => return self.work(token),
            Step::Serve(token) => self.serve_cost_ns(token)?,
            Step::Watch(token) => self.watch_cost_ns(token),
            Step::Refuse(_) => self.refuse_cost_ns(),
            Step::Close(..) => self.close_cost_ns(core),
            Step::Finish { accepts: true } => self.finish_cost_ns(core),
            _ => 0,
        };
        Some((step, cost_ns))
    }

    fn end(&mut self, core: u32, step: Step) {
        match step {
            Step::Wait => self.waited(core),
            Step::Consult => self.consult(core),
            // What they have become when they began is another step.
            Step::Knock { .. } | Step::Accept | Step::Work(_) | Step::Filter => {}
            Step::Decide(wanted, accepts) => self.decide(core, wanted, accepts),
            Step::Backlog(backlog) => self.set_backlog(core, backlog),
            Step::Accepted(token) => self.accepted(core, token),
            Step::Blocked => self.blocked(core),
            Step::Look(token) => self.looked(core, token),
            Step::Admit(token, since_ns) => self.admit(core, token, since_ns),
            Step::Finish { accepts } => self.finish(core, accepts),
            Step::Hold => self.hold(core),
            Step::DeferredNewest(until_ns, first) => self.serve_newest(core, until_ns, first),
            Step::WorkBegin => self.cores[core as usize].work_began_ns = self.now_ns,
            Step::WorkLook(token) => self.work_looked(core, token),
            Step::WorkEnd => self.work_ends(core),
            Step::Serve(token) => self.served(core, token),
            Step::Watch(token) => self.watch(core, token),
            Step::Refuse(token) => self.refuse(core, token),
            Step::Close(token, end) => self.close(core, token, end),
            Step::KeepTime => self.keep_time(core),
        }
    }

    /// The wait returns, or sleeps because there is nothing to return.
    fn waited(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        let due_ns = state.policy.due_ns();
        let knocks = state.watched && state.listener.queued() > 0;
        let consults = due_ns.is_some_and(|due_ns| due_ns <= self.now_ns);
        let idle = state.ready.is_empty() && state.expired.is_empty() && state.deferred.is_empty();
        if idle && !knocks && !consults {
            return self.sleep(core, due_ns);
        }
        if !state.policy.is_alert() {
            // Nobody looked whether it slept.
            state.slept_ns += self.scenario.costs.wait;
            state.woke_ns = self.now_ns;
        }
        self.statistics.loops.getevents += 1;
        state.rounds += 1;
        state.clock_ns = self.now_ns;
        if !state.watched {
            // A round in which nobody is heard of says nothing of who waits.
            state.accepted_round = state.rounds;
        }
        state.someone_waits = false;
        state.steps.extend([Step::Wait, Step::KeepTime, Step::WorkEnd]);
        let count = state.ready.len().min(EVENTS_MAX);
        let later = state.ready.split_off(count);
        let reported = std::mem::replace(&mut state.ready, later);
        state.working = 0;
        state.reported = reported.len() as u64;
        state.steps.extend(reported.into_iter().rev().map(Step::Work));
        state.steps.extend([Step::WorkBegin, Step::Hold, Step::Consult]);
        if knocks {
            state.steps.push(Step::Knock { accepts: true });
        }
    }

    /// Before it sleeps it opens everything.
    fn sleep(&mut self, core: u32, due_ns: Option<u64>) {
        let state = &mut self.cores[core as usize];
        state.phase.decision = state.phase.decision.open();
        // Nobody is there to let in more, so that nothing may count them.
        state.filter.set(self.now_ns, SynDecision::Open, state.listener.queued(), true);
        state.listener.listen(self.scenario.setting.backlog);
        state.sleeps.sleep(self.now_ns);
        state.asleep = true;
        state.asleep_since_ns = self.now_ns;
        state.naps += 1;
        state.softirq.sleep(self.now_ns);
        if let Some(due_ns) = due_ns {
            self.events.push(due_ns, Event::Wake(core, state.naps));
        }
    }
}
