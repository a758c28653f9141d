//! When a queue is an overload and when it is a burst. Knows how long those wait and whether their
//! number falls; not what is done about it.
//!
//! A queue that empties is what queues are for. An overload is a wait above the target that lasts
//! (CoDel's standing queue, RFC 8289 §4.1) and does not fall, or one so long that whoever is last
//! may be gone before it is over.

/// How often it is looked whether the queue falls, in targets.
const LOOK_TARGETS: u64 = 2;

/// How long a wait above the target is borne while it does not fall, in targets.
const PATIENCE_TARGETS: u64 = 10;

/// The same shortly after an overload, in targets.
const ALERT_TARGETS: u64 = 3;

/// How long after an overload that is, in targets.
const ALERT_FOR_TARGETS: u64 = 100;

/// A wait that is not borne at all, in targets.
const WAIT_MAX_TARGETS: u64 = 16;

/// Watches a queue while the server is not overloaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Onset {
    target_ns: u64,
    above: Option<Above>,
    alert_until_ns: u64,
}

/// A stretch in which the wait has been above the target and has not fallen.
#[derive(Clone, Copy, Debug)]
struct Above {
    since_ns: u64,
    looked_ns: u64,
    level: u64,
}

impl Onset {
    pub(super) fn new(target_ns: u64) -> Self {
        Self { target_ns, above: None, alert_until_ns: 0 }
    }

    /// Nobody waits.
    pub(super) fn idle(&mut self) {
        self.above = None;
    }

    /// An overload is over.
    pub(super) fn calmed(&mut self, now_ns: u64) {
        self.above = None;
        self.alert_until_ns = now_ns + ALERT_FOR_TARGETS * self.target_ns;
    }

    /// Whether this is an overload: `wait_ns` is what the next to come will wait, `level` anything
    /// that falls as the queue does.
    pub(super) fn is_overload(&mut self, now_ns: u64, wait_ns: u64, level: u64) -> bool {
        if wait_ns <= self.target_ns {
            self.above = None;
            return false;
        }
        if wait_ns > WAIT_MAX_TARGETS * self.target_ns {
            return true;
        }
        let fresh = Above { since_ns: now_ns, looked_ns: now_ns, level };
        let above = self.above.get_or_insert(fresh);
        let alert = now_ns < self.alert_until_ns;
        let patience = if alert { ALERT_TARGETS } else { PATIENCE_TARGETS };
        if now_ns - above.looked_ns >= LOOK_TARGETS * self.target_ns {
            let falls = level.saturating_mul(50) < above.level.saturating_mul(49);
            let since_ns = if falls { now_ns } else { above.since_ns };
            *above = Above { since_ns, ..fresh };
        }
        now_ns - above.since_ns >= patience * self.target_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// When a queue that is `level(ms)` long, each of whom takes 0.1 ms, is called an overload.
    fn called_after(onset: &mut Onset, level: impl Fn(u64) -> u64) -> Option<u64> {
        (0..2_000).find(|&ms| {
            let queue = level(ms);
            onset.is_overload(ms * MS, queue * MS / 10, queue)
        })
    }

    #[test]
    fn a_queue_that_grows_is_an_overload_in_time() {
        // Twice what is served: 10 more a millisecond, 320 ms of work after 320 ms.
        let after = called_after(&mut Onset::new(20 * MS), |ms| 10 * ms).unwrap();
        assert!((200..240).contains(&after), "{after}");
        // Ten times: what is in the queue is too much after 36 ms.
        let after = called_after(&mut Onset::new(20 * MS), |ms| 90 * ms).unwrap();
        assert!((30..50).contains(&after), "{after}");
    }

    #[test]
    fn a_full_queue_that_stands_is_one_and_a_burst_is_none() {
        assert!(called_after(&mut Onset::new(20 * MS), |_| 400).is_some());
        let burst = |ms: u64| 2_000_u64.saturating_sub(7 * ms);
        assert_eq!(called_after(&mut Onset::new(20 * MS), burst), None);
        let every_second = |ms: u64| burst(ms % 1_000);
        assert_eq!(called_after(&mut Onset::new(20 * MS), every_second), None);
    }

    #[test]
    fn a_short_wait_never_is() {
        assert_eq!(called_after(&mut Onset::new(20 * MS), |_| 199), None);
    }

    #[test]
    fn shortly_after_an_overload_less_is_borne() {
        let mut onset = Onset::new(20 * MS);
        onset.calmed(0);
        let after = called_after(&mut onset, |_| 400).unwrap();
        assert!((60..100).contains(&after), "{after}");
    }
}
