//! Number of SYNs that a filter may let through, so that the accept queue has the length it should:
//! the kernel reports the queue, and every SYN let through recently is assumed to be still in its
//! handshake.
//!
//! Recently means for a little longer than a handshake takes. The handshake of an older SYN has
//! ended and is in the queue, or never will be: its client has gone, sent its SYN twice, or never
//! was at that address. So no error accumulates that would have to be corrected later. Handshakes
//! in progress while the loop accepts at its rate are admitted on top of the window (rate times
//! round trip, divided by the part of handshakes that end), so that the window bounds the queue and
//! not the path.

use std::collections::VecDeque;

use crate::Syns;

/// Divisor of the mean round trip: a SYN counts as in its handshake for a quarter longer than that,
const RTT_PART: u64 = 4;

/// plus this, nanoseconds: the queue is only looked at once in a while.
const GRACE_NS: u64 = 2_000_000;

/// Divisor of the weight of a new sample in the mean round trip: an eighth.
const RTT_MEMORY: u64 = 8;

/// Number of marks kept per handshake time.
const MARKS: u64 = 16;

/// A long path is filled evenly, and never left empty, because the effect of a decision shows a
/// round trip later: in an eighth of the handshake time, as many SYNs are admitted as can be served
/// in it, times these factors, plus a quarter of the window.
const PACED_NS: u64 = 5_000_000;
const PACED_PART: usize = 8;
const PACE_MIN: f64 = 0.95;
const PACE_MAX: f64 = 1.5;
const PACED_WINDOW: u64 = 4;

/// Number of SYNs, and time in nanoseconds, after which the share of completed handshakes is
/// updated.
const JUDGED_SYNS: u64 = 64;
const JUDGED_NS: u64 = 200_000_000;

/// Account of one listening socket, since its filter was attached.
#[derive(Clone, Debug)]
pub struct Handshakes {
    queue: i64,
    rtt_ns: u64,
    seen_ns: u64,
    /// Marks of a time and the SYNs passed by then.
    marks: VecDeque<(u64, u64)>,
    accepted: u64,
    /// Share of the SYNs let through whose handshake ended; 1 until that is known.
    ended_part: f64,
    judged: Judged,
    /// The limit last returned.
    limit: u64,
}

/// Start of the current measurement of that share.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    at_ns: u64,
    passed: u64,
    ended: u64,
}

impl Handshakes {
    /// Starts an account, with the current length of the accept queue.
    pub fn begin(now_ns: u64, queue: u32) -> Self {
        Self {
            queue: queue.into(),
            rtt_ns: 0,
            seen_ns: now_ns,
            marks: VecDeque::new(),
            accepted: 0,
            ended_part: 1.0,
            judged: Judged { at_ns: now_ns, passed: 0, ended: queue.into() },
            limit: 0,
        }
    }

    /// Records accepted connections.
    pub fn accepted(&mut self, more: u64) {
        self.accepted += more;
        self.queue -= more as i64;
    }

    /// Records the round trip time of a handshake.
    pub fn rtt(&mut self, rtt_ns: u64) {
        self.rtt_ns = self.rtt_ns - self.rtt_ns / RTT_MEMORY + rtt_ns / RTT_MEMORY;
    }

    /// Records the number of SYNs passed, and the length of the accept queue if it was queried.
    pub fn see(&mut self, now_ns: u64, passed: u64, queue: Option<u32>) {
        let way_ns = self.way_ns();
        self.seen_ns = now_ns;
        if self.marks.back().is_none_or(|(at_ns, _)| now_ns >= at_ns + way_ns / MARKS) {
            self.marks.push_back((now_ns, passed));
        }
        while self.marks.get(1).is_some_and(|(at_ns, _)| at_ns + way_ns <= now_ns) {
            self.marks.pop_front();
        }
        if let Some(queue) = queue {
            self.queue = queue.into();
            self.judge(now_ns, passed, self.accepted + u64::from(queue));
        }
    }

    fn judge(&mut self, now_ns: u64, passed: u64, ended: u64) {
        let Judged { at_ns, passed: passed_then, ended: ended_then } = self.judged;
        let more = passed.saturating_sub(passed_then);
        if more >= JUDGED_SYNS && now_ns >= at_ns + JUDGED_NS + 4 * self.rtt_ns {
            self.ended_part = (ended.saturating_sub(ended_then) as f64 / more as f64).min(1.0);
            self.judged = Judged { at_ns: now_ns, passed, ended };
        }
    }

    /// Returns the time for which a SYN counts as in its handshake.
    fn way_ns(&self) -> u64 {
        self.rtt_ns + self.rtt_ns / RTT_PART + GRACE_NS
    }

    /// Returns the total number of SYNs that the filter may let through from now on, so that the
    /// accept queue is as long as `window` while a connection is admitted every `each_ns`, 0 if
    /// that is unknown.
    pub fn limit(&mut self, window: u32, each_ns: u64) -> u64 {
        self.limit = self.limit_for(window, each_ns);
        self.limit
    }

    fn limit_for(&self, window: u32, each_ns: u64) -> u64 {
        let each_ns = if each_ns > 0 { each_ns as f64 } else { f64::INFINITY };
        let let_in = self.way_ns() as f64 / each_ns / self.ended_part.max(0.5);
        let limit = self.limit_of(i64::from(window) + let_in as i64);
        if self.rtt_ns < PACED_NS {
            return limit;
        }
        let even = let_in / PACED_PART as f64;
        let passed_lately = self.passed_before(self.way_ns() / PACED_PART as u64);
        let least = (even * PACE_MIN) as u64;
        let most = (even * PACE_MAX) as u64 + u64::from(window) / PACED_WINDOW;
        limit.clamp(passed_lately + least, passed_lately + most.max(least + 1))
    }

    fn limit_of(&self, window: i64) -> u64 {
        let passed_then = self.passed_before(self.way_ns());
        (passed_then as i64 + window - self.queue).max(0) as u64
    }

    /// Returns the number of SYNs that had passed `ago_ns` before the last look.
    fn passed_before(&self, ago_ns: u64) -> u64 {
        let until_ns = self.seen_ns.saturating_sub(ago_ns);
        let mark = self.marks.iter().rev().find(|(at_ns, _)| *at_ns <= until_ns);
        mark.or(self.marks.front()).map_or(0, |(_, passed)| *passed)
    }

    /// Adds the share of completed handshakes to the filter's counts, and if SYNs `need_tokens`,
    /// how many of these are left.
    pub fn syns(&self, counted: Syns, need_tokens: bool) -> Syns {
        let unused = need_tokens.then(|| self.limit.saturating_sub(counted.passed));
        Syns { ended_part: self.ended_part, unused, ..counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Simulates a flood of SYNs at a filter, from clients `rtt_ms` away, and a loop that accepts a
    /// connection per millisecond. Returns the longest queue in the second half, and the number of
    /// connections accepted in it.
    fn flood(rtt_ms: u64, lost_one_in: u64, seconds: u64) -> (u32, u64) {
        let mut handshakes = Handshakes::begin(0, 0);
        let (mut passed, mut queue, mut accepted, mut longest) = (0, 0, 0, 0);
        let mut coming: VecDeque<u64> = VecDeque::new();
        for ms in 0..seconds * 1000 {
            while coming.front().is_some_and(|at_ms| *at_ms <= ms) {
                coming.pop_front();
                queue += 1;
            }
            if queue > 0 {
                queue -= 1;
                accepted += u64::from(ms >= seconds * 500);
                handshakes.accepted(1);
                handshakes.rtt(rtt_ms * MS);
            }
            handshakes.see(ms * MS, passed, Some(queue));
            let limit = handshakes.limit(20, MS);
            while passed < limit {
                passed += 1;
                if lost_one_in == 0 || !passed.is_multiple_of(lost_one_in) {
                    coming.push_back(ms + rtt_ms);
                }
            }
            longest = if ms >= seconds * 500 { longest.max(queue) } else { 0 };
        }
        (longest, accepted)
    }

    #[test]
    fn the_queue_is_as_long_as_the_window_from_near_and_far() {
        for rtt_ms in [0, 1, 5, 20, 50, 200] {
            let (longest, accepted) = flood(rtt_ms, 0, 8);
            assert!((15..=60).contains(&longest), "{rtt_ms}: {longest}");
            assert!(accepted >= 3_950, "{rtt_ms}: {accepted}");
        }
    }

    #[test]
    fn handshakes_that_do_not_end_take_nobodys_place() {
        for (rtt_ms, lost_one_in) in [(0, 3), (0, 2), (20, 4), (100, 4)] {
            let (longest, accepted) = flood(rtt_ms, lost_one_in, 12);
            assert!((5..=40).contains(&longest), "{rtt_ms} {lost_one_in}: {longest}");
            assert!(accepted >= 5_800, "{rtt_ms} {lost_one_in}: {accepted}");
        }
    }

    #[test]
    fn it_is_told_how_many_handshakes_end() {
        let mut handshakes = Handshakes::begin(0, 3);
        for ms in 0..500 {
            handshakes.see(ms * MS, 10 * ms, Some(3 + ms as u32));
        }
        let ended_part = handshakes.syns(Syns::default(), false).ended_part;
        assert!((0.09..0.11).contains(&ended_part), "{ended_part}");
    }

    #[test]
    fn a_queue_that_is_guarded_cannot_overflow() {
        let mut handshakes = Handshakes::begin(0, 100);
        handshakes.see(0, 0, Some(100));
        assert_eq!(handshakes.limit(4096, 0), 3996);
        handshakes.accepted(100);
        assert_eq!(handshakes.limit(4096, 0), 4096);
    }
}
