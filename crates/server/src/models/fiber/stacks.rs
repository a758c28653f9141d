//! Stacks for fibers: mapped, with a guard page below each, and reused.
//!
//! A stack costs the pages that were touched. A reused stack costs nothing more: a request touches
//! few pages, and the next one touches the same.

use std::io;

use corosensei::stack::DefaultStack;
use weir_sys::process;

/// Maximum number of stacks kept for reuse.
const SPARE_MAX: usize = 1024;

/// Mappings per stack: the stack itself and its guard page.
const MAPPINGS_EACH: usize = 2;

/// Mappings left to everything else; with none left, a larger allocation would fail.
const MAPPINGS_RESERVED: usize = 4096;

/// Pool of stacks of one size.
pub(super) struct Stacks {
    bytes: usize,
    spare: Vec<DefaultStack>,
}

impl Stacks {
    /// Creates an empty pool for stacks of `bytes` each, rounded up to whole pages.
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, spare: Vec::new() }
    }

    /// Takes a used stack, or maps a new one.
    ///
    /// # Errors
    /// ENOMEM: mmap(2).
    pub(super) fn take(&mut self) -> io::Result<DefaultStack> {
        self.spare.pop().map_or_else(|| DefaultStack::new(self.bytes), Ok)
    }

    /// Takes back a stack that is no longer used.
    pub(super) fn give_back(&mut self, stack: DefaultStack) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(stack);
        }
    }
}

/// Returns the number of stacks available to each of `loops` loops (vm.max_map_count,
/// proc_sys_vm(5)).
pub(super) fn room(loops: usize) -> usize {
    let mappings = process::mappings_max().saturating_sub(MAPPINGS_RESERVED);
    (mappings / MAPPINGS_EACH / loops.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use corosensei::stack::Stack;

    use super::*;

    #[test]
    fn a_stack_given_back_is_used_again() {
        let mut stacks = Stacks::new(64 << 10);
        let first = stacks.take().unwrap();
        let base = first.base();
        stacks.give_back(first);
        let again = stacks.take().unwrap();
        assert_eq!(again.base(), base);
        assert_ne!(stacks.take().unwrap().base(), base);
    }

    #[test]
    fn a_stack_has_the_size_asked_for_and_a_guard() {
        let stack = Stacks::new(64 << 10).take().unwrap();
        assert!(stack.base().get() - stack.limit().get() > 64 << 10);
    }

    #[test]
    fn a_stack_larger_than_the_address_space_is_an_error() {
        let error = Stacks::new(1 << 60).take().map(drop).unwrap_err();
        assert!(weir_sys::is_exhaustion(&error), "{error}");
    }

    #[test]
    fn loops_share_the_mappings_of_a_process() {
        let mappings = process::mappings_max();
        assert!(room(1) * MAPPINGS_EACH < mappings);
        assert!(room(4) * 4 <= room(1) && room(4) >= room(1) / 4);
        assert_eq!(room(usize::MAX), 1);
    }

    #[test]
    fn the_number_of_kept_stacks_is_bounded() {
        let mut stacks = Stacks::new(16 << 10);
        let taken: Vec<_> = (0..SPARE_MAX + 10).map(|_| stacks.take().unwrap()).collect();
        taken.into_iter().for_each(|stack| stacks.give_back(stack));
        assert_eq!(stacks.spare.len(), SPARE_MAX);
    }
}
