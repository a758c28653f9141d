//! One connection of the load: its socket, its session, the clocks of the requests it has under
//! way. Plain state; the moves are the worker's.

use std::os::fd::OwnedFd;

use weir_http1::response::ReplyParser;

use crate::measure::{Clocks, ErrorKind};
use crate::session::Session;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing: a session is still to come.
    #[default]
    Free,
    /// The connection to be there.
    Connecting,
    /// Room to send the rest of a request.
    Sending,
    /// The reply.
    Receiving,
    /// The time of its next request.
    Thinking,
    /// The server's close, after the last reply.
    Closing,
}

/// What epoll has been asked about a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Watched {
    /// Nothing yet.
    #[default]
    No,
    /// Bytes, and the end of them.
    Read,
    /// Room to write as well.
    Both,
}

/// A connection. The requests from `answered` to `group_end` are under way; they were sent, or are
/// being sent, as one group.
#[derive(Default)]
pub(super) struct Conn {
    pub(super) fd: Option<OwnedFd>,
    /// Which use of the slot by a socket this is.
    pub(super) generation: u32,
    /// Which use of it by a session.
    pub(super) tenant: u32,
    pub(super) stage: Stage,
    pub(super) watched: Watched,
    /// The peer has said that nothing more comes (EPOLLRDHUP), or worse.
    pub(super) hung_up: bool,
    /// A whole reply came over it.
    pub(super) of_use: bool,
    pub(super) session: Session,
    pub(super) group_start: u32,
    pub(super) group_end: u32,
    pub(super) answered: u32,
    /// Bytes of the group that the kernel has taken.
    pub(super) offset: usize,
    /// Bytes of the group that may have been sent by now.
    pub(super) allowed: usize,
    pub(super) parser: ReplyParser,
    pub(super) planned_ns: u64,
    pub(super) started_ns: u64,
    pub(super) connected_ns: u64,
    pub(super) first_byte_ns: u64,
    /// When the first byte of each request of the group was taken, as far as that has happened.
    pub(super) sent_ns: Vec<u64>,
    /// When the session began.
    pub(super) begun_ns: u64,
    /// When the socket was opened.
    pub(super) opened_ns: u64,
    /// When its last session was over.
    pub(super) free_ns: u64,
    /// When something last went forward.
    pub(super) progress_ns: u64,
}

impl Conn {
    /// Requests sent or being sent whose reply is not whole.
    pub(super) fn under_way(&self) -> u32 {
        self.group_end.saturating_sub(self.answered)
    }

    /// Requests of the session that have not been due.
    pub(super) fn later(&self) -> u64 {
        (self.session.steps.len() as u64).saturating_sub(u64::from(self.group_end))
    }

    /// Whether no byte of the request that waits for its reply has been sent.
    pub(super) fn is_unsent(&self) -> bool {
        self.sent_ns.len() <= self.answered.saturating_sub(self.group_start) as usize
    }

    /// The clocks of the request that waits for its reply.
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

    /// When the present wait has been too long, nanoseconds; `deadline_ns` is counted from the
    /// planned start, 0 for none.
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

    /// What an overlong wait is called.
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

/// The deadline of what was planned for `planned_ns`.
pub(super) fn due_ns(planned_ns: u64, deadline_ns: u64) -> u64 {
    if deadline_ns == 0 { u64::MAX } else { planned_ns.saturating_add(deadline_ns) }
}
