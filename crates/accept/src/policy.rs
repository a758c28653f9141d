//! Contract between a policy and the loop that asks it, and the parameters of a policy.

use crate::{Controls, Decision, Limit, PolicyName, Refusal, Signals, SynFilter, View, Wanted};

/// Default delay target, nanoseconds: how long a connection may wait to be served while the server
/// is overloaded. Chosen by measurement: docs/overload.md.
pub const TARGET_NS: u64 = 20_000_000;

/// Parameters of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// The policy.
    pub name: PolicyName,
    /// The accept-limit, for the policy that has one.
    pub limit: Limit,
    /// Delay target: maximum wait of a connection while the server is overloaded, nanoseconds.
    pub target_ns: u64,
    /// Controls that the policy may use.
    pub controls: Controls,
    /// Way to refuse connections that cannot be served in time.
    pub refusal: Refusal,
    /// The listen backlog configured by the operator: maximum length of the accept queue.
    pub backlog: u32,
    /// SYN filter that may be attached to the listening socket.
    pub syn_filter: SynFilter,
    /// True if a connection is served when it is accepted; otherwise it is served in a later
    /// work-phase.
    pub eager: bool,
}

/// The defaults of a server with eager reads.
impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            name: PolicyName::Adaptive,
            limit: Limit::Auto,
            target_ns: TARGET_NS,
            controls: Controls::ALL,
            refusal: Refusal::Kernel,
            backlog: 4096,
            syn_filter: SynFilter::Tokens,
            eager: true,
        }
    }
}

/// Outcome of an accept-phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseOutcome {
    /// Connections accepted, including those refused later.
    pub accepted: u64,
    /// Accepted connections that were refused or dropped, and not served.
    pub refused: u64,
    /// True if the phase ended because no connections were waiting (EWOULDBLOCK).
    pub drained: bool,
    /// Wait of the request of the first connection looked at, nanoseconds, rounded to the kernel's
    /// tick; `None` if none was looked at or none had sent data.
    pub age_first_ns: Option<u64>,
    /// Shortest wait among the connections looked at.
    pub age_min_ns: Option<u64>,
    /// Round trip time of the handshake of the first connection looked at, nanoseconds.
    pub rtt_ns: Option<u64>,
}

/// Decides what each accept-phase may do. Times are nanoseconds of one monotonic clock.
pub trait Policy {
    /// Returns the signals it wants before it decides.
    fn wants(&mut self, _now_ns: u64, _view: &View) -> Wanted {
        Wanted::default()
    }

    /// Decides the limits of the phase that begins now.
    fn decide(&mut self, now_ns: u64, view: &View, signals: &Signals) -> Decision;

    /// Receives the outcome of the phase.
    fn finished(&mut self, now_ns: u64, outcome: &PhaseOutcome);

    /// Returns when the policy must be asked again even if the listener is not ready, because its
    /// decision keeps connections away from the listener.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// Returns whether the policy considers the server overloaded.
    fn is_overloaded(&self) -> bool {
        false
    }

    /// Returns whether the policy needs the loop's exact sleep times, because connections wait.
    fn is_alert(&self) -> bool {
        false
    }
}
