//! The rate at which a client reads a reply: a credit of time that its bytes buy, and a limit on
//! the time in which it takes none. Pure: knows no socket and reads no clock.
//!
//! The bytes that count are those the client's kernel has acknowledged, the only ones a server
//! knows of. They come in bursts: a kernel whose buffer is full acknowledges nothing until a good
//! part of it is free again, so that a client that reads evenly seems to stop and to start. Linux
//! waits for a sixteenth of the buffer or a segment, and a segment of the loopback has 64 KiB: up
//! to 380 KB at a time were seen with buffers of 6 MB. Hence the credit may grow to what such a
//! burst buys.

use crate::config::Config;

/// Largest burst of acknowledgements that an even reader must survive, bytes.
const BURST_BYTES: u64 = 512 << 10;

/// Number of checks of a reply per stall timeout, which bounds how late a stalled client is cut.
const CHECKS_PER_STALL: u64 = 4;

/// Limits on a client's read rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRateLimits {
    /// Minimum rate, bytes per second; 0 is no limit.
    pub rate_min: u64,
    /// Credit with which a reply begins, nanoseconds.
    pub grace_ns: u64,
    /// Maximum time in which no byte is acknowledged, nanoseconds; 0 is no limit.
    pub stall_ns: u64,
}

impl ReadRateLimits {
    /// Returns the limits of a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            rate_min: config.rate_min,
            grace_ns: config.timeouts.rate_grace_ns,
            stall_ns: config.timeouts.stall_ns,
        }
    }

    /// Returns the time that `bytes` buy, nanoseconds.
    fn bought_ns(&self, bytes: u64) -> u64 {
        let bought_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate_min.max(1));
        u64::try_from(bought_ns).unwrap_or(u64::MAX)
    }

    /// Returns the maximum credit, nanoseconds: the window within which the rate has to be kept.
    fn credit_max_ns(&self) -> u64 {
        self.grace_ns.saturating_add(self.bought_ns(BURST_BYTES))
    }
}

/// Rate at which a client takes the current reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadRate {
    /// Time of the last check, and the bytes that had been taken by then.
    checked_ns: u64,
    taken_bytes: u64,
    /// Credit left at that time, nanoseconds.
    credit_ns: u64,
    /// Time of the last check that saw bytes taken.
    progress_ns: u64,
    /// True if `taken_bytes` is known from the kernel, and not assumed.
    is_marked: bool,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateVerdict {
    /// The client is fast enough.
    FastEnough,
    /// The client has been below the minimum rate for longer than its credit lasted.
    Slow,
    /// The client has taken nothing for as long as the stall timeout.
    Stalled,
}

impl ReadRate {
    /// Begins a reply, on a connection of which at most `taken_bytes` were taken before.
    pub(crate) fn begin(now_ns: u64, taken_bytes: u64, limits: &ReadRateLimits) -> Self {
        Self {
            checked_ns: now_ns,
            taken_bytes,
            credit_ns: limits.grace_ns,
            progress_ns: now_ns,
            is_marked: false,
        }
    }

    /// Returns whether [`ReadRate::mark`] is still to come.
    pub(crate) fn wants_mark(&self) -> bool {
        !self.is_marked
    }

    /// Records the bytes taken when the reply first has to wait; at most those assumed so far.
    pub(crate) fn mark(&mut self, taken_bytes: u64) {
        if self.wants_mark() {
            self.taken_bytes = self.taken_bytes.min(taken_bytes);
            self.is_marked = true;
        }
    }

    /// Judges the client by the bytes it has taken since the accept. `has_taken_all`: nothing
    /// written is outstanding, so that the server does not wait for it.
    pub(crate) fn check(
        &mut self,
        now_ns: u64,
        taken_bytes: u64,
        has_taken_all: bool,
        limits: &ReadRateLimits,
    ) -> RateVerdict {
        let more_bytes = taken_bytes.saturating_sub(self.taken_bytes);
        if more_bytes > 0 || has_taken_all {
            self.progress_ns = now_ns;
        }
        let has_kept_rate = self.update_credit(now_ns, more_bytes, has_taken_all, limits);
        self.checked_ns = now_ns;
        self.taken_bytes = self.taken_bytes.max(taken_bytes);
        if limits.stall_ns > 0 && now_ns.saturating_sub(self.progress_ns) >= limits.stall_ns {
            RateVerdict::Stalled
        } else if has_kept_rate {
            RateVerdict::FastEnough
        } else {
            RateVerdict::Slow
        }
    }

    /// Leaves out time in which the server sent nothing by its own choice, nanoseconds.
    pub(crate) fn pass_over(&mut self, time_ns: u64) {
        self.checked_ns = self.checked_ns.saturating_add(time_ns);
        self.progress_ns = self.progress_ns.saturating_add(time_ns);
    }

    /// Returns the time of the next check, nanoseconds.
    pub(crate) fn due_ns(&self, limits: &ReadRateLimits) -> u64 {
        let credit_ns = if limits.rate_min == 0 { u64::MAX } else { self.credit_ns };
        let check_ns = match limits.stall_ns {
            0 => u64::MAX,
            stall_ns => stall_ns.div_ceil(CHECKS_PER_STALL),
        };
        self.checked_ns.saturating_add(credit_ns.min(check_ns))
    }

    /// Adds the credit that the bytes buy, and subtracts the time that has passed. Returns whether
    /// the credit was enough.
    fn update_credit(
        &mut self,
        now_ns: u64,
        more_bytes: u64,
        has_taken_all: bool,
        limits: &ReadRateLimits,
    ) -> bool {
        if limits.rate_min == 0 || has_taken_all {
            self.credit_ns = self.credit_ns.max(limits.grace_ns);
            return true;
        }
        let passed_ns = now_ns.saturating_sub(self.checked_ns);
        let credit_ns = self.credit_ns.saturating_add(limits.bought_ns(more_bytes));
        self.credit_ns = credit_ns.saturating_sub(passed_ns).min(limits.credit_max_ns());
        self.credit_ns > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn limits(rate_min: u64, grace_s: u64, stall_s: u64) -> ReadRateLimits {
        ReadRateLimits { rate_min, grace_ns: grace_s * SECOND_NS, stall_ns: stall_s * SECOND_NS }
    }

    /// Returns the verdict that ends a reply of which `taken_bytes(s)` have been taken after `s`
    /// seconds, with its second; `None` if there is none for a day.
    fn end(limits: ReadRateLimits, taken_bytes: impl Fn(u64) -> u64) -> Option<(RateVerdict, u64)> {
        let mut rate = ReadRate::begin(0, 0, &limits);
        loop {
            let now_ns = rate.due_ns(&limits);
            let now_s = now_ns / SECOND_NS;
            if now_s > 86_400 {
                return None;
            }
            match rate.check(now_ns, taken_bytes(now_s), false, &limits) {
                RateVerdict::FastEnough => {}
                verdict => return Some((verdict, now_s)),
            }
        }
    }

    #[test]
    fn bytes_read_quickly_buy_no_more_than_a_burst_does() {
        let limits = limits(500, 20, 0);
        let window_s = BURST_BYTES / 500;
        let (verdict, at_s) = end(limits, |_| 6 << 20).unwrap();
        assert_eq!(verdict, RateVerdict::Slow);
        assert!(at_s <= window_s + 40, "{at_s}");
        let trickled = end(limits, |now_s| (6 << 20) + now_s).unwrap();
        assert!(trickled.1 <= window_s + 60, "{trickled:?}");
    }

    #[test]
    fn a_client_that_stops_is_cut_at_the_stall_timeout() {
        let (verdict, at_s) = end(limits(500, 20, 60), |_| 6 << 20).unwrap();
        assert_eq!(verdict, RateVerdict::Stalled);
        assert!((60..=60 + 2 * 60 / CHECKS_PER_STALL).contains(&at_s), "{at_s}");
        assert_eq!(end(limits(0, 20, 60), |_| 0), Some((RateVerdict::Stalled, 60)));
        assert_eq!(end(limits(500, 20, 60), |_| 0), Some((RateVerdict::Slow, 20)));
    }

    #[test]
    fn a_client_at_the_minimum_rate_is_never_cut_however_its_bytes_are_batched() {
        for burst in [1, 1460, 64 << 10, BURST_BYTES] {
            for rate in [500, 50_000] {
                // All bytes read are acknowledged, and up to a burst more.
                let taken_bytes = |now_s: u64| (now_s * rate).next_multiple_of(burst) + burst;
                assert_eq!(end(limits(rate, 1, 0), taken_bytes), None, "{burst} at {rate}");
                let ahead = |now_s: u64| taken_bytes(now_s) + (6 << 20);
                assert_eq!(end(limits(rate, 1, 0), ahead), None, "{burst} at {rate}, ahead");
            }
        }
        let steady = |now_s: u64| now_s * 600;
        assert_eq!(end(limits(500, 20, 60), steady), None);
    }

    #[test]
    fn a_client_below_the_minimum_rate_is_cut_when_its_credit_is_used_up() {
        assert_eq!(end(limits(500, 20, 60), |now_s| now_s * 250).unwrap().0, RateVerdict::Slow);
        assert_eq!(end(limits(0, 0, 0), |_| 0), None, "no limit");
    }

    #[test]
    fn time_in_which_nothing_is_outstanding_costs_no_credit() {
        let limits = limits(500, 1, 4);
        let mut rate = ReadRate::begin(0, 0, &limits);
        for now_s in 1..100 {
            assert_eq!(rate.check(now_s * SECOND_NS, 0, true, &limits), RateVerdict::FastEnough);
        }
        assert_eq!(rate.check(101 * SECOND_NS, 0, false, &limits), RateVerdict::Slow);
    }

    #[test]
    fn only_the_first_mark_counts_and_only_if_it_lowers_the_bytes() {
        let limits = limits(1000, 1, 0);
        let mut rate = ReadRate::begin(0, 5_000, &limits);
        rate.mark(2_000);
        rate.mark(0);
        assert!(!rate.wants_mark());
        // 3,000 bytes of earlier replies were still to be taken, and buy three seconds.
        assert_eq!(rate.check(3 * SECOND_NS, 5_000, false, &limits), RateVerdict::FastEnough);
        assert_eq!(rate.check(5 * SECOND_NS, 5_000, false, &limits), RateVerdict::Slow);
    }
}
