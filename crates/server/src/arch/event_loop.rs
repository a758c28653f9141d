//! SPED: one thread, three phases, repeated (pariag-accept fig. 3.1, brecht-select fig. 2).
//!
//! A connection accepted in one round is served in the next, as in the papers, unless it is read
//! eagerly. The mechanism reports which connections are ready, the policy sets the number of
//! accepts, and each connection says what it waits for.

use std::io;
use std::sync::Arc;

use weir_dispatch::readiness::{Mechanism, Token};

use super::accepting::Accepting;
use super::floor::{Floor, Work};
use super::listener::{Listener, Socket};
use super::watched::{Member, Watched};
use super::{Architecture, Housekeeping, Start, Tenant};
use crate::control::Control;
use crate::link::{Link, Next};
use crate::service::Service;

pub(crate) struct EventLoop<M> {
    pub(super) watched: Watched<M>,
}

impl<M: Mechanism> Architecture for EventLoop<M> {
    type Tenant = Link;

    fn floor(&mut self) -> &mut Floor<Link> {
        &mut self.watched.floor
    }

    fn begin(&mut self, slot: u32, at_once: bool) {
        if at_once {
            self.serve(slot);
        } else {
            self.settle(slot, Next::Read);
        }
    }

    fn serve(&mut self, slot: u32) -> bool {
        let next = self.watched.with(slot, Link::proceed);
        self.settle_if_open(slot, next);
        next == Some(Next::Close)
    }

    fn turn_away(&mut self, slot: u32) {
        let next = self.watched.with(slot, Link::turn_away);
        self.settle_if_open(slot, next);
    }

    fn expire(&mut self, slot: u32) {
        let next = self.watched.with(slot, Link::expire);
        self.settle_if_open(slot, next);
    }

    fn close(&mut self, slot: u32) {
        let Some((link, token)) = self.vacate(slot) else { return };
        self.watched.forget(&link, token);
        link.close(&mut self.watched.floor.service);
    }

    fn nobody_waits(&mut self, index: usize) {
        self.watched.nobody_waits(index);
    }

    fn watch(&mut self, index: usize, wanted: bool) -> io::Result<()> {
        self.watched.watch(index, wanted)
    }

    fn leave(&mut self, listener: Listener) {
        self.watched.leave(listener);
    }

    fn count(&mut self) {
        self.watched.count();
    }
}

impl<M: Mechanism> Start for EventLoop<M> {
    fn start(
        service: Service,
        sockets: Vec<Socket>,
        control: Arc<Control>,
        open_max: usize,
    ) -> io::Result<Self> {
        let watched = Watched::open(service, sockets, control, open_max)?;
        Ok(Self { watched })
    }

    fn run(mut self) {
        while !self.watched.floor.is_over() {
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
        self.watched.getevents_phase();
    }

    pub(super) fn accept_phase(&mut self) {
        self.watched.floor.someone_waits = false;
        for index in 0..self.watched.ready.len() {
            match self.watched.member(self.watched.ready[index]) {
                Member::Bell => self.heed_bell(),
                Member::Listener(index) => {
                    self.accept(index);
                }
                Member::Connection => {}
            }
        }
        self.end_accept_phase();
    }

    /// Answers the bell, and takes the results of helpers, which ring it too.
    fn heed_bell(&mut self) {
        self.answer_bell();
        self.watched.bell_is_quiet();
        let mut ready = std::mem::take(&mut self.watched.ready);
        self.watched.take_fetched(&mut ready);
        self.watched.ready = ready;
    }

    fn work_phase(&mut self) {
        let count = self.watched.ready.len() + self.watched.yielded();
        let mut work = self.watched.floor.begin_work(count);
        work.items += self.resume_yielded();
        let mut index = 0;
        // More may be ready when the work was cut.
        while let Some(token) = self.watched.ready.get(index).copied() {
            if self.watched.is_served_when_ready(token) {
                if self.watched.floor.is_long(&mut work) {
                    work = self.cut_work(work, self.watched.ready.len() - index);
                    continue;
                }
                self.work(token);
                work.items += 1;
            }
            index += 1;
        }
        self.watched.floor.note_work(work);
    }

    /// Runs the other phases of a round in the middle of a long work-phase. The mechanism is not
    /// polled, since enough connections are ready.
    fn cut_work(&mut self, work: Work, left: usize) -> Work {
        self.watched.floor.cut_work(work, left);
        self.heed_bell();
        for index in 0..self.watched.floor.listeners.len() {
            if self.watched.floor.listeners.get(index).is_some_and(|listener| listener.watched) {
                self.accept(index);
            }
        }
        self.end_accept_phase();
        self.keep_time();
        self.watched.floor.begin_work(left)
    }

    /// Resumes yielded connections, longest waiting first, until this round's turn is over. Returns
    /// the number resumed.
    fn resume_yielded(&mut self) -> u64 {
        let mut items = 0;
        for _ in 0..self.watched.yielded() {
            let Some(token) = self.watched.resume_next() else { break };
            self.serve_and_replace(token.slot);
            items += 1;
        }
        items
    }

    /// Serves a ready connection, and accepts others in its place if it closed and that is
    /// configured.
    fn work(&mut self, token: Token) {
        if self.is_worth_serving(token) {
            self.serve_and_replace(token.slot);
        }
    }

    fn serve_and_replace(&mut self, slot: u32) {
        if self.serve(slot) {
            self.accept_after_close();
        }
    }

    /// Updates the mechanism and the timers for what a connection now waits for; closes it if it
    /// has ended or cannot be watched.
    pub(super) fn settle(&mut self, slot: u32, next: Next) {
        if !self.watched.settle(slot, next) {
            self.close(slot);
        }
    }

    fn settle_if_open(&mut self, slot: u32, next: Option<Next>) {
        if let Some(next) = next {
            self.settle(slot, next);
        }
    }
}
