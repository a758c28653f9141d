//! The run queue of a thread's fibers, first come, first served, and the fibers that wait to join
//! it. Knows neither the fibers' code nor what they wait for.

use std::collections::VecDeque;

use super::scheduler::FiberId;

/// The fibers of a thread, except the running one.
#[derive(Default)]
pub(super) struct RunQueue {
    runnable: VecDeque<FiberId>,
    /// Fiber that waits for the connection in each slot.
    at_slots: Vec<Option<FiberId>>,
    /// Fibers that wait for a connection to accept, with the iteration in which each began to wait.
    at_listeners: VecDeque<(FiberId, u64)>,
}

impl RunQueue {
    /// Removes and returns the next fiber to run.
    pub(super) fn next(&mut self) -> Option<FiberId> {
        self.runnable.pop_front()
    }

    /// Number of runnable fibers.
    pub(super) fn runnable(&self) -> usize {
        self.runnable.len()
    }

    /// Puts a fiber at the front of the queue.
    pub(super) fn push_front(&mut self, fiber: FiberId) {
        self.runnable.push_front(fiber);
    }

    /// Puts a fiber at the back of the queue.
    pub(super) fn push_back(&mut self, fiber: FiberId) {
        self.runnable.push_back(fiber);
    }

    /// Makes a fiber wait for the connection in a slot.
    pub(super) fn wait_at_slot(&mut self, slot: u32, fiber: FiberId) {
        let slot = slot as usize;
        if slot >= self.at_slots.len() {
            self.at_slots.resize(slot + 1, None);
        }
        self.at_slots[slot] = Some(fiber);
    }

    /// Makes the fiber that waits for the connection in a slot runnable; returns whether there was
    /// one.
    pub(super) fn wake_at_slot(&mut self, slot: u32) -> bool {
        let fiber = self.at_slots.get_mut(slot as usize).and_then(Option::take);
        self.runnable.extend(fiber);
        fiber.is_some()
    }

    /// Returns whether a fiber waits for the connection in a slot.
    pub(super) fn has_waiting_at_slot(&self, slot: u32) -> bool {
        self.at_slots.get(slot as usize).is_some_and(Option::is_some)
    }

    /// Makes a fiber wait for a connection to accept.
    pub(super) fn wait_at_listeners(&mut self, fiber: FiberId, iteration: u64) {
        self.at_listeners.push_back((fiber, iteration));
    }

    /// Makes the fiber that has waited longest for a connection to accept runnable, unless it began
    /// to wait in this iteration, so that an iteration ends.
    pub(super) fn wake_at_listeners(&mut self, iteration: u64) {
        if let Some((fiber, _)) = self.at_listeners.pop_front_if(|(_, since)| *since < iteration) {
            self.runnable.push_back(fiber);
        }
    }

    /// Does the same as [`RunQueue::wake_at_listeners`], but puts the fiber at the front of the
    /// queue.
    pub(super) fn wake_first_at_listeners(&mut self, iteration: u64) {
        if let Some((fiber, _)) = self.at_listeners.pop_front_if(|(_, since)| *since < iteration) {
            self.runnable.push_front(fiber);
        }
    }

    /// Returns whether a fiber waits for a connection to accept.
    pub(super) fn has_waiting_at_listeners(&self) -> bool {
        !self.at_listeners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &mut RunQueue) -> Vec<FiberId> {
        std::iter::from_fn(|| queue.next()).collect()
    }

    #[test]
    fn fibers_run_in_the_order_in_which_they_were_woken() {
        let mut queue = RunQueue::default();
        (0..4).for_each(|slot| queue.wait_at_slot(slot, slot as FiberId + 10));
        for slot in [2, 0, 3] {
            assert!(queue.wake_at_slot(slot));
        }
        queue.push_front(99);
        queue.push_back(98);
        assert_eq!(queue.runnable(), 5);
        assert_eq!(order(&mut queue), [99, 12, 10, 13, 98]);
    }

    #[test]
    fn a_fiber_is_woken_once() {
        let mut queue = RunQueue::default();
        queue.wait_at_slot(7, 1);
        assert!(queue.has_waiting_at_slot(7));
        assert!(queue.wake_at_slot(7));
        assert!(!queue.has_waiting_at_slot(7));
        assert!(!queue.wake_at_slot(7));
        assert!(!queue.wake_at_slot(1000));
        assert_eq!(order(&mut queue), [1]);
    }

    #[test]
    fn listeners_wake_the_longest_waiting_fiber_and_none_twice_per_iteration() {
        let mut queue = RunQueue::default();
        (1..=2).for_each(|fiber| queue.wait_at_listeners(fiber, 5));
        queue.wake_at_listeners(6);
        assert_eq!(order(&mut queue), [1]);
        queue.wait_at_listeners(1, 6);
        (0..3).for_each(|_| queue.wake_at_listeners(6));
        assert_eq!(order(&mut queue), [2]);
        assert!(queue.has_waiting_at_listeners());
        queue.wake_at_listeners(7);
        assert_eq!(order(&mut queue), [1]);
        assert!(!queue.has_waiting_at_listeners());
    }
}
