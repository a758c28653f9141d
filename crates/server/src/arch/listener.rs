//! A listening socket with its policy: asks the kernel what the policy wants to know, and does what
//! it decides about the socket. Accepts nobody itself, and knows no connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_accept::{Decision, Outcome, Policy, Setting, Signals, SynDecision, View};
use weir_dispatch::readiness::Token;
use weir_stats::Counters;
use weir_sys::descriptor::SharedFd;
use weir_sys::{listener, socket};

use super::syn_filter::SynFilter;

/// A listening socket, whether of a loop alone or not.
#[derive(Debug)]
pub(crate) struct Socket {
    pub fd: Arc<OwnedFd>,
    /// Nobody else has it: its queue is this loop's, and may be bounded and filtered. What is done
    /// to a socket that was passed to us would outlive us.
    pub own: bool,
}

impl Socket {
    /// The best SYN filter that the kernel lets this process put before it.
    pub(crate) fn syn_filter(&self) -> weir_accept::SynFilter {
        if self.own { SynFilter::available(self.fd.as_fd()) } else { weir_accept::SynFilter::None }
    }
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
    syn_filter: SynFilter,
    /// Up to when the present overload has been counted.
    overloaded_at_ns: Option<u64>,
    /// What it last decided.
    pub decision: Decision,
}

impl Listener {
    pub(crate) fn new(slot: u32, socket: Socket, setting: &Setting, listenq: i32) -> Self {
        let kind = if socket.own { setting.syn_filter } else { weir_accept::SynFilter::None };
        Self {
            socket,
            token: Token { slot, generation: 0 },
            watched: true,
            policy: setting.policy(),
            accepted_round: 0,
            listenq,
            backlog: listenq,
            syn_filter: SynFilter::new(kind, setting.backlog),
            overloaded_at_ns: None,
            decision: Decision::default(),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }

    /// A share in the socket, for an operation that goes on.
    pub(crate) fn shared_fd(&self) -> SharedFd {
        SharedFd::of(&self.socket.fd)
    }

    /// Lets go of the socket, which closes with the last operation that has a share in it.
    pub(crate) fn close(self) {
        if let Some(fd) = Arc::into_inner(self.socket.fd) {
            socket::close(fd);
        }
    }

    /// Getevents-phases since the last accept-phase, when it is asked in this one; more than one
    /// when it was not ready.
    pub(crate) fn rounds_since(&mut self, round: u64, ready: bool) -> u64 {
        let since = round - self.accepted_round;
        if !ready {
            return since + 1;
        }
        self.accepted_round = round;
        since
    }

    /// Begins or ends to hear of it. Rounds in which it was not say nothing of who waits.
    pub(crate) fn set_watched(&mut self, watched: bool, round: u64) {
        if watched && !self.watched {
            self.accepted_round = round;
        }
        self.watched = watched;
    }

    /// Asks the policy what the accept-phase of this round may do, and does to the socket what it
    /// says.
    pub(crate) fn decide(&mut self, now_ns: u64, view: &View, counters: &mut Counters) {
        let signals = self.signals(now_ns, view, counters);
        self.decision = self.policy.decide(now_ns, view, &signals);
        self.note_overload(now_ns, counters);
        if self.socket.own {
            self.bound_queue(counters);
            let (fd, stays) = (self.socket.fd.as_fd(), self.policy.is_alert());
            self.syn_filter.set(fd, now_ns, self.decision.syn, stays, counters);
        }
    }

    /// The loop is about to sleep: what is refused on account of load is not refused meanwhile.
    pub(crate) fn open(&mut self, counters: &mut Counters) {
        if !self.decision.refuses() && self.decision.syn == SynDecision::Open {
            return;
        }
        self.decision = self.decision.open();
        if self.socket.own {
            self.bound_queue(counters);
            self.syn_filter.open(self.socket.fd.as_fd(), counters);
        }
    }

    /// A connection was accepted.
    pub(crate) fn accepted(&mut self) {
        self.syn_filter.accepted();
    }

    /// Tells the policy how the phase went.
    pub(crate) fn finished(&mut self, now_ns: u64, outcome: &Outcome) {
        if let Some(rtt_ns) = outcome.rtt_ns {
            self.syn_filter.rtt(rtt_ns);
        }
        self.policy.finished(now_ns, outcome);
    }

    /// When it must be asked though the listener is not ready.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.policy.due_ns()
    }

    /// Tells whether the policy has to know exactly when the loop sleeps.
    pub(crate) fn is_alert(&self) -> bool {
        self.policy.is_alert()
    }

    /// SYNs that its filter has dropped, and of these those of sources that had had their share.
    pub(crate) fn dropped(&self) -> [u64; 2] {
        self.syn_filter.dropped()
    }

    fn signals(&mut self, now_ns: u64, view: &View, counters: &mut Counters) -> Signals {
        if !self.socket.own {
            return Signals::default();
        }
        let asks = self.policy.wants(now_ns, view).queue;
        let queue = if asks {
            counters.queue_asked.one();
            listener::queue(self.fd()).ok().map(|queue| queue.len)
        } else {
            None
        };
        counters.queue_max.raise(queue.unwrap_or(0).into());
        Signals { queue, syns: self.syn_filter.see(now_ns, queue) }
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
}
