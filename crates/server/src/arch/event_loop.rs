//! SPED: one thread, three phases, repeated (pariag-accept fig. 3.1, brecht-select fig. 2).
//!
//! A connection accepted in one round is served in the next, as the papers have it, unless it is
//! read eagerly. Everything the loop does not decide itself it asks: the mechanism who is ready,
//! the policy how many to accept, the connection what it waits for.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use weir_dispatch::readiness::{Counts, Interest, Mechanism, Token};
use weir_dispatch::timers::Timers;
use weir_stats::{CallRow, LoopReport};
use weir_sys::profile;

use super::accepting::{Fate, Held};
use super::listener::{Listener, Socket};
use super::table::Table;
use crate::conn::{Conn, Next};
use crate::control::{Control, LAST_WORD, Phase};
use crate::log::LogBuffer;
use crate::service::Service;

/// The slot of the bell; the listeners follow it.
const BELL: Token = Token { slot: 0, generation: 0 };
const FIRST_LISTENER: u32 = 1;

/// How long a client that has not spoken yet may keep a server that was told to stop.
const SILENCE_NS: u64 = 500_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// What a mechanism counted, in the order of [`weir_stats::Counters::set_mechanism`].
fn values(counts: Counts) -> [u64; 8] {
    let Counts { notices, overflows, swept, stale, coalesced, checked, rearmed, batched } = counts;
    [notices, overflows, swept, stale, coalesced, checked, rearmed, batched]
}

pub(crate) struct EventLoop<M> {
    pub(super) mechanism: M,
    pub(super) listeners: Vec<Listener>,
    pub(super) table: Table,
    timers: Timers,
    pub(super) service: Service,
    control: Arc<Control>,
    ready: Vec<Token>,
    expired: Vec<u32>,
    /// Getevents-phases so far.
    pub(super) rounds: u64,
    /// The last question about the counters that was answered.
    answered: u64,
    /// Where the last search for idle connections ended.
    pub(super) hand: u32,
    /// Nobody is accepted before this.
    pub(super) paused_until_ns: Option<u64>,
    /// Accepted, and served when there is time: the newest at the back.
    pub(super) held: VecDeque<Held>,
    /// An accept-phase of this round left some, newer than those held.
    pub(super) someone_waits: bool,
    /// How long getevents-phases took so far, nanoseconds.
    pub(super) waited_ns: u64,
    /// Connections closed that were served.
    pub(super) served: u64,
    /// Connections served in the last work-phase, and how long it took, nanoseconds.
    pub(super) work_items: u64,
    pub(super) work_ns: u64,
    drained_by_ns: Option<u64>,
    told_at_ns: Option<u64>,
}

impl<M: Mechanism> EventLoop<M> {
    pub(crate) fn new(
        service: Service,
        sockets: Vec<Socket>,
        control: Arc<Control>,
        open_max: usize,
    ) -> std::io::Result<Self> {
        let mut mechanism = M::open(&service.config.mechanism_settings)?;
        mechanism.add(control.bell.as_fd(), BELL, Interest::Accept)?;
        let listeners: Vec<_> = (FIRST_LISTENER..)
            .zip(sockets)
            .map(|(slot, socket)| {
                Listener::new(slot, socket, &service.config.setting, service.config.listenq)
            })
            .collect();
        for listener in &listeners {
            mechanism.add(listener.fd(), listener.token, Interest::Accept)?;
        }
        Ok(Self {
            mechanism,
            table: Table::new(FIRST_LISTENER + listeners.len() as u32, open_max),
            listeners,
            timers: Timers::new(0),
            service,
            control,
            ready: Vec::new(),
            expired: Vec::new(),
            rounds: 0,
            answered: 0,
            hand: 0,
            paused_until_ns: None,
            held: VecDeque::new(),
            someone_waits: false,
            waited_ns: 0,
            served: 0,
            work_items: 0,
            work_ns: 0,
            drained_by_ns: None,
            told_at_ns: None,
        })
    }

    /// Serves until told to stop, and tells what was counted.
    pub(crate) fn run(mut self) {
        while !self.is_over() {
            self.getevents_phase();
            self.accept_phase();
            self.work_phase();
            self.keep_time();
        }
        self.close_all();
        let report = self.report();
        self.control.answer(LAST_WORD, report);
    }

    fn getevents_phase(&mut self) {
        self.ready.clear();
        let timeout = self.sleep_max();
        let began_ns = self.service.read_clock_ns();
        let reported = self.mechanism.wait(timeout, &mut self.ready).unwrap_or_else(|error| {
            // Only want of memory can be the reason, and pass: the set is ours and sound.
            (self.service.config.tell)(&format!("waiting for events: {error}"));
            std::thread::sleep(Duration::from_millis(10));
            0
        });
        self.service.tick();
        self.waited_ns += self.service.now_ns() - began_ns;
        self.rounds += 1;
        self.service.counters.getevents_calls.one();
        self.service.counters.getevents_ready.add(reported as u64);
    }

    fn accept_phase(&mut self) {
        self.someone_waits = false;
        for index in 0..self.ready.len() {
            let token = self.ready[index];
            if token == BELL {
                self.answer_bell();
            } else if self.table.is_reserved(token) {
                self.accept((token.slot - FIRST_LISTENER) as usize);
            }
        }
        self.consult();
        if !self.held.is_empty() {
            self.serve_held();
        }
    }

    fn work_phase(&mut self) {
        let mut items = 0;
        let began_ns = if self.ready.len() > 1 { self.service.read_clock_ns() } else { 0 };
        for index in 0..self.ready.len() {
            let token = self.ready[index];
            if !self.table.is_reserved(token) && self.table.is_current(token) {
                self.work(token);
                items += 1;
            }
        }
        if items > 0 {
            self.service.counters.work_phases.one();
            self.service.counters.work_items.add(items);
            self.service.counters.work_items_max.raise(items);
        }
        self.work_items = items;
        // One alone keeps nobody waiting.
        self.work_ns = if items > 1 { self.service.read_clock_ns() - began_ns } else { 0 };
    }

    /// Lets one connection make progress. Whether that was its last.
    pub(super) fn serve(&mut self, slot: u32) -> bool {
        let Some(conn) = self.table.conn(slot) else { return false };
        let next = conn.proceed(&mut self.service);
        self.settle(slot, next);
        next == Next::Close
    }

    /// Serves a connection that is ready, and accepts others in its place where that is wanted.
    fn work(&mut self, token: Token) {
        if self.service.pressure {
            match self.judge_open(token) {
                Fate::Serve { .. } => {}
                Fate::Refuse => return self.refuse_open(token),
                Fate::Drop => {
                    self.service.counters.departed.one();
                    return self.close(token.slot);
                }
            }
        }
        if self.serve(token.slot) && self.service.config.strategy.accept_on_close {
            (0..self.listeners.len()).for_each(|index| {
                self.accept(index);
            });
        }
    }

    /// Makes the mechanism and the timers agree with what a connection waits for now.
    pub(super) fn settle(&mut self, slot: u32, next: Next) {
        let interest = match next {
            Next::Read => Interest::Read,
            Next::Write => Interest::Write,
            Next::Close => return self.close(slot),
        };
        let token = self.table.token(slot);
        let Some(entry) = self.table.entry(slot) else { return };
        let Some(conn) = &mut entry.conn else { return };
        let (read_blocked, write_blocked) = conn.blocked();
        let watched = match entry.registered {
            None => self.mechanism.add(conn.fd(), token, interest),
            Some(was) => {
                if read_blocked {
                    self.mechanism.blocked(token, Interest::Read);
                }
                if write_blocked {
                    self.mechanism.blocked(token, Interest::Write);
                }
                if was == interest {
                    Ok(())
                } else {
                    self.mechanism.change(conn.fd(), token, interest)
                }
            }
        };
        self.timers.arm(slot, conn.deadline_ns());
        match watched {
            Ok(()) => entry.registered = Some(interest),
            Err(error) => {
                self.tell(&format!("a connection cannot be watched: {error}"));
                self.close(slot);
            }
        }
    }

    pub(super) fn close(&mut self, slot: u32) {
        let Some((conn, token, registered)) = self.table.remove(slot) else { return };
        if registered.is_some() {
            // It was a member, so there is nothing to fail.
            let _ = self.mechanism.remove(conn.fd(), token);
        }
        conn.close(&mut self.service);
        self.served = self.served.wrapping_add(1);
        self.paused_until_ns = None;
        self.watch_listeners(true);
    }

    /// What is due by the clock: deadlines, the end of a pause, log lines.
    fn keep_time(&mut self) {
        let now_ns = self.service.now_ns();
        let table = &mut self.table;
        let deadline_of = |slot| Some(table.conn(slot)?.deadline_ns()).filter(|&at| at < u64::MAX);
        let mut expired = std::mem::take(&mut self.expired);
        self.timers.expire(now_ns, deadline_of, &mut expired);
        for slot in expired.drain(..) {
            let Some(conn) = self.table.conn(slot) else { continue };
            let next = conn.expire(&mut self.service);
            self.settle(slot, next);
        }
        self.expired = expired;
        if self.paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.paused_until_ns = None;
            self.watch_listeners(true);
        }
        if let Some(log) = &mut self.service.log {
            log.flush_if_old(now_ns);
        }
    }

    /// How long the next wait may sleep: until something is due.
    fn sleep_max(&self) -> Option<Duration> {
        if !self.held.is_empty() {
            return Some(Duration::ZERO);
        }
        let policy_ns = self.listeners.iter().filter_map(Listener::due_ns).min();
        let log_ns = self.service.log.as_ref().and_then(LogBuffer::due_ns);
        [self.timers.next_ns(), log_ns, policy_ns, self.paused_until_ns, self.drained_by_ns]
            .into_iter()
            .flatten()
            .min()
            .map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(self.service.now_ns())))
    }

    fn answer_bell(&mut self) {
        self.control.bell.hush();
        self.mechanism.blocked(BELL, Interest::Accept);
        let question = self.control.question();
        if question > self.answered {
            self.answered = question;
            let report = self.report();
            self.control.answer(question, report);
        }
        if self.control.phase() >= Phase::Drain && self.drained_by_ns.is_none() {
            self.begin_drain();
        }
    }

    /// Accepts those who already wait, closes the listeners, and lets what is open finish.
    fn begin_drain(&mut self) {
        self.service.draining = true;
        self.drained_by_ns = Some(self.service.now_ns() + self.service.config.timeouts.drain_ns);
        for index in 0..self.listeners.len() {
            self.accept_queue(index);
        }
        for listener in std::mem::take(&mut self.listeners) {
            let _ = self.mechanism.remove(listener.fd(), listener.token);
            listener.close();
        }
        for slot in self.table.find(0, usize::MAX, Conn::is_idle) {
            self.take_leave(slot);
        }
    }

    /// Accepts those who wait now: as many as the queue can hold, for more come meanwhile.
    fn accept_queue(&mut self, index: usize) {
        let queue_max = self.service.config.listenq.unsigned_abs().into();
        let mut accepted = 0;
        while accepted < queue_max && self.control.phase() < Phase::Stop {
            match self.accept(index).accepted {
                0 => return,
                more => accepted += more,
            }
        }
    }

    /// Closes an idle connection, but for one that has said nothing yet: it may be saying it now.
    fn take_leave(&mut self, slot: u32) {
        let soon_ns = self.service.now_ns() + SILENCE_NS;
        match self.table.conn(slot) {
            Some(conn) if !conn.was_heard() => {
                conn.hurry(soon_ns);
                self.timers.arm(slot, soon_ns);
            }
            _ => self.dismiss(slot),
        }
    }

    fn is_over(&self) -> bool {
        match self.control.phase() {
            Phase::Run => false,
            Phase::Drain => self
                .drained_by_ns
                .is_some_and(|by_ns| self.table.open() == 0 || by_ns <= self.service.now_ns()),
            Phase::Stop => true,
        }
    }

    fn close_all(&mut self) {
        let all = self.table.find(0, usize::MAX, |_| true);
        all.into_iter().for_each(|slot| self.close(slot));
        if let Some(log) = &mut self.service.log {
            log.flush();
        }
    }

    fn report(&mut self) -> LoopReport {
        if let Some(log) = &mut self.service.log {
            let (written, lost) = log.take_counts();
            self.service.counters.log_lines.add(written);
            self.service.counters.log_lines_lost.add(lost);
        }
        self.service.counters.set_mechanism(&values(self.mechanism.counts()));
        let rows = profile::table().unwrap_or_default();
        let calls = profile::NAMES
            .iter()
            .zip(rows)
            .map(|(name, row)| CallRow { name, count: row.count, time_ns: row.time_ns })
            .collect();
        LoopReport { counters: self.service.counters(), calls }
    }

    /// Says something to the operator, once a second at most.
    pub(super) fn tell(&mut self, what: &str) {
        let now_ns = self.service.now_ns();
        if self.told_at_ns.is_none_or(|at_ns| at_ns + SECOND_NS <= now_ns) {
            self.told_at_ns = Some(now_ns);
            (self.service.config.tell)(what);
        }
    }
}
