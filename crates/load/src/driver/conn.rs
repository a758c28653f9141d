//! A connection of the load: its socket, its session, and the clocks of its requests in flight.
//! Plain state; the worker acts on it.

use std::os::fd::OwnedFd;

use weir_http1::response::ReplyParser;

use crate::measure::{Clocks, ErrorKind};
use crate::session::Session;

/// The event a connection waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing: it has no session yet.
    #[default]
    Free,
    /// The connection to be established.
    Connecting,
    /// Room in the send buffer for the rest of a request.
    Sending,
    /// The reply.
    Receiving,
    /// The end of a think time.
    Thinking,
    /// The server's close, after the last reply.
    Closing,
}

/// The epoll registration of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Watched {
    /// Not registered.
    #[default]
    No,
    /// Registered for reading and for the peer's shutdown.
    Read,
    /// Registered for writing as well.
    Both,
}

/// A connection. The requests from `answered` to `group_end` are in flight; they were sent, or are
/// being sent, as one group.
#[derive(Default)]
pub(super) struct Conn {
    pub(super) fd: Option<OwnedFd>,
    /// Incremented for each socket of the slot; identifies stale events.
    pub(super) generation: u32,
    /// Incremented for each session of the slot; identifies stale think times.
    pub(super) tenant: u32,
    pub(super) stage: Stage,
    pub(super) watched: Watched,
    /// True once the peer has shut down its sending side (EPOLLRDHUP), hung up or failed.
    pub(super) hung_up: bool,
    /// True once a complete reply was received on this socket.
    pub(super) of_use: bool,
    pub(super) session: Session,
    pub(super) group_start: u32,
    pub(super) group_end: u32,
    pub(super) answered: u32,
    /// Bytes of the group accepted by the kernel.
    pub(super) offset: usize,
    /// Bytes of the group that may be sent so far.
    pub(super) allowed: usize,
    pub(super) parser: ReplyParser,
    pub(super) planned_ns: u64,
    pub(super) started_ns: u64,
    pub(super) connected_ns: u64,
    pub(super) first_byte_ns: u64,
    /// Time at which the kernel accepted the first byte of each request of the group, for those
    /// sent so far.
    pub(super) sent_ns: Vec<u64>,
    /// Start of the session.
    pub(super) begun_ns: u64,
    /// Time at which the socket was opened.
    pub(super) opened_ns: u64,
    /// End of the slot's last session.
    pub(super) free_ns: u64,
    /// Time of the last progress.
    pub(super) progress_ns: u64,
}

impl Conn {
    /// Returns the number of requests sent or being sent without a complete reply.
    pub(super) fn under_way(&self) -> u32 {
        self.group_end.saturating_sub(self.answered)
    }

    /// Returns the number of requests of the session that are not yet due.
    pub(super) fn later(&self) -> u64 {
        (self.session.steps.len() as u64).saturating_sub(u64::from(self.group_end))
    }

    /// Returns whether no byte of the oldest unanswered request has been sent.
    pub(super) fn is_unsent(&self) -> bool {
        self.sent_ns.len() <= self.answered.saturating_sub(self.group_start) as usize
    }

    /// Returns the clocks of the oldest unanswered request.
    pub(super) fn clocks(&self, last_byte_ns: u64) -> Clocks {
        let nth = self.answered.saturating_sub(self.group_start) as usize;
        Clocks {
            planned_ns: self.planned_ns,
            started_ns: self.started_ns,
            connected_ns: self.connected_ns,
            sent_ns: self.sent_ns.get(nth).copied().unwrap_or(0),
            first_byte_ns: self.first_byte_ns,
            last_byte_ns,
        }
    }

    /// Returns the time at which the current wait expires, nanoseconds. `deadline_ns` counts from
    /// the planned start; 0 is none.
    pub(super) fn expires_ns(&self, timeout_ns: u64, deadline_ns: u64) -> u64 {
        match self.stage {
            Stage::Free | Stage::Thinking => u64::MAX,
            Stage::Closing => self.progress_ns.saturating_add(timeout_ns),
            _ => self
                .progress_ns
                .saturating_add(timeout_ns)
                .min(due_ns(self.planned_ns, deadline_ns)),
        }
    }

    /// Returns the kind of error of a wait that has expired.
    pub(super) fn overdue(&self, now_ns: u64, deadline_ns: u64) -> ErrorKind {
        if due_ns(self.planned_ns, deadline_ns) <= now_ns {
            return ErrorKind::Deadline;
        }
        match self.stage {
            Stage::Connecting => ErrorKind::ConnectTimeout,
            Stage::Sending => ErrorKind::SendTimeout,
            _ => ErrorKind::ReplyTimeout,
        }
    }
}

/// Returns the deadline of a request planned for `planned_ns`.
pub(super) fn due_ns(planned_ns: u64, deadline_ns: u64) -> u64 {
    if deadline_ns == 0 { u64::MAX } else { planned_ns.saturating_add(deadline_ns) }
}
