//! The server's loop on one core: iterations of a wait, an accept-phase and a work-phase, each made
//! of steps that take time. This file has the order of the steps; what they do is in the
//! submodules.
//!
//! The steps a core will do are on a stack, the next on top. A step takes effect at its end, and
//! may push others on top of what remains. Packets that arrive meanwhile delay the end.

mod accept;
mod connection;
mod core;
mod phase;
mod tls;
mod work;

use crate::events::Event;
use crate::simulation::Simulation;
pub(crate) use core::Core;
use core::Step;

/// Maximum number of events returned by a wait.
const EVENTS_MAX: usize = 4096;

impl Simulation<'_> {
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
    pub(crate) fn wake_loop(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        if std::mem::take(&mut state.asleep) {
            state.known.slept_ns += self.now_ns - state.asleep_since_ns;
            state.known.woke_ns = self.now_ns;
            state.sleeps.wake(self.now_ns);
            let late_ns = state.softirq.wake(self.now_ns) + self.scenario.costs.wake;
            state.doing = Step::Wait;
            self.events.push(self.done_ns(late_ns), Event::StepEnd(core));
        }
    }

    pub(crate) fn wake_by_timer(&mut self, core: u32, sleep: u32) {
        if self.cores[core as usize].sleeps_count == sleep {
            self.wake_loop(core);
        }
    }

    /// Begins a step: returns it, as it is now, with its cost; `None` if there is nothing to do.
    fn begin(&mut self, core: u32, step: Step) -> Option<(Step, u64)> {
        let costs = &self.scenario.costs;
        let cost_ns = match step {
            Step::Wait => costs.wait,
            Step::AskPolicy { accepts } => return Some(self.ask_policy(core, accepts)),
            Step::Backlog(_) => costs.listen,
            Step::Filter => costs.filter,
            Step::Accept => return self.accept(core),
            Step::Inspect(_) | Step::WorkInspect(_) => costs.tcp_info,
            Step::Work(token) => return self.work(token),
            Step::Serve(token) if self.yields(core, token) => return None,
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
            Step::Wait => self.end_wait(core),
            Step::Consult => self.consult(core),
            // What they have become when they began is another step.
            Step::AskPolicy { .. } | Step::Accept | Step::Work(_) | Step::Filter => {}
            Step::Decide(wanted, accepts) => self.decide(core, wanted, accepts),
            Step::Backlog(backlog) => self.set_backlog(core, backlog),
            Step::Accepted(token) => self.accepted(core, token),
            Step::Blocked => self.blocked(core),
            Step::Inspect(token) => self.inspected(core, token),
            Step::Admit(token, since_ns) => self.admit(core, token, since_ns),
            Step::Finish { accepts } => self.finish(core, accepts),
            Step::ServeDeferred => self.serve_deferred(core),
            Step::ServeNewest(until_ns, first) => self.serve_newest(core, until_ns, first),
            Step::WorkBegin => self.work_begins(core),
            Step::WorkInspect(token) => self.work_inspected(core, token),
            Step::WorkEnd => self.work_ends(core),
            Step::Serve(token) => self.served(core, token),
            Step::Watch(token) => self.watch(core, token),
            Step::Refuse(token) => self.refuse(core, token),
            Step::Close(token, reason) => self.close(core, token, reason),
            Step::CheckDeadlines => self.check_deadlines(core),
        }
    }

    /// Ends a wait: returns the ready members, or sleeps if there are none.
    fn end_wait(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        let due_ns = state.policy.due_ns();
        let is_listener_ready = state.watched && state.listener.queued() > 0;
        let consults = due_ns.is_some_and(|due_ns| due_ns <= self.now_ns);
        let has_yielded = !state.yielded.is_empty() || !state.deferred.is_empty();
        let idle = state.ready.is_empty() && state.expired.is_empty() && !has_yielded;
        if idle && !is_listener_ready && !consults {
            return self.sleep(core, due_ns);
        }
        if !state.policy.is_alert() {
            // Nobody looked whether it slept.
            state.known.slept_ns += self.scenario.costs.wait;
            state.known.woke_ns = self.now_ns;
        }
        self.statistics.loops.getevents += 1;
        state.iterations += 1;
        state.clock_ns = self.now_ns;
        if !state.watched {
            // An iteration in which nobody is heard of says nothing of who waits.
            state.accepted_iteration = state.iterations;
        }
        state.queue_left = false;
        state.steps.extend([Step::Wait, Step::CheckDeadlines, Step::WorkEnd]);
        let count = state.ready.len().min(EVENTS_MAX);
        let later = state.ready.split_off(count);
        let reported = std::mem::replace(&mut state.ready, later);
        state.working = 0;
        let yielded = std::mem::take(&mut state.yielded);
        state.known.ready = (reported.len() + yielded.len()) as u64;
        state.known.tls.waiting = yielded.len() as u64;
        state.tls_budget.begin_round();
        state.steps.extend(yielded.into_iter().chain(reported).rev().map(Step::Work));
        state.steps.extend([Step::WorkBegin, Step::ServeDeferred, Step::Consult]);
        if is_listener_ready {
            state.steps.push(Step::AskPolicy { accepts: true });
        }
    }

    /// Puts the loop to sleep. Before that it lifts the restrictions on new connections.
    fn sleep(&mut self, core: u32, due_ns: Option<u64>) {
        let state = &mut self.cores[core as usize];
        state.phase.decision = state.phase.decision.resting(due_ns.is_some());
        state.filter.set(self.now_ns, state.phase.decision.syn, state.listener.queued(), true);
        state.listener.backlog = self.scenario.policy.backlog;
        state.sleeps.sleep(self.now_ns);
        state.asleep = true;
        state.asleep_since_ns = self.now_ns;
        state.sleeps_count += 1;
        state.softirq.sleep(self.now_ns);
        if let Some(due_ns) = due_ns {
            self.events.push(due_ns, Event::Wake(core, state.sleeps_count));
        }
    }
}
