//! `epoll-lt`: level-triggered epoll; an epoll_ctl at every change of interest, and none at a
//! close, which takes the descriptor out by itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use weir_sys::epoll::{self, Event, EventFlags};

use super::{Interest, Mechanism, PerSlot, Token};

/// How many events a wait returns at most, as in the papers' servers: more come at the next.
pub(super) const EVENTS_MAX: usize = 4096;

/// The interest set, kept by the kernel.
///
/// A member that waits for nothing is taken out of it, because EPOLLERR and EPOLLHUP come unasked.
pub struct EpollLt {
    epoll: OwnedFd,
    events: Vec<Event>,
    inside: PerSlot<bool>,
}

/// EPOLLRDHUP is left out: a peer that has shut its side down would wake a writer for nothing.
fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Nothing => EventFlags::empty(),
        Interest::Read | Interest::Accept => EventFlags::IN,
        Interest::Write => EventFlags::OUT,
    }
}

impl Mechanism for EpollLt {
    fn open() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create()?,
            events: Vec::with_capacity(EVENTS_MAX),
            inside: PerSlot::default(),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        *self.inside.at(token.slot) = false;
        self.change(fd, token, interest)
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let wanted = interest != Interest::Nothing;
        let inside = self.inside.at(token.slot);
        match (*inside, wanted) {
            (false, false) => return Ok(()),
            (false, true) => {
                epoll::add(self.epoll.as_fd(), fd, token.pack(), flags(interest))?;
            }
            (true, true) => {
                epoll::modify(self.epoll.as_fd(), fd, token.pack(), flags(interest))?;
            }
            (true, false) => epoll::delete(self.epoll.as_fd(), fd)?,
        }
        *inside = wanted;
        Ok(())
    }

    fn remove(&mut self, _: BorrowedFd<'_>, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<()> {
        epoll::wait(self.epoll.as_fd(), &mut self.events, timeout)?;
        ready.extend(self.events.iter().map(|event| Token::unpack(event.data.u64())));
        Ok(())
    }
}
