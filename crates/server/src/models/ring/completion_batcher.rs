//! The number of completions for which a loop sleeps. To wake and to sleep costs as much as a
//! request: while completions come in quick succession, it pays to sleep a little longer and find
//! several; while they do not, no client may be kept waiting for it.

use std::time::Duration;

/// Maximum number of completions to wait for; with these there is enough to do.
const TARGET_MAX: u32 = 32;

/// Number of sleeps, after one that waited in vain, for which the target is not raised.
const HOLD_OFF: u32 = 64;

/// Maximum sleep for completions that are certain to come at once, but did not because a socket was
/// full.
const CERTAIN_WITHIN: Duration = Duration::from_millis(1);

/// Number of completions to sleep for, learned from earlier sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletionBatcher {
    /// Number of completions worth waiting for.
    target: u32,
    /// Time for which they are worth waiting; zero if they are not.
    within: Duration,
    hold_off: u32,
    /// True after a sleep that found no completions but the certain ones.
    is_quiet: bool,
}

impl CompletionBatcher {
    /// Creates a batcher that has learned nothing yet: one completion is worth waiting for.
    pub(super) fn new(within: Duration) -> Self {
        Self { target: 1, within, hold_off: 0, is_quiet: false }
    }

    /// Returns the maximum time of a sleep for more than one completion, once there is one.
    pub(super) fn within(&self) -> Duration {
        if self.within.is_zero() { CERTAIN_WITHIN } else { self.within }
    }

    /// Returns the number of completions to sleep for, when `certain` of them are certain to come
    /// at once and are not waited for by a client.
    pub(super) fn wanted(&self, certain: u32) -> u32 {
        if self.is_quiet { self.target } else { self.target + certain }
    }

    /// Learns from a sleep for `wanted` completions that found `count`. If it found enough, more
    /// may be worth waiting for. If it found fewer, it took the maximum time, which does not happen
    /// again soon.
    pub(super) fn found(&mut self, count: usize, wanted: u32) {
        let missing = wanted.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        if missing > 0 {
            self.is_quiet = missing >= self.target;
            self.target = self.target.saturating_sub(missing).max(1);
            self.hold_off = HOLD_OFF;
        } else if self.hold_off > 0 {
            self.hold_off -= 1;
        } else {
            self.is_quiet = false;
            let step = u32::from(!self.within.is_zero());
            self.target = (self.target + step).min(TARGET_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the target of each sleep, when a sleep for `wanted` completions finds
    /// `there(wanted)`.
    fn targets_after(sleeps: usize, certain: u32, there: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut batcher = CompletionBatcher::new(Duration::from_micros(50));
        let mut targets = Vec::new();
        for _ in 0..sleeps {
            let wanted = batcher.wanted(certain);
            targets.push(wanted);
            batcher.found(there(wanted) as usize, wanted);
        }
        targets
    }

    #[test]
    fn a_single_client_is_hardly_ever_kept_waiting() {
        for certain in [0, 1, 2] {
            let there = certain.max(1);
            let targets = targets_after(100 * HOLD_OFF as usize, certain, |_| there);
            let kept_waiting = targets.iter().filter(|&&target| target > there).count();
            assert!((90..=200).contains(&kept_waiting), "{kept_waiting}");
        }
    }

    #[test]
    fn the_target_grows_while_it_is_met_up_to_a_bound() {
        assert_eq!(targets_after(100, 0, |target| target).last(), Some(&TARGET_MAX));
        assert_eq!(targets_after(100, 9, |target| target).last(), Some(&(TARGET_MAX + 9)));
        assert!(targets_after(1000, 0, |target| target.min(7)).iter().all(|&target| target <= 8));
    }

    #[test]
    fn certain_completions_do_not_count_while_others_come() {
        let targets = targets_after(1000, 4, |target| target.min(11));
        assert!(targets.iter().skip(10).all(|&target| target == 11 || target == 12), "{targets:?}");
    }

    #[test]
    fn without_time_the_target_is_one_besides_the_certain_completions() {
        let mut batcher = CompletionBatcher::new(Duration::ZERO);
        for _ in 0..1000 {
            assert_eq!(batcher.wanted(3), 4);
            batcher.found(9, 4);
        }
        // Only certain completions came in time: for a while, they end the sleep too.
        batcher.found(3, 4);
        let targets = (0..100).map(|_| {
            let wanted = batcher.wanted(3);
            batcher.found(5, wanted);
            wanted
        });
        assert_eq!(targets.filter(|&wanted| wanted == 1).count(), HOLD_OFF as usize + 1);
    }
}
