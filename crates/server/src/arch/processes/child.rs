//! A child: accepts as many connections as its policy allows, serves them to their end one after
//! the other, and accepts again. It runs the script of a pool's thread with a group of its own: no
//! lock, and a store, cache and policies shared with no sibling. Between two waits it reads its
//! keeper's orders.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use weir_content::Store;
use weir_dispatch::readiness::Token;
use weir_sys::fork;
use weir_sys::poll::{POLLIN, PollFd};

use super::porch::Porch;
use super::wire::{BYTES_MAX, Order, Word};
use crate::arch::Housekeeping;
use crate::arch::accepting::Accepting;
use crate::arch::floor::Floor;
use crate::arch::listener::Socket;
use crate::arch::threads::group::Group;
use crate::arch::threads::wait::{News, Rest, Wait, sleep};
use crate::config::{Config, Error};
use crate::control::{Answer, Control};
use crate::log::LogWriter;
use crate::service::Service;

/// A process that serves connections.
struct Child {
    group: Group,
    porch: Porch,
    line: OwnedFd,
    control: Arc<Control>,
    answers: Receiver<Answer>,
    order: Order,
    log: Option<LogWriter>,
}

/// Serves until the keeper orders a stop.
///
/// # Errors
/// A message: a required resource is unavailable.
pub(super) fn serve(config: Arc<Config>, sockets: Vec<Socket>, line: OwnedFd) -> Result<(), Error> {
    let mut child = Child::new(config, sockets, line)?;
    child.run();
    if let Some(log) = child.log.take() {
        // The buffer holds the writer's other end.
        drop(child);
        log.stop();
    }
    Ok(())
}

impl Child {
    fn new(config: Arc<Config>, sockets: Vec<Socket>, line: OwnedFd) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error(format!("a child cannot start: {error}"));
        let log = match config.access_log.clone() {
            Some((target, format)) => Some(LogWriter::start(target, format, config.tell)?),
            None => None,
        };
        let open_max = super::open_max(&config);
        let store = Store::open(&config.root, config.content.clone()).map_err(failed)?;
        let service = Service::new(config, store, log.as_ref().map(LogWriter::buffer));
        let (reports, answers) = channel();
        let control = Arc::new(Control::new(0, reports).map_err(failed)?);
        let floor = Floor::new(service, sockets, Arc::clone(&control), open_max);
        let group = Group::new(floor, true, None);
        let porch = Porch::new(&group, line.as_fd()).map_err(failed)?;
        let order = Order::FIRST;
        Ok(Self { group, porch, line, control, answers, order, log })
    }

    fn run(&mut self) {
        while !self.group.floor.is_over() {
            self.accept_some();
            while let Some((token, news)) = self.group.begun.pop_front() {
                self.stay(token, news);
            }
        }
        self.group.end();
        self.answer();
    }

    /// Runs one round at the listeners, and handles everything else that is due.
    fn accept_some(&mut self) {
        let timeout = self.group.floor.sleep_max();
        self.group.depart();
        let called = self.porch.wait(&self.group, self.line.as_fd(), timeout);
        self.group.arrive();
        self.group.accept_phase(&self.porch.knocks);
        self.keep_house(called);
    }

    /// Serves a connection to its end.
    fn stay(&mut self, token: Token, mut news: News) {
        while !self.group.floor.is_over() {
            match self.group.take_turn(token, news) {
                Rest::Wait(wait) => news = self.wait(wait),
                Rest::Yield => {
                    self.pause();
                    news = News::Resumed;
                }
                Rest::Fetch(fetch) => {
                    fetch.run();
                    news = News::Fetched;
                }
                Rest::Gone => return,
            }
        }
    }

    /// Waits for a connection's socket, and handles orders and deadlines meanwhile.
    fn wait(&mut self, wait: Wait) -> News {
        let line = PollFd { fd: self.line.as_raw_fd(), events: POLLIN, revents: 0 };
        let mut fds = [wait.entry(), line];
        let due = [wait.timeout(), self.group.floor.due_in()];
        self.group.depart();
        sleep(&mut fds, due.into_iter().flatten().min());
        self.group.arrive();
        self.keep_house(fds[1].revents != 0);
        if fds[0].revents != 0 { News::Ready } else { News::Late }
    }

    /// Handles what is due between two turns of a connection that yielded.
    fn pause(&mut self) {
        let mut line = [PollFd { fd: self.line.as_raw_fd(), events: POLLIN, revents: 0 }];
        self.group.depart();
        sleep(&mut line, Some(Duration::ZERO));
        self.group.arrive();
        self.keep_house(line[0].revents != 0);
    }

    fn keep_house(&mut self, called: bool) {
        if called {
            self.hear();
            self.group.answer_bell();
            self.answer();
        }
        self.group.consult();
        self.group.keep_time();
    }

    /// Reads the keeper's orders. Exits the process if the keeper has gone.
    fn hear(&mut self) {
        let mut message = [0; BYTES_MAX];
        loop {
            match fork::receive(self.line.as_fd(), &mut message) {
                Ok(None) => return,
                Ok(Some(0)) | Err(_) => std::process::exit(1),
                Ok(Some(bytes)) => {
                    if let Some(order) = Order::from_bytes(&message[..bytes]) {
                        self.obey(order);
                    }
                }
            }
        }
    }

    fn obey(&mut self, order: Order) {
        self.control.set_phase(order.phase);
        if order.question > self.order.question {
            self.control.ask_report(order.question);
        }
        if order.reopens > self.order.reopens && !self.log.as_ref().is_none_or(LogWriter::reopen) {
            self.group.floor.tell("the access log is stuck and was not reopened");
        }
        self.order = order;
    }

    fn answer(&self) {
        for Answer { question, report, .. } in self.answers.try_iter() {
            let told = Word::Told(question, Box::new(report)).to_bytes();
            // The keeper always listens; one that has gone takes this process with it.
            let _ = fork::send(self.line.as_fd(), &told, true);
        }
    }
}
