//! State of a member beside its readiness, and its entry for poll(2).

use std::os::fd::RawFd;

use weir_sys::poll::{POLLIN, POLLOUT, POLLRDHUP, PollFd};

use crate::readiness::{Interest, Token};

/// A member.
pub(super) struct Member {
    pub(super) token: Token,
    pub(super) fd: RawFd,
    pub(super) interest: Interest,
    /// Level-triggered: never written to, or mute.
    pub(super) level: bool,
    pub(super) mute: bool,
    pub(super) unsure: bool,
    /// True if the member is in the list of the unsure.
    pub(super) listed: bool,
    /// Read notices since the last short read, or since the poll.
    pub(super) read_notices: u8,
    /// Poll(2) bits of signals that may belong to a previous owner of the number.
    pub(super) doubted: i16,
    /// Wait in which the member was last reported, when level-triggered.
    pub(super) reported_at: u64,
}

impl Member {
    pub(super) fn poll_fd(&self) -> PollFd {
        let events = match self.interest {
            Interest::Nothing => 0,
            _ if !self.level => POLLIN | POLLOUT | POLLRDHUP,
            Interest::Read | Interest::Accept => POLLIN,
            Interest::Write => POLLOUT,
            Interest::Either => POLLIN | POLLOUT,
        };
        PollFd { fd: self.fd, events, revents: 0 }
    }

    pub(super) fn waits(&self) -> bool {
        self.interest != Interest::Nothing
    }
}
