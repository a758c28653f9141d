//! SPED: one thread, three phases, repeated (pariag-accept fig. 3.1, brecht-select fig. 2).
//!
//! A connection accepted in one iteration is served in the next, as in the papers, unless it is
//! read eagerly. The mechanism reports which connections are ready, the policy sets the number of
//! accepts, and each connection says what it waits for.

use std::io;

use weir_dispatch::readiness::{Mechanism, Token};

use super::readiness_driver::{Driven, ReadinessDriver, TokenOwner, owner};
use crate::context::close_reason::CloseReason;
use crate::http::connection::Action;
use crate::http::socket_connection::SocketConnection;
use crate::stat_page;
use crate::worker::core::{LoopCore, Work};
use crate::worker::listener::Listener;
use crate::worker::phase_times::LoopPhase;
use crate::worker::{Model, RunWorker, Worker, WorkerParts};

/// One event loop over a readiness mechanism.
pub(crate) struct EventLoop<M> {
    driver: ReadinessDriver<M>,
}

impl<M: Mechanism> Model for EventLoop<M> {
    type Connection = SocketConnection;

    fn begin(worker: &mut Worker<Self>, slot: u32, at_once: bool) {
        if at_once {
            Self::serve(worker, slot);
        } else {
            worker.settle(slot, Action::Read);
        }
    }

    fn serve(worker: &mut Worker<Self>, slot: u32) -> bool {
        worker.act(slot, SocketConnection::proceed)
    }

    fn refuse_with_503(worker: &mut Worker<Self>, slot: u32) {
        worker.act(slot, SocketConnection::refuse_with_503);
    }

    fn expire(worker: &mut Worker<Self>, slot: u32) {
        worker.act(slot, SocketConnection::expire);
    }

    fn close(worker: &mut Worker<Self>, slot: u32, reason: CloseReason) {
        worker.forget_and_close(slot, reason);
    }

    fn listener_drained(worker: &mut Worker<Self>, index: usize) {
        worker.model.driver.listener_drained(&worker.core, index);
    }

    fn watch_listener(worker: &mut Worker<Self>, index: usize, wanted: bool) -> io::Result<()> {
        worker.model.driver.watch_listener(&worker.core, index, wanted)
    }

    fn close_listener(worker: &mut Worker<Self>, listener: Listener) {
        worker.model.driver.close_listener(listener);
    }

    fn count(worker: &mut Worker<Self>) {
        worker.model.driver.count(&mut worker.core);
    }
}

impl<M: Mechanism> Driven for EventLoop<M> {
    type Mechanism = M;

    fn driver(&mut self) -> &mut ReadinessDriver<M> {
        &mut self.driver
    }
}

impl<M: Mechanism> RunWorker for Worker<EventLoop<M>> {
    fn start(parts: WorkerParts) -> io::Result<Self> {
        let core = LoopCore::new(parts);
        let driver = ReadinessDriver::open(&core)?;
        Ok(Self { core, model: EventLoop { driver } })
    }

    fn run(mut self) {
        while !self.core.is_over() {
            self.publish_before_wait();
            self.model.driver.getevents_phase(&mut self.core);
            self.core.accepts_all = self.model.driver.accepts_all();
            self.accept_phase();
            self.work_phase();
            self.handle_timers();
            self.poll_upstreams();
        }
        self.end();
    }
}

impl<M: Mechanism> Worker<EventLoop<M>> {
    fn accept_phase(&mut self) {
        self.core.enter_phase(LoopPhase::Accept);
        self.core.accepts_pending = false;
        for index in 0..self.model.driver.ready.len() {
            match owner(&self.core.table, self.model.driver.ready[index]) {
                TokenOwner::Waker => self.handle_waker(),
                TokenOwner::Listener(index) => {
                    self.accept(index);
                }
                TokenOwner::Connection | TokenOwner::Upstream(_) => {}
            }
        }
        self.end_accept_phase();
    }

    /// Answers the waker, and takes the results of helpers, which use it too.
    fn handle_waker(&mut self) {
        self.handle_wakeup();
        self.model.driver.waker_cleared();
        self.take_upstream_mail();
        let mut ready = std::mem::take(&mut self.model.driver.ready);
        self.model.driver.take_fetched(&mut ready);
        self.model.driver.ready = ready;
    }

    fn work_phase(&mut self) {
        self.core.enter_phase(LoopPhase::Work);
        let count = self.model.driver.ready.len() + self.model.driver.yielded();
        let mut work = self.core.begin_work(count);
        work.items += self.resume_yielded();
        let mut index = 0;
        // More may be ready when the work was cut.
        while let Some(token) = self.model.driver.ready.get(index).copied() {
            let (token, by_upstream) = self.client_of(token);
            if self.model.driver.may_be_served(&mut self.core, token) {
                if self.core.is_long(&mut work) {
                    work = self.cut_work(work, index);
                    continue;
                }
                if by_upstream {
                    self.core.context.by_upstream = true;
                    self.serve_and_replace(token.slot);
                } else {
                    self.work(token);
                }
                work.items += 1;
            }
            index += 1;
        }
        work.items += self.serve_granted();
        work.items += self.serve_landed();
        self.core.note_work(work);
    }

    /// Serves the requests whose wait for a place at an upstream is over. Returns their number.
    fn serve_granted(&mut self) -> u64 {
        let mut items = 0;
        while let Some(token) = self.next_granted() {
            self.core.context.by_upstream = true;
            self.serve_and_replace(token.slot);
            items += 1;
        }
        items
    }

    /// Serves the requests whose wait for the reply to another is over. Returns their number.
    fn serve_landed(&mut self) -> u64 {
        let mut items = 0;
        while let Some(token) = self.next_landed() {
            self.serve_and_replace(token.slot);
            items += 1;
        }
        items
    }

    /// Runs the other phases of an iteration in the middle of a long work-phase, before the ready
    /// connection at `index`. The mechanism is not polled, since enough connections are ready.
    fn cut_work(&mut self, work: Work, index: usize) -> Work {
        let left = self.model.driver.ready.len() - index;
        self.core.cut_work(work, left);
        self.model.driver.note_waiting_handshakes(&mut self.core);
        self.core.enter_phase(LoopPhase::Accept);
        self.handle_waker();
        for index in 0..self.core.listeners.len() {
            if self.core.listeners.get(index).is_some_and(|listener| listener.watched) {
                self.accept(index);
            }
        }
        self.end_accept_phase();
        self.core.enter_phase(LoopPhase::Work);
        self.handle_timers();
        self.core.begin_work(left)
    }

    /// Resumes yielded connections, longest waiting first, until this iteration's write budget is
    /// spent. Returns the number resumed.
    fn resume_yielded(&mut self) -> u64 {
        let mut items = 0;
        for _ in 0..self.model.driver.yielded() {
            let Some(token) = self.model.driver.resume_next(&mut self.core) else { break };
            if self.admit_resumed(token) {
                self.serve_and_replace(token.slot);
            }
            items += 1;
        }
        items
    }

    /// Returns whether a connection that has yielded is to be served; otherwise refuses or closes
    /// it. One whose TLS handshake is to begin is judged again: it has waited since it was ready,
    /// and most of its work is to come.
    fn admit_resumed(&mut self, token: Token) -> bool {
        let is_new = self.core.table.conn(token.slot).is_some_and(|conn| conn.awaits_handshake());
        !is_new || self.admit_request(token)
    }

    /// Serves a ready connection, and accepts others in its place if it closed and that is
    /// configured.
    fn work(&mut self, token: Token) {
        if self.admit_request(token) {
            self.serve_and_replace(token.slot);
        }
    }

    fn serve_and_replace(&mut self, slot: u32) {
        if EventLoop::serve(self, slot) {
            self.accept_after_close();
        }
        self.publish_after(stat_page::SERVED);
    }
}
