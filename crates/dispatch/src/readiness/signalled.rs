//! Common part of the mechanisms based on real-time signals: the owner of each descriptor number,
//! the certainty about each member, and the poll that resolves doubts. Whether signals are taken
//! singly or in bulk is left to the mechanism; nothing here takes any except after an overflow.
//!
//! A signal is queued for each event of a descriptor that was armed before it. The state of each
//! socket is kept in [`super::edges`], whose invariant demands that unknown readiness will still be
//! announced. It holds because every member for which this is not certain is *unsure*, and all
//! unsure members that are not known to be ready are checked with one poll before the wait sleeps.
//! (A member that waits for nothing is checked once it waits again.) Unsure are:
//!
//! * a member just armed: earlier events were not signalled. The poll sees those, and events after
//!   the poll are signalled, except for space to write: a socket signals that only after a short
//!   write while signals were on (for a Unix socket the poll that finds it full is not enough). So
//!   each is presumed to have space until a try says otherwise, which makes the socket signal;
//! * a member whose last read fell short after more than one read notice since the previous short
//!   read. The peer's end is a notice like any other. Signals come in order, so that of the bytes
//!   precedes that of the end: after a single notice, that of the end is still queued and will be
//!   taken later. After two the end may have been taken already, and a short read would hide it for
//!   ever. A poll that finds bytes counts as a notice; one that finds the end reports it;
//! * a member whose number had another tenant since the queue was last seen empty: the signal may
//!   belong to that one. The socket is polled before the signal is acted on;
//! * a member signalled to have an error or a hang-up, which makes it permanently ready and is
//!   worth a poll;
//! * all members after the queue has overflowed. The queued signals are then outdated and
//!   discarded, and the poll follows. Any loss happened before the overflow was reported, hence
//!   before the poll; if more is lost meanwhile, another SIGIO is pending and reports it. By option
//!   select stands in for signals first: [`fallback`].
//!
//! Listening sockets are level-triggered: a reported one is unsure, and polled at the next wait
//! unless an accept failed. A descriptor that cannot signal (the bell, a listening socket whose
//! signals go to another loop) is included in the poll at the beginning of a wait, which is made at
//! least at every 16th wait, and is polled whenever there would be nothing to report: the wait then
//! sleeps in poll, on the queue and on those descriptors.

mod fallback;
mod member;
mod polling;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::poll::{POLLERR, POLLHUP, POLLIN, POLLOUT, PollFd};
use weir_sys::rtsig::Notice;

use self::member::Member;
use super::edges::{Edges, Seen};
use super::kernel::{Kernel, SignalQueue};
use super::select::Select;
use super::settings::{Settings, Tunable};
use super::{Counts, Interest, PerSlot, Token};

pub(super) const PENDING: Tunable = Tunable {
    name: "pending-signals",
    help: "maximum number of queued signals, for all processes of the user (RLIMIT_SIGPENDING); \
           0: the limit is unchanged",
    default: 0,
    min: 0,
    max: 1 << 22,
};

/// Setting of the mechanisms whose servers had something to fall back on.
pub(super) const FALLBACK: Tunable = Tunable {
    name: "fallback",
    help: "after an overflow, 0: all members are polled once, and signals go on; 1: multi-accept \
           select stands in for signals until it finds nothing ready",
    default: 0,
    min: 0,
    max: 1,
};

/// Setting of the mechanisms whose servers take one signal per call.
pub(super) const ONE_PER_WAIT: Tunable = Tunable {
    name: "one-per-wait",
    help: "1: a wait reports the descriptor of one signal, and members that must be checked are \
           checked when none is queued, or at every 16th wait; 0: at every wait",
    default: 0,
    min: 0,
    max: 1,
};

/// Waits between two polls of members that cannot signal, while others keep the loop busy.
const POLL_EVERY: u64 = 16;

const TROUBLE: i16 = POLLERR | POLLHUP;

/// Zero timeout.
pub(super) const NOW: Option<Duration> = Some(Duration::ZERO);

/// The members, and the known state of each.
pub(super) struct Signalled<K: Kernel> {
    /// Signals that the kernel has queued for this thread.
    pub(super) queue: K::Signals,
    /// Counters since the mechanism was opened.
    pub(super) counts: Counts,
    edges: Edges,
    members: PerSlot<Option<Member>>,
    numbers: PerSlot<Number>,
    /// Exclusive upper bound of the descriptor numbers seen.
    numbers_end: u32,
    /// Members to poll: those unsure that wait for something and are not known to be ready, each
    /// once, and perhaps others.
    unsure: Vec<Token>,
    /// Members that cannot signal.
    mute: Vec<Token>,
    polled: Vec<PollFd>,
    polled_tokens: Vec<Token>,
    overflowed: bool,
    /// True if select stands in for signals after an overflow.
    falls_back: bool,
    /// Set of all members, while select stands in.
    fallback: Option<Select<K>>,
    /// True if unsure members wait for the queue to be empty.
    one_per_wait: bool,
    /// Number of waits so far, and number of times the queue was seen empty.
    waits: u64,
    empties: u64,
}

/// Slot that has a descriptor number, and a mark of the last removal, while signals of the former
/// tenant may be queued.
#[derive(Default)]
struct Number {
    slot: Option<u32>,
    left_at: Option<u64>,
}

/// An event of a descriptor, or several combined.
#[derive(Clone, Copy)]
pub(super) struct SignalEvent {
    /// The descriptor's number.
    pub(super) fd: RawFd,
    /// The poll(2) bits.
    pub(super) band: i16,
    /// Number of events.
    pub(super) times: u8,
    /// True if the event may belong to a previous owner of the number.
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
            polled: Vec::new(),
            polled_tokens: Vec::new(),
            overflowed: false,
            falls_back: settings.get(&FALLBACK) == 1,
            fallback: None,
            one_per_wait: settings.get(&ONE_PER_WAIT) == 1,
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
            read_notices: 0,
            doubted: 0,
            reported_at: 0,
        });
        self.put_in_fallback(number, token, interest);
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
        let (number, level) = (member.fd as u32, member.level);
        if !level {
            self.edges.change(token, interest);
        }
        self.put_in_fallback(number, token, interest);
        self.list(token);
    }

    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let Some(member) = self.member(token) else { return Ok(()) };
        let (number, level, mute) = (member.fd as u32, member.level, member.mute);
        *self.members.at(token.slot) = None;
        *self.numbers.at(number) = Number { slot: None, left_at: Some(self.empties) };
        self.take_out_of_fallback(number);
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
            // A failed accept settles the state for now.
            member.unsure = false;
            return;
        }
        if direction == Interest::Read {
            member.unsure |= member.read_notices > 1;
            member.read_notices = 0;
        }
        self.edges.blocked(token, direction);
        self.list(token);
    }

    /// Waits. `take` takes signals, up to the timeout, and returns their number.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Token>,
        mut take: impl FnMut(&mut Self, Option<Duration>, &mut Vec<Token>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let before = ready.len();
        self.waits += 1;
        if let Some(found) = self.ask_fallback(ready)? {
            return Ok(found);
        }
        self.edges.report_known(ready);
        let mut reported = self.recover(ready, before)?;
        if self.checks_first() {
            reported += self.check(true, ready)?;
        }
        let calm = ready.len() == before;
        // Members that cannot signal do not wake a sleep on signals alone.
        let may_sleep = calm && self.mute.is_empty() && self.unsure.is_empty();
        let mut taken = take(self, if may_sleep { timeout } else { NOW }, ready)?;
        reported += taken;
        if calm && taken == 0 && !may_sleep {
            let found = self.check_deferred(ready)?;
            reported += found;
            if ready.len() == before {
                taken = self.sleep_and_take(timeout, ready, take)?;
                reported += taken;
            }
        }
        reported += self.recover(ready, before)?;
        if self.is_falling_back() {
            return Ok(reported);
        }
        if !self.unsure.is_empty() && (!self.one_per_wait || ready.len() == before) {
            reported += self.check(false, ready)?;
        }
        Ok(reported)
    }

    /// Returns whether members are polled before a signal is taken.
    fn checks_first(&self) -> bool {
        let checks_unsure = !self.one_per_wait && !self.unsure.is_empty();
        checks_unsure || self.waits.is_multiple_of(POLL_EVERY)
    }

    /// Polls the members that waited for the queue to be empty.
    fn check_deferred(&mut self, ready: &mut Vec<Token>) -> io::Result<usize> {
        if self.one_per_wait && !self.unsure.is_empty() { self.check(true, ready) } else { Ok(0) }
    }

    /// Sleeps until there is a signal to take, or a member that cannot signal is ready. Returns the
    /// number of descriptors reported.
    fn sleep_and_take(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Token>,
        mut take: impl FnMut(&mut Self, Option<Duration>, &mut Vec<Token>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.mute.is_empty() {
            return take(self, timeout, ready);
        }
        let (signalled, found) = self.sleep(timeout, ready)?;
        Ok(found + if signalled { take(self, NOW, ready)? } else { 0 })
    }

    /// Processes a notice.
    pub(super) fn handle_notice(&mut self, notice: Notice, ready: &mut Vec<Token>) {
        match notice {
            Notice::Overflow => self.overflow(),
            Notice::Event { fd, band } => {
                self.counts.notices += 1;
                let event = SignalEvent { fd, band, times: 1, doubtful: self.is_doubtful(fd) };
                self.act_on(event, ready);
            }
        }
    }

    /// Records that signals were lost.
    pub(super) fn overflow(&mut self) {
        self.counts.overflows += 1;
        self.overflowed = true;
    }

    /// Records that the queue was empty at this moment.
    pub(super) fn emptied(&mut self) {
        self.empties += 1;
    }

    /// Records the number of notices that a call took in order to act on them.
    pub(super) fn count_take(&mut self, notices: usize) {
        self.counts.takes += u64::from(notices > 0);
        self.counts.taken_max = self.counts.taken_max.max(notices as u64);
    }

    /// Records the number of notices returned by a read.
    pub(super) fn count_taken(&mut self, notices: usize) {
        if notices == 0 || notices < K::Signals::READ_MAX {
            self.emptied();
        }
    }

    /// Returns whether a signal taken now may belong to a previous owner of the number.
    pub(super) fn is_doubtful(&mut self, fd: RawFd) -> bool {
        u32::try_from(fd).is_ok_and(|fd| self.numbers.at(fd).left_at == Some(self.empties))
    }

    /// Acts on an event, or marks the member to be polled.
    pub(super) fn act_on(&mut self, event: SignalEvent, ready: &mut Vec<Token>) {
        let SignalEvent { fd, band, times, doubtful } = event;
        let slot = u32::try_from(fd).ok().filter(|number| *number < self.numbers_end);
        let slot = slot.and_then(|number| self.numbers.at(number).slot);
        let Some(member) = slot.and_then(|slot| self.members.at(slot).as_mut()) else {
            self.counts.stale += 1;
            return;
        };
        let token = member.token;
        if band & POLLIN != 0 {
            member.read_notices = member.read_notices.saturating_add(times);
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

    /// Queues a member that must be checked for the next poll.
    fn list(&mut self, token: Token) {
        let Some(member) = self.member(token) else { return };
        if member.unsure && !member.listed && member.waits() {
            member.listed = true;
            self.unsure.push(token);
        }
    }

    /// Reports a level-triggered member, at most once per wait. It is polled at the next.
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
