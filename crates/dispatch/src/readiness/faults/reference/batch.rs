//! Level-triggered epoll whose changes are submitted together before a wait.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::epoll::{Event, EventFlags};
use weir_sys::ring::{Change, Ctl};

use super::super::super::fake::Fake;
use super::super::super::kernel::{CtlBatch, EpollSet, Kernel};
use super::super::super::settings::Settings;
use super::super::super::{Interest, Mechanism, Token};

// Faults that can be built in.
pub(in super::super) const NONE: u8 = 0;
pub(in super::super) const IGNORES_A_FAILURE: u8 = 1;

pub(in super::super) struct BatchReference<const FAULT: u8> {
    epoll: <Fake as Kernel>::Epoll,
    batch: <Fake as Kernel>::Batch,
    events: Vec<Event>,
    members: BTreeMap<RawFd, Member>,
}

/// Actual and wanted registration of a descriptor in the kernel.
struct Member {
    token: Token,
    actual: Option<EventFlags>,
    wanted: Option<EventFlags>,
}

fn flags(interest: Interest) -> Option<EventFlags> {
    let bit = EventFlags::from_bits_retain(super::bit(interest));
    (interest != Interest::Nothing).then_some(bit)
}

impl Member {
    fn ctl(&self, fd: RawFd) -> Option<Ctl> {
        let change = match (self.actual, self.wanted) {
            (None, None) => return None,
            (None, Some(_)) => Change::Add,
            (Some(_), None) => Change::Delete,
            (Some(actual), Some(wanted)) if actual == wanted => return None,
            (Some(_), Some(_)) => Change::Modify,
        };
        let flags = self.wanted.unwrap_or(EventFlags::empty());
        Some(Ctl { change, fd, data: self.token.pack(), flags })
    }
}

impl<const FAULT: u8> BatchReference<FAULT> {
    /// Applies pending changes; returns whether all succeeded.
    fn apply(&mut self) -> io::Result<bool> {
        let changes: Vec<_> =
            self.members.iter().filter_map(|(&fd, member)| member.ctl(fd)).collect();
        let mut results = Vec::new();
        self.batch.apply(&self.epoll, &changes, &mut results)?;
        let mut all = true;
        for (ctl, result) in changes.iter().zip(&results) {
            let succeeded = *result == 0 || FAULT == IGNORES_A_FAILURE;
            all &= succeeded;
            if let Some(member) = self.members.get_mut(&ctl.fd).filter(|_| succeeded) {
                member.actual = member.wanted;
            }
        }
        Ok(all)
    }
}

impl<const FAULT: u8> Mechanism for BatchReference<FAULT> {
    fn open(_: &Settings) -> io::Result<Self> {
        Ok(Self {
            epoll: EpollSet::open()?,
            batch: CtlBatch::open(64)?,
            events: Vec::with_capacity(16),
            members: BTreeMap::new(),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let member = Member { token, actual: None, wanted: flags(interest) };
        self.members.insert(fd.as_raw_fd(), member);
        Ok(())
    }

    fn change(&mut self, fd: BorrowedFd<'_>, _: Token, interest: Interest) -> io::Result<()> {
        if let Some(member) = self.members.get_mut(&fd.as_raw_fd()) {
            member.wanted = flags(interest);
        }
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, _: Token) -> io::Result<()> {
        let member = self.members.remove(&fd.as_raw_fd());
        let inside = member.is_some_and(|member| member.actual.is_some());
        if inside { self.epoll.delete(fd) } else { Ok(()) }
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let timeout = if self.apply()? { timeout } else { Some(Duration::ZERO) };
        self.epoll.wait(&mut self.events, timeout)?;
        ready.extend(self.events.iter().map(|event| Token::unpack({ event.data }.u64())));
        Ok(self.events.len())
    }
}
