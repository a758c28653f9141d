//! State of one loop under any architecture: its connections and their deadlines, its listening
//! sockets with their policies, the context they share, and counters. Knows neither how the loop
//! waits nor how a connection is served.

use std::sync::Arc;
use std::time::Duration;

use weir_accept::upstream::Shedding;
use weir_accept::{Decision, Deferred, TlsWork, View};
use weir_dispatch::readiness::Token;
use weir_dispatch::timers::TimerWheel;
use weir_stats::{CallRow, LoopReport};
use weir_sys::profile;

use super::connection_table::ConnectionTable;
use super::listener::{Listener, Socket};
use super::phase_times::{Edge, LoopPhase, PhaseTimes};
use crate::config::Config;
use crate::context::WorkerContext;
use crate::context::log::LogBuffer;
use crate::control::{Control, Phase};
use crate::stat_page::Publisher;

/// Maximum number of items of a work-phase between two readings of the clock: the next item may
/// cost a thousand times as much as the last.
const ITEMS_PER_CLOCK_READ_MAX: u64 = 4;

/// Slot of the waker; the listeners follow it.
pub(crate) const WAKER_SLOT: u32 = 0;
/// Slot of the first listener.
pub(crate) const FIRST_LISTENER: u32 = 1;

const SECOND_NS: u64 = 1_000_000_000;

/// Maximum time between two looks at an upstream while SYNs are dropped because of it: nanoseconds,
/// and the divisor of the delay target.
const SHED_LOOK_NS: u64 = 5_000_000;
const SHED_LOOK_PART: u64 = 16;

/// Time of a work-phase that the operator is told of, nanoseconds.
const STALL_NS: u64 = SECOND_NS;

/// A work-phase, or the part of one between two accept-phases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Number of connections served in it.
    pub(crate) items: u64,
    /// Start time, nanoseconds; `None` if the clock was not read.
    began_ns: Option<u64>,
    /// Number of items at which the clock is read next.
    clock_read_at: u64,
    /// TLS handshakes before it; `None` before it begins.
    tls_before: Option<TlsWork>,
}

/// Components from which a worker is created.
pub(crate) struct WorkerParts {
    pub context: WorkerContext,
    pub sockets: Vec<Socket>,
    pub control: Arc<Control>,
    pub publisher: Publisher,
    /// Maximum number of open connections.
    pub open_max: usize,
}

/// State of one loop. `C` is a connection with the state that the architecture needs to serve it.
pub(crate) struct LoopCore<C> {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) table: ConnectionTable<C>,
    pub(crate) timers: TimerWheel,
    /// Buffer for slots whose deadline has come, filled by the timers.
    pub(crate) expired: Vec<u32>,
    pub(crate) context: WorkerContext,
    pub(crate) control: Arc<Control>,
    pub(crate) publisher: Publisher,
    /// Number of iterations so far.
    pub(crate) iterations: u64,
    /// Number of the last report request answered.
    answered: u64,
    /// Slot at which the next search for connections to evict begins.
    pub(crate) eviction_cursor: u32,
    /// End of the pause in accepting, nanoseconds; `None` while accepting.
    pub(crate) paused_until_ns: Option<u64>,
    /// Connections accepted and deferred until there is time, newest at the back.
    pub(crate) deferred: Deferred<Token>,
    /// Time before which none of them is served, because what serving takes is used up, unless some
    /// is given back, nanoseconds; `None` while there is some.
    pub(crate) deferred_until_ns: Option<u64>,
    /// True if an accept-phase of this iteration left connections pending, newer than those
    /// deferred.
    pub(crate) accepts_pending: bool,
    /// True while every waiting connection is accepted, whatever the accept-limit.
    pub(crate) accepts_all: bool,
    /// Total time that the loop has slept, nanoseconds, and the time it last woke.
    slept_ns: u64,
    woke_ns: u64,
    /// Connections accepted so far, without those refused whatever the load, and those whose
    /// service has begun.
    pub(crate) accepted: u64,
    pub(crate) begun: u64,
    /// Connections served in work-phases so far, and the time they took, nanoseconds. The time is
    /// always measured while a policy is alert, and sometimes while none is.
    pub(crate) served: u64,
    pub(crate) served_ns: u64,
    /// Number of connections ready for this iteration's work-phase.
    pub(crate) ready: u64,
    /// Connections served in the last work-phase, and the time it took, nanoseconds.
    pub(crate) work_items: u64,
    pub(crate) work_ns: u64,
    /// Time after which a work-phase is interrupted by the other phases, nanoseconds.
    work_max_ns: Option<u64>,
    /// Decision by which requests on open connections are judged; `None` if they are all served.
    pub(crate) request_decision: Option<Decision>,
    /// The upstream without which no request can be served, if there is one.
    sole_upstream: Option<usize>,
    /// Time of the next look at its load, nanoseconds, while SYNs are dropped because of it.
    shed_due_ns: Option<u64>,
    /// SYNs dropped by the filters of closed listeners ([`Listener::dropped`]).
    syn_dropped: [u64; 4],
    /// End of the drain, nanoseconds; `None` before a drain begins.
    pub(crate) drained_by_ns: Option<u64>,
    /// System calls of every thread that has handed over its own; empty while they are not
    /// profiled.
    pub(crate) calls: Vec<profile::Row>,
    last_message_ns: Option<u64>,
    /// Times of the phases; `None` while they are not measured.
    phase_times: Option<PhaseTimes>,
}

impl<C> LoopCore<C> {
    pub(crate) fn new(parts: WorkerParts) -> Self {
        let WorkerParts { context, sockets, control, mut publisher, open_max } = parts;
        publisher.begin(context.read_clock_ns());
        let phase_times = context.config.phase_times.then(|| PhaseTimes::begin(edge(&context)));
        let mut listeners: Vec<_> = (FIRST_LISTENER..)
            .zip(sockets)
            .map(|(slot, socket)| {
                let Config { policy, listenq, .. } = &*context.config;
                Listener::new(slot, socket, policy, *listenq, &control)
            })
            .collect();
        let reserved = FIRST_LISTENER + listeners.len() as u32;
        let sole_upstream = context.config.sole_upstream();
        if sole_upstream.is_some() {
            share_shedding(&mut listeners, &context.config);
        }
        Self {
            table: ConnectionTable::new(context.config.slots, reserved, open_max),
            listeners,
            timers: TimerWheel::new(0),
            expired: Vec::new(),
            context,
            control,
            publisher,
            iterations: 0,
            answered: 0,
            eviction_cursor: 0,
            paused_until_ns: None,
            deferred: Deferred::default(),
            deferred_until_ns: None,
            accepts_pending: false,
            accepts_all: false,
            slept_ns: 0,
            woke_ns: 0,
            accepted: 0,
            begun: 0,
            served: 0,
            served_ns: 0,
            ready: 0,
            work_items: 0,
            work_ns: 0,
            work_max_ns: None,
            request_decision: None,
            sole_upstream,
            shed_due_ns: None,
            syn_dropped: [0; 4],
            drained_by_ns: None,
            calls: Vec::new(),
            last_message_ns: None,
            phase_times,
        }
    }

    /// Enters a phase, and returns the one that it follows. Does nothing while phases are not
    /// timed.
    #[inline]
    pub(crate) fn enter_phase(&mut self, next: LoopPhase) -> LoopPhase {
        match &mut self.phase_times {
            None => next,
            Some(times) => time_phase(times, next, &mut self.context),
        }
    }

    /// Returns the data available to a policy, except for what depends on its listener.
    pub(crate) fn view(&self) -> View {
        View {
            open: self.table.open_count(),
            open_max: self.table.open_max(),
            iterations_since: 0,
            slept_ns: self.slept_ns,
            woke_ns: self.woke_ns,
            accepted: self.accepted,
            begun: self.begun,
            served: self.served,
            served_ns: self.served_ns,
            ready: self.ready,
            work_items: self.work_items,
            work_ns: self.work_ns,
            deferred: self.deferred.len(),
            tls: self.context.tls_work,
            is_tls: false,
            busy: false,
            saturated: false,
        }
    }

    /// Begins a work-phase of `items` connections.
    pub(crate) fn begin_work(&self, items: usize) -> Work {
        let is_timed = items > 1 || self.is_alert();
        let began_ns = is_timed.then(|| self.context.read_clock_ns());
        let tls_before = Some(self.context.tls_work);
        Work { items: 0, began_ns, clock_read_at: 1, tls_before }
    }

    /// Returns whether a work-phase has used up its time before other phases are due.
    pub(crate) fn is_long(&self, work: &mut Work) -> bool {
        let Some(began_ns) = work.began_ns.filter(|_| work.items >= work.clock_read_at) else {
            return false;
        };
        let Some(max_ns) = self.work_max_ns else { return false };
        let spent_ns = self.context.read_clock_ns() - began_ns;
        let item_ns = (spent_ns / work.items).max(1);
        let next = max_ns.saturating_sub(spent_ns) / 4 / item_ns;
        work.clock_read_at = work.items + next.clamp(1, ITEMS_PER_CLOCK_READ_MAX);
        spent_ns >= max_ns
    }

    /// Begins an iteration, with one time for all of it.
    pub(crate) fn begin_iteration(&mut self) {
        self.context.tick();
        self.context.write_budget.begin_iteration();
        self.context.tls_budget.begin_round();
        self.iterations += 1;
    }

    /// Begins another iteration in the middle of a work-phase, with `left` connections still to be
    /// served.
    pub(crate) fn cut_work(&mut self, work: Work, left: usize) {
        self.note_work(work);
        self.context.counters.work_cuts.one();
        self.begin_iteration();
        self.ready = left as u64;
        self.accepts_pending = false;
    }

    /// Returns whether a policy must know exactly when the loop sleeps.
    pub(crate) fn is_alert(&self) -> bool {
        self.listeners.iter().any(Listener::is_alert)
    }

    /// Sets how many connections come in while all that is served waits for one upstream. To be
    /// called once an iteration has done its work: what it completed lets others in.
    pub(crate) fn shed_for_upstream(&mut self) {
        let now_ns = self.context.now_ns();
        self.shed_due_ns = None;
        if !self.listeners.iter().any(|listener| listener.wants_load(now_ns)) {
            return;
        }
        let WorkerContext { upstreams, counters, .. } = &mut self.context;
        let sole = self.sole_upstream.zip(upstreams.as_ref());
        let Some(load) = sole.map(|(sole, upstreams)| upstreams.load(sole)) else { return };
        let first_for_upstream = |listener: &Listener| {
            let [_, _, for_upstream, again] = listener.dropped();
            for_upstream.saturating_sub(again)
        };
        let dropped = self.listeners.iter().map(first_for_upstream).sum();
        for listener in &mut self.listeners {
            listener.shed(now_ns, &load, dropped, counters);
        }
        // What other loops complete wakes nobody here, and may leave places free. Those that wait
        // are an eighth at least of what is served within the delay target.
        let is_shedding = self.listeners.iter().any(Listener::is_shedding);
        let config = &self.context.config;
        let upstream = self.sole_upstream.and_then(|sole| config.upstreams.get(sole));
        let part_ns = upstream.map_or(0, |each| each.admission.target_ns / SHED_LOOK_PART);
        self.shed_due_ns = is_shedding.then(|| now_ns + part_ns.min(SHED_LOOK_NS));
    }

    /// Lifts all refusal because of load before the loop sleeps.
    pub(crate) fn lift_refusals(&mut self) {
        for listener in &mut self.listeners {
            listener.lift_refusals(&mut self.context.counters);
        }
        self.apply_decisions();
    }

    /// Applies the parts of the decisions that concern open connections.
    pub(crate) fn apply_decisions(&mut self) {
        let decisions = || self.listeners.iter().map(|listener| &listener.decision);
        self.context.pressure = decisions().any(|each| each.pressure);
        self.context.is_overloaded = self.listeners.iter().any(Listener::is_overloaded);
        self.context.share = decisions().find_map(|each| each.share);
        self.work_max_ns = decisions().filter_map(|each| each.work_max_ns).min();
        self.request_decision = decisions().find(|each| each.inspect_open).copied();
    }

    /// Returns the connection in a slot, which is about to be served, with the context that knows
    /// that it is.
    pub(crate) fn serve(&mut self, slot: u32) -> Option<(&mut C, &mut WorkerContext)> {
        self.context.serving = self.table.token(slot);
        Some((self.table.conn(slot)?, &mut self.context))
    }

    /// Records a sleep of the loop that began at `since_ns`.
    pub(crate) fn note_sleep(&mut self, since_ns: u64) {
        let now_ns = self.context.now_ns();
        self.slept_ns += now_ns.saturating_sub(since_ns);
        self.woke_ns = now_ns;
    }

    /// Returns whether the loop has slept within the last target, and so had time to serve.
    pub(crate) fn has_just_slept(&self) -> bool {
        let target_ns = self.context.config.policy.target_ns;
        self.context.now_ns() < self.woke_ns.saturating_add(target_ns)
    }

    /// Records a refusal because of load. Counts it as a fault if the loop has just slept, and so
    /// had time to serve.
    pub(crate) fn note_refusal(&mut self) {
        if self.has_just_slept() {
            self.context.counters.refused_idle.one();
            debug_assert!(false, "a connection was refused while there was time");
        }
    }

    /// Takes over the counts of a listener that is about to close.
    pub(crate) fn forget(&mut self, listener: &Listener) {
        self.syn_dropped = sum(self.syn_dropped, listener.dropped());
    }

    /// Returns the maximum wait of deferred connections, nanoseconds, and the time until which they
    /// are served: the shortest and the latest of the listeners' last decisions. They may have come
    /// to any listener, and one that is not overloaded limits no wait.
    pub(crate) fn deferred_limits(&self) -> (Option<u64>, Option<u64>) {
        let decisions = || self.listeners.iter().map(|listener| &listener.decision);
        let stale_ns = decisions().filter_map(|each| each.stale_ns).min();
        (stale_ns, decisions().filter_map(|each| each.until_ns).max())
    }

    /// Records the number of open connections after an accept.
    pub(crate) fn note_open(&mut self) {
        let open = self.table.open_count() as u64;
        self.context.counters.open_at_accept.add(open);
        self.context.counters.open_max.raise(open);
    }

    /// Returns how long the next wait may sleep: until something is due, and not at all while
    /// connections are deferred that could be served.
    pub(crate) fn sleep_max(&self) -> Option<Duration> {
        let until = || self.time_until(self.deferred_until_ns.unwrap_or(0));
        let deferred = (!self.deferred.is_empty()).then(until);
        [self.due_in(), deferred].into_iter().flatten().min()
    }

    /// Returns the time until something is due by the clock; `None` if nothing is.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        [self.timers.next_ns(), self.upkeep_ns(), self.drained_by_ns]
            .into_iter()
            .flatten()
            .min()
            .map(|due_ns| self.time_until(due_ns))
    }

    fn time_until(&self, due_ns: u64) -> Duration {
        Duration::from_nanos(due_ns.saturating_sub(self.context.now_ns()))
    }

    /// Returns when something other than a connection's deadline is due: a policy, log lines,
    /// statistics, or the end of a pause.
    pub(crate) fn upkeep_ns(&self) -> Option<u64> {
        let log_ns = self.context.log.as_ref().and_then(LogBuffer::due_ns);
        let policies = self.listeners.iter().filter_map(Listener::due_ns);
        let upstreams_ns = self.context.upstreams_due_ns();
        let memory_ns = self.context.memory.due_ns();
        let others_ns = [
            log_ns,
            upstreams_ns,
            memory_ns,
            self.publisher.due_ns(),
            self.paused_until_ns,
            self.shed_due_ns,
        ];
        policies.chain(others_ns.into_iter().flatten()).min()
    }

    /// Records a work-phase that has ended.
    pub(crate) fn note_work(&mut self, work: Work) {
        let Work { items, began_ns, tls_before, .. } = work;
        if items > 0 {
            self.context.counters.work_phases.one();
            self.context.counters.work_items.add(items);
            self.context.counters.work_items_max.raise(items);
        }
        let spent_ns = began_ns.map_or(0, |began_ns| self.context.read_clock_ns() - began_ns);
        self.work_items = items;
        // A single item keeps no other connection waiting.
        self.work_ns = if items > 1 { spent_ns } else { 0 };
        self.served += items;
        self.served_ns += spent_ns;
        if spent_ns >= STALL_NS {
            let spent_s = spent_ns as f64 / 1e9;
            self.tell(&format!("a work-phase of {items} connections has taken {spent_s:.1} s"));
        }
        if let Some(before) = tls_before {
            self.context.tls_work.note_work(before);
        }
    }

    /// Returns whether a listener's connections are left where they are, because handshakes have
    /// used up their share of this iteration, or those of earlier connections wait for it.
    pub(crate) fn handshakes_fill(&self, index: usize) -> bool {
        let is_full = self.context.tls_budget.is_spent() || self.context.tls_work.waiting > 0;
        is_full && self.listeners.get(index).is_some_and(Listener::is_tls)
    }

    /// Returns the number of an unanswered report request, and marks it as answered.
    pub(crate) fn report_request(&mut self) -> Option<u64> {
        let report_request = self.control.report_request();
        (report_request > self.answered).then(|| {
            self.answered = report_request;
            report_request
        })
    }

    /// Returns whether the loop is to end now.
    pub(crate) fn is_over(&self) -> bool {
        match self.control.phase() {
            Phase::Run => false,
            Phase::HandOver | Phase::Drain => self.drained_by_ns.is_some_and(|by_ns| {
                self.table.open_count() == 0 || by_ns <= self.context.now_ns()
            }),
            Phase::Stop => true,
        }
    }

    /// Returns the loop's report, to which the architecture has added its own counts.
    pub(crate) fn report(&mut self) -> LoopReport {
        self.note_listeners();
        self.context.note_counts();
        profile::drain_into(&mut self.calls);
        let calls = profile::NAMES
            .iter()
            .zip(&self.calls)
            .map(|(name, row)| CallRow { name, count: row.count, time_ns: row.time_ns })
            .collect();
        LoopReport { counters: self.context.counters(), calls }
    }

    /// Publishes the counters, to which the architecture has added its own counts, for other
    /// processes. Those of the kernel are left to the reader: they would take system calls.
    pub(crate) fn publish(&mut self) {
        self.note_listeners();
        self.context.note_counts();
        profile::drain_into(&mut self.calls);
        let now_ns = self.context.now_ns();
        let WorkerContext { counters, upstream_words, .. } = &self.context;
        self.publisher.publish(now_ns, counters, &self.calls, upstream_words);
    }

    #[inline]
    fn note_listeners(&mut self) {
        let dropped = self.listeners.iter().map(Listener::dropped).fold(self.syn_dropped, sum);
        self.context.counters.set_syn_dropped(dropped);
        let states = self.listeners.iter().map(Listener::state);
        let state = states.fold([0; 3], |[queue, backlog, ppm], each| {
            [queue + each[0], backlog + each[1], ppm.max(each[2])]
        });
        self.context.counters.set_listeners(state);
    }

    /// Sends a message to the operator, at most once per second.
    pub(crate) fn tell(&mut self, message: &str) {
        self.tell_with(|| message.to_owned());
    }

    /// Sends a message that is made only if one may be sent.
    pub(crate) fn tell_with(&mut self, message: impl FnOnce() -> String) {
        let now_ns = self.context.now_ns();
        if self.last_message_ns.is_none_or(|at_ns| at_ns + SECOND_NS <= now_ns) {
            self.last_message_ns = Some(now_ns);
            self.context.config.errors.warn(&message());
        }
    }
}

#[cold]
fn time_phase(times: &mut PhaseTimes, next: LoopPhase, context: &mut WorkerContext) -> LoopPhase {
    let last = times.phase();
    if last != next {
        times.enter(next, edge(context), &mut context.counters);
    }
    last
}

/// Reads the clocks between two phases.
fn edge(context: &WorkerContext) -> Edge {
    let ended_ns = context.read_clock_ns();
    let (cpu_ns, calls_ns) = (context.cpu_clock_ns(), profile::calls_ns());
    Edge { ended_ns, began_ns: context.read_clock_ns(), cpu_ns, calls_ns }
}

/// Divides among the listeners of all loops the connections that come in while all that they serve
/// waits for an upstream. One that sends clients on to TLS serves them itself.
fn share_shedding(listeners: &mut [Listener], config: &Config) {
    let waits = |listener: &&mut Listener| {
        listener.has_filter() && (listener.is_tls() || !config.redirects_to_tls)
    };
    let all: Vec<_> = listeners.iter_mut().filter(waits).collect();
    let shedding = Shedding::new(config.workers, all.len());
    all.into_iter().for_each(|listener| listener.set_shedding(shedding));
}

/// Adds two groups of counts.
fn sum(ours: [u64; 4], theirs: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|index| ours[index] + theirs[index])
}
