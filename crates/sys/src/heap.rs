//! The account of memory: every byte that the program has allocated and not freed, and what it has
//! mapped besides and told this module of.
//!
//! An allocator can count what no list of buffers could: the inside of libraries, the growth of
//! tables, whatever is added later. Each thread counts for itself and adds what has come together
//! to the account that all share once it is more than [`BATCH_BYTES`], or when [`settle`] says so;
//! so an allocation costs two additions and a comparison, and an atomic operation once in a batch.
//!
//! The account has parts, which say what memory is used for. They are charged by those who use it,
//! and explain the whole; they do not change it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

/// Bytes that a thread may have counted and not added to the account.
pub const BATCH_BYTES: i64 = 32 << 10;

/// Memory of a stack that a thread or a fiber that serves comes to use, bytes. The rest of it is
/// address space alone.
pub const STACK_BYTES_USED: usize = 16 << 10;

/// Size from which on blocks are mapped by themselves, bytes: the C library's own, at first.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 128 << 10;

/// Free memory at the end of a heap beyond which it goes back to the kernel, bytes.
#[cfg(target_env = "gnu")]
const FREE_TOP_BYTES_MAX: i32 = 1 << 20;

/// Smallest piece that the C library hands out, its own word included, bytes.
const PIECE_BYTES_MIN: usize = 32;

/// Alignment of pieces, bytes.
const PIECE_ALIGN: usize = 16;

/// The C library's own word in each piece, bytes.
const HEAD_BYTES: usize = 8;

/// A use of memory.
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

/// The allocator of the C library, with an account of what it has handed out.
///
/// Where it is not the program's global allocator the account stays empty.
#[derive(Debug, Default)]
pub struct CountingAllocator;

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

thread_local! {
    // Without a destructor, so that it is there until the thread's last allocation is freed.
    static TALLY: Tally = const { Tally { net: Cell::new(0), settled: Cell::new(0) } };
}

// SAFETY: every method passes its arguments on to the same method of `System`, which keeps the
// contract, and returns its answer. What is done besides allocates nothing and does not unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this very method.
        counted(unsafe { System.alloc(layout) }, piece_bytes(layout.size()))
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-piece_bytes(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        counted(unsafe { System.alloc_zeroed(layout) }, piece_bytes(layout.size()))
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let more = piece_bytes(new_size) - piece_bytes(layout.size());
        // SAFETY: as above.
        counted(unsafe { System.realloc(pointer, layout, new_size) }, more)
    }
}

/// Counts `bytes` unless the allocation has failed; returns its address.
#[inline(always)]
fn counted(pointer: *mut u8, bytes: i64) -> *mut u8 {
    if !pointer.is_null() {
        count(bytes);
    }
    pointer
}

/// Returns the memory that an allocation of `size` bytes takes, bytes.
#[inline(always)]
fn piece_bytes(size: usize) -> i64 {
    let whole = size.saturating_add(HEAD_BYTES + PIECE_ALIGN - 1) & !(PIECE_ALIGN - 1);
    whole.max(PIECE_BYTES_MIN) as i64
}

/// Counts bytes for this thread.
#[inline(always)]
fn count(bytes: i64) {
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
    let bytes = match shares() {
        None => OWN[word].load(Ordering::Relaxed),
        Some(shares) => {
            shares.all.get(word).map_or(0, |it| it.load(Ordering::Relaxed).cast_signed())
        }
    };
    // One thread may have settled what it freed, and another not yet what it allocated.
    u64::try_from(bytes).unwrap_or(0)
}

#[inline]
fn shares() -> Option<&'static Shares> {
    // SAFETY: it is null, or it was made from a box by `share` and is never freed.
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

/// Memory that was mapped without the allocator, charged to a part and to the whole for as long as
/// this lives.
#[derive(Debug)]
pub struct MappedCharge(Charge);

impl MappedCharge {
    /// Charges bytes to a part, and to the whole.
    pub fn of(part: Part, bytes: usize) -> Self {
        let charge = Charge::of(part, bytes);
        count(charge.bytes);
        Self(charge)
    }
}

impl Drop for MappedCharge {
    fn drop(&mut self) {
        count(self.0.bytes.wrapping_neg());
    }
}

/// Bytes charged to a part for as long as this lives.
#[derive(Debug)]
pub struct Charge {
    part: Part,
    bytes: i64,
}

impl Charge {
    /// Charges bytes to a part.
    pub fn of(part: Part, bytes: usize) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        charge(part, bytes);
        Self { part, bytes }
    }

    /// Charges other bytes in their place.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        charge(self.part, bytes.wrapping_sub(self.bytes));
        self.bytes = bytes;
    }

    /// Charges besides what an operation allocates, less what it frees.
    #[inline]
    pub fn measure<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let before = of_thread();
        let result = operation();
        let more = of_thread().wrapping_sub(before);
        charge(self.part, more);
        self.bytes = self.bytes.wrapping_add(more);
        result
    }

    /// Returns the bytes charged.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(0)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        charge(self.part, self.bytes.wrapping_neg());
    }
}

/// A value with the memory that it takes, charged to a part for as long as it lives.
#[derive(Debug)]
pub struct Charged<T> {
    value: T,
    charge: Charge,
}

impl<T> Charged<T> {
    /// Makes a value, and charges what that allocates.
    pub fn of(part: Part, make: impl FnOnce() -> T) -> Self {
        let mut charge = Charge::of(part, 0);
        let value = charge.measure(make);
        Self { value, charge }
    }

    /// Returns the bytes charged.
    pub fn charged_bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// Does something with the value, and charges what that allocates.
    #[inline]
    pub fn measure<R>(&mut self, operation: impl FnOnce(&mut T) -> R) -> R {
        let Self { value, charge } = self;
        charge.measure(|| operation(value))
    }

    /// Does something with the value that may grow `other`, which is not a part of it.
    #[inline]
    pub fn measure_beside<R>(
        &mut self,
        other: &mut Vec<u8>,
        operation: impl FnOnce(&mut T, &mut Vec<u8>) -> R,
    ) -> R {
        let before = piece_bytes(other.capacity());
        let result = self.measure(|value| operation(value, other));
        let grown = piece_bytes(other.capacity()) - before;
        if grown != 0 {
            charge(self.charge.part, -grown);
            self.charge.bytes = self.charge.bytes.wrapping_sub(grown);
        }
        result
    }
}

impl<T, E> Charged<Result<T, E>> {
    /// Returns the value, unless there is an error in its place.
    ///
    /// # Errors
    /// That error.
    pub fn transpose(self) -> Result<Charged<T>, E> {
        let Self { value, charge } = self;
        value.map(|value| Charged { value, charge })
    }
}

impl<T> Deref for Charged<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
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

/// Returns what this thread has allocated less what it has freed, bytes. The difference between two
/// calls is what the code between them has left behind.
#[inline]
fn of_thread() -> i64 {
    TALLY.with(|tally| tally.net.get())
}

/// Lets this process, which was forked and has one thread, share an account with others, of
/// [`WORDS`] numbers that were zero at first. What it has inherited stays with the process that it
/// was forked from, whose memory it is until one of the two writes to it. `own` is its share, for
/// [`leave`].
pub fn share(all: &'static [AtomicU64], own: &'static [AtomicU64]) {
    TALLY.with(|tally| tally.settled.set(tally.net.get()));
    own.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    let shares = Box::into_raw(Box::new(Shares { all, own }));
    SHARED.store(shares, Ordering::Release);
}

/// Takes the share of a process that has ended off an account.
pub fn leave(all: &[AtomicU64], own: &[AtomicU64]) {
    for (all, own) in all.iter().zip(own) {
        all.fetch_sub(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Has the C library map each large block by itself, so that it goes back to the kernel as soon as
/// it is freed (mallopt(3)). By itself it stops doing so for blocks as large as one that was freed
/// before, and memory that was once used by large bodies stays in pieces.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: these only set numbers; no other thread may be setting them, which none here does.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_TOP_BYTES_MAX);
    }
}

/// Gives memory that was freed back to the kernel (malloc_trim(3)), where the C library keeps it
/// for later.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no preconditions, and may be called by any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[test]
    fn what_is_allocated_is_counted_until_it_is_freed_wherever_that_is() {
        let before = of_thread();
        let block = vec![1_u8; 1 << 20];
        assert!((1 << 20..(1 << 20) + 64).contains(&(of_thread() - before)));
        std::thread::spawn(move || {
            let before = of_thread();
            drop(block);
            assert!(before - of_thread() >= 1 << 20);
        })
        .join()
        .unwrap();
        assert!(of_thread() - before >= 1 << 20, "it was another thread that freed it");
    }

    #[test]
    fn the_account_of_all_threads_knows_large_blocks_at_once_and_small_ones_when_settled() {
        // Other tests allocate meanwhile, but nothing as large.
        let size = 64 << 20;
        let before = bytes();
        let mut block = Vec::<u8>::with_capacity(size);
        assert!(bytes() >= before + (size as u64) / 2);
        block.reserve_exact(2 * size);
        settle();
        assert!(bytes() >= before + (size as u64) * 3 / 2);
        drop(block);
        trim();
        settle();
        assert!(bytes() < before + (size as u64) / 2);
    }

    #[test]
    fn a_piece_is_as_large_as_the_c_library_makes_it() {
        let sizes = [0, 1, 24, 25, 40, 41, 16384];
        assert_eq!(sizes.map(piece_bytes), [32, 32, 32, 48, 48, 64, 16400]);
    }

    #[test]
    fn a_charge_is_of_its_part_for_as_long_as_it_lives() {
        let mut charge = Charge::of(Part::Clients, 1000);
        assert_eq!(bytes_of(Part::Clients), 1000);
        let block = charge.measure(|| Box::new([0_u8; 500]));
        assert_eq!((bytes_of(Part::Clients), charge.bytes()), (1512, 1512));
        charge.measure(|| drop(block));
        charge.set(7);
        assert_eq!(bytes_of(Part::Clients), 7);
        drop(charge);
        assert_eq!(bytes_of(Part::Clients), 0);
    }

    #[test]
    fn a_value_is_charged_what_it_takes_and_not_what_it_writes_elsewhere() {
        let mut value = Charged::of(Part::Tls, || vec![0_u8; 100]);
        assert_eq!((bytes_of(Part::Tls), value.len()), (112, 100));
        let mut other = Vec::new();
        value.measure_beside(&mut other, |value, other| {
            value.reserve_exact(900);
            other.reserve_exact(5000);
        });
        assert_eq!(bytes_of(Part::Tls), 1008);
        drop((value, other));
        assert_eq!(bytes_of(Part::Tls), 0);
    }

    #[test]
    fn what_is_mapped_is_counted_as_well() {
        let before = of_thread();
        let charge = MappedCharge::of(Part::Stacks, 5000);
        assert_eq!((of_thread() - before, bytes_of(Part::Stacks) >= 5000), (5000, true));
        drop(charge);
        assert_eq!(of_thread(), before);
    }

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
