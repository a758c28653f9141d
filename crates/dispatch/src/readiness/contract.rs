//! The readiness contract: what every mechanism that reports readiness promises.
//!
//! * A member of the interest set is a descriptor with a [`Token`] and one [`Interest`].
//! * [`Mechanism::wait`] reports every member whose interest can make progress, and goes on
//!   reporting it at each call until the caller has said [`Mechanism::blocked`], changed the
//!   interest or removed the member. A level-triggered mechanism has this from the kernel; an
//!   edge-triggered one keeps the state itself (gammo-epoll §3) and pays for it in its own file,
//!   not in the loop.
//! * One call need not report all of them, but a wait never sleeps while one is unreported.
//! * A member may be reported though it is not ready, where a kernel is late or repeats itself; the
//!   caller tries, and says `blocked`. It is not reported so for ever.
//! * `blocked` must be called when the last read (or write) of the descriptor said EWOULDBLOCK or
//!   moved fewer bytes than there was room for. It may be called at no other time.
//! * An error or a hang-up counts as ready for whatever the interest is.
//! * `remove` comes before the close. After it no event with that token is reported, except from
//!   the batch that `wait` has already returned: a caller checks the token's generation.
//! * [`Interest::Nothing`] reports nothing, and costs no wake-up.
//!
//! Nothing here knows which mechanisms there are.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::settings::{Knob, Settings};

/// Who an event is for: a slot, and which of its tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Token {
    /// The slot's number, dense and small: mechanisms index tables by it.
    pub slot: u32,
    /// Which use of the slot this is, so that a stale event can be told.
    pub generation: u32,
}

impl Token {
    /// The token as one number, for who hands 64 bits back with an event: a kernel, a helper.
    pub fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// What [`Token::pack`] packed.
    pub fn unpack(data: u64) -> Self {
        Self { slot: data as u32, generation: (data >> 32) as u32 }
    }
}

/// What a member of the interest set waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Interest {
    /// Nothing for now; it stays a member.
    #[default]
    Nothing,
    /// Bytes, or the end of them.
    Read,
    /// Room to write.
    Write,
    /// A connection to accept, on a listening socket; or a ring of the loop's bell, which is taken
    /// in as a connection is. Such a member is never written to: it has no other interest, but for
    /// nothing.
    Accept,
}

/// A way to learn which descriptors are ready: the functions of the contract above.
pub trait Mechanism: Sized + 'static {
    /// What can be set about it.
    const KNOBS: &'static [Knob] = &[];

    /// Makes an empty interest set, in the thread that will wait.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM where the kernel keeps the set; ENOSYS, EPERM where the kernel has no
    /// such thing, or forbids it.
    fn open(settings: &Settings) -> io::Result<Self>;

    /// Adds a member.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC where the kernel keeps the set; the descriptor is then no member.
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()>;

    /// Changes what a member waits for.
    ///
    /// # Errors
    /// ENOMEM where the kernel keeps the set.
    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()>;

    /// Takes a member out, before its descriptor is closed.
    ///
    /// # Errors
    /// EBADF, ENOENT when it was none.
    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()>;

    /// Hears that the member's last call in this direction would have blocked, or moved less than
    /// asked.
    fn blocked(&mut self, token: Token, direction: Interest);

    /// Waits up to `timeout` (for ever when `None`) and appends the ready members to `ready`, each
    /// once. Returns how many descriptors the kernel reported, which may be more, when some are
    /// reported unasked, or fewer, when some were known to be ready before.
    ///
    /// # Errors
    /// What the call says when the set itself is broken: EBADF, EINVAL, ENOMEM.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize>;

    /// What it counted since it was opened.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// What a mechanism counts of its own work, where it has such work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Notices taken one by one from the kernel: signals, completions.
    pub notices: u64,
    /// Times the kernel's queue of notices overflowed.
    pub overflows: u64,
    /// Members looked at in the full sweeps that followed.
    pub swept: u64,
    /// Notices for members that had gone, or that turned out not to be ready.
    pub stale: u64,
    /// Notices that told nothing new, because an earlier one of the same descriptor was not yet
    /// taken in.
    pub coalesced: u64,
    /// Members asked one by one, because no notice would come.
    pub checked: u64,
    /// Members armed again after a notice.
    pub rearmed: u64,
    /// Changes of interest that were handed over together with others.
    pub batched: u64,
}

/// A value for each slot, growing as slots appear; a slot never seen has the default.
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
