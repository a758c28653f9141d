//! Whose turn it is: a queue, first come, first served; and where the others wait until they join
//! it. Knows neither fibers nor what they wait for.

use std::collections::VecDeque;

use super::scheduler::FiberId;

/// The fibers of a thread, but for the one that runs.
#[derive(Default)]
pub(super) struct Turns {
    runnable: VecDeque<FiberId>,
    /// Which fiber waits for the connection in each slot.
    at_slots: Vec<Option<FiberId>>,
    /// Those that wait for somebody to accept, and since which round.
    at_listeners: VecDeque<(FiberId, u64)>,
}

impl Turns {
    /// The fiber whose turn it is.
    pub(super) fn next(&mut self) -> Option<FiberId> {
        self.runnable.pop_front()
    }

    /// How many have a turn.
    pub(super) fn runnable(&self) -> usize {
        self.runnable.len()
    }

    /// A fiber has the next turn.
    pub(super) fn put_first(&mut self, fiber: FiberId) {
        self.runnable.push_front(fiber);
    }

    /// A fiber has its turn when all have had theirs.
    pub(super) fn put_last(&mut self, fiber: FiberId) {
        self.runnable.push_back(fiber);
    }

    /// A fiber waits for the connection in a slot.
    pub(super) fn wait_at_slot(&mut self, slot: u32, fiber: FiberId) {
        let slot = slot as usize;
        if slot >= self.at_slots.len() {
            self.at_slots.resize(slot + 1, None);
        }
        self.at_slots[slot] = Some(fiber);
    }

    /// The fiber that waits for the connection in a slot has its turn. Whether there is one.
    pub(super) fn wake_at_slot(&mut self, slot: u32) -> bool {
        let fiber = self.at_slots.get_mut(slot as usize).and_then(Option::take);
        self.runnable.extend(fiber);
        fiber.is_some()
    }

    /// A fiber waits for somebody to accept.
    pub(super) fn wait_at_listeners(&mut self, fiber: FiberId, round: u64) {
        self.at_listeners.push_back((fiber, round));
    }

    /// The fiber that has waited longest for somebody to accept has its turn; none that began to
    /// wait in this round, so that a round ends.
    pub(super) fn wake_at_listeners(&mut self, round: u64) {
        if let Some((fiber, _)) = self.at_listeners.pop_front_if(|(_, since)| *since < round) {
            self.runnable.push_back(fiber);
        }
    }

    /// The same, and its turn is the next.
    pub(super) fn wake_first_at_listeners(&mut self, round: u64) {
        if let Some((fiber, _)) = self.at_listeners.pop_front_if(|(_, since)| *since < round) {
            self.runnable.push_front(fiber);
        }
    }

    /// Whether a fiber waits for somebody to accept.
    pub(super) fn has_hands(&self) -> bool {
        !self.at_listeners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(turns: &mut Turns) -> Vec<FiberId> {
        std::iter::from_fn(|| turns.next()).collect()
    }

    #[test]
    fn turns_are_in_the_order_in_which_fibers_were_woken() {
        let mut turns = Turns::default();
        (0..4).for_each(|slot| turns.wait_at_slot(slot, slot as FiberId + 10));
        for slot in [2, 0, 3] {
            assert!(turns.wake_at_slot(slot));
        }
        turns.put_first(99);
        turns.put_last(98);
        assert_eq!(turns.runnable(), 5);
        assert_eq!(order(&mut turns), [99, 12, 10, 13, 98]);
    }

    #[test]
    fn a_fiber_is_woken_once() {
        let mut turns = Turns::default();
        turns.wait_at_slot(7, 1);
        assert!(turns.wake_at_slot(7));
        assert!(!turns.wake_at_slot(7));
        assert!(!turns.wake_at_slot(1000));
        assert_eq!(order(&mut turns), [1]);
    }

    #[test]
    fn listeners_wake_who_waited_longest_and_nobody_twice_a_round() {
        let mut turns = Turns::default();
        (1..=2).for_each(|fiber| turns.wait_at_listeners(fiber, 5));
        turns.wake_at_listeners(6);
        assert_eq!(order(&mut turns), [1]);
        turns.wait_at_listeners(1, 6);
        (0..3).for_each(|_| turns.wake_at_listeners(6));
        assert_eq!(order(&mut turns), [2]);
        assert!(turns.has_hands());
        turns.wake_at_listeners(7);
        assert_eq!(order(&mut turns), [1]);
        assert!(!turns.has_hands());
    }
}
