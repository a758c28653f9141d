//! The judge of work conservation: detects refusals on account of load while the loop had spare
//! time. Judges by when the loop slept, not by what the policy believes.

use std::collections::VecDeque;

use weir_accept::Spare;

/// Window over which the busy share is measured, and the time that a saturated loop may sleep in
/// it.
const SPAN_NS: u64 = 200_000_000;
const SLEPT_MAX_NS: u64 = SPAN_NS / 10;

/// Recent sleeps of a loop.
#[derive(Debug, Default)]
pub(crate) struct SleepHistory {
    /// Start and end of each sleep.
    over: VecDeque<(u64, u64)>,
    since_ns: Option<u64>,
}

impl SleepHistory {
    /// Records that the loop goes to sleep.
    pub(crate) fn sleep(&mut self, now_ns: u64) {
        self.since_ns = Some(now_ns);
    }

    /// Records that the loop wakes up.
    pub(crate) fn wake(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.since_ns.take() {
            self.over.push_back((since_ns, now_ns));
        }
        while self.over.front().is_some_and(|(_, until_ns)| until_ns + SPAN_NS < now_ns) {
            self.over.pop_front();
        }
    }

    /// Returns the time that the loop has to spare.
    pub(crate) fn spare(&self, now_ns: u64, target_ns: u64) -> Spare {
        let from_ns = now_ns.saturating_sub(SPAN_NS);
        let part =
            |&(since_ns, until_ns): &(u64, u64)| until_ns.saturating_sub(since_ns.max(from_ns));
        let now = self.since_ns.map(|since_ns| (since_ns, now_ns));
        let slept_ns: u64 = self.over.iter().chain(&now).map(part).sum();
        let last_ns = self.over.back().map(|(_, until_ns)| *until_ns);
        let has_just_slept = last_ns.is_some_and(|last_ns| last_ns + target_ns > now_ns);
        if now_ns < SPAN_NS || slept_ns > SLEPT_MAX_NS {
            Spare::Much
        } else if self.since_ns.is_some() || has_just_slept {
            Spare::Moment
        } else {
            Spare::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_loop_has_time_when_it_slept_lately_or_often() {
        let mut sleeps = SleepHistory::default();
        let spare = |sleeps: &SleepHistory, ms: u64| sleeps.spare(ms * MS, 20 * MS);
        assert_eq!((spare(&sleeps, 199), spare(&sleeps, 200)), (Spare::Much, Spare::None));
        sleeps.sleep(300 * MS);
        assert_eq!((spare(&sleeps, 300), spare(&sleeps, 321)), (Spare::Moment, Spare::Much));
        sleeps.wake(301 * MS);
        assert_eq!((spare(&sleeps, 320), spare(&sleeps, 321)), (Spare::Moment, Spare::None));
        sleeps.sleep(400 * MS);
        sleeps.wake(420 * MS);
        assert_eq!((spare(&sleeps, 500), spare(&sleeps, 502)), (Spare::Much, Spare::None));
    }
}
