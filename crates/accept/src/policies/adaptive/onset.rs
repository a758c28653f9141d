//! Onset of an overload, as opposed to a burst. Judges by how long connections wait and whether
//! their number falls.
//!
//! A queue that empties is what queues are for. An overload is a wait above the target that lasts
//! (CoDel's standing queue, RFC 8289 §4.1) and does not fall, or a wait so long that the last
//! client may be gone before it is over.

/// Time for which a wait above the target is tolerated while it does not fall, in targets. No
/// longer, because nothing is refused before the loop has been busy for ten targets
/// ([`crate::Busy`]).
const PATIENCE_TARGETS: u64 = 3;

/// Maximum wait that is tolerated at all, in targets.
const WAIT_MAX_TARGETS: u64 = 16;

/// A detector that watches a queue while the server is not overloaded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Onset {
    target_ns: u64,
    above: Option<Above>,
}

/// A stretch in which the wait has been above the target.
#[derive(Clone, Copy, Debug)]
struct Above {
    /// Start of the stretch, or the last time the level was seen to fall.
    since_ns: u64,
    /// Highest level so far, and the lowest since it first fell.
    high: u64,
    low: u64,
    has_fallen: bool,
}

impl Onset {
    pub(super) fn new(target_ns: u64) -> Self {
        Self { target_ns, above: None }
    }

    /// Records that no connections wait.
    pub(super) fn idle(&mut self) {
        self.above = None;
    }

    /// Returns whether this is an overload. `wait_ns` is the expected wait of the next connection,
    /// `level` any quantity that falls as the queue does. A wait up to `short_ns` is none, even if
    /// it lasts.
    pub(super) fn is_overload(
        &mut self,
        now_ns: u64,
        wait_ns: u64,
        level: u64,
        short_ns: u64,
    ) -> bool {
        if wait_ns <= self.target_ns.max(short_ns) {
            self.above = None;
            return false;
        }
        if wait_ns > WAIT_MAX_TARGETS * self.target_ns {
            return true;
        }
        let fresh = Above { since_ns: now_ns, high: level, low: level, has_fallen: false };
        let above = self.above.get_or_insert(fresh);
        if level > above.high {
            // One that falls and grows again by less than it was does not empty, step by step.
            let is_another = level / 2 > above.high;
            if is_another || !above.has_fallen {
                (above.low, above.has_fallen) = (level, false);
            }
            above.high = level;
        } else if level.saturating_mul(50) < above.low.saturating_mul(49) {
            (above.low, above.since_ns, above.has_fallen) = (level, now_ns, true);
        }
        now_ns - above.since_ns >= PATIENCE_TARGETS * self.target_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns when a queue of `level(ms)` connections, each of which takes 0.1 ms, is judged an
    /// overload.
    fn called_after(onset: &mut Onset, level: impl Fn(u64) -> u64) -> Option<u64> {
        (0..2_000).find(|&ms| {
            let queue = level(ms);
            onset.is_overload(ms * MS, queue * MS / 10, queue, 0)
        })
    }

    #[test]
    fn a_queue_that_grows_is_an_overload_in_time() {
        // Twice what is served: 10 more a millisecond, 20 ms of work after 20 ms.
        let after = called_after(&mut Onset::new(20 * MS), |ms| 10 * ms).unwrap();
        assert!((60..100).contains(&after), "{after}");
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
    fn a_queue_that_is_full_and_swings_is_one() {
        let after = called_after(&mut Onset::new(20 * MS), |ms| 2_900 + 40 * (ms % 7)).unwrap();
        assert!((60..100).contains(&after), "{after}");
    }

    #[test]
    fn a_queue_that_grows_by_bursts_is_one() {
        let bursts = |ms: u64| 1_000 + 10 * ms + (60 - ms % 60) * 3;
        let after = called_after(&mut Onset::new(20 * MS), bursts).unwrap();
        assert!((60..160).contains(&after), "{after}");
        // But not one that comes while a small one is served.
        let larger = |ms: u64| if ms < 50 { 300 - ms } else { 3_000 - 10 * ms.min(300) };
        assert_eq!(called_after(&mut Onset::new(20 * MS), larger), None);
    }

    #[test]
    fn a_short_wait_never_is() {
        assert_eq!(called_after(&mut Onset::new(20 * MS), |_| 199), None);
    }
}
