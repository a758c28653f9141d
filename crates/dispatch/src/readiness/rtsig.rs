//! `rtsig`: POSIX real-time signals, taken one per call (chandra-dispatch §2.2). Each descriptor is
//! armed once, with three calls, and each of its events queues a signal that carries its number.
//! [`super::signalled`] describes the processing of signals and the recovery from a queue overflow.
//!
//! The paper's server sleeps in sigwaitinfo. This one does so while all its members can signal,
//! which the loop's bell, an eventfd, cannot. With such members it calls sigtimedwait without
//! waiting; only if no signal is queued it sleeps in ppoll, on the queue and on them, and tries
//! again: two more calls for a wait that sleeps, none for one that does not.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::kernel::{Kernel, Linux, SignalQueue};
use super::settings::{Settings, Tunable};
use super::signalled::{FALLBACK, ONE_PER_WAIT, PENDING, Signalled};
use super::{Counts, Interest, Mechanism, Token};

/// The members; the kernel keeps the queue.
pub struct Rtsig<K: Kernel = Linux>(Signalled<K>);

impl<K: Kernel> Mechanism for Rtsig<K> {
    const TUNABLES: &'static [Tunable] = &[PENDING, FALLBACK, ONE_PER_WAIT];

    fn open(settings: &Settings) -> io::Result<Self> {
        Signalled::open(settings).map(Self)
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.0.add(fd, token, interest)
    }

    fn change(&mut self, _: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.0.change(token, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.0.remove(fd, token)
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.0.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        self.0.wait(timeout, ready, |members, timeout, ready| {
            let notice = members.queue.take_one(timeout)?;
            members.count_take(usize::from(notice.is_some()));
            match notice {
                Some(notice) => members.handle_notice(notice, ready),
                None => members.emptied(),
            }
            Ok(usize::from(notice.is_some()))
        })
    }

    fn accepts_all(&self) -> bool {
        self.0.is_falling_back()
    }

    fn counts(&self) -> Counts {
        self.0.counts
    }
}
