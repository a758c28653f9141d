//! The number of completions for which a loop sleeps. To wake and to sleep costs as much as a
//! request: while completions come in quick succession, it pays to sleep a little longer and find
//! several; while they do not, no client may be kept waiting for it.

use std::time::Duration;

/// Maximum number of completions to wait for; with these there is enough to do.
const WANT_MAX: u32 = 32;

/// Number of sleeps, after one that waited in vain, for which the target is not raised.
const HOLD_OFF: u32 = 64;

/// Maximum sleep for completions that are certain to come at once, but did not because a socket was
/// full.
const CERTAIN_WITHIN: Duration = Duration::from_millis(1);

/// Number of completions to sleep for, learned from earlier sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletionBatcher {
    /// Number of completions worth waiting for.
    action: u32,
    /// Time for which they are worth waiting; zero if they are not.
    within: Duration,
    hold_off: u32,
    /// True after a sleep that found no completions besides the certain ones.
    is_quiet: bool,
}

impl CompletionBatcher {
    /// Creates an estimate from no sleeps: one completion is worth waiting for.
    pub(super) fn new(within: Duration) -> Self {
        Self { action: 1, within, hold_off: 0, is_quiet: false }
    }

    /// Returns the maximum time of a sleep for more than one completion, once there is one.
    pub(super) fn within(&self) -> Duration {
        if self.within.is_zero() { CERTAIN_WITHIN } else { self.within }
    }

    /// Returns the number of completions to sleep for, when `certain` of them are certain to come
    /// at once and are not waited for by a client.
    pub(super) fn wanted(&self, certain: u32) -> u32 {
        if self.is_quiet { self.action } else { self.action + certain }
    }

    /// Learns from a sleep for `wanted` completions that found `count`. If it found enough, more
    /// may be worth waiting for. If it found fewer, it took the maximum time, which does not happen
    /// again soon.
    pub(super) fn found(&mut self, count: usize, wanted: u32) {
        let missing = wanted.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        if missing > 0 {
            self.is_quiet = missing >= self.action;
            self.action = self.action.saturating_sub(missing).max(1);
            self.hold_off = HOLD_OFF;
        } else if self.hold_off > 0 {
            self.hold_off -= 1;
        } else {
            self.is_quiet = false;
            let step = u32::from(!self.within.is_zero());
            self.action = (self.action + step).min(WANT_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the target of each sleep, when a sleep for `wanted` completions finds
    /// `there(wanted)`.
    fn learnt(sleeps: usize, certain: u32, there: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut batcher = CompletionBatcher::new(Duration::from_micros(50));
        let mut wants = Vec::new();
        for _ in 0..sleeps {
            let wanted = batcher.wanted(certain);
            wants.push(wanted);
            batcher.found(there(wanted) as usize, wanted);
        }
        wants
    }

    #[test]
    fn a_client_alone_is_hardly_ever_kept_waiting() {
        for certain in [0, 1, 2] {
            let there = certain.max(1);
            let wants = learnt(100 * HOLD_OFF as usize, certain, |_| there);
            let kept_waiting = wants.iter().filter(|&&action| action > there).count();
            assert!((90..=200).contains(&kept_waiting), "{kept_waiting}");
        }
    }

    #[test]
    fn where_more_come_in_time_more_are_waited_for_up_to_a_bound() {
        assert_eq!(learnt(100, 0, |action| action).last(), Some(&WANT_MAX));
        assert_eq!(learnt(100, 9, |action| action).last(), Some(&(WANT_MAX + 9)));
        assert!(learnt(1000, 0, |action| action.min(7)).iter().all(|&action| action <= 8));
    }

    #[test]
    fn what_is_certain_to_be_there_does_not_count_where_others_come() {
        let wants = learnt(1000, 4, |action| action.min(11));
        assert!(wants.iter().skip(10).all(|&action| action == 11 || action == 12), "{wants:?}");
    }

    #[test]
    fn without_time_one_is_waited_for_beside_what_is_certain() {
        let mut batcher = CompletionBatcher::new(Duration::ZERO);
        for _ in 0..1000 {
            assert_eq!(batcher.wanted(3), 4);
            batcher.found(9, 4);
        }
        // Nothing but what was certain came in time: then that ends the sleep too, for a while.
        batcher.found(3, 4);
        let wants = (0..100).map(|_| {
            let wanted = batcher.wanted(3);
            batcher.found(5, wanted);
            wanted
        });
        assert_eq!(wants.filter(|&wanted| wanted == 1).count(), HOLD_OFF as usize + 1);
    }
}
