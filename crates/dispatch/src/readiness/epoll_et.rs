//! `epoll-et`: edge-triggered epoll. A descriptor is registered once, for everything. The kernel
//! reports only changes, so the state of each socket is kept here ([`super::edges`] has the
//! invariant). Adding a descriptor announces existing readiness.
//!
//! A listening socket is the exception: it is registered level-triggered, because an edge would
//! have to be exhausted by a failing accept, which costs the kernel nearly as much as one that
//! succeeds (it makes the socket first).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weir_sys::epoll::{Event, EventFlags};

use super::deletions::{DELETE, Deletions};
use super::edges::{Edges, Seen};
use super::epoll_lt::EVENTS_MAX;
use super::kernel::{EpollSet, Kernel, Linux};
use super::settings::{Settings, Tunable};
use super::{Counts, Interest, Mechanism, Token};

/// The interest set, kept by the kernel, and the readiness of each member, kept here.
pub struct EpollEt<K: Kernel = Linux> {
    pub(super) epoll: K::Epoll,
    events: Vec<Event>,
    pub(super) edges: Edges,
    deletions: Deletions,
}

pub(super) fn seen(flags: EventFlags) -> Seen {
    Seen {
        read: flags.contains(EventFlags::IN),
        write: flags.contains(EventFlags::OUT),
        end: flags.contains(EventFlags::RDHUP),
        trouble: flags.intersects(EventFlags::ERR | EventFlags::HUP),
    }
}

impl<K: Kernel> Mechanism for EpollEt<K> {
    const TUNABLES: &'static [Tunable] = &[DELETE];

    fn open(settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            epoll: K::Epoll::open()?,
            events: Vec::with_capacity(EVENTS_MAX),
            edges: Edges::default(),
            deletions: Deletions::new(settings, &DELETE),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let level = interest == Interest::Accept;
        let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let flags = if level { EventFlags::IN } else { edges };
        self.epoll.add(fd, token.pack(), flags)?;
        self.edges.add(token, interest, level);
        Ok(())
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        if self.edges.is_level(token.slot) {
            let wanted = interest == Interest::Accept;
            let flags = if wanted { EventFlags::IN } else { EventFlags::empty() };
            return self.epoll.modify(fd, token.pack(), flags);
        }
        self.edges.change(token, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let level = self.edges.is_level(token.slot);
        self.edges.remove(token);
        self.deletions.remove(&self.epoll, fd, level)
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.edges.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let known = self.edges.report_known(ready);
        let timeout = if known { Some(Duration::ZERO) } else { timeout };
        self.epoll.wait(&mut self.events, timeout)?;
        for index in 0..self.events.len() {
            let Event { data, flags } = self.events[index];
            self.edges.learn(Token::unpack(data.u64()), seen(flags), ready);
        }
        Ok(self.events.len())
    }

    fn has_reported_all(&self) -> bool {
        self.events.len() < EVENTS_MAX
    }

    fn counts(&self) -> Counts {
        self.deletions.counts()
    }
}
