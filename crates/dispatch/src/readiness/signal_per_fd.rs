//! `signal-per-fd`: one notice per descriptor, however many events it had (chandra-dispatch §3.4).
//! The paper's kernel has a bitmap over descriptors and queues no second signal while the bit is
//! set; Linux never had it. Here the bitmap is in user space: the kernel's queue is read until it
//! is empty, and coalesced before it is processed.
//!
//! The paper's sigwaitinfo still returns one signal per call (§4.2). By option a wait reports one
//! descriptor, the first of the bitmap's order, and keeps the others for later waits, none of
//! which sleeps before them.
//!
//! The paper's queue cannot overflow. The kernel's can, so it is kept short: it is also read at
//! every 16th change of the set, without waiting, so that a long work phase does not fill it.
//! [`super::signalled`] describes the processing of notices and the recovery if it still overflows.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::rtsig::Notice;

use super::kernel::{Kernel, Linux, SignalQueue};
use super::settings::{Settings, Tunable};
use super::signalled::{NOW, ONE_PER_WAIT, PENDING, SignalEvent, Signalled};
use super::{Counts, Interest, Mechanism, PerSlot, Token};

/// Number of calls between two reads of the kernel's queue outside a wait.
const DRAIN_EVERY: u32 = 16;

/// Maximum number of consecutive reads: more than a queue of ordinary length needs.
const READS_MAX: u32 = 1 << 10;

/// The members, and the descriptors that have a notice.
pub struct SignalPerFd<K: Kernel = Linux> {
    members: Signalled<K>,
    bitmap: Bitmap,
    notices: Vec<Notice>,
    calls: u32,
    /// Maximum number of descriptors that a wait takes from the bitmap.
    taken_max: usize,
}

impl<K: Kernel> SignalPerFd<K> {
    /// Keeps the kernel's queue short. A read error is left to the next wait.
    fn drain_at_times(&mut self) {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(DRAIN_EVERY) {
            let _ = drain(&mut self.members, &mut self.bitmap, &mut self.notices, NOW);
        }
    }
}

impl<K: Kernel> Mechanism for SignalPerFd<K> {
    const TUNABLES: &'static [Tunable] = &[PENDING, ONE_PER_WAIT];

    fn open(settings: &Settings) -> io::Result<Self> {
        let members = Signalled::open(settings)?;
        let taken_max = if settings.get(&ONE_PER_WAIT) == 1 { 1 } else { usize::MAX };
        let bitmap = Bitmap::default();
        Ok(Self { members, bitmap, notices: Vec::new(), calls: 0, taken_max })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.drain_at_times();
        self.members.add(fd, token, interest)
    }

    fn change(&mut self, _: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.drain_at_times();
        self.members.change(token, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.drain_at_times();
        if self.bitmap.clear(fd) {
            self.members.counts.stale += 1;
        }
        self.members.remove(fd, token)
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.drain_at_times();
        self.members.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let (bitmap, notices, taken_max) = (&mut self.bitmap, &mut self.notices, self.taken_max);
        self.members.wait(timeout, ready, |members, timeout, ready| {
            let patience = if bitmap.is_empty() { timeout } else { NOW };
            let mut reported = drain(members, bitmap, notices, patience)?;
            for event in std::iter::from_fn(|| bitmap.take_first()).take(taken_max) {
                members.act_on(event, ready);
                reported += 1;
            }
            Ok(reported)
        })
    }

    fn counts(&self) -> Counts {
        self.members.counts
    }
}

/// Descriptors that have a notice, and the events of each. (The paper's kernel keeps the kind
/// of the first event; a bit per kind costs nothing here, and saves a poll.)
#[derive(Default)]
struct Bitmap {
    events: PerSlot<Option<SignalEvent>>,
    /// Descriptors whose bit was set, in order; may include some whose bit was cleared, and
    /// duplicates.
    order: VecDeque<RawFd>,
}

impl Bitmap {
    /// Sets a bit; returns false if it was already set.
    fn set(&mut self, event: SignalEvent) -> bool {
        let place = self.events.at(event.fd as u32);
        if let Some(before) = place {
            before.band |= event.band;
            before.times = before.times.saturating_add(event.times);
            before.doubtful |= event.doubtful;
            return false;
        }
        *place = Some(event);
        self.order.push_back(event.fd);
        true
    }

    /// Clears a bit; returns whether it was set.
    fn clear(&mut self, fd: BorrowedFd<'_>) -> bool {
        self.events.at(fd.as_raw_fd() as u32).take().is_some()
    }

    /// Returns whether no bit is set; drops the cleared ones that precede a set one.
    fn is_empty(&mut self) -> bool {
        while let Some(&fd) = self.order.front() {
            if self.events.at(fd as u32).is_some() {
                return false;
            }
            self.order.pop_front();
        }
        true
    }

    /// Clears the first bit in order, and returns its events.
    fn take_first(&mut self) -> Option<SignalEvent> {
        if self.is_empty() {
            return None;
        }
        let fd = self.order.pop_front()?;
        self.events.at(fd as u32).take()
    }
}

/// Reads the kernel's queue until it is empty. Returns the number of overflows reported.
fn drain<K: Kernel>(
    members: &mut Signalled<K>,
    bitmap: &mut Bitmap,
    notices: &mut Vec<Notice>,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let mut overflows = 0;
    let mut timeout = timeout;
    for _ in 0..READS_MAX {
        notices.clear();
        members.queue.take_many(notices, timeout)?;
        timeout = NOW;
        for &notice in notices.iter() {
            match notice {
                Notice::Overflow => {
                    members.overflow();
                    overflows += 1;
                }
                Notice::Event { fd, band } => coalesce(members, bitmap, fd, band),
            }
        }
        members.count_take(notices.len());
        members.count_taken(notices.len());
        if notices.len() < K::Signals::READ_MAX || notices.is_empty() {
            break;
        }
    }
    Ok(overflows)
}

fn coalesce<K: Kernel>(members: &mut Signalled<K>, bitmap: &mut Bitmap, fd: RawFd, band: i16) {
    members.counts.notices += 1;
    if fd < 0 {
        members.counts.stale += 1;
        return;
    }
    let doubtful = members.is_doubtful(fd);
    if !bitmap.set(SignalEvent { fd, band, times: 1, doubtful }) {
        members.counts.coalesced += 1;
    }
}
