//! A child: accepts as many connections as its policy allows, serves them to their end one after
//! the other, and accepts again. It does the same as a thread of a pool, but with a worker of its
//! own: no lock, and no store, cache or policy shared with a sibling. Between two waits it reads
//! its master's commands.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use weir_dispatch::readiness::Token;
use weir_sys::poll::{POLLIN, PollFd};
use weir_sys::{file, fork};
use weir_tls::Acceptor;

use super::listener_poll::SharedListenerPoll;
use super::messages::{BYTES_MAX, Command, Message};
use super::pool_size;
use crate::compressor::CompressorThread;
use crate::config::{Config, Error};
use crate::context::WorkerContext;
use crate::context::clients::Clients;
use crate::context::log::LogWriter;
use crate::context::stores::Stores;
use crate::control::{Control, StartLatch, WorkerReport};
use crate::models::thread_per_connection::model::{GroupWorker, ThreadGroup};
use crate::models::thread_per_connection::park::{Park, Wait, WakeReason, poll};
use crate::sandbox::Confinement;
use crate::stat_page::Publisher;
use crate::worker::Worker;
use crate::worker::core::{LoopCore, WorkerParts};
use crate::worker::listener::Socket;

/// Time until certificates that could not be read are tried again; each further attempt waits twice
/// as long, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);

/// Longest time between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The next attempt to read certificates.
struct Retry {
    at: Instant,
    /// Time from the last one to it.
    wait: Duration,
}

/// The time until the next key of TLS session tickets has passed. The keys themselves are asked
/// only then: that takes their locks.
#[derive(Debug, Default)]
struct NextKey {
    /// On the worker's clock, nanoseconds; `None` before the keys were asked.
    passes_ns: Option<u64>,
}

impl NextKey {
    /// Returns that time. `forget`: forgets the keys that have passed, and returns it.
    fn passes_in(&mut self, now_ns: u64, forget: impl FnOnce() -> Duration) -> Duration {
        let passes_ns = match self.passes_ns.filter(|&passes_ns| now_ns < passes_ns) {
            Some(passes_ns) => passes_ns,
            None => *self.passes_ns.insert(now_ns.saturating_add(forget().as_nanos() as u64)),
        };
        Duration::from_nanos(passes_ns - now_ns)
    }
}

/// A process that serves connections.
struct Child {
    worker: GroupWorker,
    listeners: SharedListenerPoll,
    channel: OwnedFd,
    control: Arc<Control>,
    reports: Receiver<WorkerReport>,
    command: Command,
    /// Number of calls for memory that were passed on to the others.
    memory_calls: u64,
    /// Time at which certificates that could not be read are tried again.
    retry: Option<Retry>,
    next_key: NextKey,
    log: Option<LogWriter>,
    /// Compresses files for this child, and ends with it.
    _compressor: Option<CompressorThread>,
}

/// Serves from the time at which `latch` is open until the master commands a stop.
///
/// # Errors
/// A message: a required resource is unavailable.
pub(super) fn serve(
    config: Arc<Config>,
    sockets: Vec<Socket>,
    channel: OwnedFd,
    publisher: Publisher,
    clients: Option<Arc<Clients>>,
    latch: &StartLatch,
) -> Result<(), Error> {
    let mut child = Child::new(config, sockets, channel, publisher)?;
    child.worker.core.context.clients = clients;
    // The sockets may not listen yet, and the server may not come to serve.
    latch.wait_as_last();
    child.run();
    if let Some(log) = child.log.take() {
        // The worker's log buffer holds a sender, which keeps the writer running.
        drop(child);
        log.stop();
    }
    Ok(())
}

impl Child {
    fn new(
        config: Arc<Config>,
        sockets: Vec<Socket>,
        channel: OwnedFd,
        publisher: Publisher,
    ) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error(format!("a child cannot start: {error}"));
        let log = match &config.access_log {
            // Confined as all of this process is.
            Some(log) => Some(LogWriter::start(log, &config.errors, &Confinement::default())?),
            None => None,
        };
        let open_max = pool_size::open_max(&config);
        let retry = next_attempt(&config, None);
        let compressor = config
            .content
            .compression
            .map(|options| CompressorThread::new(options.unclaimed_bytes_max, &config.cpus));
        let stores = Stores::open(&config, compressor.as_ref().map(CompressorThread::compressor))?;
        let context = WorkerContext::new(config, stores, log.as_ref().map(LogWriter::buffer));
        let (sender, reports) = mpsc::channel();
        let control = Arc::new(Control::new(0, sender).map_err(failed)?);
        let parts =
            WorkerParts { context, sockets, control: Arc::clone(&control), publisher, open_max };
        let worker = Worker { core: LoopCore::new(parts), model: ThreadGroup::new(true, None) };
        let listeners = SharedListenerPoll::new(&worker, channel.as_fd()).map_err(failed)?;
        let command = Command::FIRST;
        Ok(Self {
            worker,
            listeners,
            channel,
            control,
            reports,
            command,
            memory_calls: 0,
            retry,
            next_key: NextKey::default(),
            log,
            _compressor: compressor,
        })
    }

    fn run(&mut self) {
        while !self.worker.core.is_over() {
            self.accept_iteration();
            while let Some((token, reason)) = self.worker.model.accepted.pop_front() {
                self.serve_connection(token, reason);
            }
        }
        self.worker.end();
        self.send_reports();
    }

    /// Runs one iteration at the listeners, and handles everything else that is due.
    fn accept_iteration(&mut self) {
        let timeouts = [self.worker.core.sleep_max(), self.retry_in(), self.keys_pass_in()];
        let timeout = timeouts.into_iter().flatten().min();
        self.worker.leave();
        let has_command = self.listeners.wait(&self.worker, self.channel.as_fd(), timeout);
        self.worker.enter();
        self.worker.accept_phase(&self.listeners.result);
        self.handle_due(has_command);
    }

    /// Serves a connection to its end.
    fn serve_connection(&mut self, token: Token, mut reason: WakeReason) {
        while !self.worker.core.is_over() {
            match self.worker.serve_once(token, reason) {
                Park::Wait(wait) => reason = self.wait(wait),
                Park::Yield => {
                    self.poll_commands();
                    reason = WakeReason::Resumed;
                }
                Park::Fetch(fetch) => {
                    fetch.run();
                    reason = WakeReason::Fetched;
                }
                Park::Gone => return,
            }
        }
    }

    /// Waits for a connection's socket, and handles commands and deadlines meanwhile.
    fn wait(&mut self, wait: Wait) -> WakeReason {
        let channel = PollFd { fd: self.channel.as_raw_fd(), events: POLLIN, revents: 0 };
        let mut fds = [wait.entry(), channel];
        let due = [wait.timeout(), self.worker.core.due_in(), self.retry_in(), self.keys_pass_in()];
        self.worker.leave();
        poll(&mut fds, due.into_iter().flatten().min());
        self.worker.enter();
        self.handle_due(fds[1].revents != 0);
        if fds[0].revents != 0 { WakeReason::Ready } else { WakeReason::Late }
    }

    /// Handles what is due between two services of a connection that yielded.
    fn poll_commands(&mut self) {
        let mut channel = [PollFd { fd: self.channel.as_raw_fd(), events: POLLIN, revents: 0 }];
        self.worker.leave();
        poll(&mut channel, Some(Duration::ZERO));
        self.worker.enter();
        self.handle_due(channel[0].revents != 0);
    }

    fn handle_due(&mut self, has_command: bool) {
        if has_command {
            self.receive_commands();
            self.worker.handle_wakeup();
            self.send_reports();
        }
        self.worker.poll_policies();
        self.worker.handle_timers();
        self.send_memory_calls();
        if self.retry_in() == Some(Duration::ZERO) {
            self.read_certificates(Acceptor::reload_if_changed);
        }
    }

    /// Lets the others know, if this child has found less memory left.
    fn send_memory_calls(&mut self) {
        let calls = self.worker.core.context.memory.calls();
        if calls != self.memory_calls {
            self.memory_calls = calls;
            // The master always receives; if it has died, this process dies with it.
            let _ = fork::send(self.channel.as_fd(), &Message::MemoryShort.to_bytes(), true);
        }
    }

    /// Reads the master's commands. Exits the process if the master has gone.
    fn receive_commands(&mut self) {
        let mut message = [0; BYTES_MAX];
        loop {
            match fork::receive(self.channel.as_fd(), &mut message) {
                Ok(None) => return,
                Ok(Some(0)) | Err(_) => std::process::exit(1),
                Ok(Some(bytes)) => {
                    if let Some(command) = Command::from_bytes(&message[..bytes]) {
                        self.apply(command);
                    }
                }
            }
        }
    }

    fn apply(&mut self, command: Command) {
        self.control.set_phase(command.phase);
        if command.report_request > self.command.report_request {
            self.control.request_report(command.report_request);
        }
        if command.reopens > self.command.reopens {
            self.reopen();
        }
        if command.memory_calls > self.command.memory_calls {
            self.worker.core.context.memory.note_called();
        }
        if command.is_relieved && !self.command.is_relieved {
            self.listeners.look_at_all();
        }
        self.command = command;
    }

    /// Reopens the logs, and reads the certificates again.
    fn reopen(&mut self) {
        if !self.log.as_ref().is_none_or(|log| log.reopen(None)) {
            self.worker.core.tell("the access log is stuck and was not reopened");
        }
        // It cannot be told that it is stuck itself.
        let _ = self.worker.core.context.config.errors.reopen(None);
        self.retry = None;
        self.read_certificates(|tls| Some(tls.reload()));
    }

    /// Reads the certificates again, and notes when to do so once more if they could not be read.
    fn read_certificates(&mut self, read: fn(&Acceptor) -> Option<Result<(), weir_tls::Error>>) {
        let config = Arc::clone(&self.worker.core.context.config);
        let outcome = config.tls.as_ref().and_then(|tls| read(tls));
        self.retry = next_attempt(&config, self.retry.take());
        // The main process reads the same files, and says what is wrong with them, but not what
        // this one has too little of.
        if let Some(Err(error)) = outcome
            && error.errno().is_some_and(file::is_lack)
        {
            self.worker.core.tell(&format!("a child's certificates stay as they were: {error}"));
        }
    }

    /// Returns the time until certificates that could not be read are tried again.
    fn retry_in(&self) -> Option<Duration> {
        self.retry.as_ref().map(|retry| retry.at.saturating_duration_since(Instant::now()))
    }

    /// Forgets the keys of TLS session tickets that have passed. Returns the time until the next
    /// one has.
    fn keys_pass_in(&mut self) -> Option<Duration> {
        let context = &self.worker.core.context;
        let tls = context.config.tls.as_ref()?;
        Some(self.next_key.passes_in(context.now_ns(), || tls.forget_passed_keys()))
    }

    fn send_reports(&self) {
        for WorkerReport { report_request, report, .. } in self.reports.try_iter() {
            let report = Message::Report(report_request, Box::new(report)).to_bytes();
            // The master always receives; if it has died, this process dies with it.
            let _ = fork::send(self.channel.as_fd(), &report, true);
        }
    }
}

/// Returns the next attempt to read the certificates, after `last`; `None` if all could be read.
fn next_attempt(config: &Config, last: Option<Retry>) -> Option<Retry> {
    let is_behind = config.tls.as_ref().is_some_and(|tls| tls.is_behind());
    is_behind.then(|| {
        let wait = last.map_or(RETRY_MIN, |last| (2 * last.wait).min(RETRY_MAX));
        Retry { at: Instant::now() + wait, wait }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_tickets_are_asked_only_when_one_has_passed() {
        let (mut next_key, mut asked) = (NextKey::default(), 0);
        let passes_in = [0, 1, 99, 100, 101, 350, 360].map(|now_ns| {
            let forget = || {
                asked += 1;
                Duration::from_nanos(100)
            };
            next_key.passes_in(now_ns, forget).as_nanos()
        });
        assert_eq!((passes_in, asked), ([100, 99, 1, 100, 99, 100, 90], 3));
    }
}
