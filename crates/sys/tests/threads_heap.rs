//! The account of memory, over threads that end. A process of its own: nobody else allocates.

// Lints take a helper of a test for no test.
#![allow(clippy::unwrap_used)]

use std::thread;

use weir_sys::heap::{self, BATCH_BYTES, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn what_a_thread_frees_at_last_is_not_missing() {
    let threads = 1000;
    let bytes = BATCH_BYTES as usize - 1024;
    let run = || {
        let work = move || {
            heap::settle_at_end();
            let block = vec![1_u8; bytes];
            heap::settle();
            block.len()
        };
        assert_eq!(thread::spawn(work).join().unwrap(), bytes);
    };
    run();
    heap::settle();
    let before = heap::bytes();
    (0..threads).for_each(|_| run());
    heap::settle();
    let left = heap::bytes().saturating_sub(before);
    assert!(left < threads * bytes as u64 / 10, "{left}");
}
