//! A keeper: the master of one worker's children. It serves no connection: it forks the children,
//! passes on the main process's orders, sums their counters, and replaces a child that dies.
//!
//! It is a single-threaded process, so that it may fork at any time; the main process has a thread
//! per worker and one for signals, and may not. Each process dies with its parent
//! (PR_SET_PDEATHSIG), so that no child outlives the main process, however that ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_stats::LoopReport;
use weir_sys::fork::{self, ExitStatus};
use weir_sys::namespace;
use weir_sys::poll::{POLLIN, PollFd};
use weir_sys::signal::{SIGCHLD, SignalFd};

use super::child;
use super::wire::{self, BYTES_MAX, Order, Word};
use crate::arch::listener::Socket;
use crate::arch::threads::wait::sleep;
use crate::config::{Config, Error};
use crate::control::{LAST_WORD, Phase};
use crate::{log, run};

/// Age below which a child that dies is replaced only after a delay of the same length.
const YOUNG: Duration = Duration::from_secs(1);

/// Delay before an order that could not be sent is sent again.
const AGAIN: Duration = Duration::from_millis(100);

/// A child as known to its keeper.
struct Kept {
    id: u32,
    line: OwnedFd,
    born: Instant,
    /// The last order sent to it.
    sent: Order,
    /// Its last report, and the number of the request it answered.
    question: u64,
    report: LoopReport,
}

/// The master of a worker's children.
pub(super) struct Keeper {
    config: Arc<Config>,
    sockets: Vec<Socket>,
    /// The line to the main process.
    line: OwnedFd,
    signals: SignalFd,
    children: Vec<Kept>,
    /// Times at which the places of dead children are filled again.
    vacant: Vec<Instant>,
    order: Order,
    /// Number of the last report request answered.
    answered: u64,
    /// Total counters of children that have ended.
    past: LoopReport,
}

/// Runs a keeper's process until the server stops; returns its exit status.
pub(super) fn keep(index: usize, config: &Arc<Config>, sockets: Vec<Socket>, line: OwnedFd) -> i32 {
    let signals = match prepare(index, config) {
        Ok(signals) => signals,
        Err(Error(why)) => return fail(&line, why),
    };
    let mut keeper = Keeper::new(config, sockets, line, signals);
    if let Err(why) = keeper.make_all() {
        return fail(&keeper.line, why);
    }
    // A main process that has gone takes this one with it.
    let _ = fork::send(keeper.line.as_fd(), &Word::Ready.to_bytes(), true);
    keeper.run();
    0
}

fn fail(line: &OwnedFd, why: String) -> i32 {
    let _ = fork::send(line.as_fd(), &Word::Failed(why).to_bytes(), true);
    2
}

/// Checks that the children will have what they need, and pins the process to the processor on
/// which they will run.
fn prepare(index: usize, config: &Config) -> Result<SignalFd, Error> {
    run::pin(index, config)?;
    run::open_store(config)?;
    if let Some((target, _)) = &config.access_log {
        log::check(target)?;
    }
    SignalFd::block(&[SIGCHLD]).map_err(|error| Error(format!("cannot start: {error}")))
}

impl Keeper {
    fn new(config: &Arc<Config>, sockets: Vec<Socket>, line: OwnedFd, signals: SignalFd) -> Self {
        Self {
            config: Arc::clone(config),
            sockets,
            line,
            signals,
            children: Vec::new(),
            vacant: Vec::new(),
            order: Order::FIRST,
            answered: 0,
            past: LoopReport::default(),
        }
    }

    /// Forks the configured number of children, or as many as possible.
    fn make_all(&mut self) -> Result<(), String> {
        let wanted = super::children(&self.config);
        for _ in 0..wanted {
            if let Err(error) = self.make() {
                if self.children.is_empty() {
                    return Err(format!("cannot start a child process: {error}"));
                }
                let had = self.children.len();
                (self.config.tell)(&format!("{had} children, not {wanted}: {error}"));
                break;
            }
        }
        let most = self.children.len() as u64;
        self.past.counters.threads_max.raise(most);
        Ok(())
    }

    /// Forks a child. Does not return in the child.
    fn make(&mut self) -> io::Result<()> {
        let (here, there) = fork::channel()?;
        let keeper = std::process::id();
        match fork::fork()? {
            0 => {
                drop(here);
                let is_ours = namespace::die_with(keeper).unwrap_or(false);
                std::process::exit(if is_ours { self.become_child(there) } else { 1 })
            }
            id => {
                self.children.push(Kept {
                    id,
                    line: here,
                    born: Instant::now(),
                    sent: Order::FIRST,
                    question: 0,
                    report: LoopReport::default(),
                });
                Ok(())
            }
        }
    }

    /// Releases all that is the keeper's, in the child, and serves; returns the exit status.
    fn become_child(&mut self, line: OwnedFd) -> i32 {
        self.children.clear();
        let sockets = std::mem::take(&mut self.sockets);
        let (config, tell) = (Arc::clone(&self.config), self.config.tell);
        let serve = || child::serve(config, sockets, line);
        match catch_unwind(AssertUnwindSafe(serve)) {
            Ok(Ok(())) => 0,
            Ok(Err(Error(why))) => {
                tell(&why);
                2
            }
            // It has said so.
            Err(_) => 101,
        }
    }

    fn run(&mut self) {
        while !(self.order.phase > Phase::Run && self.children.is_empty()) {
            let ready = self.wait();
            if ready.main {
                self.hear_main();
            }
            self.hear_children();
            if ready.signal {
                self.bury();
            }
            self.fill();
            self.pass_on();
            self.answer();
        }
        self.tell(LAST_WORD);
    }

    fn wait(&self) -> Ready {
        let watch = |fd: i32| PollFd { fd, events: POLLIN, revents: 0 };
        let mut fds = vec![watch(self.line.as_raw_fd()), watch(self.signals.raw())];
        fds.extend(self.children.iter().map(|child| watch(child.line.as_raw_fd())));
        let now = Instant::now();
        let is_behind = self.children.iter().any(|child| child.sent != self.order);
        let next = self.vacant.iter().min().map(|at| at.saturating_duration_since(now));
        sleep(&mut fds, [next, is_behind.then_some(AGAIN)].into_iter().flatten().min());
        Ready { main: fds[0].revents != 0, signal: fds[1].revents != 0 }
    }

    /// Reads the main process's orders. Exits the process, and with it every child, if the main
    /// process has gone.
    fn hear_main(&mut self) {
        let mut message = [0; BYTES_MAX];
        loop {
            match fork::receive(self.line.as_fd(), &mut message) {
                Ok(None) => break,
                Ok(Some(0)) | Err(_) => std::process::exit(1),
                Ok(Some(bytes)) => {
                    self.order = Order::from_bytes(&message[..bytes]).unwrap_or(self.order);
                }
            }
        }
        if self.order.phase > Phase::Run {
            // The last copies but the children's: nobody is to wait where nobody accepts.
            self.sockets.clear();
            self.vacant.clear();
        }
    }

    fn hear_children(&mut self) {
        self.children.iter_mut().for_each(Kept::hear);
    }

    /// Handles the children that have ended.
    fn bury(&mut self) {
        let _ = self.signals.next();
        while let Some((id, end)) = fork::reap_child() {
            let Some(at) = self.children.iter().position(|child| child.id == id) else { continue };
            let mut child = self.children.swap_remove(at);
            child.hear();
            wire::add(&mut self.past, &child.report);
            if child.question != LAST_WORD {
                self.replace(&child, end);
            }
        }
    }

    /// Handles a child that ended without an order: fills its place again, unless the server stops.
    fn replace(&mut self, child: &Kept, end: ExitStatus) {
        self.past.counters.children_lost.one();
        let (now, id) = (Instant::now(), child.id);
        let stops = self.order.phase > Phase::Run;
        if !stops {
            let is_young = now.duration_since(child.born) < YOUNG;
            self.vacant.push(if is_young { now + YOUNG } else { now });
        }
        let then = if stops { "" } else { "; another takes its place" };
        let left = self.children.len();
        (self.config.tell)(&format!("child {id} has died ({end}), {left} left{then}"));
    }

    /// Fills the places that are due.
    fn fill(&mut self) {
        let now = Instant::now();
        let due = self.vacant.iter().filter(|&&at| at <= now).count();
        self.vacant.retain(|&at| at > now);
        for _ in 0..due {
            if let Err(error) = self.make() {
                (self.config.tell)(&format!("cannot start a child process: {error}"));
                self.vacant.push(now + YOUNG);
            }
        }
    }

    /// Sends the order to the children that do not have it. A full line is retried later.
    fn pass_on(&mut self) {
        let order = self.order;
        for child in self.children.iter_mut().filter(|child| child.sent != order) {
            if fork::send(child.line.as_fd(), &order.to_bytes(), false).is_ok() {
                child.sent = order;
            }
        }
    }

    /// Answers the main process once every child has answered.
    fn answer(&mut self) {
        let question = self.order.question;
        let have_all = self.children.iter().all(|child| child.question >= question);
        if question > self.answered && have_all {
            self.answered = question;
            self.tell(question);
        }
    }

    fn tell(&self, question: u64) {
        let mut sum = self.past.clone();
        self.children.iter().for_each(|child| wire::add(&mut sum, &child.report));
        let told = Word::Told(question, Box::new(sum)).to_bytes();
        // A main process that has gone takes this one with it.
        let _ = fork::send(self.line.as_fd(), &told, true);
    }
}

/// Readiness of the descriptors other than the children's.
struct Ready {
    main: bool,
    signal: bool,
}

impl Kept {
    /// Reads the child's messages. A closed line is handled when the child's exit is known.
    fn hear(&mut self) {
        let mut message = [0; BYTES_MAX];
        while let Ok(Some(bytes @ 1..)) = fork::receive(self.line.as_fd(), &mut message) {
            if let Some(Word::Told(question, report)) = Word::from_bytes(&message[..bytes]) {
                self.question = question;
                self.report = *report;
            }
        }
    }
}
