//! Accept policies and overload control: how many connections to take in at a time, in which order,
//! and what becomes of those that cannot be served in time. Counters in, a decision out.
//!
//! A policy is a pure state machine: no I/O and no clock of its own, so that a server and a
//! simulator run the same code. Nothing here knows how a connection is accepted, refused or served.

mod adaptive;
mod codel;
mod controls;
#[cfg(test)]
mod fake;
mod fixed;
mod limit;
mod match_close;
mod name;
mod ramp;
mod timed;

pub use adaptive::Adaptive;
pub use codel::Codel;
pub use controls::{Control, Controls, NotAControl, Refusal};
pub use fixed::FixedLimit;
pub use limit::{Limit, NotALimit};
pub use match_close::MatchClose;
pub use name::{Name, Row, TABLE};
pub use ramp::{RAMP_MAX, Ramp};
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
}

impl Setting {
    /// The policy itself, at its beginning.
    pub fn policy(&self) -> Box<dyn Policy + Send> {
        match (self.name, self.limit) {
            (Name::Limit, Limit::Count(count)) => Box::new(FixedLimit(Some(count))),
            (Name::Limit, Limit::Inf) => Box::new(FixedLimit(None)),
            (Name::Limit, Limit::Auto) => Box::new(Ramp::default()),
            (Name::MatchClose, _) => Box::new(MatchClose::default()),
            (Name::Timed, _) => Box::new(Timed::new(self)),
            (Name::Codel, _) => Box::new(Codel::new(self)),
            (Name::Adaptive, _) => Box::new(Adaptive::new(self)),
        }
    }
}

/// What a policy may look at when an accept-phase begins: what the loop knows without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Connections open now, those held and not yet served included.
    pub open: usize,
    /// The most that may be open at once (max-conns).
    pub open_max: usize,
    /// Getevents-phases since the last accept-phase, this round's counted: one means that
    /// connections have been waiting round after round. One more when nobody knocked in this
    /// round, and the policy is asked because its time has come.
    pub rounds_since: u64,
    /// Connections served and closed since the server began; none that was refused.
    pub closed: u64,
    /// How long the loop has waited for events since the server began, nanoseconds: what it slept,
    /// and what the mechanism took.
    pub waited_ns: u64,
    /// Connections served in the last work-phase: those that had been ready and were not new.
    pub work_items: u64,
    /// How long the last work-phase took, nanoseconds: the longest a ready connection waited in it.
    pub work_ns: u64,
    /// Connections that were accepted and are held ([`Order::Newest`]).
    pub held: usize,
}

impl View {
    /// How many more may be open.
    pub fn room(&self) -> u64 {
        self.open_max.saturating_sub(self.open) as u64
    }
}

/// Which signals a policy wants to see before it decides: each costs a system call, about 0.4 µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// [`Signals::queue`].
    pub queue: bool,
    /// [`Signals::drops`].
    pub drops: bool,
}

/// What the kernel says of the listening socket, as far as it was asked and can tell: nothing of a
/// Unix socket, nor of one that several loops share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Connections in the accept queue (tcpi_unacked of a listening socket, tcp(7)).
    pub queue: Option<u32>,
    /// Connection requests dropped since the socket listens, by a full queue or by the gate
    /// (SK_MEMINFO_DROPS). It grows modulo 2³².
    pub drops: Option<u32>,
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
    /// Those accepted in this phase are held. After it the newest of all held is served, and others
    /// as there is time, until they are stale. A later phase in the other order that leaves
    /// somebody waiting, who is newer, comes first.
    Newest,
}

/// What an accept-phase may do, and how the server treats those it does not accept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decision {
    /// How many connections may be accepted in order to be served.
    pub budget: u64,
    /// No accept begins after this, nanoseconds; the first may always.
    pub until_ns: Option<u64>,
    /// How long it will keep the server busy to serve one, nanoseconds, 0 when that is not known: a
    /// server that serves those it accepts when the phase is over counts it as spent.
    pub each_ns: u64,
    /// How many are accepted before them, the oldest, and refused: what the kernel did not refuse.
    /// It may take half of the time until `until_ns`, and one is accepted to be served even so.
    pub refuse: u64,
    /// About which of the accepted the kernel is asked.
    pub look: Look,
    /// Connections looked at or held that have waited longer are refused, nanoseconds.
    pub stale_ns: Option<u64>,
    /// Connections looked at whose client has gone are closed without a read.
    pub drop_departed: bool,
    /// In which order they are served.
    pub order: Order,
    /// How long the accept queue may be; `None` is what the operator configured.
    pub backlog: Option<u32>,
    /// Which share of connection requests is dropped before the kernel keeps anything of them.
    pub gate: f64,
    /// Replies close their connection; requests that have waited too long on one that is open are
    /// looked at, and refused like those of new ones.
    pub pressure: bool,
    /// How many connections that wait for their client are closed to make room: idle ones first,
    /// then those that said nothing whole for [`Decision::silence_ns`].
    pub evict: u64,
    /// How long a new connection may keep silent while there is hardly room, nanoseconds.
    pub silence_ns: u64,
}

impl Decision {
    /// An accept-limit, and nothing else.
    pub fn accept(budget: u64) -> Self {
        Self { budget, ..Self::default() }
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

    /// When it must be asked again though nobody may have knocked, because what it decided keeps
    /// them from it.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// Whether it takes the server to be overloaded.
    fn is_overloaded(&self) -> bool {
        false
    }
}
