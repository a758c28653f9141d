//! TUX's structure in user space, on completions of io_uring (pariag-accept §2.3): two queues, the
//! accept queue and `work_pending`, and an accept-phase followed by a work-phase. Readiness is
//! never polled.
//!
//! Operations are queued, and handed to the kernel once per iteration. Their completions are
//! connections for the accept-phase, and bytes received and sent for the work-phase. A connection
//! has a slot of the ring instead of a descriptor, numbered as its slot in the table, less the
//! reserved slots. Knows neither requests nor the criteria of a policy.

mod accept_ops;
mod completion_batcher;
mod connection;
mod disk_queue;
mod listener_accepts;
mod model;
mod output;
mod upstream;
mod user_data;
mod work;

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::{io, thread};

use weir_dispatch::readiness::Token;
use weir_dispatch::readiness::settings::Tunable;
use weir_sys::descriptor::SharedFd;
use weir_sys::listener::Arrival;
use weir_sys::poll::POLLIN;
use weir_sys::process::{set_timer_slack, thread_cpu_clock_ns};
use weir_sys::ring::server::{EMFILE, Op, RingConfig, ServerRing, SqPoll, Then};

use crate::architecture::options::ring::{
    BUFFERS, ENTRIES, FETCHES, GATHER, SPIN, SQPOLL, ZERO_COPY,
};
use crate::config::Config;
use crate::context::close_reason::CloseReason;
use crate::control::Phase;
use crate::http::connection::Action;
use crate::stat_page;
use crate::worker::core::{LoopCore, WAKER_SLOT};
use crate::worker::listener::Listener;
use crate::worker::phase_times::LoopPhase;
use crate::worker::{Model, RunWorker, Worker, WorkerParts};
use completion_batcher::CompletionBatcher;
use connection::RingConnection;
use disk_queue::DiskQueue;
use listener_accepts::ListenerAccepts;
use model::{Pending, Ring};

pub(crate) use model::RingWorker;
use user_data::{Data, Kind};

/// Size of a receive buffer, bytes: a browser's request fits.
const BUFFER_BYTES: u32 = 4096;

/// Room for completions per submission entry.
const COMPLETIONS_PER_ENTRY: u32 = 4;

/// Time for which the kernel's polling thread looks for work before it sleeps, milliseconds.
const SQPOLL_IDLE_MS: u32 = 1000;

/// Length of one wait for operations still under way when the loop ends; [`LAST_WAITS`] bounds
/// their number.
const LAST_WAIT: Duration = Duration::from_millis(20);
const LAST_WAITS: u32 = 50;

/// Opens a ring as a configuration has it, but for its slots, and closes it.
///
/// # Errors
/// Errors of [`ServerRing::open`].
pub(crate) fn try_open(config: &Config) -> io::Result<()> {
    let config = ring_config(config, 1);
    // A ring is bound to its thread.
    let opening = thread::Builder::new().spawn(move || ServerRing::open(&config).map(drop))?;
    opening.join().unwrap_or_else(|_| Err(io::Error::other("opening it panicked")))
}

/// Returns the parameters of a loop's ring with so many slots.
fn ring_config(config: &Config, files: u32) -> RingConfig {
    let setting = |tunable: &Tunable| config.arch_settings.get(tunable);
    let entries = setting(&ENTRIES) as u32;
    let sqpoll = setting(&SQPOLL) == 1;
    RingConfig {
        entries,
        completions: entries.saturating_mul(COMPLETIONS_PER_ENTRY),
        files,
        buffers: (setting(&BUFFERS) as u16).next_power_of_two(),
        buffer_bytes: BUFFER_BYTES,
        sqpoll: sqpoll.then_some(SqPoll { idle_ms: SQPOLL_IDLE_MS, cpu: None }),
    }
}

/// Opens the ring, and its state.
fn open(core: &LoopCore<RingConnection>) -> io::Result<Ring> {
    let config = &core.context.config;
    let setting = |tunable: &Tunable| config.arch_settings.get(tunable);
    let files = u32::try_from(core.table.open_max()).unwrap_or(u32::MAX);
    let ring_config = ring_config(config, files);
    let mut ring = ServerRing::open(&ring_config)?;
    let wake_poll = poll_waker(&mut ring, core);
    Ok(Ring {
        ring,
        accept_ops: core.listeners.iter().map(|_| ListenerAccepts::default()).collect(),
        wake_poll,
        completions: Vec::new(),
        arrived: VecDeque::new(),
        work_pending: VecDeque::new(),
        paced_sends: VecDeque::new(),
        yielded: VecDeque::new(),
        paced_ns: None,
        sent_bytes: 0,
        starved: Vec::new(),
        disk_queue: DiskQueue::new(setting(&FETCHES) as usize),
        taken_at_ns: 0,
        completed_ns: 0,
        spin: ring_config.sqpoll.map(|_| Duration::from_micros(setting(&SPIN))),
        zero_copy_from: match setting(&ZERO_COPY) {
            0 => u64::MAX,
            from => from,
        },
        batcher: CompletionBatcher::new(Duration::from_micros(setting(&GATHER))),
        certain: 0,
        slept_since_ns: None,
    })
}

impl RunWorker for RingWorker {
    fn start(parts: WorkerParts) -> io::Result<Self> {
        let mut core = LoopCore::new(parts);
        if let Some(upstreams) = &mut core.context.upstreams {
            upstreams.sockets.use_ring();
        }
        let model = open(&core)?;
        Ok(Self { core, model })
    }

    fn run(mut self) {
        // A sleep for several completions is shorter than the kernel's timer slack.
        let _ = set_timer_slack();
        while !self.is_over() {
            self.run_iteration();
            self.accept_phase();
            self.work_phase();
            self.handle_timers();
            self.poll_upstreams();
        }
        self.release_all();
        self.end();
    }
}

impl Model for Ring {
    type Connection = RingConnection;

    /// False: a close is queued, as all operations are.
    const CLOSES_AT_ONCE: bool = false;

    const SERVES_LATER: bool = true;

    fn begin(worker: &mut Worker<Self>, slot: u32, _at_once: bool) {
        worker.adopt(slot);
        worker.receive(slot);
        worker.arm_timer(slot);
    }

    fn serve(worker: &mut Worker<Self>, slot: u32) -> bool {
        let token = worker.core.table.token(slot);
        let is_of_connection =
            |pending: &Pending| Data::token_of(pending.completion.data) == Some(token);
        while let Some(index) = worker.model.work_pending.iter().position(is_of_connection) {
            let Some(pending) = worker.model.work_pending.remove(index) else { break };
            worker.work(pending);
        }
        !worker.core.table.is_current(token)
    }

    fn refuse_with_503(worker: &mut Worker<Self>, slot: u32) {
        worker.adopt(slot);
        let Some(conn) = worker.core.table.conn(slot) else { return };
        let action = conn.refuse_with_503(&mut worker.core.context);
        worker.follow(slot, action);
    }

    fn expire(worker: &mut Worker<Self>, slot: u32) {
        let Some(conn) = worker.core.table.conn(slot) else { return };
        if matches!(conn.action(), Action::Write | Action::Forward) {
            // Handled when the kernel has told how much of the output has arrived.
            let data = Data::of(Kind::Expire, worker.core.table.token(slot));
            worker.query_unacknowledged(slot, data);
        } else {
            worker.expire_with(slot, None);
        }
    }

    fn close(worker: &mut Worker<Self>, slot: u32, reason: CloseReason) {
        worker.close_slot(slot, reason);
    }

    /// Returns whether closing helps: a slot is no descriptor, and a close gives none back.
    fn closing_helps(error: &io::Error) -> bool {
        error.raw_os_error() != Some(EMFILE)
    }

    fn before_drain(worker: &mut Worker<Self>) {
        worker.end_many_before_drain();
    }

    /// Returns whether calls may accept connections. While multishot accepts do, the kernel chooses
    /// the slots.
    fn takes_more(worker: &Worker<Self>) -> bool {
        !worker.accepts_many()
    }

    fn watch_listener(worker: &mut Worker<Self>, index: usize, wanted: bool) -> io::Result<()> {
        if !wanted {
            worker.cancel_accept(index);
        }
        Ok(())
    }

    fn close_listener(worker: &mut Worker<Self>, listener: Listener) {
        worker.cancel_and_close(listener);
    }

    /// Returns the arrival data of the request whose completion is being handled.
    fn arrival(worker: &mut Worker<Self>, slot: u32) -> Option<Arrival> {
        let departed = worker.core.table.conn(slot)?.ended.is_some();
        let age_ns = worker.core.context.read_clock_ns().saturating_sub(worker.model.completed_ns);
        Some(Arrival { age_ns, departed, spoken: true, rtt_ns: 0, established_ns: 0 })
    }

    fn count(worker: &mut Worker<Self>) {
        let counts = worker.model.ring.counts();
        worker.core.context.counters.set_ring(&[
            counts.enters,
            counts.submitted,
            counts.completed,
            counts.overflows,
            counts.copied,
        ]);
    }
}

impl RingWorker {
    /// Hands over queued operations and takes completions; when nothing is left to do, also waits
    /// in the same call.
    fn run_iteration(&mut self) {
        self.core.enter_phase(LoopPhase::Getevents);
        self.publish_before_wait();
        self.start_accepts();
        self.receive_starved();
        self.begin_upstream_ops();
        let is_long = self.send_paced() > 0 && self.model.spin.is_none();
        let began_ns = is_long.then(thread_cpu_clock_ns);
        self.enter();
        self.model.paced_ns = began_ns.map(|began_ns| thread_cpu_clock_ns() - began_ns);
        self.model.sent_bytes = 0;
        self.core.begin_iteration();
        if let Some(since_ns) = self.model.slept_since_ns.take() {
            self.core.note_sleep(since_ns);
        }
        self.model.certain = 0;
        self.sort();
        self.core.ready = self.model.work_pending.len() as u64;
    }

    fn enter(&mut self) {
        let queues =
            [self.model.arrived.len(), self.model.work_pending.len(), self.model.paced_sends.len()];
        let has_grants = self.core.context.upstreams.as_ref().is_some_and(|all| all.has_grants());
        if queues == [0; 3] && self.model.yielded.is_empty() && !has_grants {
            if self.core.is_alert() {
                self.hand_over();
            }
            if self.model.completions.is_empty() {
                self.core.lift_refusals();
                let began_ns = self.core.context.read_clock_ns();
                self.wait(self.core.sleep_max());
                self.model.slept_since_ns = Some(began_ns);
            }
        } else if self.model.ring.has_queued()
            || !self.model.yielded.is_empty()
            || !self.model.work_pending.is_empty()
        {
            // Completions are taken even while other work could continue.
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if let Err(error) = self.model.ring.submit() {
            self.handle_ring_error(&error);
        }
        self.model.ring.take(&mut self.model.completions);
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if let Some(spin) = self.model.spin {
            self.hand_over();
            let until = Instant::now() + timeout.map_or(spin, |timeout| timeout.min(spin));
            while self.model.completions.is_empty() && Instant::now() < until {
                std::hint::spin_loop();
                self.model.ring.take(&mut self.model.completions);
            }
            if !self.model.completions.is_empty() {
                return;
            }
        }
        let is_chained = self.model.accept_ops.iter().any(ListenerAccepts::is_chained);
        let wanted = if is_chained { 1 } else { self.model.batcher.wanted(self.model.certain) };
        if let Err(error) = self.model.ring.wait_batch(wanted, self.model.batcher.within(), timeout)
        {
            self.handle_ring_error(&error);
        }
        self.model.ring.take(&mut self.model.completions);
        self.model.batcher.found(self.model.completions.len(), wanted);
    }

    fn handle_ring_error(&mut self, error: &io::Error) {
        // Lack of memory, which passes: queued operations stay queued.
        self.core.tell(&format!("waiting for completions: {error}"));
        thread::sleep(Duration::from_millis(10));
    }

    /// Sorts completions into the two queues, connections into one and work into the other. A
    /// completion is assumed to have come halfway between this call and the last.
    fn sort(&mut self) {
        let now_ns = self.core.context.now_ns();
        let completed_ns =
            self.model.taken_at_ns + now_ns.saturating_sub(self.model.taken_at_ns) / 2;
        self.model.taken_at_ns = now_ns;
        for completion in self.model.completions.drain(..) {
            if Data::kind_of(completion.data).is_some_and(Kind::is_arrival) {
                self.model.arrived.push_back(completion);
            } else {
                self.model.work_pending.push_back(Pending { completion, completed_ns });
            }
        }
    }

    fn accept_phase(&mut self) {
        self.core.enter_phase(LoopPhase::Accept);
        self.core.accepts_pending = false;
        while let Some(completion) = self.model.arrived.pop_front() {
            self.handle_arrival(&completion);
        }
        self.end_phases();
        self.end_accept_phase();
    }

    fn work_phase(&mut self) {
        self.core.enter_phase(LoopPhase::Work);
        let mut work =
            self.core.begin_work(self.model.work_pending.len() + self.model.yielded.len());
        work.items += self.resume_yielded();
        // If it takes too long, the rest follows after the next accept-phase.
        while !self.core.is_long(&mut work)
            && let Some(pending) = self.model.work_pending.pop_front()
        {
            self.work(pending);
            work.items += 1;
            self.publish_after(stat_page::SERVED);
        }
        work.items += self.serve_granted();
        self.core.context.counters.work_cuts.add((!self.model.work_pending.is_empty()).into());
        self.core.note_work(work);
        if let Some(paced_ns) = self.model.paced_ns {
            self.core.context.write_budget.record(self.model.sent_bytes, paced_ns);
        }
    }

    fn watch_waker(&mut self) {
        self.model.wake_poll = poll_waker(&mut self.model.ring, &self.core);
    }

    /// Returns the ring's slot for a slot of the table.
    fn ring_slot(&self, slot: u32) -> u32 {
        slot - self.core.table.reserved()
    }

    /// Returns whether the loop is to end. Accepts under way keep it going, since they may still
    /// bring connections, unless it must stop at once.
    fn is_over(&self) -> bool {
        let has_more = self.model.accept_ops.iter().any(ListenerAccepts::is_busy)
            || !self.model.arrived.is_empty();
        self.core.is_over() && (!has_more || self.core.control.phase() == Phase::Stop)
    }

    /// Puts the descriptor of a connection that has one into its slot of the ring.
    fn adopt(&mut self, slot: u32) {
        let ring_slot = self.ring_slot(slot);
        let data = Data::of(Kind::Adopted, self.core.table.token(slot));
        let Some(conn) = self.core.table.conn(slot) else { return };
        if let Some(fd) = conn.fd.take() {
            self.model.ring.adopt(fd, ring_slot, Then::Nothing, data);
        }
    }

    /// Closes every connection, and waits until the kernel has released everything: what is still
    /// out then was lost by the server.
    fn release_all(&mut self) {
        self.core.context.draining = true;
        for slot in self.core.table.find(0, usize::MAX, |_| true) {
            self.close_slot(slot, CloseReason::Drained);
        }
        self.close_upstreams();
        for index in 0..self.model.accept_ops.len() {
            self.cancel_accept(index);
        }
        self.model.ring.cancel(self.model.wake_poll, Then::Nothing);
        for _ in 0..LAST_WAITS {
            self.hand_over();
            if self.model.completions.is_empty() && self.model.ring.pending() > 0 {
                self.wait(Some(LAST_WAIT));
            }
            self.sort();
            while let Some(completion) = self.model.arrived.pop_front() {
                self.handle_arrival(&completion);
            }
            while let Some(pending) = self.model.work_pending.pop_front() {
                self.work(pending);
            }
            if self.model.ring.pending() == 0 {
                break;
            }
        }
        let left =
            [self.model.ring.pending(), self.model.ring.buffers_out(), self.core.table.taken()];
        self.core.context.counters.set_ring_left(&left.map(|count| count as u64));
    }
}

fn poll_waker(ring: &mut ServerRing, core: &LoopCore<RingConnection>) -> Op {
    let data = Data::of(Kind::Waker, Token { slot: WAKER_SLOT, generation: 0 });
    ring.poll(SharedFd::of(&core.control.waker), POLLIN as u32, data)
}
