//! A server process: started, found by its ready line, signalled, stopped.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{SocketAddrUnix, getpeername, getsockname, sockopt};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_getfd,
    pidfd_open, prlimit,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::address::Address;
use crate::family::family_of;
use crate::output::Output;
use crate::wait::{TIMEOUT, until};
use crate::{Client, Reply};

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// Addresses from the ready line, in its order.
    pub addresses: Vec<Address>,
    /// The ready line, without its newline.
    pub ready: String,
    stdout: Output,
    stderr: Output,
    stats: PathBuf,
    dir: TempDir,
}

/// Result of an attempt to start a server.
pub enum Attempt {
    /// It is ready and serves.
    Serves(Server),
    /// It ended before it was ready.
    Refused(Stopped),
}

/// A process that has ended.
#[derive(Debug)]
pub struct Stopped {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    stats: Option<String>,
}

/// Options for tests in which several clients are served at once: a machine that stands still for a
/// moment, or is busy with other tests, is no overload, and nobody is refused for having waited.
pub const UNHURRIED: [&str; 2] = ["--delay-target", "1m"];

/// Options for tests of overloads: the time that a client may wait by default, which a server of a
/// set-up does not have of itself.
pub const HURRIED: [&str; 2] = ["--delay-target", "20ms"];

impl Server {
    /// Starts `weir serve` on `root` with `options`. Unless they name a listener, it listens on a
    /// free port of 127.0.0.1. Returns when the server is ready.
    ///
    /// # Panics
    /// When the process ends, or prints nothing, before it is ready.
    pub fn start(weir: &str, options: &[&str], root: impl AsRef<Path>) -> Server {
        let mut command = Command::new(weir);
        command.arg("serve").arg(root.as_ref()).args(options);
        if !options.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        Server::spawn(command)
    }

    /// Starts `weir proxy` in front of the servers at `urls`, on a free port of 127.0.0.1. However
    /// slow the machine, it keeps connections to them, unless `options` say which it keeps.
    pub fn proxy(weir: &str, urls: &[&str], options: &[&str]) -> Server {
        let mut command = Command::new(weir);
        command.arg("proxy").args(urls).args(options).args(["--listen", "127.0.0.1:0"]);
        if !options.iter().any(|option| option.starts_with("--keep-idle")) {
            command.args(["--keep-idle", "256"]);
        }
        Server::spawn(command)
    }

    /// Like [`Server::start`], through a shell that runs `script` with the server's command line as
    /// its arguments: `exec "$@"` replaces the shell by the server.
    pub fn start_in_shell(script: &str, stdin: Stdio, arguments: &[&str]) -> Server {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(arguments).stdin(stdin);
        Server::spawn(command)
    }

    fn spawn(mut command: Command) -> Server {
        match attempt(&mut command) {
            Attempt::Serves(server) => server,
            Attempt::Refused(stopped) => panic!("no ready line; stderr: {}", stopped.stderr),
        }
    }

    /// Returns the first address.
    pub fn address(&self) -> &Address {
        &self.addresses[0]
    }

    /// Returns `host:port` of the first address.
    pub fn authority(&self) -> String {
        match self.address() {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => panic!("{} has no port", path.display()),
        }
    }

    /// Opens a connection to the first address.
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Returns the reply to a GET on a new connection.
    pub fn get(&self, target: &str) -> Reply {
        self.connect().get(target)
    }

    /// Returns the reply to a GET with `fields` on a new connection.
    pub fn get_with(&self, target: &str, fields: &[&str]) -> Reply {
        self.connect().get_with(target, fields)
    }

    /// Sends a signal to the process that was started.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Returns the process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the number of connections to its addresses that the server's processes hold
    /// together. Connections without a descriptor (a ring's) are not visible:
    /// [`Stopped::check_end`] checks them.
    pub fn open_connections(&self) -> usize {
        let is_ours = |socket: &OwnedFd| is_connection(socket, &self.addresses);
        self.processes().into_iter().flat_map(sockets).filter(is_ours).count()
    }

    /// Returns the number of sockets that listen on the first address's port, in any process:
    /// `/proc/net/tcp`, proc(5).
    pub fn listening_sockets(&self) -> usize {
        let Address::Tcp(address) = self.address() else { return 0 };
        let wanted = format!(":{:04X} 00000000:0000 0A ", address.port());
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().filter(|line| line.contains(&wanted)).count()
    }

    /// Returns whether one of the server's processes has a socket that is bound to the first
    /// address, and neither listens nor is a connection.
    pub fn has_silent_socket(&self) -> bool {
        let address = &self.addresses[..1];
        let is_silent = |socket: &OwnedFd| {
            is_at(socket, address) && !listens(socket) && getpeername(socket).is_err()
        };
        self.processes().into_iter().flat_map(sockets).any(|socket| is_silent(&socket))
    }

    /// Returns the time limits for acknowledgements of the sockets that listen on the first
    /// address, which is one of TCP, milliseconds (TCP_USER_TIMEOUT, tcp(7)): each value once.
    pub fn user_timeouts_ms(&self) -> Vec<u32> {
        let is_listener = |socket: &OwnedFd| is_at(socket, &self.addresses[..1]) && listens(socket);
        let all = self.processes().into_iter().flat_map(sockets).filter(is_listener);
        let mut limits: Vec<_> =
            all.map(|socket| sockopt::tcp_user_timeout(&socket).unwrap()).collect();
        limits.sort_unstable();
        limits.dedup();
        limits
    }

    /// Limits the descriptors of each of the server's processes to those in use plus `spare`
    /// (RLIMIT_NOFILE, prlimit(2)).
    pub fn limit_descriptors(&self, spare: u64) {
        for pid in self.processes() {
            let count = descriptors(pid).len() as u64 + spare;
            let limit = Rlimit { current: Some(count), maximum: Some(count) };
            prlimit(Some(pid), Resource::Nofile, limit).unwrap();
        }
    }

    /// Returns the started process and all its descendants.
    fn processes(&self) -> Vec<Pid> {
        family_of(self.child.id()).into_iter().filter_map(|pid| Pid::from_raw(pid as i32)).collect()
    }

    /// Returns the last output of `--stats-json`, if it is complete: the report of a SIGUSR1.
    pub fn stats_so_far(&self) -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(&self.stats).ok()?).ok()
    }

    /// Asks for a report, and returns it once it is written.
    pub fn new_report(&self) -> Value {
        let _ = fs::remove_file(&self.stats);
        self.signal(Signal::USR1);
        until("the report was written", || self.stats_so_far().is_some());
        self.stats_so_far().unwrap()
    }

    /// Returns the directory in which it publishes its statistics.
    pub fn run_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the standard output of the process so far.
    pub fn stdout_so_far(&self) -> String {
        self.stdout.so_far()
    }

    /// Returns the standard error of the process so far.
    pub fn stderr_so_far(&self) -> String {
        self.stderr.so_far()
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(self) -> Stopped {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Like [`Server::stop`], and asserts that the end is clean: see [`Stopped::check_end`].
    pub fn stop_cleanly(self) -> Stopped {
        let stopped = self.stop();
        stopped.check_end();
        stopped
    }

    /// Waits for the end of a server that was told to stop.
    pub fn wait(mut self) -> Stopped {
        let status = wait_for(&mut self.child, TIMEOUT);
        Stopped {
            status,
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
            stats: fs::read_to_string(&self.stats).ok(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when the process has been waited for: then there is nothing to do.
        let _ = self.child.kill();
        let status = self.child.wait();
        if std::thread::panicking() {
            // What it has started may live on, and hold the pipe.
            eprintln!("{}: {status:?}; it said: {}", self.ready, self.stderr.so_far());
        }
    }
}

impl Stopped {
    /// Returns the statistics written by `--stats-json`.
    ///
    /// # Panics
    /// When there is no such file or it is not JSON.
    pub fn stats(&self) -> Value {
        let text = self.stats.as_ref().expect("a statistics file");
        serde_json::from_str(text).expect("statistics in JSON")
    }

    /// Asserts that the end is clean: exit status 0, no panic, every accepted connection was closed
    /// for exactly one reason or released unserved, and everything that is counted at the exit is
    /// zero.
    pub fn check_end(&self) {
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert_eq!(self.status.code(), Some(0), "{}", self.stderr);
        let stats = self.stats();
        let total = stats["total"].as_object().expect("what all loops counted");
        let of = |name: &str| total[name].as_u64().expect(name);
        // Those who are let go are closed if they were deferred before, and else not even begun.
        let let_go = ["refused_excess", "refused_stale", "refused_memory", "departed"];
        let let_go: u64 = let_go.into_iter().map(of).sum();
        let closed = of("accepted").saturating_sub(let_go)..=of("accepted");
        assert!(closed.contains(&of("closed")), "{stats}");
        assert_eq!(of("refused_idle"), 0, "somebody was refused though there was time: {stats}");
        let names_a_reason = |name: &str| name.starts_with("end_") || name.starts_with("timeout_");
        let reasons = total.keys().filter(|name| names_a_reason(name));
        assert_eq!(reasons.map(|name| of(name)).sum::<u64>(), of("closed"), "{stats}");
        let left = total.iter().filter(|(name, _)| name.ends_with("_at_exit"));
        left.for_each(|(name, count)| assert_eq!(*count, 0, "{name}: {stats}"));
    }
}

/// Starts a server by a command that ends in its options. Returns when it is ready, or has ended.
///
/// # Panics
/// When it prints nothing within [`TIMEOUT`].
pub fn attempt(command: &mut Command) -> Attempt {
    let dir = TempDir::new().unwrap();
    let stats = dir.path().join("stats.json");
    command.arg("--stats-json").arg(&stats);
    // A file of a server that is killed stays; here it goes with the test.
    command.env("WEIR_RUN_DIR", dir.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = Output::collect(child.stdout.take().unwrap());
    let mut stderr = Output::collect(child.stderr.take().unwrap());
    let (mut ended, mut ready) = (None, String::new());
    until("the server was ready", || {
        ended = child.try_wait().unwrap();
        let said = [stdout.so_far(), stderr.so_far()];
        ready = said.iter().find_map(|said| ready_line(said)).unwrap_or_default().to_owned();
        ended.is_some() || !ready.is_empty()
    });
    match ended {
        Some(status) if ready.is_empty() => {
            let (stdout, stderr) = (stdout.finish(), stderr.finish());
            Attempt::Refused(Stopped { status, stdout, stderr, stats: None })
        }
        _ => {
            let addresses = addresses_in(&ready);
            Attempt::Serves(Server { child, addresses, ready, stdout, stderr, stats, dir })
        }
    }
}

/// Returns the ready line, without its newline. It is on standard output, or on standard error
/// where the access log is on the other.
fn ready_line(said: &str) -> Option<&str> {
    let mut lines = said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.find(|line| line.starts_with("weir: serving "))
}

/// Copies a program, so that the copy can be started at once. By another process: a copy that this
/// one has open for writing may be so in what a thread forks meanwhile, and is not started then
/// (ETXTBSY, execve(2)).
///
/// # Panics
/// When it cannot be copied.
pub fn copy_program(program: &str, to: &Path) {
    assert!(Command::new("cp").arg(program).arg(to).status().unwrap().success());
    fs::set_permissions(to, Permissions::from_mode(0o755)).unwrap();
}

/// Runs a command that ends by itself.
///
/// # Panics
/// When it does not end within [`TIMEOUT`].
pub fn run(command: &mut Command) -> Stopped {
    run_within(TIMEOUT, command)
}

/// Runs a command that ends by itself, and may take until `limit`.
///
/// # Panics
/// When it does not end by then.
pub fn run_within(limit: Duration, command: &mut Command) -> Stopped {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = Output::collect(child.stdout.take().unwrap());
    let mut stderr = Output::collect(child.stderr.take().unwrap());
    let status = wait_for(&mut child, limit);
    Stopped { status, stdout: stdout.finish(), stderr: stderr.finish(), stats: None }
}

fn wait_for(child: &mut Child, limit: Duration) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the process did not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the descriptors of a process: `/proc/PID/fd`, see proc_pid_fd(5).
fn descriptors(pid: Pid) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid()));
    entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Returns a copy of each socket that a process holds (pidfd_getfd(2)).
fn sockets(pid: Pid) -> Vec<OwnedFd> {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Vec::new() };
    let copy = |path: PathBuf| {
        let is_socket = fs::read_link(&path).ok()?.to_str()?.starts_with("socket:");
        let number = path.file_name()?.to_str()?.parse().ok()?;
        let copied = || pidfd_getfd(&process, number, PidfdGetfdFlags::empty());
        is_socket.then(copied)?.ok()
    };
    descriptors(pid).into_iter().filter_map(copy).collect()
}

/// Returns whether a socket is a connection to one of these addresses, even if its client has gone.
fn is_connection(socket: &OwnedFd, addresses: &[Address]) -> bool {
    is_at(socket, addresses) && !listens(socket)
}

fn listens(socket: &OwnedFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap()
}

/// Returns whether one of these addresses is that of a socket.
fn is_at(socket: &OwnedFd, addresses: &[Address]) -> bool {
    let Ok(name) = getsockname(socket) else { return false };
    addresses.iter().any(|address| match address {
        Address::Tcp(address) => SocketAddr::try_from(name.clone()) == Ok(*address),
        Address::Unix(path) => SocketAddrUnix::try_from(name.clone())
            .is_ok_and(|name| name.path_bytes() == Some(path.as_os_str().as_bytes())),
    })
}

/// Parses the addresses in `weir: serving DIR on ADDRESS, ADDRESS (mechanism, n loops)`.
fn addresses_in(ready: &str) -> Vec<Address> {
    let (_, list) = ready.rsplit_once(" on ").expect("` on ` in the ready line");
    let (list, _) = list.rsplit_once(" (").expect("` (` in the ready line");
    list.split(", ").map(address_in).collect()
}

fn address_in(text: &str) -> Address {
    if let Some(path) = text.strip_prefix("unix:") {
        return Address::Unix(Path::new(path).to_owned());
    }
    let authority = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let authority = authority.expect("an http URL").trim_end_matches('/');
    Address::Tcp(authority.parse().expect("an address and a port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_lines_name_every_listener() {
        let line =
            "weir: serving /srv/on on http://127.0.0.1:80, http://[::1]:81, unix:/run/w (poll)";
        let expected = [
            Address::Tcp("127.0.0.1:80".parse().unwrap()),
            Address::Tcp("[::1]:81".parse().unwrap()),
            Address::Unix("/run/w".into()),
        ];
        assert_eq!(addresses_in(line), expected);
    }
}
