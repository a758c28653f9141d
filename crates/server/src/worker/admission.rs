//! Admission: each connection, and each request on an open one, is judged as the policy decided,
//! and then served, deferred, refused or dropped.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use weir_accept::{AcceptPhase, Decision, Order, Refusal, Verdict};
use weir_dispatch::readiness::Token;
use weir_stats::Counters;
use weir_sys::{listener, socket};

use super::listener::Listener;
use super::model::{Model, Worker};
use crate::context::close_reason::CloseReason;
use crate::context::memory::MemoryLevel;
use crate::context::refusals::RefusalCause;
use crate::http::connection_io::ConnectionIo;
use crate::stat_page;

impl<M: Model> Worker<M> {
    /// Judges an accepted connection, and then begins to serve it, refuses it or drops it.
    pub(crate) fn judge_accepted(
        &mut self,
        index: usize,
        fd: OwnedFd,
        peer: SocketAddr,
        phase: &mut AcceptPhase,
    ) {
        self.note_accepted(index);
        let core = &mut self.core;
        let level = core.context.memory.level_now();
        if level >= MemoryLevel::Connections {
            phase.note_lack();
            let is_tls = core.listeners.get(index).is_some_and(Listener::is_tls);
            return self.refuse_for_memory(fd, peer, is_tls, level);
        }
        let inspects = phase.inspects();
        let arrival = if inspects || core.context.config.accept_queue_times {
            listener::arrival(fd.as_fd()).ok()
        } else {
            None
        };
        if let Some(arrival) = arrival {
            note_queued(&mut core.context.counters, arrival.established_ns);
        }
        let arrival = arrival.filter(|_| inspects).map(into_arrival);
        let verdict = phase.judge(core.context.now_ns(), arrival);
        let is_tls = core.listeners.get(index).is_some_and(Listener::is_tls);
        if let Verdict::Admit { since_ns } = verdict {
            let conn = M::Connection::new(fd, peer, is_tls, &core.context);
            return self.admit(conn, phase.decision, since_ns);
        }
        core.accepted += 1;
        core.note_refusal();
        let counters = &mut core.context.counters;
        match verdict {
            Verdict::Departed => {
                counters.departed.one();
                counters.never_completed.one();
                return socket::close(fd);
            }
            Verdict::Excess => counters.refused_excess.one(),
            _ => counters.refused_stale.one(),
        }
        let listener = core.listeners.get(index);
        core.context.log_refusal(peer.ip(), || match verdict {
            Verdict::Excess => {
                let [queue, bound, _] = listener.map(Listener::state).unwrap_or_default();
                RefusalCause::Excess { queue, bound }
            }
            _ => RefusalCause::Stale { wait_max_ns: phase.decision.stale_ns },
        });
        self.refuse(fd, peer, is_tls);
    }

    /// Records that a listener has delivered a connection.
    pub(crate) fn note_accepted(&mut self, index: usize) {
        let core = &mut self.core;
        core.context.counters.accepted.one();
        if let Some(listener) = core.listeners.get_mut(index) {
            listener.note_accepted();
        }
        let is_eager = core.context.config.strategy.eager_read && !M::SERVES_LATER;
        self.publish_after(if is_eager { stat_page::EAGER } else { stat_page::ACCEPTED });
    }

    /// Begins to serve an accepted connection, or defers it until there is time.
    pub(crate) fn admit(&mut self, mut conn: M::Connection, decision: Decision, since_ns: u64) {
        let peer = conn.peer().ip();
        let source = peer.into();
        let is_within_limit = conn.count_for_client(&self.core.context);
        self.core.accepted += u64::from(is_within_limit);
        let Some(slot) = self.insert(conn) else { return };
        if !is_within_limit {
            self.core.context.counters.refused_client_connections.one();
            self.core.context.log_refusal(peer, || RefusalCause::ClientConnections);
            return self.close_in_refusal(slot, CloseReason::ClientLimit);
        }
        let core = &mut self.core;
        if decision.order == Order::Newest {
            let (now_ns, token) = (core.context.now_ns(), core.table.token(slot));
            core.deferred.push(now_ns, token, since_ns, source, decision.order_share);
            core.context.counters.deferred_max.raise(core.deferred.len() as u64);
            // Where the stale are not refused, nothing else bounds its wait.
            if let Some(conn) = core.table.conn(slot) {
                core.timers.arm(slot, conn.deadline_ns());
            }
        } else {
            core.begun += 1;
            let at_once = core.context.config.strategy.eager_read;
            M::begin(self, slot, at_once);
        }
    }

    /// Gives a connection a slot; closes it if none is free.
    pub(crate) fn insert(&mut self, conn: M::Connection) -> Option<u32> {
        let core = &mut self.core;
        match core.table.insert(conn) {
            Ok(slot) => {
                core.note_open();
                Some(slot)
            }
            Err(conn) => {
                conn.close(CloseReason::Failed, &mut core.context);
                None
            }
        }
    }

    /// Refuses an accepted connection in the configured way; one with TLS can be told nothing, and
    /// is reset instead of answered.
    pub(crate) fn refuse(&mut self, fd: OwnedFd, peer: SocketAddr, is_tls: bool) {
        let context = &mut self.core.context;
        let refusal = match context.config.policy.refusal {
            Refusal::Status503 if is_tls => Refusal::Rst,
            refusal => refusal,
        };
        context.counters.never_completed.add((refusal != Refusal::Status503).into());
        match refusal {
            Refusal::Kernel | Refusal::Rst => {
                socket::reset_on_close(fd.as_fd());
                socket::close(fd);
            }
            Refusal::Fin => {
                // A close with bytes unread would be a reset.
                let _ = socket::read_slice(fd.as_fd(), &mut context.scratch);
                socket::close(fd);
            }
            Refusal::Status503 => {
                let conn = M::Connection::new(fd, peer, is_tls, context);
                let Some(slot) = self.insert(conn) else { return };
                M::refuse_with_503(self, slot);
            }
        }
    }

    /// Refuses an accepted connection because the memory budget is used up: in the configured way,
    /// or by a reset once an answer would take too much.
    fn refuse_for_memory(
        &mut self,
        fd: OwnedFd,
        peer: SocketAddr,
        is_tls: bool,
        level: MemoryLevel,
    ) {
        self.note_refused_for_memory(peer.ip());
        if level >= MemoryLevel::Requests {
            self.core.context.counters.never_completed.one();
            socket::reset_on_close(fd.as_fd());
            return socket::close(fd);
        }
        self.refuse(fd, peer, is_tls);
    }

    /// Refuses a connection that has its slot already, if the memory budget is used up, in the same
    /// way; returns whether it was.
    pub(crate) fn refuse_begun_for_memory(&mut self, slot: u32, peer: SocketAddr) -> bool {
        let level = self.core.context.memory.level_now();
        if level < MemoryLevel::Connections {
            return false;
        }
        self.note_refused_for_memory(peer.ip());
        if level >= MemoryLevel::Requests {
            self.close_unanswered(slot, CloseReason::MemoryRefused, true);
        } else {
            self.close_in_refusal(slot, CloseReason::MemoryRefused);
        }
        true
    }

    fn note_refused_for_memory(&mut self, client: IpAddr) {
        let context = &mut self.core.context;
        context.counters.refused_memory.one();
        let (limit, used) = context.memory.figures();
        context.log_refusal(client, || RefusalCause::Memory { used, limit });
    }

    /// Returns whether a ready connection may go on although the memory budget is nearly used up;
    /// otherwise refuses its next request, which is not begun.
    #[cold]
    fn goes_on_without_memory(&mut self, token: Token) -> bool {
        self.make_way(self.core.context.memory.level_now());
        let core = &mut self.core;
        if !core.table.is_current(token) {
            return false;
        }
        let Some(conn) = core.table.conn(token.slot) else { return false };
        let is_short = core.context.memory.level_now() >= MemoryLevel::Requests;
        if !is_short || !conn.is_between() || conn.is_handshaking() {
            return true;
        }
        let peer = conn.peer().ip();
        core.context.counters.refused_memory_requests.one();
        let (limit, used) = core.context.memory.figures();
        core.context.log_refusal(peer, || RefusalCause::MemoryRequest { used, limit });
        self.close_in_refusal(token.slot, CloseReason::MemoryRefused);
        false
    }

    /// Refuses deferred connections that have become stale. If no newer connection is pending,
    /// serves the others, newest first, for as long as the policy lets an accept-phase take.
    pub(crate) fn serve_deferred(&mut self) {
        let Some(until_ns) = self.refuse_stale() else { return };
        while !self.core.context.tls_budget.is_spent()
            && self.serve_newest()
            && !self.model.has_unserved()
            && self.core.context.read_clock_ns() < until_ns
        {}
    }

    /// Refuses deferred connections that have become stale. Returns the time until which the others
    /// are served; `None` if a newer connection is pending.
    pub(crate) fn refuse_stale(&mut self) -> Option<u64> {
        let began_ns = self.core.context.now_ns();
        let (stale_ns, until_ns) = self.core.deferred_limits();
        // What grew old while the loop slept, or other programs had its processor, was not kept
        // waiting by others, and there is time for it.
        let stale_ns = stale_ns.filter(|_| !self.core.has_just_slept());
        let stale_before_ns = stale_ns.map_or(0, |stale_ns| began_ns.saturating_sub(stale_ns));
        let decision = Decision { stale_ns, ..Decision::default() };
        while let Some(token) = self.core.deferred.pop_stale(stale_before_ns) {
            self.refuse_open(token, CloseReason::Stale, decision);
        }
        (!self.core.accepts_pending).then_some(until_ns.unwrap_or(began_ns))
    }

    /// Begins to serve the newest deferred connection; returns whether there was one.
    pub(crate) fn serve_newest(&mut self) -> bool {
        let Some(newest) = self.core.deferred.pop_newest() else { return false };
        if self.core.table.is_current(newest) {
            self.core.begun += 1;
            M::begin(self, newest.slot, true);
            self.publish_after(stat_page::SERVED);
        }
        true
    }

    /// Refuses a connection that has a slot, by a decision.
    fn refuse_open(&mut self, token: Token, reason: CloseReason, decision: Decision) {
        let core = &mut self.core;
        if !core.table.is_current(token) {
            return;
        }
        core.note_refusal();
        match reason {
            CloseReason::Unfair => core.context.counters.refused_unfair.one(),
            _ => core.context.counters.refused_stale.one(),
        }
        if let Some(conn) = core.table.conn(token.slot) {
            core.context.log_refusal(conn.peer().ip(), || match reason {
                CloseReason::Unfair => {
                    let each_ns = decision.share.map_or(0, |share| share.each_ns);
                    RefusalCause::Unfair { each_ns }
                }
                _ => RefusalCause::Stale { wait_max_ns: decision.stale_ns },
            });
        }
        self.close_in_refusal(token.slot, reason);
    }

    /// Closes a connection in the configured way of refusing.
    fn close_in_refusal(&mut self, slot: u32, reason: CloseReason) {
        let refusal = self.core.context.config.policy.refusal;
        if refusal == Refusal::Status503 {
            return M::refuse_with_503(self, slot);
        }
        self.close_unanswered(slot, reason, refusal != Refusal::Fin);
    }

    /// Closes a connection that is refused without an answer. `resets`: by a reset.
    fn close_unanswered(&mut self, slot: u32, reason: CloseReason, resets: bool) {
        let core = &mut self.core;
        let Some(conn) = core.table.conn(slot) else { return };
        conn.set_close_reason(reason);
        if resets {
            conn.reset_on_close();
        } else {
            // A close with bytes unread would be a reset.
            conn.discard_unread(&mut core.context.scratch);
        }
        M::close(self, slot, reason);
    }

    /// Judges a request on an open connection: it may have waited too long, its source may have
    /// used up its share, or its client may have gone.
    pub(crate) fn judge_open(&mut self, token: Token, decision: Decision) -> Verdict {
        let core = &mut self.core;
        let now_ns = core.context.now_ns();
        let new = core.table.conn(token.slot).filter(|conn| conn.is_idle());
        let peer = new.map(|conn| conn.peer());
        let arrival = peer.and_then(|_| M::arrival(self, token.slot));
        let context = &mut self.core.context;
        let is_fair = |_| peer.is_none_or(|peer| context.is_within_share(peer));
        AcceptPhase::judge_open(decision, now_ns, arrival.map(into_arrival), is_fair)
    }

    /// Returns whether a ready connection is to be served; otherwise refuses or closes it.
    pub(crate) fn admit_request(&mut self, token: Token) -> bool {
        if self.core.context.memory.level_now() >= MemoryLevel::Requests
            && !self.goes_on_without_memory(token)
        {
            return false;
        }
        let Some(decision) = self.core.request_decision else { return true };
        let conn = self.core.table.conn(token.slot);
        if conn.is_some_and(|conn| conn.has_answered_handshake()) {
            // Most of the work for it is done.
            return true;
        }
        match self.judge_open(token, decision) {
            Verdict::Admit { .. } => return true,
            Verdict::Departed => {
                self.core.note_refusal();
                self.core.context.counters.departed.one();
                M::close(self, token.slot, CloseReason::Departed);
            }
            Verdict::Unfair => self.refuse_open(token, CloseReason::Unfair, decision),
            Verdict::Stale | Verdict::Excess => {
                self.refuse_open(token, CloseReason::Stale, decision);
            }
        }
        false
    }
}

/// Counts the time that a connection spent in the accept queue, nanoseconds.
fn note_queued(counters: &mut Counters, queued_ns: u64) {
    counters.accept_queue_timed.one();
    counters.accept_queue_ns.add(queued_ns);
    counters.accept_queue_ns_max.raise(queued_ns);
}

/// Converts the kernel's data on an arrival to the type that policies use.
fn into_arrival(arrival: listener::Arrival) -> weir_accept::Arrival {
    let listener::Arrival { age_ns, departed, spoken, rtt_ns, .. } = arrival;
    weir_accept::Arrival { age_ns, departed, spoken, rtt_ns }
}
