//! For how many completions a loop sleeps. To wake and to sleep costs as much as a request: while
//! completions come thick and fast it is better to sleep a little longer and find several; while
//! they do not, nobody may be kept waiting for it. Knows no ring.

use std::time::Duration;

/// The most it waits for: then there is enough to do.
const WANT_MAX: u32 = 32;

/// After it waited in vain for more, so many sleeps are for no more than were found.
const HOLD_OFF: u32 = 64;

/// How long a sleep waits for what is sure to be there, and was not: a socket was full.
const SURE_WITHIN: Duration = Duration::from_millis(1);

/// For how many to sleep, learnt from what sleeps found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    /// How many are worth waiting for.
    want: u32,
    /// How long they are; not at all when it is zero.
    within: Duration,
    hold_off: u32,
    /// Nobody came in time when there was something else already.
    is_quiet: bool,
}

impl Gathering {
    /// Nobody has been found; one is worth waiting for.
    pub(super) fn new(within: Duration) -> Self {
        Self { want: 1, within, hold_off: 0, is_quiet: false }
    }

    /// How long a sleep for more than one may last, when there is one.
    pub(super) fn within(&self) -> Duration {
        if self.within.is_zero() { SURE_WITHIN } else { self.within }
    }

    /// For how many to sleep when so many are `sure` to be there at once, and nobody waits for
    /// them.
    pub(super) fn wanted(&self, sure: u32) -> u32 {
        if self.is_quiet { self.want } else { self.want + sure }
    }

    /// A sleep for so many has ended, and `count` were found. As many as were wanted: there may be
    /// more in it. Fewer: that took as long as it may, and does not happen again soon.
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

    /// What sleeps want when `there(want)` are found by a sleep that wants so many.
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
