//! The connections that wait for a disk, and their operations under way. Their number is bounded,
//! since every read takes memory and keeps the disk busy.

use std::collections::VecDeque;

use weir_dispatch::readiness::Token;

/// The connections that wait for a disk, in order of arrival.
#[derive(Debug)]
pub(super) struct DiskQueue {
    /// Maximum number of connections with operations under way.
    max: usize,
    waiting: VecDeque<Token>,
    under_way: Vec<UnderWay>,
}

/// Operations under way for a connection.
#[derive(Debug)]
struct UnderWay {
    token: Token,
    /// Number of operations that have not ended.
    left: usize,
}

impl DiskQueue {
    /// Creates a queue that serves up to `max` connections at a time, but at least one.
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1), waiting: VecDeque::new(), under_way: Vec::new() }
    }

    /// Adds a connection to the queue.
    pub(super) fn join(&mut self, token: Token) {
        self.waiting.push_back(token);
    }

    /// Removes and returns the next connection, if there is room for its operations.
    pub(super) fn next(&mut self) -> Option<Token> {
        if self.under_way.len() < self.max { self.waiting.pop_front() } else { None }
    }

    /// Records that `operations` have begun for a connection returned by [`DiskQueue::next`]; with
    /// 0 it is done.
    pub(super) fn begun(&mut self, token: Token, operations: usize) {
        if operations > 0 {
            self.under_way.push(UnderWay { token, left: operations });
        }
    }

    /// Records that an operation has ended; returns whether it was the connection's last.
    pub(super) fn ended(&mut self, token: Token) -> bool {
        let Some(index) = self.under_way.iter().position(|each| each.token == token) else {
            return false;
        };
        let under_way = &mut self.under_way[index];
        under_way.left -= 1;
        let was_last = under_way.left == 0;
        if was_last {
            self.under_way.swap_remove(index);
        }
        was_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(slot: u32) -> Token {
        Token { slot, generation: 1 }
    }

    #[test]
    fn the_number_under_way_is_bounded_and_the_first_is_next() {
        let mut queue = DiskQueue::new(2);
        (0..4).for_each(|slot| queue.join(token(slot)));
        for slot in 0..2 {
            assert_eq!(queue.next(), Some(token(slot)));
            queue.begun(token(slot), 2);
        }
        assert_eq!(queue.next(), None);
        assert!(!queue.ended(token(1)));
        assert_eq!(queue.next(), None);
        assert!(queue.ended(token(1)));
        assert_eq!(queue.next(), Some(token(2)));
        // Nothing could be begun for it.
        queue.begun(token(2), 0);
        assert_eq!(queue.next(), Some(token(3)));
    }

    #[test]
    fn the_end_of_an_operation_not_under_way_has_no_effect() {
        let mut queue = DiskQueue::new(1);
        queue.begun(token(3), 1);
        assert!(!queue.ended(Token { slot: 3, generation: 2 }));
        assert!(queue.ended(token(3)));
        assert!(!queue.ended(token(3)));
    }
}
