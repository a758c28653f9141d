//! Stacks for fibers: mmap(2) of many stacks at a time, with a guard page below each.
//!
//! A process may have vm.max_map_count mappings, 65,530 by default. A guard page that is made by
//! mprotect(2) splits the mapping it lies in, so that each stack takes two. MADV_GUARD_INSTALL
//! (madvise(2), Linux 6.13) marks the page in the page table, and the stacks of a block stay one
//! mapping. A kernel without it refuses the call with EINVAL; mprotect then stands in.

use std::cell::{Cell, RefCell};
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::rc::Rc;

use corosensei::stack::{MIN_STACK_SIZE, Stack, StackPointer};

use crate::check;
use crate::heap::{MappedCharge, Part, STACK_BYTES_USED};

/// MADV_GUARD_INSTALL (linux/mman.h), which the C library's table lacks.
const MADV_GUARD_INSTALL: i32 = 102;

/// Bytes mapped at a time, unless one stack is larger.
const BLOCK_BYTES: usize = 16 << 20;

/// Mappings taken by a stack whose guard page is made by mprotect: the stack and the page.
const SPLIT_MAPPINGS: usize = 2;

/// Returns how many mappings of memory a stack takes; `None` where the kernel needs none for a
/// guard page, so that blocks of many stacks are all that counts.
pub fn mappings_each() -> Option<NonZeroUsize> {
    let arena = StackArena::new(MIN_STACK_SIZE);
    let has_marks = arena.take().is_ok() && arena.0.guard.get() == Guard::Mark;
    if has_marks { None } else { NonZeroUsize::new(SPLIT_MAPPINGS) }
}

/// Memory from which stacks of one size are taken. Its address space grows with the largest number
/// of stacks taken at a time, and is unmapped once the arena and all its stacks have been dropped.
pub struct StackArena(Rc<Arena>);

struct Arena {
    /// Bytes of a stack and its guard page, whole pages.
    stride: usize,
    page: usize,
    guard: Cell<Guard>,
    blocks: RefCell<Vec<Block>>,
    /// Lowest addresses of stacks given back, each with its guard page.
    free: RefCell<Vec<NonNull<u8>>>,
    /// Part of the last block from which no stack has been taken yet.
    unused: Cell<(NonNull<u8>, usize)>,
}

/// Way to make a guard page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// A mark in the page table.
    Mark,
    /// A mapping that may not be accessed.
    Mapping,
}

/// A block of mapped memory, for several stacks.
struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

impl StackArena {
    /// Creates an arena without memory, for stacks of `bytes` each, rounded up to whole pages.
    pub fn new(bytes: usize) -> Self {
        Self::with_guard(bytes, Guard::Mark)
    }

    fn with_guard(bytes: usize, guard: Guard) -> Self {
        let page = rustix::param::page_size();
        let stack = bytes.max(MIN_STACK_SIZE).div_ceil(page).saturating_mul(page);
        Self(Rc::new(Arena {
            stride: stack.saturating_add(page),
            page,
            guard: Cell::new(guard),
            blocks: RefCell::default(),
            free: RefCell::default(),
            unused: Cell::new((NonNull::dangling(), 0)),
        }))
    }

    /// Takes a stack: one that was dropped, or else a new one.
    ///
    /// # Errors
    /// ENOMEM: mmap(2), madvise(2), mprotect(2).
    pub fn take(&self) -> io::Result<FiberStack> {
        let free = self.0.free.borrow_mut().pop();
        let limit = free.map_or_else(|| self.0.carve(), Ok)?;
        let charge = MappedCharge::of(Part::Stacks, STACK_BYTES_USED.min(self.0.stride));
        Ok(FiberStack { limit, arena: Rc::clone(&self.0), _charge: charge })
    }
}

impl Arena {
    /// Takes a stack from the unused part of the last block, or of a new one, and makes its guard
    /// page.
    fn carve(&self) -> io::Result<NonNull<u8>> {
        if self.unused.get().1 < self.stride {
            let block = Block::map((BLOCK_BYTES / self.stride).max(1).saturating_mul(self.stride))?;
            self.unused.set((block.start, block.bytes));
            self.blocks.borrow_mut().push(block);
        }
        let (limit, left) = self.unused.get();
        self.make_guard(limit)?;
        // SAFETY: at least a stride is left of the block, so the result is within it or at its end.
        let next = unsafe { limit.add(self.stride) };
        self.unused.set((next, left - self.stride));
        Ok(limit)
    }

    /// Makes the lowest page of a stack inaccessible.
    fn make_guard(&self, limit: NonNull<u8>) -> io::Result<()> {
        let (page, bytes) = (limit.as_ptr().cast(), self.page);
        if self.guard.get() == Guard::Mark {
            // SAFETY: the page is part of a block of this arena and of no stack taken from it, so
            // nothing refers to what it holds.
            match check(unsafe { libc::madvise(page, bytes, MADV_GUARD_INSTALL) }) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                done => return done,
            }
            self.guard.set(Guard::Mapping);
        }
        // SAFETY: as above.
        check(unsafe { libc::mprotect(page, bytes, libc::PROT_NONE) })
    }
}

impl Block {
    fn map(bytes: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // MAP_STACK: without huge pages (Linux 6.7), of which one would make 2 MiB resident at the
        // first touch of a stack.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a new mapping of no file, at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the whole of a mapping made in `map`. A block is dropped with its arena, which
        // every stack in it keeps alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A stack, used by one fiber at a time. Dropped, it gives its pages back to the kernel and its
/// addresses to the arena.
pub struct FiberStack {
    /// Lowest address, that of the guard page.
    limit: NonNull<u8>,
    arena: Rc<Arena>,
    _charge: MappedCharge,
}

// SAFETY: the addresses from `limit` on, a stride of them, are mapped as long as the arena lives,
// which the stack holds; all but the guard page at `limit` are readable and writable and at least
// MIN_STACK_SIZE bytes. They are in no other stack: `take` hands out an address that was carved
// once, or given back by the drop of its last stack. Both ends are aligned to pages.
unsafe impl Stack for FiberStack {
    fn base(&self) -> StackPointer {
        self.limit().saturating_add(self.arena.stride)
    }

    fn limit(&self) -> StackPointer {
        self.limit.addr()
    }
}

impl Drop for FiberStack {
    fn drop(&mut self) {
        let bytes = self.arena.stride - self.arena.page;
        // SAFETY: the pages of this stack above its guard page, which no fiber uses any more. The
        // page above the guard is within the stack.
        let done = unsafe {
            let lowest = self.limit.add(self.arena.page);
            libc::madvise(lowest.as_ptr().cast(), bytes, libc::MADV_DONTNEED)
        };
        // EINVAL: the pages are locked (mlock(2)) and stay.
        debug_assert!(done == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL));
        self.arena.free.borrow_mut().push(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use corosensei::{Coroutine, CoroutineResult, Yielder};

    use super::*;

    const GUARDS: [Guard; 2] = [Guard::Mark, Guard::Mapping];

    /// Variable that makes a child of the overflow test overflow a stack with this guard.
    const OVERFLOW: &str = "WEIR_TEST_OVERFLOW";

    fn run(stack: FiberStack, script: impl FnOnce() + 'static) -> FiberStack {
        let script = move |_: &Yielder<(), ()>, ()| script();
        let mut fiber: Coroutine<(), (), (), FiberStack> = Coroutine::with_stack(stack, script);
        assert!(matches!(fiber.resume(()), CoroutineResult::Return(())));
        fiber.into_stack()
    }

    #[test]
    fn stacks_do_not_overlap_and_have_the_size_asked_for() {
        for guard in GUARDS {
            let arena = StackArena::with_guard(40_000, guard);
            let mut stacks: Vec<_> = (0..1000).map(|_| arena.take().unwrap()).collect();
            stacks.sort_by_key(Stack::limit);
            for pair in stacks.windows(2) {
                assert!(pair[0].base() <= pair[1].limit());
            }
            for stack in &stacks {
                let page = rustix::param::page_size();
                assert!(stack.base().get() - stack.limit().get() >= 40_000 + page);
                assert_eq!(stack.base().get() % page, 0);
            }
        }
    }

    #[test]
    fn a_dropped_stack_is_taken_again_and_has_lost_what_it_held() {
        for guard in GUARDS {
            let arena = StackArena::with_guard(64 << 10, guard);
            let stack = run(arena.take().unwrap(), || {
                black_box([7_u8; 30_000]);
            });
            let limit = stack.limit();
            drop(stack);
            let stack = arena.take().unwrap();
            assert_eq!(stack.limit(), limit);
            let page = rustix::param::page_size();
            let bytes = stack.base().get() - limit.get() - page;
            // SAFETY: the stack's own memory above its guard page, which no fiber uses now.
            let held = unsafe {
                std::slice::from_raw_parts(stack.limit.add(page).as_ptr().cast_const(), bytes)
            };
            assert!(held.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn stacks_outlive_the_handle_of_their_arena() {
        let arena = StackArena::new(64 << 10);
        let stack = arena.take().unwrap();
        drop(arena);
        run(stack, || {
            black_box([1_u8; 1000]);
        });
    }

    #[test]
    fn a_stack_larger_than_the_address_space_is_an_error() {
        for bytes in [1 << 60, usize::MAX] {
            let error = StackArena::new(bytes).take().map(drop).unwrap_err();
            assert!(crate::is_exhaustion(&error), "{error}");
        }
    }

    #[test]
    fn a_kernel_that_marks_guard_pages_needs_no_mapping_for_a_stack() {
        if mappings_each().is_some() {
            println!("SKIPPED: no MADV_GUARD_INSTALL");
            return;
        }
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let arena = StackArena::new(32 << 10);
        let before = mappings();
        let stacks: Vec<_> = (0..20_000).map(|_| arena.take().unwrap()).collect();
        // Other tests of this process map some thousand at most.
        assert!(mappings() < before + 10_000);
        drop(stacks);
    }

    /// Recurses `depth` times, with 1 KiB or more of stack each.
    fn overflow(depth: u64) -> u64 {
        let frame = black_box([depth; 128]);
        if depth == 0 { frame[0] } else { overflow(depth - 1) + black_box(frame)[1] }
    }

    #[test]
    fn an_overflow_of_a_stack_ends_the_process() {
        if let Ok(guard) = std::env::var(OVERFLOW) {
            let guard = GUARDS.into_iter().find(|one| format!("{one:?}") == guard).unwrap();
            let arena = StackArena::with_guard(64 << 10, guard);
            // Above others, which an overflow would reach without a guard page, and taken a second
            // time.
            let _below: Vec<_> = (0..100).map(|_| arena.take().unwrap()).collect();
            drop(arena.take().unwrap());
            eprintln!("overflowing");
            run(arena.take().unwrap(), || {
                black_box(overflow(1000));
            });
            return;
        }
        let name = "fiber_stack::tests::an_overflow_of_a_stack_ends_the_process";
        for guard in GUARDS {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([name, "--exact", "--nocapture"]).env(OVERFLOW, format!("{guard:?}"));
            let ended = command.output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(said.contains("overflowing"), "{said}");
            assert_eq!(ended.status.signal(), Some(libc::SIGSEGV), "{guard:?}: {said}");
        }
    }
}
