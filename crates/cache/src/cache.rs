//! The cache of all loops: stored replies by key, bounded in bytes, and the flights.
//!
//! Eviction is `quick_cache`'s, as for files: S3-FIFO with ghosts, which a scan does not flush. A
//! key's variants are evicted together. Keys come from clients, so they are hashed by SipHash.

use std::cell::Cell;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use quick_cache::sync::Cache as Bounded;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::flights::Flights;
use crate::{Fields, Flight, Joined, Landed, Selector, Stored, selectors};

/// Maximum number of variants of a key; the oldest goes. Large ones may be fewer ([`KEY_SHARE`]).
const VARIANTS_MAX: usize = 16;

/// Time for which requests for a key go on by themselves after a reply that could not be stored,
/// nanoseconds.
const PASS_NS: u64 = 120_000_000_000;

/// Approximate overhead of a slot besides key and value, bytes.
const SLOT_BYTES: usize = 64;

/// Size of a typical reply, for an estimate of the number of keys, bytes.
const TYPICAL_BYTES: u64 = 8192;

/// Part of the bytes for stored replies that those on their way here may take besides.
const COPIES_SHARE: u64 = 4;

/// Part of a shard that the replies of one key take at most: the whole key is evicted where it does
/// not fit.
const KEY_SHARE: u64 = 2;

/// Part of its capacity below which nothing is left of a cache that gives memory back.
const GIVEN_BACK_PARTS_MAX: u64 = 64;

/// Maximum number of parts with a lock of their own.
const SHARDS_MAX: u64 = 16;

/// Bounds of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheConfig {
    /// Maximum size of all stored replies, bytes.
    pub bytes_max: u64,
    /// Maximum size of the content of a stored reply, bytes.
    pub object_bytes_max: usize,
    /// Fraction of the time since its last change for which a reply is fresh that does not say how
    /// long it is.
    pub heuristic: f32,
}

/// Totals of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTotals {
    /// Keys evicted for lack of room.
    pub evicted: u64,
    /// Size of what is stored, bytes.
    pub stored_bytes: u64,
}

/// Result of a search.
#[derive(Clone, Debug)]
pub enum Found {
    /// A reply that was selected by what the request says.
    Stored(Arc<Stored>),
    /// Replies to other requests for the same.
    OtherVariants,
    /// Nothing.
    Nothing,
    /// The memory of a reply that could not be stored: requests go on by themselves. A stored one
    /// is stale; it was selected by what the request says, and may stand in.
    Pass(Option<Arc<Stored>>),
}

/// Later requests that a reply which could not be stored stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrence {
    /// No request: the next reply may be another.
    Never,
    /// Requests with cookies, which were the reason.
    WithCookies,
    /// Every request.
    Always,
}

/// A cache. `W` identifies who waits for a reply.
pub struct Cache<W> {
    slots: Bounded<Box<[u8]>, Slot, Weigher, RandomState, EvictionCounter>,
    /// Flights; the lock also serialises changes of a slot that depend on what it holds.
    flights: Mutex<Flights<W>>,
    evicted: AtomicU64,
    /// Bytes that replies on their way here may take.
    reserved: Arc<AtomicU64>,
    /// Maximum size of the replies of one key, bytes.
    key_bytes_max: u64,
    config: CacheConfig,
}

/// Room for a reply that is being copied; given back when this is dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
    reserved: Arc<AtomicU64>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Value of a key.
#[derive(Clone, Default)]
struct Slot {
    /// Replies, the latest first.
    variants: Arc<[Arc<Stored>]>,
    /// Memories of those that could not be stored, the latest first.
    passes: Arc<[Pass]>,
}

/// The memory of a reply that could not be stored.
#[derive(Clone)]
struct Pass {
    /// Values of the fields that selected among the replies of the key, as the request had them.
    selecting: Box<[u8]>,
    /// Fields that the reply itself says it was selected by.
    selectors: Box<[Selector]>,
    until_ns: u64,
    with_cookies_only: bool,
}

impl Slot {
    fn find(&self, request: &(impl Fields + ?Sized), now_ns: u64) -> Found {
        let is_it = |stored: &&Arc<Stored>| selectors::match_request(&stored.selectors, request);
        let stored = self.variants.iter().find(is_it);
        let is_fresh = stored.is_some_and(|stored| stored.is_fresh(now_ns));
        match stored {
            _ if !is_fresh && self.passes(request, now_ns) => Found::Pass(stored.cloned()),
            Some(stored) => Found::Stored(Arc::clone(stored)),
            None if self.variants.is_empty() => Found::Nothing,
            None => Found::OtherVariants,
        }
    }

    fn passes(&self, request: &(impl Fields + ?Sized), now_ns: u64) -> bool {
        if self.passes.is_empty() {
            return false;
        }
        let selecting = self.selecting(request);
        self.passes.iter().any(|pass| {
            let is_meant = !pass.with_cookies_only || request.value(b"cookie").is_some();
            is_meant
                && now_ns < pass.until_ns
                && *pass.selecting == *selecting
                && selectors::match_request(&pass.selectors, request)
        })
    }

    /// Returns the values that a request has for the fields that select among the replies, as far
    /// as those are known.
    fn selecting(&self, request: &(impl Fields + ?Sized)) -> Vec<u8> {
        let mut selecting = Vec::new();
        if let Some(latest) = self.variants.first() {
            selectors::write_values(&mut selecting, &latest.selectors, request);
        }
        selecting
    }

    /// Adds a reply, in place of one that was selected alike.
    fn store(&mut self, stored: &Arc<Stored>) {
        let is_other = |other: &Arc<Stored>, new: &Arc<Stored>| other.selectors != new.selectors;
        self.variants = put_first(&self.variants, Arc::clone(stored), is_other);
    }

    fn forget_oldest(&mut self) {
        let kept = self.variants.len().saturating_sub(1);
        self.variants = self.variants.iter().take(kept).cloned().collect();
    }

    fn withdraw(&mut self, stored: &Arc<Stored>) {
        let others = self.variants.iter().filter(|other| !Arc::ptr_eq(other, stored));
        self.variants = others.cloned().collect();
    }

    /// Adds a memory, in place of one of requests that were alike.
    fn pass(&mut self, new: Pass, now_ns: u64) {
        let is_kept = |pass: &Pass, new: &Pass| {
            let is_alike = pass.selecting == new.selecting && pass.selectors == new.selectors;
            !is_alike && now_ns < pass.until_ns
        };
        self.passes = put_first(&self.passes, new, is_kept);
    }
}

/// Returns the entries of a slot with a new one before those that are kept beside it; the oldest of
/// too many goes.
fn put_first<T: Clone>(all: &[T], new: T, is_kept: impl Fn(&T, &T) -> bool) -> Arc<[T]> {
    let kept = all.iter().filter(|each| is_kept(each, &new)).take(VARIANTS_MAX - 1).cloned();
    let kept: Vec<T> = kept.collect();
    std::iter::once(new).chain(kept).collect()
}

impl<W: PartialEq> Cache<W> {
    /// Creates a cache.
    #[must_use]
    pub fn new(mut config: CacheConfig) -> Self {
        // Several of the largest must fit, and be copied at a time.
        let object_bytes_max = usize::try_from(config.bytes_max / 8).unwrap_or(usize::MAX);
        config.object_bytes_max = config.object_bytes_max.min(object_bytes_max);
        let keys = usize::try_from(config.bytes_max / TYPICAL_BYTES).unwrap_or(usize::MAX);
        // A part must have room for a few of the largest.
        let shards = config.bytes_max / (8 * config.object_bytes_max.max(1) as u64);
        // The crate takes the next power of two.
        let shards = shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity(keys.clamp(64, 1 << 20))
            .weight_capacity(config.bytes_max)
            .build()
            .unwrap_or_else(|error| unreachable!("{error}: both capacities are set"));
        let hasher = RandomState::new();
        let slots = Bounded::with_options(options, Weigher, hasher, EvictionCounter);
        Self {
            slots,
            flights: Mutex::new(Flights::new()),
            evicted: AtomicU64::new(0),
            reserved: Arc::default(),
            key_bytes_max: config.bytes_max / shards / KEY_SHARE,
            config,
        }
    }

    /// Reserves room for a reply that is being copied. `None` if too many are, which bounds the
    /// memory that they take besides what is stored to a quarter of that.
    #[must_use]
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let (bytes, reserved) = (bytes as u64, Arc::clone(&self.reserved));
        let before = reserved.fetch_add(bytes, Ordering::Relaxed);
        let room = Reservation { bytes, reserved };
        (before + bytes <= self.config.bytes_max / COPIES_SHARE).then_some(room)
    }

    /// Returns its bounds.
    #[must_use]
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// Searches for a reply to a request.
    #[must_use]
    pub fn find(&self, key: &[u8], request: &(impl Fields + ?Sized), now_ns: u64) -> Found {
        self.slots.get(key).map_or(Found::Nothing, |slot| slot.find(request, now_ns))
    }

    /// Joins those who ask the origin for a key, or leads them. It follows only requests that are
    /// selected alike, as far as is known.
    #[must_use]
    pub fn join(&self, key: &[u8], request: &(impl Fields + ?Sized), who: W) -> Joined {
        let selecting = self.slots.peek(key).map(|slot| slot.selecting(request));
        let selecting = selecting.unwrap_or_default();
        self.flights.lock().join(key, &selecting, who)
    }

    /// Begins to ask the origin for a key without others: nobody follows, but what changes the
    /// resource meanwhile keeps the reply from being stored.
    #[must_use]
    pub fn lead_alone(&self, key: &[u8]) -> Flight {
        self.flights.lock().begin_alone(key)
    }

    /// Removes one who follows, and has gone.
    pub fn leave(&self, key: &[u8], who: &W) {
        self.flights.lock().leave(key, who);
    }

    /// Returns whether anybody follows.
    #[must_use]
    pub fn is_followed(&self, flight: &Flight) -> bool {
        self.flights.lock().is_followed(flight)
    }

    /// Ends a flight: with a reply to be stored, or none. Returns those who followed.
    #[must_use]
    pub fn land(&self, flight: &Flight, stored: Option<Arc<Stored>>) -> Vec<W> {
        let mut flights = self.flights.lock();
        let Landed { followers, is_current } = flights.land(flight);
        if let Some(stored) = stored.filter(|_| is_current) {
            self.change(flight.key(), |slot| slot.store(&stored));
        }
        followers
    }

    /// Ends a flight whose reply may not be stored: those who follow, and those to come that it
    /// stands for, go on by themselves for a while, unless a fresh reply answers them. It stands
    /// for nobody whose request is selected otherwise, by what is stored or by `selectors`, the
    /// reply's own: one client that asks for what cannot be stored does not keep what can be from
    /// the others.
    #[must_use]
    pub fn pass(
        &self,
        flight: &Flight,
        recurs: Recurrence,
        selectors: Box<[Selector]>,
        now_ns: u64,
    ) -> Vec<W> {
        let mut flights = self.flights.lock();
        let followers = flights.land(flight).followers;
        if recurs != Recurrence::Never {
            let pass = Pass {
                selecting: flight.selecting().into(),
                selectors,
                until_ns: now_ns.saturating_add(PASS_NS),
                with_cookies_only: recurs == Recurrence::WithCookies,
            };
            self.change(flight.key(), |slot| slot.pass(pass, now_ns));
        }
        followers
    }

    /// Puts a reply in the place of a stored one that was selected alike, unless that has gone.
    pub fn replace(&self, key: &[u8], old: &Arc<Stored>, new: &Arc<Stored>) {
        self.change_if_there(key, old, |slot| slot.store(new));
    }

    /// Removes a stored reply, if it is still there: the resource is no longer what it says.
    pub fn withdraw(&self, key: &[u8], stored: &Arc<Stored>) {
        self.change_if_there(key, stored, |slot| slot.withdraw(stored));
    }

    /// Changes what a key has, if a stored reply is still there.
    fn change_if_there(&self, key: &[u8], stored: &Arc<Stored>, change: impl FnOnce(&mut Slot)) {
        let _flights = self.flights.lock();
        let is_it = |other: &Arc<Stored>| Arc::ptr_eq(other, stored);
        if self.slots.peek(key).is_some_and(|slot| slot.variants.iter().any(is_it)) {
            self.change(key, change);
        }
    }

    /// Removes all replies of a key, and those on their way; returns whether there were any.
    pub fn remove(&self, key: &[u8]) -> bool {
        let mut flights = self.flights.lock();
        flights.outdate(key);
        self.slots.remove(key).is_some_and(|(_, slot)| !slot.variants.is_empty())
    }

    /// Removes all replies of the keys that are chosen, and those on their way; returns whether
    /// there were any. It reads every key.
    pub fn remove_all(&self, is_chosen: impl Fn(&[u8]) -> bool) -> bool {
        let mut flights = self.flights.lock();
        flights.outdate_all(&is_chosen);
        let removed = Cell::new(false);
        self.slots.retain(|key, slot| {
            let is_kept = !is_chosen(key);
            removed.set(removed.get() || !is_kept && !slot.variants.is_empty());
            is_kept
        });
        removed.get()
    }

    /// Evicts replies of at least `bytes`, the least useful first, or all.
    pub fn give_back(&self, bytes: u64) {
        let (before, weight) = (self.slots.len(), self.slots.weight());
        let left = weight.saturating_sub(bytes);
        if left < self.config.bytes_max / GIVEN_BACK_PARTS_MAX {
            // The number of ghosts follows the capacity down, but not up again from nothing.
            self.slots.clear();
        } else {
            self.slots.set_capacity(left);
            self.slots.set_capacity(self.config.bytes_max);
        }
        let evicted = before.saturating_sub(self.slots.len());
        self.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
    }

    /// Returns the totals.
    #[must_use]
    pub fn totals(&self) -> CacheTotals {
        let evicted = self.evicted.load(Ordering::Relaxed);
        CacheTotals { evicted, stored_bytes: self.slots.weight() }
    }

    /// Changes what a key has; the lock of the flights is held.
    fn change(&self, key: &[u8], change: impl FnOnce(&mut Slot)) {
        let old = self.slots.peek(key);
        // The value that the new one replaces is reported like those evicted.
        let replaced = u64::from(old.is_some());
        let mut slot = old.unwrap_or_default();
        change(&mut slot);
        let key: Box<[u8]> = key.into();
        while slot.variants.len() > 1 && Weigher.weight(&key, &slot) > self.key_bytes_max {
            slot.forget_oldest();
        }
        let mut evicted = 0;
        self.slots.insert_with_lifecycle(key, slot, &mut evicted);
        self.evicted.fetch_add(evicted.saturating_sub(replaced), Ordering::Relaxed);
    }
}

impl<W> std::fmt::Debug for Cache<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("config", &self.config).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Weigher;

impl Weighter<Box<[u8]>, Slot> for Weigher {
    fn weight(&self, key: &Box<[u8]>, slot: &Slot) -> u64 {
        let stored = |stored: &Arc<Stored>| stored.memory_bytes() + SLOT_BYTES;
        let variants: usize = slot.variants.iter().map(stored).sum();
        let pass = |pass: &Pass| {
            let fields: usize = pass.selectors.iter().map(Selector::memory_bytes).sum();
            pass.selecting.len() + fields + size_of::<Pass>()
        };
        let passes: usize = slot.passes.iter().map(pass).sum();
        let value = variants + passes;
        (key.len() + value + SLOT_BYTES) as u64
    }
}

#[derive(Clone, Copy)]
struct EvictionCounter;

impl Lifecycle<Box<[u8]>, Slot> for EvictionCounter {
    type RequestState = u64;

    fn on_evict(&self, evicted: &mut u64, _key: Box<[u8]>, _slot: Slot) {
        *evicted += 1;
    }
}
