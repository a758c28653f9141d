//! SYNs that a filter may let through, so that the accept queue holds what it should: the queue
//! is told by the kernel, and every SYN let through lately is taken to be still on its way.
//!
//! Lately means for a little longer than a handshake takes. An older one has ended, and is in the
//! queue, or never will: its client has gone, sent its SYN twice, or never was where it said. So
//! nothing adds up that would have to be forgotten again. What is on its way while the loop takes
//! in one after the other is let in beside the window (rate times round trip, divided by the part
//! of handshakes that end), so that the queue and not the way is what the window bounds.

use std::collections::VecDeque;

use crate::Syns;

/// The part of the mean round trip for which a SYN counts as on its way beyond it: a quarter,
const RTT_PART: u64 = 4;

/// and this, nanoseconds: the queue is looked at once in a while only.
const GRACE_NS: u64 = 2_000_000;

/// The part of the mean round trip that one more has: an eighth.
const RTT_MEMORY: u64 = 8;

/// Looks kept of the past, in the time a SYN is on its way.
const MARKS: u64 = 16;

/// A long way is filled evenly, and never left empty, for what is decided now shows a round trip
/// later: in an eighth of the time a SYN is on its way, as many are let in as can be served in it,
/// times these, and a quarter of the window.
const PACED_NS: u64 = 5_000_000;
const PACED_PART: usize = 8;
const PACE_MIN: f64 = 0.95;
const PACE_MAX: f64 = 1.5;
const PACED_WINDOW: u64 = 4;

/// SYNs and time, nanoseconds, after which it is judged how many handshakes end.
const JUDGED_SYNS: u64 = 64;
const JUDGED_NS: u64 = 200_000_000;

/// The account of one listening socket, since its filter was put in place.
#[derive(Clone, Debug)]
pub struct Handshakes {
    queue: i64,
    rtt_ns: u64,
    seen_ns: u64,
    /// When somebody looked, and what had passed by then.
    marks: VecDeque<(u64, u64)>,
    accepted: u64,
    /// Handshakes ended, by what was let through; 1 until that is known.
    ended_part: f64,
    judged: Judged,
}

/// Where the judgement began.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    at_ns: u64,
    passed: u64,
    ended: u64,
}

impl Handshakes {
    /// The account from now on, with what the accept queue holds.
    pub fn begin(now_ns: u64, queue: u32) -> Self {
        Self {
            queue: queue.into(),
            rtt_ns: 0,
            seen_ns: now_ns,
            marks: VecDeque::new(),
            accepted: 0,
            ended_part: 1.0,
            judged: Judged { at_ns: now_ns, passed: 0, ended: queue.into() },
        }
    }

    /// Counts connections accepted.
    pub fn accepted(&mut self, more: u64) {
        self.accepted += more;
        self.queue -= more as i64;
    }

    /// Learns the round trip of a handshake.
    pub fn rtt(&mut self, rtt_ns: u64) {
        self.rtt_ns = self.rtt_ns - self.rtt_ns / RTT_MEMORY + rtt_ns / RTT_MEMORY;
    }

    /// Looks at what has passed, and at the length of the accept queue if that was asked for.
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

    /// Time for which a SYN counts as on its way.
    fn way_ns(&self) -> u64 {
        self.rtt_ns + self.rtt_ns / RTT_PART + GRACE_NS
    }

    /// SYNs that the filter may let through in all, so that the accept queue is as long as a window
    /// while a connection is let in each `each_ns`, 0 if that is not known.
    pub fn limit(&self, window: u32, each_ns: u64) -> u64 {
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

    /// SYNs that had passed so long before the last look.
    fn passed_before(&self, ago_ns: u64) -> u64 {
        let until_ns = self.seen_ns.saturating_sub(ago_ns);
        let mark = self.marks.iter().rev().find(|(at_ns, _)| *at_ns <= until_ns);
        mark.or(self.marks.front()).map_or(0, |(_, passed)| *passed)
    }

    /// Adds what is known of the handshakes to what the filter counted.
    pub fn syns(&self, counted: Syns) -> Syns {
        Syns { ended_part: self.ended_part, ..counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A flood of SYNs before a filter, from as far away as is said, and a loop that accepts one
    /// each millisecond. The longest queue in the second half, and how many were accepted in it.
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
        let ended_part = handshakes.syns(Syns::default()).ended_part;
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
