//! Requests that keep their places though their clients have gone: for how long, and how many.
//!
//! A server works for a request to its end, as a rule, whether its client is still there or not. A
//! place given to another meanwhile has the server hold more requests than the limit. Where the
//! limit is so high that clients leave before they are answered, each place given up early makes
//! that worse, until no reply comes at all from which a policy could learn of it. So places are
//! kept even by all requests, as long as the server seems to come to them.
//!
//! Those that it passes over keep half of the limit, so that a part of a server that hangs does not
//! take the rest along. A request is passed over once as many others have ended since its client
//! left as may be in flight: no more can have been before it. Where nothing ends, the server may
//! just be slow, and has several times as long as the client had waited.

use std::collections::BTreeMap;

/// Time for which a request keeps its place, as a multiple of the time that its client has waited.
/// The limit in flight may be so many times too high and yet be found out.
const KEPT_EACH: u64 = 16;

/// Time for which nothing may end before a request is passed over, as a multiple of the same.
const SILENT_EACH: u64 = 4;

/// Part of the limit, as its divisor, that those passed over may keep.
const PASSED_OVER_PART: usize = 2;

/// A request that keeps its place though its client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Time until which it keeps its place, nanoseconds.
    pub until_ns: u64,
    serial: u64,
}

struct Departed<T> {
    whose: T,
    left_ns: u64,
    /// Time that the client had waited, nanoseconds.
    waited_ns: u64,
    /// Requests that had ended when it left.
    ended: u64,
}

/// Requests that keep their places, in the order in which their clients left. `T` says whose a
/// request is.
pub(super) struct Departures<T> {
    departed: BTreeMap<u64, Departed<T>>,
    next: u64,
    /// Requests that have ended so far, but for those given up, and the time of the last.
    ended: u64,
    ended_ns: u64,
}

impl<T> Departures<T> {
    pub(super) fn new() -> Self {
        Self { departed: BTreeMap::new(), next: 0, ended: 0, ended_ns: 0 }
    }

    /// Adds a request whose client leaves now, after a wait of `waited_ns`.
    pub(super) fn add(&mut self, now_ns: u64, waited_ns: u64, whose: T) -> Departure {
        let serial = self.next;
        self.next += 1;
        let departed = Departed { whose, left_ns: now_ns, waited_ns, ended: self.ended };
        self.departed.insert(serial, departed);
        let kept_ns = waited_ns.saturating_mul(KEPT_EACH);
        Departure { until_ns: now_ns.saturating_add(kept_ns), serial }
    }

    /// Removes a request that has ended.
    pub(super) fn remove(&mut self, departure: Departure) {
        self.departed.remove(&departure.serial);
    }

    /// Records that a request has ended, whether its client was there or not.
    pub(super) fn note_ended(&mut self, now_ns: u64) {
        self.ended += 1;
        self.ended_ns = now_ns;
    }

    /// Removes and returns the oldest request, if it is passed over, and more have a place than may
    /// under this limit.
    pub(super) fn take_excess(&mut self, now_ns: u64, limit: usize) -> Option<T> {
        let is_overtaken = self.ended - self.oldest_in_excess(limit)?.ended >= limit as u64;
        if !is_overtaken && self.due_ns(limit)? > now_ns {
            return None;
        }
        self.departed.pop_first().map(|(_, departed)| departed.whose)
    }

    /// Returns when the oldest is passed over if nothing ends before.
    pub(super) fn due_ns(&self, limit: usize) -> Option<u64> {
        let oldest = self.oldest_in_excess(limit)?;
        let since_ns = self.ended_ns.max(oldest.left_ns);
        Some(since_ns.saturating_add(oldest.waited_ns.saturating_mul(SILENT_EACH)))
    }

    fn oldest_in_excess(&self, limit: usize) -> Option<&Departed<T>> {
        let is_excess = self.departed.len() > (limit / PASSED_OVER_PART).max(1);
        self.departed.values().next().filter(|_| is_excess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Requests whose clients leave after 100 ms.
    fn departures(count: u32) -> Departures<u32> {
        let mut departures = Departures::new();
        (0..count).for_each(|whose| _ = departures.add(100 * MS, 100 * MS, whose));
        departures
    }

    fn take_all(departures: &mut Departures<u32>, now_ns: u64, limit: usize) -> Vec<u32> {
        std::iter::from_fn(|| departures.take_excess(now_ns, limit)).collect()
    }

    #[test]
    fn a_place_is_kept_for_a_multiple_of_the_wait() {
        let departure = Departures::new().add(100 * MS, 30 * MS, ());
        assert_eq!(departure.until_ns, 580 * MS);
        let departure = Departures::new().add(1, u64::MAX, ());
        assert_eq!(departure.until_ns, u64::MAX);
    }

    #[test]
    fn those_that_a_server_passes_over_keep_half_of_the_limit() {
        let mut departures = departures(7);
        for _ in 0..8 {
            assert_eq!(departures.take_excess(101 * MS, 8), None);
            departures.note_ended(101 * MS);
        }
        assert_eq!(take_all(&mut departures, 101 * MS, 8), [0, 1, 2]);
        assert_eq!(departures.due_ns(8), None);
        departures.add(102 * MS, 100 * MS, 7);
        assert_eq!(departures.take_excess(102 * MS, 8), Some(3));
    }

    #[test]
    fn all_keep_their_places_while_a_slow_server_comes_to_each() {
        let mut departures = Departures::new();
        let kept: Vec<_> = (0..8).map(|whose| departures.add(0, 100 * MS, whose)).collect();
        for (departure, nth) in kept.into_iter().zip(1..) {
            assert_eq!(departures.take_excess(nth * 399 * MS, 8), None);
            departures.note_ended(nth * 399 * MS);
            departures.remove(departure);
        }
        assert!(departures.departed.is_empty());
    }

    #[test]
    fn half_is_given_up_where_nothing_ends_for_long() {
        let mut departures = departures(8);
        assert_eq!(departures.due_ns(8), Some(500 * MS));
        assert_eq!(departures.take_excess(499 * MS, 8), None);
        assert_eq!(take_all(&mut departures, 500 * MS, 8), [0, 1, 2, 3]);
        departures.note_ended(600 * MS);
        departures.add(600 * MS, 100 * MS, 8);
        assert_eq!(departures.due_ns(8), Some(1000 * MS));
    }

    #[test]
    fn one_may_keep_its_place_under_any_limit() {
        let mut departures = departures(1);
        for _ in 0..100 {
            departures.note_ended(200 * MS);
        }
        assert_eq!(departures.take_excess(900 * MS, 1), None);
        departures.add(900 * MS, MS, 1);
        assert_eq!(departures.take_excess(900 * MS, 1), Some(0));
    }
}
