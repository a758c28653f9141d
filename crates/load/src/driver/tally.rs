//! What one thread counts, kept apart for the warm-up and for what follows, and cut into seconds.
//! Knows neither sockets nor the clock.

use crate::config::Sample;
use crate::measure::{Clocks, Counts, Distributions, ErrorKind, Interval, Times};
use crate::session::RequestId;

/// Counts and times, before and after the end of the warm-up; a request belongs where it was
/// planned.
pub(super) struct Tally {
    measure_from_ns: u64,
    start_ns: u64,
    /// When the schedule ends.
    end_ns: u64,
    /// Replies whose last byte came after the warm-up and before the schedule's end, whenever their
    /// requests were planned: what a server that is always behind gave in that time.
    pub(super) replies_in_schedule: u64,
    /// Those of them with a status of 2xx or 3xx: a refusal is a whole reply too.
    pub(super) good_in_schedule: u64,
    each: bool,
    counts: [Counts; 2],
    /// Of what was planned after the warm-up.
    pub(super) times: Distributions,
    /// How long whole sessions took.
    pub(super) sessions: Times,
    /// How long connections lived.
    pub(super) lifetimes: Times,
    /// What the present second adds to what was measured, and its times.
    second: Interval,
    before: Counts,
    samples: Vec<Sample>,
}

impl Tally {
    /// Everything at nothing. Times are on the run's clock: the schedule begins at `start_ns`,
    /// what is measured at `measure_from_ns`.
    pub(super) fn new(start_ns: u64, measure_from_ns: u64, each: bool) -> Self {
        Self {
            measure_from_ns,
            start_ns,
            end_ns: u64::MAX,
            replies_in_schedule: 0,
            good_in_schedule: 0,
            each,
            counts: [Counts::default(); 2],
            times: Distributions::default(),
            sessions: Times::default(),
            lifetimes: Times::default(),
            second: Interval::default(),
            before: Counts::default(),
            samples: Vec::new(),
        }
    }

    /// The run begins. What happened before it stays: it was of connections that are there now.
    /// Times as for [`Tally::new`]; the schedule ends at `end_ns`.
    pub(super) fn begin(&mut self, start_ns: u64, measure_from_ns: u64, end_ns: u64, each: bool) {
        (self.start_ns, self.measure_from_ns, self.each) = (start_ns, measure_from_ns, each);
        self.end_ns = end_ns;
    }

    /// The counts that something planned for `planned_ns` belongs to.
    pub(super) fn at(&mut self, planned_ns: u64) -> &mut Counts {
        &mut self.counts[usize::from(self.is_measured(planned_ns))]
    }

    /// What was counted after the warm-up.
    pub(super) fn measured(&self) -> Counts {
        self.counts[1]
    }

    /// What was counted in the warm-up and after it.
    pub(super) fn whole_run(&self) -> Counts {
        let [mut whole, measured] = self.counts;
        whole.add(&measured);
        whole
    }

    pub(super) fn is_measured(&self, planned_ns: u64) -> bool {
        planned_ns >= self.measure_from_ns
    }

    /// A start, as late as it was. It could not have been before `free_ns`, when its connection
    /// became free: waiting for that is the server's doing.
    pub(super) fn started(&mut self, planned_ns: u64, free_ns: u64, now_ns: u64, requests: u64) {
        let lag_ns = now_ns.saturating_sub(planned_ns.max(free_ns));
        let counts = self.at(planned_ns);
        counts.planned += requests;
        counts.started += requests;
        if self.is_measured(planned_ns) {
            self.second.lag.record(lag_ns);
            self.times.lag.record(lag_ns);
        }
    }

    /// Requests that cannot even be tried.
    pub(super) fn turned_away(&mut self, planned_ns: u64, requests: u64) {
        let counts = self.at(planned_ns);
        counts.planned += requests;
        counts.started += requests;
    }

    /// Arrivals, of one request each as far as anybody knows, that were due and never begun.
    pub(super) fn missed(&mut self, planned_ns: u64) {
        let counts = self.at(planned_ns);
        counts.arrivals += 1;
        counts.planned += 1;
    }

    /// A connection made.
    pub(super) fn connected(&mut self, planned_ns: u64, took_ns: u64) {
        self.at(planned_ns).connected += 1;
        if self.is_measured(planned_ns) {
            self.times.connect.record(took_ns);
        }
    }

    /// A whole reply.
    pub(super) fn replied(&mut self, clocks: &Clocks, request: RequestId, status: u16) {
        let in_schedule =
            self.measure_from_ns <= clocks.last_byte_ns && clocks.last_byte_ns < self.end_ns;
        self.replies_in_schedule += u64::from(in_schedule);
        self.good_in_schedule += u64::from(in_schedule && matches!(status, 200..400));
        let counts = self.at(clocks.planned_ns);
        counts.replies += 1;
        if let Some(class) = counts.statuses.get_mut(usize::from(status / 100).wrapping_sub(1)) {
            *class += 1;
        }
        if self.is_measured(clocks.planned_ns) {
            let response_ns = clocks.last_byte_ns.saturating_sub(clocks.planned_ns);
            self.second.response.record(response_ns);
            self.times.record(clocks);
        }
        self.sample(clocks, request, Ok(status));
    }

    /// A request that has no whole reply, and never will.
    pub(super) fn failed(&mut self, clocks: &Clocks, request: RequestId, kind: ErrorKind) {
        self.at(clocks.planned_ns).errors.count(kind);
        self.sample(clocks, request, Err(kind));
    }

    fn sample(&mut self, clocks: &Clocks, request: RequestId, end: Result<u16, ErrorKind>) {
        if !self.each || !self.is_measured(clocks.planned_ns) {
            return;
        }
        // What did not happen stays 0, which no clock can show once the run has begun.
        let since_start = |at_ns: u64| at_ns.saturating_sub(self.start_ns);
        let clocks = Clocks {
            planned_ns: since_start(clocks.planned_ns),
            started_ns: since_start(clocks.started_ns),
            connected_ns: since_start(clocks.connected_ns),
            sent_ns: since_start(clocks.sent_ns),
            first_byte_ns: since_start(clocks.first_byte_ns),
            last_byte_ns: since_start(clocks.last_byte_ns),
        };
        self.samples.push(Sample { clocks, request, end });
    }

    /// The samples since the last call.
    pub(super) fn take_samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }

    /// Ends a second: what happened in it.
    pub(super) fn take_second(&mut self) -> Interval {
        let mut second = std::mem::take(&mut self.second);
        second.counts = self.counts[1].since(&self.before);
        self.before = self.counts[1];
        second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_the_schedule_are_those_that_come_in_it_whenever_they_were_planned() {
        let mut tally = Tally::new(0, 0, false);
        tally.begin(100, 200, 300, false);
        // Planned in the warm-up, before the end, and at the end.
        for (planned_ns, last_byte_ns) in [(110, 199), (110, 200), (250, 299), (250, 300)] {
            let clocks = Clocks { planned_ns, last_byte_ns, ..Clocks::default() };
            tally.replied(&clocks, RequestId(0), 200);
            tally.replied(&clocks, RequestId(0), 503);
        }
        assert_eq!((tally.measured().replies, tally.whole_run().replies), (4, 8));
        assert_eq!((tally.replies_in_schedule, tally.good_in_schedule), (4, 2));
    }
}
