//! Polls armed in the kernel for ring-based mechanisms: at most one poll per member is in force,
//! and completions of any other are stale. The meaning of a poll's result is left to the mechanism.
//!
//! The invariants:
//!
//! * a poll is armed when the next wait begins and not before, in the same call as the wait. Until
//!   then it is a slot in a list, so that a descriptor closed before it was armed is never looked
//!   up;
//! * each arming of a slot has a number of its own, which is passed to the kernel with the slot and
//!   returned. A disarmed poll completes later, perhaps with a real result, but its number is no
//!   longer the slot's;
//! * a poll that has ended by itself is armed again at the next wait, if the member still waits for
//!   something: the new poll starts with anything already ready.
//!
//! An armed poll holds its file open, so `remove` disarms it, with the next wait or at once. Until
//! then a close releases nothing: the peer sees it that much later, and a listening socket
//! continues to take connections.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use weir_sys::ring::Completion;

use super::kernel::PollRing;
use super::{Counts, PerSlot, Token};

/// Maximum number of polls submitted in one call.
const ENTRIES: u32 = 1024;

/// The members, and the poll in force for each.
pub(super) struct ArmedPolls<R> {
    pub(super) ring: R,
    members: PerSlot<Member>,
    /// Slots whose poll is to be armed, without duplicates.
    unarmed: Vec<u32>,
    completions: Vec<Completion>,
    pub(super) counts: Counts,
}

/// Events that a poll is armed for.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PollRequest {
    /// Poll(2) bits; 0 means no poll.
    pub poll: u32,
    /// True for a multishot poll, which repeats until it ends.
    pub many: bool,
}

#[derive(Clone, Copy, Default)]
struct Member {
    occupant: Occupant,
    /// Number of the last poll armed for this slot; it outlives the occupant.
    arming: u32,
    /// True if that poll is in force.
    is_armed: bool,
    /// True if the slot is in `unarmed`.
    is_listed: bool,
}

#[derive(Clone, Copy, Default)]
struct Occupant {
    token: Token,
    fd: RawFd,
    request: PollRequest,
    /// True if a poll of this occupant has ended by itself since one was last armed.
    was_spent: bool,
}

impl Member {
    fn data(&self) -> u64 {
        Token { slot: self.occupant.token.slot, generation: self.arming }.pack()
    }
}

impl<R: PollRing> ArmedPolls<R> {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            ring: R::open(ENTRIES)?,
            members: PerSlot::default(),
            unarmed: Vec::new(),
            completions: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Adds a member, or changes the request of one.
    pub(super) fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        token: Token,
        request: PollRequest,
    ) -> io::Result<()> {
        let member = self.members.at(token.slot);
        if member.occupant.token != token {
            member.occupant = Occupant { token, ..Occupant::default() };
        }
        member.occupant.fd = fd.as_raw_fd();
        self.change_request(token.slot, request)
    }

    /// Ends the poll of a member: with the next wait, or at once.
    pub(super) fn remove(&mut self, token: Token, at_once: bool) -> io::Result<()> {
        let member = self.members.at(token.slot);
        let data = member.data();
        member.occupant = Occupant::default();
        if !std::mem::take(&mut member.is_armed) {
            return Ok(());
        }
        self.ring.disarm(data)?;
        if at_once { self.ring.submit() } else { Ok(()) }
    }

    /// Arms pending polls, waits, and calls `handle` for each event of a poll in force, with the
    /// member's token, the poll(2) bits or a negative errno, and its request. `handle` returns
    /// whether the event was relevant, and the request from now on. Returns the number of events
    /// that were relevant.
    ///
    /// An event that is irrelevant, such as the end of a disarmed poll, wakes the kernel's wait,
    /// but does not end this one.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        mut handle: impl FnMut(Token, i32, PollRequest) -> (bool, PollRequest),
    ) -> io::Result<usize> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        loop {
            self.arm_all()?;
            self.completions.clear();
            self.ring.wait(&mut self.completions, left)?;
            let relevant = self.handle_completions(&mut handle)?;
            if relevant > 0 || self.completions.is_empty() || left == Some(Duration::ZERO) {
                return Ok(relevant);
            }
            left = until.map(|until| until.saturating_duration_since(Instant::now()));
        }
    }

    fn arm_all(&mut self) -> io::Result<()> {
        for index in 0..self.unarmed.len() {
            if let Err(error) = self.arm(self.unarmed[index]) {
                self.unarmed.drain(..index);
                return Err(error);
            }
        }
        self.unarmed.clear();
        Ok(())
    }

    fn arm(&mut self, slot: u32) -> io::Result<()> {
        let member = self.members.at(slot);
        let Occupant { fd, request, was_spent, .. } = member.occupant;
        if request.poll != 0 && !member.is_armed {
            member.arming = member.arming.wrapping_add(1);
            self.ring.arm(fd, member.data(), request.poll, request.many)?;
            member.is_armed = true;
            member.occupant.was_spent = false;
            self.counts.rearmed += u64::from(was_spent);
        }
        member.is_listed = false;
        Ok(())
    }

    fn handle_completions(
        &mut self,
        handle: &mut impl FnMut(Token, i32, PollRequest) -> (bool, PollRequest),
    ) -> io::Result<usize> {
        let mut relevant = 0;
        let mut outcome = Ok(());
        for index in 0..self.completions.len() {
            let Completion { data, result, more } = self.completions[index];
            let Token { slot, generation: arming } = Token::unpack(data);
            let member = self.members.at(slot);
            if !member.is_armed || member.arming != arming {
                continue;
            }
            if !more {
                member.is_armed = false;
                member.occupant.was_spent = true;
            }
            let (is_relevant, request) =
                handle(member.occupant.token, result, member.occupant.request);
            relevant += usize::from(is_relevant);
            if !more {
                self.list(slot);
            }
            outcome = outcome.and(self.change_request(slot, request));
        }
        self.counts.notices += self.completions.len() as u64;
        self.counts.stale += (self.completions.len() - relevant) as u64;
        outcome.map(|()| relevant)
    }

    /// Changes a member's request; disarms the poll in force if the request differs.
    fn change_request(&mut self, slot: u32, request: PollRequest) -> io::Result<()> {
        let member = self.members.at(slot);
        if std::mem::replace(&mut member.occupant.request, request) == request {
            return Ok(());
        }
        let (data, was_armed) = (member.data(), std::mem::take(&mut member.is_armed));
        self.list(slot);
        if was_armed { self.ring.disarm(data) } else { Ok(()) }
    }

    fn list(&mut self, slot: u32) {
        let member = self.members.at(slot);
        if !std::mem::replace(&mut member.is_listed, true) {
            self.unarmed.push(slot);
        }
    }
}
