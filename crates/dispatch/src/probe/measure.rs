//! One repetition of a cell, for each mechanism as a type: rounds with it and without it by turns,
//! and memberships. Times are of the calling thread's processor time; whole batches are timed, as
//! looking at that clock is a system call. Nothing here knows where connections come from.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use weir_sys::process::thread_cpu_clock_ns;
use weir_sys::socket;

use super::sockets::{self, PASSING, Pair, Set, Shelf};
use super::{Amount, Cell, Sample, Trouble};
use crate::readiness::{Interest, Mechanism, Token, Visitor};

/// Rounds that are not measured, of each kind.
const WARM_UP_ROUNDS: u64 = 8;

/// How long a batch takes about, nanoseconds: long against a look at the clock.
const BATCH_NS: u64 = 1_000_000;

/// Rounds of a batch at most.
const BATCH_MAX: u64 = 256;

/// Which share of a repetition memberships may take.
const MEMBERSHIP_SHARE: u32 = 4;

/// Far longer than an event takes that is there.
const LONG: Duration = Duration::from_secs(10);

/// Measures a cell once.
///
/// # Errors
/// The mechanism is not possible here, or something went wrong.
pub(super) fn sample(cell: &Cell, shelf: &mut Shelf, amount: Amount) -> Result<Sample, Trouble> {
    let set = shelf.set(cell.idle, cell.active).map_err(Trouble::Failed)?;
    cell.mechanism.with(Visit { cell, set: &set, amount })
}

struct Visit<'a> {
    cell: &'a Cell,
    set: &'a Set<'a>,
    amount: Amount,
}

impl Visitor for Visit<'_> {
    type Output = Result<Sample, Trouble>;

    fn visit<M: Mechanism>(self) -> Self::Output {
        let mechanism = M::open(&self.cell.settings).map_err(|why| {
            if weir_sys::is_exhaustion(&why) {
                Trouble::Failed(why)
            } else {
                Trouble::Impossible(why)
            }
        })?;
        Bench::new(mechanism, self.set).run(self.amount).map_err(Trouble::Failed)
    }
}

/// A mechanism with its connections.
struct Bench<'a, M> {
    mechanism: M,
    /// Those that stay, by slot.
    members: Vec<BorrowedFd<'a>>,
    /// Those that come and go, in the slots behind.
    passing: Vec<OwnedFd>,
    pairs: &'a [Pair],
    likes: &'a [Pair],
    ready: Vec<Token>,
    waits: u64,
    events: u64,
}

impl<'a, M: Mechanism> Bench<'a, M> {
    fn new(mechanism: M, set: &'a Set<'a>) -> Self {
        Self {
            mechanism,
            members: set.members().map(AsFd::as_fd).collect(),
            passing: Vec::new(),
            pairs: &set.pairs,
            likes: &set.likes,
            ready: Vec::new(),
            waits: 0,
            events: 0,
        }
    }

    fn run(mut self, amount: Amount) -> io::Result<Sample> {
        for (slot, fd) in self.members.iter().enumerate() {
            self.mechanism.add(*fd, token(slot), Interest::Read)?;
        }
        let batch = self.warm_up()?;
        let began = Instant::now();
        let mut sample = Sample::default();
        let mut taken = [0_u64; 2];
        while !amount.is_reached(sample.rounds, began.elapsed()) {
            let [with, without] = self.by_turns(batch)?;
            taken = [taken[0] + with, taken[1] + without];
            sample.rounds += batch;
        }
        (sample.waits, sample.events) = (self.waits, self.events);
        sample.spent_ns = taken[0] as f64 - taken[1] as f64;
        sample.member_ns = self.memberships(amount)?;
        for (slot, fd) in self.members.iter().enumerate() {
            self.mechanism.remove(*fd, token(slot))?;
        }
        Ok(sample)
    }

    /// Returns how many rounds make a batch.
    fn warm_up(&mut self) -> io::Result<u64> {
        let [with, _] = self.by_turns(WARM_UP_ROUNDS)?;
        (self.waits, self.events) = (0, 0);
        Ok((BATCH_NS * WARM_UP_ROUNDS / with.max(1)).clamp(1, BATCH_MAX))
    }

    /// A batch with the mechanism and one without it; nanoseconds of each.
    fn by_turns(&mut self, rounds: u64) -> io::Result<[u64; 2]> {
        let began_ns = thread_cpu_clock_ns();
        for _ in 0..rounds {
            self.round()?;
        }
        let half_ns = thread_cpu_clock_ns();
        for _ in 0..rounds {
            round_without(self.likes)?;
        }
        Ok([half_ns - began_ns, thread_cpu_clock_ns() - half_ns])
    }

    fn round(&mut self) -> io::Result<()> {
        write_all(self.pairs)?;
        let mut left = self.pairs.len();
        let mut deadline = None;
        while left > 0 {
            left = left.saturating_sub(self.wait(LONG)?);
            if self.ready.is_empty() && Instant::now() > *deadline.get_or_insert_with(in_vain) {
                return Err(io::Error::other("a member with a byte to read was not reported"));
            }
        }
        Ok(())
    }

    /// Waits, and takes in what is reported; returns how many bytes there were.
    fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        self.ready.clear();
        self.mechanism.wait(Some(timeout), &mut self.ready)?;
        self.waits += 1;
        let mut taken = 0;
        for token in &self.ready {
            let slot = token.slot as usize;
            let passing = || self.passing.get(slot - self.members.len()).map(AsFd::as_fd);
            // Of one that has gone there may be an event left.
            let Some(fd) = self.members.get(slot).copied().or_else(passing) else { continue };
            taken += usize::from(is_taken(fd)?);
            self.mechanism.blocked(*token, Interest::Read);
        }
        self.events += taken as u64;
        Ok(taken)
    }

    /// The time of a membership: twice at least, and again while there is time.
    fn memberships(&mut self, amount: Amount) -> io::Result<f64> {
        let began = Instant::now();
        let (mut spent_ns, mut times) = (0.0, 0.0);
        while times < 2.0 || amount.leaves_time(began.elapsed()) {
            spent_ns += self.membership()?;
            times += 1.0;
        }
        Ok(spent_ns / (times * PASSING as f64))
    }

    /// Sockets become members, cease to be and are closed: a close is part of it where the kernel
    /// keeps the set. Each half has a wait for what is put off till then. Taken off are a wait that
    /// has nothing of the kind, and the closes of sockets that were no members.
    fn membership(&mut self) -> io::Result<f64> {
        self.passing = sockets::passing()?;
        let began_ns = thread_cpu_clock_ns();
        self.add_passing()?;
        self.wait(Duration::ZERO)?;
        let added_ns = thread_cpu_clock_ns();
        self.wait(Duration::ZERO)?;
        let between_ns = thread_cpu_clock_ns();
        self.remove_passing()?;
        self.wait(Duration::ZERO)?;
        let removed_ns = thread_cpu_clock_ns();
        self.wait(Duration::ZERO)?;
        let waited_ns = thread_cpu_clock_ns();
        let likes = sockets::passing()?;
        let closing_ns = thread_cpu_clock_ns();
        drop(likes);
        let closed_ns = thread_cpu_clock_ns();
        let whole = (added_ns - began_ns) + (removed_ns - between_ns);
        let waits = (between_ns - added_ns) + (waited_ns - removed_ns);
        let other = waits + (closed_ns - closing_ns);
        Ok(whole as f64 - other as f64)
    }

    fn add_passing(&mut self) -> io::Result<()> {
        for (slot, fd) in (self.members.len()..).zip(&self.passing) {
            self.mechanism.add(fd.as_fd(), token(slot), Interest::Read)?;
        }
        Ok(())
    }

    fn remove_passing(&mut self) -> io::Result<()> {
        for (slot, fd) in (self.members.len()..).zip(self.passing.drain(..)) {
            self.mechanism.remove(fd.as_fd(), token(slot))?;
        }
        Ok(())
    }
}

impl Amount {
    fn is_reached(self, rounds: u64, spent: Duration) -> bool {
        match self {
            Self::Rounds(wanted) => rounds >= wanted,
            Self::Time(wanted) => rounds > 0 && spent >= wanted,
        }
    }

    fn leaves_time(self, spent: Duration) -> bool {
        match self {
            Self::Rounds(_) => false,
            Self::Time(wanted) => spent < wanted / MEMBERSHIP_SHARE,
        }
    }
}

fn token(slot: usize) -> Token {
    Token { slot: slot as u32, generation: 1 }
}

fn in_vain() -> Instant {
    Instant::now() + LONG
}

fn write_all(pairs: &[Pair]) -> io::Result<()> {
    pairs.iter().try_for_each(|pair| socket::write(pair.far.as_fd(), b"x", false).map(drop))
}

fn round_without(pairs: &[Pair]) -> io::Result<()> {
    write_all(pairs)?;
    for pair in pairs {
        // A kernel may deliver a little later.
        while !is_taken(pair.near.as_fd())? {}
    }
    Ok(())
}

/// Takes a byte in, if one is there.
fn is_taken(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match socket::read_slice(fd, &mut [0; 64]) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
