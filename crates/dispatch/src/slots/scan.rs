//! The lowest-numbered free slot, by a search of the table from its beginning: ufalloc as UNIX had
//! it (banga-scalable §2.3), whose cost is proportional to the number of slots taken.
//!
//! The paper's table has a pointer per descriptor, null while it is free, so that an entry here is
//! as wide as a pointer and is looked at by itself.

/// A slot that is taken.
const TAKEN: usize = 1;

/// Allocation state of a fixed number of slots.
#[derive(Debug)]
pub struct SlotScan {
    /// 0 for a free slot.
    entries: Vec<usize>,
    taken: usize,
}

impl SlotScan {
    /// Creates `capacity` free slots, numbered from 0.
    pub fn new(capacity: usize) -> Self {
        Self { entries: vec![0; capacity], taken: 0 }
    }

    /// Takes the lowest free slot; `None` when all are taken.
    pub fn allocate(&mut self) -> Option<u32> {
        let slot = self.entries.iter().position(|entry| *entry == 0)?;
        self.entries[slot] = TAKEN;
        self.taken += 1;
        u32::try_from(slot).ok()
    }

    /// Takes a particular slot, chosen elsewhere; returns false if it is taken or does not exist.
    pub fn claim(&mut self, slot: u32) -> bool {
        let Some(entry) = self.entries.get_mut(slot as usize).filter(|entry| **entry == 0) else {
            return false;
        };
        *entry = TAKEN;
        self.taken += 1;
        true
    }

    /// Frees a taken slot; a free slot stays free.
    pub fn free(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot as usize).filter(|entry| **entry != 0) {
            *entry = 0;
            self.taken -= 1;
        }
    }

    /// Number of slots taken.
    pub fn taken(&self) -> usize {
        self.taken
    }
}
