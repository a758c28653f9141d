//! `rtsig-bulk`: POSIX real-time signals, many taken per call, as with sigtimedwait4, described in
//! chandra-dispatch §2.3. That call was never in Linux; one read of a signalfd takes its place.
//! [`super::signalled`] describes the processing of signals.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weir_sys::rtsig::Notice;

use super::kernel::{Kernel, Linux, SignalQueue};
use super::settings::{Settings, Tunable};
use super::signalled::{FALLBACK, PENDING, Signalled};
use super::{Counts, Interest, Mechanism, Token};

/// The members, and the result of the last read; the kernel keeps the queue.
pub struct RtsigBulk<K: Kernel = Linux> {
    members: Signalled<K>,
    notices: Vec<Notice>,
}

impl<K: Kernel> Mechanism for RtsigBulk<K> {
    const TUNABLES: &'static [Tunable] = &[PENDING, FALLBACK];

    fn open(settings: &Settings) -> io::Result<Self> {
        Ok(Self { members: Signalled::open(settings)?, notices: Vec::new() })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.members.add(fd, token, interest)
    }

    fn change(&mut self, _: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.members.change(token, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.members.remove(fd, token)
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.members.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let notices = &mut self.notices;
        self.members.wait(timeout, ready, |members, timeout, ready| {
            notices.clear();
            members.queue.take_many(notices, timeout)?;
            for &notice in notices.iter() {
                members.handle_notice(notice, ready);
            }
            members.count_take(notices.len());
            members.count_taken(notices.len());
            Ok(notices.len())
        })
    }

    fn accepts_all(&self) -> bool {
        self.members.is_falling_back()
    }

    fn counts(&self) -> Counts {
        self.members.counts
    }
}
