//! The judge of work conservation: detects refusals on account of load while the loop had spare
//! time. Judges by when the loop slept, not by what the policy believes.

use std::collections::VecDeque;

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

    /// Returns whether the loop has spare time, so that no refusal is allowed now.
    pub(crate) fn has_time(&self, now_ns: u64, target_ns: u64) -> bool {
        let from_ns = now_ns.saturating_sub(SPAN_NS);
        let part =
            |&(since_ns, until_ns): &(u64, u64)| until_ns.saturating_sub(since_ns.max(from_ns));
        let slept_ns: u64 = self.over.iter().map(part).sum();
        let last_ns = self.over.back().map_or(0, |(_, until_ns)| *until_ns);
        self.since_ns.is_some()
            || now_ns < SPAN_NS
            || last_ns + target_ns > now_ns && !self.over.is_empty()
            || slept_ns > SLEPT_MAX_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_loop_has_time_when_it_slept_lately_or_often() {
        let mut sleeps = SleepHistory::default();
        assert!(sleeps.has_time(199 * MS, 20 * MS) && !sleeps.has_time(200 * MS, 20 * MS));
        sleeps.sleep(300 * MS);
        assert!(sleeps.has_time(300 * MS, 20 * MS));
        sleeps.wake(301 * MS);
        assert!(sleeps.has_time(320 * MS, 20 * MS) && !sleeps.has_time(321 * MS, 20 * MS));
        sleeps.sleep(400 * MS);
        sleeps.wake(420 * MS);
        assert!(sleeps.has_time(500 * MS, 20 * MS) && !sleeps.has_time(502 * MS, 20 * MS));
    }
}
