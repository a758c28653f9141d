//! The driver: threads that keep a schedule over sockets, and the sum of their measurements. The
//! only part of the crate that uses sockets and the clock; it judges nothing.

mod background;
mod clock;
mod conn;
mod exchange;
mod pieces;
mod tally;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use weir_sys::process;

use crate::config::{Config, Pace, Sample, Watch};
use crate::measure::{Counts, Distributions, Interval, Outcome, Second, ThreadUse, Times};
use clock::Clock;
use worker::Worker;

/// Descriptors reserved for purposes other than connections: standard streams, epoll, output files.
const SPARE_FDS: u64 = 64;

/// Time from the moment all threads are ready to the first planned start.
const HEADWAY_NS: u64 = 2_000_000;

/// Interval at which the operator's stop request is polled.
const PATIENCE: Duration = Duration::from_millis(100);

/// The reason why a run could not begin, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A message from a driving thread.
enum Message {
    Ready(std::io::Result<()>),
    Second(Box<Interval>),
    Samples(Vec<Sample>),
    Done(Box<Part>),
}

/// A thread's part of the outcome.
struct Part {
    counts: Counts,
    /// Counts of the whole run, warm-up included.
    whole_run: Counts,
    replies_in_schedule: u64,
    good_in_schedule: u64,
    times: Distributions,
    sessions: Times,
    lifetimes: Times,
    used: ThreadUse,
    open_max: u64,
    /// Number of seconds reported.
    seconds: u64,
    /// End of the plan; like the next field, on the run's clock.
    plan_ends_ns: u64,
    ended_ns: u64,
}

/// Returns the share of thread `index` of `threads` in `all`.
fn share(all: usize, index: usize, threads: usize) -> usize {
    let threads = threads.max(1);
    all / threads + usize::from(index < all % threads)
}

/// Returns the number of connections the process may have open, from its limit on descriptors,
/// which is raised as far as allowed.
pub fn open_limit() -> u64 {
    process::raise_open_files().saturating_sub(SPARE_FDS)
}

/// Runs a load, and returns when the last request has ended.
///
/// # Errors
/// A thread could not be started or set up: a sentence gives the reason.
pub fn run(config: &Config, watch: &mut dyn Watch) -> Result<Outcome, Error> {
    let threads = config.threads.max(1);
    let stop = AtomicBool::new(false);
    let clock = Clock::new();
    let limit = match config.conns_max as u64 {
        0 => open_limit(),
        most => open_limit().min(most),
    };
    let background = (config.idle + config.slow_senders + config.slow_readers) as u64;
    let open_max = usize::try_from(limit.saturating_sub(background)).unwrap_or(usize::MAX);
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let mut gates = Vec::new();
        for index in 0..threads {
            let (gate, start) = channel();
            gates.push(gate);
            let room = share(open_max, index, threads);
            let thread = Thread { config, index, clock, room, stop: &stop, start };
            let sender = sender.clone();
            // A gate that closes without a word ends the threads that wait at it.
            Builder::new()
                .spawn_scoped(scope, move || thread.run(&sender))
                .map_err(|error| Error(format!("a thread cannot be started: {error}")))?;
        }
        drop(sender);
        let interrupted = wait_for_all(threads, &receiver, watch, &stop)?;
        let start_ns = clock.now_ns() + HEADWAY_NS;
        // All are ready, and so wait at theirs.
        for gate in gates {
            let _ = gate.send(start_ns);
        }
        let mut outcome = collect(config, &receiver, watch, &stop, start_ns);
        outcome.interrupted |= interrupted;
        outcome.open_limit = limit;
        Ok(outcome)
    })
}

/// Waits until every thread is ready; returns whether the operator stopped the run meanwhile.
fn wait_for_all(
    threads: usize,
    receiver: &Receiver<Message>,
    watch: &mut dyn Watch,
    stop: &AtomicBool,
) -> Result<bool, Error> {
    let mut ready = 0;
    while ready < threads {
        match receiver.recv_timeout(PATIENCE) {
            Ok(Message::Ready(Ok(()))) => ready += 1,
            Ok(Message::Ready(Err(error))) => {
                stop.store(true, Ordering::Relaxed);
                return Err(Error(format!("a thread cannot be set up: {error}")));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        if watch.stop() {
            stop.store(true, Ordering::Relaxed);
        }
    }
    Ok(stop.load(Ordering::Relaxed))
}

/// The initial state of a driving thread.
struct Thread<'a> {
    config: &'a Config,
    index: usize,
    clock: Clock,
    room: usize,
    stop: &'a AtomicBool,
    /// Receives the start of the schedule, on the run's clock.
    start: Receiver<u64>,
}

impl Thread<'_> {
    fn run(self, out: &Sender<Message>) {
        let Thread { config, index, clock, room, stop, start } = self;
        if let Some(&cpu) = config.cpus.get(index % config.cpus.len().max(1)) {
            // The processors were checked before; one that has gone since only costs precision.
            let _ = process::pin_thread(cpu);
        }
        // Where it is refused, the start lag shows it.
        let _ = process::wake_precisely();
        let mut worker = match Worker::new(config, index, clock, room) {
            Ok(worker) => worker,
            // The receiver outlives the threads.
            Err(error) => return drop(out.send(Message::Ready(Err(error)))),
        };
        worker.prepare(stop);
        let _ = out.send(Message::Ready(Ok(())));
        if let Ok(start_ns) = start.recv() {
            worker.drive(start_ns, stop, out);
        }
    }
}

/// Adds up the threads' reports, passes each second to `watch`, and stops the threads when it asks
/// to.
fn collect(
    config: &Config,
    receiver: &Receiver<Message>,
    watch: &mut dyn Watch,
    stop: &AtomicBool,
    start_ns: u64,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut seconds = Seconds::new(config);
    let (mut ended_ns, mut plan_ends_ns) = (start_ns, start_ns);
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(Message::Second(part)) => seconds.add(&part),
            Ok(Message::Samples(samples)) => watch.requests(&samples),
            Ok(Message::Done(part)) => {
                ended_ns = ended_ns.max(part.ended_ns);
                plan_ends_ns = plan_ends_ns.max(part.plan_ends_ns);
                seconds.told.push(part.seconds);
                add_part(&mut outcome, &part);
            }
            Ok(Message::Ready(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        seconds.show_whole(&mut outcome, watch);
        if !outcome.interrupted && watch.stop() {
            outcome.interrupted = true;
            stop.store(true, Ordering::Relaxed);
        }
    }
    let from_ns = start_ns.saturating_add(config.warmup_ns);
    outcome.planned_ns = match config.pace {
        Pace::Open(_) => plan_ends_ns.saturating_sub(from_ns),
        Pace::Closed(_) => plan_ends_ns.min(ended_ns).saturating_sub(from_ns),
    };
    outcome.elapsed_ns = ended_ns.saturating_sub(from_ns).max(outcome.planned_ns);
    outcome
}

/// The seconds of all threads, held until each thread has reported them.
struct Seconds {
    threads: usize,
    held: BTreeMap<u64, (Interval, usize)>,
    /// Number of seconds reported by each finished thread.
    told: Vec<u64>,
}

impl Seconds {
    fn new(config: &Config) -> Self {
        Self { threads: config.threads.max(1), held: BTreeMap::new(), told: Vec::new() }
    }

    fn add(&mut self, part: &Interval) {
        let (whole, parts) = self.held.entry(part.second).or_default();
        whole.second = part.second;
        whole.add(part);
        *parts += 1;
    }

    /// Passes the complete seconds to `watch`, and keeps a summary of each.
    fn show_whole(&mut self, outcome: &mut Outcome, watch: &mut dyn Watch) {
        while let Some((&second, (interval, parts))) = self.held.first_key_value()
            && parts + self.told.iter().filter(|told| **told <= second).count() >= self.threads
        {
            watch.second(interval);
            outcome.seconds.push(Second::from(interval));
            self.held.pop_first();
        }
    }
}

fn add_part(outcome: &mut Outcome, part: &Part) {
    outcome.counts.add(&part.counts);
    outcome.whole_run.add(&part.whole_run);
    outcome.replies_in_schedule += part.replies_in_schedule;
    outcome.good_in_schedule += part.good_in_schedule;
    outcome.times.add(&part.times);
    outcome.sessions.add(&part.sessions);
    outcome.lifetimes.add(&part.lifetimes);
    outcome.threads.push(part.used);
    outcome.open_max += part.open_max;
}
