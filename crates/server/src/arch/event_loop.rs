//! SPED: one thread, three phases, repeated (pariag-accept fig. 3.1, brecht-select fig. 2).
//!
//! A connection accepted in one round is served in the next, as the papers have it, unless it is
//! read eagerly. Everything the loop does not decide itself it asks: the mechanism who is ready,
//! the policy how many to accept, the connection what it waits for.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use weir_dispatch::readiness::settings::Knob;
use weir_dispatch::readiness::{Counts, Interest, Mechanism, Token};

use super::accepting::Accepting;
use super::floor::{BELL, FIRST_LISTENER, Floor};
use super::listener::{Listener, Socket};
use super::{Architecture, Housekeeping, Start, Tenant};
use crate::control::Control;
use crate::helpers::Helpers;
use crate::link::{Link, Next};
use crate::service::Service;

/// How many threads wait for disks in the loop's place, when nothing is said, and with AMPED.
pub(crate) const HELPERS: Knob = Knob {
    name: "helpers",
    help: "threads that bring files from a disk, for a loop; 0: the loop waits for the disk itself",
    default: 0,
    min: 0,
    max: 256,
};
pub(crate) const AMPED_HELPERS: Knob = Knob { default: 8, min: 1, ..HELPERS };

const BELL_TOKEN: Token = Token { slot: BELL, generation: 0 };

/// What a mechanism counted, in the order of [`weir_stats::Counters::set_mechanism`].
fn values(counts: Counts) -> [u64; 8] {
    let Counts { notices, overflows, swept, stale, coalesced, checked, rearmed, batched } = counts;
    [notices, overflows, swept, stale, coalesced, checked, rearmed, batched]
}

pub(crate) struct EventLoop<M> {
    pub(super) floor: Floor<Link>,
    mechanism: M,
    pub(super) ready: Vec<Token>,
    expired: Vec<u32>,
    /// Threads that wait for disks, when the loop does not.
    helpers: Option<Helpers>,
    /// Whom helpers have brought something.
    fetched: Vec<u64>,
}

impl<M: Mechanism> Architecture for EventLoop<M> {
    type Tenant = Link;

    fn floor(&mut self) -> &mut Floor<Link> {
        &mut self.floor
    }

    fn begin(&mut self, slot: u32, at_once: bool) {
        if at_once {
            self.serve(slot);
        } else {
            self.settle(slot, Next::Read);
        }
    }

    fn serve(&mut self, slot: u32) -> bool {
        let Some(link) = self.floor.table.conn(slot) else { return false };
        let next = link.proceed(&mut self.floor.service);
        self.settle(slot, next);
        next == Next::Close
    }

    fn turn_away(&mut self, slot: u32) {
        let Some(link) = self.floor.table.conn(slot) else { return };
        let next = link.turn_away(&mut self.floor.service);
        self.settle(slot, next);
    }

    fn expire(&mut self, slot: u32) {
        let Some(link) = self.floor.table.conn(slot) else { return };
        let next = link.expire(&mut self.floor.service);
        self.settle(slot, next);
    }

    fn close(&mut self, slot: u32) {
        let Some((link, token)) = self.vacate(slot) else { return };
        if link.registered.is_some() {
            // It was a member, so there is nothing to fail.
            let _ = self.mechanism.remove(link.fd(), token);
        }
        link.close(&mut self.floor.service);
    }

    fn nobody_waits(&mut self, index: usize) {
        let token = self.floor.listeners[index].token;
        self.mechanism.blocked(token, Interest::Accept);
    }

    fn watch(&mut self, index: usize, wanted: bool) -> io::Result<()> {
        let interest = if wanted { Interest::Accept } else { Interest::Nothing };
        let listener = &self.floor.listeners[index];
        self.mechanism.change(listener.fd(), listener.token, interest)
    }

    fn leave(&mut self, listener: Listener) {
        let _ = self.mechanism.remove(listener.fd(), listener.token);
        listener.close();
    }

    fn count(&mut self) {
        let counts = values(self.mechanism.counts());
        let counters = &mut self.floor.service.counters;
        counters.set_mechanism(&counts);
        if let Some(helpers) = &self.helpers {
            let counts = helpers.counts();
            counters.set_helpers(&[counts.asked, counts.done, counts.waiting_max, counts.busy_ns]);
        }
    }
}

impl<M: Mechanism> Start for EventLoop<M> {
    fn start(
        service: Service,
        sockets: Vec<Socket>,
        control: Arc<Control>,
        open_max: usize,
    ) -> io::Result<Self> {
        let mut mechanism = M::open(&service.config.mechanism_settings)?;
        mechanism.add(control.bell.as_fd(), BELL_TOKEN, Interest::Accept)?;
        let floor = Floor::new(service, sockets, control, open_max);
        for listener in &floor.listeners {
            mechanism.add(listener.fd(), listener.token, Interest::Accept)?;
        }
        let helpers = start_helpers(&floor)?;
        let (ready, expired, fetched) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { floor, mechanism, ready, expired, helpers, fetched })
    }

    fn run(mut self) {
        while !self.floor.is_over() {
            self.getevents_phase();
            self.accept_phase();
            self.work_phase();
            self.keep_time();
        }
        self.end();
    }
}

impl<M: Mechanism> EventLoop<M> {
    pub(super) fn getevents_phase(&mut self) {
        self.ready.clear();
        let floor = &mut self.floor;
        let timeout = floor.sleep_max();
        let began_ns = floor.service.read_clock_ns();
        let reported = self.mechanism.wait(timeout, &mut self.ready).unwrap_or_else(|error| {
            // Only want of memory can be the reason, and pass: the set is ours and sound.
            (floor.service.config.tell)(&format!("waiting for events: {error}"));
            std::thread::sleep(Duration::from_millis(10));
            0
        });
        floor.service.tick();
        floor.waited_ns += floor.service.now_ns() - began_ns;
        floor.rounds += 1;
        floor.service.counters.getevents_calls.one();
        floor.service.counters.getevents_ready.add(reported as u64);
    }

    pub(super) fn accept_phase(&mut self) {
        self.floor.someone_waits = false;
        for index in 0..self.ready.len() {
            let token = self.ready[index];
            if token == BELL_TOKEN {
                self.answer_bell();
                self.mechanism.blocked(BELL_TOKEN, Interest::Accept);
                self.take_fetched();
            } else if self.floor.table.is_reserved(token) {
                self.accept((token.slot - FIRST_LISTENER) as usize);
            }
        }
        self.consult();
        if !self.floor.held.is_empty() {
            self.serve_held();
        }
    }

    fn work_phase(&mut self) {
        let mut items = 0;
        let began_ns = if self.ready.len() > 1 { self.floor.service.read_clock_ns() } else { 0 };
        for index in 0..self.ready.len() {
            let token = self.ready[index];
            if !self.floor.table.is_reserved(token) && self.floor.table.is_current(token) {
                self.work(token);
                items += 1;
            }
        }
        self.floor.note_work(items, began_ns);
    }

    /// Serves a connection that is ready, and accepts others in its place where that is wanted.
    fn work(&mut self, token: Token) {
        if !self.is_worth_serving(token) {
            return;
        }
        if self.serve(token.slot) && self.floor.service.config.strategy.accept_on_close {
            (0..self.floor.listeners.len()).for_each(|index| {
                self.accept(index);
            });
        }
    }

    /// Those whom helpers have brought something are ready too.
    fn take_fetched(&mut self) {
        if let Some(helpers) = &mut self.helpers {
            helpers.done(&mut self.fetched);
            self.ready.extend(self.fetched.drain(..).map(Token::unpack));
        }
    }

    /// Has a helper bring what a connection waits for.
    fn ask_helper(&mut self, slot: u32) {
        let token = self.floor.table.token(slot);
        if let (Some(helpers), Some(link)) = (&mut self.helpers, self.floor.table.conn(slot))
            && let Some(fetch) = link.fetch()
        {
            helpers.ask(token.pack(), fetch);
        }
    }

    /// Makes the mechanism and the timers agree with what a connection waits for now.
    pub(super) fn settle(&mut self, slot: u32, next: Next) {
        let interest = match next {
            Next::Read => Interest::Read,
            Next::Write => Interest::Write,
            Next::Fetch => Interest::Nothing,
            Next::Close => return self.close(slot),
        };
        if next == Next::Fetch {
            self.ask_helper(slot);
        }
        let token = self.floor.table.token(slot);
        let Some(link) = self.floor.table.conn(slot) else { return };
        let (read_blocked, write_blocked) = link.blocked();
        let watched = match link.registered {
            None if interest == Interest::Nothing => return,
            None => self.mechanism.add(link.fd(), token, interest),
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
                    self.mechanism.change(link.fd(), token, interest)
                }
            }
        };
        self.floor.timers.arm(slot, link.deadline_ns());
        match watched {
            Ok(()) => link.registered = Some(interest),
            Err(error) => {
                self.floor.tell(&format!("a connection cannot be watched: {error}"));
                self.close(slot);
            }
        }
    }

    fn keep_time(&mut self) {
        let mut expired = std::mem::take(&mut self.expired);
        Housekeeping::keep_time(self, &mut expired);
        self.expired = expired;
    }
}

/// The helpers that the architecture or an option asks for. They ring the loop's bell.
fn start_helpers(floor: &Floor<Link>) -> io::Result<Option<Helpers>> {
    let config = &floor.service.config;
    let count = config.arch.helpers(&config.arch_settings);
    let control = Arc::clone(&floor.control);
    let start = || Helpers::start(count, "weir-helper", move || control.bell.ring());
    (count > 0).then(start).transpose()
}
