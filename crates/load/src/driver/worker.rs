//! A driving thread: a TCP and a clock. It asks the pacer what is due, tells exchanges what
//! happened on their sockets, and carries out what they want.

mod actions;
mod starts;

use std::io;
use std::sync::mpsc::Sender;
use std::time::Duration;

use weir_dispatch::slots::SlotTree;

use super::action::{Interest, SocketEvent, SocketUse};
use super::background::Background;
use super::clock::Clock;
use super::exchange::{Context, Exchange};
use super::message::{Message, ThreadReport};
use super::pacer::Pacer;
use super::recorder::{Phases, Recorder};
use super::room::table;
use super::run_state::RunState;
use super::second_meter::SecondMeter;
use super::send_pacer::SocketId;
use super::spare_intervals::SpareIntervals;
use super::stack::{Client, Event, Stack};
use super::stream::Stream;
use crate::config::{Config, LoadModel};
use crate::session::SessionSource;
use crate::tls::Connector;

/// Lag from which a start is begun between two events.
const LATE_NS: u64 = 30_000;

/// The longest sleep: it bounds the delay until an operator's stop is noticed.
const SLEEP_NS: u64 = 50_000_000;

/// Lag at which a start still does not count as missed when the operator stops the run.
const JUST_DUE_NS: u64 = 1_000_000;

/// Bytes per read. All connections of a thread share one buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// Parts of slow requests sent in a row, limited so that they do not delay a start.
const PARTS_MAX: usize = 32;

/// A connection: an exchange and its stream.
struct Connection<K> {
    exchange: Exchange,
    /// The client that its next socket is of.
    client: Client,
    stream: Option<Stream<K>>,
    /// Incremented for each socket of the slot; identifies stale events.
    generation: u32,
    /// Readiness that the socket is watched for; `None` if it is not watched.
    watched: Option<Interest>,
    /// True if it counts in [`Worker::going_on`].
    goes_on: bool,
}

impl<K> Default for Connection<K> {
    fn default() -> Self {
        Self {
            exchange: Exchange::default(),
            client: Client::default(),
            stream: None,
            generation: 0,
            watched: None,
            goes_on: false,
        }
    }
}

/// Numbers of connections of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum open at once.
    pub(super) open_max: usize,
    /// Number for which room is set aside.
    pub(super) room: usize,
}

/// The state of a driving thread.
pub(super) struct Worker<'a, S: Stack> {
    config: &'a Config,
    index: usize,
    clock: Clock,
    stack: S,
    /// Makes the TLS of connections; `None`: they have none.
    connector: Option<Connector>,
    slots: SlotTree,
    connections: Vec<Connection<S::Socket>>,
    /// Number of connections with a socket.
    open: u64,
    /// Number of sessions with starts to come.
    going_on: u64,
    /// Counter that selects the next pair of addresses and sources.
    next_pair: usize,
    background: Background<'a, S::Socket>,
    pacer: Pacer<'a>,
    source: Box<dyn SessionSource>,
    context: Context<'a>,
    meter: SecondMeter,
    /// Seconds that have been reported, to be used again.
    seconds: SpareIntervals,
    /// Receives what is read: with TLS, ciphertext.
    buffer: Vec<u8>,
    /// Joins the requests of a group.
    scratch: Vec<u8>,
    expired: Vec<u32>,
}

impl<'a, S: Stack> Worker<'a, S> {
    /// Creates the state of thread number `index`.
    ///
    /// # Errors
    /// A sentence if there is no memory for its connections.
    pub(super) fn new(
        config: &'a Config,
        index: usize,
        clock: Clock,
        limits: Limits,
        stack: S,
    ) -> io::Result<Self> {
        let pacer = Pacer::new(config, index, clock.now_ns());
        let connector = config.tls.as_ref().map(|tls| tls.connector());
        Ok(Self {
            config,
            index,
            clock,
            stack,
            slots: SlotTree::new(limits.open_max),
            connections: table(limits.room)?,
            open: 0,
            going_on: 0,
            next_pair: index,
            background: Background::new(config, connector.clone(), index),
            connector,
            source: config.workload.source(config.seed),
            context: Context {
                config,
                recorder: Recorder::new(),
                first_bytes: pacer.sends.first_bytes,
            },
            pacer,
            meter: SecondMeter::default(),
            seconds: SpareIntervals::new(),
            buffer: vec![0; BUFFER_BYTES],
            scratch: Vec::new(),
            expired: Vec::new(),
        })
    }

    /// Opens the connections that must exist before the schedule begins.
    pub(super) fn prepare(&mut self, run: &RunState) {
        let shared = self.config.share(self.config.shared_conns, self.index) as u64;
        let mut opened = 0;
        while (opened < shared || !self.background.is_ready()) && !run.is_stopped() {
            let now_ns = self.clock.now_ns();
            if opened < shared && self.background.may_open(now_ns) {
                self.open_shared(self.config.number_of_all(opened, self.index));
                opened += 1;
            }
            self.background.open_due(now_ns, &mut self.stack, &mut self.context.recorder);
            let next_ns = self.background.next_open_ns;
            self.wait_until(next_ns.min(now_ns + SLEEP_NS));
            self.handle_events();
        }
        if let LoadModel::Closed(conns) = self.config.model {
            // They have no socket yet.
            for _ in 0..self.config.share(conns, self.index) {
                if let Some(slot) = self.take_slot() {
                    self.pacer.add_free(slot);
                }
            }
        }
    }

    /// Drives the load from `start_ns` of the run's clock to the end, and reports the results.
    pub(super) fn drive(mut self, start_ns: u64, run: &RunState, out: &Sender<Message>) {
        let config = self.config;
        let phases = Phases::new(start_ns, config);
        self.context.recorder.begin(phases, config.each);
        self.meter.begin(phases.measured_ns.0);
        self.meter.skip_warm_up(start_ns);
        self.pacer.arrivals.begin(start_ns, phases.end_ns, self.clock.now_ns());
        while !self.pacer.is_over(self.slots.taken()) && !run.is_stopped() {
            self.begin_due();
            self.context.recorder.plan_ends_ns = self.pacer.arrivals.ends_ns;
            let now_ns = self.clock.now_ns();
            self.wait_until(self.wake_ns(now_ns));
            self.handle_events();
            self.handle_due(out);
        }
        let now_ns = self.clock.now_ns();
        self.meter.end_plan(now_ns, false);
        run.end_one(now_ns);
        if self.background.len() > 0 {
            self.keep_background(run, out);
        }
        let ended_ns = if run.is_stopped() || self.background.len() == 0 {
            self.clock.now_ns()
        } else {
            run.ended_ns()
        };
        self.finish(ended_ns, run.is_stopped(), out);
    }

    /// Keeps the connections in the background until no thread has load under way any more: what
    /// the others measure, they measure beside all of these.
    fn keep_background(&mut self, run: &RunState, out: &Sender<Message>) {
        while run.is_under_way() {
            let now_ns = self.clock.now_ns();
            self.wait_until(self.wake_ns(now_ns));
            self.handle_events();
            // A second that the others did not begin is no part of the run.
            if run.is_under_way() {
                self.handle_due(out);
            }
        }
    }

    /// Returns the time at which the next wait must end, because something is due or might be late.
    fn wake_ns(&self, now_ns: u64) -> u64 {
        let due_ns = self.pacer.next_ns(now_ns).into_iter().chain(self.background.next_ns());
        due_ns.fold(self.meter.ends_ns.min(now_ns + SLEEP_NS), u64::min)
    }

    fn wait_until(&mut self, wake_ns: u64) {
        let timeout = Duration::from_nanos(wake_ns.saturating_sub(self.clock.now_ns()));
        self.stack.wait(timeout);
    }

    /// Handles the ready connections, and between them the starts that are late.
    fn handle_events(&mut self) {
        let mut nth = 0;
        while let Some(Event { token, event }) = self.stack.event(nth) {
            nth += 1;
            let (slot, generation) = (token as u32, (token >> 32) as u32);
            match slot.checked_sub(self.background.len()) {
                None => self.background.event(
                    slot,
                    self.clock.now_ns(),
                    event,
                    &mut self.buffer,
                    &mut self.stack,
                    &mut self.context.recorder,
                ),
                Some(slot) => self.handle_event(SocketId { slot, generation }, event),
            }
            // What is not late yet can wait for the rest: starts and reads in runs of each cost
            // less than alternating ones.
            let now_ns = self.clock.now_ns();
            let next_ns = self.pacer.next_start_ns();
            if next_ns.is_some_and(|next_ns| next_ns.saturating_add(LATE_NS) <= now_ns) {
                self.begin_one(now_ns);
            }
        }
    }

    fn handle_event(&mut self, id: SocketId, event: SocketEvent) {
        if let Some(connection) = self.current(id) {
            let action = connection.exchange.ready(event);
            self.carry_out(id.slot, action);
            self.flush(id.slot);
        }
    }

    /// Returns the connection of a socket, unless that has been closed.
    fn current(&mut self, id: SocketId) -> Option<&mut Connection<S::Socket>> {
        let connection = self.connections.get_mut(id.slot as usize)?;
        (connection.generation == id.generation).then_some(connection)
    }

    /// Handles what is due by the clock: deadlines, slow requests, the end of a second.
    fn handle_due(&mut self, out: &Sender<Message>) {
        let now_ns = self.clock.now_ns();
        self.meter.skip_warm_up(now_ns);
        self.expire(now_ns);
        while let Some((arrival, kind)) = self.pacer.take_expired(now_ns) {
            self.refuse(arrival, kind);
        }
        let recorder = &mut self.context.recorder;
        self.background.tick(now_ns, &mut self.stack, &mut self.buffer, recorder);
        self.send_parts(now_ns);
        let Phases { measured_ns, end_ns, .. } = self.context.recorder.phases;
        if self.pacer.is_too_late(end_ns, now_ns) {
            self.skip(u64::MAX);
        }
        if now_ns >= measured_ns.1.min(end_ns) || self.is_planned_out(now_ns) {
            self.meter.end_plan(now_ns, self.config.cooldown_ns > 0);
        }
        if self.pacer.arrivals.is_over && now_ns >= end_ns {
            while let Some(slot) = self.pacer.take_thinking() {
                let action = self.connections[slot as usize].exchange.end(SocketUse::Close);
                self.carry_out(slot, action);
            }
        }
        if now_ns >= self.meter.ends_ns {
            self.end_second(now_ns, out);
        }
    }

    /// Returns whether nothing is left to plan: a number of arrivals or sessions may end the plan
    /// before the schedule ends. A session plans its starts itself, however long it thinks.
    fn is_planned_out(&self, now_ns: u64) -> bool {
        let arrivals = &self.pacer.arrivals;
        let are_over = arrivals.is_over && now_ns >= arrivals.ends_ns;
        self.going_on == 0 && (are_over || self.pacer.has_nothing_to_begin())
    }

    fn expire(&mut self, now_ns: u64) {
        let (config, connections) = (self.config, &self.connections);
        let expires_ns = |slot: u32| connections.get(slot as usize)?.exchange.expires_ns(config);
        let mut expired = std::mem::take(&mut self.expired);
        self.pacer.deadlines.expire(now_ns, expires_ns, &mut expired);
        for slot in expired.drain(..) {
            let exchange = &mut self.connections[slot as usize].exchange;
            let action = exchange.expire(now_ns, &mut self.context);
            self.carry_out(slot, action);
        }
        self.expired = expired;
    }

    /// Sends the parts of slow requests that are due.
    fn send_parts(&mut self, now_ns: u64) {
        for _ in 0..PARTS_MAX {
            let Some(id) = self.pacer.sends.take_due(now_ns) else { return };
            let bytes = self.pacer.sends.part_bytes();
            if let Some(connection) = self.current(id) {
                let action = connection.exchange.allow(bytes);
                self.carry_out(id.slot, action);
            }
        }
    }

    /// Counts as missed all queued arrivals, and the scheduled ones planned until `until_ns`.
    fn skip(&mut self, until_ns: u64) {
        let now_ns = self.clock.now_ns();
        while let Some(arrival) = self.pacer.take_missed(until_ns, now_ns) {
            self.context.recorder.missed(arrival.planned_ns);
        }
    }

    /// Counts as begun and cut off what waits for a shared connection, as what is in flight: that
    /// it waited was the server's doing.
    fn cut_off_queued(&mut self) {
        while let Some(arrival) = self.pacer.take_queued() {
            self.context.recorder.refused(arrival.planned_ns, 1);
            let counts = self.context.recorder.counts_at(arrival.planned_ns);
            counts.arrivals += 1;
            counts.due += 1;
            counts.abandoned += 1;
            counts.cut_off += 1;
        }
    }

    fn end_second(&mut self, now_ns: u64, out: &Sender<Message>) {
        let mut second = self.context.recorder.take_second(self.seconds.take());
        second.open = self.open + self.background.open;
        let planned = second.counts.planned;
        let falls_behind = self.pacer.arrivals.falls_behind(now_ns);
        second.counts.planned = planned.saturating_add_signed(falls_behind);
        self.meter.end_second(now_ns, &mut second);
        // The receiver outlives the threads.
        let _ = out.send(Message::Second(self.seconds.lend(second)));
        let samples = self.context.recorder.take_samples();
        if !samples.is_empty() {
            let _ = out.send(Message::Samples(samples));
        }
    }

    /// Closes all connections and reports what the thread has measured until `now_ns`.
    fn finish(mut self, now_ns: u64, interrupted: bool, out: &Sender<Message>) {
        for slot in 0..self.connections.len() as u32 {
            // Requests are in flight only after an operator's stop.
            self.connections[slot as usize].exchange.abandon(&mut self.context);
            self.close(slot);
        }
        if interrupted {
            self.cut_off_queued();
            // One that has only just fallen due was not missed.
            self.skip(now_ns.saturating_sub(JUST_DUE_NS));
            self.pacer.arrivals.end(now_ns);
            self.context.recorder.interrupt(now_ns);
        }
        // The last second is as long as the plan, not as what came of it.
        let plan_ends_ns = self.pacer.arrivals.ends_ns;
        let first_left_out_ns = self.pacer.arrivals.first_left_out_ns;
        let is_open_loop = matches!(self.config.model, LoadModel::Open(_));
        let now_ns = if is_open_loop { now_ns.max(plan_ends_ns) } else { now_ns };
        while now_ns >= self.meter.ends_ns {
            self.end_second(now_ns, out);
        }
        if self.meter.has_begun(now_ns) {
            self.end_second(now_ns, out);
        }
        let ended_ns = self.context.recorder.ended_ns;
        let mut outcome = self.context.recorder.into_outcome();
        outcome.threads.push(self.meter.thread_cpu());
        outcome.open_max = self.meter.open_max;
        // That these close is no part of the run.
        self.background.close_all(&mut self.stack, &mut self.buffer);
        outcome.packets = self.stack.finish();
        let seconds = self.meter.seconds;
        let report = ThreadReport { outcome, seconds, plan_ends_ns, first_left_out_ns, ended_ns };
        let _ = out.send(Message::Done(Box::new(report)));
    }
}
