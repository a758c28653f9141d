//! The server's loop on one core: rounds of a wait, an accept-phase and a work-phase, each made of
//! steps that take time. This file has the order of the steps; what they do is in the submodules.
//!
//! The steps a core will do are on a stack, the next on top. A step takes effect at its end, and
//! may push others on top of what remains. Packets that arrive meanwhile delay the end.

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

/// Requests beyond its share that a source may be served in a burst on open connections.
const OPEN_BURST: u64 = 16;

/// Maximum number of events returned by a wait.
const EVENTS_MAX: usize = 4096;

/// A step of the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Wait,
    Consult,
    /// Asks the policy for a decision: for an accept-phase, or because its timer is due.
    Knock {
        accepts: bool,
    },
    Decide(Wanted, bool),
    Backlog(u32),
    Filter,
    Accept,
    Accepted(Token),
    Blocked,
    Inspect(Token),
    /// Admits a connection whose request arrived at this time, as far as is known.
    Admit(Token, u64),
    Finish {
        accepts: bool,
    },
    Hold,
    /// Serves the newest deferred connection, if it is the first or there is time.
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

/// A core: its loop, its listening socket, and its work for packets.
pub(crate) struct Core {
    pub(crate) listener: Listener,
    pub(crate) softirq: Softirq,
    /// The SYN filter of the listening socket.
    pub(crate) filter: Filter,
    /// Recent sleeps of the loop.
    pub(crate) sleeps: Sleeps,
    /// True while the listening socket is a member of the interest set.
    pub(crate) watched: bool,
    /// Members to be reported by the next wait.
    pub(crate) ready: Vec<Token>,
    policy: Box<dyn Policy>,
    steps: Vec<Step>,
    doing: Step,
    asleep: bool,
    asleep_since_ns: u64,
    /// Time slept so far, as known to the loop, and the time of the last wake-up.
    slept_ns: u64,
    woke_ns: u64,
    naps: u32,
    rounds: u64,
    /// End of the last wait: the time used throughout the round.
    clock_ns: u64,
    accepted_round: u64,
    /// True if an accept-phase of this round left connections in the queue, which are newer than
    /// the deferred ones.
    someone_waits: bool,
    open: usize,
    begun: u64,
    accepted: u64,
    turns: u64,
    turns_ns: u64,
    /// Shares of the sources served on open connections.
    shares: Shares,
    work_began_ns: u64,
    /// Connections served in the current work-phase.
    working: u64,
    /// Connections reported by this round's wait.
    reported: u64,
    work_items: u64,
    work_ns: u64,
    phase: AcceptPhase,
    /// Connections accepted and not served yet.
    deferred: Deferred<Token>,
    /// Connections whose deadline has passed.
    expired: Vec<Token>,
    /// Connections waiting for their client, with the time since when: those served before, and
    /// those that have not sent a complete request yet.
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

    /// Builds the policy's view; `knocked` is true when the listener is ready.
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
    /// Advances a core until a step takes time or the loop sleeps.
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

    /// Wakes the loop, if it sleeps, because the wait has something to report.
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

    /// Begins a step: returns it, as it is now, with its cost; `None` if there is nothing to do.
    fn begin(&mut self, core: u32, step: Step) -> Option<(Step, u64)> {
        let costs = &self.scenario.costs;
        let cost_ns = match step {
            Step::Wait => costs.wait,
            Step::Knock { accepts } => return Some(self.knock(core, accepts)),
            Step::Backlog(_) => costs.listen,
            Step::Filter => costs.filter,
            Step::Accept => return self.accept(core),
            Step::Inspect(_) | Step::WorkLook(_) => costs.tcp_info,
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
            Step::Inspect(token) => self.looked(core, token),
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

    /// Ends a wait: returns the ready members, or sleeps if there are none.
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

    /// Puts the loop to sleep. Before that it lifts every restriction on new connections.
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
