//! Connections accepted but not served yet, while a queue that is longer than can be served in time
//! is cleared ([`crate::Order::Newest`]). Connections of sources that have not used up their share
//! come first, then the newest: otherwise the few sources that ask for most would often be the
//! newest, and be served in place of the others. The server and the simulator share this code.

use std::collections::VecDeque;

use crate::{BURST, Share, Shares, Source};

/// Queue of deferred connections, each identified by a token.
#[derive(Clone, Debug)]
pub struct Deferred<T> {
    /// Connections of sources with a share left, and all others; the newest last.
    fair: VecDeque<Waiting<T>>,
    unfair: VecDeque<Waiting<T>>,
    /// Shares of the sources whose connections are deferred as fair; created at the first deferral.
    shares: Option<Box<Shares>>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting<T> {
    token: T,
    since_ns: u64,
}

impl<T> Default for Deferred<T> {
    fn default() -> Self {
        Self { fair: VecDeque::new(), unfair: VecDeque::new(), shares: None }
    }
}

impl<T> Deferred<T> {
    /// Returns the number of deferred connections.
    pub fn len(&self) -> usize {
        self.fair.len() + self.unfair.len()
    }

    /// Returns whether no connections are deferred.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Defers a connection whose request arrived at `since_ns`. While sources share, earlier
    /// deferred connections of the same source count against its share.
    pub fn push(
        &mut self,
        now_ns: u64,
        token: T,
        since_ns: u64,
        source: Source,
        share: Option<Share>,
    ) {
        let is_fair = share.is_none_or(|share| {
            let shares = self.shares.get_or_insert_with(|| Box::new(Shares::new(BURST)));
            let claim = shares.claim(now_ns, source, share.each_ns, share.weight);
            if claim.is_fair {
                shares.grant(claim);
            }
            // A single source has no other to share with.
            claim.is_fair || shares.weight() <= 1
        });
        let queue = if is_fair { &mut self.fair } else { &mut self.unfair };
        queue.push_back(Waiting { token, since_ns });
    }

    /// Removes and returns a connection whose request arrived before `before_ns`, nanoseconds.
    pub fn pop_stale(&mut self, before_ns: u64) -> Option<T> {
        let queues = [&mut self.unfair, &mut self.fair];
        let is_stale = |waiting: &mut Waiting<T>| waiting.since_ns < before_ns;
        queues.into_iter().find_map(|queue| queue.pop_front_if(is_stale)).map(|each| each.token)
    }

    /// Removes and returns the connection to be served next.
    pub fn pop_newest(&mut self) -> Option<T> {
        self.fair.pop_back().or_else(|| self.unfair.pop_back()).map(|each| each.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn take_all(deferred: &mut Deferred<u32>) -> Vec<u32> {
        std::iter::from_fn(|| deferred.pop_newest()).collect()
    }

    #[test]
    fn the_newest_comes_first() {
        let mut deferred = Deferred::default();
        (0..4).for_each(|n| deferred.push(0, n, u64::from(n), Source::v4(n), None));
        assert_eq!(
            (deferred.len(), deferred.pop_stale(1), deferred.pop_stale(1)),
            (4, Some(0), None)
        );
        assert_eq!(take_all(&mut deferred), [3, 2, 1]);
        assert!(deferred.is_empty());
    }

    #[test]
    fn who_has_had_a_share_comes_last_and_is_stale_like_others() {
        let mut deferred = Deferred::default();
        let share = Some(Share { each_ns: MS, weight: 0 });
        // Two ask once, one between them ten times.
        let sources = [1].into_iter().chain([2; 10]).chain([3]);
        for (n, source) in (0..).zip(sources) {
            deferred.push(0, n, u64::from(n), Source::v4(source << 8), share);
        }
        assert_eq!(take_all(&mut deferred.clone()), [11, 8, 7, 6, 5, 4, 3, 2, 1, 0, 10, 9]);
        let stale: Vec<_> = std::iter::from_fn(|| deferred.pop_stale(10)).collect();
        assert_eq!(stale, [9, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(take_all(&mut deferred), [11, 10]);
    }
}
