//! Cache of resources and listings: two bounded caches, one of bytes in memory and one of open
//! files.
//!
//! Eviction is `quick_cache`'s: S3-FIFO with ghosts, which a scan of the whole tree does not flush.
//! Nothing here loads files or reads the clock. An evicted value lives until the last reply that
//! sends it is done; then its descriptors close.

use std::fmt;
use std::sync::Arc;

use quick_cache::unsync::Cache as Bounded;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::listing::Listing;
use crate::resource::Resource;

/// Counts of cache events since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Requests answered without a system call.
    pub hits: u64,
    /// Files loaded because they were not cached.
    pub misses: u64,
    /// Cached files checked after their validity expired and found unchanged.
    pub revalidations: u64,
    /// Cached files checked after their validity expired, found changed, and loaded again.
    pub reloads: u64,
    /// Resources evicted for want of room, including those too large to be cached.
    pub evictions: u64,
}

/// A cached value: the resource or listing that a path resolved to.
#[derive(Clone, Debug)]
pub(crate) enum Cached {
    Resource(Arc<Resource>),
    Listing(Arc<Listing>),
}

impl Cached {
    /// Memory use, bytes.
    fn memory_bytes(&self) -> usize {
        match self {
            Cached::Resource(resource) => resource.memory_bytes(),
            Cached::Listing(listing) => listing.memory_bytes(),
        }
    }

    /// Number of files held open.
    fn descriptors(&self) -> usize {
        match self {
            Cached::Resource(resource) => resource.descriptors(),
            Cached::Listing(_) => 0,
        }
    }
}

/// Cached values by the key of their path.
///
/// Keys are hashed with foldhash, seeded at random. Only paths that exist are inserted, so flooding
/// the table takes an attacker who can already create files of chosen names below the root.
pub(crate) struct Cache {
    in_memory: Partition,
    open: Partition,
    pub(crate) counts: CacheCounts,
}

type Partition = Bounded<Box<[u8]>, Cached, Weigher, DefaultHashBuilder, EvictionCounter>;

impl Cache {
    /// Creates a cache of up to `bytes_max` bytes (bodies, fields and keys) and, separately, up to
    /// `open_files_max` open files.
    pub(crate) fn new(bytes_max: u64, open_files_max: u64) -> Cache {
        let items = usize::try_from(bytes_max / TYPICAL_BYTES).unwrap_or(usize::MAX);
        let files = usize::try_from(open_files_max).unwrap_or(usize::MAX);
        Cache {
            in_memory: partition(items, bytes_max, Weigher::Bytes),
            open: partition(files, open_files_max, Weigher::Descriptors),
            counts: CacheCounts::default(),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Cached> {
        self.in_memory.get(key).or_else(|| self.open.get(key))
    }

    pub(crate) fn put(&mut self, key: &[u8], cached: Cached) {
        self.remove(key);
        let partition = match cached.descriptors() {
            0 => &mut self.in_memory,
            _ => &mut self.open,
        };
        partition.insert_with_lifecycle(key.into(), cached, &mut self.counts.evictions);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.in_memory.remove(key);
        self.open.remove(key);
    }

    pub(crate) fn clear_open(&mut self) {
        self.counts.evictions += self.open.len() as u64;
        self.open.clear();
    }

    /// Evicts values of at least `bytes` in memory, the least useful first, or all.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        let before = self.in_memory.len();
        let (weight, capacity) = (self.in_memory.weight(), self.in_memory.capacity());
        let left = weight.saturating_sub(bytes);
        if left < capacity / GIVEN_BACK_PARTS_MAX {
            // The number of ghosts follows the capacity down, but not up again from nothing.
            self.in_memory.clear();
        } else {
            self.in_memory.set_capacity(left);
            self.in_memory.set_capacity(capacity);
        }
        self.counts.evictions += (before - self.in_memory.len()) as u64;
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.in_memory.weight()
    }

    pub(crate) fn open_files(&self) -> u64 {
        self.open.weight()
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Unit in which the weight of a partition is measured.
#[derive(Clone, Copy)]
enum Weigher {
    Bytes,
    Descriptors,
}

impl Weighter<Box<[u8]>, Cached> for Weigher {
    fn weight(&self, key: &Box<[u8]>, cached: &Cached) -> u64 {
        match self {
            Weigher::Bytes => (key.len() + cached.memory_bytes() + SLOT_BYTES) as u64,
            Weigher::Descriptors => cached.descriptors() as u64,
        }
    }
}

struct EvictionCounter;

impl Lifecycle<Box<[u8]>, Cached> for EvictionCounter {
    type RequestState = u64;

    fn on_evict(&self, evictions: &mut u64, _key: Box<[u8]>, _cached: Cached) {
        *evictions += 1;
    }
}

fn partition(items: usize, weight_max: u64, weigher: Weigher) -> Partition {
    // Only the number of ghosts hangs on the number of items.
    let items = items.clamp(GHOSTS_MIN, GHOSTS_MAX);
    Partition::with(items, weight_max, weigher, DefaultHashBuilder::default(), EvictionCounter)
}

/// Part of its capacity below which nothing is left of a cache that gives memory back.
pub(crate) const GIVEN_BACK_PARTS_MAX: u64 = 64;

/// Approximate overhead of a table slot besides key and value, bytes.
const SLOT_BYTES: usize = 64;

/// Size of a small file with its fields, for an initial estimate of the number of items.
const TYPICAL_BYTES: u64 = 4096;

const GHOSTS_MIN: usize = 64;
const GHOSTS_MAX: usize = 1 << 16;
