//! Accept policies and overload control: how many connections to accept at a time, in which order,
//! and how to treat those that cannot be served in time. Counters in, a decision out.
//!
//! # Work conservation
//!
//! While a loop has slept for any part of the last delay target, or was busy for less than nine
//! tenths of the last 200 ms, nothing is refused, dropped or told to close on account of load: the
//! SYN filter is open, the backlog is what the operator configured, no connection is stale and no
//! reply says `Connection: close`. [`Conserving`] wraps every policy that could do any of this,
//! asks [`Busy`] whether the loop is saturated, and opens the decision while it is not
//! ([`Decision::open`]). A loop that is about to sleep opens it too, before it does. Want of room
//! (max-conns, descriptors) is not load: room is made by closing the connection that has waited
//! longest for its client.
//!
//! A policy is a pure state machine: no I/O and no clock of its own, so that a server and a
//! simulator run the same code, the accept-phase included ([`AcceptPhase`]).

mod adaptive;
mod busy;
mod codel;
mod conserving;
mod controls;
mod deferred;
#[cfg(test)]
mod fake;
mod fixed;
mod handshakes;
mod limit;
mod match_close;
mod name;
mod phase;
mod ramp;
mod shares;
mod timed;

pub use adaptive::Adaptive;
pub use busy::Busy;
pub use codel::Codel;
pub use conserving::Conserving;
pub use controls::{Control, Controls, NotAControl, Refusal, SynFilter};
pub use deferred::Deferred;
pub use fixed::FixedLimit;
pub use handshakes::Handshakes;
pub use limit::{Limit, NotALimit};
pub use match_close::MatchClose;
pub use name::{Name, Row, TABLE};
pub use phase::{AcceptPhase, Arrival, Verdict};
pub use ramp::{RAMP_MAX, Ramp};
pub use shares::{ADDRESSES_COUNTED_MAX, BURST, Claim, EPOCH_BITS, Shares, Source};
pub use timed::Timed;

/// Default delay target, nanoseconds: how long a connection may wait to be served while the server
/// is overloaded. Chosen by measurement: docs/overload.md.
pub const TARGET_NS: u64 = 20_000_000;

/// Parameters of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// The policy.
    pub name: Name,
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

impl PolicyConfig {
    /// Creates the policy.
    pub fn policy(&self) -> Box<dyn Policy + Send> {
        match (self.name, self.limit) {
            (Name::Limit, Limit::Count(count)) => Box::new(FixedLimit(Some(count))),
            (Name::Limit, Limit::Inf) => Box::new(FixedLimit(None)),
            (Name::Limit, Limit::Auto) => Box::new(Ramp::default()),
            (Name::MatchClose, _) => Box::new(MatchClose::default()),
            (Name::Timed, _) => Box::new(Timed::new(self)),
            (Name::Codel, _) => Box::new(Conserving::new(Codel::new(self), self)),
            (Name::Adaptive, _) => Box::new(Conserving::new(Adaptive::new(self), self)),
        }
    }
}

/// State of the loop at the start of an accept-phase: what it knows without a system call. Counts
/// and times that only grow are totals since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Open connections, including deferred ones.
    pub open: usize,
    /// Maximum number of open connections (max-conns).
    pub open_max: usize,
    /// Getevents-phases since the last accept-phase, including this round's: one means that
    /// connections have been waiting round after round. One more if the listener was not ready in
    /// this round, and the policy is asked because its timer is due.
    pub rounds_since: u64,
    /// Time that the loop has slept, nanoseconds. While the policy is not alert, all of each wait
    /// counts.
    pub slept_ns: u64,
    /// Time of the loop's last wake-up, nanoseconds.
    pub woke_ns: u64,
    /// Connections whose service has begun.
    pub begun: u64,
    /// Connections accepted, including those refused later.
    pub accepted: u64,
    /// Turns served in work-phases; a connection counts once per turn.
    pub turns: u64,
    /// Time spent in work-phases, nanoseconds; measured while the policy is alert.
    pub turns_ns: u64,
    /// Connections reported as ready and not served since.
    pub ready: u64,
    /// Connections served in the last work-phase: ready ones that were not new.
    pub work_items: u64,
    /// Duration of the last work-phase, nanoseconds: the longest time a ready connection waited in
    /// it.
    pub work_ns: u64,
    /// Connections accepted and deferred ([`Order::Newest`]).
    pub deferred: usize,
    /// True if the loop has been busy long enough that work may be refused. Set by [`Conserving`].
    pub saturated: bool,
}

impl View {
    /// Returns how many more connections may be open.
    pub fn room(&self) -> u64 {
        self.open_max.saturating_sub(self.open) as u64
    }
}

/// Signals that a policy wants before it decides; the accept queue's length costs a system call of
/// 0.4 µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// [`Signals::queue`].
    pub queue: bool,
}

/// The kernel's information about the listening socket, as far as it was asked for and is
/// available: none for a Unix socket, nor for a socket shared by several loops.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Length of the accept queue (tcpi_unacked of a listening socket, tcp(7)).
    pub queue: Option<u32>,
    /// Counts of a token SYN filter, while it is attached.
    pub syns: Option<Syns>,
}

/// Counts of a SYN filter since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Syns {
    /// SYNs let through.
    pub passed: u64,
    /// SYNs dropped for want of a token.
    pub dropped: u64,
    /// Share of the SYNs let through whose handshake ends.
    pub ended_part: f64,
    /// Weight of the sources seen recently ([`Shares::weight`]).
    pub weight: u32,
}

/// Accepted connections that the server asks the kernel about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inspect {
    /// None: the cost to a server that is not overloaded.
    #[default]
    None,
    /// The first of the phase, which has waited longest.
    First,
    /// All.
    All,
}

/// Order in which waiting connections are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In order of arrival: each is served when it is accepted, or when it is ready.
    #[default]
    Oldest,
    /// Newest first: connections accepted in this phase are deferred. After the phase the newest of
    /// all deferred connections is served, and others as time permits, until they are stale. If a
    /// later phase with the other order leaves connections waiting, these are newer and come first.
    Newest,
}

/// Limits of an accept-phase, and the treatment of connections that are not accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decision {
    /// Maximum number of connections to accept for service.
    pub budget: u64,
    /// Time after which no accept begins, nanoseconds; the first is always allowed.
    pub until_ns: Option<u64>,
    /// Expected service time per connection, nanoseconds, 0 if unknown: a server that serves
    /// accepted connections after the phase counts it as spent.
    pub each_ns: u64,
    /// Duration after which a work-phase yields to the next accept-phase, nanoseconds; the rest of
    /// its work follows that phase. `None`: no limit.
    pub work_max_ns: Option<u64>,
    /// Number of connections, the oldest, to accept and refuse before those: what the kernel did
    /// not refuse. This may take half of the time until `until_ns`, and one connection is accepted
    /// for service even so.
    pub refuse: u64,
    /// Accepted connections to ask the kernel about.
    pub inspect: Inspect,
    /// Maximum wait, nanoseconds: connections looked at or deferred that have waited longer are
    /// refused.
    pub stale_ns: Option<u64>,
    /// True if connections looked at are closed without a read when their client has gone.
    pub drop_departed: bool,
    /// Order of service.
    pub order: Order,
    /// Share of each source while sources have to share: deferred connections of a source that has
    /// exceeded its share come last.
    pub order_share: Option<Share>,
    /// Maximum length of the accept queue; `None` is the operator's backlog.
    pub backlog: Option<u32>,
    /// Command to the SYN filter.
    pub syn: SynDecision,
    /// True if requests on open connections are looked at before they are served, like those of new
    /// ones.
    pub inspect_open: bool,
    /// True if replies close their connection.
    pub pressure: bool,
    /// Share of each source while sources have to share: replies to a source that exceeds its share
    /// close their connection.
    pub share: Option<Share>,
}

/// Share of a source on open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Time per request that can be served, nanoseconds.
    pub each_ns: u64,
    /// Weight of the competing sources ([`Shares::weight`]).
    pub weight: u32,
}

/// Command to the SYN filter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SynDecision {
    /// Let every SYN through.
    #[default]
    Open,
    /// Let through as many SYNs as the accept queue has room for, so that no handshake ends in
    /// vain. The full queue would have dropped the others anyway.
    Guard {
        /// Time between two connections admitted, nanoseconds; 0 if unknown.
        each_ns: u64,
    },
    /// Let a SYN through in exchange for a token.
    Tokens {
        /// Target length of the accept queue.
        window: u32,
        /// Part of the window reserved for sources that have not used up their share.
        reserve: u32,
        /// Time between two connections that can be admitted, nanoseconds, which the sources share.
        share_ns: u64,
    },
    /// Drop this share of all SYNs at random.
    Random(f64),
}

impl Decision {
    /// Returns a decision with an accept-limit and nothing else.
    pub fn accept(budget: u64) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Returns the decision without anything that refuses on account of load. (A loop that goes to
    /// sleep opens the SYN filter altogether, because it cannot count while asleep.)
    #[must_use]
    pub fn open(self) -> Self {
        Self {
            refuse: 0,
            stale_ns: None,
            drop_departed: false,
            backlog: None,
            syn: match self.syn {
                guard @ SynDecision::Guard { .. } => guard,
                _ => SynDecision::Open,
            },
            inspect_open: false,
            pressure: false,
            share: None,
            ..self
        }
    }

    /// Returns whether the decision may refuse anything on account of load.
    pub fn refuses(&self) -> bool {
        *self != self.open()
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
