//! Starting the loops, handling signals, stopping. The main thread serves no connection.

use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_stats::page::{Layout, Words};
use weir_stats::{LoopReport, Report};
use weir_sys::poll::{self, POLLIN, PollFd};
use weir_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};
use weir_sys::socket_file::SocketFile;
use weir_sys::waker::Waker;
use weir_sys::{process, profile};

use crate::architecture::ArchitectureName;
use crate::bind;
use crate::config::{Address, Config, Error};
use crate::context::log::LogWriter;
use crate::control::{Control, Phase, WorkerReport};
use crate::http::bench;
use crate::limits;
use crate::models::prefork::{self, MasterHandle};
use crate::models::start::{StartWorker, WorkerSpec};
use crate::stat_page::{NewPage, Publisher, StatPage};
use crate::upstream::checker::HealthChecker;
use crate::upstream::shared::SharedUpstreams;
use crate::worker::listener::Socket;

/// Size of the descriptor table at the start, which takes half a megabyte in the kernel. Beyond it,
/// the table rarely has to grow.
const DESCRIPTORS_AT_START: u64 = 65_536;

/// Maximum wait for the counters of the loops.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// Event in a running server, most often a request of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGUSR1: show the counters.
    ShowReport,
    /// SIGHUP: reopen the access log, and read the certificates again.
    ReopenLog,
    /// SIGTERM or SIGINT: finish open connections; the second time, close them.
    Stop,
    /// No signal: all loops have ended.
    Ended,
}

/// Number of workers that have ended, and a waker that each of them uses.
#[derive(Debug)]
struct EndedWorkers {
    waker: Waker,
    count: AtomicUsize,
}

impl EndedWorkers {
    fn new() -> std::io::Result<Self> {
        Ok(Self { waker: Waker::new()?, count: AtomicUsize::new(0) })
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

/// Lets the system calls be timed, if that is configured.
fn time_calls(config: &Config) {
    if config.profile_calls {
        profile::enable();
    }
    if config.phase_times {
        profile::time_calls();
    }
}

/// Starts the writer of the access log, if there is one.
fn start_log(config: &Config) -> Result<Option<LogWriter>, Error> {
    let Some((target, format)) = config.access_log.clone() else { return Ok(None) };
    LogWriter::start(target, format, config.tell).map(Some)
}

fn page_of(new: Option<&NewPage>) -> Option<&StatPage> {
    new.map(|new| &new.page)
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<Address>,
    socket_files: Vec<SocketFile>,
    controls: Vec<Arc<Control>>,
    loops: Vec<JoinHandle<()>>,
    incoming: Receiver<WorkerReport>,
    /// Last report of each loop, with the number of the request it answered.
    reports: Vec<(u64, LoopReport)>,
    report_request: u64,
    ended: Arc<EndedWorkers>,
    signals: SignalFd,
    log: Option<LogWriter>,
    config: Arc<Config>,
    upstreams: Option<Arc<SharedUpstreams>>,
    /// The checks of upstreams, if there are any.
    checker: Option<HealthChecker>,
    /// The page of statistics; its file is removed with it.
    stat_page: Option<NewPage>,
    start: Instant,
    stop_requests: u32,
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
        // First: the descriptors of LISTEN_FDS have fixed numbers, which others must not take.
        let mut listeners = bind::open(&mut config)?;
        let signals = SignalFd::block(&[SIGTERM, SIGINT, SIGUSR1, SIGHUP]).map_err(failed)?;
        time_calls(&config);
        let forks = config.arch == ArchitectureName::Processes;
        if forks {
            // The children of a worker share its sockets.
            listeners.per_loop.iter_mut().flatten().for_each(|socket| socket.own = false);
        }
        limits::fit(&mut config, listeners.addresses.len());
        if !forks {
            // Growing the table later would pause every thread.
            let files = config.content.open_files_max.saturating_mul(config.workers.max(1) as u64);
            let room = files.saturating_add(config.conns_max as u64);
            let _ = process::grow_descriptor_table(room.min(DESCRIPTORS_AT_START));
        }
        config.policy.syn_filter =
            limits::syn_filter(&config, listeners.per_loop.iter().flatten())?;
        config.policy.eager =
            config.strategy.eager_read && config.arch.serves_at_once(&config.arch_settings);
        let config = Arc::new(config);
        let children = if forks { prefork::pool_size::children(&config) } else { 0 };
        let stat_page = StatPage::create(&config, &listeners.addresses, children);
        // Before there is any thread.
        let sockets = std::mem::take(&mut listeners.per_loop);
        let (masters, sockets) = if forks {
            (prefork::fork_masters(&config, sockets, page_of(stat_page.as_ref()))?, Vec::new())
        } else {
            (Vec::new(), sockets)
        };
        let log = if forks { None } else { start_log(&config)? };
        let upstreams = SharedUpstreams::of(&config);
        let (report_sender, incoming) = channel();
        let ended = Arc::new(EndedWorkers::new().map_err(failed)?);
        let mut server = Self {
            addresses: listeners.addresses,
            socket_files: listeners.files,
            controls: Vec::new(),
            loops: Vec::new(),
            incoming,
            reports: Vec::new(),
            report_request: 0,
            ended,
            signals,
            log,
            config: Arc::clone(&config),
            checker: HealthChecker::start(&config, upstreams.as_ref()).map_err(failed)?,
            upstreams,
            stat_page,
            start: Instant::now(),
            stop_requests: 0,
        };
        for (index, sockets) in sockets.into_iter().enumerate() {
            server.start_loop(index, sockets, &config, &report_sender)?;
        }
        for (index, master) in masters.into_iter().enumerate() {
            server.start_relay(index, master, config.tell, &report_sender)?;
        }
        if let Some(new) = &server.stat_page {
            new.publish(config.tell);
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

    /// Returns the page of statistics for a reader in this process, with its layout, whether other
    /// processes find the page or not; `None` if there is none.
    pub fn stat_page(&self) -> Option<(Layout, Arc<dyn Words + Send + Sync>)> {
        let page = page_of(self.stat_page.as_ref())?.clone();
        Some((page.layout().clone(), Arc::new(page)))
    }

    /// Waits for the next signal, or for the end of every loop.
    pub fn wait(&self) -> Signal {
        loop {
            if self.ended.count.load(Ordering::Acquire) == self.loops.len() {
                return Signal::Ended;
            }
            let watch = |fd| PollFd { fd, events: POLLIN, revents: 0 };
            let waker = &self.ended.waker;
            let mut fds = [watch(self.signals.raw()), watch(waker.as_fd().as_raw_fd())];
            // If the wait fails, the loops are checked again a little later.
            let _ = poll::poll(&mut fds, Some(Duration::from_secs(1)));
            self.reload_changed_certificates();
            if fds[1].revents != 0 {
                waker.clear();
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

    /// Tells every loop to finish its open connections and end; the second time, to end now.
    pub fn stop(&mut self) {
        self.stop_requests += 1;
        let phase = if self.stop_requests == 1 { Phase::Drain } else { Phase::Stop };
        self.controls.iter().for_each(|control| control.set_phase(phase));
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

    fn reload_changed_certificates(&self) {
        match self.config.tls.as_ref().and_then(|tls| tls.reload_if_changed()) {
            None => {}
            // Child processes have certificates of their own.
            Some(Ok(())) => self.controls.iter().for_each(|control| control.request_reopen()),
            Some(Err(error)) => {
                (self.config.tell)(&format!("the certificates stay as they were: {error}"));
            }
        }
    }

    /// Reopens the access log, because it was moved. Returns false if its writer is stuck.
    pub fn reopen_log(&self) -> bool {
        // Child processes write the log themselves.
        self.controls.iter().for_each(|control| control.request_reopen());
        self.log.as_ref().is_none_or(LogWriter::reopen)
    }

    /// Returns the counters of every loop so far. A loop too busy to answer within two seconds is
    /// shown as of its last answer.
    pub fn report(&mut self) -> Report {
        self.report_request += 1;
        self.controls.iter().for_each(|control| control.request_report(self.report_request));
        let deadline = Instant::now() + REPORT_WAIT;
        while self.reports.iter().any(|(report_request, _)| *report_request < self.report_request) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(answer) = self.incoming.recv_timeout(left) else { break };
            self.reports[answer.index] = (answer.report_request, answer.report);
        }
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
        incoming: &Sender<WorkerReport>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error(format!("cannot start a loop: {error}"));
        let control = Arc::new(Control::new(index, incoming.clone()).map_err(failed)?);
        let spec = WorkerSpec {
            index,
            sockets,
            config: Arc::clone(config),
            control: Arc::clone(&control),
            publisher: page_of(self.stat_page.as_ref())
                .map_or_else(Publisher::default, |page| page.of_worker(index)),
            log: self.log.as_ref().map(LogWriter::buffer),
            upstreams: self.upstreams.clone(),
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

    /// Starts the thread that represents a worker's processes.
    fn start_relay(
        &mut self,
        index: usize,
        master: MasterHandle,
        tell: fn(&str),
        incoming: &Sender<WorkerReport>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error(format!("cannot start a loop: {error}"));
        let control = Arc::new(Control::new(index, incoming.clone()).map_err(failed)?);
        let (commands, ended) = (Arc::clone(&control), Arc::clone(&self.ended));
        let thread = std::thread::Builder::new()
            .name(format!("weir-{index}"))
            .spawn(move || {
                let _end = EndGuard(ended);
                master.relay(&commands, tell);
            })
            .map_err(failed)?;
        self.controls.push(control);
        self.loops.push(thread);
        self.reports.push((0, LoopReport::default()));
        Ok(())
    }
}
