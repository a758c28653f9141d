//! Fibers, and the switch to one. A fiber runs until it waits, and then returns control to its
//! caller. Knows neither the fibers' code nor their order.
//!
//! A suspended fiber must not be dropped: nothing unwinds its stack, and in a program that aborts
//! on panic nothing can. Each is resumed until it has ended; its script ensures that it does end.

use corosensei::{Coroutine, CoroutineResult, Yielder};
use weir_sys::fiber_stack::FiberStack;

/// Index of a fiber, reused after its end.
pub(super) type FiberId = usize;

type Fiber = Coroutine<(), (), (), FiberStack>;

/// Handle with which the code on a fiber waits.
pub(super) struct Pause<'a>(&'a Yielder<(), ()>);

impl Pause<'_> {
    /// Suspends this fiber; returns when it is switched to again.
    pub(super) fn wait(&self) {
        self.0.suspend(());
    }
}

/// All fibers of a thread.
#[derive(Default)]
pub(super) struct Scheduler {
    fibers: Vec<Option<Fiber>>,
    free: Vec<FiberId>,
}

impl Scheduler {
    /// Creates a fiber that runs `script` when it is first switched to.
    pub(super) fn spawn(
        &mut self,
        stack: FiberStack,
        script: impl FnOnce(FiberId, Pause<'_>) + 'static,
    ) -> FiberId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.fibers.push(None);
            self.fibers.len() - 1
        });
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            script(id, Pause(yielder));
        });
        if let Some(entry) = self.fibers.get_mut(id) {
            *entry = Some(fiber);
        }
        id
    }

    /// Runs a fiber until it waits or ends. Returns its stack if it has ended.
    pub(super) fn switch_to(&mut self, id: FiberId) -> Option<FiberStack> {
        let entry = self.fibers.get_mut(id)?;
        match entry.as_mut()?.resume(()) {
            CoroutineResult::Yield(()) => None,
            CoroutineResult::Return(()) => {
                self.free.push(id);
                entry.take().map(Coroutine::into_stack)
            }
        }
    }

    /// Number of fibers that have not ended.
    pub(super) fn alive(&self) -> usize {
        self.fibers.len() - self.free.len()
    }

    /// Runs every fiber to its end, and passes each stack to `give`.
    pub(super) fn run_to_end(&mut self, mut give: impl FnMut(FiberStack)) {
        for id in 0..self.fibers.len() {
            while self.fibers.get(id).is_some_and(Option::is_some) {
                if let Some(stack) = self.switch_to(id) {
                    give(stack);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use weir_sys::fiber_stack::{self, StackArena};

    use super::*;

    fn stack() -> FiberStack {
        StackArena::new(64 << 10).take().unwrap()
    }

    #[test]
    fn a_fiber_resumes_where_it_waited() {
        let mut scheduler = Scheduler::default();
        let log = Rc::new(RefCell::new(Vec::new()));
        let mut ids = Vec::new();
        for name in ["a", "b"] {
            let log = Rc::clone(&log);
            ids.push(scheduler.spawn(stack(), move |_, pause| {
                for step in 0..3 {
                    log.borrow_mut().push((name, step));
                    pause.wait();
                }
            }));
        }
        for _ in 0..3 {
            ids.iter().for_each(|&id| assert!(scheduler.switch_to(id).is_none()));
        }
        let expected = [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)];
        assert_eq!(*log.borrow(), expected);
        assert_eq!(scheduler.alive(), 2);
        assert!(ids.iter().all(|&id| scheduler.switch_to(id).is_some()));
        assert_eq!(scheduler.alive(), 0);
    }

    #[test]
    fn a_fiber_never_switched_to_drops_its_captures() {
        let held = Rc::new(());
        let mut scheduler = Scheduler::default();
        let captured = Rc::clone(&held);
        scheduler.spawn(stack(), move |_, _| drop(captured));
        drop(scheduler);
        assert_eq!(Rc::strong_count(&held), 1);
    }

    #[test]
    fn an_index_is_reused_and_an_ended_fiber_is_not_switched_to() {
        let mut scheduler = Scheduler::default();
        let first = scheduler.spawn(stack(), |_, _| ());
        let second = scheduler.spawn(stack(), |_, pause| pause.wait());
        let stack = scheduler.switch_to(first).unwrap();
        assert!(scheduler.switch_to(first).is_none());
        assert_eq!(scheduler.spawn(stack, |_, _| ()), first);
        assert!(scheduler.switch_to(second).is_none());
        assert!(scheduler.switch_to(1000).is_none());
        scheduler.run_to_end(drop);
    }

    #[test]
    fn there_can_be_more_fibers_than_half_the_mappings_of_a_process() {
        const FIBERS: usize = 50_000;
        if fiber_stack::mappings_each().is_some() {
            println!("SKIPPED: each stack takes mappings of memory");
            return;
        }
        let mut scheduler = Scheduler::default();
        let arena = StackArena::new(32 << 10);
        let ended = Rc::new(Cell::new(0));
        for _ in 0..FIBERS {
            let ended = Rc::clone(&ended);
            let id = scheduler.spawn(arena.take().unwrap(), move |_, pause| {
                pause.wait();
                ended.set(ended.get() + 1);
            });
            assert!(scheduler.switch_to(id).is_none());
        }
        assert_eq!((scheduler.alive(), ended.get()), (FIBERS, 0));
        scheduler.run_to_end(drop);
        assert_eq!((scheduler.alive(), ended.get()), (0, FIBERS));
    }

    #[test]
    fn every_fiber_is_run_to_its_end() {
        let mut scheduler = Scheduler::default();
        let ended = Rc::new(Cell::new(0));
        for waits in 0..5 {
            let ended = Rc::clone(&ended);
            let id = scheduler.spawn(stack(), move |_, pause| {
                (0..waits).for_each(|_| pause.wait());
                ended.set(ended.get() + 1);
            });
            scheduler.switch_to(id);
        }
        let mut stacks = Vec::new();
        scheduler.run_to_end(|stack| stacks.push(stack));
        // One had ended before.
        assert_eq!((ended.get(), stacks.len(), scheduler.alive()), (5, 4, 0));
    }
}
