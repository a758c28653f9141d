//! Deletions: the ways out of epoll's set, for the mechanisms that use it. A close takes a
//! descriptor out if no other one keeps its file open; before that, an epoll_ctl of its own does.
//! gammo-epoll §3 tried both for connections, and chose the call.

use std::io;
use std::os::fd::BorrowedFd;

use super::Counts;
use super::kernel::EpollSet;
use super::settings::{Settings, Tunable};

/// Choice between the two for connections; a mechanism may have another default.
pub(super) const DELETE: Tunable = Tunable {
    name: "delete",
    help: "1: a connection is taken out of the set by an epoll_ctl before it is closed; 0: by the \
           close itself",
    default: 0,
    min: 0,
    max: 1,
};

/// The choice, and the number of calls made.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    by_call: bool,
    made: u64,
}

impl Deletions {
    /// Returns the operator's choice, or the default of `tunable`, which is [`DELETE`] with the
    /// mechanism's default.
    pub(super) fn new(settings: &Settings, tunable: &Tunable) -> Self {
        Self { by_call: settings.get(tunable) == 1, made: 0 }
    }

    /// Takes a member out of the set before its close, or leaves that to the close. `needs_call`
    /// is true for a listening socket, which may have other descriptors, in other loops or
    /// processes, that keep it open.
    ///
    /// # Errors
    /// ENOENT when it is not in the set.
    pub(super) fn remove<E: EpollSet>(
        &mut self,
        epoll: &E,
        fd: BorrowedFd<'_>,
        needs_call: bool,
    ) -> io::Result<()> {
        if !(needs_call || self.by_call) {
            return Ok(());
        }
        self.made += 1;
        epoll.delete(fd)
    }

    /// Returns the mechanism's counters, with the calls made and nothing else.
    pub(super) fn counts(&self) -> Counts {
        Counts { deleted: self.made, ..Counts::default() }
    }
}
