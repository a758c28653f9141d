//! `epoll-ctlv`: `epoll-lt` with batched changes. A change of interest is only noted, and all
//! changes noted in an iteration of the loop are submitted in one call when the next wait begins;
//! the wait follows. The paper's array-based call was never in Linux; in its place is a batch of
//! epoll_ctl entries of io_uring. Deletions stay apart, as in the paper: a descriptor is taken out
//! by an epoll_ctl of its own just before it is closed, because by the time of the batch it is
//! closed. The paper's other way, to leave that to the close, is a setting.
//!
//! The invariant: for each member `inside` is the kernel's interest and `wanted` the intended one,
//! and a slot where they differ is in `dirty`. A descriptor may be closed, and its number reused,
//! between the note and the call: `remove` discards the note, and it or the close removed the old
//! descriptor from the set, so that a new one begins with nothing in the kernel.
//!
//! A change refused by the kernel is not lost, though `add` has long returned: it stays noted, and
//! the wait is short, so that it is soon submitted again. Meanwhile the member is reported, whether
//! ready or not: the caller's own attempt shows which.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::epoll::Event;
use weir_sys::ring::{Change, Ctl};

use super::deletions::{self, Deletions};
use super::epoll_lt::{EVENTS_MAX, flags};
use super::kernel::{CtlBatch, EpollSet, Kernel, Linux};
use super::settings::{Settings, Tunable};
use super::{Counts, Interest, Mechanism, PerSlot, Token};

/// Maximum number of changes per call; more changes take more calls.
const ENTRIES: u32 = 1024;

const DELETE: Tunable = Tunable { default: 1, ..deletions::DELETE };

/// Maximum sleep of a wait while a refused change is pending.
const RETRY: Duration = Duration::from_millis(10);

/// The interest set, kept by the kernel, and the changes not yet submitted.
pub struct EpollCtlv<K: Kernel = Linux> {
    epoll: K::Epoll,
    batch: K::Batch,
    events: Vec<Event>,
    members: PerSlot<Member>,
    /// Slots with a pending change, without duplicates.
    dirty: Vec<u32>,
    changes: Vec<Ctl>,
    results: Vec<i32>,
    deletions: Deletions,
    batched: u64,
}

#[derive(Clone, Copy, Default)]
struct Member {
    token: Token,
    fd: RawFd,
    /// Interest registered in the kernel; `Nothing` when the descriptor is not in its set.
    inside: Interest,
    wanted: Interest,
    listens: bool,
    /// True if the slot is in `dirty`, whatever its tenant.
    is_dirty: bool,
}

impl Member {
    /// Returns the call that brings the kernel to the wanted interest; `None` if it is there
    /// already.
    fn change(&self) -> Option<Ctl> {
        let change = match (self.inside, self.wanted) {
            (inside, wanted) if inside == wanted => return None,
            (Interest::Nothing, _) => Change::Add,
            (_, Interest::Nothing) => Change::Delete,
            _ => Change::Modify,
        };
        Some(Ctl { change, fd: self.fd, data: self.token.pack(), flags: flags(self.wanted) })
    }

    /// Records the result of a change; returns whether the kernel has the wanted interest.
    fn learn(&mut self, change: Change, result: i32) -> bool {
        let kind = (result != 0).then(|| io::Error::from_raw_os_error(-result).kind());
        self.inside = match (change, kind) {
            (_, None) => self.wanted,
            (Change::Delete, Some(io::ErrorKind::NotFound)) => Interest::Nothing,
            // The kernel has it, or has it not, contrary to the record here: the other call next.
            (Change::Add, Some(io::ErrorKind::AlreadyExists)) => other_than(self.wanted),
            (Change::Modify, Some(io::ErrorKind::NotFound)) => Interest::Nothing,
            (_, Some(_)) => self.inside,
        };
        self.inside == self.wanted
    }
}

fn other_than(interest: Interest) -> Interest {
    if interest == Interest::Write { Interest::Read } else { Interest::Write }
}

impl<K: Kernel> EpollCtlv<K> {
    fn note(&mut self, slot: u32) {
        let member = self.members.at(slot);
        if member.inside != member.wanted && !std::mem::replace(&mut member.is_dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// Submits pending changes, and reports the members whose changes were refused. Returns whether
    /// there are any.
    fn hand_over(&mut self, ready: &mut Vec<Token>) -> io::Result<bool> {
        let members = &mut self.members;
        self.dirty.retain(|&slot| {
            let member = members.at(slot);
            member.is_dirty = member.inside != member.wanted;
            member.is_dirty
        });
        if self.dirty.is_empty() {
            return Ok(false);
        }
        self.changes.clear();
        self.changes.extend(self.dirty.iter().filter_map(|&slot| members.at(slot).change()));
        self.results.clear();
        self.batch.apply(&self.epoll, &self.changes, &mut self.results)?;
        self.batched += self.changes.len() as u64;
        Ok(self.learn(ready))
    }

    fn learn(&mut self, ready: &mut Vec<Token>) -> bool {
        let mut outcomes = self.changes.iter().zip(&self.results);
        let members = &mut self.members;
        self.dirty.retain(|&slot| {
            let member = members.at(slot);
            let outcome = outcomes.next();
            let made = outcome.is_some_and(|(ctl, &result)| member.learn(ctl.change, result));
            member.is_dirty = !made;
            if !made && member.wanted != Interest::Nothing {
                ready.push(member.token);
            }
            !made
        });
        !self.dirty.is_empty()
    }
}

impl<K: Kernel> Mechanism for EpollCtlv<K> {
    const TUNABLES: &'static [Tunable] = &[DELETE];

    fn open(settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            epoll: K::Epoll::open()?,
            batch: K::Batch::open(ENTRIES)?,
            events: Vec::with_capacity(EVENTS_MAX),
            members: PerSlot::default(),
            dirty: Vec::new(),
            changes: Vec::new(),
            results: Vec::new(),
            deletions: Deletions::new(settings, &DELETE),
            batched: 0,
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let listens = interest == Interest::Accept;
        let member = self.members.at(token.slot);
        let is_dirty = member.is_dirty;
        *member = Member { token, listens, is_dirty, ..Member::default() };
        self.change(fd, token, interest)
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let member = self.members.at(token.slot);
        member.fd = fd.as_raw_fd();
        member.wanted = interest;
        self.note(token.slot);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let member = self.members.at(token.slot);
        let Member { inside, listens, is_dirty, .. } = *member;
        *member = Member { is_dirty, ..Member::default() };
        if inside == Interest::Nothing {
            return Ok(());
        }
        self.deletions.remove(&self.epoll, fd, listens)
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let before = ready.len();
        let refused = self.hand_over(ready)?;
        let soon = Some(timeout.map_or(RETRY, |timeout| timeout.min(RETRY)));
        let timeout = if refused { soon } else { timeout };
        self.epoll.wait(&mut self.events, timeout)?;
        let told = self.events.iter().map(|event| Token::unpack(event.data.u64()));
        if refused {
            let known = ready[before..].to_vec();
            ready.extend(told.filter(|token| !known.contains(token)));
        } else {
            ready.extend(told);
        }
        Ok(self.events.len())
    }

    fn counts(&self) -> Counts {
        Counts { batched: self.batched, ..self.deletions.counts() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::tests::{NOW, open, ready};
    use super::*;

    const OLD: Token = Token { slot: 3, generation: 1 };
    const NEW: Token = Token { slot: 3, generation: 2 };

    #[test]
    fn changes_there_and_back_between_two_waits_cost_nothing() {
        let Some(mut m) = open::<EpollCtlv>() else { return };
        let (near, _far) = UnixStream::pair().unwrap();
        m.add(near.as_fd(), OLD, Interest::Read).unwrap();
        ready(&mut m, NOW);
        for interest in [Interest::Write, Interest::Nothing, Interest::Read] {
            m.change(near.as_fd(), OLD, interest).unwrap();
        }
        assert_eq!(ready(&mut m, NOW), []);
        assert_eq!(m.counts().batched, 1);
    }

    #[test]
    fn a_change_for_a_closed_descriptor_is_dropped_and_its_number_is_free() {
        let Some(mut m) = open::<EpollCtlv>() else { return };
        let (near, _far) = UnixStream::pair().unwrap();
        m.add(near.as_fd(), OLD, Interest::Write).unwrap();
        m.remove(near.as_fd(), OLD).unwrap();
        assert_eq!(ready(&mut m, NOW), []);
        assert_eq!(m.counts().batched, 0);
        m.add(near.as_fd(), NEW, Interest::Read).unwrap();
        ready(&mut m, NOW);
        m.change(near.as_fd(), NEW, Interest::Write).unwrap();
        m.remove(near.as_fd(), NEW).unwrap();
        drop(near);
        let (other, mut far) = UnixStream::pair().unwrap();
        m.add(other.as_fd(), OLD, Interest::Read).unwrap();
        far.write_all(b"x").unwrap();
        assert_eq!(ready(&mut m, None), [OLD]);
        assert_eq!(m.counts().batched, 2);
    }

    #[test]
    fn a_member_that_the_kernel_refuses_is_reported_and_handed_over_again() {
        let Some(mut m) = open::<EpollCtlv>() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        // An ordinary file cannot be polled: EPERM.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        m.add(file.as_fd(), OLD, Interest::Read).unwrap();
        let other = Token { slot: 4, generation: 1 };
        m.add(near.as_fd(), other, Interest::Read).unwrap();
        assert_eq!(ready(&mut m, None), [OLD]);
        far.write_all(b"x").unwrap();
        assert_eq!(ready(&mut m, None), [OLD, other]);
        assert_eq!(m.counts().batched, 3);
        m.remove(file.as_fd(), OLD).unwrap();
        assert_eq!(ready(&mut m, None), [other]);
    }

    #[test]
    fn a_member_of_which_more_or_less_is_known_than_is_so_comes_right() {
        let Some(mut m) = open::<EpollCtlv>() else { return };
        let (near, _far) = UnixStream::pair().unwrap();
        m.add(near.as_fd(), OLD, Interest::Write).unwrap();
        m.epoll.add(near.as_fd(), OLD.pack(), flags(Interest::Read)).unwrap();
        assert_eq!(ready(&mut m, None), [OLD], "refused: it is there");
        assert_eq!(ready(&mut m, None), [OLD]);
        assert_eq!(ready(&mut m, None), [OLD]);
        assert_eq!(m.counts().batched, 2);
        m.epoll.delete(near.as_fd()).unwrap();
        m.change(near.as_fd(), OLD, Interest::Read).unwrap();
        assert_eq!(ready(&mut m, None), [OLD], "refused: it is not there");
        assert_eq!(ready(&mut m, NOW), []);
        assert_eq!(m.counts().batched, 4);
    }
}
