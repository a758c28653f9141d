//! The driver: threads that keep a schedule over sockets, and what they measured, added up. The
//! only part of the crate that knows sockets and the clock; it judges nothing.

mod background;
mod clock;
mod conn;
mod exchange;
mod tally;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use weir_sys::process;

use crate::config::{Config, Pace, Sample, Watch};
use crate::measure::{Counts, Distributions, Interval, Outcome, Second, ThreadUse, Times};
use clock::Clock;
use worker::Worker;

/// Descriptors a run needs besides its connections: standard streams, epoll, output files.
const SPARE_FDS: u64 = 64;

/// From when all threads are ready to the first planned start.
const HEADWAY_NS: u64 = 2_000_000;

/// Why a run could not begin, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// What a thread tells.
enum Message {
    Second(Box<Interval>),
    Samples(Vec<Sample>),
    Done(Box<Part>),
}

/// A thread's part of the outcome.
struct Part {
    counts: Counts,
    times: Distributions,
    sessions: Times,
    lifetimes: Times,
    used: ThreadUse,
    open_max: u64,
    /// On the run's clock.
    ended_ns: u64,
}

/// What `index` of `threads` gets of `all`.
fn share(all: usize, index: usize, threads: usize) -> usize {
    let threads = threads.max(1);
    all / threads + usize::from(index < all % threads)
}

/// How many connections a process may have open, of the descriptors it has: the limit is raised as
/// far as it may be.
pub fn open_limit() -> u64 {
    process::raise_open_files().saturating_sub(SPARE_FDS)
}

/// Runs a load, and returns when the last request has ended.
///
/// # Errors
/// When no thread could be started or set up: the sentence says why.
pub fn run(config: &Config, watch: &mut dyn Watch) -> Result<Outcome, Error> {
    let threads = config.threads.max(1);
    let stop = AtomicBool::new(false);
    let start_ns = AtomicU64::new(0);
    let clock = Clock::new();
    let limit = match config.conns_max as u64 {
        0 => open_limit(),
        most => open_limit().min(most),
    };
    let background = (config.idle + config.slow_senders + config.slow_readers) as u64;
    let open_max = usize::try_from(limit.saturating_sub(background)).unwrap_or(usize::MAX);
    let barrier = Arc::new(Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for index in 0..threads {
            let (sender, barrier, stop, start_ns) =
                (sender.clone(), Arc::clone(&barrier), &stop, &start_ns);
            let room = share(open_max, index, threads).max(1);
            scope.spawn(move || {
                let thread = Thread { config, index, clock, room, barrier, stop, start_ns };
                thread.run(&sender);
            });
        }
        drop(sender);
        barrier.wait();
        start_ns.store(clock.now_ns() + HEADWAY_NS, Ordering::Release);
        barrier.wait();
        let start_ns = start_ns.load(Ordering::Acquire);
        collect(config, &receiver, watch, &stop, start_ns).map(|mut outcome| {
            outcome.open_limit = limit;
            outcome
        })
    })
}

/// What a driving thread begins with.
struct Thread<'a> {
    config: &'a Config,
    index: usize,
    clock: Clock,
    room: usize,
    barrier: Arc<Barrier>,
    stop: &'a AtomicBool,
    start_ns: &'a AtomicU64,
}

impl Thread<'_> {
    fn run(self, out: &Sender<Message>) {
        let Thread { config, index, clock, room, barrier, stop, start_ns } = self;
        if let Some(&cpu) = config.cpus.get(index % config.cpus.len().max(1)) {
            // The processors were checked before; one that has gone since only costs precision.
            let _ = process::pin_thread(cpu);
        }
        // Where it is refused, the start lag shows it.
        let _ = process::wake_precisely();
        let mut worker = Worker::new(config, index, clock, room).ok();
        if let Some(worker) = &mut worker {
            worker.prepare(stop);
        }
        barrier.wait();
        barrier.wait();
        if let Some(worker) = worker {
            worker.drive(start_ns.load(Ordering::Acquire), stop, out);
        }
    }
}

/// Adds up what the threads tell, shows each second to `watch`, and stops them when it says so.
fn collect(
    config: &Config,
    receiver: &Receiver<Message>,
    watch: &mut dyn Watch,
    stop: &AtomicBool,
    start_ns: u64,
) -> Result<Outcome, Error> {
    let threads = config.threads.max(1);
    let mut outcome = Outcome::default();
    let mut seconds: BTreeMap<u64, (Interval, usize)> = BTreeMap::new();
    let mut ended_ns = start_ns;
    loop {
        match receiver.recv_timeout(Duration::from_millis(100)) {
            Ok(Message::Second(part)) => {
                let (whole, parts) = seconds.entry(part.second).or_default();
                whole.second = part.second;
                whole.add(&part);
                *parts += 1;
                if *parts == threads {
                    finish_second(&mut seconds, &mut outcome, watch);
                }
            }
            Ok(Message::Samples(samples)) => watch.requests(&samples),
            Ok(Message::Done(part)) => {
                ended_ns = ended_ns.max(part.ended_ns);
                add_part(&mut outcome, &part);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if !outcome.interrupted && watch.stop() {
            outcome.interrupted = true;
            stop.store(true, Ordering::Relaxed);
        }
    }
    while !seconds.is_empty() {
        finish_second(&mut seconds, &mut outcome, watch);
    }
    if outcome.threads.len() < threads {
        let began = outcome.threads.len();
        let why = "descriptors or memory ran out; raise `ulimit -n` or ask for fewer connections";
        return Err(Error(format!("only {began} of {threads} threads could be set up: {why}")));
    }
    let elapsed_ns = ended_ns.saturating_sub(start_ns + config.warmup_ns);
    let planned_ns = config.duration_ns.saturating_sub(config.warmup_ns);
    outcome.elapsed_ns = elapsed_ns;
    outcome.planned_ns = match config.pace {
        Pace::Open(_) => planned_ns.min(elapsed_ns),
        Pace::Closed(_) => elapsed_ns.min(planned_ns),
    };
    Ok(outcome)
}

/// Shows the oldest second that is held, which all threads have told of, or never will.
fn finish_second(
    seconds: &mut BTreeMap<u64, (Interval, usize)>,
    outcome: &mut Outcome,
    watch: &mut dyn Watch,
) {
    let Some((_, (interval, _))) = seconds.pop_first() else { return };
    watch.second(&interval);
    outcome.seconds.push(Second::from(&interval));
}

fn add_part(outcome: &mut Outcome, part: &Part) {
    outcome.counts.add(&part.counts);
    outcome.times.add(&part.times);
    outcome.sessions.add(&part.sessions);
    outcome.lifetimes.add(&part.lifetimes);
    outcome.threads.push(part.used);
    outcome.open_max += part.open_max;
}
