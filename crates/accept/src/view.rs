//! Input of a policy: what the loop knows without a system call, and what the kernel knows if it is
//! asked.

use crate::TlsWork;

/// State of the loop at the start of an accept-phase: what it knows without a system call. Counts
/// and times that only grow are totals since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Open connections, including deferred ones.
    pub open: usize,
    /// Maximum number of open connections (max-conns).
    pub open_max: usize,
    /// Getevents-phases since the last accept-phase, including this iteration's: one means that
    /// connections have been waiting at every iteration. One more if the listener was not ready in
    /// this iteration, and the policy is asked because its timer is due.
    pub iterations_since: u64,
    /// Time that the loop has slept, nanoseconds. While the policy is not alert, all of each wait
    /// counts.
    pub slept_ns: u64,
    /// Time of the loop's last wake-up, nanoseconds.
    pub woke_ns: u64,
    /// Connections whose service has begun.
    pub begun: u64,
    /// Connections accepted, including those that the policy refused, but not those refused
    /// whatever it had decided: for the limits of their client, or for lack of memory.
    pub accepted: u64,
    /// Work items: connections served in work-phases, each once per work-phase.
    pub served: u64,
    /// Time spent in work-phases, nanoseconds; measured while the policy is alert.
    pub served_ns: u64,
    /// Connections reported as ready and not served since.
    pub ready: u64,
    /// Connections served in the last work-phase: ready ones that were not new.
    pub work_items: u64,
    /// Duration of the last work-phase, nanoseconds: the longest time a ready connection waited in
    /// it.
    pub work_ns: u64,
    /// Connections accepted and deferred ([`crate::Order::Newest`]).
    pub deferred: usize,
    /// Handshakes of all connections with TLS.
    pub tls: TlsWork,
    /// True if connections of this listener begin with a TLS handshake.
    pub is_tls: bool,
    /// True if the loop was awake for nine tenths of the last 200 ms. Set by
    /// [`crate::Conserving`].
    pub busy: bool,
    /// True if the loop has been busy long enough that work may be refused. Set by
    /// [`crate::Conserving`].
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
    /// SYNs that would still be let through by the tokens there are; `None` while none are needed.
    pub unused: Option<u64>,
    /// Share of the SYNs let through whose handshake ends.
    pub ended_part: f64,
    /// Weight of the sources seen recently ([`crate::Shares::weight`]).
    pub weight: u32,
}
