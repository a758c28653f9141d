//! The arrivals of a thread: those of its share of the schedule, or of a closed loop. It says which
//! is due and how far the thread is behind. It has no clock.

use crate::config::{Config, LoadModel};
use crate::schedule::{Arrival, ArrivalLaw, Schedule};

/// Durations from this value on are unlimited.
const FOREVER_NS: u64 = u64::MAX / 8;

/// The arrivals of a thread. Times are nanoseconds on the run's clock.
#[derive(Debug)]
pub(super) struct ArrivalPlan {
    schedule: Schedule,
    /// The next arrival of the schedule.
    next: Option<Arrival>,
    /// The same schedule, advanced to the end of the last second: the starts that were due.
    due_schedule: Schedule,
    next_due_ns: Option<u64>,
    /// Number of arrivals taken from the schedule, of arrivals due by the end of the last second,
    /// and of those due but not taken.
    taken: u64,
    due: u64,
    behind: u64,
    is_closed_loop: bool,
    /// Number of the next arrival in a closed loop.
    next_number: u64,
    threads: u64,
    /// Limit on the numbers of arrivals.
    arrivals_max: u64,
    is_endless: bool,
    start_ns: u64,
    /// End of the schedule.
    end_ns: u64,
    /// End of the plan: no arrival begins from then on.
    pub(super) ends_ns: u64,
    /// Planned time of the first arrival of this thread that comes behind the last of the run,
    /// where a number of arrivals or sessions ends an open loop; else `u64::MAX`. That of another
    /// thread may come before it.
    pub(super) first_left_out_ns: u64,
    /// True once all arrivals have been taken.
    pub(super) is_over: bool,
}

impl ArrivalPlan {
    /// Creates the plan of thread number `index`.
    pub(super) fn new(config: &Config, index: usize) -> Self {
        let (law, is_over) = match &config.model {
            LoadModel::Open(law) => (law.clone(), false),
            // A thread without a connection has nothing to do.
            LoadModel::Closed(conns) => {
                (ArrivalLaw::Trace([].into()), config.share(*conns, index) == 0)
            }
        };
        let threads = config.threads.max(1);
        let schedule = Schedule::sharded(&law, config.duration_ns, config.seed, index, threads);
        Self {
            due_schedule: schedule.clone(),
            schedule,
            next: None,
            next_due_ns: None,
            taken: 0,
            due: 0,
            behind: 0,
            is_closed_loop: matches!(config.model, LoadModel::Closed(_)),
            next_number: index as u64,
            threads: threads as u64,
            arrivals_max: if config.arrivals_max == 0 { u64::MAX } else { config.arrivals_max },
            is_endless: config.duration_ns >= FOREVER_NS,
            start_ns: 0,
            end_ns: u64::MAX,
            ends_ns: u64::MAX,
            first_left_out_ns: u64::MAX,
            is_over,
        }
    }

    /// Begins the schedule, which lasts from `start_ns` to `end_ns`.
    pub(super) fn begin(&mut self, start_ns: u64, end_ns: u64, now_ns: u64) {
        self.start_ns = start_ns;
        (self.end_ns, self.ends_ns) = (end_ns, end_ns);
        self.next_due_ns = self.due_schedule.next_own().map(|arrival| self.on_clock_ns(arrival));
        self.advance(now_ns);
    }

    fn on_clock_ns(&self, arrival: Arrival) -> u64 {
        self.start_ns.saturating_add(arrival.planned_ns)
    }

    /// Returns the planned time of the next arrival of the schedule, which may have passed.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.next.map(|arrival| arrival.planned_ns)
    }

    /// Takes the next arrival of the schedule, if it was planned for `until_ns` or earlier.
    pub(super) fn take_until(&mut self, until_ns: u64, now_ns: u64) -> Option<Arrival> {
        let arrival = self.next.filter(|arrival| arrival.planned_ns <= until_ns)?;
        self.advance(now_ns);
        Some(arrival)
    }

    fn advance(&mut self, now_ns: u64) {
        let next = self.schedule.next_own();
        self.next = next.map(|next| Arrival { planned_ns: self.on_clock_ns(next), ..next });
        self.taken += u64::from(self.next.is_some());
        match self.next {
            Some(next) if next.number >= self.arrivals_max => self.leave_out(next),
            // A plan without an end is over when nothing comes any more.
            None if !self.is_closed_loop => {
                self.end(if self.is_endless { now_ns } else { self.ends_ns });
            }
            _ => {}
        }
    }

    /// Returns whether a closed loop begins a session on any connection that is free. Ends the plan
    /// at its end.
    pub(super) fn may_begin_closed(&mut self, now_ns: u64) -> bool {
        if self.is_over || !self.is_closed_loop || now_ns < self.start_ns {
            return false;
        }
        self.is_over = now_ns >= self.end_ns || self.next_number >= self.arrivals_max;
        !self.is_over
    }

    /// Takes the next arrival of a closed loop.
    pub(super) fn take_closed(&mut self, now_ns: u64) -> Arrival {
        let number = self.next_number;
        self.next_number += self.threads;
        Arrival { number, planned_ns: now_ns }
    }

    /// Returns the time from which a closed loop uses its free connections; `None` for an open
    /// loop, and at the end.
    pub(super) fn closed_from_ns(&self) -> Option<u64> {
        (self.is_closed_loop && !self.is_over).then_some(self.start_ns)
    }

    /// Ends the plan with the last arrival of the run, which is before `arrival`.
    pub(super) fn leave_out(&mut self, arrival: Arrival) {
        if !self.is_closed_loop {
            self.first_left_out_ns = self.first_left_out_ns.min(arrival.planned_ns);
        }
        self.end(arrival.planned_ns);
    }

    /// Ends the plan: no arrival planned for `at_ns` or later is begun.
    pub(super) fn end(&mut self, at_ns: u64) {
        self.next = None;
        self.is_over = true;
        self.ends_ns = self.ends_ns.min(at_ns);
    }

    /// Returns by how many arrivals the thread has fallen further behind its schedule since the
    /// last call; negative if it caught up.
    pub(super) fn falls_behind(&mut self, now_ns: u64) -> i64 {
        while let Some(due_ns) = self.next_due_ns
            && due_ns <= now_ns
            && !self.is_over
        {
            self.due += 1;
            self.next_due_ns =
                self.due_schedule.next_own().map(|arrival| self.on_clock_ns(arrival));
        }
        // One that was taken and is not due yet is not ahead.
        let behind = if self.is_over { 0 } else { self.due.saturating_sub(self.taken) };
        let change = behind as i64 - self.behind as i64;
        self.behind = behind;
        change
    }
}
