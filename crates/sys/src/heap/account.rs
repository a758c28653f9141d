//! The numbers of the account: those of each thread, of this process, and of several processes that
//! share one.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

/// Bytes that a thread may have counted and not added to the account.
pub const BATCH_BYTES: i64 = 32 << 10;

/// A use of memory. The parts of an account are in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Connections: their state, and what was received for them or is to be sent.
    Connections,
    /// Buffers that no connection has, kept for reuse.
    Buffers,
    /// TLS sessions.
    Tls,
    /// Content, whether it is cached or only being sent.
    Content,
    /// Listings under construction.
    Listings,
    /// Connections to other servers.
    Upstreams,
    /// The table of clients.
    Clients,
    /// Stacks of threads and fibers.
    Stacks,
}

/// Number of parts.
const PARTS: usize = 8;

/// Number of words of an account: the whole, then its parts.
pub const WORDS: usize = 1 + PARTS;

/// Account of this process, unless it shares another.
static OWN: [AtomicI64; WORDS] = [const { AtomicI64::new(0) }; WORDS];

/// Account that this process shares with others; null if it shares none.
static SHARED: AtomicPtr<Shares> = AtomicPtr::new(std::ptr::null_mut());

/// An account of several processes, and one of them's share in it: numbers of 64 bits that wrap.
struct Shares {
    all: &'static [AtomicU64],
    own: &'static [AtomicU64],
}

/// Counts of a thread.
struct Tally {
    /// Bytes allocated less bytes freed since the thread began.
    net: Cell<i64>,
    /// Of these, bytes added to the account.
    settled: Cell<i64>,
}

/// Adds a thread's counts to the account when it is dropped.
struct SettleAtEnd;

impl Drop for SettleAtEnd {
    fn drop(&mut self) {
        settle();
    }
}

thread_local! {
    static SETTLE_AT_END: SettleAtEnd = const { SettleAtEnd };

    // Without a destructor, so that it is there until the thread's last allocation is freed.
    static TALLY: Tally = const { Tally { net: Cell::new(0), settled: Cell::new(0) } };
}

/// Counts bytes for this thread.
#[inline(always)]
pub(super) fn count(bytes: i64) {
    TALLY.with(|tally| {
        let net = tally.net.get().wrapping_add(bytes);
        tally.net.set(net);
        if net.wrapping_sub(tally.settled.get()).unsigned_abs() >= BATCH_BYTES.unsigned_abs() {
            tally.settle();
        }
    });
}

impl Tally {
    #[cold]
    fn settle(&self) {
        let net = self.net.get();
        add(0, net.wrapping_sub(self.settled.replace(net)));
    }
}

/// Adds to a word of the account.
fn add(word: usize, bytes: i64) {
    match shares() {
        None => _ = OWN[word].fetch_add(bytes, Ordering::Relaxed),
        Some(Shares { all, own }) => [own, all].iter().for_each(|words| {
            if let Some(word) = words.get(word) {
                word.fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
            }
        }),
    }
}

/// Returns a word of the account, bytes.
#[inline]
fn word(word: usize) -> u64 {
    in_use(match shares() {
        None => OWN[word].load(Ordering::Relaxed),
        Some(shares) => shared_word(shares, word),
    })
}

fn shared_word(shares: &Shares, word: usize) -> i64 {
    shares.all.get(word).map_or(0, |it| it.load(Ordering::Relaxed).cast_signed())
}

/// Returns the bytes in use by a word of the account: one thread may have settled what it freed,
/// and another not yet what it allocated.
#[inline]
fn in_use(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

/// Returns the account, bytes, of this process, or of all that share it: the whole, then its parts.
pub fn account() -> [u64; WORDS] {
    match shares() {
        None => OWN.each_ref().map(|word| in_use(word.load(Ordering::Relaxed))),
        Some(shares) => std::array::from_fn(|word| in_use(shared_word(shares, word))),
    }
}

#[inline]
fn shares() -> Option<&'static Shares> {
    // SAFETY: it is null, or it was made from a box by `set_shares` and is never freed.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// Returns the account, bytes: of this process, or of all that share it.
#[inline]
pub fn bytes() -> u64 {
    word(0)
}

/// Returns the bytes charged to a part of the account.
pub fn bytes_of(part: Part) -> u64 {
    word(1 + part as usize)
}

/// Charges bytes to a part, or with a negative number takes them off.
#[inline]
pub fn charge(part: Part, bytes: i64) {
    if bytes != 0 {
        add(1 + part as usize, bytes);
    }
}

/// Adds what this thread has counted to the account. To be called before a thread waits.
#[inline]
pub fn settle() {
    TALLY.with(|tally| {
        if tally.net.get() != tally.settled.get() {
            tally.settle();
        }
    });
}

/// Has this thread add what it has counted to the account when it ends. What it frees at last is
/// less than is added at once, and would be missing otherwise.
pub fn settle_at_end() {
    SETTLE_AT_END.with(|_| ());
}

/// Returns what this thread has allocated less what it has freed, bytes. The difference between two
/// calls is what the code between them has left behind.
#[inline]
pub(super) fn of_thread() -> i64 {
    TALLY.with(|tally| tally.net.get())
}

/// Lets this process, which has one thread, share an account of [`WORDS`] numbers that were zero
/// at first, with those that it forks. What it has counted comes along. `own` is its share.
pub fn share_as_first(all: &'static [AtomicU64], own: &'static [AtomicU64]) {
    settle();
    for ((all, own), word) in all.iter().zip(own).zip(&OWN) {
        let bytes = word.load(Ordering::Relaxed).cast_unsigned();
        all.fetch_add(bytes, Ordering::Relaxed);
        own.store(bytes, Ordering::Relaxed);
    }
    set_shares(all, own);
}

/// Lets this process, which was forked and has one thread, have a share of its own in the account.
/// What it has inherited stays with the process that it was forked from, whose memory it is until
/// one of the two writes to it. `own` is its share, for [`leave`].
pub fn share(all: &'static [AtomicU64], own: &'static [AtomicU64]) {
    TALLY.with(|tally| tally.settled.set(tally.net.get()));
    own.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    set_shares(all, own);
}

fn set_shares(all: &'static [AtomicU64], own: &'static [AtomicU64]) {
    SHARED.store(Box::into_raw(Box::new(Shares { all, own })), Ordering::Release);
}

/// Takes the share of a process that has ended off an account.
pub fn leave(all: &[AtomicU64], own: &[AtomicU64]) {
    for (all, own) in all.iter().zip(own) {
        all.fetch_sub(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_leaves_takes_its_share_along() {
        let words = |values: [u64; 2]| values.map(AtomicU64::new);
        let (all, own) = (words([100, 7]), words([30, 7]));
        leave(&all, &own);
        let values =
            [&all, &own].map(|words| words.each_ref().map(|it| it.load(Ordering::Relaxed)));
        assert_eq!(values, [[70, 0], [0, 0]]);
    }
}
