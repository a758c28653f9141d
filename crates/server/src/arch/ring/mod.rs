//! TUX's structure in user space, on completions of io_uring (pariag-accept §2.3): two queues, the
//! accept queue and `work_pending`, and an accept-phase followed by a work-phase. Readiness is
//! never polled.
//!
//! Operations are queued, and handed to the kernel once per round. Their completions are
//! connections for the accept-phase, and bytes received and sent for the work-phase. A connection
//! has a slot of the ring instead of a descriptor, numbered as its slot in the table, less the
//! reserved slots. Knows neither requests nor the criteria of a policy.

mod data;
mod doors;
mod fetching;
mod gathering;
mod output;
mod tenant;
mod work;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_dispatch::readiness::Token;
use weir_dispatch::readiness::settings::Tunable;
use weir_sys::descriptor::SharedFd;
use weir_sys::listener::Arrival;
use weir_sys::poll::POLLIN;
use weir_sys::process::{thread_cpu_clock_ns, wake_precisely};
use weir_sys::ring::server::{Completion, Op, RingConfig, ServerRing, SqPoll, Then};

use super::accepting::Accepting;
use super::floor::{BELL, Floor};
use super::listener::{Listener, Socket};
use super::{Architecture, Housekeeping, Start};
use crate::control::{Control, Phase};
use crate::service::Service;
use data::{Data, Kind};
use doors::Door;
use fetching::Fetching;
use gathering::Gathering;
use tenant::{Pieces, Ringed};

pub(crate) const TUNABLES: &[Tunable] =
    &[ENTRIES, BUFFERS, GATHER, FETCHES, ZERO_COPY, SQPOLL, SPIN];

const ENTRIES: Tunable = Tunable {
    name: "entries",
    help: "operations handed over by one call, at most",
    default: 4096,
    min: 64,
    max: 32_768,
};
const BUFFERS: Tunable = Tunable {
    name: "buffers",
    help: "buffers of 4 KiB to receive into, for a loop; rounded up to a power of two",
    default: 1024,
    min: 16,
    max: 32_768,
};
const GATHER: Tunable = Tunable {
    name: "gather-us",
    help: "how long the loop sleeps for more completions than one while they come thick and fast, \
           microseconds; 0: it wakes for the first",
    default: 0,
    min: 0,
    max: 10_000,
};
const FETCHES: Tunable = Tunable {
    name: "fetches",
    help: "connections for which something is brought from a disk at a time, for a loop; the \
           others wait their turn",
    default: 8,
    min: 1,
    max: 4096,
};
const ZERO_COPY: Tunable = Tunable {
    name: "zero-copy-from",
    help: "bytes from which a reply in memory is sent without a copy; 0: none is",
    default: 0,
    min: 0,
    max: 1 << 40,
};
const SQPOLL: Tunable = Tunable {
    name: "sqpoll",
    help: "1: a thread of the kernel's takes what is queued; it needs a processor of its own",
    default: 0,
    min: 0,
    max: 1,
};
const SPIN: Tunable = Tunable {
    name: "spin-us",
    help: "with sqpoll, how long the loop looks for completions before it sleeps, microseconds",
    default: 200,
    min: 0,
    max: 1_000_000,
};

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

/// A completion that has not been handled.
struct Pending {
    completion: Completion,
    /// Approximate time at which it came, nanoseconds on the loop's clock.
    came_ns: u64,
}

pub(crate) struct RingLoop {
    floor: Floor<Ringed>,
    ring: ServerRing,
    doors: Vec<Door>,
    /// The poll operation on the bell.
    bell: Op,
    /// Completions as they came.
    fresh: Vec<Completion>,
    /// The accept queue: connections, and listeners with a pending connection.
    arrived: VecDeque<Completion>,
    /// Completions of other operations that have not been handled.
    work_pending: VecDeque<Pending>,
    /// Connections that wait for their turn to send part of a large reply, with what is left of it.
    turns: VecDeque<(Token, Pieces)>,
    /// Connections that yielded and could continue, longest waiting first.
    yielded: VecDeque<Token>,
    /// CPU time that the kernel took for this round's large replies, nanoseconds; `None` if it was
    /// not measured.
    turn_ns: Option<u64>,
    /// Bytes of replies that this round found sent.
    sent_bytes: u64,
    /// Connections whose receive ended for lack of buffers.
    starved: Vec<Token>,
    /// Connections that wait for a disk, or have operations under way there.
    fetching: Fetching,
    /// Time at which completions were last taken, nanoseconds.
    taken_at_ns: u64,
    /// Approximate time at which the completion being handled came, nanoseconds.
    came_ns: u64,
    /// Time to poll for completions before sleeping; `None` without `sqpoll`.
    spin: Option<Duration>,
    zero_copy_from: u64,
    gathering: Gathering,
    /// Completions that queued operations will bring at once and that no client waits for.
    sure: u32,
    /// Time at which this round's sleep began, nanoseconds; `None` if it did not sleep.
    slept_since_ns: Option<u64>,
}

impl Start for RingLoop {
    fn start(
        service: Service,
        sockets: Vec<Socket>,
        control: Arc<Control>,
        open_max: usize,
    ) -> io::Result<Self> {
        let chosen = |tunable: &Tunable| service.config.arch_settings.get(tunable);
        let polled = chosen(&SQPOLL) == 1;
        let entries = chosen(&ENTRIES) as u32;
        let ring = ServerRing::open(&RingConfig {
            entries,
            completions: entries.saturating_mul(COMPLETIONS_PER_ENTRY),
            files: u32::try_from(open_max).unwrap_or(u32::MAX),
            buffers: (chosen(&BUFFERS) as u16).next_power_of_two(),
            buffer_bytes: BUFFER_BYTES,
            sqpoll: polled.then_some(SqPoll { idle_ms: SQPOLL_IDLE_MS, cpu: None }),
        })?;
        let spin = polled.then(|| Duration::from_micros(chosen(&SPIN)));
        let gathering = Gathering::new(Duration::from_micros(chosen(&GATHER)));
        let fetching = Fetching::new(chosen(&FETCHES) as usize);
        let zero_copy_from = match chosen(&ZERO_COPY) {
            0 => u64::MAX,
            from => from,
        };
        let floor = Floor::new(service, sockets, control, open_max);
        let doors = floor.listeners.iter().map(|_| Door::default()).collect();
        let mut ring = ring;
        let bell = watch_bell(&mut ring, &floor);
        Ok(Self {
            floor,
            ring,
            doors,
            bell,
            fresh: Vec::new(),
            arrived: VecDeque::new(),
            work_pending: VecDeque::new(),
            turns: VecDeque::new(),
            yielded: VecDeque::new(),
            turn_ns: None,
            sent_bytes: 0,
            starved: Vec::new(),
            fetching,
            taken_at_ns: 0,
            came_ns: 0,
            spin,
            zero_copy_from,
            gathering,
            sure: 0,
            slept_since_ns: None,
        })
    }

    fn run(mut self) {
        // A sleep for several is shorter than what the kernel would add to it.
        let _ = wake_precisely();
        while !self.is_over() {
            self.turn();
            self.accept_phase();
            self.work_phase();
            self.keep_time();
        }
        self.let_go();
        self.end();
    }
}

impl Architecture for RingLoop {
    type Tenant = Ringed;

    const SERVES_LATER: bool = true;

    fn floor(&mut self) -> &mut Floor<Ringed> {
        &mut self.floor
    }

    fn begin(&mut self, slot: u32, _at_once: bool) {
        self.adopt(slot);
        self.receive(slot);
        self.arm_timer(slot);
    }

    fn serve(&mut self, slot: u32) -> bool {
        let token = self.floor.table.token(slot);
        let is_its = |pending: &Pending| Data::token_of(pending.completion.data) == Some(token);
        while let Some(index) = self.work_pending.iter().position(is_its) {
            let Some(pending) = self.work_pending.remove(index) else { break };
            self.work(pending);
        }
        !self.floor.table.is_current(token)
    }

    fn turn_away(&mut self, slot: u32) {
        self.adopt(slot);
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        let want = ringed.turn_away(&mut self.floor.service);
        self.follow(slot, want);
    }

    fn expire(&mut self, slot: u32) {
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        if ringed.want() == crate::conn::Want::Write {
            // How much of it has arrived only the kernel knows; it is asked, and goes on then.
            let data = Data::of(Kind::Expire, self.floor.table.token(slot));
            self.ask_unacknowledged(slot, data);
        } else {
            self.expire_knowing(slot, None);
        }
    }

    fn close(&mut self, slot: u32) {
        self.close_slot(slot);
    }

    fn nobody_waits(&mut self, _index: usize) {}

    fn watch(&mut self, index: usize, wanted: bool) -> io::Result<()> {
        if !wanted {
            self.disarm(index);
        }
        Ok(())
    }

    fn leave(&mut self, listener: Listener) {
        self.leave_listener(listener);
    }

    /// Returns the arrival data of the request whose completion is being handled.
    fn arrival(&mut self, slot: u32) -> Option<Arrival> {
        let departed = self.floor.table.conn(slot)?.ended.is_some();
        let age_ns = self.floor.service.read_clock_ns().saturating_sub(self.came_ns);
        Some(Arrival { age_ns, departed, spoken: true, rtt_ns: 0 })
    }

    fn count(&mut self) {
        let counts = self.ring.counts();
        self.floor.service.counters.set_ring(&[
            counts.enters,
            counts.submitted,
            counts.completed,
            counts.overflows,
            counts.copied,
        ]);
    }
}

impl RingLoop {
    /// Hands over queued operations and takes completions; when nothing is left to do, also waits
    /// in the same call.
    fn turn(&mut self) {
        self.open_doors();
        self.receive_starved();
        let is_long = self.take_turns() > 0 && self.spin.is_none();
        let began_ns = is_long.then(thread_cpu_clock_ns);
        self.enter();
        self.turn_ns = began_ns.map(|began_ns| thread_cpu_clock_ns() - began_ns);
        self.sent_bytes = 0;
        self.floor.begin_round();
        if let Some(since_ns) = self.slept_since_ns.take() {
            self.floor.note_sleep(since_ns);
        }
        self.sure = 0;
        self.sort();
        self.floor.ready = self.work_pending.len() as u64;
    }

    fn enter(&mut self) {
        let queues = [self.arrived.len(), self.work_pending.len(), self.turns.len()];
        if queues == [0; 3] && self.yielded.is_empty() {
            if self.floor.is_alert() {
                self.hand_over();
            }
            if self.fresh.is_empty() {
                self.floor.open_before_sleep();
                let began_ns = self.floor.service.read_clock_ns();
                self.wait(self.floor.sleep_max());
                self.slept_since_ns = Some(began_ns);
            }
        } else if self.ring.has_queued()
            || !self.yielded.is_empty()
            || !self.work_pending.is_empty()
        {
            // Who could go on must not keep what was done from being noticed.
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if let Err(error) = self.ring.submit() {
            self.bear_ring(&error);
        }
        self.ring.take(&mut self.fresh);
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if let Some(spin) = self.spin {
            self.hand_over();
            let until = Instant::now() + timeout.map_or(spin, |timeout| timeout.min(spin));
            while self.fresh.is_empty() && Instant::now() < until {
                std::hint::spin_loop();
                self.ring.take(&mut self.fresh);
            }
            if !self.fresh.is_empty() {
                return;
            }
        }
        let is_chained = self.doors.iter().any(Door::is_chained);
        let wanted = if is_chained { 1 } else { self.gathering.wanted(self.sure) };
        if let Err(error) = self.ring.gather(wanted, self.gathering.within(), timeout) {
            self.bear_ring(&error);
        }
        self.ring.take(&mut self.fresh);
        self.gathering.found(self.fresh.len(), wanted);
    }

    fn bear_ring(&mut self, error: &io::Error) {
        // Only want of memory can be the reason, and pass: what is queued stays so.
        self.floor.tell(&format!("waiting for completions: {error}"));
        std::thread::sleep(Duration::from_millis(10));
    }

    /// Sorts completions into the two queues, connections into one and work into the other. A
    /// completion found now is taken to have come halfway since the last look.
    fn sort(&mut self) {
        let now_ns = self.floor.service.now_ns();
        let came_ns = self.taken_at_ns + now_ns.saturating_sub(self.taken_at_ns) / 2;
        self.taken_at_ns = now_ns;
        for completion in self.fresh.drain(..) {
            if Data::kind_of(completion.data).is_some_and(Kind::is_arrival) {
                self.arrived.push_back(completion);
            } else {
                self.work_pending.push_back(Pending { completion, came_ns });
            }
        }
    }

    fn accept_phase(&mut self) {
        self.floor.someone_waits = false;
        while let Some(completion) = self.arrived.pop_front() {
            self.arrive(&completion);
        }
        self.end_phases();
        self.end_accept_phase();
    }

    fn work_phase(&mut self) {
        let mut work = self.floor.begin_work(self.work_pending.len() + self.yielded.len());
        work.items += self.resume_yielded();
        // What is left when it takes too long is done after the next accept-phase.
        while !self.floor.is_long(&mut work)
            && let Some(pending) = self.work_pending.pop_front()
        {
            self.work(pending);
            work.items += 1;
        }
        self.floor.service.counters.work_cuts.add((!self.work_pending.is_empty()).into());
        self.floor.note_work(work);
        if let Some(turn_ns) = self.turn_ns {
            self.floor.service.turn.note(self.sent_bytes, turn_ns);
        }
    }

    fn watch_bell(&mut self) {
        self.bell = watch_bell(&mut self.ring, &self.floor);
    }

    /// Returns the ring's slot for a slot of the table.
    fn ring_slot(&self, slot: u32) -> u32 {
        slot - self.floor.table.reserved()
    }

    /// Returns whether the loop is to end. Connections still to come out of accepts keep it going,
    /// unless it must stop at once.
    fn is_over(&self) -> bool {
        let has_more = self.doors.iter().any(Door::is_busy) || !self.arrived.is_empty();
        self.floor.is_over() && (!has_more || self.floor.control.phase() == Phase::Stop)
    }

    /// Puts the descriptor of a connection that has one into its slot of the ring.
    fn adopt(&mut self, slot: u32) {
        let ring_slot = self.ring_slot(slot);
        let data = Data::of(Kind::Adopted, self.floor.table.token(slot));
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        if let Some(fd) = ringed.fd.take() {
            self.ring.adopt(fd, ring_slot, Then::Nothing, data);
        }
    }

    /// Closes what is open, and waits until the kernel has released it: anything still missing then
    /// was lost by the server.
    fn let_go(&mut self) {
        self.floor.service.draining = true;
        for slot in self.floor.table.find(0, usize::MAX, |_| true) {
            self.close_slot(slot);
        }
        for index in 0..self.doors.len() {
            self.disarm(index);
        }
        self.ring.cancel(self.bell, Then::Nothing);
        for _ in 0..LAST_WAITS {
            self.hand_over();
            if self.fresh.is_empty() && self.ring.pending() > 0 {
                self.wait(Some(LAST_WAIT));
            }
            self.sort();
            while let Some(completion) = self.arrived.pop_front() {
                self.arrive(&completion);
            }
            while let Some(pending) = self.work_pending.pop_front() {
                self.work(pending);
            }
            if self.ring.pending() == 0 {
                break;
            }
        }
        let left = [self.ring.pending(), self.ring.buffers_out(), self.floor.table.taken()];
        self.floor.service.counters.set_ring_left(&left.map(|count| count as u64));
    }
}

fn watch_bell(ring: &mut ServerRing, floor: &Floor<Ringed>) -> Op {
    let data = Data::of(Kind::Bell, Token { slot: BELL, generation: 0 });
    ring.poll(SharedFd::of(&floor.control.bell), POLLIN as u32, data)
}
