//! Stacks for fibers: as many as the kernel has memory for, and reused.
//!
//! A stack costs the pages that were touched. A reused stack costs nothing more: a request touches
//! few pages, and the next one touches the same.

use std::io;
use std::num::NonZeroUsize;

use weir_sys::fiber_stack::{self, FiberStack, StackArena};
use weir_sys::process;

/// Maximum number of stacks kept for reuse with their memory.
const SPARE_MAX: usize = 1024;

/// Mappings left to everything else; with none left, a larger allocation would fail.
const MAPPINGS_RESERVED: usize = 4096;

/// Pool of stacks of one size.
pub(super) struct Stacks {
    arena: StackArena,
    spare: Vec<FiberStack>,
}

impl Stacks {
    /// Creates an empty pool for stacks of `bytes` each, rounded up to whole pages.
    pub(super) fn new(bytes: usize) -> Self {
        Self { arena: StackArena::new(bytes), spare: Vec::new() }
    }

    /// Takes a used stack, or a new one.
    ///
    /// # Errors
    /// ENOMEM: [`StackArena::take`].
    pub(super) fn take(&mut self) -> io::Result<FiberStack> {
        self.spare.pop().map_or_else(|| self.arena.take(), Ok)
    }

    /// Returns whether there is a stack to be taken.
    pub(super) fn has_one(&mut self) -> bool {
        if self.spare.is_empty() {
            self.spare.extend(self.arena.take());
        }
        !self.spare.is_empty()
    }

    /// Takes back a stack that is no longer used.
    pub(super) fn give_back(&mut self, stack: FiberStack) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(stack);
        }
    }
}

/// Returns the number of stacks available to each of `loops` loops where each takes mappings of
/// memory (vm.max_map_count, proc_sys_vm(5)); `None` where they take none.
pub(super) fn room(loops: usize) -> Option<usize> {
    let mappings = process::mappings_max().saturating_sub(MAPPINGS_RESERVED);
    fiber_stack::mappings_each().map(|each| share(mappings, each, loops))
}

fn share(mappings: usize, each: NonZeroUsize, loops: usize) -> usize {
    (mappings / each / loops.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use corosensei::stack::Stack as _;

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
    fn a_stack_that_was_asked_for_is_there_to_be_taken() {
        let mut stacks = Stacks::new(64 << 10);
        assert!(stacks.has_one() && stacks.has_one());
        assert_eq!(stacks.spare.len(), 1);
        let taken = stacks.take().unwrap();
        assert!(stacks.spare.is_empty());
        stacks.give_back(taken);
        assert!(stacks.has_one());
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
        let two = NonZeroUsize::new(2).unwrap();
        let room = |loops| share(61_434, two, loops);
        assert_eq!((room(1), room(4)), (30_717, 7679));
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
