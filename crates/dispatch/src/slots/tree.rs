//! The lowest-numbered free slot, by a tree of bitmaps: the new ufalloc (banga-scalable §4.2).
//!
//! Level 0 has a bit per slot, set while it is taken. A bit of a higher level is set while the word
//! below it is full. Finding the lowest free slot is a walk down from the top, with one
//! count-trailing-ones per level: two levels of 64-bit words serve 4096 slots, three 262,144.

const WORD_BITS: usize = u64::BITS as usize;

/// Allocation state of a fixed number of slots.
#[derive(Debug)]
pub struct SlotTree {
    /// Level 0 first; the last level is one word.
    levels: Vec<Vec<u64>>,
    capacity: usize,
    taken: usize,
}

impl SlotTree {
    /// Creates `capacity` free slots, numbered from 0.
    pub fn new(capacity: usize) -> Self {
        let mut levels = Vec::new();
        let mut bits = capacity.max(1);
        loop {
            let words = bits.div_ceil(WORD_BITS);
            levels.push(vec![0_u64; words]);
            if words == 1 {
                break;
            }
            bits = words;
        }
        Self { levels, capacity, taken: 0 }
    }

    /// Takes the lowest free slot; `None` when all are taken.
    pub fn allocate(&mut self) -> Option<u32> {
        let mut word = 0;
        for level in self.levels.iter().rev() {
            word = word * WORD_BITS + (*level.get(word)?).trailing_ones() as usize;
        }
        if word >= self.capacity {
            return None;
        }
        self.mark(word);
        self.taken += 1;
        u32::try_from(word).ok()
    }

    /// Takes a particular slot, chosen elsewhere; returns false if it is taken or does not exist.
    pub fn claim(&mut self, slot: u32) -> bool {
        let is_free = (slot as usize) < self.capacity && !self.is_taken(slot);
        if is_free {
            self.mark(slot as usize);
            self.taken += 1;
        }
        is_free
    }

    /// Frees a taken slot; a free slot stays free.
    pub fn free(&mut self, slot: u32) {
        let mut index = slot as usize;
        if !self.is_taken(slot) {
            return;
        }
        self.taken -= 1;
        for level in &mut self.levels {
            let (word, bit) = (index / WORD_BITS, 1 << (index % WORD_BITS));
            let was_full = level[word] == u64::MAX;
            level[word] &= !bit;
            if !was_full {
                return;
            }
            index = word;
        }
    }

    /// Number of slots taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Returns whether a slot is taken; false for a number past the last.
    fn is_taken(&self, slot: u32) -> bool {
        let index = slot as usize;
        self.levels[0]
            .get(index / WORD_BITS)
            .is_some_and(|word| word >> (index % WORD_BITS) & 1 == 1)
    }

    fn mark(&mut self, mut index: usize) {
        for level in &mut self.levels {
            let (word, bit) = (index / WORD_BITS, 1 << (index % WORD_BITS));
            level[word] |= bit;
            if level[word] != u64::MAX {
                return;
            }
            index = word;
        }
    }
}
