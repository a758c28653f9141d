//! State that the paper's kernel keeps for a thread: the sets of [`super::algebra`], the hints that
//! change them, and the check C, which is a poll(2) of just the descriptors in question.
//!
//! A call first makes the check, and then takes the hints: those that came before the check, or
//! during it, are still there, so nothing is lost between the two. A hint comes with the
//! descriptor's state at the moment it is taken, from the same poll function that poll(2) calls;
//! for a selected descriptor that is its check, and no other is made. One that is not selected
//! keeps its hint, and the state that came with it is discarded, because it will be outdated by
//! then.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use weir_sys::poll::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM, POLLWRBAND,
    POLLWRNORM, PollFd,
};
use weir_sys::select::{WORD_BITS, not_open};

use super::algebra::{Sets, Word, any};
use super::hints::{Hint, Hints};
use super::sweep::Sweep;
use crate::readiness::kernel::Kernel;

const READ: i16 = POLLIN | POLLRDNORM | POLLRDBAND;
const WRITE: i16 = POLLOUT | POLLWRNORM | POLLWRBAND;

/// The sets and their hints.
pub(crate) struct State<K: Kernel> {
    entries: Vec<Entry>,
    /// Words in which a selected descriptor may be ready, each once. Between calls a caller adds
    /// those in which it changed the selection; after a call they hold the result.
    suspects: Vec<u32>,
    hints: Hints<K>,
    fds: Vec<PollFd>,
    sweep: Sweep,
    /// Number of descriptors checked with poll(2).
    pub(crate) checked: u64,
    /// Number of hints taken.
    pub(crate) hinted: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    word: Word,
    suspect: bool,
}

/// Translates poll(2) bits to the three sets of select(2) (fs/select.c).
fn answer(revents: u32) -> [bool; 3] {
    let has = |bits: i16| revents & u32::from(bits as u16) != 0;
    [has(READ | POLLHUP | POLLERR), has(WRITE | POLLERR), has(POLLPRI)]
}

/// Returns the index of a descriptor's word, and its bit there.
pub(crate) fn place(fd: RawFd) -> (usize, u64) {
    (fd as usize / WORD_BITS, 1 << (fd as usize % WORD_BITS))
}

/// Returns the descriptors of a word's bits, in order.
pub(crate) fn descriptors(index: usize, mut bits: u64) -> impl Iterator<Item = RawFd> {
    std::iter::from_fn(move || {
        let fd = index * WORD_BITS + bits.trailing_zeros() as usize;
        (bits != 0).then(|| {
            bits &= bits - 1;
            fd as RawFd
        })
    })
}

impl<K: Kernel> State<K> {
    pub(crate) fn open(sweep: Sweep) -> io::Result<Self> {
        Ok(Self {
            entries: Vec::new(),
            suspects: Vec::new(),
            hints: Hints::open()?,
            fds: Vec::new(),
            sweep,
            checked: 0,
            hinted: 0,
        })
    }

    /// Allocates this many words.
    pub(crate) fn reserve(&mut self, words: usize) {
        if words > self.entries.len() {
            self.entries.resize(words, Entry::default());
        }
    }

    /// Schedules a word for the next call, after a change of its selection.
    pub(crate) fn suspect(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        if !entry.suspect {
            entry.suspect = true;
            self.suspects.push(index as u32);
        }
    }

    /// Registers a descriptor before it is first selected, where the caller has one.
    pub(crate) fn register(&mut self, fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
        let (index, bit) = place(number);
        self.reserve(index + 1);
        if !self.hints.register(fd)? {
            self.entries[index].word.mute(bit);
        }
        Ok(())
    }

    /// Removes a descriptor from all sets: it was closed, or will be.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        let (index, bit) = place(fd);
        if let Some(entry) = self.entries.get_mut(index) {
            entry.word.forget(bit);
            self.hints.forget(fd);
            self.suspect(index);
        }
    }

    /// Removes a descriptor from epoll too, because its file may live on under another.
    pub(crate) fn delete(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.hints.delete(fd)
    }

    /// Number of hints for descriptors that had gone.
    pub(crate) fn stale(&self) -> u64 {
        self.hints.stale
    }

    /// Sets the interval of sweeps from now on.
    pub(crate) fn set_sweep(&mut self, every: Option<Duration>) {
        self.sweep.set(every);
    }

    /// Number of descriptors that sweeps found without a hint.
    pub(crate) fn missed(&self) -> u64 {
        self.sweep.found
    }

    /// Makes a call: waits up to `timeout` until a selected descriptor is ready.
    pub(crate) fn select(
        &mut self,
        selecting: &[Sets],
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let timed = self.sweep.is_on() || timeout.is_some_and(|timeout| !timeout.is_zero());
        let mut now = timed.then(Instant::now);
        let until = Until::new(timeout, now);
        loop {
            if self.sweep.is_due(now) {
                self.sweep(selecting)?;
            }
            self.check(selecting)?;
            let found = self.keep_ready(selecting);
            let left = if found { Some(Duration::ZERO) } else { until.left(now) };
            let hinted = self.wait_for_hints(selecting, self.sweep.cap(left, now))?;
            if found || self.keep_ready(selecting) {
                return Ok(());
            }
            now = now.map(|_| Instant::now());
            // Nothing at all, before the time: a signal, which ends a select, or time to sweep.
            let disturbed = hinted == 0 && !self.sweep.is_due(now);
            if disturbed || until.left(now) == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    /// Returns the result of the last call, by word: selected descriptors that are ready.
    pub(crate) fn found<'a>(
        &'a self,
        selecting: &'a [Sets],
    ) -> impl Iterator<Item = (usize, Sets)> + 'a {
        self.suspects.iter().map(|&index| {
            let index = index as usize;
            (index, self.entries[index].word.result(selecting[index]))
        })
    }

    /// Applies C to the descriptors in question. Those seen for the first time are registered
    /// before.
    fn check(&mut self, selecting: &[Sets]) -> io::Result<()> {
        self.fds.clear();
        for at in 0..self.suspects.len() {
            let index = self.suspects[at] as usize;
            for fd in descriptors(index, self.entries[index].word.in_doubt(selecting[index])) {
                self.admit(fd)?;
                self.fds.push(PollFd { fd, events: READ | WRITE | POLLPRI, revents: 0 });
            }
        }
        if self.fds.is_empty() {
            return Ok(());
        }
        K::poll(&mut self.fds, Some(Duration::ZERO))?;
        self.checked += self.fds.len() as u64;
        for &index in &self.suspects {
            self.entries[index as usize].word.select(selecting[index as usize]);
        }
        self.learn_all()
    }

    fn admit(&mut self, fd: RawFd) -> io::Result<()> {
        if !self.hints.is_registered(fd) && !self.hints.register_raw(fd)? {
            let (index, bit) = place(fd);
            self.entries[index].word.mute(bit);
        }
        Ok(())
    }

    /// Processes the results of poll(2). A descriptor that is not open is forgotten, and causes an
    /// error.
    fn learn_all(&mut self) -> io::Result<()> {
        let mut closed = false;
        for at in 0..self.fds.len() {
            let PollFd { fd, revents, .. } = self.fds[at];
            if revents & POLLNVAL != 0 {
                self.forget(fd);
                closed = true;
            } else {
                self.learn(Hint { fd, revents: u32::from(revents as u16) });
            }
        }
        if closed { Err(not_open()) } else { Ok(()) }
    }

    fn learn(&mut self, Hint { fd, revents }: Hint) {
        let (index, bit) = place(fd);
        let answers = answer(revents).map(|ready| if ready { bit } else { 0 });
        self.entries[index].word.learn(bit, answers);
    }

    /// Takes all available hints, and sleeps up to `timeout` for the first. Returns their number.
    fn wait_for_hints(
        &mut self,
        selecting: &[Sets],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let (mut hinted, mut timeout) = (0, timeout);
        loop {
            let more = self.hints.wait(timeout)?;
            for at in 0..self.hints.len() {
                if let Some(hint) = self.hints.get(at) {
                    self.take(hint, selecting);
                }
            }
            hinted += self.hints.len();
            self.hinted += self.hints.len() as u64;
            if !more {
                return Ok(hinted);
            }
            timeout = Some(Duration::ZERO);
        }
    }

    fn take(&mut self, hint: Hint, selecting: &[Sets]) {
        let (index, bit) = place(hint.fd);
        if selecting.get(index).is_some_and(|&sets| any(sets) & bit != 0) {
            self.learn(hint);
            self.suspect(index);
        } else {
            self.entries[index].word.hint(bit);
        }
    }

    /// Drops the suspect words without a selected ready descriptor. Returns whether others are
    /// left.
    fn keep_ready(&mut self, selecting: &[Sets]) -> bool {
        let entries = &mut self.entries;
        self.suspects.retain(|&index| {
            let index = index as usize;
            let entry = &mut entries[index];
            entry.suspect = any(entry.word.result(selecting[index])) != 0;
            entry.suspect
        });
        !self.suspects.is_empty()
    }

    /// Checks all selected descriptors that are not in doubt. One that is ready, though no hint
    /// came, has lost its registration, or its hint is under way: it is registered anew, and gets
    /// one.
    fn sweep(&mut self, selecting: &[Sets]) -> io::Result<()> {
        self.fds.clear();
        for (index, (entry, &selecting)) in self.entries.iter().zip(selecting).enumerate() {
            let unasked = any(selecting) & !entry.word.in_doubt(selecting);
            let poll = |fd| PollFd { fd, events: READ | WRITE | POLLPRI, revents: 0 };
            self.fds.extend(descriptors(index, unasked).map(poll));
        }
        K::poll(&mut self.fds, Some(Duration::ZERO))?;
        self.checked += self.fds.len() as u64;
        for at in 0..self.fds.len() {
            let PollFd { fd, revents, .. } = self.fds[at];
            let (index, bit) = place(fd);
            let selected = selecting[index].map(|set| set & bit != 0);
            let closed = revents & POLLNVAL != 0;
            let ready = answer(u32::from(revents as u16)).into_iter().zip(selected);
            if closed || ready.into_iter().any(|(ready, selected)| ready && selected) {
                self.sweep.found += 1;
                // As if never seen: the check that follows registers it, and asks again.
                self.forget(fd);
            }
        }
        self.sweep.done();
        Ok(())
    }
}

/// The end of a timeout.
#[derive(Clone, Copy, Debug)]
enum Until {
    Now,
    At(Instant),
    Never,
}

impl Until {
    /// Computes the end of a timeout; one past the range of the clock never comes.
    fn new(timeout: Option<Duration>, now: Option<Instant>) -> Self {
        match (timeout, now) {
            (Some(Duration::ZERO), _) => Self::Now,
            (Some(timeout), Some(now)) => now.checked_add(timeout).map_or(Self::Never, Self::At),
            _ => Self::Never,
        }
    }

    fn left(self, now: Option<Instant>) -> Option<Duration> {
        match (self, now) {
            (Self::Now, _) => Some(Duration::ZERO),
            (Self::At(at), Some(now)) => Some(at.saturating_duration_since(now)),
            _ => None,
        }
    }
}
