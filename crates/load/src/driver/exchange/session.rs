//! The sessions of an exchange: how one begins, continues, fails and ends.

use weir_http1::reply_parser::ReplyParser;

use super::super::action::{Action, SocketUse};
use super::{Context, Exchange, State, group_end};
use crate::measure::{ErrorKind, Timestamps};
use crate::session::{RequestTable, Session};

impl Exchange {
    /// Connects ahead of the first session.
    pub(in super::super) fn connect(&self, context: &mut Context<'_>) -> Action {
        context.recorder.counts_at(self.clocks.planned_ns).connects += 1;
        Action::Connect
    }

    /// Returns the session, emptied, to be filled before [`Exchange::begin`].
    pub(in super::super) fn new_session(&mut self) -> &mut Session {
        self.session.steps.clear();
        self.session.last_closes = false;
        &mut self.session
    }

    /// Begins the session, which has at least one step.
    pub(in super::super) fn begin(
        &mut self,
        planned_ns: u64,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        let counts = context.recorder.counts_at(planned_ns);
        counts.arrivals += 1;
        counts.due += self.session.steps.len() as u64;
        self.answered = 0;
        self.begun_ns = planned_ns;
        self.begin_group(planned_ns, now_ns, context)
    }

    /// Continues after a think time that ended at `planned_ns`.
    pub(in super::super) fn resume(
        &mut self,
        planned_ns: u64,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        if now_ns >= context.recorder.phases.end_ns {
            return self.end(SocketUse::Close);
        }
        self.begin_group(planned_ns, now_ns, context)
    }

    fn begin_group(&mut self, planned_ns: u64, now_ns: u64, context: &mut Context<'_>) -> Action {
        self.group_start = self.answered;
        self.group_end = group_end(&self.session.steps, self.answered);
        self.offset = 0;
        self.allowed = context.first_bytes;
        self.sent_ns.clear();
        self.clocks = Timestamps { planned_ns, started_ns: now_ns, ..Timestamps::default() };
        self.progress_ns = now_ns;
        let requests = u64::from(self.in_flight());
        context.recorder.started(planned_ns, self.free_ns, now_ns, requests);
        self.expect_reply(&context.config.requests);
        if !self.is_open {
            context.recorder.counts_at(planned_ns).reconnects += u64::from(self.answered > 0);
            return self.connect(context);
        }
        match self.state {
            // What it waits for is watched.
            State::Connecting if self.is_secure => Action::Wait,
            State::Handshaking => {
                self.clocks.connected_ns = now_ns;
                Action::Wait
            }
            State::Connecting => self.try_to_send(),
            _ => {
                self.clocks.connected_ns = now_ns;
                self.clocks.secured_ns = if self.is_secure { now_ns } else { 0 };
                self.state = State::Sending;
                self.try_to_send()
            }
        }
    }

    /// Resets the parser for the reply to the oldest unanswered request.
    pub(super) fn expect_reply(&mut self, requests: &RequestTable) {
        let step = self.session.steps.get(self.answered as usize);
        let request = step.and_then(|step| requests.get(step.request));
        self.parser = ReplyParser::new(request.is_some_and(|request| request.head_only));
    }

    /// Handles the end of a group: the session is over, or its next group waits for a think time.
    pub(super) fn end_group(
        &mut self,
        now_ns: u64,
        usable: bool,
        context: &mut Context<'_>,
    ) -> Action {
        let Some(step) = self.session.steps.get(self.answered as usize) else {
            return self.end_session(now_ns, usable, context);
        };
        if now_ns >= context.recorder.phases.end_ns {
            return self.end(SocketUse::Close);
        }
        self.state = State::Thinking;
        // Also without a think time: a server that answers at once must not hold the thread.
        let until_ns = now_ns.saturating_add(step.think_ns);
        let socket = if usable { SocketUse::Keep } else { SocketUse::Close };
        Action::Think { until_ns, socket }
    }

    fn end_session(&mut self, now_ns: u64, usable: bool, context: &mut Context<'_>) -> Action {
        context.recorder.completed_session(self.clocks.planned_ns, self.begun_ns, now_ns);
        let config = context.config;
        let was_sent = self.state == State::Receiving;
        let server_closes = self.session.last_closes && was_sent && !config.reset;
        if usable && config.keep_open && config.keeps_slots() {
            self.end(SocketUse::Keep)
        } else if server_closes && !usable && !self.hung_up {
            // The side that closes first keeps the port for a minute (TIME_WAIT): the server, which
            // was asked to close, and has said that it will.
            self.state = State::AwaitingClose;
            self.progress_ns = now_ns;
            Action::AwaitClose
        } else {
            self.end(SocketUse::Close)
        }
    }

    /// Fails the requests in flight, each with the same error, and abandons the rest of the
    /// session.
    pub(super) fn fail(
        &mut self,
        kind: ErrorKind,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        let unplanned = (self.session.steps.len() as u64).saturating_sub(self.group_end.into());
        while self.in_flight() > 0 {
            context.recorder.failed(&self.timestamps(0), self.request(), kind, now_ns);
            self.answered += 1;
            self.clocks.first_byte_ns = 0;
        }
        let counts = context.recorder.counts_at(self.clocks.planned_ns);
        counts.sessions_failed += 1;
        counts.abandoned += unplanned;
        self.end(SocketUse::Close)
    }

    /// Ends the session; from outside, one that is in a think time, or has no step.
    pub(in super::super) fn end(&mut self, socket: SocketUse) -> Action {
        self.state = State::Idle;
        self.session.steps.clear();
        self.group_end = self.answered;
        Action::End(socket)
    }

    /// Notes the time at which the connection became free for its next session.
    pub(in super::super) fn freed(&mut self, now_ns: u64) {
        self.free_ns = now_ns;
    }

    /// Counts the requests in flight as cut off, when the operator stops the run.
    pub(in super::super) fn abandon(&mut self, context: &mut Context<'_>) {
        let requests = u64::from(self.in_flight());
        let counts = context.recorder.counts_at(self.clocks.planned_ns);
        counts.abandoned += requests;
        counts.cut_off += requests;
    }
}
