//! Measures one repetition of a cell, monomorphized per mechanism: alternating rounds with and
//! without it, and memberships. Times are processor time of the calling thread. Whole batches are
//! timed, because reading that clock is a system call.

use std::hint::black_box;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use weir_sys::process::thread_cpu_clock_ns;
use weir_sys::socket;

use super::costs::{CellError, Sample};
use super::plan::{Amount, Cell};
use super::sockets::{self, ConnectionPool, Pair, Set, TEMPORARY};
use crate::readiness::{Interest, Mechanism, Token, Visitor};

/// Unmeasured rounds, with and without the mechanism each.
const WARM_UP_ROUNDS: u64 = 8;

/// Approximate duration of a batch, nanoseconds: long compared to a clock read.
const BATCH_NS: u64 = 1_000_000;

/// Maximum number of rounds in a batch.
const BATCH_MAX: u64 = 256;

/// Divisor of a repetition's time that gives the part available to memberships.
const MEMBERSHIP_SHARE: u32 = 4;

/// Timeout far longer than a pending event takes to be reported.
const LONG: Duration = Duration::from_secs(10);

/// Measures a cell once.
///
/// # Errors
/// `Impossible` when the mechanism cannot be opened here; `Failed` for lack of resources or any
/// other error.
pub(super) fn sample(
    cell: &Cell,
    pool: &mut ConnectionPool,
    amount: Amount,
) -> Result<Sample, CellError> {
    let set = pool.set(cell.idle, cell.active).map_err(CellError::Failed)?;
    cell.mechanism.with(Visit { cell, set: &set, amount })
}

struct Visit<'a> {
    cell: &'a Cell,
    set: &'a Set<'a>,
    amount: Amount,
}

impl Visitor for Visit<'_> {
    type Output = Result<Sample, CellError>;

    fn visit<M: Mechanism>(self) -> Self::Output {
        let mechanism = M::open(&self.cell.settings).map_err(|why| {
            if weir_sys::is_exhaustion(&why) {
                CellError::Failed(why)
            } else {
                CellError::Impossible(why)
            }
        })?;
        Measurement::new(mechanism, self.set).run(self.amount).map_err(CellError::Failed)
    }
}

/// A mechanism and its connections.
struct Measurement<'a, M> {
    mechanism: M,
    /// Permanent members, by slot.
    members: Vec<BorrowedFd<'a>>,
    /// Temporary members, in the slots after the permanent ones.
    temporary: Vec<OwnedFd>,
    pairs: &'a [Pair],
    unwatched: &'a [Pair],
    ready: Vec<Token>,
    waits: u64,
    events: u64,
}

impl<'a, M: Mechanism> Measurement<'a, M> {
    fn new(mechanism: M, set: &'a Set<'a>) -> Self {
        Self {
            mechanism,
            members: set.members().map(AsFd::as_fd).collect(),
            temporary: Vec::new(),
            pairs: &set.pairs,
            unwatched: &set.unwatched,
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
            let [with, without] = self.run_alternating(batch)?;
            taken = [taken[0] + with, taken[1] + without];
            sample.rounds += batch;
        }
        (sample.waits, sample.events) = (self.waits, self.events);
        sample.spent_ns = taken[0] as f64 - taken[1] as f64;
        sample.search_ns = self.search()?;
        sample.member_ns = self.memberships(amount)?;
        for (slot, fd) in self.members.iter().enumerate() {
            self.mechanism.remove(*fd, token(slot))?;
        }
        Ok(sample)
    }

    /// Runs unmeasured rounds, and returns the number of rounds per batch.
    fn warm_up(&mut self) -> io::Result<u64> {
        let [with, _] = self.run_alternating(WARM_UP_ROUNDS)?;
        (self.waits, self.events) = (0, 0);
        Ok((BATCH_NS * WARM_UP_ROUNDS / with.max(1)).clamp(1, BATCH_MAX))
    }

    /// Runs a batch with the mechanism and one without it; returns the nanoseconds of each.
    fn run_alternating(&mut self, rounds: u64) -> io::Result<[u64; 2]> {
        let began_ns = thread_cpu_clock_ns();
        for _ in 0..rounds {
            self.round()?;
        }
        let half_ns = thread_cpu_clock_ns();
        for _ in 0..rounds {
            round_without(self.unwatched)?;
        }
        Ok([half_ns - began_ns, thread_cpu_clock_ns() - half_ns])
    }

    fn round(&mut self) -> io::Result<()> {
        write_all(self.pairs)?;
        self.read_all()
    }

    /// Waits until the byte of every active member has been read.
    fn read_all(&mut self) -> io::Result<()> {
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

    /// Returns the time of a search of a result in which all active members are ready; `None` for a
    /// mechanism without such results.
    fn search(&mut self) -> io::Result<Option<f64>> {
        self.ready.clear();
        if !self.mechanism.search_again(&mut self.ready) {
            return Ok(None);
        }
        write_all(self.pairs)?;
        self.ready.clear();
        let deadline = in_vain();
        while self.ready.len() < self.pairs.len() && Instant::now() < deadline {
            self.ready.clear();
            self.mechanism.wait(Some(LONG), &mut self.ready)?;
        }
        let mut times = 1;
        let spent_ns = loop {
            let spent_ns = self.searches(times);
            if spent_ns >= BATCH_NS {
                break spent_ns;
            }
            times *= 2;
        };
        self.read_all()?;
        Ok(Some(spent_ns as f64 / times as f64))
    }

    fn searches(&mut self, times: u64) -> u64 {
        let began_ns = thread_cpu_clock_ns();
        for _ in 0..times {
            self.ready.clear();
            self.mechanism.search_again(&mut self.ready);
            black_box(&mut self.ready);
        }
        thread_cpu_clock_ns() - began_ns
    }

    /// Waits, and reads from the members reported; returns the number of bytes read.
    fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        self.ready.clear();
        self.mechanism.wait(Some(timeout), &mut self.ready)?;
        self.waits += 1;
        let mut taken = 0;
        for token in &self.ready {
            let slot = token.slot as usize;
            let temporary = || self.temporary.get(slot - self.members.len()).map(AsFd::as_fd);
            // An event of a removed member may remain.
            let Some(fd) = self.members.get(slot).copied().or_else(temporary) else { continue };
            taken += usize::from(is_taken(fd)?);
            self.mechanism.blocked(*token, Interest::Read);
        }
        self.events += taken as u64;
        Ok(taken)
    }

    /// Returns the time of a membership, averaged over at least two runs, and more while there is
    /// time.
    fn memberships(&mut self, amount: Amount) -> io::Result<f64> {
        let began = Instant::now();
        let (mut spent_ns, mut times) = (0.0, 0.0);
        while times < 2.0 || amount.leaves_time(began.elapsed()) {
            spent_ns += self.membership()?;
            times += 1.0;
        }
        Ok(spent_ns / (times * TEMPORARY as f64))
    }

    /// Adds sockets as members, removes and closes them: closing is part of a membership where the
    /// kernel keeps the set. Each half includes a wait, for work deferred to it. Subtracted are a
    /// wait without such work, and the closes of sockets that were no members.
    fn membership(&mut self) -> io::Result<f64> {
        self.temporary = sockets::temporary()?;
        let began_ns = thread_cpu_clock_ns();
        self.add_temporary()?;
        self.wait(Duration::ZERO)?;
        let added_ns = thread_cpu_clock_ns();
        self.wait(Duration::ZERO)?;
        let between_ns = thread_cpu_clock_ns();
        self.remove_temporary()?;
        self.wait(Duration::ZERO)?;
        let removed_ns = thread_cpu_clock_ns();
        self.wait(Duration::ZERO)?;
        let waited_ns = thread_cpu_clock_ns();
        let unwatched = sockets::temporary()?;
        let closing_ns = thread_cpu_clock_ns();
        drop(unwatched);
        let closed_ns = thread_cpu_clock_ns();
        let whole = (added_ns - began_ns) + (removed_ns - between_ns);
        let waits = (between_ns - added_ns) + (waited_ns - removed_ns);
        let other = waits + (closed_ns - closing_ns);
        Ok(whole as f64 - other as f64)
    }

    fn add_temporary(&mut self) -> io::Result<()> {
        for (slot, fd) in (self.members.len()..).zip(&self.temporary) {
            self.mechanism.add(fd.as_fd(), token(slot), Interest::Read)?;
        }
        Ok(())
    }

    fn remove_temporary(&mut self) -> io::Result<()> {
        for (slot, fd) in (self.members.len()..).zip(self.temporary.drain(..)) {
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

/// Reads a byte; returns whether one was available.
fn is_taken(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match socket::read_slice(fd, &mut [0; 64]) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
