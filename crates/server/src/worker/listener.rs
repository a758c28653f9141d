//! A listening socket with its policy: queries the kernel for the policy, and applies its decisions
//! to the socket. Accepts no connection itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_accept::upstream::{Load, Shedding};
use weir_accept::{Decision, PhaseOutcome, Policy, PolicyConfig, Signals, SynDecision, View};
use weir_dispatch::readiness::Token;
use weir_stats::Counters;
use weir_sys::descriptor::SharedFd;
use weir_sys::syn_filter::tokens::{Rules, TokenFilter};
use weir_sys::{listener, socket};

use super::syn_filter::SynFilter;
use crate::control::Control;

/// A listening socket, of one loop or shared.
#[derive(Debug)]
pub(crate) struct Socket {
    pub fd: Arc<OwnedFd>,
    /// True if the socket belongs to this loop alone, so that its queue may be bounded and
    /// filtered. Changes to a socket passed in from outside would outlive the server.
    pub own: bool,
    /// True if its clients speak TLS.
    pub is_tls: bool,
    /// True while a predecessor has the socket too, and may bound its queue and filter it.
    pub is_held: bool,
    /// The filter that takes tokens, made before its loop is confined; `None` if it has none.
    pub tokens: Option<TokenFilter>,
}

impl Socket {
    /// Makes the filter that takes tokens, if it is to be of that kind. Takes a privilege, which a
    /// loop that is confined does not use.
    pub(crate) fn make_filter(&mut self, kind: weir_accept::SynFilter, rules: Rules) {
        if self.own && kind == weir_accept::SynFilter::Tokens {
            self.tokens = super::syn_filter::token_filter(rules);
        }
    }

    /// Attaches the filter that takes tokens to the interfaces at which SYNs for the socket arrive,
    /// and returns their number: 0 without such a filter. Takes a privilege, likewise.
    ///
    /// # Errors
    /// Those of [`TokenFilter::attach_to_links`].
    pub(crate) fn filter_at_links(&mut self) -> std::io::Result<usize> {
        let Some(tokens) = &mut self.tokens else { return Ok(0) };
        let address = socket::local_address(self.fd.as_fd())?;
        address.map_or(Ok(0), |address| tokens.attach_to_links(address))
    }

    /// Returns the best SYN filter that the kernel lets this process attach to such a socket.
    pub(crate) fn syn_filter(&self) -> weir_accept::SynFilter {
        let address = socket::local_address(self.fd.as_fd()).ok().flatten();
        match address.filter(|_| self.own) {
            Some(address) => SynFilter::available(address),
            None => weir_accept::SynFilter::None,
        }
    }
}

/// A listener of one loop.
pub(crate) struct Listener {
    socket: Socket,
    /// Messages to its loop, one of which is that the socket is a successor's.
    control: Arc<Control>,
    pub token: Token,
    pub watched: bool,
    policy: Box<dyn Policy + Send>,
    /// Iteration of its last accept-phase.
    accepted_iteration: u64,
    /// Backlog of the accept queue as configured, and as last set.
    listenq: i32,
    backlog: i32,
    /// Length of the accept queue as last known: asked for, or found empty.
    queue: u32,
    syn_filter: SynFilter,
    /// Limit of the connections that come in while all that it serves waits for one upstream;
    /// `None` if it serves anything else.
    shedding: Option<Shedding>,
    /// Time up to which the present overload has been counted, nanoseconds; `None` without
    /// overload.
    overloaded_at_ns: Option<u64>,
    /// The policy's last decision.
    pub decision: Decision,
}

impl Listener {
    pub(crate) fn new(
        slot: u32,
        mut socket: Socket,
        config: &PolicyConfig,
        listenq: i32,
        control: &Arc<Control>,
    ) -> Self {
        let tokens = socket.tokens.take();
        Self {
            socket,
            control: Arc::clone(control),
            token: Token { slot, generation: 0 },
            watched: true,
            policy: config.policy(),
            accepted_iteration: 0,
            listenq,
            backlog: listenq,
            queue: 0,
            syn_filter: SynFilter::new(tokens, config.backlog),
            shedding: None,
            overloaded_at_ns: None,
            decision: Decision::default(),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }

    /// Returns whether it is a TCP socket of the loop's own, which it may filter.
    pub(crate) fn has_filter(&self) -> bool {
        self.syn_filter.has_tokens()
    }

    /// Has it drop SYNs while the one upstream for which all that it serves waits has more than it
    /// can do.
    pub(crate) fn set_shedding(&mut self, shedding: Shedding) {
        self.shedding = Some(shedding);
    }

    /// Returns whether SYNs are dropped now on account of an upstream.
    pub(crate) fn is_shedding(&self) -> bool {
        self.syn_filter.is_shedding()
    }

    /// Returns whether the upstream's load must be known now.
    pub(crate) fn wants_load(&self, now_ns: u64) -> bool {
        self.may_limit() && self.shedding.is_some_and(|shedding| shedding.wants_load(now_ns))
    }

    /// Sets how many connections come in, by the load of the upstream. `dropped`: first SYNs that
    /// were dropped because of it at all listeners of the loop.
    pub(crate) fn shed(&mut self, now_ns: u64, load: &Load, dropped: u64, counters: &mut Counters) {
        let may_limit = self.may_limit();
        if let Some(shedding) = self.shedding.as_mut().filter(|_| may_limit) {
            let (fd, is_alert) = (self.socket.fd.as_fd(), self.policy.is_alert());
            self.syn_filter.shed(fd, now_ns, (shedding, load, dropped), is_alert, counters);
        }
    }

    /// Returns whether its clients speak TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.socket.is_tls
    }

    /// Returns shared ownership of the socket, for an operation that may still be under way when
    /// the listener closes.
    pub(crate) fn shared_fd(&self) -> SharedFd {
        SharedFd::of(&self.socket.fd)
    }

    /// Releases the socket. It closes when the last operation that shares it has ended.
    pub(crate) fn close(self) {
        if let Some(fd) = Arc::into_inner(self.socket.fd) {
            socket::close(fd);
        }
    }

    /// Returns the number of getevents-phases since the last accept-phase; more than one if the
    /// listener was not ready in between. `ready`: an accept-phase begins in this iteration.
    pub(crate) fn iterations_since(&mut self, iteration: u64, ready: bool) -> u64 {
        let since = iteration - self.accepted_iteration;
        if !ready {
            return since + 1;
        }
        self.accepted_iteration = iteration;
        since
    }

    /// Sets whether the listener is watched. Iterations in which it was not watched say nothing
    /// about pending connections.
    pub(crate) fn set_watched(&mut self, watched: bool, iteration: u64) {
        if watched && !self.watched {
            self.accepted_iteration = iteration;
        }
        self.watched = watched;
    }

    /// Asks the policy for this iteration's decision, and applies it to the socket.
    pub(crate) fn decide(&mut self, now_ns: u64, view: &View, counters: &mut Counters) {
        let signals = self.signals(now_ns, view, counters);
        self.decision = self.policy.decide(now_ns, view, &signals);
        self.note_overload(now_ns, counters);
        if self.may_limit() {
            self.bound_queue(counters);
            let (fd, is_alert) = (self.socket.fd.as_fd(), self.policy.is_alert());
            self.syn_filter.set(fd, now_ns, self.decision.syn, is_alert, counters);
        }
    }

    /// Lifts all refusal because of load before the loop sleeps, as far as it could be served.
    pub(crate) fn lift_refusals(&mut self, counters: &mut Counters) {
        // A loop sleeps only while no connection waits.
        self.queue = 0;
        if !self.decision.refuses() && self.decision.syn == SynDecision::Open {
            return;
        }
        self.decision = self.decision.resting(self.policy.due_ns().is_some());
        if self.may_limit() {
            self.bound_queue(counters);
            self.syn_filter.rest(self.socket.fd.as_fd(), self.decision.syn, counters);
        }
    }

    /// Lifts all limits of the socket, which is left to a successor. One that serves already has
    /// lifted them, and has limits of its own there.
    pub(crate) fn hand_over(&mut self, counters: &mut Counters) {
        self.decision = self.decision.open();
        if self.may_limit() {
            self.bound_queue(counters);
            self.syn_filter.release(self.socket.fd.as_fd());
        }
    }

    /// Takes a socket over from a predecessor, which has closed it. Its queue is as long as
    /// configured again, and nothing filters what comes to it.
    pub(crate) fn take_over(&mut self) {
        self.socket.is_held = false;
        self.backlog = self.listenq;
    }

    /// Records an accepted connection.
    pub(crate) fn note_accepted(&mut self) {
        self.syn_filter.note_accepted();
    }

    /// Reports the outcome of a phase to the policy.
    pub(crate) fn end_phase(&mut self, now_ns: u64, outcome: &PhaseOutcome) {
        if let Some(rtt_ns) = outcome.rtt_ns {
            self.syn_filter.note_rtt(rtt_ns);
        }
        if outcome.drained {
            self.queue = 0;
        }
        self.policy.finished(now_ns, outcome);
    }

    /// Returns when the policy must be asked although the listener is not ready.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.policy.due_ns()
    }

    /// Returns whether the policy must know exactly when the loop sleeps.
    pub(crate) fn is_alert(&self) -> bool {
        self.policy.is_alert()
    }

    /// Returns whether its policy sees an overload.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.overloaded_at_ns.is_some()
    }

    /// Returns the SYNs dropped by its filter ([`SynFilter::dropped`]).
    pub(crate) fn dropped(&self) -> [u64; 4] {
        self.syn_filter.dropped()
    }

    /// Returns the state of a socket of the loop's own: length and bound of the accept queue, and
    /// the share of SYNs dropped at random, per million.
    pub(crate) fn state(&self) -> [u64; 3] {
        if !self.may_limit() {
            return [0; 3];
        }
        [self.queue.into(), self.backlog.unsigned_abs().into(), self.syn_filter.random_ppm()]
    }

    /// Returns whether the queue may be bounded and filtered now.
    fn may_limit(&self) -> bool {
        self.socket.own && !self.socket.is_held && !self.control.has_left_listeners()
    }

    fn signals(&mut self, now_ns: u64, view: &View, counters: &mut Counters) -> Signals {
        if !self.may_limit() {
            return Signals::default();
        }
        let queue = if self.policy.wants(now_ns, view).queue {
            counters.queue_asked.one();
            listener::queue(self.fd()).ok().map(|queue| queue.len)
        } else {
            None
        };
        self.queue = queue.unwrap_or(self.queue);
        counters.queue_max.raise(queue.unwrap_or(0).into());
        Signals { queue, syns: self.syn_filter.counts(now_ns, queue) }
    }

    fn note_overload(&mut self, now_ns: u64, counters: &mut Counters) {
        let overloaded = self.policy.is_overloaded();
        match self.overloaded_at_ns {
            Some(since_ns) => counters.overloaded_ns.add(now_ns.saturating_sub(since_ns)),
            None if overloaded => counters.overloads.one(),
            None => {}
        }
        self.overloaded_at_ns = overloaded.then_some(now_ns);
    }

    /// Sets the bound of the accept queue by another listen(2), which takes effect at once and
    /// loses no queued connection.
    fn bound_queue(&mut self, counters: &mut Counters) {
        let wanted = self.decision.backlog.map_or(self.listenq, |queue| {
            i32::try_from(queue).unwrap_or(i32::MAX).clamp(1, self.listenq)
        });
        if wanted != self.backlog && socket::listen(self.fd(), wanted).is_ok() {
            self.backlog = wanted;
            counters.backlog_changes.one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc::channel;

    use super::*;

    /// Returns the listener of a loop with a bound of its own, and what the main thread has of it:
    /// the socket, and the messages to the loop.
    fn bounded() -> (Listener, Arc<OwnedFd>, Arc<Control>) {
        let fd = Arc::new(socket::bind_tcp((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap());
        socket::listen(fd.as_fd(), 4).unwrap();
        let own =
            Socket { fd: Arc::clone(&fd), own: true, is_tls: false, is_held: false, tokens: None };
        let control = Arc::new(Control::new(0, channel().0).unwrap());
        let mut listener = Listener::new(1, own, &PolicyConfig::default(), 64, &control);
        listener.backlog = 4;
        (listener, fd, control)
    }

    #[test]
    fn a_socket_is_handed_over_without_a_bound() {
        let (mut listener, fd, _control) = bounded();
        listener.hand_over(&mut Counters::default());
        assert_eq!(listener::queue(fd.as_fd()).unwrap().max, 64);
    }

    #[test]
    fn a_loop_that_is_late_leaves_its_successors_bound_alone() {
        let (mut listener, fd, control) = bounded();
        control.leave_listeners();
        socket::listen(fd.as_fd(), 8).unwrap();
        let counters = &mut Counters::default();
        listener.decide(0, &View { open_max: 9, ..View::default() }, counters);
        listener.hand_over(counters);
        assert_eq!(listener::queue(fd.as_fd()).unwrap().max, 8);
    }
}
