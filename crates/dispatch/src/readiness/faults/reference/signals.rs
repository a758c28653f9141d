//! Real-time signals, one at a time. A signal may belong to the previous owner of the number, so it
//! only marks the member to be checked with poll. Events that no signal announces mark it too:
//! those from before signals were on, and those that a short read may have hidden. Space to write
//! is signalled only after a failed try, so each member is presumed to have some.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::poll::PollFd;
use weir_sys::rtsig::Notice;

use super::super::super::fake::{Fake, IN, OUT};
use super::super::super::kernel::{Kernel, SignalQueue};
use super::super::super::settings::Settings;
use super::super::super::{Interest, Mechanism, Token};
use super::Book;

// Faults that can be built in.
pub(in super::super) const NONE: u8 = 0;
pub(in super::super) const IGNORES_OVERFLOW: u8 = 1;
pub(in super::super) const ASKS_NOT_AFTER_ARMING: u8 = 2;
pub(in super::super) const TRUSTS_A_SHORT_READ: u8 = 3;
pub(in super::super) const TRUSTS_THE_NUMBER: u8 = 4;
pub(in super::super) const PRESUMES_NO_ROOM: u8 = 5;

pub(in super::super) struct SignalReference<const FAULT: u8> {
    queue: <Fake as Kernel>::Signals,
    book: Book,
    numbers: BTreeMap<RawFd, Token>,
    /// Members to be checked before the next wait.
    doubtful: Vec<Token>,
    /// Members that send no signals.
    silent: Vec<Token>,
}

impl<const FAULT: u8> SignalReference<FAULT> {
    fn ask(&mut self, of: impl Fn(Token) -> bool) -> io::Result<()> {
        let numbers = self.numbers.iter().filter(|&(_, &token)| of(token));
        let (tokens, mut fds): (Vec<_>, Vec<_>) =
            numbers.map(|(&fd, &token)| (token, asked(fd, IN | OUT))).unzip();
        Fake::poll(&mut fds, Some(Duration::ZERO))?;
        for (token, entry) in tokens.iter().zip(&fds) {
            self.book.learn(*token, (entry.revents as u16).into());
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<usize> {
        let (mut taken, mut lost, mut told) = (0, false, Vec::new());
        while let Some(notice) = self.queue.take_one(Some(Duration::ZERO))? {
            taken += 1;
            match notice {
                Notice::Overflow => lost = FAULT != IGNORES_OVERFLOW,
                Notice::Event { fd, band } => {
                    let token = self.numbers.get(&fd).copied();
                    if let Some(token) = token.filter(|_| FAULT == TRUSTS_THE_NUMBER) {
                        self.book.learn(token, (band as u16).into());
                    }
                    told.extend(token);
                }
            }
        }
        self.ask(|token| lost || told.contains(&token))?;
        Ok(taken)
    }

    /// Sleeps until a signal is queued or a silent member is ready.
    fn sleep(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mut fds = vec![asked(self.queue.poll_fd(), IN)];
        let silent = self.numbers.iter().filter(|(_, token)| self.silent.contains(token));
        fds.extend(silent.map(|(&fd, _)| asked(fd, IN)));
        Fake::poll(&mut fds, timeout).map(drop)
    }

    /// Returns the silent members that wait for something.
    fn silent_waiting(&mut self) -> Vec<Token> {
        let waits = |token: &Token| {
            self.book.at(*token).is_some_and(|member| member.interest != Interest::Nothing)
        };
        self.silent.clone().into_iter().filter(waits).collect()
    }
}

fn asked(fd: RawFd, events: u32) -> PollFd {
    PollFd { fd, events: events as i16, revents: 0 }
}

impl<const FAULT: u8> Mechanism for SignalReference<FAULT> {
    fn open(_: &Settings) -> io::Result<Self> {
        Ok(Self {
            queue: SignalQueue::open(None)?,
            book: Book::default(),
            numbers: BTreeMap::new(),
            doubtful: Vec::new(),
            silent: Vec::new(),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        if !self.queue.arm(fd)? {
            self.silent.push(token);
        }
        self.numbers.insert(fd.as_raw_fd(), token);
        self.book.add(token, interest);
        if FAULT != PRESUMES_NO_ROOM {
            self.book.learn(token, OUT);
        }
        if FAULT != ASKS_NOT_AFTER_ARMING {
            self.doubtful.push(token);
        }
        Ok(())
    }

    fn change(&mut self, _: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.book.change(token, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.numbers.remove(&fd.as_raw_fd());
        self.silent.retain(|other| *other != token);
        self.book.remove(token);
        Ok(())
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.book.blocked(token, direction);
        if FAULT != TRUSTS_A_SHORT_READ {
            self.doubtful.push(token);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let mut doubtful = std::mem::take(&mut self.doubtful);
        let waiting = self.silent_waiting();
        let silent = std::mem::replace(&mut self.silent, waiting);
        doubtful.extend(&self.silent);
        self.ask(|token| doubtful.contains(&token))?;
        let hurry = self.book.any_ready();
        self.sleep(if hurry { Some(Duration::ZERO) } else { timeout })?;
        let taken = self.take()?;
        self.ask(|token| silent.contains(&token))?;
        self.silent = silent;
        self.book.report(ready);
        Ok(taken)
    }
}
