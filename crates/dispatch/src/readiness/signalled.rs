//! What the mechanisms made of real-time signals share: who has which descriptor's number, what is
//! sure about each member, and the poll that asks about those of whom it is not. How signals are
//! taken, one by one or many, is the mechanism's; nothing here takes any but after an overflow.
//!
//! A signal is queued for each event of a descriptor that was armed before it. The state of each
//! socket is kept in [`super::edges`], whose invariant demands that what is not known will still be
//! announced. It holds because every member of which this is not certain is *unsure*, and an unsure
//! member that is not known to be ready is asked about before the wait sleeps, all of them with one
//! poll. (When it waits for nothing it is asked once it waits again.) Unsure are:
//!
//! * one just armed: what came before was not signalled. The poll sees it, and what comes after the
//!   poll is signalled, but for room to write: a socket tells of that only after a write that fell
//!   short while signals were on (for a Unix socket the poll that finds it full is not enough). So
//!   each is presumed to have room until a try says otherwise, which makes the socket tell;
//! * one whose last read fell short after more than one notice of reading since the one before it.
//!   The peer's end is a notice like any other. Signals come in order, so that of the bytes comes
//!   before that of the end: after one notice alone, that of the end is still queued and will be
//!   taken in later. After two the end may have been taken in already, and a short read would hide
//!   it for ever. A poll that finds bytes counts as a notice; one that finds the end tells it;
//! * one whose number had another tenant since the queue was last seen empty: the signal may be the
//!   other's. Before that signal is acted on the socket is asked;
//! * one said to be in trouble, which makes it ready for good and is worth a question;
//! * all of them after the queue has overflowed. What is queued then is old news and discarded, and
//!   the poll comes after that. Whatever was lost was lost before the overflow was told, hence
//!   before the poll; when more is lost meanwhile, another SIGIO is pending and tells so again.
//!
//! Listening sockets are level-triggered: one that was reported is unsure, and asked about at the
//! next wait unless an accept failed. A descriptor that cannot signal (the bell, a listening socket
//! whose signals another loop has) is asked with every poll, at every 16th wait, and whenever there
//! would be nothing to report: the wait then sleeps in poll, on the queue and on those.

mod ask;
mod member;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::poll::{POLLERR, POLLHUP, POLLIN, POLLOUT, PollFd};
use weir_sys::rtsig::Notice;

use self::member::Member;
use super::edges::{Edges, Seen};
use super::kernel::{Kernel, SignalQueue};
use super::settings::{Knob, Settings};
use super::{Counts, Interest, PerSlot, Token};

/// What can be set about each of these mechanisms.
pub(super) const KNOBS: &[Knob] = &[PENDING];

const PENDING: Knob = Knob {
    name: "pending-signals",
    help: "how many signals may be queued, for all processes of the user (RLIMIT_SIGPENDING); 0 \
           leaves the limit as it is",
    default: 0,
    min: 0,
    max: 1 << 22,
};

/// Waits between two looks at those who cannot signal, while others keep the loop busy.
const LOOK_EVERY: u64 = 16;

const TROUBLE: i16 = POLLERR | POLLHUP;

/// Without waiting.
pub(super) const NOW: Option<Duration> = Some(Duration::ZERO);

/// The members, and what is known of them.
pub(super) struct Signalled<K: Kernel> {
    /// What the kernel has queued for this thread.
    pub(super) queue: K::Signals,
    /// What was counted.
    pub(super) counts: Counts,
    edges: Edges,
    members: PerSlot<Option<Member>>,
    numbers: PerSlot<Number>,
    /// Above the highest descriptor's number there was.
    numbers_end: u32,
    /// To be asked about: those unsure who wait for something and are not known to be ready, each
    /// once, and perhaps others.
    unsure: Vec<Token>,
    /// Those who cannot signal.
    mute: Vec<Token>,
    asked: Vec<PollFd>,
    asked_for: Vec<Token>,
    overflowed: bool,
    /// Waits so far, and how often the queue was seen empty.
    waits: u64,
    empties: u64,
}

/// Who has a descriptor's number, and whether signals of somebody before may be queued.
#[derive(Default)]
struct Number {
    slot: Option<u32>,
    left_at: Option<u64>,
}

/// A descriptor's event, or several taken together.
#[derive(Clone, Copy)]
pub(super) struct Heard {
    /// The descriptor's number.
    pub(super) fd: RawFd,
    /// The poll(2) bits.
    pub(super) band: i16,
    /// How many there were.
    pub(super) times: u8,
    /// It may be that of somebody who had the number before.
    pub(super) doubtful: bool,
}

impl<K: Kernel> Signalled<K> {
    pub(super) fn open(settings: &Settings) -> io::Result<Self> {
        let pending_max = settings.get(&PENDING);
        Ok(Self {
            queue: K::Signals::open((pending_max > 0).then_some(pending_max))?,
            counts: Counts::default(),
            edges: Edges::default(),
            members: PerSlot::default(),
            numbers: PerSlot::default(),
            numbers_end: 0,
            unsure: Vec::new(),
            mute: Vec::new(),
            asked: Vec::new(),
            asked_for: Vec::new(),
            overflowed: false,
            waits: 0,
            empties: 0,
        })
    }

    pub(super) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        let listens = interest == Interest::Accept;
        let armed = if listens { self.queue.arm_shared(fd)? } else { self.queue.arm(fd)? };
        let number = fd.as_raw_fd() as u32;
        self.numbers.at(number).slot = Some(token.slot);
        self.numbers_end = self.numbers_end.max(number + 1);
        *self.members.at(token.slot) = Some(Member {
            token,
            fd: fd.as_raw_fd(),
            interest,
            level: listens || !armed,
            mute: !armed,
            unsure: armed,
            listed: false,
            heard: 0,
            doubted: 0,
            reported_at: 0,
        });
        self.edges.add(token, interest, false);
        if armed && !listens {
            self.edges.presume_room(token);
        }
        if armed {
            self.list(token);
        } else {
            self.mute.push(token);
        }
        Ok(())
    }

    pub(super) fn change(&mut self, token: Token, interest: Interest) {
        let Some(member) = self.member(token) else { return };
        member.interest = interest;
        if !member.level {
            self.edges.change(token, interest);
        }
        self.list(token);
    }

    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let Some(member) = self.member(token) else { return Ok(()) };
        let (number, level, mute) = (member.fd as u32, member.level, member.mute);
        *self.members.at(token.slot) = None;
        *self.numbers.at(number) = Number { slot: None, left_at: Some(self.empties) };
        self.edges.remove(token);
        if mute {
            self.mute.retain(|other| *other != token);
        }
        // A close takes a connection out. A listening socket may have other descriptors.
        if level && !mute { self.queue.disarm(fd) } else { Ok(()) }
    }

    pub(super) fn blocked(&mut self, token: Token, direction: Interest) {
        let Some(member) = self.member(token) else { return };
        if member.level {
            // An accept that failed says all there is to know; so far.
            member.unsure = false;
            return;
        }
        if direction == Interest::Read {
            member.unsure |= member.heard > 1;
            member.heard = 0;
        }
        self.edges.blocked(token, direction);
        self.list(token);
    }

    /// One wait. `take` takes signals in, up to the timeout, and returns how many.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Token>,
        mut take: impl FnMut(&mut Self, Option<Duration>, &mut Vec<Token>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let before = ready.len();
        self.waits += 1;
        self.edges.report_known(ready);
        let mut reported = self.recover(ready)?;
        if !self.unsure.is_empty() || self.waits.is_multiple_of(LOOK_EVERY) {
            reported += self.check(true, ready)?;
        }
        let calm = ready.len() == before;
        // Those who cannot signal do not wake who sleeps on signals alone.
        let patience = if calm && self.mute.is_empty() { timeout } else { NOW };
        let taken = take(self, patience, ready)?;
        reported += taken;
        if calm && taken == 0 && !self.mute.is_empty() {
            let (signalled, found) = self.sleep(timeout, ready)?;
            reported += found;
            if signalled {
                reported += take(self, NOW, ready)?;
            }
        }
        reported += self.recover(ready)?;
        if !self.unsure.is_empty() {
            reported += self.check(false, ready)?;
        }
        Ok(reported)
    }

    /// Takes in what a signal told.
    pub(super) fn hear(&mut self, notice: Notice, ready: &mut Vec<Token>) {
        match notice {
            Notice::Overflow => self.overflow(),
            Notice::Event { fd, band } => {
                self.counts.notices += 1;
                let heard = Heard { fd, band, times: 1, doubtful: self.is_doubtful(fd) };
                self.act_on(heard, ready);
            }
        }
    }

    /// Hears that signals were lost.
    pub(super) fn overflow(&mut self) {
        self.counts.overflows += 1;
        self.overflowed = true;
    }

    /// Hears that nothing was queued at this moment.
    pub(super) fn emptied(&mut self) {
        self.empties += 1;
    }

    /// Hears how many notices a read brought.
    pub(super) fn took(&mut self, notices: usize) {
        if notices == 0 || notices < K::Signals::READ_MAX {
            self.emptied();
        }
    }

    /// Whether a signal taken now may be that of somebody who had the number before.
    pub(super) fn is_doubtful(&mut self, fd: RawFd) -> bool {
        u32::try_from(fd).is_ok_and(|fd| self.numbers.at(fd).left_at == Some(self.empties))
    }

    /// Believes an event, or has the member asked about.
    pub(super) fn act_on(&mut self, heard: Heard, ready: &mut Vec<Token>) {
        let Heard { fd, band, times, doubtful } = heard;
        let slot = u32::try_from(fd).ok().filter(|number| *number < self.numbers_end);
        let slot = slot.and_then(|number| self.numbers.at(number).slot);
        let Some(member) = slot.and_then(|slot| self.members.at(slot).as_mut()) else {
            self.counts.stale += 1;
            return;
        };
        let token = member.token;
        if band & POLLIN != 0 {
            member.heard = member.heard.saturating_add(times);
        }
        if doubtful || band & TROUBLE != 0 {
            member.unsure = true;
            member.doubted |= if doubtful { band } else { 0 };
            self.list(token);
        } else if member.level {
            self.report(token, ready);
        } else {
            let seen =
                Seen { read: band & POLLIN != 0, write: band & POLLOUT != 0, ..Seen::default() };
            self.edges.learn(token, seen, ready);
        }
    }

    fn member(&mut self, token: Token) -> Option<&mut Member> {
        self.members.at(token.slot).as_mut().filter(|member| member.token == token)
    }

    /// Puts a member that must be asked about where the next poll will find it.
    fn list(&mut self, token: Token) {
        let Some(member) = self.member(token) else { return };
        if member.unsure && !member.listed && member.waits() {
            member.listed = true;
            self.unsure.push(token);
        }
    }

    /// Reports a level-triggered member once a wait. It is asked about at the next.
    fn report(&mut self, token: Token, ready: &mut Vec<Token>) {
        let now = self.waits;
        let Some(member) = self.member(token) else { return };
        member.unsure |= !member.mute;
        if member.waits() && member.reported_at != now {
            member.reported_at = now;
            ready.push(token);
        }
        self.list(token);
    }
}
