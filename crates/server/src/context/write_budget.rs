//! The write budget: the bytes of large replies that an iteration may send before other connections
//! are served, learned so that they take a fraction of a millisecond. Reads no clock.

/// Minimum size of a budget, bytes. Smaller replies go out at once: to divide them would cost more
/// than other connections gain.
pub(crate) const BUDGET_BYTES_MIN: u64 = 64 << 10;

/// Maximum size of a budget, bytes; a larger one would save nothing more.
const BUDGET_BYTES_MAX: u64 = 2 << 20;

/// Maximum time of a budget, nanoseconds of CPU time. Where every packet is handled on its own, as
/// on a link without offloads, 256 KiB take 600,000; on a loopback they take 50,000.
const BUDGET_NS: u64 = 200_000;

/// Number of requests after which the clock is read again when the last ones took less than
/// [`CHEAP_NS`]: reading it takes a tenth of the time of a small request.
const CHEAP_REQUESTS: u8 = 8;
const CHEAP_NS: u32 = 8_000;

/// Size of a budget, and what is left of this iteration's.
#[derive(Debug)]
pub(crate) struct WriteBudget {
    bytes: u64,
    /// Bytes left; `None` in a server without iterations, whose budget is never spent.
    left: Option<u64>,
}

impl Default for WriteBudget {
    /// Creates a budget for a server without iterations.
    fn default() -> Self {
        Self { bytes: BUDGET_BYTES_MIN, left: None }
    }
}

impl WriteBudget {
    /// Returns the size of a budget, bytes: a power of two.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins an iteration: all large replies in it share one budget, and so does all other work
    /// that is done in parts.
    pub(crate) fn begin_iteration(&mut self) {
        self.left = Some(self.bytes);
    }

    /// Returns whether this iteration's budget is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == Some(0)
    }

    /// Uses up this iteration's budget, for work that takes about as long as a whole budget.
    pub(crate) fn spend(&mut self) {
        self.left = self.left.map(|_| 0);
    }

    /// Records that `bytes` were sent in `took_ns` nanoseconds of CPU time, and adapts the size of
    /// a budget.
    pub(crate) fn record(&mut self, bytes: u64, took_ns: u64) {
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        if took_ns > BUDGET_NS {
            self.bytes = (self.bytes / 2).max(BUDGET_BYTES_MIN);
        } else if bytes >= self.bytes && took_ns < BUDGET_NS / 2 {
            self.bytes = (self.bytes * 2).min(BUDGET_BYTES_MAX);
        }
    }
}

/// Time that one connection spends, in one iteration, on requests that arrived together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PipelineBudget {
    /// Start time, if in this iteration.
    began_ns: u64,
    /// Time of the last reading of the clock, nanoseconds after the start.
    checked_ns: u32,
    /// Number of requests that may begin before the next reading.
    unchecked: u8,
}

impl PipelineBudget {
    /// Returns whether the budget is spent, before another request begins in an iteration that
    /// began at `iteration_ns`. The first request of an iteration costs no reading of the clock.
    pub(crate) fn is_spent(&mut self, iteration_ns: u64, clock_ns: impl FnOnce() -> u64) -> bool {
        if self.began_ns < iteration_ns {
            *self = Self { began_ns: iteration_ns, ..Self::default() };
            return false;
        }
        if self.unchecked > 0 {
            self.unchecked -= 1;
            return false;
        }
        let now_ns = clock_ns();
        if self.began_ns == iteration_ns {
            self.began_ns = now_ns.max(iteration_ns + 1);
        }
        let passed_ns = u32::try_from(now_ns.saturating_sub(self.began_ns)).unwrap_or(u32::MAX);
        let is_cheap = self.checked_ns > 0 && passed_ns.saturating_sub(self.checked_ns) < CHEAP_NS;
        self.unchecked = if is_cheap { CHEAP_REQUESTS - 1 } else { 0 };
        self.checked_ns = passed_ns.max(1);
        u64::from(passed_ns) > BUDGET_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size of a budget after many iterations in which each KiB took `ns_per_kib`.
    fn settled(ns_per_kib: u64) -> u64 {
        let mut budget = WriteBudget::default();
        for _ in 0..100 {
            budget.record(budget.bytes(), budget.bytes() / 1024 * ns_per_kib);
        }
        budget.bytes()
    }

    #[test]
    fn the_budget_is_as_large_as_its_time_allows() {
        assert_eq!(settled(1), BUDGET_BYTES_MAX);
        assert_eq!(settled(200), 512 << 10);
        assert_eq!(settled(2300), BUDGET_BYTES_MIN);
        assert_eq!(settled(1_000_000), BUDGET_BYTES_MIN);
    }

    #[test]
    fn a_partly_used_budget_does_not_grow() {
        let mut budget = WriteBudget::default();
        budget.record(BUDGET_BYTES_MIN / 2, 1);
        assert_eq!(budget.bytes(), BUDGET_BYTES_MIN);
    }

    #[test]
    fn a_slow_write_halves_the_budget() {
        let mut budget = WriteBudget { bytes: 1 << 20, ..WriteBudget::default() };
        budget.record(1 << 10, BUDGET_NS + 1);
        assert_eq!(budget.bytes(), 512 << 10);
    }

    /// Returns the number of requests of this length begun in an iteration, and of readings of the
    /// clock.
    fn begun(request_ns: u64) -> (u64, u64) {
        let (mut pipeline, mut requests, mut clock_reads) = (PipelineBudget::default(), 0, 0);
        let mut is_spent = |requests: u64| {
            pipeline.is_spent(5, || {
                clock_reads += 1;
                5 + requests * request_ns
            })
        };
        while !is_spent(requests) {
            requests += 1;
        }
        (requests, clock_reads)
    }

    #[test]
    fn the_pipeline_budget_bounds_the_requests_begun_in_an_iteration() {
        assert_eq!(begun(1_000_000_000).0, 2);
        assert_eq!(begun(BUDGET_NS / 10).0, 12);
        let (requests, clock_reads) = begun(500);
        assert!((400..=420).contains(&requests), "{requests}");
        assert!(clock_reads < 60, "{clock_reads}");
        let mut pipeline = PipelineBudget::default();
        assert!(!pipeline.is_spent(5, || 5) && !pipeline.is_spent(5, || 6));
        assert!(pipeline.is_spent(5, || 7 + BUDGET_NS));
        assert!(!pipeline.is_spent(7 + BUDGET_NS, || unreachable!("the first of an iteration")));
    }

    #[test]
    fn an_iteration_has_one_budget_for_all_connections() {
        let mut budget = WriteBudget::default();
        budget.record(u64::MAX, BUDGET_NS);
        budget.spend();
        assert!(!budget.is_spent(), "there are no iterations");
        budget.begin_iteration();
        budget.record(budget.bytes() - 1, BUDGET_NS);
        assert!(!budget.is_spent());
        budget.record(1, BUDGET_NS);
        assert!(budget.is_spent());
        budget.begin_iteration();
        assert!(!budget.is_spent());
        budget.spend();
        assert!(budget.is_spent());
    }
}
