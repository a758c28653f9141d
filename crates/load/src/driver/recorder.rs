//! The counts of a thread, kept separately for the measured time and what is around it, and cut
//! into seconds. Independent of sockets and the clock.

use crate::config::{Config, RequestSample};
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

/// Planned time of what belongs to no request, such as a connection opened ahead of any. It is
/// measured whenever it happens.
pub(super) const UNPLANNED: u64 = u64::MAX;

/// Times of a run, nanoseconds on its clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Phases {
    /// Start of the schedule, with the warm-up.
    pub(super) start_ns: u64,
    /// Start and end of the measured time, behind which comes the cool-down. Without one it has no
    /// end: a session may have a request planned behind the schedule.
    pub(super) measured_ns: (u64, u64),
    /// End of the schedule: nothing is begun after it.
    pub(super) end_ns: u64,
}

impl Phases {
    /// Returns those of a run that begins at `start_ns`.
    pub(super) fn new(start_ns: u64, config: &Config) -> Self {
        let end_ns = start_ns.saturating_add(config.duration_ns);
        let until_ns = match config.cooldown_ns {
            0 => u64::MAX,
            length_ns => end_ns.saturating_sub(length_ns),
        };
        Self { start_ns, measured_ns: (start_ns + config.warmup_ns, until_ns), end_ns }
    }

    /// Returns whether what was planned for this time is measured.
    fn measures(&self, planned_ns: u64) -> bool {
        let (from_ns, until_ns) = self.measured_ns;
        planned_ns == UNPLANNED || (from_ns..until_ns).contains(&planned_ns)
    }
}

/// Counts and times, for the measured time and for the warm-up and the cool-down around it. A
/// request belongs to the part in which it was planned.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) phases: Phases,
    /// End of the plan, once it is known: that of the schedule, or of the last arrival there is.
    pub(super) plan_ends_ns: u64,
    /// End of the last request to complete, but for those of the cool-down.
    pub(super) ended_ns: u64,
    /// Replies whose last byte came in the measured time and before the end of the plan, whenever
    /// their requests were planned: the throughput of a server that is always behind.
    replies_in_schedule: u64,
    /// Replies among them with a status of 2xx or 3xx, because a refusal is a complete reply too.
    good_in_schedule: u64,
    each: bool,
    counts: [Counts; 2],
    /// Distributions of the requests planned in the measured time.
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
        let phases = Phases { measured_ns: (0, u64::MAX), end_ns: u64::MAX, start_ns: 0 };
        Self { phases, plan_ends_ns: u64::MAX, ..Self::default() }
    }

    /// Begins the run. Earlier counts are kept, since they are of connections that are still open.
    pub(super) fn begin(&mut self, phases: Phases, each: bool) {
        (self.phases, self.each) = (phases, each);
        (self.plan_ends_ns, self.ended_ns) = (phases.end_ns, phases.start_ns);
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
        self.phases.measures(planned_ns)
    }

    /// Records the end of a request.
    fn note_end(&mut self, planned_ns: u64, now_ns: u64) {
        if planned_ns < self.phases.measured_ns.1 {
            self.ended_ns = now_ns;
        }
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
        counts.due += 1;
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
        self.note_end(timestamps.planned_ns, timestamps.last_byte_ns);
        let in_schedule = self.is_measured(timestamps.last_byte_ns)
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
        self.note_end(timestamps.planned_ns, now_ns);
        self.counts_at(timestamps.planned_ns).errors.count(kind);
        self.sample(timestamps, request, Err(kind));
    }

    fn sample(&mut self, timestamps: &Timestamps, request: RequestId, end: Result<u16, ErrorKind>) {
        if !self.each || !self.is_measured(timestamps.planned_ns) {
            return;
        }
        // What did not happen stays 0, which no clock can show once the run has begun.
        let since_start = |at_ns: u64| at_ns.saturating_sub(self.phases.start_ns);
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
    use super::super::fixtures::config;
    use super::*;

    #[test]
    fn replies_of_the_schedule_are_those_that_come_in_it_whenever_they_were_planned() {
        let mut recorder = Recorder::new();
        let config = Config { duration_ns: 200, warmup_ns: 100, ..config() };
        recorder.begin(Phases::new(100, &config), false);
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
    fn the_cool_down_is_not_measured() {
        let config = Config { duration_ns: 300, warmup_ns: 100, cooldown_ns: 100, ..config() };
        let mut recorder = Recorder::new();
        recorder.begin(Phases::new(0, &config), false);
        // Planned in the measured time, answered in it and in the cool-down; planned in that.
        for (planned_ns, last_byte_ns) in
            [(150, 199), (150, 200), (199, 450), (200, 250), (290, 500)]
        {
            let timestamps = Timestamps { planned_ns, last_byte_ns, ..Timestamps::default() };
            recorder.replied(&timestamps, RequestId(0), 200);
        }
        assert_eq!(recorder.ended_ns, 450);
        let outcome = recorder.into_outcome();
        assert_eq!((outcome.counts.replies, outcome.whole_run.replies), (3, 5));
        assert_eq!((outcome.replies_in_schedule, outcome.times.response.count()), (1, 3));
    }

    #[test]
    fn a_plan_that_ends_before_its_schedule_has_no_replies_after_it() {
        let mut recorder = Recorder::new();
        let config = Config { duration_ns: u64::MAX, ..config() };
        recorder.begin(Phases::new(0, &config), false);
        recorder.plan_ends_ns = 300;
        for last_byte_ns in [299, 300, 5000] {
            let timestamps = Timestamps { planned_ns: 250, last_byte_ns, ..Timestamps::default() };
            recorder.replied(&timestamps, RequestId(0), 200);
        }
        let outcome = recorder.into_outcome();
        assert_eq!((outcome.counts.replies, outcome.replies_in_schedule), (3, 1));
    }
}
