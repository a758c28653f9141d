//! The readiness contract: what every mechanism that reports readiness promises, and their one
//! table.
//!
//! * A member of the interest set is a descriptor with a [`Token`] and one [`Interest`].
//! * [`Mechanism::wait`] reports every member whose interest can make progress, and goes on
//!   reporting it at each call until the caller has said [`Mechanism::blocked`], changed the
//!   interest or removed the member. A level-triggered mechanism has this from the kernel; an
//!   edge-triggered one keeps the state itself (gammo-epoll §3) and pays for it in its own file,
//!   not in the loop.
//! * `blocked` must be called when the last read (or write) of the descriptor said EWOULDBLOCK or
//!   moved fewer bytes than there was room for. It may be called at no other time.
//! * An error or a hang-up counts as ready for whatever the interest is.
//! * `remove` comes before the close. After it no event with that token is reported, except from
//!   the batch that `wait` has already returned: a caller checks the token's generation.
//! * [`Interest::Nothing`] reports nothing, and costs no wake-up.

mod epoll2;
mod epoll_et;
mod epoll_lt;
mod poll;
mod select;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use epoll_et::EpollEt;
pub use epoll_lt::EpollLt;
pub use epoll2::Epoll2;
pub use poll::Poll;
pub use select::Select;

/// Who an event is for: a slot, and which of its tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Token {
    /// The slot's number, dense and small: mechanisms index tables by it.
    pub slot: u32,
    /// Which use of the slot this is, so that a stale event can be told.
    pub generation: u32,
}

impl Token {
    fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    fn unpack(data: u64) -> Self {
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
pub trait Mechanism: Sized {
    /// Makes an empty interest set.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM where the kernel keeps the set.
    fn open() -> io::Result<Self>;

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

    /// Waits up to `timeout` (for ever when `None`) and appends the ready members to `ready`.
    /// Returns how many descriptors the kernel reported, which may be more, when some are reported
    /// unasked, or fewer, when some were known to be ready before.
    ///
    /// # Errors
    /// What the call says when the set itself is broken: EBADF, EINVAL, ENOMEM.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize>;
}

/// A mechanism's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Name {
    Select,
    Poll,
    EpollLt,
    EpollEt,
    Epoll2,
}

/// A row of the table of mechanisms: the one place help, docs and tests take them from.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which one.
    pub name: Name,
    /// As the option spells it.
    pub spelling: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where it was measured first.
    pub source: &'static str,
}

/// Every mechanism there is.
pub const TABLE: &[Row] = &[
    Row {
        name: Name::Select,
        spelling: "select",
        summary: "bitmaps copied in and out at every call, of any size",
        source: "brecht-select",
    },
    Row {
        name: Name::Poll,
        spelling: "poll",
        summary: "an array of descriptors at every call",
        source: "gammo-epoll",
    },
    Row {
        name: Name::EpollLt,
        spelling: "epoll-lt",
        summary: "level-triggered; an epoll_ctl at every change of interest",
        source: "gammo-epoll",
    },
    Row {
        name: Name::EpollEt,
        spelling: "epoll-et",
        summary: "edge-triggered; the server keeps the state of each socket",
        source: "gammo-epoll",
    },
    Row {
        name: Name::Epoll2,
        spelling: "epoll2",
        summary: "level-triggered, asked once for both; two epoll_ctl calls a connection",
        source: "gammo-epoll",
    },
];

impl Name {
    /// The row of this mechanism.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.name == self).unwrap_or(&TABLE[0])
    }
}

/// A value for each slot, growing as slots appear; a slot never seen has the default.
#[derive(Debug, Default)]
struct PerSlot<T>(Vec<T>);

impl<T: Default> PerSlot<T> {
    fn at(&mut self, slot: u32) -> &mut T {
        let index = slot as usize;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, T::default);
        }
        &mut self.0[index]
    }
}

#[cfg(test)]
mod tests;
