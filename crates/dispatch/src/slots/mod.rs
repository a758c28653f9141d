//! Numbers for what a loop holds: always the lowest free one, as UNIX allocates descriptors, found
//! by a tree of bitmaps or by a search of the whole table (banga-scalable).

mod scan;
mod tree;

pub use scan::SlotScan;
pub use tree::SlotTree;

/// Search for the lowest free slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotSearch {
    /// By a tree of bitmaps.
    #[default]
    Tree,
    /// By a search of the table from its beginning.
    Scan,
}

/// A row of the table of searches.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The search.
    pub search: SlotSearch,
    /// Its name in options and pages.
    pub spelling: &'static str,
    /// Description, in a single line.
    pub summary: &'static str,
    /// The paper's name for it.
    pub source: &'static str,
}

/// All searches, the default first.
pub const TABLE: &[Row] = &[
    Row {
        search: SlotSearch::Tree,
        spelling: "tree",
        summary: "a tree of bitmaps: one step per level, whatever is taken",
        source: "banga-scalable, the new ufalloc()",
    },
    Row {
        search: SlotSearch::Scan,
        spelling: "scan",
        summary: "a search of the table from its beginning, past every slot that is taken",
        source: "banga-scalable, the unmodified ufalloc()",
    },
];

/// Allocation state of a fixed number of slots, searched in a way chosen at run time.
#[derive(Debug)]
pub enum Slots {
    /// [`SlotSearch::Tree`].
    Tree(SlotTree),
    /// [`SlotSearch::Scan`].
    Scan(SlotScan),
}

impl Slots {
    /// Creates `capacity` free slots, numbered from 0.
    pub fn new(search: SlotSearch, capacity: usize) -> Self {
        match search {
            SlotSearch::Tree => Self::Tree(SlotTree::new(capacity)),
            SlotSearch::Scan => Self::Scan(SlotScan::new(capacity)),
        }
    }

    /// Takes the lowest free slot; `None` when all are taken.
    pub fn allocate(&mut self) -> Option<u32> {
        match self {
            Self::Tree(slots) => slots.allocate(),
            Self::Scan(slots) => slots.allocate(),
        }
    }

    /// Takes a particular slot, chosen elsewhere; returns false if it is taken or does not exist.
    pub fn claim(&mut self, slot: u32) -> bool {
        match self {
            Self::Tree(slots) => slots.claim(slot),
            Self::Scan(slots) => slots.claim(slot),
        }
    }

    /// Frees a taken slot; a free slot stays free.
    pub fn free(&mut self, slot: u32) {
        match self {
            Self::Tree(slots) => slots.free(slot),
            Self::Scan(slots) => slots.free(slot),
        }
    }

    /// Number of slots taken.
    pub fn taken(&self) -> usize {
        match self {
            Self::Tree(slots) => slots.taken(),
            Self::Scan(slots) => slots.taken(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn each(capacity: usize) -> impl Iterator<Item = Slots> {
        TABLE.iter().map(move |row| Slots::new(row.search, capacity))
    }

    #[test]
    fn the_default_is_first() {
        assert_eq!(TABLE[0].search, SlotSearch::default());
    }

    #[test]
    fn a_slot_that_somebody_else_chose_is_claimed_once() {
        for mut slots in each(70) {
            assert!(slots.claim(1) && !slots.claim(1) && !slots.claim(70));
            assert_eq!((slots.allocate(), slots.allocate()), (Some(0), Some(2)));
            slots.free(1);
            slots.free(70);
            assert_eq!((slots.allocate(), slots.taken()), (Some(1), 3));
        }
    }

    #[test]
    fn the_lowest_free_slot_is_taken_whatever_came_before() {
        let capacities = [1, 63, 64, 65, 4096, 4097, 10_000];
        for (capacity, mut slots) in
            capacities.into_iter().flat_map(|capacity| each(capacity).map(move |of| (capacity, of)))
        {
            let mut free: BTreeSet<u32> = (0..capacity as u32).collect();
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            for _ in 0..5 * capacity + 1000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                if random % 16 < 9 {
                    assert_eq!(slots.allocate(), free.pop_first());
                } else {
                    let slot = (random >> 8) as u32 % capacity as u32;
                    slots.free(slot);
                    free.insert(slot);
                }
                assert_eq!(slots.taken(), capacity - free.len());
            }
        }
    }
}
