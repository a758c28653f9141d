//! For how many completions a loop sleeps. To wake and to sleep costs as much as a request: while
//! completions come thick and fast it is better to sleep a little longer and find several; while
//! they do not, nobody may be kept waiting for it. Knows no ring.

use std::time::Duration;

/// The most it waits for: then there is enough to do.
const WANT_MAX: u32 = 32;

/// After it waited in vain for more, so many sleeps are for no more than were found.
const HOLD_OFF: u32 = 64;

/// For how many to sleep, learnt from what sleeps found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    /// How many are worth waiting for.
    pub want: u32,
    /// How long they are.
    pub within: Duration,
    hold_off: u32,
}

impl Gathering {
    /// Nobody has been found; one is worth waiting for.
    pub(super) fn new(within: Duration) -> Self {
        Self { want: 1, within, hold_off: 0 }
    }

    /// A sleep has ended, and so many were found. As many as were wanted: there may be more in it.
    /// Fewer: that took as long as it may, and does not happen again soon.
    pub(super) fn found(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if self.within.is_zero() {
            return;
        }
        if count < self.want {
            self.want = count.max(1);
            self.hold_off = HOLD_OFF;
        } else if self.hold_off > 0 {
            self.hold_off -= 1;
        } else {
            self.want = (self.want + 1).min(WANT_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What sleeps want when `there(want)` are found by a sleep that wants so many.
    fn learnt(sleeps: usize, there: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut gathering = Gathering::new(Duration::from_micros(50));
        let mut wants = Vec::new();
        for _ in 0..sleeps {
            wants.push(gathering.want);
            gathering.found(there(gathering.want) as usize);
        }
        wants
    }

    #[test]
    fn a_client_alone_is_hardly_ever_kept_waiting() {
        let wants = learnt(100 * HOLD_OFF as usize, |_| 1);
        let kept_waiting = wants.iter().filter(|&&want| want > 1).count();
        assert!((90..=100).contains(&kept_waiting), "{kept_waiting}");
    }

    #[test]
    fn where_more_come_in_time_more_are_waited_for_up_to_a_bound() {
        assert_eq!(learnt(100, |want| want).last(), Some(&WANT_MAX));
        assert!(learnt(1000, |want| want.min(7)).iter().all(|&want| want <= 8));
    }

    #[test]
    fn without_time_nobody_waits() {
        let mut gathering = Gathering::new(Duration::ZERO);
        (0..100).for_each(|_| gathering.found(5));
        assert_eq!(gathering.want, 1);
    }
}
