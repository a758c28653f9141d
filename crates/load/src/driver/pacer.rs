//! The pacer of a thread: which start, part of a request or deadline is due, and when the next one
//! will be. It has no clock, and does not know what becomes of a start.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weir_dispatch::timers::TimerWheel;

use super::arrival_plan::ArrivalPlan;
use super::send_pacer::SendPacer;
use crate::config::Config;
use crate::measure::ErrorKind;
use crate::schedule::Arrival;

/// Time after the end during which starts planned before the end may still happen.
const GRACE_NS: u64 = 1_000_000_000;

/// A start that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The next requests of a session, planned for the end of its think time.
    Resume { slot: u32, planned_ns: u64 },
    /// A session on a connection that is free.
    OnFree { slot: u32, arrival: Arrival },
    /// A session on a connection of its own.
    OnNew(Arrival),
    /// None yet: the arrival was queued for a shared connection.
    Queued,
}

/// The pacer of a thread. Times are nanoseconds on the run's clock.
pub(super) struct Pacer<'a> {
    config: &'a Config,
    pub(super) arrivals: ArrivalPlan,
    /// Deadlines of exchanges, by slot.
    pub(super) deadlines: TimerWheel,
    /// Connections whose next part of a request is due later.
    pub(super) sends: SendPacer,
    /// Slots in a think time, by its end.
    thinking: BinaryHeap<Reverse<(u64, u32)>>,
    /// Shared or closed-loop connections without a session.
    free: VecDeque<u32>,
    /// Arrivals that wait for a shared connection.
    queued: VecDeque<Arrival>,
}

impl<'a> Pacer<'a> {
    /// Creates the pacer of thread number `index`.
    pub(super) fn new(config: &'a Config, index: usize, now_ns: u64) -> Self {
        Self {
            config,
            arrivals: ArrivalPlan::new(config, index),
            deadlines: TimerWheel::new(now_ns),
            sends: SendPacer::new(config.send_rate),
            thinking: BinaryHeap::new(),
            free: VecDeque::new(),
            queued: VecDeque::new(),
        }
    }

    /// Adds a shared or closed-loop connection that has no session.
    pub(super) fn add_free(&mut self, slot: u32) {
        self.free.push_back(slot);
    }

    /// Adds a connection in a think time.
    pub(super) fn think(&mut self, until_ns: u64, slot: u32) {
        self.thinking.push(Reverse((until_ns, slot)));
    }

    /// Removes and returns a start that is due.
    pub(super) fn take_start(&mut self, now_ns: u64) -> Option<Start> {
        let next_ns = self.arrivals.next_ns().unwrap_or(u64::MAX);
        if let Some(Reverse((planned_ns, slot))) = self.thinking.peek().copied()
            && planned_ns <= now_ns.min(next_ns)
        {
            self.thinking.pop();
            return Some(Start::Resume { slot, planned_ns });
        }
        if !self.queued.is_empty()
            && let Some(slot) = self.free.pop_front()
        {
            return self.queued.pop_front().map(|arrival| Start::OnFree { slot, arrival });
        }
        if let Some(arrival) = self.arrivals.take_until(now_ns, now_ns) {
            if self.config.shared_conns == 0 {
                return Some(Start::OnNew(arrival));
            }
            // Behind those that wait already.
            self.queued.push_back(arrival);
            return Some(Start::Queued);
        }
        if !self.arrivals.may_begin_closed(now_ns) {
            return None;
        }
        let slot = self.free.pop_front()?;
        Some(Start::OnFree { slot, arrival: self.arrivals.take_closed(now_ns) })
    }

    /// Returns the planned time of the next start, which may have passed. Starts that wait for a
    /// free connection are left out.
    pub(super) fn next_start_ns(&self) -> Option<u64> {
        let think_ns = self.thinking.peek().map(|Reverse((until_ns, _))| *until_ns);
        self.arrivals.next_ns().into_iter().chain(think_ns).min()
    }

    /// Returns the time at which something is due; `None` if nothing is.
    pub(super) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        if !self.free.is_empty() {
            if let Some(from_ns) = self.arrivals.closed_from_ns() {
                return Some(now_ns.max(from_ns));
            }
            if !self.queued.is_empty() {
                return Some(now_ns);
            }
        }
        let queued_ns = self.queued.front().map(|arrival| self.expires_ns(arrival));
        [self.next_start_ns(), queued_ns, self.sends.next_ns(), self.deadlines.next_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the time until which an arrival waits for a shared connection.
    fn expires_ns(&self, arrival: &Arrival) -> u64 {
        let timeout_ns = arrival.planned_ns.saturating_add(self.config.timeout_ns);
        timeout_ns.min(self.config.deadline_of(arrival.planned_ns))
    }

    /// Removes and returns an arrival that has waited too long for a shared connection, and its
    /// error.
    pub(super) fn take_expired(&mut self, now_ns: u64) -> Option<(Arrival, ErrorKind)> {
        let arrival = *self.queued.front()?;
        if self.expires_ns(&arrival) > now_ns {
            return None;
        }
        self.queued.pop_front();
        let late = self.config.deadline_of(arrival.planned_ns) <= now_ns;
        Some((arrival, if late { ErrorKind::Deadline } else { ErrorKind::SendTimeout }))
    }

    /// Returns whether the schedule is so late that the run would not end.
    pub(super) fn is_too_late(&self, end_ns: u64, now_ns: u64) -> bool {
        now_ns >= end_ns.saturating_add(GRACE_NS) && self.arrivals.next_ns().is_some()
    }

    /// Returns whether a connection is free and no session is left for it.
    pub(super) fn has_nothing_to_begin(&self) -> bool {
        self.arrivals.is_over && !self.free.is_empty() && self.queued.is_empty()
    }

    /// Removes and returns an arrival that waits for a shared connection.
    pub(super) fn take_queued(&mut self) -> Option<Arrival> {
        self.queued.pop_front()
    }

    /// Removes and returns an arrival that was never begun: one that waits, or one of the schedule
    /// planned for `until_ns` or earlier.
    pub(super) fn take_missed(&mut self, until_ns: u64, now_ns: u64) -> Option<Arrival> {
        self.take_queued().or_else(|| self.arrivals.take_until(until_ns, now_ns))
    }

    /// Removes and returns a connection in a think time.
    pub(super) fn take_thinking(&mut self) -> Option<u32> {
        self.thinking.pop().map(|Reverse((_, slot))| slot)
    }

    /// Returns whether all arrivals have been taken, and all but the free ones of `taken` slots
    /// have ended.
    pub(super) fn is_over(&self, taken: usize) -> bool {
        self.arrivals.is_over && taken == self.free.len() && self.queued.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{S, config};
    use super::*;
    use crate::config::LoadModel;

    fn begun(config: &Config) -> Pacer<'_> {
        let mut pacer = Pacer::new(config, 0, 0);
        pacer.arrivals.begin(0, config.duration_ns, 0);
        pacer
    }

    fn arrival(number: u64) -> Arrival {
        Arrival { number, planned_ns: number * S }
    }

    #[test]
    fn arrivals_of_an_open_loop_are_due_by_the_schedule_alone() {
        let config = config();
        let mut pacer = begun(&config);
        for number in 0..10 {
            let due_ns = number * S;
            assert_eq!(pacer.next_ns(0), Some(due_ns));
            if number > 0 {
                assert_eq!(pacer.take_start(due_ns - 1), None);
            }
            assert!(!pacer.is_over(0));
            assert_eq!(pacer.take_start(due_ns), Some(Start::OnNew(arrival(number))));
        }
        assert!(pacer.is_over(0) && !pacer.is_over(1));
        assert_eq!((pacer.next_ns(0), pacer.arrivals.ends_ns), (None, 10 * S));
    }

    #[test]
    fn think_times_and_arrivals_are_taken_in_the_order_of_their_plan() {
        let config = config();
        let mut pacer = begun(&config);
        assert_eq!(pacer.take_start(0), Some(Start::OnNew(arrival(0))));
        pacer.think(3 * S / 2, 5);
        pacer.think(S / 2, 4);
        assert_eq!(pacer.next_start_ns(), Some(S / 2));
        let resume = |slot, planned_ns| Some(Start::Resume { slot, planned_ns });
        assert_eq!(pacer.take_start(2 * S), resume(4, S / 2));
        assert_eq!(pacer.take_start(2 * S), Some(Start::OnNew(arrival(1))));
        assert_eq!(pacer.take_start(2 * S), resume(5, 3 * S / 2));
        pacer.think(20 * S, 6);
        assert_eq!((pacer.take_thinking(), pacer.take_thinking()), (Some(6), None));
    }

    #[test]
    fn an_arrival_waits_for_a_shared_connection_until_it_expires() {
        for (deadline_ns, kind) in [(0, ErrorKind::SendTimeout), (2 * S, ErrorKind::Deadline)] {
            let config = Config { shared_conns: 1, deadline_ns, ..config() };
            let patience_ns = if deadline_ns == 0 { config.timeout_ns } else { deadline_ns };
            let mut pacer = begun(&config);
            assert_eq!(pacer.take_start(S), Some(Start::Queued));
            assert_eq!(pacer.take_start(S), Some(Start::Queued));
            assert_eq!(pacer.take_start(S), None);
            assert_eq!(pacer.take_expired(patience_ns - 1), None);
            assert_eq!(pacer.take_expired(patience_ns), Some((arrival(0), kind)));
            pacer.add_free(3);
            assert_eq!(pacer.next_ns(patience_ns), Some(patience_ns));
            let start = Start::OnFree { slot: 3, arrival: arrival(1) };
            assert_eq!(pacer.take_start(patience_ns), Some(start));
        }
    }

    #[test]
    fn a_closed_loop_begins_on_whatever_is_free_until_the_end() {
        let config = Config { model: LoadModel::Closed(1), ..config() };
        let mut pacer = begun(&config);
        assert_eq!((pacer.take_start(0), pacer.next_ns(0)), (None, None));
        pacer.add_free(0);
        assert_eq!(pacer.next_ns(7), Some(7));
        let on_free = |number, planned_ns| {
            Some(Start::OnFree { slot: 0, arrival: Arrival { number, planned_ns } })
        };
        assert_eq!(pacer.take_start(7), on_free(0, 7));
        assert_eq!(pacer.take_start(8), None);
        pacer.add_free(0);
        assert_eq!(pacer.take_start(9), on_free(1, 9));
        pacer.add_free(0);
        assert_eq!((pacer.take_start(10 * S), pacer.is_over(1)), (None, true));
    }

    #[test]
    fn a_limit_on_arrivals_ends_the_plan_with_the_last() {
        let config = Config { arrivals_max: 2, ..config() };
        let mut pacer = begun(&config);
        assert_eq!(pacer.take_start(9 * S), Some(Start::OnNew(arrival(0))));
        assert!(!pacer.arrivals.is_over);
        assert_eq!(pacer.take_start(9 * S), Some(Start::OnNew(arrival(1))));
        assert!(pacer.arrivals.is_over);
        assert_eq!(pacer.arrivals.ends_ns, 2 * S);
    }

    #[test]
    fn arrivals_that_are_due_and_not_taken_are_behind_and_in_the_end_missed() {
        let config = config();
        let mut pacer = begun(&config);
        // The first has been taken, for it is the next to be begun.
        assert_eq!(pacer.arrivals.falls_behind(3 * S), 3);
        assert_eq!(pacer.take_start(3 * S), Some(Start::OnNew(arrival(0))));
        assert_eq!(pacer.take_start(3 * S), Some(Start::OnNew(arrival(1))));
        assert_eq!(pacer.arrivals.falls_behind(3 * S), -2);
        assert!(!pacer.is_too_late(10 * S, 10 * S) && pacer.is_too_late(10 * S, 11 * S));
        let missed = std::iter::from_fn(|| pacer.take_missed(8 * S, 11 * S)).count();
        assert_eq!((missed, pacer.arrivals.is_over), (7, false));
    }
}
