//! Pace of the servers of an upstream: the time that they take for a reply, and the time of a
//! connect, from which follows whether a connection is worth keeping. Pure but for atomics.
//!
//! A connection that is kept belongs to one process of its server. One that answers a request at a
//! time (puma, PHP, Apache's prefork) waits on it for the next request while others wait for that
//! process, and its next request goes to that process though it be busy and another be not. A new
//! connection goes to whoever accepts it. So one is kept only where a connect is a fair part of
//! what a request costs.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Time of its server that a new connection takes at least, nanoseconds: on one machine a connect
/// is over at once, and costs its accept, its registration and its close all the same.
const CONNECT_MIN_NS: u64 = 50_000;

/// Number of connects that take as long as a reply of a server whose connections are not kept.
/// Such a server is given at most 333 connections a second: each may keep its port for a minute
/// (TIME_WAIT), and Linux has 28,000 for a server.
const CONNECTS_PER_REPLY: u64 = 60;

/// Reciprocal of the weight of a reply in the mean.
const REPLIES: u64 = 32;

/// Times the mean that a reply counts at most: neither a stream that begins after a minute nor a
/// page that is made once a day decides.
const REPLY_MAX: u64 = 8;

/// Reciprocal of the part by which a long round trip corrects what is known.
const CONNECT_STEPS: u64 = 64;

/// Pace of the servers of an upstream. What the loops change at the same time need not be exact to
/// a request.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Mean time that a server takes for a reply, nanoseconds; 0 before the first.
    reply_ns: AtomicU64,
    /// Round trip to a server, which a connect takes, nanoseconds; 0 on one machine, and before the
    /// first.
    connect_ns: AtomicU64,
}

impl Pace {
    /// Records a reply that began `took_ns` after its request had a place, and `busy_ns` after its
    /// server's last reply or the end of its rest: the server has spent the shorter on it, however
    /// many it was working on, and however many it leaves unanswered.
    pub(super) fn note_reply(&self, took_ns: u64, busy_ns: u64) {
        let sample_ns = took_ns.min(busy_ns).max(1);
        let known_ns = self.reply_ns.load(Relaxed);
        let next_ns = match known_ns {
            0 => sample_ns,
            // Rounded up, so that the mean of a quick server can grow again.
            _ => {
                let bounded_ns = sample_ns.min(known_ns.saturating_mul(REPLY_MAX));
                known_ns - known_ns / REPLIES + bounded_ns.div_ceil(REPLIES)
            }
        };
        self.reply_ns.store(next_ns, Relaxed);
    }

    /// Records a connect, and the round trip that it took. The shortest count: others were late.
    pub(super) fn note_connect(&self, rtt_ns: u64) {
        let known_ns = self.connect_ns.load(Relaxed);
        let next_ns = match known_ns {
            0 => rtt_ns,
            _ => rtt_ns.min(known_ns + known_ns / CONNECT_STEPS + 1),
        };
        self.connect_ns.store(next_ns, Relaxed);
    }

    /// Returns whether a connection is worth keeping.
    pub(super) fn keeps(&self) -> bool {
        let connect_ns = self.connect_ns.load(Relaxed).max(CONNECT_MIN_NS);
        self.reply_ns.load(Relaxed) <= connect_ns.saturating_mul(CONNECTS_PER_REPLY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns whether connections are kept after 200 replies of `reply_ns` each, one every
    /// `busy_ns`, and connects of `connect_ns`.
    fn keeps(reply_ns: u64, busy_ns: u64, connect_ns: u64) -> bool {
        let pace = Pace::default();
        for _ in 0..200 {
            pace.note_connect(connect_ns);
            pace.note_reply(reply_ns, busy_ns);
        }
        pace.keeps()
    }

    #[test]
    fn a_connection_is_kept_where_a_connect_is_a_fair_part_of_a_reply() {
        assert!(Pace::default().keeps());
        for (reply_ns, busy_ns, connect_ns, expected) in [
            (2 * MS, 2 * MS, 0, true),
            (20 * MS, 20 * MS, 0, false),
            // Two processes of puma, and an event loop that has as many in flight as come.
            (20 * MS, 10 * MS, 0, false),
            (200 * MS, 2 * MS, 0, true),
            // Beside a stream that is open for hours.
            (2 * MS, 5_000 * MS, 0, true),
            // Across a network.
            (20 * MS, 10 * MS, MS / 10, false),
            (20 * MS, 10 * MS, MS, true),
            (100 * MS, 100 * MS, 30 * MS, true),
            (10_000 * MS, 10_000 * MS, 30 * MS, false),
        ] {
            assert_eq!(keeps(reply_ns, busy_ns, connect_ns), expected, "{reply_ns} {busy_ns}");
        }
    }

    #[test]
    fn few_replies_that_are_late_decide_nothing() {
        let pace = Pace::default();
        for nth in 0..1000 {
            let took_ns = if nth % 20 == 19 { 60_000 * MS } else { MS };
            pace.note_reply(took_ns, took_ns);
            assert!(pace.keeps(), "{nth}");
        }
    }

    #[test]
    fn the_pace_follows_a_server_that_changes() {
        let pace = Pace::default();
        for (reply_ns, expected) in [(MS / 10, true), (20 * MS, false), (MS / 10, true)] {
            (0..200).for_each(|_| pace.note_reply(reply_ns, reply_ns));
            assert_eq!(pace.keeps(), expected, "{reply_ns}");
        }
    }

    #[test]
    fn a_few_connects_that_are_late_decide_nothing() {
        let pace = Pace::default();
        for nth in 0..1000 {
            pace.note_connect(if nth % 10 == 0 { MS / 10 } else { 5 * MS });
            pace.note_reply(20 * MS, 20 * MS);
        }
        assert!(!pace.keeps());
    }
}
