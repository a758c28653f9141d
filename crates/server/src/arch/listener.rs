//! A listening socket with its policy: asks the kernel what the policy wants to know, and does what
//! it decides about the socket. Accepts nobody itself, and knows no connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weir_accept::{Decision, Outcome, Policy, Setting, Signals, View};
use weir_dispatch::readiness::Token;
use weir_stats::Counters;
use weir_sys::{listener, socket};

/// A listening socket, whether of a loop alone or not.
#[derive(Debug)]
pub(crate) struct Socket {
    pub fd: OwnedFd,
    /// Nobody else has it: its queue is this loop's, and may be bounded and gated. What is done to
    /// a socket that was passed to us would outlive us.
    pub own: bool,
}

/// One listener of a loop.
pub(crate) struct Listener {
    socket: Socket,
    pub token: Token,
    pub watched: bool,
    policy: Box<dyn Policy + Send>,
    /// The round of its last accept-phase.
    accepted_round: u64,
    /// The accept queue as the operator wants it, and as it was last set.
    listenq: i32,
    backlog: i32,
    /// The share of connection requests that the gate drops.
    gate: f64,
    /// Up to when the present overload has been counted.
    overloaded_at_ns: Option<u64>,
    /// What it last decided.
    pub decision: Decision,
}

impl Socket {
    /// Whether the kernel lets this process put a gate before the socket (CAP_NET_ADMIN, in kernels
    /// that ask for it): tried with one that drops nobody to speak of, and taken away.
    pub(crate) fn takes_gate(&self) -> bool {
        self.own
            && listener::set_gate(self.fd.as_fd(), f64::MIN_POSITIVE).is_ok()
            && listener::open_gate(self.fd.as_fd()).is_ok()
    }
}

impl Listener {
    pub(crate) fn new(slot: u32, socket: Socket, setting: &Setting, listenq: i32) -> Self {
        Self {
            socket,
            token: Token { slot, generation: 0 },
            watched: true,
            policy: setting.policy(),
            accepted_round: 0,
            listenq,
            backlog: listenq,
            gate: 0.0,
            overloaded_at_ns: None,
            decision: Decision::default(),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }

    /// Lets go of the socket.
    pub(crate) fn close(self) {
        socket::close(self.socket.fd);
    }

    /// Getevents-phases since the last accept-phase, when it is asked in this one; more than one
    /// when nobody knocked.
    pub(crate) fn rounds_since(&mut self, round: u64, knocked: bool) -> u64 {
        let since = round - self.accepted_round;
        if !knocked {
            return since + 1;
        }
        self.accepted_round = round;
        since
    }

    /// Asks the policy what the accept-phase of this round may do, and does to the socket what it
    /// says.
    pub(crate) fn decide(&mut self, now_ns: u64, view: &View, counters: &mut Counters) {
        let signals = self.signals(now_ns, view, counters);
        self.decision = self.policy.decide(now_ns, view, &signals);
        self.note_overload(now_ns, counters);
        if self.socket.own {
            self.bound_queue(counters);
            self.turn_gate(counters);
        }
    }

    /// Tells the policy how the phase went.
    pub(crate) fn finished(&mut self, now_ns: u64, outcome: &Outcome) {
        self.policy.finished(now_ns, outcome);
    }

    /// When it must be asked though nobody knocks.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.policy.due_ns()
    }

    fn signals(&mut self, now_ns: u64, view: &View, counters: &mut Counters) -> Signals {
        let wanted = self.policy.wants(now_ns, view);
        if !self.socket.own || !(wanted.queue || wanted.drops) {
            return Signals::default();
        }
        counters.queue_asked.one();
        let queue = || listener::queue(self.fd()).ok().map(|queue| queue.len);
        let drops = || listener::drops(self.fd()).ok();
        let signals = Signals {
            queue: if wanted.queue { queue() } else { None },
            drops: if wanted.drops { drops() } else { None },
        };
        counters.queue_max.raise(signals.queue.unwrap_or(0).into());
        signals
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

    /// listen(2) again: the queue's bound changes at once, and nobody in it is lost.
    fn bound_queue(&mut self, counters: &mut Counters) {
        let wanted = self.decision.backlog.map_or(self.listenq, |queue| {
            i32::try_from(queue).unwrap_or(i32::MAX).clamp(1, self.listenq)
        });
        if wanted != self.backlog && socket::listen(self.fd(), wanted).is_ok() {
            self.backlog = wanted;
            counters.backlog_changes.one();
        }
    }

    fn turn_gate(&mut self, counters: &mut Counters) {
        let wanted = self.decision.gate;
        if wanted.to_bits() == self.gate.to_bits() {
            return;
        }
        // Should it fail, the accept queue still refuses. It may for want of memory, and is then
        // tried again when the share changes; want of CAP_NET_ADMIN was noticed at the start.
        let turned = listener::set_gate(self.fd(), wanted);
        self.gate = wanted;
        if turned.is_ok() {
            counters.gate_changes.one();
        } else {
            counters.gate_failed.one();
        }
    }
}
