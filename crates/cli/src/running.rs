//! A server that runs: what it prints, what it does at a signal, and how it leaves its place to a
//! successor, a new process that reads the configuration as it is by then.

mod overloads;
mod printer;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use weir_admin::{AdminListener, Lifecycle, SocketGuard};
use weir_observe::OwnPage;
use weir_server::{
    Address, Config, ErrorLog, LogTarget, PASSED_ON_TO_NOBODY, Predecessor, Program, START_MAX,
    Server, Signal, architecture, follow, readiness, stats,
};

use crate::manager::{self, Watchdog};
use crate::options::ServerOptions;
use crate::print::say;
use crate::values::OnOff;
use overloads::Overloads;
use printer::Printer;

/// Ways in which a server's statistics come out, besides its page, and the server before it.
pub(crate) struct Outputs {
    stats_json: Option<PathBuf>,
    admin: Option<NamedListener>,
    predecessor: Option<Predecessor>,
}

/// The admin address, and its name for a successor.
struct NamedListener {
    listener: AdminListener,
    name: String,
}

impl Outputs {
    /// Takes them from the options, and listens on the admin address, by the predecessor's socket
    /// if that has one.
    pub(crate) fn of(
        options: &ServerOptions,
        mut predecessor: Option<Predecessor>,
    ) -> Result<Self, String> {
        let stats_json = options.stats_json.clone();
        let Some(address) = &options.admin else {
            return Ok(Self { stats_json, admin: None, predecessor });
        };
        check_admin(options)?;
        let (name, path) = match address {
            Address::Tcp(address) | Address::Tls(address) => (format!("admin tcp:{address}"), None),
            Address::Unix(path) => (format!("admin unix:{}", path.display()), Some(&**path)),
        };
        let theirs = predecessor.as_mut().and_then(|last| last.take(&name));
        let listener = match (address, theirs) {
            (_, Some(socket)) => AdminListener::adopt(socket, path),
            (Address::Tcp(address) | Address::Tls(address), None) => AdminListener::tcp(*address),
            (Address::Unix(path), None) => AdminListener::unix(path),
        };
        let listener = listener.map_err(|error| format!("--admin: {address}: {error}"))?;
        Ok(Self { stats_json, admin: Some(NamedListener { listener, name }), predecessor })
    }
}

/// Checks what can be known of the admin address before there is a socket.
///
/// # Errors
/// A sentence.
pub(crate) fn check_admin(options: &ServerOptions) -> Result<(), String> {
    match options.admin {
        None => Ok(()),
        Some(_) if options.stat_page == OnOff::Off => {
            let why =
                "--admin shows the page of statistics, which --stat-page=off does not publish";
            Err(why.into())
        }
        Some(Address::Tls(_)) => Err("--admin speaks no TLS".into()),
        Some(Address::Tcp(_) | Address::Unix(_)) => Ok(()),
    }
}

/// A configuration, and a number that another one does not have.
pub(crate) struct Fingerprinted {
    pub config: Config,
    pub fingerprint: u64,
}

/// Source of a configuration.
pub(crate) type ReadAgain = fn() -> Result<Fingerprinted, String>;

/// Runs a server. `what`: what it serves; `read_again`: reads its configuration once more.
///
/// # Errors
/// A sentence: the server does not start.
pub(crate) fn run(
    Fingerprinted { config, fingerprint }: Fingerprinted,
    what: &str,
    outputs: Outputs,
    read_again: ReadAgain,
) -> Result<ExitCode, String> {
    let Outputs { stats_json, admin, predecessor } = outputs;
    let is_first = predecessor.is_none();
    let loops = config.workers;
    let how = how(config.arch.row(), config.mechanism.row());
    let bench_endpoints = config.bench_endpoints;
    let errors = config.errors.clone();
    let logs_to_stdout =
        config.access_log.as_ref().is_some_and(|log| log.target == LogTarget::Stdout);
    let gaps = [weir_server::sandbox_gap(&config), weir_server::compression_gap(&config)];
    let mut server = Server::start(config, predecessor).map_err(|error| error.to_string())?;
    let lifecycle = Lifecycle::default();
    let admin_url = admin.as_ref().map(|admin| admin.listener.url().to_owned());
    let admin = match serve(&mut server, admin, &lifecycle) {
        Ok(admin) => admin,
        Err(why) => {
            server.give_up();
            return Err(why);
        }
    };
    let loops = if loops == 1 { "1 loop".into() } else { format!("{loops} loops") };
    let status = format!("serving {what} on {} ({how}, {loops})", server.addresses());
    announce(&status, logs_to_stdout);
    errors.info(&status);
    if let Some(url) = admin_url {
        say(&format!("the admin address is {url}"));
    }
    if bench_endpoints {
        say("--bench-endpoints is on: whoever can connect can make the server burn processor time");
    }
    gaps.iter().flatten().for_each(|gap| say(gap));
    if is_first {
        manager::tell_ready(&status);
    } else {
        // The predecessor has said that it is ready, and who it is.
        manager::tell_status(&status);
    }
    let watchdog = Watchdog::find();
    let overloads = server.stat_page().map(|(layout, words)| OwnPage::new(layout, words));
    let overloads = overloads.map(Overloads::watch);
    let standing = Standing::Serves;
    Running {
        server,
        lifecycle,
        admin,
        status,
        fingerprint,
        read_again,
        watchdog,
        overloads,
        errors,
        standing,
        is_first,
        stats_json,
        printer: Printer::default(),
        has_failed: false,
        began: Instant::now(),
        replacement: None,
    }
    .run_to_end()
}

/// Begins to answer on the admin address, if there is one, and to serve.
fn serve(
    server: &mut Server,
    admin: Option<NamedListener>,
    lifecycle: &Lifecycle,
) -> Result<Option<Admin>, String> {
    let admin = admin.map(|admin| Admin::start(admin, server, lifecycle)).transpose();
    let mut admin = admin.map_err(|why| format!("--admin: {why}"))?;
    // Last: if this server fails before, its predecessor goes on.
    server.serve().map_err(|error| error.to_string())?;
    admin.iter_mut().for_each(|admin| admin.guard.arm());
    Ok(admin)
}

/// Names the mechanism, preceded or replaced by the architecture if that is not the default.
fn how(architecture: &architecture::Row, mechanism: &readiness::Row) -> String {
    let is_usual = architecture.spelling == architecture::TABLE[0].spelling;
    match (is_usual, architecture.takes_mechanism) {
        (true, _) => mechanism.spelling.into(),
        (false, true) => format!("{} over {}", architecture.spelling, mechanism.spelling),
        (false, false) => architecture.spelling.into(),
    }
}

/// Prints the ready line; to standard error if what reads standard output reads the access log.
/// Errors are ignored: serving does not depend on a reader.
fn announce(status: &str, logs_to_stdout: bool) {
    if logs_to_stdout {
        return say(status);
    }
    let mut out = std::io::stdout();
    let _ = writeln!(out, "weir: {status}").and_then(|()| out.flush());
}

/// Prints a report, and writes it to a file if there is to be one.
fn show(report: &stats::Report, json: Option<&Path>, printer: &Printer) {
    printer.print(report.to_table());
    if let Some(path) = json {
        let text = format!("{:#}\n", report.to_json());
        if let Err(error) = std::fs::write(path, text) {
            printer.print(format!("weir: cannot write {}: {error}\n", path.display()));
        }
    }
}

/// The admin address of a running server.
struct Admin {
    /// Its name for a successor, and its socket.
    name: String,
    socket: OwnedFd,
    guard: SocketGuard,
}

impl Admin {
    /// Begins to answer on the admin address, from the server's page of statistics.
    ///
    /// # Errors
    /// A sentence: there is no page, or no thread.
    fn start(admin: NamedListener, server: &Server, lifecycle: &Lifecycle) -> Result<Self, String> {
        let NamedListener { listener, name } = admin;
        let (layout, words) = server.stat_page().ok_or("there is no memory for the statistics")?;
        let failed = |error: std::io::Error| format!("no thread can be started: {error}");
        let socket = listener.try_clone_socket().map_err(failed)?;
        let page = OwnPage::new(layout, words);
        let started = server.confined(|| listener.start(lifecycle, page));
        let guard = started.map_err(|error| error.to_string())?.map_err(failed)?;
        Ok(Self { name, socket, guard })
    }
}

/// A server's place in the succession.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It serves.
    Serves,
    /// It serves, and a successor starts. `again`: another one has been asked for meanwhile, by
    /// this program, with a configuration that the first may not have seen.
    IsSucceeded { again: Option<Program> },
    /// A successor serves.
    Ends,
}

struct Running {
    server: Server,
    lifecycle: Lifecycle,
    admin: Option<Admin>,
    status: String,
    fingerprint: u64,
    read_again: ReadAgain,
    watchdog: Option<Watchdog>,
    overloads: Option<Overloads>,
    errors: ErrorLog,
    standing: Standing,
    /// True if it has no predecessor.
    is_first: bool,
    stats_json: Option<PathBuf>,
    printer: Printer,
    /// True if a successor has failed after it had taken over.
    has_failed: bool,
    began: Instant,
    /// Time at which a successor is to be started, because a worker is lost.
    replacement: Option<Instant>,
}

/// Age of a server before which it is not replaced because a worker is lost: what kills one may
/// kill the next.
const REPLACED_AFTER: Duration = Duration::from_secs(1);

/// Time until that is tried again, if the successor fails.
const REPLACED_AGAIN_AFTER: Duration = Duration::from_secs(10);

impl Running {
    /// Runs the server until every loop has ended. The first process then follows its successors,
    /// unless a service manager knows their process ids.
    fn run_to_end(mut self) -> Result<ExitCode, String> {
        while self.handle_next() {}
        let Self { server, admin, standing, is_first, stats_json, printer, has_failed, .. } = self;
        let has_successor = standing == Standing::Ends;
        // The file is the successor's to write.
        let json = stats_json.as_deref().filter(|_| !has_successor);
        show(&server.finish(), json, &printer);
        drop(admin);
        printer.finish();
        let mut code = 0;
        if has_successor && is_first && !manager::follows_successors() {
            code = follow().map_err(|error| error.to_string())?;
        }
        Ok(ExitCode::from(code.max(has_failed.into())))
    }

    /// Does what the operator asks for by the next signal; returns false once every loop has ended.
    fn handle_next(&mut self) -> bool {
        let sign = self.watchdog.as_ref().map(Watchdog::next);
        let reading = self.overloads.as_ref().map(Overloads::due);
        let until = sign.into_iter().chain(reading).chain(self.replacement).min();
        let signal = self.server.wait(until);
        self.tell_overload();
        self.replace_worker();
        // A manager signals the successor itself.
        if self.standing == Standing::Ends && self.is_first && !manager::follows_successors() {
            self.pass_on(&signal);
        }
        match signal {
            Signal::ShowReport if self.standing != Standing::Ends => {
                show(&self.server.report(), self.stats_json.as_deref(), &self.printer);
            }
            Signal::Reload => self.reload(),
            Signal::Upgrade => {
                if self.standing == Standing::Serves {
                    manager::tell_reloading();
                }
                self.succeed(Program::Installed);
            }
            Signal::Stop => self.stop(),
            Signal::Succession(Ok(pid)) => self.leave_to(pid),
            Signal::Succession(Err(why)) => self.go_on(&why),
            // Its children end after it, and tell of it once more.
            Signal::SuccessorFailed(_) if self.has_failed => {}
            Signal::SuccessorFailed(how) => {
                self.errors.error(&format!("the server that has taken over has ended with {how}"));
                self.has_failed = true;
                self.stop();
            }
            Signal::TimedOut => self.give_sign_of_life(),
            Signal::ShowReport => {}
            Signal::WorkerLost => {
                let at = Instant::now().max(self.began + REPLACED_AFTER);
                self.replacement = self.server.lacks_worker().then_some(at);
                self.server.await_workers(self.replacement.is_some());
            }
            Signal::Ended => {
                let was_told = self.standing == Standing::Ends || self.server.is_ending();
                self.has_failed |= !was_told;
                return false;
            }
        }
        true
    }

    /// Leaves to a new process, once it is time, since a worker is lost, and with it the socket
    /// that it alone has accepted from.
    fn replace_worker(&mut self) {
        if self.replacement.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.replacement = None;
        if self.standing == Standing::Serves && self.server.lacks_worker() {
            manager::tell_reloading();
            self.succeed(Program::Same);
        }
    }

    fn stop(&mut self) {
        if self.standing != Standing::Ends {
            manager::tell_stopping();
            self.errors.info("stopping: open connections are finished");
            self.standing = Standing::Serves;
        }
        self.replacement = None;
        self.lifecycle.stop();
        self.server.stop();
    }

    /// Opens the log again, and leaves to a successor if the configuration has changed.
    fn reload(&mut self) {
        if self.standing == Standing::Ends {
            return;
        }
        manager::tell_reloading();
        let failures = self.server.reopen_logs().err().unwrap_or_default();
        failures.iter().for_each(|why| self.errors.error(why));
        if let Err(error) = self.server.reload_certificates() {
            self.errors.error(&format!("the certificates stay as they were: {error}"));
        }
        if self.standing != Standing::Serves {
            // The one that starts may have read an earlier configuration.
            return self.succeed(Program::Same);
        }
        match self.read_fingerprint() {
            Ok(fingerprint) if fingerprint == self.fingerprint => {
                let logs =
                    if failures.is_empty() { ", and the logs were opened again" } else { "" };
                self.errors.notice(&format!("the configuration is the same{logs}"));
                manager::tell_ready(&self.status);
            }
            Ok(_) => self.succeed(Program::Same),
            Err(why) => self.go_on(&why),
        }
    }

    /// Reads the configuration once more, and returns its fingerprint. Names in it may take long to
    /// resolve: the manager is told meanwhile that the server lives.
    fn read_fingerprint(&mut self) -> Result<u64, String> {
        let (sender, result) = mpsc::sync_channel(1);
        let read_again = self.read_again;
        let read = move || {
            weir_server::settle_at_end();
            drop(sender.send(read_again().map(|new| new.fingerprint)));
        };
        let thread = thread::Builder::new().name("weir-read".into()).spawn(read);
        thread.map_err(|error| format!("no thread can be started: {error}"))?;
        let until = Instant::now() + START_MAX;
        loop {
            let now = Instant::now();
            if now >= until {
                let limit_s = START_MAX.as_secs();
                return Err(format!("the configuration could not be read within {limit_s} s"));
            }
            let next = self.watchdog.as_ref().map_or(until, |watchdog| watchdog.next().min(until));
            match result.recv_timeout(next.saturating_duration_since(now)) {
                Ok(read) => return read,
                Err(RecvTimeoutError::Timeout) => self.give_sign_of_life(),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the configuration could not be read".into());
                }
            }
        }
    }

    /// Starts a successor.
    fn succeed(&mut self, program: Program) {
        match &mut self.standing {
            Standing::Ends => return,
            Standing::IsSucceeded { again } => {
                // An installed program reads the configuration too.
                if *again != Some(Program::Installed) {
                    *again = Some(program);
                }
                return;
            }
            Standing::Serves => {}
        }
        let sockets: Vec<_> =
            self.admin.iter().map(|admin| (admin.name.as_str(), admin.socket.as_fd())).collect();
        match self.server.begin_succession(program, &sockets) {
            Ok(()) => self.standing = Standing::IsSucceeded { again: None },
            Err(why) => self.go_on(&why),
        }
    }

    /// Goes on, because the configuration is wrong, or a successor could not serve.
    fn go_on(&mut self, why: &str) {
        self.errors.error(&format!("nothing was changed: {why}"));
        manager::tell_ready(&self.status);
        if let Standing::IsSucceeded { again } = self.standing {
            self.standing = Standing::Serves;
            if let Some(program) = again {
                self.succeed(program);
            }
        }
        // Without any other worker it ends.
        self.server.await_workers(false);
        if self.standing == Standing::Serves && self.server.lacks_worker() {
            self.replacement = Some(Instant::now() + REPLACED_AGAIN_AFTER);
        }
    }

    /// Leaves everything to a successor that serves.
    fn leave_to(&mut self, pid: u32) {
        let own = std::process::id();
        let text = format!("process {pid} serves from now on, and {own} finishes what it has");
        self.errors.notice(&text);
        self.lifecycle.hand_over();
        self.server.await_workers(false);
        if let Some(mut admin) = self.admin.take() {
            admin.guard.leave();
        }
        if manager::follows_successors() {
            // Orders so far went to this process, for want of another.
            self.server.pass_orders_on();
        }
        manager::tell_succeeded(pid);
        self.server.release_successor();
        // Its signs of life are the successor's to give, and so are overloads to tell of.
        self.watchdog = None;
        self.overloads = None;
        let again = match self.standing {
            Standing::IsSucceeded { again } => again,
            Standing::Serves | Standing::Ends => None,
        };
        self.standing = Standing::Ends;
        match again {
            Some(Program::Installed) => self.pass_on(&Signal::Upgrade),
            Some(Program::Same) => self.pass_on(&Signal::Reload),
            None => {}
        }
    }

    fn pass_on(&self, signal: &Signal) {
        if !signal.pass_on() {
            self.errors.error(PASSED_ON_TO_NOBODY);
        }
    }

    /// Tells the manager that the server lives, if every loop has gone round since the last time.
    fn give_sign_of_life(&mut self) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|it| it.next() <= Instant::now()) else {
            return;
        };
        let is_alive = self.server.loops_have_answered();
        if !is_alive {
            self.server.tell_stalls(watchdog.interval());
        }
        watchdog.tell(is_alive);
        self.server.ask_loops();
    }

    /// Tells the log of an overload that has begun or ended.
    fn tell_overload(&mut self) {
        let Some(overloads) = self.overloads.as_mut() else { return };
        if let Some(sentence) = overloads.check(Instant::now()) {
            self.errors.warn(&sentence);
        }
    }
}
