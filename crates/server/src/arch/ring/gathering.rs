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
const SURE_WITHIN: Duration = Duration::from_millis(1);

/// Number of completions to sleep for, learned from earlier sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    /// Number of completions worth waiting for.
    want: u32,
    /// Time for which they are worth waiting; zero if they are not.
    within: Duration,
    hold_off: u32,
    /// True after a sleep that found no completions besides the certain ones.
    is_quiet: bool,
}

impl Gathering {
    /// Creates an estimate from no sleeps: one completion is worth waiting for.
    pub(super) fn new(within: Duration) -> Self {
        Self { want: 1, within, hold_off: 0, is_quiet: false }
    }

    /// Returns the maximum time of a sleep for more than one completion, once there is one.
    pub(super) fn within(&self) -> Duration {
        if self.within.is_zero() { SURE_WITHIN } else { self.within }
    }

    /// Returns the number of completions to sleep for, when `sure` of them are certain to come at
    /// once and are not waited for by a client.
    pub(super) fn wanted(&self, sure: u32) -> u32 {
        if self.is_quiet { self.want } else { self.want + sure }
    }

    /// Learns from a sleep for `wanted` completions that found `count`. If it found enough, more
    /// may be worth waiting for. If it found fewer, it took the maximum time, which does not happen
    /// again soon.
    pub(super) fn found(&mut self, count: usize, wanted: u32) {
        let missing = wanted.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        if missing > 0 {
            self.is_quiet = missing >= self.want;
            self.want = self.want.saturating_sub(missing).max(1);
            self.hold_off = HOLD_OFF;
        } else if self.hold_off > 0 {
            self.hold_off -= 1;
        } else {
            self.is_quiet = false;
            let step = u32::from(!self.within.is_zero());
            self.want = (self.want + step).min(WANT_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the target of each sleep, when a sleep for `wanted` completions finds
    /// `there(wanted)`.
    fn learnt(sleeps: usize, sure: u32, there: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut gathering = Gathering::new(Duration::from_micros(50));
        let mut wants = Vec::new();
        for _ in 0..sleeps {
            let wanted = gathering.wanted(sure);
            wants.push(wanted);
            gathering.found(there(wanted) as usize, wanted);
        }
        wants
    }

    #[test]
    fn a_client_alone_is_hardly_ever_kept_waiting() {
        for sure in [0, 1, 2] {
            let there = sure.max(1);
            let wants = learnt(100 * HOLD_OFF as usize, sure, |_| there);
            let kept_waiting = wants.iter().filter(|&&want| want > there).count();
            assert!((90..=200).contains(&kept_waiting), "{kept_waiting}");
        }
    }

    #[test]
    fn where_more_come_in_time_more_are_waited_for_up_to_a_bound() {
        assert_eq!(learnt(100, 0, |want| want).last(), Some(&WANT_MAX));
        assert_eq!(learnt(100, 9, |want| want).last(), Some(&(WANT_MAX + 9)));
        assert!(learnt(1000, 0, |want| want.min(7)).iter().all(|&want| want <= 8));
    }

    #[test]
    fn what_is_sure_to_be_there_does_not_count_where_others_come() {
        let wants = learnt(1000, 4, |want| want.min(11));
        assert!(wants.iter().skip(10).all(|&want| want == 11 || want == 12), "{wants:?}");
    }

    #[test]
    fn without_time_one_is_waited_for_beside_what_is_sure() {
        let mut gathering = Gathering::new(Duration::ZERO);
        for _ in 0..1000 {
            assert_eq!(gathering.wanted(3), 4);
            gathering.found(9, 4);
        }
        // Nothing but what was sure came in time: then that ends the sleep too, for a while.
        gathering.found(3, 4);
        let wants = (0..100).map(|_| {
            let wanted = gathering.wanted(3);
            gathering.found(5, wanted);
            wanted
        });
        assert_eq!(wants.filter(|&wanted| wanted == 1).count(), HOLD_OFF as usize + 1);
    }
}
