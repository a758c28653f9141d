//! State of a core: its loop, its listening socket, and the steps still to do.

use std::collections::VecDeque;

use weir_accept::{AcceptPhase, Deferred, Policy, Shares, TlsBudget, TlsWork, View, Wanted};

use crate::connections::Token;
use crate::filter::Filter;
use crate::kernel::Listener;
use crate::scenario::Scenario;
use crate::softirq::Softirq;
use crate::work_conservation::SleepHistory;

/// Requests beyond its share that a source may be served in a burst on open connections.
const OPEN_BURST: u64 = 16;

/// Reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The last reply was sent, and announced the close.
    Replied,
    /// Closed by the client.
    Ended,
    /// Closed to make room.
    Evicted,
    /// The kernel reports that the client has gone.
    Departed,
    /// Timed out.
    Expired,
    /// Accepted without room for it.
    NoRoom,
}

/// A step of the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Wait,
    Consult,
    /// Asks the policy for a decision: for an accept-phase, or because its timer is due.
    AskPolicy {
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
    ServeDeferred,
    /// Serves the newest deferred connection, if it is the first or there is time.
    ServeNewest(u64, bool),
    WorkBegin,
    Work(Token),
    WorkInspect(Token),
    WorkEnd,
    Serve(Token),
    Watch(Token),
    Refuse(Token),
    Close(Token, CloseReason),
    CheckDeadlines,
}

/// A core: its loop, its listening socket, and its work for packets.
pub(crate) struct Core {
    pub(crate) listener: Listener,
    pub(crate) softirq: Softirq,
    /// The SYN filter of the listening socket.
    pub(crate) filter: Filter,
    /// Recent sleeps of the loop.
    pub(crate) sleeps: SleepHistory,
    /// True while the listening socket is a member of the interest set.
    pub(crate) watched: bool,
    /// Members to be reported by the next wait.
    pub(crate) ready: Vec<Token>,
    pub(super) policy: Box<dyn Policy>,
    pub(super) steps: Vec<Step>,
    pub(super) doing: Step,
    pub(super) asleep: bool,
    pub(super) asleep_since_ns: u64,
    pub(super) sleeps_count: u32,
    pub(super) iterations: u64,
    /// End of the last wait: the time used throughout the iteration.
    pub(super) clock_ns: u64,
    pub(super) accepted_iteration: u64,
    /// True if an accept-phase of this iteration left connections in the queue, which are newer
    /// than the deferred ones.
    pub(super) queue_left: bool,
    /// State of the loop that its policy is told, as far as it is not kept elsewhere.
    pub(super) known: View,
    /// Shares of the sources served on open connections.
    pub(super) shares: Shares,
    pub(super) work_began_ns: u64,
    /// Handshakes before the work-phase.
    pub(super) tls_before: TlsWork,
    /// Time for TLS handshakes in this iteration.
    pub(super) tls_budget: TlsBudget,
    /// Start of the service in progress.
    pub(super) serve_began_ns: u64,
    /// Connections whose TLS handshake waits for its share of an iteration.
    pub(super) yielded: Vec<Token>,
    /// Connections served in the current work-phase.
    pub(super) working: u64,
    pub(super) phase: AcceptPhase,
    /// Connections accepted and not served yet.
    pub(crate) deferred: Deferred<Token>,
    /// Connections whose deadline has passed.
    pub(super) expired: Vec<Token>,
    /// Connections waiting for their client, with the time since when: those served before, and
    /// those that have not sent a complete request yet.
    pub(super) idle: VecDeque<(Token, u64)>,
    pub(super) silent: VecDeque<(Token, u64)>,
}

impl Core {
    pub(crate) fn new(scenario: &Scenario, policy: Box<dyn Policy>) -> Self {
        Self {
            listener: Listener { backlog: scenario.policy.backlog, ..Listener::default() },
            softirq: Softirq::new(&scenario.costs),
            filter: Filter::new(scenario.policy.backlog),
            sleeps: SleepHistory::default(),
            watched: true,
            ready: Vec::new(),
            policy,
            steps: vec![Step::Wait],
            doing: Step::Wait,
            asleep: false,
            asleep_since_ns: 0,
            sleeps_count: 0,
            iterations: 0,
            clock_ns: 0,
            accepted_iteration: 0,
            queue_left: false,
            known: View::default(),
            shares: Shares::new(OPEN_BURST),
            work_began_ns: 0,
            tls_before: TlsWork::default(),
            tls_budget: TlsBudget::default(),
            serve_began_ns: 0,
            yielded: Vec::new(),
            working: 0,
            phase: AcceptPhase::default(),
            deferred: Deferred::default(),
            expired: Vec::new(),
            idle: VecDeque::new(),
            silent: VecDeque::new(),
        }
    }

    /// Builds the policy's view; `is_listener_ready` is true when the listener is ready.
    pub(super) fn view(&self, scenario: &Scenario, is_listener_ready: bool) -> View {
        View {
            open_max: scenario.open_max,
            is_tls: scenario.tls.is_some(),
            iterations_since: self.iterations - self.accepted_iteration
                + u64::from(!is_listener_ready),
            deferred: self.deferred.len(),
            ..self.known
        }
    }
}
