//! The algebra of scalable select (banga-scalable §4.1), over words of 64 descriptors: sets in,
//! sets out. Makes no call; independent of the source of hints and answers.
//!
//! Given `S` for SELECTING, and each of the three sets of select(2) separately:
//!
//! ```text
//! CHECKED     = S ∩ (¬INTERESTED ∪ READY ∪ HINTS), of any of the three
//! INTERESTED' = S ∪ INTERESTED
//! READY'      = (READY \ CHECKED) ∪ (INTERESTED' ∩ C(CHECKED))
//! HINTS'      = HINTS \ CHECKED
//! result      = S ∩ READY'
//! ```
//!
//! The paper writes `READY' = C(INTERESTED' ∩ …)`, and says in words that only those in SELECTING
//! are checked; the words are followed here. So a hint for a descriptor that is not currently
//! selected stays, and so does its READY, until it is selected and checked.
//!
//! HINTS is a single set, of descriptors and not of directions. A check that consumes a hint
//! therefore covers all three directions, and READY' records each one that is in INTERESTED,
//! selected now or not; a direction outside INTERESTED is checked when it enters. Hence the
//! invariant: **a direction in INTERESTED, and in neither READY nor HINTS, is not ready**, as long
//! as every change to ready is announced.

/// A word of each of select's three maps: reading, writing, exceptional conditions.
pub(crate) type Sets = [u64; 3];

/// Known state of 64 descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    interested: Sets,
    ready: Sets,
    hints: u64,
    /// Descriptors whose changes are never announced: they always have a hint.
    mute: u64,
}

/// Returns the descriptors in any of the three sets.
pub(crate) fn any(sets: Sets) -> u64 {
    sets[0] | sets[1] | sets[2]
}

impl Word {
    /// CHECKED: descriptors to check before the result for the selected ones is known.
    pub(crate) fn in_doubt(&self, selecting: Sets) -> u64 {
        let doubtful = |set: usize| !self.interested[set] | self.ready[set] | self.hints;
        (selecting[0] & doubtful(0)) | (selecting[1] & doubtful(1)) | (selecting[2] & doubtful(2))
    }

    /// INTERESTED'.
    pub(crate) fn select(&mut self, selecting: Sets) {
        for (interested, selecting) in self.interested.iter_mut().zip(selecting) {
            *interested |= selecting;
        }
    }

    /// READY' and HINTS', where `answers` is C of `checked`. Call [`Word::select`] first.
    pub(crate) fn learn(&mut self, checked: u64, answers: Sets) {
        for (set, answer) in answers.into_iter().enumerate() {
            let known = self.ready[set] & !checked;
            self.ready[set] = known | (answer & checked & self.interested[set]);
        }
        self.hints = (self.hints & !checked) | self.mute;
    }

    /// Records hints, kept until they are checked; only descriptors in INTERESTED need one.
    pub(crate) fn hint(&mut self, changed: u64) {
        self.hints |= changed & any(self.interested);
    }

    /// Marks descriptors for which no hint will come.
    pub(crate) fn mute(&mut self, mute: u64) {
        self.mute |= mute;
        self.hints |= mute;
    }

    /// Forgets closed descriptors: their numbers count as never seen.
    pub(crate) fn forget(&mut self, gone: u64) {
        for set in self.interested.iter_mut().chain(&mut self.ready) {
            *set &= !gone;
        }
        self.hints &= !gone;
        self.mute &= !gone;
    }

    /// Returns the result of select.
    pub(crate) fn result(&self, selecting: Sets) -> Sets {
        std::array::from_fn(|set| selecting[set] & self.ready[set])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Sets, Word};

    /// Ground truth of the proofs: what is ready, and which descriptors were announced since the
    /// last query.
    #[derive(Default)]
    struct Truth {
        ready: Sets,
        announced: u64,
    }

    /// An event between two calls, or a call.
    #[derive(Clone, Debug)]
    enum Step {
        /// Replaces the ready sets; descriptors newly ready in any direction are announced, and the
        /// others of `rumour` spuriously.
        Change { ready: Sets, rumour: u64 },
        /// Closes and reopens numbers, in the state given; pending announcements of the old ones
        /// are lost.
        Reopen { gone: u64, ready: Sets },
        /// A call; hints are taken before the check, or only after it.
        Select { selecting: Sets, late: bool },
    }

    fn few() -> impl Strategy<Value = u64> {
        (any::<u64>(), any::<u64>()).prop_map(|(one, other)| one & other)
    }

    fn sets() -> impl Strategy<Value = Sets> {
        [few(), few(), few()]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (sets(), few()).prop_map(|(ready, rumour)| Step::Change { ready, rumour }),
            1 => (few(), sets()).prop_map(|(gone, ready)| Step::Reopen { gone, ready }),
            4 => (sets(), any::<bool>())
                .prop_map(|(selecting, late)| Step::Select { selecting, late }),
        ]
    }

    impl Truth {
        fn change(&mut self, ready: Sets, rumour: u64) {
            let news: Sets = std::array::from_fn(|set| ready[set] & !self.ready[set]);
            self.announced |= super::any(news) | rumour;
            self.ready = ready;
        }

        fn reopen(&mut self, gone: u64, ready: Sets) {
            for (now, new) in self.ready.iter_mut().zip(ready) {
                *now = (*now & !gone) | (new & gone);
            }
            self.announced &= !gone;
        }
    }

    /// Makes a call, in either order: hints first, or C first and then later hints.
    fn select(word: &mut Word, truth: &mut Truth, selecting: Sets, late: bool) -> Sets {
        if !late {
            word.hint(std::mem::take(&mut truth.announced));
        }
        let checked = word.in_doubt(selecting);
        word.select(selecting);
        word.learn(checked, truth.ready);
        if late {
            word.hint(std::mem::take(&mut truth.announced));
            word.learn(word.in_doubt(selecting), truth.ready);
        }
        word.result(selecting)
    }

    proptest! {
        #[test]
        fn the_result_is_what_is_selected_and_ready_whatever_happened_before(
            steps in prop::collection::vec(step(), 1..40),
        ) {
            let (mut word, mut truth) = (Word::default(), Truth::default());
            for step in steps {
                match step {
                    Step::Change { ready, rumour } => truth.change(ready, rumour),
                    Step::Reopen { gone, ready } => {
                        truth.reopen(gone, ready);
                        word.forget(gone);
                    }
                    Step::Select { selecting, late } => {
                        let right: Sets =
                            std::array::from_fn(|set| selecting[set] & truth.ready[set]);
                        prop_assert_eq!(select(&mut word, &mut truth, selecting, late), right);
                    }
                }
            }
        }

        #[test]
        fn who_is_known_not_to_be_ready_is_not_asked(selecting in sets(), ready in sets()) {
            let (mut word, mut truth) = (Word::default(), Truth { ready, announced: 0 });
            let result = select(&mut word, &mut truth, selecting, false);
            prop_assert_eq!(word.in_doubt(selecting), super::any(result));
            word.hint(u64::MAX);
            prop_assert_eq!(word.in_doubt(selecting), super::any(selecting));
        }

        #[test]
        fn a_hint_waits_until_its_descriptor_is_selected(
            before in sets(), others in sets(), ready in sets(),
        ) {
            let (mut word, mut truth) = (Word::default(), Truth::default());
            select(&mut word, &mut truth, before, false);
            truth.change(ready, 0);
            let others: Sets = std::array::from_fn(|set| others[set] & !super::any(before));
            select(&mut word, &mut truth, others, false);
            let right: Sets = std::array::from_fn(|set| before[set] & ready[set]);
            prop_assert_eq!(select(&mut word, &mut truth, before, false), right);
        }

        #[test]
        fn the_mute_are_asked_whenever_they_are_selected(mute in few(), selecting in sets()) {
            let mut word = Word::default();
            word.mute(mute);
            word.select(selecting);
            word.learn(super::any(selecting), [0; 3]);
            prop_assert_eq!(word.in_doubt(selecting), super::any(selecting) & mute);
            word.forget(mute);
            word.select(selecting);
            word.learn(super::any(selecting), [0; 3]);
            prop_assert_eq!(word.in_doubt(selecting), 0);
        }
    }

    #[test]
    fn a_hint_used_up_for_reading_is_not_lost_for_writing() {
        let mut word = Word::default();
        word.select([1, 1, 0]);
        word.learn(1, [0, 0, 0]);
        word.hint(1);
        assert_eq!(word.in_doubt([1, 0, 0]), 1);
        word.learn(1, [1, 1, 0]);
        assert_eq!(word.result([1, 0, 0]), [1, 0, 0]);
        assert_eq!(word.in_doubt([0, 1, 0]), 1, "known to be ready, so it is asked");
        assert_eq!(word.result([0, 1, 0]), [0, 1, 0]);
    }
}
