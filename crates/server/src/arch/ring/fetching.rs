//! Who waits for a disk, and what is under way for them: no more at a time than is good for the
//! others, since everything that is read takes memory and keeps the disk from somebody. Knows no
//! ring, and nothing of what is read.

use std::collections::VecDeque;

use weir_dispatch::readiness::Token;

/// The connections that wait for a disk, in the order in which they came.
#[derive(Debug)]
pub(super) struct Fetching {
    /// Connections for which something is under way, at most.
    max: usize,
    waiting: VecDeque<Token>,
    under_way: Vec<UnderWay>,
}

/// What is under way for one.
#[derive(Debug)]
struct UnderWay {
    token: Token,
    /// Operations that have not ended.
    left: usize,
}

impl Fetching {
    /// For so many at a time, one at least.
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1), waiting: VecDeque::new(), under_way: Vec::new() }
    }

    /// A connection waits from now on.
    pub(super) fn join(&mut self, token: Token) {
        self.waiting.push_back(token);
    }

    /// Who is next, when there is room.
    pub(super) fn next(&mut self) -> Option<Token> {
        if self.under_way.len() < self.max { self.waiting.pop_front() } else { None }
    }

    /// So many operations have begun for a connection that was next. None is its end.
    pub(super) fn begun(&mut self, token: Token, operations: usize) {
        if operations > 0 {
            self.under_way.push(UnderWay { token, left: operations });
        }
    }

    /// One of them has ended. Whether it was the last.
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
    fn no_more_are_under_way_than_may_be_and_the_first_is_next() {
        let mut fetching = Fetching::new(2);
        (0..4).for_each(|slot| fetching.join(token(slot)));
        for slot in 0..2 {
            assert_eq!(fetching.next(), Some(token(slot)));
            fetching.begun(token(slot), 2);
        }
        assert_eq!(fetching.next(), None);
        assert!(!fetching.ended(token(1)));
        assert_eq!(fetching.next(), None);
        assert!(fetching.ended(token(1)));
        assert_eq!(fetching.next(), Some(token(2)));
        // Nothing could be begun for it.
        fetching.begun(token(2), 0);
        assert_eq!(fetching.next(), Some(token(3)));
    }

    #[test]
    fn an_end_of_what_is_not_under_way_is_nobodys() {
        let mut fetching = Fetching::new(1);
        fetching.begun(token(3), 1);
        assert!(!fetching.ended(Token { slot: 3, generation: 2 }));
        assert!(fetching.ended(token(3)));
        assert!(!fetching.ended(token(3)));
    }
}
