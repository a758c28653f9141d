//! The sum of what the driving threads report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::message::Message;
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
    let (mut ended_ns, mut plan_ends_ns) = (start_ns, start_ns);
    loop {
        match receiver.recv_timeout(STOP_POLL) {
            Ok(Message::Second(part)) => seconds.add(&part),
            Ok(Message::Samples(samples)) => observer.requests(&samples),
            Ok(Message::Done(report)) => {
                ended_ns = ended_ns.max(report.ended_ns);
                plan_ends_ns = plan_ends_ns.max(report.plan_ends_ns);
                seconds.reported.push(report.seconds);
                outcome.add(&report.outcome);
            }
            Ok(Message::Ready(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        while let Some(second) = seconds.take_complete() {
            observer.second(&second);
            outcome.seconds.push(SecondSummary::from(&second));
        }
        if !outcome.interrupted && observer.stop() {
            outcome.interrupted = true;
            stop.store(true, Ordering::Relaxed);
        }
    }
    let from_ns = start_ns.saturating_add(config.warmup_ns);
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
    /// Number of seconds reported by each finished thread.
    reported: Vec<u64>,
}

/// The sum of the threads' reports of a second so far.
#[derive(Default)]
struct PartialSecond {
    sum: Interval,
    threads: usize,
}

impl Seconds {
    fn new(config: &Config) -> Self {
        Self { threads: config.threads.max(1), held: BTreeMap::new(), reported: Vec::new() }
    }

    fn add(&mut self, part: &Interval) {
        let held = self.held.entry(part.second).or_default();
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
}
