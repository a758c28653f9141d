//! What is kept of one member beside its readiness, and how it is asked about. Decides nothing.

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
    /// Stands in the list of the unsure.
    pub(super) listed: bool,
    /// Notices of reading since the last read that fell short, or since the poll.
    pub(super) heard: u8,
    /// The poll(2) bits of signals that may have been another's.
    pub(super) doubted: i16,
    /// The wait in which it was last reported, when level-triggered.
    pub(super) reported_at: u64,
}

impl Member {
    pub(super) fn poll_fd(&self) -> PollFd {
        let events = match self.interest {
            Interest::Nothing => 0,
            _ if !self.level => POLLIN | POLLOUT | POLLRDHUP,
            Interest::Read | Interest::Accept => POLLIN,
            Interest::Write => POLLOUT,
        };
        PollFd { fd: self.fd, events, revents: 0 }
    }

    pub(super) fn waits(&self) -> bool {
        self.interest != Interest::Nothing
    }
}
