//! The master of one worker's children. It serves no connection: it forks the children, passes on
//! the main process's commands, sums their counters, and replaces a child that dies.
//!
//! It is a single-threaded process, so that it may fork at any time; the main process has a thread
//! per worker and one for signals, and may not. Each process dies with its parent
//! (PR_SET_PDEATHSIG), so that no child outlives the main process, however that ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_stats::live::open_connections;
use weir_stats::{Counters, LoopReport};
use weir_sys::fork::{self, EndedChild, ExitStatus};
use weir_sys::namespace;
use weir_sys::poll::{POLLIN, PollFd};
use weir_sys::process::Usage;
use weir_sys::signal::{SIGCHLD, SignalFd};

use super::messages::{self, BYTES_MAX, Command, Message};
use super::shared::Shared;
use super::{child, pool_size};
use crate::config::{AccessLog, Config, Error};
use crate::context::log::errors::{self, ErrorWriter};
use crate::context::log::{self, Sink};
use crate::context::stores::Stores;
use crate::control::{FINAL_REPORT, Phase};
use crate::http::bench;
use crate::models::thread_per_connection::park::{NO_FD, poll};
use crate::sandbox::{Confinement, Task};
use crate::stat_page::{Publisher, StatPage};
use crate::worker::listener::Socket;
use crate::worker::setup;

/// Age below which a child that dies is replaced only after a delay of the same length.
const YOUNG_AGE: Duration = Duration::from_secs(1);

/// Exit status of a process that cannot serve.
const FAILED: i32 = 2;

/// Delay before a command that could not be sent is sent again.
const RESEND_DELAY: Duration = Duration::from_millis(100);

/// A child as known to its master.
struct ChildHandle {
    id: u32,
    /// Index among its siblings, by which it has a slot of the page of statistics.
    index: usize,
    channel: OwnedFd,
    /// True once it has closed the channel: nothing comes from there but its end, by a signal.
    has_hung_up: bool,
    started: Instant,
    /// The last command sent to it.
    sent: Command,
    /// Its last report, and the number of the request it answered.
    report_request: u64,
    report: LoopReport,
}

/// The master of a worker's children.
pub(super) struct Master {
    config: Arc<Config>,
    /// Index of the worker.
    index: usize,
    shared: Shared,
    /// Publisher of the sum of ended children.
    publisher: Publisher,
    sockets: Vec<Socket>,
    /// The channel to the main process; `None` in a child, which has nothing to say there.
    channel: Option<OwnedFd>,
    signals: SignalFd,
    confinement: Confinement,
    children: Vec<ChildHandle>,
    /// Times at which dead children are replaced.
    refill_at: Vec<Instant>,
    command: Command,
    /// Number of the last report request answered.
    answered: u64,
    /// Sum of the reports of children that have ended.
    ended_report: LoopReport,
}

/// Runs a master's process until the server stops; returns its exit status.
pub(super) fn run(
    index: usize,
    config: &Arc<Config>,
    sockets: Vec<Socket>,
    channel: OwnedFd,
    shared: Shared,
) -> i32 {
    let (signals, confinement, _held_log) = match prepare(index, config) {
        Ok(prepared) => prepared,
        Err(Error(why)) => return fail(&channel, why),
    };
    let mut master = Master::new(index, config, sockets, channel, signals, confinement, shared);
    if let Err(why) = master.spawn_all() {
        master.tell(&Message::Failed(why));
        return FAILED;
    }
    master.tell(&Message::Ready);
    // The main process has checked that it can be opened.
    let _ = errors::write_at_once(&config.errors);
    master.run();
    0
}

fn fail(channel: &OwnedFd, why: String) -> i32 {
    let _ = fork::send(channel.as_fd(), &Message::Failed(why).to_bytes(), true);
    FAILED
}

/// Checks that the children will have what they need, and pins the process to the processor on
/// which they will run. Confines it, and so them. Returns what is to be held while they run.
fn prepare(index: usize, config: &Config) -> Result<(SignalFd, Confinement, Option<Sink>), Error> {
    setup::pin(index, config)?;
    let confinement = Confinement::prepare(config)?;
    confinement.enter(Task::Serve)?;
    Stores::open(config, None)?;
    let access = config.access_log.as_ref().map(|AccessLog { target, .. }| target);
    let held_log = access.map(log::open_for_others).transpose()?.flatten();
    let signals = SignalFd::block(&[SIGCHLD]);
    let signals = signals.map_err(|error| Error(format!("cannot start: {error}")))?;
    Ok((signals, confinement, held_log))
}

impl Master {
    fn new(
        index: usize,
        config: &Arc<Config>,
        sockets: Vec<Socket>,
        channel: OwnedFd,
        signals: SignalFd,
        confinement: Confinement,
        shared: Shared,
    ) -> Self {
        // Of the sum of ended children.
        let mut publisher = publisher(shared.page.as_ref(), |page| page.of_worker(index));
        publisher.begin_without_thread();
        Self {
            config: Arc::clone(config),
            index,
            shared,
            publisher,
            sockets,
            channel: Some(channel),
            signals,
            confinement,
            children: Vec::new(),
            refill_at: Vec::new(),
            command: Command::FIRST,
            answered: 0,
            ended_report: LoopReport::default(),
        }
    }

    /// Forks the configured number of children, or as many as possible.
    fn spawn_all(&mut self) -> Result<(), String> {
        let wanted = pool_size::children(&self.config);
        for _ in 0..wanted {
            if let Err(error) = self.spawn() {
                if self.children.is_empty() {
                    return Err(format!("cannot start a child process: {error}"));
                }
                let started = self.children.len();
                self.config.errors.warn(&format!("{started} children, not {wanted}: {error}"));
                break;
            }
        }
        self.ended_report.counters.threads_max.raise(self.children.len() as u64);
        self.publisher.publish_sum(&self.ended_report);
        Ok(())
    }

    /// Forks a child. Does not return in the child.
    fn spawn(&mut self) -> io::Result<()> {
        let (here, there) = fork::channel()?;
        let index = self.free_index();
        if let Some(tls) = &self.config.tls {
            // Of the child's, which gets this process's as they are. The main process says what is
            // wrong with them.
            let _ = tls.reload_if_changed();
        }
        let master = std::process::id();
        match fork::fork()? {
            0 => {
                drop(here);
                let is_ours = namespace::die_with(master).unwrap_or(false);
                std::process::exit(if is_ours { self.become_child(there, index) } else { 1 })
            }
            id => {
                self.children.push(ChildHandle {
                    id,
                    index,
                    channel: here,
                    has_hung_up: false,
                    started: Instant::now(),
                    sent: Command::FIRST,
                    report_request: 0,
                    report: LoopReport::default(),
                });
                Ok(())
            }
        }
    }

    /// Returns the lowest index that no child has.
    fn free_index(&self) -> usize {
        let is_free = |index: &usize| self.children.iter().all(|child| child.index != *index);
        (0..=self.children.len()).find(is_free).unwrap_or(self.children.len())
    }

    fn publisher_of(&self, child: usize) -> Publisher {
        publisher(self.shared.page.as_ref(), |page| page.of_child(self.index, child))
    }

    /// Releases the master's state in the child, and serves; returns the exit status.
    fn become_child(&mut self, channel: OwnedFd, index: usize) -> i32 {
        // What it sent there would be taken for its master's.
        drop(self.channel.take());
        let clients = self.shared.join(self.index, index);
        bench::number_worker((self.index as u64) << 32 | index as u64);
        self.children.clear();
        let sockets = std::mem::take(&mut self.sockets);
        let config = Arc::clone(&self.config);
        let sealed = self.confinement.seal();
        // Confined as all of this process is. Without a thread, messages are written at once.
        let errors = ErrorWriter::start(&config.errors, &Confinement::default());
        let (publisher, latch) = (self.publisher_of(index), &self.shared.latch);
        let serve = || {
            sealed?;
            child::serve(config, sockets, channel, publisher, clients, latch)
        };
        let status = match catch_unwind(AssertUnwindSafe(serve)) {
            Ok(Ok(())) => 0,
            Ok(Err(Error(why))) => {
                self.config.errors.error(&why);
                FAILED
            }
            // The panic was reported when it happened.
            Err(_) => 101,
        };
        if let Ok(errors) = errors {
            errors.stop();
        }
        status
    }

    fn run(&mut self) {
        while !(self.command.phase > Phase::Run && self.children.is_empty()) {
            let ready = self.wait();
            if ready.main {
                self.receive_commands();
            }
            self.receive_reports();
            if ready.signal {
                self.reap();
            }
            self.refill();
            self.forward_command();
            self.answer();
        }
        self.send_report(FINAL_REPORT);
    }

    fn wait(&self) -> Ready {
        let watch = |fd: i32| PollFd { fd, events: POLLIN, revents: 0 };
        let main = self.channel.as_ref().map_or(NO_FD, AsRawFd::as_raw_fd);
        let mut fds = vec![watch(main), watch(self.signals.raw())];
        fds.extend(self.children.iter().map(|child| watch(child.watched_fd())));
        let now = Instant::now();
        let is_late = self.children.iter().any(|child| child.sent != self.command);
        let next = self.refill_at.iter().min().map(|at| at.saturating_duration_since(now));
        // Children that take others' places get the keys that this process has.
        let keys = self.config.tls.as_ref().map(|tls| tls.forget_passed_keys());
        poll(&mut fds, [next, is_late.then_some(RESEND_DELAY), keys].into_iter().flatten().min());
        Ready { main: fds[0].revents != 0, signal: fds[1].revents != 0 }
    }

    /// Reads the main process's commands. Exits the process, and with it every child, if the main
    /// process has gone.
    fn receive_commands(&mut self) {
        let Some(channel) = &self.channel else { return };
        let mut message = [0; BYTES_MAX];
        loop {
            match fork::receive(channel.as_fd(), &mut message) {
                Ok(None) => break,
                Ok(Some(0)) | Err(_) => std::process::exit(1),
                Ok(Some(bytes)) => {
                    let last = self.command;
                    self.command = Command::from_bytes(&message[..bytes]).unwrap_or(last);
                    if self.command.reopens > last.reopens {
                        // If it cannot be opened the main process says so, and the old one serves.
                        let _ = errors::write_at_once(&self.config.errors);
                    }
                }
            }
        }
        if self.command.phase > Phase::Run {
            // The last copies but the children's: connects must fail once nothing accepts.
            self.sockets.clear();
            self.refill_at.clear();
        }
    }

    /// Reads the children's messages. Passes on, once, that one of them has found memory short.
    fn receive_reports(&mut self) {
        // Each is read, whatever the one before it says.
        let shortages = self.children.iter_mut().filter_map(|child| child.receive().then_some(()));
        if shortages.count() > 0 {
            self.tell(&Message::MemoryShort);
        }
    }

    /// Handles the children that have ended.
    fn reap(&mut self) {
        let _ = self.signals.next();
        while let Some(EndedChild { id, end, usage }) = fork::reap_child() {
            let Some(at) = self.children.iter().position(|child| child.id == id) else { continue };
            let mut child = self.children.swap_remove(at);
            child.receive();
            self.shared.leave(self.index, child.index);
            let publisher = self.publisher_of(child.index);
            // A child that was not told to end may say that it does: it is missing all the same.
            let is_done = self.command.phase > Phase::Run && child.report_request == FINAL_REPORT;
            if !is_done {
                // It was killed, or has ended of itself, and has counted since its last report.
                child.report = publisher.last_published(&child.report);
                count_usage(&mut child.report.counters, usage);
                count_lost(&mut child.report.counters);
                self.replace(&child, end);
            }
            messages::add(&mut self.ended_report, &child.report);
            self.publisher.fold(&self.ended_report, &publisher);
        }
    }

    /// Handles a child that ended without a command: it is replaced, unless the server stops.
    fn replace(&mut self, child: &ChildHandle, end: ExitStatus) {
        self.ended_report.counters.children_lost.one();
        let (now, id) = (Instant::now(), child.id);
        let is_stopping = self.command.phase > Phase::Run;
        if !is_stopping {
            let is_young = now.duration_since(child.started) < YOUNG_AGE;
            self.refill_at.push(if is_young { now + YOUNG_AGE } else { now });
        }
        let then = if is_stopping { "" } else { "; another takes its place" };
        let left = self.children.len();
        self.config.errors.error(&format!("child {id} has died ({end}), {left} left{then}"));
    }

    /// Starts the replacements that are due.
    fn refill(&mut self) {
        let now = Instant::now();
        let due = self.refill_at.iter().filter(|&&at| at <= now).count();
        self.refill_at.retain(|&at| at > now);
        for _ in 0..due {
            if let Err(error) = self.spawn() {
                self.config.errors.error(&format!("cannot start a child process: {error}"));
                self.refill_at.push(now + YOUNG_AGE);
            }
        }
    }

    /// Sends the command to the children that do not have it. A full channel is retried later.
    fn forward_command(&mut self) {
        let command = self.command;
        for child in self.children.iter_mut().filter(|child| child.sent != command) {
            if fork::send(child.channel.as_fd(), &command.to_bytes(), false).is_ok() {
                child.sent = command;
            }
        }
    }

    /// Answers the main process once every child has answered.
    fn answer(&mut self) {
        let report_request = self.command.report_request;
        let have_all = self.children.iter().all(|child| child.report_request >= report_request);
        if report_request > self.answered && have_all {
            self.answered = report_request;
            self.send_report(report_request);
        }
    }

    fn send_report(&self, report_request: u64) {
        let mut sum = self.ended_report.clone();
        self.children.iter().for_each(|child| messages::add(&mut sum, &child.report));
        self.tell(&Message::Report(report_request, Box::new(sum)));
    }

    /// Sends a message to the main process. If that has died, this one dies with it.
    fn tell(&self, message: &Message) {
        if let Some(channel) = &self.channel {
            let _ = fork::send(channel.as_fd(), &message.to_bytes(), true);
        }
    }
}

/// Counts what a killed child has used, as the kernel tells it: with the threads that write its log
/// and compress its files, which are not told apart any more.
fn count_usage(counters: &mut Counters, usage: Usage) {
    counters.set_cpu(usage.user_ns, usage.system_ns);
    counters.set_switches(usage.switches_voluntary, usage.switches_involuntary);
}

/// Counts the connections that a killed child had open as closed: the kernel has closed them.
fn count_lost(counters: &mut Counters) {
    let lost = open_connections(counters);
    counters.closed.add(lost);
    counters.end_failed.add(lost);
}

/// Returns the publisher for a slot of the page, or one that publishes nothing.
fn publisher(page: Option<&StatPage>, of: impl FnOnce(&StatPage) -> Publisher) -> Publisher {
    page.map_or_else(Publisher::default, of)
}

/// Readiness of the descriptors other than the children's.
struct Ready {
    main: bool,
    signal: bool,
}

impl ChildHandle {
    /// Reads the child's messages; returns whether it has found memory short. A closed channel is
    /// noted, and handled when the child's exit is known.
    fn receive(&mut self) -> bool {
        let (mut message, mut is_short) = ([0; BYTES_MAX], false);
        while let Ok(Some(bytes)) = fork::receive(self.channel.as_fd(), &mut message) {
            if bytes == 0 {
                self.has_hung_up = true;
                break;
            }
            match Message::from_bytes(&message[..bytes]) {
                Some(Message::Report(report_request, report)) => {
                    self.report_request = report_request;
                    self.report = *report;
                }
                Some(Message::MemoryShort) => is_short = true,
                Some(Message::Ready | Message::Failed(_)) | None => {}
            }
        }
        is_short
    }

    /// Returns the descriptor that tells of messages: one that has hung up would do so for ever.
    fn watched_fd(&self) -> i32 {
        if self.has_hung_up { NO_FD } else { self.channel.as_raw_fd() }
    }
}

#[cfg(test)]
mod tests {
    use weir_stats::TABLE;

    use super::*;

    fn counters(named: &[(&str, u64)]) -> Counters {
        let mut values = [0; TABLE.len()];
        for (name, value) in named {
            values[TABLE.iter().position(|row| row.name == *name).unwrap()] = *value;
        }
        Counters::from_values(&values)
    }

    #[test]
    fn a_killed_child_leaves_no_connection_open() {
        for (named, lost) in [
            (&[("accepted", 5), ("closed", 2)][..], 3),
            (&[("accepted", 5), ("refused_excess", 1), ("refused_stale", 1), ("departed", 1)], 2),
            // Refused or left after they were begun: they are among those closed too.
            (&[("accepted", 5), ("refused_stale", 2), ("turned_away", 2), ("closed", 1)], 4),
            (&[("accepted", 5), ("refused_unfair", 1), ("end_unfair", 1), ("closed", 1)], 4),
            (&[("accepted", 5), ("departed", 1), ("end_departed", 1), ("closed", 1)], 4),
            (&[("accepted", 5), ("refused_client_connections", 1)], 4),
            (&[("accepted", 5), ("refused_memory", 1)], 4),
            (&[("accepted", 5), ("closed", 5)], 0),
        ] {
            let mut counters = counters(named);
            count_lost(&mut counters);
            let end_failed = counters.end_failed.get();
            assert_eq!((open_connections(&counters), end_failed), (0, lost), "{named:?}");
        }
    }
}
