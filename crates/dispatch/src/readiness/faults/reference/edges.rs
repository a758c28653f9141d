//! Edge-triggered epoll, independent of the implementation in the table.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weir_sys::epoll::{Event, EventFlags};

use super::super::super::fake::{Fake, RDHUP};
use super::super::super::kernel::{EpollSet, Kernel};
use super::super::super::settings::Settings;
use super::super::super::{Interest, Mechanism, Token};
use super::Book;

// Faults that can be built in.
pub(in super::super) const NONE: u8 = 0;
pub(in super::super) const FORGETS_THE_END: u8 = 1;
pub(in super::super) const SLEEPS_ON_WHAT_IS_KNOWN: u8 = 2;
pub(in super::super) const FORGETS_THE_GENERATION: u8 = 3;
pub(in super::super) const NEVER_BLOCKED: u8 = 4;

pub(in super::super) struct EdgeReference<const FAULT: u8> {
    epoll: <Fake as Kernel>::Epoll,
    events: Vec<Event>,
    book: Book,
}

impl<const FAULT: u8> Mechanism for EdgeReference<FAULT> {
    fn open(_: &Settings) -> io::Result<Self> {
        let events = Vec::with_capacity(16);
        Ok(Self { epoll: EpollSet::open()?, events, book: Book::default() })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        self.epoll.add(fd, token.pack(), flags)?;
        self.book.add(token, interest);
        Ok(())
    }

    fn change(&mut self, _: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.book.change(token, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        if FAULT != FORGETS_THE_GENERATION {
            self.book.remove(token);
        }
        self.epoll.delete(fd)
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        if FAULT != NEVER_BLOCKED {
            self.book.blocked(token, direction);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let hurry = FAULT != SLEEPS_ON_WHAT_IS_KNOWN && self.book.any_ready();
        let timeout = if hurry { Some(Duration::ZERO) } else { timeout };
        self.epoll.wait(&mut self.events, timeout)?;
        for event in &self.events {
            let (data, flags) = (event.data, event.flags);
            let hidden = if FAULT == FORGETS_THE_END { RDHUP } else { 0 };
            self.book.learn(Token::unpack(data.u64()), flags.bits() & !hidden);
        }
        self.book.report(ready);
        Ok(self.events.len())
    }
}
