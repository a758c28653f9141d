//! The counts of a thread, kept separately for the warm-up and the measured time, and cut into
//! seconds. Independent of sockets and the clock.

use crate::config::RequestSample;
use crate::measure::{
    Counts, Distributions, ErrorKind, Interval, RunOutcome, TimeHistogram, Timestamps,
};
use crate::session::RequestId;

/// Status codes of replies that fulfil their request (RFC 9110, section 15).
const GOOD: std::ops::Range<u16> = 200..400;

/// A TLS handshake that is done.
pub(super) struct HandshakeDone {
    /// Planned start of the request that it was made for.
    pub(super) planned_ns: u64,
    /// Time since the connection was established.
    pub(super) took_ns: u64,
    /// True if it resumed an earlier session.
    pub(super) is_resumed: bool,
}

/// Counts and times, for the warm-up and for the time after it. A request belongs to the part in
/// which it was planned.
#[derive(Default)]
pub(super) struct Recorder {
    measure_from_ns: u64,
    start_ns: u64,
    /// End of the schedule: nothing is begun after it.
    pub(super) end_ns: u64,
    /// End of the plan, once it is known: that of the schedule, or of the last arrival there is.
    pub(super) plan_ends_ns: u64,
    /// End of the last request to complete.
    pub(super) ended_ns: u64,
    /// Replies whose last byte came after the warm-up and before the end of the plan, whenever
    /// their requests were planned: the throughput of a server that is always behind.
    replies_in_schedule: u64,
    /// Replies among them with a status of 2xx or 3xx, because a refusal is a complete reply too.
    good_in_schedule: u64,
    each: bool,
    counts: [Counts; 2],
    /// Distributions of the requests planned after the warm-up.
    times: Distributions,
    /// Response times of the replies among them with a status of 2xx or 3xx.
    good_response: TimeHistogram,
    /// Durations of complete sessions.
    sessions: TimeHistogram,
    /// Lifetimes of connections.
    lifetimes: TimeHistogram,
    /// The current second of the measured time: its times; its counts are computed at its end.
    second: Box<Interval>,
    before: Counts,
    samples: Vec<RequestSample>,
}

impl Recorder {
    /// Creates an empty recorder, for the time before the run.
    pub(super) fn new() -> Self {
        Self { end_ns: u64::MAX, plan_ends_ns: u64::MAX, ..Self::default() }
    }

    /// Begins the run. Earlier counts are kept, since they are of connections that are still open.
    /// Times are on the run's clock: the schedule lasts from `start_ns` to `end_ns`, the measured
    /// time begins at `measure_from_ns`.
    pub(super) fn begin(&mut self, start_ns: u64, measure_from_ns: u64, end_ns: u64, each: bool) {
        (self.start_ns, self.measure_from_ns, self.each) = (start_ns, measure_from_ns, each);
        (self.end_ns, self.plan_ends_ns, self.ended_ns) = (end_ns, end_ns, start_ns);
    }

    /// Returns the counts for an event planned for `planned_ns`.
    pub(super) fn counts_at(&mut self, planned_ns: u64) -> &mut Counts {
        &mut self.counts[usize::from(self.is_measured(planned_ns))]
    }

    /// Ends the run now, before the end of the schedule.
    pub(super) fn interrupt(&mut self, now_ns: u64) {
        self.ended_ns = now_ns;
    }

    fn is_measured(&self, planned_ns: u64) -> bool {
        planned_ns >= self.measure_from_ns
    }

    /// Counts a start, and records its lag. The lag counts from `free_ns` at the earliest, when the
    /// connection became free: waiting for that is the server's doing.
    pub(super) fn started(&mut self, planned_ns: u64, free_ns: u64, now_ns: u64, requests: u64) {
        let lag_ns = now_ns.saturating_sub(planned_ns.max(free_ns));
        let counts = self.counts_at(planned_ns);
        counts.planned += requests;
        counts.started += requests;
        if self.is_measured(planned_ns) {
            self.second.lag.record(lag_ns);
            self.times.lag.record(lag_ns);
        }
    }

    /// Counts requests that cannot even be tried.
    pub(super) fn refused(&mut self, planned_ns: u64, requests: u64) {
        let counts = self.counts_at(planned_ns);
        counts.planned += requests;
        counts.started += requests;
    }

    /// Counts an arrival that was due and never begun. Its number of requests is unknown, and
    /// counts as one.
    pub(super) fn missed(&mut self, planned_ns: u64) {
        let counts = self.counts_at(planned_ns);
        counts.arrivals += 1;
        counts.planned += 1;
    }

    /// Counts a session in which every reply was complete.
    pub(super) fn completed_session(&mut self, planned_ns: u64, begun_ns: u64, now_ns: u64) {
        self.counts_at(planned_ns).sessions += 1;
        if self.is_measured(planned_ns) {
            self.sessions.record(now_ns.saturating_sub(begun_ns));
        }
    }

    /// Records the lifetime of a connection that carried at least one complete reply.
    pub(super) fn closed(&mut self, planned_ns: u64, lifetime_ns: u64) {
        if self.is_measured(planned_ns) {
            self.lifetimes.record(lifetime_ns);
        }
    }

    /// Counts an established connection.
    pub(super) fn connected(&mut self, planned_ns: u64, took_ns: u64) {
        self.counts_at(planned_ns).connected += 1;
        if self.is_measured(planned_ns) {
            self.times.connect.record(took_ns);
        }
    }

    /// Counts a TLS handshake.
    pub(super) fn secured(&mut self, handshake: &HandshakeDone) {
        let counts = self.counts_at(handshake.planned_ns);
        counts.handshakes += 1;
        counts.handshakes_resumed += u64::from(handshake.is_resumed);
        if self.is_measured(handshake.planned_ns) {
            self.times.handshake.record(handshake.took_ns);
        }
    }

    /// Counts a complete reply.
    pub(super) fn replied(&mut self, timestamps: &Timestamps, request: RequestId, status: u16) {
        self.ended_ns = timestamps.last_byte_ns;
        let in_schedule = self.measure_from_ns <= timestamps.last_byte_ns
            && timestamps.last_byte_ns < self.plan_ends_ns;
        self.replies_in_schedule += u64::from(in_schedule);
        self.good_in_schedule += u64::from(in_schedule && GOOD.contains(&status));
        let counts = self.counts_at(timestamps.planned_ns);
        counts.replies += 1;
        if let Some(class) = counts.statuses.get_mut(usize::from(status / 100).wrapping_sub(1)) {
            *class += 1;
        }
        if self.is_measured(timestamps.planned_ns) {
            let response_ns = timestamps.last_byte_ns.saturating_sub(timestamps.planned_ns);
            self.second.response.record(response_ns);
            self.times.record(timestamps);
            if GOOD.contains(&status) {
                self.good_response.record(response_ns);
            }
        }
        self.sample(timestamps, request, Ok(status));
    }

    /// Counts a request that ended without a complete reply.
    pub(super) fn failed(
        &mut self,
        timestamps: &Timestamps,
        request: RequestId,
        kind: ErrorKind,
        now_ns: u64,
    ) {
        self.ended_ns = now_ns;
        self.counts_at(timestamps.planned_ns).errors.count(kind);
        self.sample(timestamps, request, Err(kind));
    }

    fn sample(&mut self, timestamps: &Timestamps, request: RequestId, end: Result<u16, ErrorKind>) {
        if !self.each || !self.is_measured(timestamps.planned_ns) {
            return;
        }
        // What did not happen stays 0, which no clock can show once the run has begun.
        let since_start = |at_ns: u64| at_ns.saturating_sub(self.start_ns);
        let timestamps = Timestamps {
            planned_ns: since_start(timestamps.planned_ns),
            started_ns: since_start(timestamps.started_ns),
            connected_ns: since_start(timestamps.connected_ns),
            secured_ns: since_start(timestamps.secured_ns),
            sent_ns: since_start(timestamps.sent_ns),
            first_byte_ns: since_start(timestamps.first_byte_ns),
            last_byte_ns: since_start(timestamps.last_byte_ns),
        };
        self.samples.push(RequestSample { timestamps, request, end });
    }

    /// Returns the samples since the last call.
    pub(super) fn take_samples(&mut self) -> Vec<RequestSample> {
        std::mem::take(&mut self.samples)
    }

    /// Returns the thread's part of the outcome.
    pub(super) fn into_outcome(self) -> RunOutcome {
        let [mut whole_run, counts] = self.counts;
        whole_run.add(&counts);
        RunOutcome {
            counts,
            whole_run,
            replies_in_schedule: self.replies_in_schedule,
            good_in_schedule: self.good_in_schedule,
            times: self.times,
            good_response: self.good_response,
            sessions: self.sessions,
            lifetimes: self.lifetimes,
            ..RunOutcome::default()
        }
    }

    /// Ends a second and returns its measurements. The next one goes into `spare`, which is empty.
    pub(super) fn take_second(&mut self, spare: Box<Interval>) -> Box<Interval> {
        let mut second = std::mem::replace(&mut self.second, spare);
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
        let mut recorder = Recorder::new();
        recorder.begin(100, 200, 300, false);
        // Planned in the warm-up, before the end, and at the end.
        for (planned_ns, last_byte_ns) in [(110, 199), (110, 200), (250, 299), (250, 300)] {
            let timestamps = Timestamps { planned_ns, last_byte_ns, ..Timestamps::default() };
            recorder.replied(&timestamps, RequestId(0), 200);
            recorder.replied(&timestamps, RequestId(0), 503);
        }
        let outcome = recorder.into_outcome();
        assert_eq!((outcome.counts.replies, outcome.whole_run.replies), (4, 8));
        assert_eq!((outcome.replies_in_schedule, outcome.good_in_schedule), (4, 2));
        assert_eq!((outcome.times.response.count(), outcome.good_response.count()), (4, 2));
    }

    #[test]
    fn a_plan_that_ends_before_its_schedule_has_no_replies_after_it() {
        let mut recorder = Recorder::new();
        recorder.begin(0, 0, u64::MAX, false);
        recorder.plan_ends_ns = 300;
        for last_byte_ns in [299, 300, 5000] {
            let timestamps = Timestamps { planned_ns: 250, last_byte_ns, ..Timestamps::default() };
            recorder.replied(&timestamps, RequestId(0), 200);
        }
        let outcome = recorder.into_outcome();
        assert_eq!((outcome.counts.replies, outcome.replies_in_schedule), (3, 1));
    }
}
