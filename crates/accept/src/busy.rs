//! Saturation of a loop, without which no work may be refused: the accounting behind the crate's
//! promise of work conservation.

use std::collections::VecDeque;

use crate::View;

/// Window over which the busy share is measured, nanoseconds.
const SPAN_NS: u64 = 200_000_000;

/// Divisor of that window: a saturated loop may have slept for a tenth of it.
const SLEPT_PART: u64 = 10;

/// Divisor of the delay target: what a loop may sleep until it is judged again.
const UNSEEN_PART: u64 = 10;

/// Minimum distance between two recorded marks, nanoseconds.
const STEP_NS: u64 = 5_000_000;

/// Time that a loop has to spare, by its recent sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// Much: it slept for more than a tenth of the last 200 ms, or less is known of it.
    Much,
    /// A moment: it slept within the last delay target, and was busy otherwise.
    Moment,
    /// None: it is saturated.
    None,
}

/// Account of a loop's recent sleep. It is updated at the start of each accept-phase, and has no
/// information from before the first.
#[derive(Clone, Debug)]
pub struct Busy {
    target_ns: u64,
    /// Marks of the time and of the loop's total sleep at that time: one from before the window,
    /// and those in it.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at_ns: u64,
    slept_ns: u64,
}

impl Busy {
    /// Creates an account for a delay target.
    pub fn new(target_ns: u64) -> Self {
        Self { target_ns, marks: VecDeque::new() }
    }

    /// Updates the account and returns the time to spare: none if the loop was awake for the whole
    /// of the last delay target, and for nine tenths of the last 200 ms and of what follows until
    /// it is judged again.
    pub fn spare(&mut self, now_ns: u64, view: &View) -> Spare {
        self.mark(now_ns, view.slept_ns);
        let Some(before) = self.marks.front().filter(|mark| mark.at_ns + SPAN_NS <= now_ns) else {
            return Spare::Much;
        };
        // The mark may be older than the stretch: then this is more than was slept in it.
        let slept_ns = view.slept_ns.saturating_sub(before.slept_ns);
        let awake_ns = now_ns.saturating_sub(view.woke_ns);
        if slept_ns + self.target_ns / UNSEEN_PART > SPAN_NS / SLEPT_PART {
            Spare::Much
        } else if awake_ns < self.target_ns {
            Spare::Moment
        } else {
            Spare::None
        }
    }

    fn mark(&mut self, now_ns: u64, slept_ns: u64) {
        let last_ns = self.marks.back().map(|mark| mark.at_ns);
        if last_ns.is_none_or(|last_ns| now_ns >= last_ns + STEP_NS) {
            self.marks.push_back(Mark { at_ns: now_ns, slept_ns });
        }
        while self.marks.get(1).is_some_and(|second| second.at_ns + SPAN_NS <= now_ns) {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Returns whether the loop is saturated after steps of a time awake and a time asleep, ms.
    fn after(steps: impl IntoIterator<Item = (u64, u64)>) -> bool {
        spare_after(steps) == Spare::None
    }

    fn spare_after(steps: impl IntoIterator<Item = (u64, u64)>) -> Spare {
        let mut busy = Busy::new(20 * MS);
        let (mut now_ns, mut view) = (0, View::default());
        for (awake_ms, asleep_ms) in steps {
            busy.spare(now_ns, &view);
            now_ns += asleep_ms * MS;
            if asleep_ms > 0 {
                view.slept_ns += asleep_ms * MS;
                view.woke_ns = now_ns;
            }
            busy.spare(now_ns, &view);
            now_ns += awake_ms * MS;
        }
        busy.spare(now_ns, &view)
    }

    #[test]
    fn a_loop_that_never_sleeps_is_saturated_after_a_while() {
        assert!(!after([(1, 0); 199]));
        assert!(after([(1, 0); 201]));
    }

    #[test]
    fn a_loop_that_has_just_slept_is_not() {
        let busy = [(1, 0); 400];
        assert_eq!(spare_after(busy.into_iter().chain([(19, 1)])), Spare::Moment);
        assert_eq!(spare_after(busy.into_iter().chain([(20, 1)])), Spare::None);
    }

    #[test]
    fn a_loop_that_sleeps_a_tenth_of_its_time_is_not() {
        let mostly = |asleep_ms| after([(30, asleep_ms); 40]);
        assert!(mostly(2));
        assert!(!mostly(5));
        assert_eq!(spare_after([(10, 5); 40]), Spare::Much);
    }

    #[test]
    fn a_long_sleep_is_forgotten_after_the_stretch() {
        assert!(after([(1, 5_000)].into_iter().chain([(1, 0); 201])));
    }

    proptest! {
        /// Compares the account with the definition, over random sequences.
        #[test]
        fn saturated_means_what_is_said(
            steps in prop::collection::vec((0..40_u64, 0..30_u64), 1..200),
        ) {
            if after(steps.iter().copied()) {
                let mut slept = Vec::new();
                let mut end_ms = 0;
                for (awake_ms, asleep_ms) in &steps {
                    slept.push((end_ms, end_ms + asleep_ms));
                    end_ms += asleep_ms + awake_ms;
                }
                let slept_since = |from_ms: u64| -> u64 {
                    let asleep = slept.iter();
                    asleep.map(|&(from, until)| until.saturating_sub(from_ms.max(from))).sum()
                };
                prop_assert!(end_ms >= 200);
                prop_assert_eq!(slept_since(end_ms - 20), 0);
                prop_assert!(slept_since(end_ms - 200) <= 20);
            }
        }
    }
}
