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

mod account;
mod c_library;
mod charge;

use std::alloc::{GlobalAlloc, Layout, System};

pub use account::{
    BATCH_BYTES, Part, WORDS, account, bytes, bytes_of, charge, leave, settle, settle_at_end,
    share, share_as_first,
};
pub use c_library::{map_large_blocks, trim};
pub use charge::{Charge, Charged, MappedCharge};

use account::count;
use c_library::piece_bytes;

/// Memory of a stack that a thread or a fiber that serves comes to use, bytes. The rest of it is
/// address space alone.
pub const STACK_BYTES_USED: usize = 16 << 10;

/// The allocator of the C library, with an account of what it has handed out.
///
/// Where it is not the program's global allocator the account stays empty.
#[derive(Debug, Default)]
pub struct CountingAllocator;

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

#[cfg(test)]
mod tests {
    use super::account::of_thread;
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
        // Other tests allocate meanwhile, but nothing as large. Nothing of it is touched.
        let size = 512 << 20;
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
}
