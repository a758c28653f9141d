//! `epoll-lt`: level-triggered epoll, with an epoll_ctl at every change of interest. Closing a
//! connection removes it without a call, unless one is asked for. A listening socket is always
//! removed with a call ([`super::deletions`]).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weir_sys::epoll::{Event, EventFlags};

use super::deletions::{DELETE, Deletions};
use super::kernel::{EpollSet, Kernel, Linux};
use super::settings::{Settings, Tunable};
use super::{Counts, Interest, Mechanism, PerSlot, Token};

/// Maximum number of events per wait, as in the papers' servers; the next wait returns more.
pub(super) const EVENTS_MAX: usize = 4096;

/// The interest set, kept by the kernel.
///
/// A member that waits for nothing is removed from the kernel's set, because EPOLLERR and EPOLLHUP
/// are always reported.
pub struct EpollLt<K: Kernel = Linux> {
    epoll: K::Epoll,
    events: Vec<Event>,
    members: PerSlot<Member>,
    deletions: Deletions,
}

#[derive(Clone, Copy, Default)]
struct Member {
    inside: bool,
    listens: bool,
}

/// Converts an interest to epoll flags. EPOLLRDHUP is left out: a peer that has shut its side down
/// would wake a writer for nothing.
pub(super) fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Nothing => EventFlags::empty(),
        Interest::Read | Interest::Accept => EventFlags::IN,
        Interest::Write => EventFlags::OUT,
        Interest::Either => EventFlags::IN | EventFlags::OUT,
    }
}

impl<K: Kernel> Mechanism for EpollLt<K> {
    const TUNABLES: &'static [Tunable] = &[DELETE];

    fn open(settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            epoll: K::Epoll::open()?,
            events: Vec::with_capacity(EVENTS_MAX),
            members: PerSlot::default(),
            deletions: Deletions::new(settings, &DELETE),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let listens = interest == Interest::Accept;
        *self.members.at(token.slot) = Member { inside: false, listens };
        self.change(fd, token, interest)
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let wanted = interest != Interest::Nothing;
        let inside = &mut self.members.at(token.slot).inside;
        match (*inside, wanted) {
            (false, false) => return Ok(()),
            (false, true) => {
                self.epoll.add(fd, token.pack(), flags(interest))?;
            }
            (true, true) => {
                self.epoll.modify(fd, token.pack(), flags(interest))?;
            }
            (true, false) => self.epoll.delete(fd)?,
        }
        *inside = wanted;
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let Member { inside, listens } = std::mem::take(self.members.at(token.slot));
        if inside { self.deletions.remove(&self.epoll, fd, listens) } else { Ok(()) }
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        self.epoll.wait(&mut self.events, timeout)?;
        ready.extend(self.events.iter().map(|event| Token::unpack(event.data.u64())));
        Ok(self.events.len())
    }

    fn has_reported_all(&self) -> bool {
        self.events.len() < EVENTS_MAX
    }

    fn counts(&self) -> Counts {
        self.deletions.counts()
    }
}
