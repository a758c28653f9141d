//! Numbers as a reader sees them: in memory that it may only load from.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that a reader loads one by one.
pub trait Words {
    /// Returns the number at an index, loaded with `Relaxed`; `None` past the end.
    fn load(&self, index: usize) -> Option<u64>;
}

impl Words for [AtomicU64] {
    fn load(&self, index: usize) -> Option<u64> {
        self.get(index).map(|word| word.load(Ordering::Relaxed))
    }
}
