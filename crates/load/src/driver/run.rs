//! A run: it starts the driving threads, begins the schedule when all are set up, and waits for the
//! end.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;

use weir_sys::process;

use super::clock::Clock;
use super::collector::{STOP_POLL, collect};
use super::message::Message;
use super::room::open_if_stalled;
use super::run_state::RunState;
use super::stack::Stack;
use super::stack::kernel::KernelStack;
use super::stack::packet::PacketStack;
use super::worker::{Limits, Worker};
use crate::config::{Config, RunObserver, StackKind};
use crate::measure::RunOutcome;

/// Descriptors reserved for purposes other than connections: standard streams, epoll, output files.
const SPARE_FDS: u64 = 64;

/// Connections of weir's own TCP: about 300 bytes each, 5 GB in all.
const PACKET_CONNECTIONS_MAX: u64 = 1 << 24;

/// Time from the moment all threads are ready to the first planned start.
const START_DELAY_NS: u64 = 2_000_000;

/// Returns the number of connections the process may have open, from its limit on descriptors,
/// which is raised as far as allowed.
pub fn open_limit() -> u64 {
    process::raise_open_files().saturating_sub(SPARE_FDS)
}

/// Returns the number of connections that a stack may have open.
pub fn stack_limit(stack: &StackKind) -> u64 {
    match stack {
        StackKind::Kernel => open_limit(),
        StackKind::Packet(_) => PACKET_CONNECTIONS_MAX,
    }
}

/// Runs a load, and returns when the last request has ended.
///
/// # Errors
/// A thread could not be started or set up: a sentence gives the reason.
pub fn run(config: &Config, observer: &mut dyn RunObserver) -> Result<RunOutcome, String> {
    let threads = config.threads.max(1);
    let state = RunState::new(threads);
    let clock = Clock::new();
    let room = stack_limit(&config.stack);
    let limit = match config.conns_max as u64 {
        0 => room,
        most => room.min(most),
    };
    let background = config.background() as u64;
    let open_max = usize::try_from(limit.saturating_sub(background)).unwrap_or(usize::MAX);
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let mut starts = Vec::new();
        for index in 0..threads {
            let (start_sender, start) = channel();
            starts.push(start_sender);
            let open_max = config.share(open_max, index);
            let thread = Thread { config, index, clock, open_max, state: &state, start };
            let sender = sender.clone();
            // A channel that closes without a message ends the threads that wait for one.
            Builder::new()
                .spawn_scoped(scope, move || thread.run(&sender))
                .map_err(|error| format!("a thread cannot be started: {error}"))?;
        }
        drop(sender);
        let interrupted = wait_for_all(threads, &receiver, observer, &state)?;
        let start_ns = clock.now_ns() + START_DELAY_NS;
        // All threads are ready, and so wait for theirs.
        for start in starts {
            let _ = start.send(start_ns);
        }
        let mut outcome = collect(config, &receiver, observer, &state.stop, start_ns);
        outcome.interrupted |= interrupted;
        outcome.open_limit = limit;
        Ok(outcome)
    })
}

/// Waits until every thread is ready; returns whether the operator stopped the run meanwhile.
fn wait_for_all(
    threads: usize,
    receiver: &Receiver<Message>,
    observer: &mut dyn RunObserver,
    state: &RunState,
) -> Result<bool, String> {
    let mut ready = 0;
    while ready < threads {
        match receiver.recv_timeout(STOP_POLL) {
            Ok(Message::Ready(Ok(()))) => ready += 1,
            Ok(Message::Ready(Err(error))) => {
                state.stop.store(true, Ordering::Relaxed);
                return Err(format!("a thread cannot be set up: {error}"));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        if observer.stop() {
            state.stop.store(true, Ordering::Relaxed);
        }
    }
    Ok(state.is_stopped())
}

/// The initial state of a driving thread.
struct Thread<'a> {
    config: &'a Config,
    index: usize,
    clock: Clock,
    open_max: usize,
    state: &'a RunState,
    /// Receives the start of the schedule, on the run's clock.
    start: Receiver<u64>,
}

impl Thread<'_> {
    fn run(self, out: &Sender<Message>) {
        let cpus = &self.config.cpus;
        if let Some(&cpu) = cpus.get(self.index % cpus.len().max(1)) {
            // The processors were checked before; one that has gone since only costs precision.
            let _ = process::pin_thread(cpu);
        }
        // Where it is refused, the start lag shows it.
        let _ = process::set_timer_slack();
        let Thread { config, index, clock, open_max, .. } = self;
        let room = open_if_stalled(config, index, open_max);
        let driven = match &config.stack {
            StackKind::Kernel => KernelStack::new().and_then(|stack| self.drive(stack, room, out)),
            StackKind::Packet(packet) => PacketStack::new(config, packet, index, clock, room)
                .and_then(|stack| self.drive(stack, room, out)),
        };
        if let Err(failed) = driven {
            // The receiver outlives the threads.
            let _ = out.send(Message::Ready(Err(failed)));
        }
    }

    /// Drives the load, with room for this many connections.
    ///
    /// # Errors
    /// The thread cannot be set up.
    fn drive(self, stack: impl Stack, room: usize, out: &Sender<Message>) -> io::Result<()> {
        let Thread { config, index, clock, open_max, state, start } = self;
        let mut worker = Worker::new(config, index, clock, Limits { open_max, room }, stack)?;
        worker.prepare(state);
        let _ = out.send(Message::Ready(Ok(())));
        if let Ok(start_ns) = start.recv() {
            worker.drive(start_ns, state, out);
        }
        Ok(())
    }
}
