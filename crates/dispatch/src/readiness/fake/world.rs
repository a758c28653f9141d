//! The world of a fake kernel: files, descriptor numbers, and events not yet reported. The
//! adversary is here: a wake-up may come late, and twice. Each family of calls handles wake-ups in
//! its own file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use weir_sys::ring::Completion;

use super::file::{CallFailure, File, Kind, Wake};
use super::rng::SeededRng;
use super::{epoll_set, ring_state, signal_queue};

/// Number of sleeps after which a wait counts as endless.
const SLEEPS_MAX: u32 = 1000;
/// Less than a second: a mechanism's own timeouts, and not the caller's.
const NAP_MAX: Duration = Duration::from_secs(1);

/// All state of one thread.
#[derive(Debug, Default)]
pub(in crate::readiness) struct World {
    pub(super) rng: SeededRng,
    /// True while the adversary rests: everything is reported at once, in order, and once.
    pub(in crate::readiness) honest: bool,
    pub(super) files: Vec<File>,
    pub(super) numbers: BTreeMap<RawFd, usize>,
    pub(super) epolls: Vec<epoll_set::Set>,
    pub(super) queues: Vec<signal_queue::Queue>,
    pub(super) rings: Vec<ring_state::Ring>,
    delayed: Vec<Delayed>,
    slept: Option<Sleep>,
    sleeps: u32,
}

/// Depth of a sleep: a call slept because nothing at all was left to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::readiness) enum Sleep {
    /// A short sleep, which ends by itself.
    Nap,
    /// A sleep that only a new event ends.
    Deep,
}

/// An event to be reported later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delayed {
    Wake(usize, Wake),
    Completion(usize, Completion),
}

/// A descriptor in the world. A real descriptor of the same number backs it, owned by nothing else
/// in this process; it stays open when the fake one is closed, so that numbers are reused lowest
/// first, whatever other threads do.
pub(in crate::readiness) type Descriptor = Rc<OwnedFd>;

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
    static POOL: RefCell<Vec<Descriptor>> = const { RefCell::new(Vec::new()) };
}

/// Accesses this thread's world.
pub(in crate::readiness) fn world<T>(act: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(act)
}

/// Adds a descriptor to the pool: another copy of /dev/null.
fn grow_pool(pool: &mut Vec<Descriptor>) {
    let real = match pool.first() {
        Some(first) => first.try_clone().unwrap(),
        None => std::fs::File::open("/dev/null").unwrap().into(),
    };
    pool.push(Rc::new(real));
    pool.sort_by_key(AsRawFd::as_raw_fd);
}

impl World {
    /// Resets the world.
    pub(in crate::readiness) fn begin(seed: u64) {
        world(|w| *w = Self { rng: SeededRng::new(seed), ..Self::default() });
    }

    /// Opens a file at the lowest free number.
    pub(in crate::readiness) fn open(&mut self, kind: Kind) -> Descriptor {
        let descriptor = POOL.with_borrow_mut(|pool| {
            loop {
                let free = |other: &&Descriptor| !self.numbers.contains_key(&other.as_raw_fd());
                if let Some(found) = pool.iter().find(free) {
                    return Rc::clone(found);
                }
                grow_pool(pool);
            }
        });
        self.numbers.insert(descriptor.as_raw_fd(), self.files.len());
        let unix = self.rng.one_in(2);
        self.files.push(File::new(kind, unix));
        descriptor
    }

    /// close(2). If `held` elsewhere, the file lives on and is returned.
    pub(in crate::readiness) fn close(&mut self, number: RawFd, held: bool) -> Option<usize> {
        let file = self.numbers.remove(&number).unwrap();
        if held {
            return Some(file);
        }
        self.files[file].descriptors -= 1;
        self.release(file);
        None
    }

    /// Ends a file that nothing refers to. A ring's poll is a reference.
    pub(super) fn release(&mut self, file: usize) {
        let polled = self.rings.iter().any(|ring| ring.refers_to(file));
        if self.files[file].descriptors > 0 || polled {
            return;
        }
        self.files[file].gone = true;
        self.files[file].owner = None;
        self.epolls.iter_mut().for_each(|set| set.forget(file));
    }

    fn at(&mut self, number: RawFd) -> &mut File {
        let file = self.numbers[&number];
        &mut self.files[file]
    }

    /// Returns the poll(2) bits, without the effect of a query.
    pub(in crate::readiness) fn bits(&mut self, number: RawFd) -> u32 {
        self.at(number).bits()
    }

    /// Applies an external event to a file, by descriptor number.
    pub(in crate::readiness) fn happen(&mut self, number: RawFd, what: PeerAction) {
        self.happen_to_file(self.numbers[&number], what);
    }

    /// Applies an external event to a file that may have no number here.
    pub(in crate::readiness) fn happen_to_file(&mut self, at: usize, what: PeerAction) {
        let file = &mut self.files[at];
        let wake = match what {
            PeerAction::Arrival(count) => file.arrive(count),
            PeerAction::End => file.finish(),
            PeerAction::HangUp => file.hang_up(),
            PeerAction::Reset => file.reset(),
            PeerAction::Drain(count) => file.drain(count),
        };
        if let Some(wake) = wake {
            self.emit(at, wake);
        }
    }

    pub(in crate::readiness) fn shut(&mut self, number: RawFd) {
        let wake = self.at(number).shut();
        self.emit(self.numbers[&number], wake);
    }

    pub(in crate::readiness) fn take(
        &mut self,
        number: RawFd,
        count: usize,
    ) -> Result<usize, CallFailure> {
        self.at(number).take(count)
    }

    pub(in crate::readiness) fn put(
        &mut self,
        number: RawFd,
        count: usize,
    ) -> Result<usize, CallFailure> {
        self.at(number).put(count)
    }

    fn emit(&mut self, file: usize, wake: Wake) {
        let delayed = Delayed::Wake(file, wake);
        let (now, later) = match if self.honest { 0 } else { self.rng.below(8) } {
            0..4 => (true, false),
            4..7 => (false, true),
            _ => (true, true),
        };
        if later {
            self.delayed.push(delayed);
        }
        if now {
            self.deliver(delayed);
        }
    }

    /// Reports at once, or later.
    pub(super) fn deliver_or_defer(&mut self, delayed: Delayed) {
        if self.honest || self.rng.one_in(2) {
            self.deliver(delayed);
        } else {
            self.delayed.push(delayed);
        }
    }

    fn deliver(&mut self, delayed: Delayed) {
        match delayed {
            Delayed::Wake(file, wake) => self.wake(file, wake),
            Delayed::Completion(ring, completion) => self.rings[ring].complete(completion),
        }
    }

    fn wake(&mut self, file: usize, wake: Wake) {
        if self.files[file].gone {
            return;
        }
        self.epolls.iter_mut().for_each(|set| set.wake(file, wake.key));
        if let (Some(band), Some((queue, number))) = (wake.band, self.files[file].owner) {
            self.queues[queue].send(number, band);
        }
        for ring in 0..self.rings.len() {
            self.wake_ring(ring, file, wake.key);
        }
    }

    fn wake_ring(&mut self, ring: usize, file: usize, key: u32) {
        let mut at = 0;
        while at < self.rings[ring].polls.len() {
            let poll = self.rings[ring].polls[at];
            let hears = key == 0 || key & poll.asked != 0;
            if poll.file != file || !hears || !self.poll_completes(ring, at) {
                at += 1;
            }
        }
    }

    /// Completes a poll if its file is ready. Returns whether that ended the poll.
    pub(super) fn poll_completes(&mut self, ring: usize, at: usize) -> bool {
        let poll = self.rings[ring].polls[at];
        let bits = self.files[poll.file].poll() & poll.asked;
        if bits == 0 {
            return false;
        }
        let full = self.rings[ring].completions.len() >= self.rings[ring].completions_max;
        let more = poll.many && !full && !self.misbehaves(16);
        let result = bits as i32;
        self.rings[ring].complete(Completion { data: poll.data, result, more });
        if !more {
            self.rings[ring].polls.remove(at);
            self.release(poll.file);
        }
        !more
    }

    /// Reports some of the delayed events, in any order.
    fn deliver_some(&mut self) {
        if !self.delayed.is_empty() {
            let mut delayed = std::mem::take(&mut self.delayed);
            self.rng.shuffle(&mut delayed);
            for one in delayed {
                self.deliver_or_defer(one);
            }
        }
    }

    /// Performs a call that may wait: it attempts, and before it sleeps reports all late events and
    /// attempts `patiently`, with nothing held back. Returns `None` if nothing was found, also
    /// after a sleep or a signal that ended one.
    pub(super) fn wait<T>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self, bool) -> Option<T>,
    ) -> Option<T> {
        self.deliver_some();
        if let Some(found) = attempt(self, self.honest) {
            return Some(found);
        }
        if timeout == Some(Duration::ZERO) {
            return None;
        }
        while let Some(one) = self.delayed.pop() {
            self.deliver(one);
        }
        let found = attempt(self, true);
        if found.is_none() && (self.honest || !self.rng.one_in(8)) {
            self.sleep(timeout);
        }
        found
    }

    fn sleep(&mut self, timeout: Option<Duration>) {
        let nap = timeout.is_some_and(|timeout| timeout <= NAP_MAX);
        self.slept = self.slept.max(Some(if nap { Sleep::Nap } else { Sleep::Deep }));
        self.sleeps += 1;
        assert!(self.sleeps < SLEEPS_MAX, "it sleeps, and sleeps again");
    }

    /// Returns the depth of sleeps since the last query.
    pub(in crate::readiness) fn take_slept(&mut self) -> Option<Sleep> {
        self.sleeps = 0;
        self.slept.take()
    }

    /// Returns true once in `times`, on average, and never while the adversary rests.
    pub(super) fn misbehaves(&mut self, times: usize) -> bool {
        !self.honest && self.rng.one_in(times)
    }
}

/// An external event of a file.
#[derive(Clone, Copy, Debug)]
pub(in crate::readiness) enum PeerAction {
    /// This many bytes, connections or rings arrive.
    Arrival(usize),
    /// The peer ends its side (FIN).
    End,
    /// The peer closes a Unix socket.
    HangUp,
    /// The peer resets the connection.
    Reset,
    /// The peer takes in this many bytes.
    Drain(usize),
}
