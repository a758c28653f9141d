//! State of a server, as its requests and its checks find it: whether it is passed over, and how
//! much of its share it is given. Pure but for atomics. Times are nanoseconds on the clock that
//! all loops share.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use weir_sys::client;

/// Time for which a server is passed over after its first failure, nanoseconds. Each further
/// failure in a row doubles it.
const BACKOFF_NS: u64 = 1_000_000_000;

/// Number of times that it is doubled at most.
const DOUBLINGS_MAX: u32 = 5;

/// Time for which an absent server is passed over, nanoseconds: one that is started again is found
/// soon, and meanwhile four requests a second go a way round that takes no longer than a connect.
const ABSENT_NS: u64 = 250_000_000;

/// Time within which a server that was passed over gets one request, as a trial, nanoseconds.
const TRIAL_NS: u64 = 1_000_000_000;

/// A whole share.
pub(super) const WHOLE: u64 = 1000;

/// Share at the beginning of a slow start.
const SHARE_MIN: u64 = WHOLE / 10;

/// Fault of a server, by what a trial costs the client whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Absence of a listener at its address, known at once: the request goes to another server.
    Absent,
    /// Failure to be reached in time, a break-off, or what is no HTTP: the client loses time, or
    /// its reply.
    Broken,
}

impl Fault {
    /// Returns the fault that an error of a connection tells of.
    pub(super) fn of(error: &io::Error) -> Self {
        if client::is_refused(error) { Self::Absent } else { Self::Broken }
    }
}

/// State of a server. What the loops change at the same time need not be exact to a request.
#[derive(Debug)]
pub(super) struct Health {
    /// Failures in a row.
    failures: AtomicU32,
    /// Time until which it is passed over.
    backoff_until_ns: AtomicU64,
    /// Time until which a trial is under way, and no other is begun.
    trial_until_ns: AtomicU64,
    /// Time of its last failure.
    failed_ns: AtomicU64,
    /// Time of its last recovery; 0 if it never failed.
    recovered_ns: AtomicU64,
    /// True if its checks find it down.
    is_down: AtomicBool,
}

impl Health {
    pub(super) fn new() -> Self {
        Self {
            failures: 0.into(),
            backoff_until_ns: 0.into(),
            trial_until_ns: 0.into(),
            failed_ns: 0.into(),
            recovered_ns: 0.into(),
            is_down: false.into(),
        }
    }

    /// Returns whether its checks find it down.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Relaxed)
    }

    /// Returns when it may be given a request, as far as its failures are concerned; 0: now.
    pub(super) fn available_ns(&self, now_ns: u64) -> u64 {
        if self.failures.load(Relaxed) == 0 {
            return 0;
        }
        let until_ns = self.backoff_until_ns.load(Relaxed).max(self.trial_until_ns.load(Relaxed));
        if until_ns > now_ns { until_ns } else { 0 }
    }

    /// Returns the share of a server's requests that it is given, of [`WHOLE`].
    pub(super) fn share(&self, now_ns: u64, slow_start_ns: u64) -> u64 {
        let recovered_ns = self.recovered_ns.load(Relaxed);
        let elapsed_ns = now_ns.saturating_sub(recovered_ns);
        if recovered_ns == 0 || elapsed_ns >= slow_start_ns {
            return WHOLE;
        }
        let share = u128::from(elapsed_ns) * u128::from(WHOLE) / u128::from(slow_start_ns);
        (share as u64).max(SHARE_MIN)
    }

    /// Returns the time limit of a connect to it, where another server can be asked after that:
    /// `limit_ns`, and no more than a trial lasts if this is one.
    pub(super) fn connect_limit_ns(&self, limit_ns: u64) -> u64 {
        if self.failures.load(Relaxed) == 0 { limit_ns } else { limit_ns.min(TRIAL_NS) }
    }

    /// Records that it is given a request.
    pub(super) fn note_chosen(&self, now_ns: u64) {
        if self.failures.load(Relaxed) > 0 {
            self.trial_until_ns.store(now_ns + TRIAL_NS, Relaxed);
        }
    }

    /// Records a failure, which ends a trial. Those that fail together, of one cause, count once.
    /// Returns whether it is the first failure in a row.
    pub(super) fn note_failure(&self, fault: Fault, now_ns: u64) -> bool {
        // Before it counts, so that no reply to an earlier request ends it at once.
        self.failed_ns.fetch_max(now_ns, Relaxed);
        if self.backoff_until_ns.load(Relaxed) > now_ns {
            return false;
        }
        let (before, backoff_ns) = match fault {
            Fault::Absent => (self.failures.fetch_max(1, Release), ABSENT_NS),
            Fault::Broken => {
                let before = self.failures.fetch_add(1, Release);
                (before, BACKOFF_NS << before.min(DOUBLINGS_MAX))
            }
        };
        self.backoff_until_ns.store(now_ns + backoff_ns, Relaxed);
        self.trial_until_ns.store(0, Relaxed);
        before == 0
    }

    /// Records a reply, whatever its status, to a request that got its connection at `since_ns`. If
    /// that was before the last failure, the reply says nothing of the time since. Returns whether
    /// the server had failed before.
    pub(super) fn note_success(&self, since_ns: u64, now_ns: u64) -> bool {
        let has_failures = self.failures.load(Acquire) > 0;
        let is_since = has_failures && since_ns >= self.failed_ns.load(Relaxed);
        let had_failed = is_since && self.failures.swap(0, Relaxed) > 0;
        if had_failed {
            self.backoff_until_ns.store(0, Relaxed);
            self.recovered_ns.store(now_ns.max(1), Relaxed);
        }
        had_failed
    }

    /// Records what its checks find.
    pub(super) fn set_down(&self, is_down: bool, now_ns: u64) {
        if self.is_down.swap(is_down, Relaxed) && !is_down {
            self.failures.store(0, Relaxed);
            self.backoff_until_ns.store(0, Relaxed);
            self.trial_until_ns.store(0, Relaxed);
            self.recovered_ns.store(now_ns.max(1), Relaxed);
        }
    }
}

/// Verdict of the checks of a server, which is up at first. It changes after some results in a row
/// that speak against it; the first result counts at once if it is a failure.
#[derive(Debug)]
pub(super) struct CheckVerdict {
    is_down: bool,
    /// Results in a row that speak against it.
    against: u32,
}

impl CheckVerdict {
    /// Creates the verdict. `fall`: results in a row by which a server is down.
    pub(super) fn new(fall: u32) -> Self {
        Self { is_down: false, against: fall.saturating_sub(1) }
    }

    /// Records a result. Returns whether the server is down now, if that has changed.
    pub(super) fn note(&mut self, passed: bool, rise: u32, fall: u32) -> Option<bool> {
        if passed != self.is_down {
            self.against = 0;
            return None;
        }
        self.against += 1;
        if self.against < if self.is_down { rise } else { fall } {
            return None;
        }
        self.against = 0;
        self.is_down = !self.is_down;
        Some(self.is_down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn each_failure_in_a_row_doubles_the_time_up_to_a_bound() {
        let health = Health::new();
        let mut now_ns = S;
        for waits_s in [1, 2, 4, 8, 16, 32, 32] {
            assert_eq!(health.available_ns(now_ns), 0);
            health.note_chosen(now_ns);
            health.note_failure(Fault::Broken, now_ns);
            assert_eq!(health.available_ns(now_ns), now_ns + waits_s * S);
            now_ns += waits_s * S;
        }
        health.note_success(now_ns, now_ns);
        health.note_failure(Fault::Broken, now_ns);
        assert_eq!(health.available_ns(now_ns), now_ns + S);
    }

    #[test]
    fn a_reply_to_a_request_from_before_a_failure_ends_nothing() {
        let health = Health::new();
        assert!(health.note_failure(Fault::Broken, 2 * S));
        assert!(!health.note_success(S, 2 * S + 1));
        assert_eq!(health.available_ns(2 * S + 1), 3 * S);
        assert_eq!(health.share(2 * S + 1, 10 * S), WHOLE);
        // Neither has it ended the row of failures.
        health.note_chosen(3 * S);
        assert!(!health.note_failure(Fault::Broken, 3 * S));
        assert_eq!(health.available_ns(3 * S), 5 * S);
        health.note_chosen(5 * S);
        assert!(health.note_success(5 * S, 5 * S + 1));
        assert_eq!(health.available_ns(5 * S + 1), 0);
        assert_eq!(health.share(5 * S + 1, 10 * S), SHARE_MIN);
    }

    #[test]
    fn an_absent_server_is_tried_as_often_however_long_it_was_away() {
        let health = Health::new();
        for nth in 0..5 {
            health.note_failure(Fault::Broken, S << nth);
        }
        let mut now_ns = 32 * S;
        for _ in 0..100 {
            assert_eq!(health.available_ns(now_ns), 0);
            health.note_chosen(now_ns);
            assert!(!health.note_failure(Fault::Absent, now_ns + 1));
            assert_eq!(health.available_ns(now_ns + 1), now_ns + 1 + ABSENT_NS);
            now_ns += 1 + ABSENT_NS;
        }
        // One that is there and fails was no better for having been away.
        health.note_chosen(now_ns);
        health.note_failure(Fault::Broken, now_ns);
        assert_eq!(health.available_ns(now_ns), now_ns + 32 * S);
    }

    #[test]
    fn failures_of_one_cause_count_once() {
        let health = Health::new();
        for _ in 0..50 {
            health.note_failure(Fault::Broken, S);
        }
        assert_eq!(health.available_ns(S), 2 * S);
    }

    #[test]
    fn one_request_at_a_time_tries_a_server_that_failed() {
        let health = Health::new();
        health.note_failure(Fault::Broken, S);
        assert_eq!(health.available_ns(2 * S), 0);
        health.note_chosen(2 * S);
        assert_eq!(health.available_ns(2 * S), 3 * S);
        health.note_success(2 * S, 2 * S + 1);
        assert_eq!(health.available_ns(2 * S + 1), 0);
    }

    #[test]
    fn a_connect_to_a_server_that_failed_takes_no_longer_than_a_trial() {
        let health = Health::new();
        assert_eq!(health.connect_limit_ns(5 * S), 5 * S);
        health.note_failure(Fault::Broken, S);
        assert_eq!([5 * S, S / 2].map(|limit| health.connect_limit_ns(limit)), [S, S / 2]);
        health.note_success(2 * S, 3 * S);
        assert_eq!(health.connect_limit_ns(5 * S), 5 * S);
    }

    #[test]
    fn a_server_that_the_checks_find_up_again_fails_anew() {
        let health = Health::new();
        for nth in 0..5 {
            assert_eq!(health.note_failure(Fault::Broken, S << nth), nth == 0);
        }
        health.set_down(true, 17 * S);
        health.set_down(false, 18 * S);
        assert!(health.note_failure(Fault::Broken, 19 * S));
        assert_eq!(health.available_ns(19 * S), 20 * S);
    }

    #[test]
    fn a_server_that_recovers_is_given_more_and_more() {
        let health = Health::new();
        assert_eq!(health.share(S, 10 * S), WHOLE);
        health.note_failure(Fault::Broken, S);
        health.note_success(2 * S, 2 * S);
        let shares = [2, 3, 7, 12].map(|at_s| health.share(at_s * S, 10 * S));
        assert_eq!(shares, [SHARE_MIN, 100, 500, WHOLE]);
        assert_eq!(health.share(2 * S, 0), WHOLE);
        health.set_down(true, 20 * S);
        health.set_down(false, 30 * S);
        assert_eq!(health.share(35 * S, 10 * S), 500);
    }

    #[test]
    fn a_verdict_changes_after_results_in_a_row() {
        let mut verdict = CheckVerdict::new(3);
        let mut note = |passed| verdict.note(passed, 2, 3);
        assert_eq!(note(true), None);
        assert_eq!([note(false), note(false), note(true)], [None; 3]);
        assert_eq!([note(false), note(false), note(false)], [None, None, Some(true)]);
        assert_eq!([note(false), note(true), note(false)], [None; 3]);
        assert_eq!([note(true), note(true)], [None, Some(false)]);
        // A server that is not there at the start is found so at once.
        assert_eq!(CheckVerdict::new(3).note(false, 2, 3), Some(true));
    }
}
