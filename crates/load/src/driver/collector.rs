//! The sum of what the driving threads report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::message::Message;
use super::recorder::Phases;
use crate::config::{Config, LoadModel, RunObserver};
use crate::measure::{Interval, RunOutcome, SecondSummary};

/// Interval at which the operator's stop request is polled.
pub(super) const STOP_POLL: Duration = Duration::from_millis(100);

/// Adds up the threads' reports, passes each second to `observer`, and stops the threads when it
/// asks to.
pub(super) fn collect(
    config: &Config,
    receiver: &Receiver<Message>,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
    start_ns: u64,
) -> RunOutcome {
    let mut outcome = RunOutcome::default();
    let mut seconds = Seconds::new(config);
    let (mut ended_ns, mut plan_ends_ns, mut first_left_out_ns) = (start_ns, start_ns, u64::MAX);
    loop {
        match receiver.recv_timeout(STOP_POLL) {
            Ok(Message::Second(part)) => {
                seconds.add(&part.interval);
                part.give_back();
            }
            Ok(Message::Samples(samples)) => observer.requests(&samples),
            Ok(Message::Done(report)) => {
                ended_ns = ended_ns.max(report.ended_ns);
                plan_ends_ns = plan_ends_ns.max(report.plan_ends_ns);
                // Whichever thread would have begun it, the plan of all ends there.
                first_left_out_ns = first_left_out_ns.min(report.first_left_out_ns);
                seconds.reported.push(report.seconds);
                outcome.add(&report.outcome);
            }
            Ok(Message::Ready(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        while let Some(second) = seconds.take_complete() {
            observer.second(&second);
            outcome.seconds.push(SecondSummary::from(&second));
            seconds.reuse(second);
        }
        if !outcome.interrupted && observer.stop() {
            outcome.interrupted = true;
            stop.store(true, Ordering::Relaxed);
        }
    }
    let (from_ns, until_ns) = Phases::new(start_ns, config).measured_ns;
    let plan_ends_ns = plan_ends_ns.min(first_left_out_ns).min(until_ns);
    outcome.planned_ns = match config.model {
        LoadModel::Open(_) => plan_ends_ns.saturating_sub(from_ns),
        LoadModel::Closed(_) => plan_ends_ns.min(ended_ns).saturating_sub(from_ns),
    };
    outcome.elapsed_ns = ended_ns.saturating_sub(from_ns).max(outcome.planned_ns);
    outcome
}

/// The seconds of all threads, held until each thread has reported them.
struct Seconds {
    threads: usize,
    held: BTreeMap<u64, PartialSecond>,
    /// Seconds for reuse, empty: their memory is made once.
    spare: Vec<Interval>,
    /// Number of seconds reported by each finished thread.
    reported: Vec<u64>,
}

/// The sum of the threads' reports of a second so far.
struct PartialSecond {
    sum: Interval,
    threads: usize,
}

impl Seconds {
    fn new(config: &Config) -> Self {
        Self {
            threads: config.threads.max(1),
            held: BTreeMap::new(),
            spare: vec![Interval::default()],
            reported: Vec::new(),
        }
    }

    fn add(&mut self, part: &Interval) {
        let begin = || PartialSecond { sum: self.spare.pop().unwrap_or_default(), threads: 0 };
        let held = self.held.entry(part.second).or_insert_with(begin);
        held.sum.second = part.second;
        held.sum.add(part);
        held.threads += 1;
    }

    /// Removes and returns the next second, once all threads that had it have reported it.
    fn take_complete(&mut self) -> Option<Interval> {
        let first = self.held.first_entry()?;
        let ended_before = self.reported.iter().filter(|seconds| *seconds <= first.key()).count();
        let is_complete = first.get().threads + ended_before >= self.threads;
        is_complete.then(|| first.remove().sum)
    }

    /// Keeps a second that has been reported, for another.
    fn reuse(&mut self, mut second: Interval) {
        second.clear();
        self.spare.push(second);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::config;
    use super::*;

    #[test]
    fn a_second_is_the_sum_of_its_threads_and_not_of_the_second_before() {
        let mut seconds = Seconds::new(&Config { threads: 2, ..config() });
        for number in 0..5 {
            let mut part = Interval { second: number, open: 3, ..Interval::default() };
            part.lag.record(1000 >> number);
            seconds.add(&part);
            assert!(seconds.take_complete().is_none(), "a thread has not reported it");
            seconds.add(&part);
            let sum = seconds.take_complete().unwrap();
            assert_eq!((sum.second, sum.open, sum.lag.count()), (number, 6, 2));
            assert_eq!(sum.lag.max(), 1000 >> number);
            seconds.reuse(sum);
            assert_eq!(seconds.spare.len(), 1, "of one after the other one is enough");
        }
        // A thread that is ahead has seconds of its own.
        for number in [5, 6] {
            seconds.add(&Interval { second: number, ..Interval::default() });
        }
        seconds.reported.push(5);
        let rest = std::iter::from_fn(|| seconds.take_complete()).map(|sum| sum.second);
        assert!(rest.eq([5, 6]));
    }
}
