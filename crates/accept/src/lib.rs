//! Accept policies and overload control: how many connections to take in at a time, in which order,
//! and what becomes of those that cannot be served in time. Counters in, a decision out.
//!
//! # Work conservation
//!
//! While a loop has slept for any part of the last delay target, or was busy for less than nine
//! tenths of the last 200 ms, nothing is refused, dropped or told to close on account of load: the
//! SYN filter is open, the backlog is what the operator configured, nobody is stale and no reply
//! says `Connection: close`. [`Conserving`] wraps every policy that could, asks [`Busy`] whether
//! the loop is saturated, and opens the decision while it is not ([`Decision::open`]).
//! A loop that is about to sleep opens it too, before it does. Want of room (max-conns,
//! descriptors) is not load: room is made by closing whoever has waited longest for its client.
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

/// The delay target when nothing is said, nanoseconds: how long a connection may wait to be served
/// while the server is overloaded. Chosen by measurement: docs/overload.md.
pub const TARGET_NS: u64 = 20_000_000;

/// Everything that makes one policy different from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which policy.
    pub name: Name,
    /// The accept-limit, for the policy that has one.
    pub limit: Limit,
    /// How long a connection may wait while the server is overloaded, nanoseconds.
    pub target_ns: u64,
    /// What the policy may use.
    pub controls: Controls,
    /// How those are refused who cannot be served in time.
    pub refusal: Refusal,
    /// The listen backlog the operator configured: the longest the accept queue may be.
    pub backlog: u32,
    /// What may stand before the listening socket.
    pub syn_filter: SynFilter,
    /// A connection is served when it is accepted; otherwise in a later work-phase.
    pub eager: bool,
}

impl Setting {
    /// The policy itself, at its start.
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

/// What a policy may look at when an accept-phase begins: what the loop knows without asking.
/// Counts and times that only grow are since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Connections open now, those deferred and not yet served included.
    pub open: usize,
    /// The most that may be open at once (max-conns).
    pub open_max: usize,
    /// Getevents-phases since the last accept-phase, this round's counted: one means that
    /// connections have been waiting round after round. One more when the listener was not ready
    /// in this round, and the policy is asked because its time has come.
    pub rounds_since: u64,
    /// Time that the loop has slept, nanoseconds. While the policy is not alert, all of each wait.
    pub slept_ns: u64,
    /// When the loop last woke from a sleep, nanoseconds.
    pub woke_ns: u64,
    /// Connections whose service was begun.
    pub begun: u64,
    /// Connections accepted, whatever became of them.
    pub accepted: u64,
    /// Connections served in work-phases, each as often as it was.
    pub turns: u64,
    /// Time that work-phases took, nanoseconds; counted while the policy is alert.
    pub turns_ns: u64,
    /// Connections that were reported as ready and not served since.
    pub ready: u64,
    /// Connections served in the last work-phase: those that had been ready and were not new.
    pub work_items: u64,
    /// How long the last work-phase took, nanoseconds: the longest a ready connection waited in it.
    pub work_ns: u64,
    /// Connections that were accepted and are deferred ([`Order::Newest`]).
    pub deferred: usize,
    /// Whether the loop has been busy for so long that work may be refused. [`Conserving`] fills
    /// it in.
    pub saturated: bool,
}

impl View {
    /// How many more may be open.
    pub fn room(&self) -> u64 {
        self.open_max.saturating_sub(self.open) as u64
    }
}

/// Wish of a policy to see the accept queue before it decides: a system call of 0.4 µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// [`Signals::queue`].
    pub queue: bool,
}

/// What the kernel says of the listening socket, as far as it was asked and can tell: nothing of a
/// Unix socket, nor of one that several loops share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Connections in the accept queue (tcpi_unacked of a listening socket, tcp(7)).
    pub queue: Option<u32>,
    /// Counts of a SYN filter that takes tokens, while it is in place.
    pub syns: Option<Syns>,
}

/// Counts of a SYN filter since it was put in place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Syns {
    /// SYNs let through.
    pub passed: u64,
    /// SYNs dropped for want of a token.
    pub dropped: u64,
    /// The part of those let through whose handshake ends.
    pub ended_part: f64,
    /// The weight of the sources seen lately ([`Shares::weight`]).
    pub weight: u32,
}

/// Which of the connections it accepts the server asks the kernel about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// None: what a server that is not overloaded pays.
    #[default]
    Nobody,
    /// The first of the phase: it has waited longest.
    First,
    /// Each.
    Each,
}

/// In which order those who wait are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they came: each is served when it is accepted, or when it is ready.
    #[default]
    Oldest,
    /// Those accepted in this phase are deferred. After it the newest of all deferred is served,
    /// and others as there is time, until they are stale. A later phase in the other order that
    /// leaves somebody waiting, who is newer, comes first.
    Newest,
}

/// What an accept-phase may do, and how the server treats those it does not accept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decision {
    /// How many connections may be accepted in order to be served.
    pub budget: u64,
    /// No accept begins after this, nanoseconds; the first may always.
    pub until_ns: Option<u64>,
    /// Time that the server will be busy with each, nanoseconds, 0 when that is not known: a server
    /// that serves those it accepts when the phase is over counts it as spent.
    pub each_ns: u64,
    /// Time after which a work-phase gives way to the next accept-phase, nanoseconds: it is cut,
    /// and what is left of it goes on afterwards. `None`: to its end.
    pub work_max_ns: Option<u64>,
    /// How many are accepted before them, the oldest, and refused: what the kernel did not refuse.
    /// It may take half of the time until `until_ns`, and one is accepted to be served even so.
    pub refuse: u64,
    /// About which of the accepted the kernel is asked.
    pub look: Look,
    /// Connections looked at or deferred that have waited longer are refused, nanoseconds.
    pub stale_ns: Option<u64>,
    /// Connections looked at whose client has gone are closed without a read.
    pub drop_departed: bool,
    /// In which order they are served.
    pub order: Order,
    /// While sources have to share: those deferred of one that has had its share come last.
    pub order_share: Option<Share>,
    /// How long the accept queue may be; `None` is what the operator configured.
    pub backlog: Option<u32>,
    /// Order to the SYN filter.
    pub syn: SynDecision,
    /// Requests on open connections are looked at before they are served, as those of new ones are.
    pub look_open: bool,
    /// Replies close their connection.
    pub pressure: bool,
    /// While sources have to share: replies to one that is served more often than its share close
    /// their connection.
    pub share: Option<Share>,
}

/// Share of a source on open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Time between two requests that can be served, nanoseconds.
    pub each_ns: u64,
    /// The weight of the sources that ask to be let in ([`Shares::weight`]).
    pub weight: u32,
}

/// Order to the SYN filter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SynDecision {
    /// Lets every SYN through.
    #[default]
    Open,
    /// Lets through as many as the accept queue has room for, so that no handshake ends in vain.
    /// What is dropped would have been dropped by the full queue.
    Guard {
        /// Time between two connections let in, nanoseconds; 0 when that is not known.
        each_ns: u64,
    },
    /// Lets a SYN through against a token.
    Tokens {
        /// Length that the accept queue is to have.
        window: u32,
        /// The part of these that is kept for sources that have not had their share.
        reserve: u32,
        /// Time between two connections that can be let in, nanoseconds: sources share that.
        share_ns: u64,
    },
    /// Drops this share of all SYNs, by chance.
    Random(f64),
}

impl Decision {
    /// An accept-limit, and nothing else.
    pub fn accept(budget: u64) -> Self {
        Self { budget, ..Self::default() }
    }

    /// The same decision without anything that refuses on account of load. (A loop that goes to
    /// sleep opens the SYN filter altogether: nobody is there to count.)
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
            look_open: false,
            pressure: false,
            share: None,
            ..self
        }
    }

    /// Tells whether anybody may be refused on account of load.
    pub fn refuses(&self) -> bool {
        *self != self.open()
    }
}

/// How an accept-phase went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Connections accepted, whatever became of them.
    pub accepted: u64,
    /// Of these, refused or dropped and not served.
    pub refused: u64,
    /// Whether it ended because none was waiting (EWOULDBLOCK).
    pub drained: bool,
    /// How long the request of the first that was looked at had waited, nanoseconds, to the
    /// kernel's tick; `None` when none was looked at or none had spoken.
    pub age_first_ns: Option<u64>,
    /// The shortest of those looked at.
    pub age_min_ns: Option<u64>,
    /// The round trip of the handshake of the first that was looked at, nanoseconds.
    pub rtt_ns: Option<u64>,
}

/// Decides what each accept-phase may do. Times are nanoseconds of one monotonic clock.
pub trait Policy {
    /// Which signals it wants before it decides.
    fn wants(&mut self, _now_ns: u64, _view: &View) -> Wanted {
        Wanted::default()
    }

    /// What the phase that begins now may do.
    fn decide(&mut self, now_ns: u64, view: &View, signals: &Signals) -> Decision;

    /// Hears what became of it.
    fn finished(&mut self, now_ns: u64, outcome: &Outcome);

    /// When it must be asked again though the listener may not be ready, because what it decided
    /// keeps connections from it.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// Whether it takes the server to be overloaded.
    fn is_overloaded(&self) -> bool {
        false
    }

    /// Whether it has to know exactly when the loop sleeps: somebody waits.
    fn is_alert(&self) -> bool {
        false
    }
}
