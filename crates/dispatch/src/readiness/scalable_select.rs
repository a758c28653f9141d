//! `scalable-select`: select(2) over sets that outlive the call, so that only members that may have
//! changed are checked (banga-scalable §4.1; [`crate::scalable_select`] has the sets and their
//! proof).
//!
//! The selected sets are kept here too, and every change to them is known, so a wait visits only
//! the words with a member to check or to report. A member is registered for hints when it is
//! added; its close removes it, except for a listening socket, which may stay open elsewhere.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use super::kernel::{Kernel, Linux};
use super::settings::Settings;
use super::{Counts, Interest, Mechanism, PerSlot, Token};
use crate::scalable_select::{Sets, State, Sweep, descriptors, place};

/// The interest set as three bitmaps over descriptor numbers, and the known state of each member.
pub struct ScalableSelectSet<K: Kernel = Linux> {
    state: State<K>,
    selecting: Vec<Sets>,
    tokens: Vec<Token>,
    listens: PerSlot<bool>,
}

impl<K: Kernel> ScalableSelectSet<K> {
    fn set(&mut self, fd: RawFd, interest: Interest) {
        let (index, bit) = place(fd);
        let Some([read, write, _]) = self.selecting.get_mut(index) else { return };
        (*read, *write) = (*read & !bit, *write & !bit);
        match interest {
            Interest::Read | Interest::Accept => *read |= bit,
            Interest::Write => *write |= bit,
            Interest::Either => (*read, *write) = (*read | bit, *write | bit),
            Interest::Nothing => {}
        }
        self.state.suspect(index);
    }
}

impl<K: Kernel> Mechanism for ScalableSelectSet<K> {
    fn open(_: &Settings) -> io::Result<Self> {
        Ok(Self {
            // The loop reports every close.
            state: State::open(Sweep::new(None))?,
            selecting: Vec::new(),
            tokens: Vec::new(),
            listens: PerSlot::default(),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let number = fd.as_raw_fd();
        let (index, _) = place(number);
        if index >= self.selecting.len() {
            self.selecting.resize(index + 1, Sets::default());
        }
        self.state.register(fd, number)?;
        if number as usize >= self.tokens.len() {
            self.tokens.resize(number as usize + 1, Token::default());
        }
        self.tokens[number as usize] = token;
        *self.listens.at(token.slot) = interest == Interest::Accept;
        self.set(number, interest);
        Ok(())
    }

    fn change(&mut self, fd: BorrowedFd<'_>, _: Token, interest: Interest) -> io::Result<()> {
        self.set(fd.as_raw_fd(), interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.set(fd.as_raw_fd(), Interest::Nothing);
        self.state.forget(fd.as_raw_fd());
        let listens = std::mem::take(self.listens.at(token.slot));
        if listens { self.state.delete(fd) } else { Ok(()) }
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        self.state.select(&self.selecting, timeout)?;
        let before = ready.len();
        for (index, [read, write, _]) in self.state.found(&self.selecting) {
            ready.extend(descriptors(index, read | write).map(|fd| self.tokens[fd as usize]));
        }
        Ok(ready.len() - before)
    }

    fn counts(&self) -> Counts {
        Counts {
            notices: self.state.hinted,
            stale: self.state.stale(),
            checked: self.state.checked,
            ..Counts::default()
        }
    }
}
