//! The readiness contract: guarantees of every mechanism that reports readiness.
//!
//! * A member of the interest set is a descriptor with a [`Token`] and one [`Interest`].
//! * [`Mechanism::wait`] reports every member whose interest can make progress, and reports it
//!   again at each call until the caller calls [`Mechanism::blocked`], changes the interest or
//!   removes the member. A level-triggered mechanism has this from the kernel; an edge-triggered
//!   one keeps the state itself (gammo-epoll §3) and pays for it in its own file, not in the loop.
//! * One call need not report all ready members, but a wait never sleeps while one is unreported.
//! * A member may be reported though it is not ready, where a kernel is late or repeats itself; the
//!   caller then tries, and calls `blocked`. Such reports do not continue for ever.
//! * A member that waits for either is reported while the other of the two is `blocked`.
//! * `blocked` must be called when the last read (or write) of the descriptor returned EWOULDBLOCK
//!   or moved fewer bytes than there was space for. It may be called at no other time.
//! * An error or a hang-up counts as ready for any interest.
//! * `remove` precedes the close. After it no event with that token is reported, except from the
//!   batch already returned by `wait`: a caller checks the token's generation.
//! * [`Interest::Nothing`] causes no report and no wake-up.
//!
//! Nothing here knows which mechanisms there are.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::settings::{Settings, Tunable};

/// Recipient of an event: a slot, and the generation of its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Token {
    /// Slot number, dense and small: mechanisms index tables by it.
    pub slot: u32,
    /// Generation of the slot's use, which identifies stale events.
    pub generation: u32,
}

impl Token {
    /// Packs the token into one number, for a kernel or helper that returns 64 bits with an event.
    pub fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// Unpacks a token packed by [`Token::pack`].
    pub fn unpack(data: u64) -> Self {
        Self { slot: data as u32, generation: (data >> 32) as u32 }
    }
}

/// Readiness that a member of the interest set waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Interest {
    /// Nothing for now; the descriptor stays a member.
    #[default]
    Nothing,
    /// Bytes to read, or the end of them.
    Read,
    /// Space to write.
    Write,
    /// Either of the two, for a connection that must not stop reading while it cannot write.
    Either,
    /// A connection to accept, on a listening socket; or a ring of the loop's bell, which is
    /// consumed like a connection. Such a member is never written to: its only other interest is
    /// `Nothing`.
    Accept,
}

/// A mechanism that reports which descriptors are ready: the functions of the contract above.
pub trait Mechanism: Sized + 'static {
    /// Settings that the operator can change.
    const TUNABLES: &'static [Tunable] = &[];

    /// Opens an empty interest set, in the thread that will wait.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM where the kernel keeps the set; ENOSYS, EPERM where the kernel does
    /// not support the mechanism, or forbids it.
    fn open(settings: &Settings) -> io::Result<Self>;

    /// Adds a member.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC where the kernel keeps the set; the descriptor is then not a member.
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()>;

    /// Changes the interest of a member.
    ///
    /// # Errors
    /// ENOMEM where the kernel keeps the set.
    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()>;

    /// Removes a member, before its descriptor is closed.
    ///
    /// # Errors
    /// EBADF, ENOENT when it was not a member.
    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()>;

    /// Records that the member's last call in this direction would have blocked, or moved fewer
    /// bytes than requested.
    fn blocked(&mut self, token: Token, direction: Interest);

    /// Waits up to `timeout` (for ever when `None`) and appends the ready members to `ready`, each
    /// once. Returns the number of descriptors reported by the kernel, which may be greater, when
    /// some are reported without being requested, or smaller, when some were known to be ready
    /// before.
    ///
    /// # Errors
    /// Errors of the call when the set itself is broken: EBADF, EINVAL, ENOMEM.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize>;

    /// Searches the result of the last wait again, as that wait did, and appends what it finds to
    /// `ready`. Returns false where a wait has no result to search, as all but select. Serves to
    /// measure the search by itself, without the call before it.
    fn search_again(&self, _ready: &mut Vec<Token>) -> bool {
        false
    }

    /// Returns whether, until the next wait, every waiting connection should be accepted whatever
    /// the limit, because the notice of one may have been lost (chandra-dispatch §4.2, note 2).
    fn accepts_all(&self) -> bool {
        false
    }

    /// Returns whether the last wait reported every member that was ready when it was called; false
    /// where that is not known.
    fn has_reported_all(&self) -> bool {
        false
    }

    /// Returns the counters since the mechanism was opened.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// Counters of a mechanism's own work, where it has such work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Notices taken individually from the kernel: signals, completions.
    pub notices: u64,
    /// Times the kernel's queue of notices overflowed.
    pub overflows: u64,
    /// Members checked in the full sweeps after overflows.
    pub swept: u64,
    /// Notices for members that had gone, or that turned out not to be ready.
    pub stale: u64,
    /// Redundant notices, because an earlier one of the same descriptor had not been processed yet.
    pub coalesced: u64,
    /// Members polled individually, because no notice would come.
    pub checked: u64,
    /// Members armed again after a notice.
    pub rearmed: u64,
    /// Interest changes submitted together with others.
    pub batched: u64,
    /// Members taken out of the kernel's set by a call of their own before they were closed.
    pub deleted: u64,
    /// Notices discarded after an overflow; `notices` includes them.
    pub discarded: u64,
    /// Calls that took at least one notice, those that discarded notices aside.
    pub takes: u64,
    /// Maximum number of notices taken by one of them.
    pub taken_max: u64,
    /// Calls of the mechanism that stands in after an overflow.
    pub fallbacks: u64,
}

/// A value per slot, growing as slots appear; a new slot has the default.
#[derive(Debug, Default)]
pub(super) struct PerSlot<T>(Vec<T>);

impl<T: Default> PerSlot<T> {
    pub(super) fn at(&mut self, slot: u32) -> &mut T {
        let index = slot as usize;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, T::default);
        }
        &mut self.0[index]
    }
}
