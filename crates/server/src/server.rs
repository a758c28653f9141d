//! Starting the loops, handling signals, stopping, and leaving to a successor. The main thread
//! serves no connection.

use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_stats::page::{Layout, Words};
use weir_stats::{LoopReport, Report};
use weir_sys::poll::{self, POLLIN, PollFd};
use weir_sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SignalFd};
use weir_sys::socket_file::SocketFile;
use weir_sys::waker::Waker;
use weir_sys::{descent, heap, privileged, process, profile};

use crate::architecture::ArchitectureName;
use crate::bind::{self, Listeners};
use crate::compressor::CompressorThread;
use crate::config::{AccessLog, Address, Config, Error, MemoryLimit};
use crate::context::clients::Clients;
use crate::context::log::errors::{ERRORS, ErrorWriter};
use crate::context::log::{self, ACCESS, LogWriter};
use crate::context::memory::{MemoryBudget, Shortage};
use crate::control::{Control, Phase, StartLatch, WorkerReport};
use crate::http::bench;
use crate::limits;
use crate::models::prefork::{self, MasterHandle};
use crate::models::start::{StartWorker, WorkerSpec};
use crate::sandbox::{Confinement, Task};
use crate::stat_page::{NewPage, Publisher, StatPage};
use crate::succession::{self, Heritage, KeptSocket, Predecessor, Program, Successor, own_program};
use crate::upstream::checker::HealthChecker;
use crate::upstream::shared::SharedUpstreams;
use crate::user;
use crate::worker::listener::Socket;
use crate::worker::syn_filter;

/// Size of the descriptor table at the start, which takes half a megabyte in the kernel. Beyond it,
/// the table rarely has to grow.
const DESCRIPTORS_AT_START: u64 = 65_536;

/// Maximum wait before the loops are checked again.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Maximum wait for the counters of the loops.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// Program of this very process, whatever is at its path now: proc(5).
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Signals that the main thread waits for.
const SIGNALS: [i32; 6] = [SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD];

/// Orders of an operator among them: that it ends, or leaves to another.
const ORDERS: [i32; 4] = [SIGTERM, SIGINT, SIGUSR2, SIGHUP];

/// Event in a running server, most often a request of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGUSR1: show the counters.
    ShowReport,
    /// SIGHUP: read the configuration and the certificates again, and reopen the access log.
    Reload,
    /// SIGUSR2: leave to the program that is installed now.
    Upgrade,
    /// SIGTERM or SIGINT: finish open connections; the second time, close them.
    Stop,
    /// No signal: a successor serves, whose process id this is, and waits for
    /// [`Server::release_successor`]; or it does not, for this reason.
    Succession(Result<u32, String>),
    /// No signal: the successor, which has served, has failed.
    SuccessorFailed(String),
    /// No signal: the processes of a worker have died.
    WorkerLost,
    /// No signal: all loops have ended.
    Ended,
    /// No signal: the time has come until which to wait.
    TimedOut,
}

impl Signal {
    /// Passes the signal on to the servers that have taken this one's place, if it is one. Returns
    /// false if it sees none.
    pub fn pass_on(&self) -> bool {
        match self {
            Self::ShowReport => succession::pass_on(SIGUSR1),
            Self::Reload => succession::pass_on(SIGHUP),
            Self::Upgrade => succession::pass_on(SIGUSR2),
            Self::Stop => succession::pass_on(SIGTERM),
            Self::Succession(_)
            | Self::SuccessorFailed(_)
            | Self::WorkerLost
            | Self::Ended
            | Self::TimedOut => true,
        }
    }
}

/// What a server knows of its successor.
#[derive(Debug)]
enum Succession {
    /// There is none, and none has been asked for.
    None,
    /// It has been started, and does not serve yet.
    Starting(Successor),
    /// It serves.
    Done(Successor),
}

/// Number of workers that have ended, and a waker that each of them uses.
#[derive(Debug)]
struct EndedWorkers {
    waker: Waker,
    count: AtomicUsize,
    /// Number of workers whose processes have died.
    lost: AtomicUsize,
}

impl EndedWorkers {
    fn new() -> std::io::Result<Self> {
        Ok(Self { waker: Waker::new()?, count: AtomicUsize::new(0), lost: AtomicUsize::new(0) })
    }
}

/// Guard that reports the end of a loop when it is dropped.
struct EndGuard(Arc<EndedWorkers>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.count.fetch_add(1, Ordering::Release);
        self.0.waker.wake();
    }
}

/// Prepares this process for what is configured, before it has threads.
fn prepare_process(config: &Config) {
    if config.bench_endpoints {
        bench::calibrate();
    }
    if matches!(config.memory, MemoryLimit::Bytes(_)) {
        heap::map_large_blocks();
    }
}

/// Returns the budget of a server, whose processes may be several.
fn memory_budget(config: &Config) -> MemoryBudget {
    match config.arch {
        ArchitectureName::Processes => MemoryBudget::new(config.memory_bytes()),
        _ => MemoryBudget::of_process(config.memory_bytes()),
    }
}

/// Lets the system calls be timed, if that is configured.
fn time_calls(config: &Config) {
    if config.profile_calls {
        profile::enable();
    }
    if config.phase_times {
        profile::time_calls();
    }
}

/// Fits the configuration to what this process may have, and to its sockets.
fn fit(config: &mut Config, listeners: &mut Listeners, forks: bool) -> Result<(), Error> {
    if forks {
        // The children of a worker share its sockets.
        listeners.per_loop.iter_mut().flatten().for_each(|socket| socket.own = false);
    }
    let listeners_max = listeners.per_loop.iter().map(Vec::len).max().unwrap_or_default();
    limits::fit(config, listeners_max);
    if !forks {
        // Growing the table later would pause every thread.
        let room = config.open_files_max().saturating_add(config.conns_max as u64);
        let _ = process::grow_descriptor_table(room.min(DESCRIPTORS_AT_START));
    }
    config.policy.syn_filter = limits::syn_filter(config, listeners.per_loop.iter().flatten())?;
    let kind = config.policy.syn_filter;
    let rules = syn_filter::rules(config);
    listeners.per_loop.iter_mut().flatten().for_each(|socket| socket.make_filter(kind, rules));
    let links = limits::filter_at_links(config, &mut listeners.per_loop)?;
    if links > 0 {
        config.errors.info(&format!("SYNs can be dropped at the link: {links} attachments"));
    }
    config.policy.eager =
        config.strategy.eager_read && config.arch.serves_at_once(&config.arch_settings);
    Ok(())
}

/// Returns what compresses files, if they are compressed on the fly.
fn compressor(config: &Config) -> Option<CompressorThread> {
    let options = config.content.compression?;
    Some(CompressorThread::new(options.unclaimed_bytes_max, &config.cpus))
}

/// The writers of the logs.
#[derive(Debug)]
struct LogWriters {
    /// That of the access log; `None` where this process has none.
    access: Option<LogWriter>,
    errors: ErrorWriter,
}

impl LogWriters {
    /// Starts them. Child processes write access logs of their own.
    fn start(config: &Config, forks: bool, confinement: &Confinement) -> Result<Self, Error> {
        let errors = ErrorWriter::start(&config.errors, confinement)?;
        let access = config.access_log.as_ref().filter(|_| !forks);
        let access =
            access.map(|log| LogWriter::start(log, &config.errors, confinement)).transpose()?;
        Ok(Self { access, errors })
    }

    /// Has everything written, and ends them.
    fn stop(self) {
        if let Some(access) = self.access {
            access.stop();
        }
        self.errors.stop();
    }
}

/// Goes on with the keys of TLS session tickets of a predecessor.
fn take_ticket_keys(config: &Config, predecessor: Option<&Predecessor>) {
    if let Some(tls) = &config.tls
        && let Some(keys) = predecessor.and_then(Predecessor::ticket_keys)
    {
        // Keys that are not understood are of another version: its clients begin anew.
        let _ = tls.take_ticket_keys(keys);
    }
}

/// Forks the masters of child processes, which take the sockets of the loops, if there are to be
/// any.
fn fork_masters(
    config: &Arc<Config>,
    listeners: &mut Listeners,
    page: Option<&StatPage>,
    latch: &Arc<StartLatch>,
) -> Result<Vec<MasterHandle>, Error> {
    if config.arch != ArchitectureName::Processes {
        return Ok(Vec::new());
    }
    let sockets = std::mem::take(&mut listeners.per_loop);
    let kept = &mut listeners.kept;
    prefork::fork_masters(config, sockets, page, latch, || kept.clear())
}

/// Makes the table of clients that the loops share, if there are limits.
fn clients(config: &Config) -> Option<Arc<Clients>> {
    config.client_limits.as_ref().map(|limits| Arc::new(Clients::new(limits)))
}

/// The process that was started first, of servers that take each other's place.
#[derive(Debug)]
struct First {
    pid: u32,
    /// Path of its program.
    program: PathBuf,
}

impl First {
    fn of(predecessor: Option<&Predecessor>) -> Self {
        let program = predecessor.and_then(Predecessor::program);
        Self {
            pid: predecessor.map_or_else(|| process::ids_in_proc().0, Predecessor::first_pid),
            program: program.map_or_else(own_program, Into::into),
        }
    }
}

fn page_of(new: Option<&NewPage>) -> Option<&StatPage> {
    new.map(|new| &new.page)
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<Address>,
    /// Files to remove at the end.
    socket_files: Vec<SocketFile>,
    /// Files that join them once the predecessor has left them.
    held_files: Vec<SocketFile>,
    /// The listening sockets, for a successor.
    kept: Vec<KeptSocket>,
    /// Latch that everything which serves waits for.
    latch: Arc<StartLatch>,
    first: First,
    predecessor: Option<Predecessor>,
    succession: Succession,
    controls: Vec<Arc<Control>>,
    loops: Vec<JoinHandle<()>>,
    incoming: Receiver<WorkerReport>,
    /// Last report of each loop, with the number of the request it answered.
    reports: Vec<(u64, LoopReport)>,
    report_request: u64,
    ended: Arc<EndedWorkers>,
    signals: SignalFd,
    logs: LogWriters,
    config: Arc<Config>,
    upstreams: Option<Arc<SharedUpstreams>>,
    clients: Option<Arc<Clients>>,
    memory: MemoryBudget,
    /// Tells of a lack of memory.
    shortage: Shortage,
    compressor: Option<CompressorThread>,
    confinement: Confinement,
    /// The checks of upstreams, if there are any.
    checker: Option<HealthChecker>,
    /// The page of statistics; its file is removed with it.
    stat_page: Option<NewPage>,
    start: Instant,
    stop_requests: u32,
    children: Children,
}

/// Child processes of this one.
#[derive(Debug, Default)]
struct Children {
    /// Process ids of the masters of those that serve.
    masters: Vec<u32>,
    /// Number of workers that are known to be lost.
    lost: usize,
    /// True while the server goes on without any.
    are_awaited: bool,
    /// True once this process may have adopted what a successor has left behind.
    has_adopted: bool,
}

impl Server {
    /// Checks the configuration, binds, and starts the loops, which wait for [`Self::serve`]. The
    /// listening sockets of a predecessor are taken over.
    ///
    /// # Errors
    /// A message for the operator: the root or an address is unavailable, or a limit forbids it.
    pub fn start(mut config: Config, mut predecessor: Option<Predecessor>) -> Result<Self, Error> {
        prepare_process(&config);
        // First: the descriptors of LISTEN_FDS have fixed numbers, which others must not take.
        let listeners = bind::open(&mut config, predecessor.as_mut())?;
        let files = listeners.files.clone();
        Self::start_on(listeners, config, predecessor)
            .inspect_err(|_| files.iter().for_each(SocketFile::remove))
    }

    /// Starts on these sockets.
    fn start_on(
        mut listeners: Listeners,
        mut config: Config,
        predecessor: Option<Predecessor>,
    ) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error(format!("cannot start: {error}"));
        take_ticket_keys(&config, predecessor.as_ref());
        let signals = SignalFd::block(&SIGNALS).map_err(failed)?;
        time_calls(&config);
        let forks = config.arch == ArchitectureName::Processes;
        fit(&mut config, &mut listeners, forks)?;
        let config = Arc::new(config);
        if predecessor.is_none() {
            // At once: the next server that is started on the same addresses must fail.
            bind::listen(&mut listeners.kept, config.listenq)?;
        }
        // Whatever takes a privilege has been opened and attached; what serves comes after.
        user::change(&config, &listeners.addresses)?;
        let children = if forks { prefork::pool_size::children(&config) } else { 0 };
        let first = First::of(predecessor.as_ref());
        let stat_page = StatPage::create(&config, &listeners.addresses, children, first.pid);
        let latch = Arc::new(StartLatch::new().map_err(failed)?);
        // Before there is any thread.
        let masters = fork_masters(&config, &mut listeners, page_of(stat_page.as_ref()), &latch)?;
        let sockets = std::mem::take(&mut listeners.per_loop);
        let confinement = Confinement::prepare(&config)?;
        let logs = LogWriters::start(&config, forks, &confinement)?;
        let compressor = if forks { None } else { compressor(&config) };
        let upstreams = SharedUpstreams::of(&config);
        let clients = if forks { None } else { clients(&config) };
        let (report_sender, incoming) = channel();
        let ended = Arc::new(EndedWorkers::new().map_err(failed)?);
        let mut server = Self {
            addresses: listeners.addresses,
            socket_files: listeners.files,
            held_files: listeners.held_files,
            kept: listeners.kept,
            latch,
            first,
            predecessor,
            succession: Succession::None,
            controls: Vec::new(),
            loops: Vec::new(),
            incoming,
            reports: Vec::new(),
            report_request: 0,
            ended,
            signals,
            logs,
            config: Arc::clone(&config),
            checker: HealthChecker::start(&config, upstreams.as_ref(), &confinement)
                .map_err(failed)?,
            upstreams,
            clients,
            memory: memory_budget(&config),
            shortage: Shortage::default(),
            compressor,
            confinement,
            stat_page,
            start: Instant::now(),
            stop_requests: 0,
            children: Children::default(),
        };
        for (index, sockets) in sockets.into_iter().enumerate() {
            server.start_loop(index, sockets, &config, &report_sender)?;
        }
        server.start_relays(masters, &report_sender)?;
        Ok(server)
    }

    /// Lets the loops begin, and tells the predecessor, if there is one, that this server serves;
    /// once that has closed the listening sockets, the loops limit what comes to them. To be called
    /// once, after everything else that may fail.
    ///
    /// # Errors
    /// A message: a socket cannot listen. Then no connection has been accepted.
    pub fn serve(&mut self) -> Result<(), Error> {
        // A socket that is added to those of a predecessor (SO_REUSEPORT) gets its share of the
        // connections from now on, and they would be reset with it if this server failed. Not after
        // the loops have begun: they would find a socket that does not listen hung up, at which no
        // accept succeeds.
        bind::listen(&mut self.kept, self.config.listenq)?;
        // Nothing fails from here on, and what is accepted inherits it.
        bind::set_user_timeouts(self.kept.iter(), &self.config);
        self.latch.open();
        if let Some(new) = &self.stat_page {
            new.publish(&self.config.errors);
        }
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.relieve();
            bind::renew(&self.kept, &self.config);
            self.controls.iter().for_each(|control| control.relieve_predecessor());
            self.socket_files.append(&mut self.held_files);
        }
        Ok(())
    }

    /// Gives up a server that does not serve yet, and leaves to a predecessor what is its own.
    /// Threads and processes that wait for the start end with this process.
    pub fn give_up(self) {
        self.logs.errors.stop();
        self.socket_files.iter().for_each(SocketFile::remove);
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

    /// Returns the page of statistics for a reader in this process, with its layout, whether other
    /// processes find the page or not; `None` if there is none.
    pub fn stat_page(&self) -> Option<(Layout, Arc<dyn Words + Send + Sync>)> {
        let page = page_of(self.stat_page.as_ref())?.clone();
        Some((page.layout().clone(), Arc::new(page)))
    }

    /// Does something as confined as what answers the operator: so are the threads that it starts.
    ///
    /// # Errors
    /// A message: there is no thread, or the kernel refuses to confine it.
    pub fn confined<T: Send>(&self, start: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let confinement = &self.confinement;
        std::thread::scope(|scope| {
            let confined = scope.spawn(|| confinement.enter(Task::Observe).map(|()| start()));
            confined.join().unwrap_or_else(|_| Err(Error("a thread has panicked".into())))
        })
    }

    /// Waits for the next signal, for news of a successor, for the end of every loop, or until a
    /// time.
    pub fn wait(&mut self, until: Option<Instant>) -> Signal {
        loop {
            // Before their ends, so that it is known of each end whether the worker is lost.
            let is_starting = matches!(self.succession, Succession::Starting(_));
            let all_have_ended = self.ended.count.load(Ordering::Acquire) == self.loops.len();
            let lost = self.ended.lost.load(Ordering::Relaxed);
            if std::mem::replace(&mut self.children.lost, lost) != lost {
                return Signal::WorkerLost;
            }
            if all_have_ended && !is_starting && !self.children.are_awaited {
                return Signal::Ended;
            }
            if let Some(outcome) = self.succession_outcome() {
                return Signal::Succession(outcome);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Signal::TimedOut;
            }
            if let Some(signal) = self.poll_signals(until) {
                return signal;
            }
        }
    }

    /// Waits for a while; returns the signal that has come.
    fn poll_signals(&mut self, until: Option<Instant>) -> Option<Signal> {
        let watch = |fd| PollFd { fd, events: POLLIN, revents: 0 };
        let starting = match &self.succession {
            Succession::Starting(successor) => Some(successor),
            Succession::None | Succession::Done(_) => None,
        };
        let waker = &self.ended.waker;
        let mut fds = [
            watch(self.signals.raw()),
            watch(waker.as_fd().as_raw_fd()),
            // A negative number is passed over: poll(2).
            watch(starting.map_or(-1, Successor::raw_fd)),
        ];
        let until = [until, starting.map(Successor::until)].into_iter().flatten().min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // If the wait fails, the loops are checked again a little later.
        let _ = poll::poll(&mut fds, Some(left.map_or(WAIT_MAX, |left| left.min(WAIT_MAX))));
        if fds[1].revents != 0 {
            waker.clear();
        }
        self.reload_changed_certificates();
        self.watch_memory();
        if fds[0].revents == 0 {
            return None;
        }
        match self.signals.next() {
            Ok(SIGUSR1) => Some(Signal::ShowReport),
            Ok(SIGHUP) => Some(Signal::Reload),
            Ok(SIGUSR2) => Some(Signal::Upgrade),
            Ok(SIGTERM | SIGINT) => Some(Signal::Stop),
            Ok(SIGCHLD) => {
                self.reap();
                match &mut self.succession {
                    Succession::Done(successor) => successor.failure().map(Signal::SuccessorFailed),
                    Succession::None | Succession::Starting(_) => None,
                }
            }
            _ => None,
        }
    }

    /// Releases what a successor has left behind.
    fn reap(&self) {
        let successor = match &self.succession {
            Succession::Starting(successor) | Succession::Done(successor) => Some(successor.pid()),
            Succession::None => None,
        };
        if self.children.has_adopted {
            let masters = self.children.masters.iter().copied();
            let awaited: Vec<u32> = masters.chain(successor).collect();
            descent::reap_adopted(|pid| awaited.contains(&pid));
        }
    }

    /// Returns whether it was told to end, or has left to a successor.
    pub fn is_ending(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns whether connections wait for a worker that is lost, or all are.
    pub fn lacks_worker(&self) -> bool {
        let lost = self.children.lost;
        let waits = lost == self.loops.len() || lost > 0 && !self.config.share_listener;
        waits && !self.is_ending()
    }

    /// Has [`Self::wait`] wait on though no worker is left, or not: others will be started.
    pub fn await_workers(&mut self, are_awaited: bool) {
        self.children.are_awaited = are_awaited;
    }

    /// Gives memory that was freed back to the kernel where that matters, and says when memory is
    /// short and when it is no longer.
    fn watch_memory(&mut self) {
        self.memory.measure();
        self.memory.call_again();
        let (is_short, figures) = (self.memory.take_shortage(), self.memory.figures());
        if let Some(sentence) = self.shortage.sentence(Instant::now(), is_short, figures) {
            self.config.errors.warn(&sentence);
        }
    }

    /// Tells every loop to finish its open connections and end; the second time, to end now. A
    /// successor that does not serve yet is ended.
    pub fn stop(&mut self) {
        if let Succession::Starting(successor) = &mut self.succession {
            successor.end();
            self.succession = Succession::None;
        }
        self.kept.clear();
        self.children.are_awaited = false;
        self.stop_requests += 1;
        let phase = if self.stop_requests == 1 { Phase::Drain } else { Phase::Stop };
        self.controls.iter().for_each(|control| control.set_phase(phase));
    }

    /// Starts a successor: a program with the arguments of this process. When it serves, or cannot,
    /// [`Self::wait`] says so. `others`: sockets besides those that serve requests, for
    /// [`Predecessor::take`], each with a name of two words, the second of which is its address.
    ///
    /// # Errors
    /// A sentence: why there is none.
    pub fn begin_succession(
        &mut self,
        program: Program,
        others: &[(&str, BorrowedFd<'_>)],
    ) -> Result<(), String> {
        if self.kept.is_empty() {
            return Err("this server is ending".into());
        }
        let path = match program {
            Program::Same => OWN_PROGRAM.as_ref(),
            Program::Installed => self.first.program.as_os_str(),
        };
        let ticket_keys = self.config.tls.as_ref().and_then(|tls| tls.ticket_keys());
        let privileged = privileged::channel();
        let privileged = privileged.iter().map(|channel| (user::CHANNEL, channel.as_fd()));
        let others: Vec<_> = others.iter().copied().chain(privileged).collect();
        let others = &others[..];
        let heritage = Heritage {
            installed: &self.first.program,
            first_pid: self.first.pid,
            kept: &self.kept,
            others,
            ticket_keys,
        };
        self.children.has_adopted = true;
        let successor = Successor::start(path, &heritage)?;
        self.succession = Succession::Starting(successor);
        Ok(())
    }

    /// Leaves the listening sockets to a successor that serves. Each open connection is answered
    /// once more; the loops end when none is left, or after the time limit of a drain. If the
    /// successor does not serve, nothing changes.
    fn succession_outcome(&mut self) -> Option<Result<u32, String>> {
        let Succession::Starting(successor) = &mut self.succession else { return None };
        let outcome = successor.outcome()?;
        let Succession::Starting(successor) =
            std::mem::replace(&mut self.succession, Succession::None)
        else {
            return None;
        };
        if let Err(why) = outcome {
            return Some(Err(why));
        }
        self.kept.clear();
        self.controls.iter().for_each(|control| control.set_phase(Phase::HandOver));
        // Loops that have answered have closed their sockets.
        self.report();
        // The files of Unix sockets are the successor's now.
        self.socket_files.clear();
        let pid = successor.pid();
        self.succession = Succession::Done(successor);
        Some(Ok(pid))
    }

    /// Passes on to a successor that serves the orders that have come for this process and were not
    /// taken yet: to stop, to reload and to upgrade. Others stay. To be called before
    /// [`Self::release_successor`]: until then the successor takes none, and has each once.
    pub fn pass_orders_on(&self) {
        let Succession::Done(successor) = &self.succession else { return };
        // A descriptor of its own, by which no other signal is taken.
        let Ok(orders) = SignalFd::block(&ORDERS) else { return };
        let mut fds = [PollFd { fd: orders.raw(), events: POLLIN, revents: 0 }];
        while poll::poll(&mut fds, Some(Duration::ZERO)).is_ok_and(|ready| ready > 0) {
            let Ok(order) = orders.next() else { return };
            // A successor that has ended meanwhile takes none.
            let _ = descent::signal(successor.pid(), order);
        }
    }

    /// Tells a successor that serves that this process has left it everything. What the service
    /// manager is to hear of both comes before.
    pub fn release_successor(&self) {
        if let Succession::Done(successor) = &self.succession {
            // A loop that has not answered may go round later.
            self.controls.iter().for_each(|control| control.leave_listeners());
            successor.note_closed();
        }
    }

    /// Asks every loop for a sign of life.
    pub fn ask_loops(&mut self) {
        self.report_request += 1;
        self.controls.iter().for_each(|control| control.request_report(self.report_request));
    }

    /// Returns whether every loop has gone round since it was asked last.
    pub fn loops_have_answered(&mut self) -> bool {
        while let Ok(answer) = self.incoming.try_recv() {
            self.reports[answer.index] = (answer.report_request, answer.report);
        }
        self.reports.iter().all(|(report_request, _)| *report_request >= self.report_request)
    }

    /// Tells the operator which loops have not gone round since they were asked, `waited` ago.
    pub fn tell_stalls(&self, waited: Duration) {
        let answered = |(report_request, _): &(u64, _)| *report_request >= self.report_request;
        let waited_s = waited.as_secs_f64();
        for (index, _) in self.reports.iter().enumerate().filter(|(_, report)| !answered(report)) {
            let text = format!("loop {index} stalls: it has not gone round for {waited_s:.1} s");
            self.config.errors.error(&text);
        }
    }

    /// Reads the certificates again, whether their files have changed or not. Open connections go
    /// on with those they began with.
    ///
    /// # Errors
    /// A sentence: a file is not what it should be. All certificates stay as they were.
    pub fn reload_certificates(&self) -> Result<(), Error> {
        let Some(tls) = &self.config.tls else { return Ok(()) };
        tls.reload().map_err(|error| Error(error.to_string()))
    }

    /// Reads the certificates again if their files have changed, and forgets the keys of session
    /// tickets that have passed.
    fn reload_changed_certificates(&self) {
        if let Some(tls) = &self.config.tls {
            tls.forget_passed_keys();
        }
        match self.config.tls.as_ref().and_then(|tls| tls.reload_if_changed()) {
            None => {}
            // Child processes have certificates of their own.
            Some(Ok(())) => {
                self.controls.iter().for_each(|control| control.request_reopen());
                self.config.errors.notice("the certificates have changed, and were read again");
            }
            Some(Err(error)) => {
                let why = format!("the certificates stay as they were: {error}");
                self.config.errors.error(&why);
            }
        }
    }

    /// Reopens the logs, because they were moved. Waits for their writers, for a limited time.
    ///
    /// # Errors
    /// A sentence about each log that was not reopened: it goes on where it was.
    pub fn reopen_logs(&self) -> Result<(), Vec<String>> {
        // Child processes write the logs themselves.
        self.controls.iter().for_each(|control| control.request_reopen());
        let errors = log::reopening(ERRORS, |tell| self.config.errors.reopen(Some(tell)));
        let writer = self.logs.access.as_ref();
        let access = writer.map(|writer| log::reopening(ACCESS, |tell| writer.reopen(Some(tell))));
        let until = Instant::now() + log::REOPEN_WAIT;
        let access = match (access, &self.config.access_log) {
            (Some(outcome), _) => outcome(until),
            (None, Some(AccessLog { target, .. })) => log::try_to_reopen(target),
            (None, None) => Ok(()),
        };
        let outcomes = [errors(until), access];
        let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// Returns the counters of every loop so far. A loop too busy to answer within two seconds is
    /// shown as of its last answer.
    pub fn report(&mut self) -> Report {
        self.ask_loops();
        let deadline = Instant::now() + REPORT_WAIT;
        while !self.loops_have_answered() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(answer) = self.incoming.recv_timeout(left) else { break };
            self.reports[answer.index] = (answer.report_request, answer.report);
        }
        self.tell_stalls(REPORT_WAIT);
        let loops = self.reports.iter().map(|(_, report)| report.clone()).collect();
        Report { elapsed_s: self.start.elapsed().as_secs_f64(), loops }
    }

    /// Waits for the loops, cleans up, and returns all counters.
    pub fn finish(mut self) -> Report {
        self.checker = None;
        for thread in std::mem::take(&mut self.loops) {
            // A panic was reported when it happened; the loop's last counters still count.
            let _ = thread.join();
        }
        let report = self.report();
        self.logs.stop();
        self.socket_files.iter().for_each(SocketFile::remove);
        report
    }

    fn start_loop(
        &mut self,
        index: usize,
        sockets: Vec<Socket>,
        config: &Arc<Config>,
        incoming: &Sender<WorkerReport>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error(format!("cannot start a loop: {error}"));
        let control = Control::new(index, incoming.clone()).map_err(failed)?;
        let control = Arc::new(control.behind(&self.latch));
        let spec = WorkerSpec {
            index,
            sockets,
            config: Arc::clone(config),
            control: Arc::clone(&control),
            publisher: page_of(self.stat_page.as_ref())
                .map_or_else(Publisher::default, |page| page.of_worker(index)),
            log: self.logs.access.as_ref().map(LogWriter::buffer),
            upstreams: self.upstreams.clone(),
            clients: self.clients.clone(),
            memory: self.memory.clone(),
            compressor: self.compressor.as_ref().map(|thread| Arc::clone(thread.compressor())),
            confinement: self.confinement.clone(),
        };
        let (started, outcome) = channel();
        let (ended, mechanism) = (Arc::clone(&self.ended), config.mechanism);
        let thread = std::thread::Builder::new()
            .name(format!("weir-{index}"))
            .spawn(move || {
                // Dropped even if the loop panics, in a build that unwinds.
                let _end = EndGuard(ended);
                mechanism.with(StartWorker { spec, started });
            })
            .map_err(failed)?;
        self.controls.push(control);
        self.loops.push(thread);
        self.reports.push((0, LoopReport::default()));
        // A loop that has started drops the sender without sending an error.
        outcome.recv().map_or(Ok(()), Err)
    }

    /// Starts the threads that represent the workers' processes.
    fn start_relays(
        &mut self,
        masters: Vec<MasterHandle>,
        incoming: &Sender<WorkerReport>,
    ) -> Result<(), Error> {
        self.children.masters = masters.iter().map(MasterHandle::pid).collect();
        for (index, master) in masters.into_iter().enumerate() {
            self.start_relay(index, master, incoming)?;
        }
        Ok(())
    }

    /// Starts the thread that represents a worker's processes.
    fn start_relay(
        &mut self,
        index: usize,
        master: MasterHandle,
        incoming: &Sender<WorkerReport>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error(format!("cannot start a loop: {error}"));
        let control = Arc::new(Control::new(index, incoming.clone()).map_err(failed)?);
        let (commands, ended) = (Arc::clone(&control), Arc::clone(&self.ended));
        let errors = self.config.errors.clone();
        let memory = self.memory.of_loop(&control.waker);
        let thread = std::thread::Builder::new()
            .name(format!("weir-{index}"))
            .spawn(move || {
                let end = EndGuard(ended);
                let is_lost = master.relay(&commands, &memory, &errors);
                end.0.lost.fetch_add(is_lost.into(), Ordering::Relaxed);
            })
            .map_err(failed)?;
        self.controls.push(control);
        self.loops.push(thread);
        self.reports.push((0, LoopReport::default()));
        Ok(())
    }
}
