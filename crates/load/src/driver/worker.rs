//! A driving thread: it starts what is due, continues ready connections, and gives up expired
//! requests. It keeps the schedule; `exchange` implements the steps of a connection.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use weir_dispatch::slots::Slots;
use weir_dispatch::timers::TimerWheel;
use weir_sys::epoll::{self, Event};
use weir_sys::process;

use super::background::Background;
use super::clock::Clock;
use super::conn::{Conn, Stage, due_ns};
use super::pieces::Pieces;
use super::tally::Tally;
use super::{Message, Part};
use crate::config::{Config, Pace};
use crate::measure::{Clocks, ErrorKind, ThreadUse};
use crate::schedule::Schedule;
use crate::session::{Session, Source};

/// Events per wait. Late starts are begun between two events, so that a large batch does not delay
/// them.
const EVENTS_MAX: usize = 256;

/// Lag from which a start is begun between two events.
const LATE_NS: u64 = 30_000;

/// Starts in a row before events are handled, when the schedule is behind.
const STARTS_MAX: usize = 64;

/// The longest sleep: it bounds the delay until an operator's stop is noticed.
const SLEEP_NS: u64 = 50_000_000;

/// Time after the end during which starts planned before the end may still happen.
const GRACE_NS: u64 = SECOND_NS;

/// Durations from this value on are unlimited.
const FOREVER_NS: u64 = u64::MAX / 8;

/// Lag at which a start still does not count as missed when the operator stops the run.
const JUST_NS: u64 = 1_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// Bytes per read. All connections of a thread share one buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// The state of a driving thread.
pub(super) struct Worker<'a> {
    pub(super) config: &'a Config,
    pub(super) clock: Clock,
    pub(super) epoll: OwnedFd,
    pub(super) slots: Slots,
    pub(super) conns: Vec<Conn>,
    pub(super) timers: TimerWheel,
    pub(super) background: Background<'a>,
    pub(super) pieces: Pieces,
    /// Connections in a think time, by its end.
    pub(super) thinking: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Shared or closed-loop connections without a session.
    pub(super) free: VecDeque<u32>,
    /// Arrivals that wait for a shared connection: number and planned start.
    pub(super) waiting: VecDeque<(u64, u64)>,
    pub(super) tally: Tally,
    pub(super) buffer: Vec<u8>,
    pub(super) scratch: Vec<u8>,
    /// Counter that selects the next pair of addresses and sources.
    pub(super) turn: usize,
    pub(super) open: u64,
    /// End of the schedule, on the run's clock: nothing is begun after it.
    pub(super) end_ns: u64,
    index: u64,
    events: Vec<Event>,
    expired: Vec<u32>,
    source: Box<dyn Source>,
    schedule: Schedule,
    /// The next arrival of this thread, and its planned start on the run's clock.
    next: Option<(u64, u64)>,
    /// The same schedule, advanced to the end of the last second: the starts that were due.
    plan: Schedule,
    plan_next: Option<u64>,
    /// Number of arrivals taken from the schedule, of arrivals due by the end of the last second,
    /// and of those due but not taken.
    taken: u64,
    due: u64,
    behind: u64,
    /// End of the plan: no arrival begins from then on.
    plan_ends_ns: u64,
    /// End of the last request to complete.
    ended_ns: u64,
    /// Number of the next arrival in a closed loop.
    ordinal: u64,
    start_ns: u64,
    /// End of the warm-up; `None` once it is over.
    measure_from_ns: Option<u64>,
    second_ends_ns: u64,
    seconds: u64,
    cpu_before_ns: u64,
    used: ThreadUse,
    used_before: (u64, u64),
    open_max: u64,
    finished: bool,
}

impl<'a> Worker<'a> {
    /// Creates the state of thread number `index`, with room for `open_max` connections.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub(super) fn new(
        config: &'a Config,
        index: usize,
        clock: Clock,
        open_max: usize,
    ) -> io::Result<Self> {
        let law = match &config.pace {
            Pace::Open(arrivals) => arrivals.clone(),
            Pace::Closed(_) => crate::schedule::Arrivals::Trace([].into()),
        };
        let threads = config.threads.max(1);
        let schedule = Schedule::sharded(&law, config.duration_ns, config.seed, index, threads);
        Ok(Self {
            config,
            clock,
            epoll: epoll::create()?,
            slots: Slots::new(open_max),
            conns: Vec::new(),
            timers: TimerWheel::new(clock.now_ns()),
            background: Background::new(config, index),
            pieces: Pieces::new(config.send_rate),
            thinking: BinaryHeap::new(),
            free: VecDeque::new(),
            waiting: VecDeque::new(),
            tally: Tally::new(0, 0, false),
            buffer: vec![0; BUFFER_BYTES],
            scratch: Vec::new(),
            turn: index,
            open: 0,
            end_ns: u64::MAX,
            index: index as u64,
            events: Vec::with_capacity(EVENTS_MAX),
            expired: Vec::new(),
            source: config.workload.source(config.seed),
            plan: schedule.clone(),
            plan_next: None,
            taken: 0,
            due: 0,
            behind: 0,
            plan_ends_ns: 0,
            ended_ns: 0,
            schedule,
            next: None,
            ordinal: index as u64,
            start_ns: 0,
            measure_from_ns: None,
            second_ends_ns: 0,
            seconds: 0,
            cpu_before_ns: 0,
            used: ThreadUse::default(),
            used_before: (0, 0),
            open_max: 0,
            finished: false,
        })
    }

    /// Opens the connections that must exist before the schedule begins.
    pub(super) fn prepare(&mut self, stop: &AtomicBool) {
        let mut left = self.share(self.config.shared_conns);
        while (left > 0 || !self.background.is_ready()) && !stop.load(Ordering::Relaxed) {
            let now_ns = self.clock.now_ns();
            if left > 0 && self.background.may_open(now_ns) {
                left -= 1;
                self.open_shared();
            }
            self.background.open_due(now_ns, self.epoll.as_fd(), &mut self.tally);
            let next_ns = self.background.next_open_ns();
            self.wait_until(next_ns.min(now_ns + SLEEP_NS));
            self.work();
        }
        self.open_closed_loop();
    }

    /// Returns this thread's share of `all`.
    pub(super) fn share(&self, all: usize) -> usize {
        super::share(all, self.index as usize, self.config.threads)
    }

    /// Takes the slots of a closed loop's connections, which have no socket yet.
    fn open_closed_loop(&mut self) {
        let Pace::Closed(conns) = self.config.pace else { return };
        let share = self.share(conns);
        // A thread without a connection has nothing to do.
        self.finished = share == 0;
        for _ in 0..share {
            if let Some(slot) = self.take_slot() {
                self.free.push_back(slot);
            }
        }
    }

    /// Drives the load from `start_ns` of the run's clock to the end, and reports the results.
    pub(super) fn drive(mut self, start_ns: u64, stop: &AtomicBool, out: &Sender<Message>) {
        let config = self.config;
        let from_ns = start_ns + config.warmup_ns;
        self.start_ns = start_ns;
        self.end_ns = start_ns.saturating_add(config.duration_ns);
        self.tally.begin(start_ns, from_ns, self.end_ns, config.each);
        self.plan_ends_ns = self.end_ns;
        self.ended_ns = start_ns;
        self.plan_next = self.plan.next_mine().map(|(_, at_ns)| start_ns.saturating_add(at_ns));
        // Nothing is measured before.
        self.second_ends_ns = from_ns.saturating_add(SECOND_NS);
        self.measure_from_ns = Some(from_ns);
        self.begin_measuring(start_ns);
        self.take_next();
        while !self.is_over() && !stop.load(Ordering::Relaxed) {
            self.begin_due();
            let now_ns = self.clock.now_ns();
            self.wait_until(self.wake_ns(now_ns));
            self.work();
            self.keep_time(out);
        }
        self.finish(stop.load(Ordering::Relaxed), out);
    }

    /// Begins to count the thread's own CPU time, once the warm-up is over.
    fn begin_measuring(&mut self, now_ns: u64) {
        if self.measure_from_ns.is_some_and(|from_ns| from_ns <= now_ns) {
            self.measure_from_ns = None;
            self.used_before = process::thread_cpu_ns();
            self.cpu_before_ns = self.used_before.0 + self.used_before.1;
        }
    }

    fn is_over(&self) -> bool {
        let busy = self.slots.taken() - self.free.len();
        self.finished && busy == 0 && self.waiting.is_empty()
    }

    /// Begins the starts that are due.
    fn begin_due(&mut self) {
        for _ in 0..STARTS_MAX {
            let now_ns = self.clock.now_ns();
            if !self.begin_one(now_ns) {
                return;
            }
        }
    }

    /// Begins one arrival, or one request after its think time, if one is due; returns whether one
    /// was.
    pub(super) fn begin_one(&mut self, now_ns: u64) -> bool {
        let planned_ns = self.next.map_or(u64::MAX, |(_, planned_ns)| planned_ns);
        if let Some(Reverse((due_ns, slot, tenant))) = self.thinking.peek().copied()
            && due_ns <= now_ns.min(planned_ns)
        {
            self.thinking.pop();
            if self.conns[slot as usize].tenant == tenant {
                self.think_over(slot, due_ns, now_ns);
            }
            return true;
        }
        if let Some((arrival, planned_ns)) = self.waiting.front().copied()
            && let Some(slot) = self.free.pop_front()
        {
            self.waiting.pop_front();
            self.begin_session(slot, arrival, planned_ns);
            return true;
        }
        match self.next {
            Some((arrival, planned_ns)) if planned_ns <= now_ns => {
                self.take_next();
                self.arrive(arrival, planned_ns);
                true
            }
            _ => self.begin_closed(now_ns),
        }
    }

    /// Begins a session of a closed loop if a connection is free; returns whether one was.
    fn begin_closed(&mut self, now_ns: u64) -> bool {
        let closed = matches!(self.config.pace, Pace::Closed(_));
        if self.finished || !closed || now_ns < self.start_ns {
            return false;
        }
        if now_ns >= self.end_ns || self.ordinal >= self.arrivals_max() {
            self.finished = true;
            return false;
        }
        let Some(slot) = self.free.pop_front() else { return false };
        let arrival = self.ordinal;
        self.ordinal += self.config.threads as u64;
        self.begin_session(slot, arrival, now_ns);
        true
    }

    fn arrivals_max(&self) -> u64 {
        if self.config.arrivals_max == 0 { u64::MAX } else { self.config.arrivals_max }
    }

    fn take_next(&mut self) {
        let start_ns = self.start_ns;
        let next = self.schedule.next_mine();
        self.next = next.map(|(arrival, at_ns)| (arrival, start_ns.saturating_add(at_ns)));
        self.taken += u64::from(self.next.is_some());
        match self.next {
            Some((arrival, planned_ns)) if arrival >= self.arrivals_max() => {
                self.end_plan(planned_ns);
            }
            None if matches!(self.config.pace, Pace::Open(_)) => {
                // A plan without an end is over when nothing comes any more.
                let forever = self.config.duration_ns >= FOREVER_NS;
                let ends_ns = if forever { self.clock.now_ns() } else { self.plan_ends_ns };
                self.end_plan(ends_ns);
            }
            _ => {}
        }
    }

    /// Ends the plan: no arrival planned for `at_ns` or later is begun.
    fn end_plan(&mut self, at_ns: u64) {
        self.next = None;
        self.finished = true;
        self.plan_ends_ns = self.plan_ends_ns.min(at_ns);
    }

    /// Begins an arrival of the schedule on a connection of its own, or queues it for a shared one.
    fn arrive(&mut self, arrival: u64, planned_ns: u64) {
        if self.config.shared_conns > 0 {
            // Behind those who wait already.
            return self.waiting.push_back((arrival, planned_ns));
        }
        match self.take_slot() {
            Some(slot) => self.begin_session(slot, arrival, planned_ns),
            None => self.turn_away(arrival, planned_ns, ErrorKind::FdUnavail),
        }
    }

    /// Counts an arrival that never gets a connection: each request of its first group is an error.
    fn turn_away(&mut self, arrival: u64, planned_ns: u64, kind: ErrorKind) {
        let mut session = Session::default();
        if !self.source.fill(arrival, &mut session) || session.steps.is_empty() {
            return self.end_plan(planned_ns);
        }
        let started_ns = self.clock.now_ns();
        let group = super::exchange::group_end(&session.steps, 0);
        self.tally.turned_away(planned_ns, u64::from(group));
        let clocks = Clocks { planned_ns, started_ns, ..Clocks::default() };
        for step in session.steps.iter().take(group as usize) {
            self.tally.failed(&clocks, step.request, kind);
        }
        self.note_end();
        let counts = self.tally.at(planned_ns);
        counts.arrivals += 1;
        counts.sessions_failed += 1;
        counts.abandoned += session.steps.len() as u64 - u64::from(group);
    }

    /// Begins the session of an arrival on a connection.
    pub(super) fn begin_session(&mut self, slot: u32, arrival: u64, planned_ns: u64) {
        let conn = &mut self.conns[slot as usize];
        conn.session.steps.clear();
        conn.session.last_closes = false;
        if !self.source.fill(arrival, &mut conn.session) || conn.session.steps.is_empty() {
            self.end_plan(planned_ns);
            return self.release(slot);
        }
        self.tally.at(planned_ns).arrivals += 1;
        let conn = &mut self.conns[slot as usize];
        conn.answered = 0;
        conn.begun_ns = planned_ns;
        self.begin_group(slot, planned_ns);
    }

    /// Takes a slot for a new connection; `None` once the limit on connections is reached.
    pub(super) fn take_slot(&mut self) -> Option<u32> {
        let slot = self.slots.allocate()?;
        if slot as usize >= self.conns.len() {
            self.conns.resize_with(slot as usize + 1, Conn::default);
        }
        Some(slot)
    }

    pub(super) fn is_current(&self, slot: u32, generation: u32) -> bool {
        self.conns.get(slot as usize).is_some_and(|conn| conn.generation == generation)
    }

    /// Returns the planned time of the next start, which may have passed.
    fn due_ns(&self) -> Option<u64> {
        let next_ns = self.next.map(|(_, planned_ns)| planned_ns);
        let think_ns = self.thinking.peek().map(|Reverse((due_ns, ..))| *due_ns);
        next_ns.into_iter().chain(think_ns).min()
    }

    /// Returns the time at which the next wait must end, because something is due or might be late.
    fn wake_ns(&self, now_ns: u64) -> u64 {
        let closed = matches!(self.config.pace, Pace::Closed(_)) && !self.finished;
        if (closed || !self.waiting.is_empty()) && !self.free.is_empty() {
            return now_ns.max(self.start_ns);
        }
        let queued_ns = self.waiting.front().map(|(_, planned_ns)| self.patience_ns(*planned_ns));
        let background_ns = self.background.next_ns();
        let piece_ns = self.pieces.next_ns();
        [self.due_ns(), queued_ns, background_ns, piece_ns, self.timers.next_ns()]
            .into_iter()
            .flatten()
            .fold(self.second_ends_ns.min(now_ns + SLEEP_NS), u64::min)
    }

    /// Returns the time until which an arrival waits for a shared connection.
    fn patience_ns(&self, planned_ns: u64) -> u64 {
        let timeout_ns = planned_ns.saturating_add(self.config.timeout_ns);
        timeout_ns.min(due_ns(planned_ns, self.config.deadline_ns))
    }

    fn wait_until(&mut self, wake_ns: u64) {
        let timeout = Duration::from_nanos(wake_ns.saturating_sub(self.clock.now_ns()));
        if epoll::wait(self.epoll.as_fd(), &mut self.events, Some(timeout)).is_err() {
            // The set is ours and sound; what is left is want of memory, which may pass.
            self.events.clear();
        }
    }

    /// Handles the ready connections, and between them the starts that are late.
    fn work(&mut self) {
        for index in 0..self.events.len() {
            let Event { data, flags } = self.events[index];
            let (slot, generation) = (data.u64() as u32, (data.u64() >> 32) as u32);
            match slot.checked_sub(self.background.len()) {
                None => self.background.event(
                    slot,
                    self.clock.now_ns(),
                    flags,
                    &mut self.buffer,
                    &mut self.tally,
                ),
                Some(slot) if self.is_current(slot, generation) => self.event(slot, flags),
                Some(_) => {}
            }
            // What is not late yet can wait for the rest: starts and reads in runs of each cost
            // less than by turns.
            let now_ns = self.clock.now_ns();
            if self.due_ns().is_some_and(|due_ns| due_ns.saturating_add(LATE_NS) <= now_ns) {
                self.begin_one(now_ns);
            }
        }
    }

    /// Handles what is due by the clock: deadlines, slow clients, the end of a second.
    fn keep_time(&mut self, out: &Sender<Message>) {
        let now_ns = self.clock.now_ns();
        self.begin_measuring(now_ns);
        self.expire(now_ns);
        self.expire_waiting(now_ns);
        self.background.tick(now_ns, self.epoll.as_fd(), &mut self.buffer, &mut self.tally);
        self.send_pieces(now_ns);
        // So late that the run would go on and on.
        if now_ns >= self.end_ns.saturating_add(GRACE_NS) && self.next.is_some() {
            self.skip(u64::MAX);
        }
        if self.finished && now_ns >= self.end_ns {
            self.cut_thinkers();
        }
        if now_ns >= self.second_ends_ns {
            self.end_second(now_ns, out);
        }
    }

    /// Counts as missed all waiting arrivals, and the scheduled ones planned until `until_ns`.
    fn skip(&mut self, until_ns: u64) {
        for (_, planned_ns) in std::mem::take(&mut self.waiting) {
            self.tally.missed(planned_ns);
        }
        while let Some((_, planned_ns)) = self.next
            && planned_ns <= until_ns
        {
            self.tally.missed(planned_ns);
            self.take_next();
        }
    }

    fn expire(&mut self, now_ns: u64) {
        let (timeout_ns, deadline_ns) = (self.config.timeout_ns, self.config.deadline_ns);
        let conns = &self.conns;
        let expires_ns = |slot: u32| {
            let at_ns = conns.get(slot as usize)?.expires_ns(timeout_ns, deadline_ns);
            (at_ns < u64::MAX).then_some(at_ns)
        };
        let mut expired = std::mem::take(&mut self.expired);
        self.timers.expire(now_ns, expires_ns, &mut expired);
        for slot in expired.drain(..) {
            self.overdue(slot, now_ns);
        }
        self.expired = expired;
    }

    fn expire_waiting(&mut self, now_ns: u64) {
        while let Some((arrival, planned_ns)) = self.waiting.front().copied()
            && self.patience_ns(planned_ns) <= now_ns
        {
            self.waiting.pop_front();
            let late = due_ns(planned_ns, self.config.deadline_ns) <= now_ns;
            let kind = if late { ErrorKind::Deadline } else { ErrorKind::SendTimeout };
            self.turn_away(arrival, planned_ns, kind);
        }
    }

    /// Ends the connections that are in a think time when the run's time is over.
    fn cut_thinkers(&mut self) {
        for Reverse((_, slot, tenant)) in std::mem::take(&mut self.thinking) {
            let conn = &self.conns[slot as usize];
            if conn.tenant == tenant && conn.stage == Stage::Thinking {
                self.release(slot);
            }
        }
    }

    fn end_second(&mut self, now_ns: u64, out: &Sender<Message>) {
        let began_ns = self.second_ends_ns - SECOND_NS;
        let passed_ns = now_ns.saturating_sub(began_ns).max(1);
        let mut second = self.tally.take_second();
        second.second = self.seconds;
        second.length_ns = passed_ns.min(SECOND_NS);
        second.open = self.open + self.background.open();
        let planned = second.counts.planned;
        second.counts.planned = planned.saturating_add_signed(self.falls_behind(now_ns));
        let (user_ns, system_ns) = process::thread_cpu_ns();
        let cpu_ns = (user_ns + system_ns).saturating_sub(self.cpu_before_ns);
        self.cpu_before_ns = user_ns + system_ns;
        let busy = cpu_ns as f64 / passed_ns as f64;
        second.cpu_ns = (busy * second.length_ns as f64) as u64;
        if passed_ns >= SECOND_NS / 2 {
            self.used.busiest = self.used.busiest.max(busy);
        }
        self.open_max = self.open_max.max(second.open);
        self.seconds += 1;
        self.second_ends_ns += SECOND_NS;
        // The receiver outlives the threads.
        let _ = out.send(Message::Second(Box::new(second)));
        let samples = self.tally.take_samples();
        if !samples.is_empty() {
            let _ = out.send(Message::Samples(samples));
        }
    }

    /// Returns by how many arrivals this thread has fallen further behind its schedule since the
    /// last call; negative if it caught up.
    fn falls_behind(&mut self, now_ns: u64) -> i64 {
        while let Some(at_ns) = self.plan_next
            && at_ns <= now_ns
            && !self.finished
        {
            self.due += 1;
            let next = self.plan.next_mine();
            self.plan_next = next.map(|(_, at_ns)| self.start_ns.saturating_add(at_ns));
        }
        // One that was taken and is not due yet is not ahead.
        let behind = if self.finished { 0 } else { self.due.saturating_sub(self.taken) };
        let change = behind as i64 - self.behind as i64;
        self.behind = behind;
        change
    }

    fn finish(mut self, interrupted: bool, out: &Sender<Message>) {
        let now_ns = self.clock.now_ns();
        self.close_all();
        if interrupted {
            // One that has only just fallen due was not missed.
            self.skip(now_ns.saturating_sub(JUST_NS));
            self.end_plan(now_ns);
            self.ended_ns = now_ns;
        }
        // The last second is as long as the plan, not as what came of it.
        let open_loop = matches!(self.config.pace, Pace::Open(_));
        let now_ns = if open_loop { now_ns.max(self.plan_ends_ns) } else { now_ns };
        while now_ns >= self.second_ends_ns {
            self.end_second(now_ns, out);
        }
        if now_ns > self.second_ends_ns - SECOND_NS {
            self.end_second(now_ns, out);
        }
        let (user_ns, system_ns) = process::thread_cpu_ns();
        self.used.user_ns = user_ns.saturating_sub(self.used_before.0);
        self.used.system_ns = system_ns.saturating_sub(self.used_before.1);
        let part = Part {
            counts: self.tally.measured(),
            whole_run: self.tally.whole_run(),
            replies_in_schedule: self.tally.replies_in_schedule,
            good_in_schedule: self.tally.good_in_schedule,
            times: self.tally.times,
            sessions: self.tally.sessions,
            lifetimes: self.tally.lifetimes,
            used: self.used,
            open_max: self.open_max,
            seconds: self.seconds,
            plan_ends_ns: self.plan_ends_ns,
            ended_ns: self.ended_ns,
        };
        let _ = out.send(Message::Done(Box::new(part)));
    }

    /// Returns whether slots stay with their connections from session to session.
    pub(super) fn keeps_slots(&self) -> bool {
        self.config.shared_conns > 0 || matches!(self.config.pace, Pace::Closed(_))
    }

    /// Records the end of a request, successful or not.
    pub(super) fn note_end(&mut self) {
        self.ended_ns = self.clock.now_ns();
    }

    pub(super) fn note_open(&mut self) {
        self.open += 1;
        self.open_max = self.open_max.max(self.open + self.background.open());
    }
}
