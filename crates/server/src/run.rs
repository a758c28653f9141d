//! Starting the loops, handling signals, stopping. The main thread serves no connection.

use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_accept::SynFilter;
use weir_content as content;
use weir_dispatch::readiness::{Mechanism, Visitor};
use weir_stats::{LoopReport, Report};
use weir_sys::poll::{self, POLLIN, PollFd};
use weir_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};
use weir_sys::waker::Waker;
use weir_sys::{process, profile};

use crate::arch::event_loop::EventLoop;
use crate::arch::fiber::Fibers;
use crate::arch::listener::Socket;
use crate::arch::processes::{self, Crew};
use crate::arch::ring::RingLoop;
use crate::arch::threads::Threads;
use crate::arch::{self, Start};
use crate::bench;
use crate::config::{Address, Config, Error};
use crate::control::{Answer, Control, Phase};
use crate::listen::{self, SocketFile};
use crate::log::{LogBuffer, LogWriter};
use crate::service::Service;

/// Size of the descriptor table from the beginning, which takes half a megabyte in the kernel;
/// beyond it the table hardly ever doubles.
const ROOM_AT_ONCE: u64 = 65_536;

/// Descriptors that a loop needs besides its connections, their files and its listeners.
const SPARE_FDS: u64 = 32;

/// Maximum wait for the counters of the loops.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// Event in a running server, most often a request of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGUSR1: show the counters.
    ShowReport,
    /// SIGHUP: reopen the access log.
    ReopenLog,
    /// SIGTERM or SIGINT: finish open connections; the second time, close them.
    Stop,
    /// No signal: every loop has ended.
    Over,
}

/// Number of loops that have ended, with a bell rung by each of them.
#[derive(Debug)]
struct Ended {
    bell: Waker,
    count: AtomicUsize,
}

/// Guard that reports the end of a loop when it is dropped.
struct End(Arc<Ended>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.count.fetch_add(1, Ordering::Release);
        self.0.bell.wake();
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<Address>,
    socket_files: Vec<SocketFile>,
    controls: Vec<Arc<Control>>,
    loops: Vec<JoinHandle<()>>,
    answers: Receiver<Answer>,
    /// Last report of each loop, with the number of the request it answered.
    told: Vec<(u64, LoopReport)>,
    question: u64,
    ended: Arc<Ended>,
    signals: SignalFd,
    log: Option<LogWriter>,
    start: Instant,
    stops: u32,
}

impl Server {
    /// Checks the configuration, binds, and starts the loops.
    ///
    /// # Errors
    /// A message for the operator: the root or an address is unavailable, or a limit forbids it.
    pub fn start(mut config: Config) -> Result<Self, Error> {
        if config.bench_endpoints {
            bench::calibrate();
        }
        let failed = |error: std::io::Error| Error(format!("cannot start: {error}"));
        // Before anything is opened: the descriptors of LISTEN_FDS are where the manager put them.
        let mut listeners = listen::open(&config)?;
        let signals = SignalFd::block(&[SIGTERM, SIGINT, SIGUSR1, SIGHUP]).map_err(failed)?;
        if config.profile_calls {
            profile::enable();
        }
        let forks = config.arch == arch::Name::Processes;
        if forks {
            // A worker's children share them.
            listeners.per_loop.iter_mut().flatten().for_each(|socket| socket.own = false);
        }
        fit_to_limits(&mut config, listeners.addresses.len());
        if !forks {
            // Otherwise threads would pause as the first many connections come; no more than that.
            let files = config.content.open_files_max.saturating_mul(config.workers.max(1) as u64);
            let room = files.saturating_add(config.conns_max as u64);
            let _ = process::make_room_for_descriptors(room.min(ROOM_AT_ONCE));
        }
        config.setting.syn_filter = syn_filter(&config, listeners.per_loop.iter().flatten())?;
        config.setting.eager =
            config.strategy.eager_read && config.arch.serves_at_once(&config.arch_settings);
        let config = Arc::new(config);
        // Before there is any thread.
        let sockets = std::mem::take(&mut listeners.per_loop);
        let (crews, sockets) = if forks {
            (processes::hire(&config, sockets)?, Vec::new())
        } else {
            (Vec::new(), sockets)
        };
        let log = match config.access_log.clone().filter(|_| !forks) {
            Some((target, format)) => Some(LogWriter::start(target, format, config.tell)?),
            None => None,
        };
        let (answer_sender, answers) = channel();
        let bell = Waker::new().map_err(failed)?;
        let ended = Arc::new(Ended { bell, count: AtomicUsize::new(0) });
        let mut server = Self {
            addresses: listeners.addresses,
            socket_files: listeners.files,
            controls: Vec::new(),
            loops: Vec::new(),
            answers,
            told: Vec::new(),
            question: 0,
            ended,
            signals,
            log,
            start: Instant::now(),
            stops: 0,
        };
        for (index, sockets) in sockets.into_iter().enumerate() {
            server.start_loop(index, sockets, &config, &answer_sender)?;
        }
        for (index, crew) in crews.into_iter().enumerate() {
            server.start_relay(index, crew, config.tell, &answer_sender)?;
        }
        Ok(server)
    }

    /// Returns the addresses on which the server listens, with real port numbers.
    pub fn addresses(&self) -> String {
        let mut text = String::new();
        for (index, address) in self.addresses.iter().enumerate() {
            // Writing into a String cannot fail.
            let _ = write!(text, "{}{address}", if index > 0 { ", " } else { "" });
        }
        text
    }

    /// Waits for the next signal, or for the end of every loop.
    pub fn wait(&self) -> Signal {
        loop {
            if self.ended.count.load(Ordering::Acquire) == self.loops.len() {
                return Signal::Over;
            }
            let watch = |fd| PollFd { fd, events: POLLIN, revents: 0 };
            let bell = &self.ended.bell;
            let mut fds = [watch(self.signals.raw()), watch(bell.as_fd().as_raw_fd())];
            // Should the wait fail, the loops are looked at again a little later.
            let _ = poll::poll(&mut fds, Some(Duration::from_secs(1)));
            if fds[1].revents != 0 {
                bell.clear();
            }
            if fds[0].revents == 0 {
                continue;
            }
            match self.signals.next() {
                Ok(SIGUSR1) => return Signal::ShowReport,
                Ok(SIGHUP) => return Signal::ReopenLog,
                Ok(SIGTERM | SIGINT) => return Signal::Stop,
                _ => {}
            }
        }
    }

    /// Tells every loop to finish what is open and end; the second time, to end now.
    pub fn stop(&mut self) {
        self.stops += 1;
        let phase = if self.stops == 1 { Phase::Drain } else { Phase::Stop };
        self.controls.iter().for_each(|control| control.set_phase(phase));
    }

    /// Reopens the access log, because it was moved. Returns false if its writer is stuck.
    pub fn reopen_log(&self) -> bool {
        // Where other processes write it.
        self.controls.iter().for_each(|control| control.ask_reopen());
        self.log.as_ref().is_none_or(LogWriter::reopen)
    }

    /// Returns the counters of every loop so far. A loop too busy to answer within two seconds is
    /// shown as of its last answer.
    pub fn report(&mut self) -> Report {
        self.question += 1;
        self.controls.iter().for_each(|control| control.ask_report(self.question));
        let deadline = Instant::now() + REPORT_WAIT;
        while self.told.iter().any(|(question, _)| *question < self.question) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(answer) = self.answers.recv_timeout(left) else { break };
            self.told[answer.index] = (answer.question, answer.report);
        }
        let loops = self.told.iter().map(|(_, report)| report.clone()).collect();
        Report { elapsed_s: self.start.elapsed().as_secs_f64(), loops }
    }

    /// Waits for the loops, cleans up, and returns all counters.
    pub fn finish(mut self) -> Report {
        for each in std::mem::take(&mut self.loops) {
            // A loop that panicked has said so; its last counters are still told.
            let _ = each.join();
        }
        let report = self.report();
        if let Some(log) = self.log {
            log.stop();
        }
        self.socket_files.iter().for_each(SocketFile::remove);
        report
    }

    fn start_loop(
        &mut self,
        index: usize,
        sockets: Vec<Socket>,
        config: &Arc<Config>,
        answers: &Sender<Answer>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error(format!("cannot start a loop: {error}"));
        let control = Arc::new(Control::new(index, answers.clone()).map_err(failed)?);
        let seed = Seed {
            index,
            sockets,
            config: Arc::clone(config),
            control: Arc::clone(&control),
            log: self.log.as_ref().map(LogWriter::buffer),
        };
        let (started, outcome) = channel();
        let (ended, mechanism) = (Arc::clone(&self.ended), config.mechanism);
        let thread = std::thread::Builder::new()
            .name(format!("weir-{index}"))
            .spawn(move || {
                // Also when the loop panics, in a build that unwinds.
                let _end = End(ended);
                mechanism.with(Growth { seed, started });
            })
            .map_err(failed)?;
        self.controls.push(control);
        self.loops.push(thread);
        self.told.push((0, LoopReport::default()));
        // A loop that stands drops the sender without a word.
        outcome.recv().map_or(Ok(()), Err)
    }

    /// Starts the thread that represents a worker's processes.
    fn start_relay(
        &mut self,
        index: usize,
        crew: Crew,
        tell: fn(&str),
        answers: &Sender<Answer>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error(format!("cannot start a loop: {error}"));
        let control = Arc::new(Control::new(index, answers.clone()).map_err(failed)?);
        let (orders, ended) = (Arc::clone(&control), Arc::clone(&self.ended));
        let thread = std::thread::Builder::new()
            .name(format!("weir-{index}"))
            .spawn(move || {
                let _end = End(ended);
                crew.relay(&orders, tell);
            })
            .map_err(failed)?;
        self.controls.push(control);
        self.loops.push(thread);
        self.told.push((0, LoopReport::default()));
        Ok(())
    }
}

/// Arguments of a loop's thread.
struct Seed {
    index: usize,
    sockets: Vec<Socket>,
    config: Arc<Config>,
    control: Arc<Control>,
    log: Option<LogBuffer>,
}

/// A seed, with the channel for an error at the start.
struct Growth {
    seed: Seed,
    started: Sender<Error>,
}

impl Visitor for Growth {
    type Output = ();

    fn visit<M: Mechanism>(self) {
        match self.seed.config.arch {
            arch::Name::Loop | arch::Name::Helpers => self.seed.grow::<EventLoop<M>>(self.started),
            arch::Name::Ring => self.seed.grow::<RingLoop>(self.started),
            arch::Name::Fiber => self.seed.grow::<Fibers<M>>(self.started),
            arch::Name::Threads => self.seed.grow::<Threads>(self.started),
            // They have been made already, and a relay stands for them.
            arch::Name::Processes => {}
        }
    }
}

impl Seed {
    /// Makes the loop in its own thread, reports success or the error, and runs it.
    fn grow<A: Start>(self, started: Sender<Error>) {
        match self.make::<A>() {
            Ok(made) => {
                drop(started);
                made.run();
            }
            // The receiver waits for it.
            Err(error) => drop(started.send(error)),
        }
    }

    fn make<A: Start>(self) -> Result<A, Error> {
        let config = self.config;
        pin(self.index, &config)?;
        let store = open_store(&config)?;
        let open_max = config.conns_max.div_ceil(config.workers).max(1);
        let service = Service::new(config, store, self.log);
        A::start(service, self.sockets, self.control, open_max)
            .map_err(|error| Error(format!("cannot start a loop: {error}")))
    }
}

/// Pins the calling thread to the processor of the loop with this index, if processors are
/// configured.
pub(crate) fn pin(index: usize, config: &Config) -> Result<(), Error> {
    let Some(&cpu) = config.cpus.get(index % config.cpus.len().max(1)) else { return Ok(()) };
    process::pin_thread(cpu)
        .map_err(|error| Error(format!("cannot run on processor {cpu}: {error}")))
}

/// Opens the content to serve.
pub(crate) fn open_store(config: &Config) -> Result<content::Store, Error> {
    content::Store::open(&config.root, config.content.clone())
        .map_err(|error| Error(format!("cannot serve {}: {error}", config.root.display())))
}

/// Returns the SYN filter to use: the configured one, or the best available. It is an error if the
/// configured one is unavailable: a policy that counted on it would leave the work to it.
fn syn_filter<'s>(
    config: &Config,
    mut sockets: impl Iterator<Item = &'s Socket>,
) -> Result<SynFilter, Error> {
    let policies =
        [weir_accept::Name::Limit, weir_accept::Name::MatchClose, weir_accept::Name::Timed];
    if policies.contains(&config.setting.name) {
        return Ok(SynFilter::None);
    }
    let available = sockets.find(|socket| socket.own).map_or(SynFilter::None, Socket::syn_filter);
    match config.syn_filter {
        None => Ok(available),
        Some(SynFilter::None) => Ok(SynFilter::None),
        Some(SynFilter::Random) if available != SynFilter::None => Ok(SynFilter::Random),
        Some(wanted) if wanted == available => Ok(wanted),
        Some(wanted) => Err(Error(format!(
            "--syn-filter {wanted} cannot be had: it takes a TCP socket of the server's own and \
             CAP_NET_ADMIN{}; the best here is {available}",
            if wanted == SynFilter::Tokens { " and CAP_BPF" } else { "" }
        ))),
    }
}

/// Divides the cache among the loops, and keeps max-conns below what RLIMIT_NOFILE allows; that
/// limit is per process.
fn fit_to_limits(config: &mut Config, listeners: usize) {
    let workers = config.workers.max(1) as u64;
    let (loops, processes) = match config.arch {
        arch::Name::Processes => (1, workers * processes::children(config) as u64),
        _ => (workers, 1),
    };
    let fds = process::raise_open_files();
    let content = &mut config.content;
    content.caching = config.strategy.caching;
    content.waits = config.arch.waits_for_disks(&config.arch_settings);
    content.cache_bytes_max /= loops * processes;
    // A quarter of the descriptors at most for files, so that a small limit still serves.
    let files_max = (content.open_files_max / processes).min(fds / 4);
    content.open_files_max = (files_max / loops).max(1);
    let files = if content.caching { content.open_files_max * loops } else { 0 };
    let overhead = SPARE_FDS + loops * (listeners as u64 + 4);
    let free = fds.saturating_sub(overhead + files);
    // Without a cache each connection may have a file of its own open.
    let room = if content.caching { free } else { free / 2 }.max(8).saturating_mul(processes);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if room < config.conns_max {
        let wanted = std::mem::replace(&mut config.conns_max, room);
        (config.tell)(&format!(
            "{room} connections at most, not {wanted}: {fds} descriptors are allowed, and files \
             take {files} of them (ulimit -n, --open-files)"
        ));
    }
}
