//! Succession: a server that starts in the place of another one takes over its listening sockets,
//! and the other finishes what it has. No connection that waits in a queue is lost, and an address
//! is never without a listener.
//!
//! The predecessor starts its successor with a channel as standard input ([`Channel`]) and passes
//! the sockets there, each with its address. While both have them, only the predecessor bounds
//! their queues and filters what comes to them. Once the successor serves it says so; the
//! predecessor then closes its sockets, and says that. If the successor fails before, it says why,
//! and nothing has changed: it has accepted no connection and removed no file, and no socket of its
//! own has taken one.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_sys::descent::{self, Reaped};
use weir_sys::hand_over::Channel;
use weir_sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SignalFd};
use weir_sys::socket_file::SocketFile;
use weir_sys::{privileged, process};

use crate::config::{Address, Error};
use crate::user;

/// Variable that tells a successor the process id of its predecessor, its parent.
const VARIABLE: &str = "WEIR_PREDECESSOR";

/// Variable by which a service manager says whose signs of life it expects
/// (sd_watchdog_enabled(3)).
const WATCHDOG_VARIABLE: &str = "WATCHDOG_PID";

/// Time within which a successor must serve. It may have a root to open on a slow disk, or names to
/// resolve.
pub const START_MAX: Duration = Duration::from_secs(30);

/// Time for which a successor waits for each line of its predecessor.
const LINE_WAIT: Duration = Duration::from_secs(5);

/// Time for which a successor that has closed the channel may take to end.
const END_WAIT: Duration = Duration::from_secs(2);

/// Lines of the channel, and first words of those with something behind them.
const PROGRAM: &str = "program";
const FIRST: &str = "first";
const TICKET_KEYS: &str = "ticket-keys";
const END: &str = "end";
const READY: &str = "ready";
const FAILED: &str = "failed";
const CLOSED: &str = "closed";

/// The opener of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketOrigin {
    /// A weir, for an address of its options.
    Bound,
    /// A service manager.
    Manager,
}

impl SocketOrigin {
    fn word(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Manager => "manager",
        }
    }
}

/// A listening socket of this server, as a successor gets it.
#[derive(Clone, Debug)]
pub(crate) struct KeptSocket {
    pub origin: SocketOrigin,
    pub address: Address,
    pub fd: Arc<OwnedFd>,
    /// False from the bind until this server begins to serve.
    pub listens: bool,
}

/// A listening socket that a predecessor passed.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    pub origin: SocketOrigin,
    pub address: Address,
    pub fd: OwnedFd,
}

/// The program that a successor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The same as this process, whatever has been installed since.
    Same,
    /// The one that is at the same path now.
    Installed,
}

/// The server whose place this process takes.
#[derive(Debug)]
pub struct Predecessor {
    channel: Arc<Channel>,
    has_served: Arc<AtomicBool>,
    program: Option<PathBuf>,
    first_pid: Option<u32>,
    ticket_keys: Option<String>,
    pub(crate) passed: Vec<PassedSocket>,
    others: Vec<(String, OwnedFd)>,
    /// Files of Unix sockets for which this server has no use.
    left: Vec<PathBuf>,
}

/// The way in which a predecessor learns that its successor has failed.
#[derive(Debug)]
pub struct FailureReport {
    channel: Arc<Channel>,
    has_served: Arc<AtomicBool>,
}

impl FailureReport {
    /// Tells the predecessor, which tells the operator. Returns false if it no longer wants to
    /// know.
    pub fn send(&self, sentence: &str) -> bool {
        let is_awaited = !self.has_served.load(Ordering::Relaxed);
        is_awaited && self.channel.send(&format!("{FAILED} {sentence}"), None).is_ok()
    }
}

impl Predecessor {
    /// Returns the predecessor, with all that it passes; `None` if this process was not started by
    /// one. To be called first: the channel is the standard input.
    ///
    /// # Errors
    /// A sentence: it passes nothing that is understood, or stops in the middle.
    pub fn find() -> Result<Option<Self>, Error> {
        let parent = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        if parent != Some(std::os::unix::process::parent_id()) {
            return Ok(None);
        }
        Self::receive()
            .and_then(Self::with_privileges)
            .map(Some)
            .map_err(|why| Error(format!("the sockets of the last server: {why}")))
    }

    fn receive() -> Result<Self, String> {
        let channel = Channel::take_stdin().map_err(|error| error.to_string())?;
        let mut predecessor = Self {
            channel: Arc::new(channel),
            has_served: Arc::default(),
            program: None,
            first_pid: None,
            ticket_keys: None,
            passed: Vec::new(),
            others: Vec::new(),
            left: Vec::new(),
        };
        // Started as /proc/self/exe, it would be shown by that name.
        if let Some(name) = own_program().file_name().and_then(OsStr::to_str) {
            let _ = process::name_thread(name);
        }
        loop {
            let received = predecessor.channel.receive(LINE_WAIT);
            match received.map_err(|error| error.to_string())? {
                Some((line, None)) if line == END => return Ok(predecessor),
                Some((line, Some(fd))) => predecessor.take_socket(&line, fd)?,
                // What a later version says besides is not needed here.
                Some((line, None)) => match line.split_once(' ') {
                    Some((PROGRAM, path)) => predecessor.program = Some(path.into()),
                    Some((FIRST, pid)) => predecessor.first_pid = pid.parse().ok(),
                    Some((TICKET_KEYS, keys)) => predecessor.ticket_keys = Some(keys.to_owned()),
                    _ => {}
                },
                None => return Err("it has ended".into()),
            }
        }
    }

    /// Goes on with its way to the process that keeps the privileges, if it has one: before the
    /// configuration is read.
    fn with_privileges(mut self) -> Result<Self, String> {
        if let Some(channel) = self.take(user::CHANNEL) {
            privileged::adopt(channel).map_err(|error| error.to_string())?;
        }
        Ok(self)
    }

    fn take_socket(&mut self, line: &str, fd: OwnedFd) -> Result<(), String> {
        let (word, name) = line.split_once(' ').ok_or_else(|| format!("'{line}' has no name"))?;
        let origins = [SocketOrigin::Bound, SocketOrigin::Manager];
        match origins.into_iter().find(|origin| origin.word() == word) {
            Some(origin) => {
                let address = address(name).ok_or_else(|| format!("'{name}' is no address"))?;
                self.passed.push(PassedSocket { origin, address, fd });
            }
            None => self.others.push((line.to_owned(), fd)),
        }
        Ok(())
    }

    /// Returns a way to tell it that this server has failed.
    pub fn failure_report(&self) -> FailureReport {
        let Self { channel, has_served, .. } = self;
        FailureReport { channel: Arc::clone(channel), has_served: Arc::clone(has_served) }
    }

    /// Takes a socket that does not serve requests, by its name.
    pub fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let index = self.others.iter().position(|(line, _)| line == name)?;
        Some(self.others.swap_remove(index).1)
    }

    /// Returns the path of the program that was started first, before any reload.
    pub(crate) fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    /// Returns the id of the process that was started first, before any reload.
    pub(crate) fn first_pid(&self) -> u32 {
        self.first_pid.unwrap_or_else(std::os::unix::process::parent_id)
    }

    /// Returns its keys of TLS session tickets.
    pub(crate) fn ticket_keys(&self) -> Option<&str> {
        self.ticket_keys.as_deref()
    }

    /// Closes the sockets for which this server has no address any more: with the predecessor, they
    /// end.
    pub(crate) fn leave_rest(&mut self, rest: Vec<PassedSocket>) {
        let others = self.others.drain(..).filter_map(|(line, _)| address(line.split_once(' ')?.1));
        let left = rest.into_iter().map(|passed| passed.address).chain(others);
        self.left = left
            .filter_map(|address| match address {
                Address::Unix(path) => Some(path),
                Address::Tcp(_) | Address::Tls(_) => None,
            })
            .collect();
    }

    /// Tells the predecessor that this server serves, and waits until it has closed its sockets, or
    /// has ended.
    pub(crate) fn relieve(self) {
        self.has_served.store(true, Ordering::Relaxed);
        if self.channel.send(READY, None).is_ok() {
            // If it ends instead of saying so, it no longer touches them either.
            let _ = self.channel.receive(START_MAX);
        }
        self.left.iter().for_each(|path| SocketFile::new(path).remove());
    }
}

/// Returns the name of an address in the channel.
fn name(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!("tcp:{address}"),
        Address::Tls(address) => format!("tls:{address}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// Returns the address that a name means.
fn address(name: &str) -> Option<Address> {
    match name.strip_prefix("unix:") {
        Some(path) => Some(Address::Unix(path.into())),
        None => match name.split_once(':')? {
            ("tcp", address) => address.parse().ok().map(Address::Tcp),
            ("tls", address) => address.parse().ok().map(Address::Tls),
            _ => None,
        },
    }
}

/// Things that a successor inherits.
pub(crate) struct Heritage<'a> {
    /// Path of the program that was started first.
    pub installed: &'a Path,
    /// Id of the process that was started first.
    pub first_pid: u32,
    pub kept: &'a [KeptSocket],
    /// Sockets besides those that serve requests, each with a name of two words.
    pub others: &'a [(&'a str, BorrowedFd<'a>)],
    /// Keys of TLS session tickets.
    pub ticket_keys: Option<String>,
}

/// A server that takes the place of this process.
#[derive(Debug)]
pub(crate) struct Successor {
    process: Child,
    channel: Channel,
    until: Instant,
}

impl Successor {
    /// Starts a program with the arguments of this process, and passes what it inherits.
    pub(crate) fn start(program: &OsStr, heritage: &Heritage<'_>) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        // Before there is one, so that none is missed.
        descent::adopt_orphans().map_err(failed)?;
        let [ours, theirs] = Channel::pair().map_err(failed)?;
        let mut command = Command::new(program);
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        command
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, std::process::id().to_string())
            .env_remove(WATCHDOG_VARIABLE)
            .stdin(Stdio::from(theirs.into_fd()))
            // A key of the terminal is for this process, which passes it on.
            .process_group(0);
        let process = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        // The command holds the other end of the channel.
        drop(command);
        let mut successor = Self { process, channel: ours, until: Instant::now() + START_MAX };
        match successor.pass(heritage) {
            Ok(()) => Ok(successor),
            Err(error) => Err(successor.blame(&error.to_string())),
        }
    }

    fn pass(&self, heritage: &Heritage<'_>) -> std::io::Result<()> {
        self.channel.send(&format!("{PROGRAM} {}", heritage.installed.display()), None)?;
        self.channel.send(&format!("{FIRST} {}", heritage.first_pid), None)?;
        if let Some(keys) = &heritage.ticket_keys {
            self.channel.send(&format!("{TICKET_KEYS} {keys}"), None)?;
        }
        for KeptSocket { origin, address, fd, .. } in heritage.kept {
            let line = format!("{} {}", origin.word(), name(address));
            self.channel.send(&line, Some(fd.as_fd()))?;
        }
        for (name, fd) in heritage.others {
            self.channel.send(name, Some(*fd))?;
        }
        self.channel.send(END, None)
    }

    /// Returns the descriptor that becomes readable when the successor serves, or fails.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    /// Returns the time by which it must serve.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Returns whether the successor serves, or why it does not; `None` if that is not known yet.
    /// One that does not is ended.
    pub(crate) fn outcome(&mut self) -> Option<Result<(), String>> {
        match self.channel.receive(Duration::ZERO) {
            Ok(Some((line, _))) if line == READY => Some(Ok(())),
            Ok(Some((line, _))) => {
                let why = line.strip_prefix(FAILED).unwrap_or(&line).trim_start().to_owned();
                self.end();
                Some(Err(why))
            }
            Ok(None) => Some(Err(self.blame("it said nothing"))),
            Err(_) if Instant::now() < self.until => None,
            Err(_) => Some(Err(self.blame("it took too long"))),
        }
    }

    /// Ends a successor that does not serve, and says why it does not.
    fn blame(&mut self, why: &str) -> String {
        let has_ended = Instant::now() < self.until
            && descent::await_end(self.process.id(), END_WAIT).unwrap_or(false);
        if has_ended && let Ok(status) = self.process.wait() {
            return format!("it ended with {status}");
        }
        self.end();
        why.to_owned()
    }

    /// Ends it, whatever it does.
    pub(crate) fn end(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns how it ended if it has failed since it began to serve.
    pub(crate) fn failure(&mut self) -> Option<String> {
        let status = self.process.try_wait().ok().flatten()?;
        (!status.success()).then(|| format!("{status}"))
    }

    /// Tells the successor that this process no longer touches the sockets.
    pub(crate) fn note_closed(&self) {
        // If it has ended meanwhile, there is nobody to tell.
        let _ = self.channel.send(CLOSED, None);
    }
}

/// Returns the path of this process's program; one that was replaced since is called so by the
/// kernel (proc(5), /proc/pid/exe).
pub(crate) fn own_program() -> PathBuf {
    let path = std::env::current_exe().unwrap_or_default();
    let text = path.to_str().and_then(|text| text.strip_suffix(" (deleted)"));
    text.map_or_else(|| path.clone(), Into::into)
}

/// Asks a server to start a successor from the program that is installed now
/// ([`Signal::Upgrade`](crate::Signal)).
///
/// # Errors
/// ESRCH: there is no such process; EPERM: it is another user's.
pub fn ask_to_upgrade(pid: u32) -> std::io::Result<()> {
    descent::signal(pid, SIGUSR2)
}

/// Passes a signal on to the servers that have taken this one's place: to all of them, since one
/// that is about to end passes nothing on. One that does not wait for signals yet would end by it;
/// the one that has started it knows what to do. Returns whether any was seen: /proc may hide
/// them.
pub(crate) fn pass_on(signal: i32) -> bool {
    let waits = |pid: &u32| descent::blocks(*pid, signal);
    let successors = descent::descendants_of(std::process::id());
    for pid in successors.iter().copied().filter(waits) {
        // One that has just ended needs no signal.
        let _ = descent::signal(pid, signal);
    }
    !successors.is_empty()
}

/// Message for the operator where a signal is passed on to nobody.
pub const PASSED_ON_TO_NOBODY: &str = "a signal is not passed on: the server that has taken over \
    is not seen in /proc (hidepid, proc(5)); signal that one";

/// Follows the servers that take this process's place, one after the other, once this one serves no
/// more: passes on the signals for them, and returns the exit code of the last. So the process that
/// an operator or a supervisor started stays the one to talk to.
///
/// # Errors
/// A sentence: signals cannot be waited for.
pub fn follow() -> Result<u8, Error> {
    let failed = |error: std::io::Error| Error(format!("cannot follow the next server: {error}"));
    let signals = [SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD];
    let signals = SignalFd::block(&signals).map_err(failed)?;
    let mut last = 0;
    // It ends when its last server does, and may be this process's child by then.
    privileged::close();
    loop {
        match descent::reap() {
            Reaped::Ended(privileged::EXIT_STATUS) => {}
            Reaped::Ended(code) => last = code,
            Reaped::NoChild => return Ok(last),
            Reaped::AllRun => match signals.next().map_err(failed)? {
                SIGCHLD => {}
                number if !pass_on(number) => {
                    // The logs are the successor's.
                    let _ = writeln!(std::io::stderr(), "weir: {PASSED_ON_TO_NOBODY}");
                }
                _ => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_understood_as_it_is_named() {
        let tcp = ["127.0.0.1:80", "[::1]:8080"].map(|text| Address::Tcp(text.parse().unwrap()));
        let tls = tcp.clone().map(|each| match each {
            Address::Tcp(address) => Address::Tls(address),
            other => other,
        });
        for each in tcp.into_iter().chain(tls).chain([Address::Unix("/run/a socket".into())]) {
            assert_eq!(address(&name(&each)), Some(each));
        }
        assert_eq!((address("127.0.0.1:80"), address("tcp:example.org:80")), (None, None));
    }
}
