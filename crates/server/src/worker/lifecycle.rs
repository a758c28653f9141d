//! The life of a worker under every architecture: what is due by the clock, reports, the drain and
//! the end.

use weir_accept::PhaseOutcome;
use weir_stats::LoopReport;

use super::listener::Listener;
use super::model::{Model, Worker};
use crate::context::close_reason::CloseReason;
use crate::control::{FINAL_REPORT, Phase};
use crate::http::background;

/// Time for which a client that has sent nothing yet may delay a server told to stop, nanoseconds.
const FIRST_REQUEST_NS: u64 = 500_000_000;

impl<M: Model> Worker<M> {
    /// Handles everything due by the clock: deadlines, the end of a pause in accepting, log lines.
    /// Has give way what the memory budget asks for. To be called in each iteration.
    pub(crate) fn handle_timers(&mut self) {
        self.keep_memory_budget();
        let core = &mut self.core;
        let mut expired = std::mem::take(&mut core.expired);
        let now_ns = core.context.now_ns();
        let table = &mut core.table;
        let deadline_of = |slot| Some(table.conn(slot)?.deadline_ns()).filter(|&at| at < u64::MAX);
        core.timers.expire(now_ns, deadline_of, &mut expired);
        for slot in expired.drain(..) {
            M::expire(self, slot);
        }
        self.core.expired = expired;
        if self.core.paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.core.paused_until_ns = None;
            self.watch_listeners(true);
        }
        if let Some(log) = &mut self.core.context.log {
            log.flush_if_old(now_ns);
        }
    }

    /// Answers the main thread's requests.
    pub(crate) fn handle_wakeup(&mut self) {
        self.core.control.waker.clear();
        if self.core.control.take_relief() {
            self.take_listeners_over();
        }
        let core = &self.core;
        match core.control.phase() {
            Phase::Run => {}
            phase if core.drained_by_ns.is_none() => self.begin_drain(phase),
            Phase::Drain | Phase::Stop if core.context.keeps_idle => self.close_all_idle(),
            _ => {}
        }
        // Last: the main thread waits for a report to know that the loop has done the rest.
        if let Some(report_request) = self.core.report_request() {
            let report = self.report();
            self.core.control.send_report(report_request, report);
        }
    }

    /// Takes the listeners over from a predecessor, which has closed them, and waits for each anew.
    /// The kernel may wake one alone of those that wait for a connection: one that has woken the
    /// predecessor, which accepted no more, is in the queue, and this loop was not told.
    fn take_listeners_over(&mut self) {
        self.core.listeners.iter_mut().for_each(Listener::take_over);
        self.watch_listeners(false);
        self.watch_listeners(true);
    }

    /// Begins a drain: closes the listeners, and lets open connections finish. Pending connections
    /// are accepted before, or left to a successor if there is one. Then an idle connection is kept
    /// for one more request: its client may be about to send it, and the next one goes to the
    /// successor.
    fn begin_drain(&mut self, phase: Phase) {
        M::before_drain(self);
        let core = &mut self.core;
        core.context.draining = true;
        core.drained_by_ns = Some(core.context.now_ns() + core.context.config.timeouts.drain_ns);
        let has_successor = phase == Phase::HandOver;
        for index in 0..core.listeners.len() {
            if has_successor {
                self.core.listeners[index].hand_over(&mut self.core.context.counters);
            } else {
                self.accept_queue(index);
            }
        }
        for listener in std::mem::take(&mut self.core.listeners) {
            self.core.forget(&listener);
            M::close_listener(self, listener);
        }
        self.core.context.keeps_idle = has_successor;
        if !has_successor {
            self.close_all_idle();
        }
    }

    fn close_all_idle(&mut self) {
        self.core.context.keeps_idle = false;
        for slot in self.core.table.find(0, usize::MAX, |conn| conn.is_idle()) {
            self.close_for_drain(slot);
        }
    }

    /// Accepts the connections pending now: at most as many as the queue can hold, since more
    /// arrive meanwhile.
    fn accept_queue(&mut self, index: usize) {
        let queue_max = self.core.context.config.listenq.unsigned_abs().into();
        let mut accepted = 0;
        while accepted < queue_max && self.core.control.phase() < Phase::Stop {
            match self.accept(index) {
                PhaseOutcome { accepted: 0, .. } => return,
                outcome => accepted += outcome.accepted,
            }
        }
    }

    /// Closes an idle connection, except one that has sent nothing yet: its request may be on the
    /// way, and it gets [`FIRST_REQUEST_NS`] more.
    fn close_for_drain(&mut self, slot: u32) {
        let core = &mut self.core;
        let soon_ns = core.context.now_ns() + FIRST_REQUEST_NS;
        match core.table.conn(slot) {
            Some(conn) if !conn.has_received_bytes() => {
                conn.shorten_deadline(soon_ns);
                core.timers.arm(slot, soon_ns);
            }
            _ => M::close_idle(self, slot, CloseReason::Drained),
        }
    }

    /// Ends the loop: closes open connections, leaves the places at upstreams to other loops, and
    /// reports the counters.
    pub(crate) fn end(&mut self) {
        self.core.context.draining = true;
        let all = self.core.table.find(0, usize::MAX, |_| true);
        all.into_iter().for_each(|slot| M::close(self, slot, CloseReason::Drained));
        let context = &mut self.core.context;
        background::give_up_all(context);
        let now_ns = context.now_ns();
        if let Some(upstreams) = &mut context.upstreams {
            upstreams.end(now_ns);
        }
        if let Some(log) = &mut self.core.context.log {
            log.flush();
        }
        let report = self.report();
        self.core.publisher.finish(&report, &self.core.context.upstream_words);
        self.core.control.send_report(FINAL_REPORT, report);
    }

    /// Publishes the counters so far, unless that was done a moment ago. To be called before each
    /// wait.
    #[inline]
    pub(crate) fn publish_before_wait(&mut self) {
        let now_ns = self.core.context.now_ns();
        if self.core.publisher.is_due_before_wait(now_ns) {
            self.publish();
        }
    }

    /// Publishes the counters so far.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.core.publisher.is_on() {
            M::count(self);
            self.core.publish();
        }
    }

    /// Publishes the counters if enough was done since the last time; `weight`: of what was just
    /// done.
    #[inline]
    pub(crate) fn publish_after(&mut self, weight: u32) {
        if self.core.publisher.is_due(weight) {
            self.publish();
        }
    }

    /// Returns the counters so far.
    pub(crate) fn report(&mut self) -> LoopReport {
        M::measure(self);
        M::count(self);
        self.core.report()
    }
}
