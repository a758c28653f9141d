//! A server process: started, found by its ready line, signalled, stopped.
//! It must not know HTTP.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use tempfile::TempDir;

use crate::output::Output;
use crate::patience::{PATIENCE, until};
use crate::{Client, Reply};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// What it said it listens on, in its order.
    pub addresses: Vec<Address>,
    /// The ready line, without its newline.
    pub ready: String,
    stdout: Output,
    stderr: Output,
    stats: PathBuf,
    _dir: TempDir,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Stopped {
    /// How it ended.
    pub status: ExitStatus,
    /// All it printed on standard output.
    pub stdout: String,
    /// All it printed on standard error.
    pub stderr: String,
    stats: Option<String>,
}

impl Server {
    /// Starts `weir serve` on `root` with `options`. Unless they name a listener, it is a free
    /// port of 127.0.0.1. Returns when the server is ready.
    ///
    /// # Panics
    /// When the process ends, or says nothing, before it is ready.
    pub fn start(weir: &str, options: &[&str], root: impl AsRef<Path>) -> Server {
        let mut command = Command::new(weir);
        command.arg("serve").arg(root.as_ref()).args(options);
        if !options.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        Server::spawn(command)
    }

    /// As [`Server::start`], by way of a shell that runs `script` with the server's command line
    /// as its arguments: `exec "$@"` starts the server in the shell's place.
    pub fn start_in_shell(script: &str, stdin: Stdio, arguments: &[&str]) -> Server {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(arguments).stdin(stdin);
        Server::spawn(command)
    }

    fn spawn(mut command: Command) -> Server {
        let dir = TempDir::new().unwrap();
        let stats = dir.path().join("stats.json");
        command.arg("--stats-json").arg(&stats);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Output::collect(child.stdout.take().unwrap());
        let mut stderr = Output::collect(child.stderr.take().unwrap());
        let mut gone = false;
        until("the server was ready", || {
            gone = child.try_wait().unwrap().is_some();
            gone || stdout.so_far().contains('\n')
        });
        let ready = stdout.so_far().lines().next().unwrap_or_default().to_owned();
        assert!(!ready.is_empty(), "no ready line; stderr: {}", stderr_of(gone, &mut stderr));
        let addresses = addresses_in(&ready);
        Server { child, addresses, ready, stdout, stderr, stats, _dir: dir }
    }

    /// The first address.
    pub fn address(&self) -> &Address {
        &self.addresses[0]
    }

    /// `host:port` of the first address.
    pub fn authority(&self) -> String {
        match self.address() {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => panic!("{} has no port", path.display()),
        }
    }

    /// A new connection to the first address.
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// The reply to a GET on a connection of its own.
    pub fn get(&self, target: &str) -> Reply {
        self.connect().get(target)
    }

    /// The reply to a GET with `fields` on a connection of its own.
    pub fn get_with(&self, target: &str, fields: &[&str]) -> Reply {
        self.connect().get_with(target, fields)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// How many sockets the process holds.
    pub fn open_sockets(&self) -> usize {
        self.descriptors().filter(|path| path.to_string_lossy().starts_with("socket:")).count()
    }

    /// How many sockets listen at the first address, whoever holds them: `/proc/net/tcp`, proc(5).
    pub fn listening_sockets(&self) -> usize {
        let Address::Tcp(address) = self.address() else { return 0 };
        let wanted = format!(":{:04X} 00000000:0000 0A ", address.port());
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().filter(|line| line.contains(&wanted)).count()
    }

    /// How many descriptors the process holds.
    pub fn open_descriptors(&self) -> usize {
        self.descriptors().count()
    }

    /// What each descriptor is: `/proc/PID/fd`, see proc_pid_fd(5).
    fn descriptors(&self) -> impl Iterator<Item = PathBuf> {
        let links = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        links.filter_map(|link| fs::read_link(link.ok()?.path()).ok())
    }

    /// Sets the process's limit of descriptors (RLIMIT_NOFILE, prlimit(2)).
    pub fn limit_descriptors(&self, count: u64) {
        let limit = Rlimit { current: Some(count), maximum: Some(count) };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limit).unwrap();
    }

    /// What the process has printed on standard output so far.
    pub fn stdout_so_far(&self) -> String {
        self.stdout.so_far()
    }

    /// What the process has printed on standard error so far.
    pub fn stderr_so_far(&self) -> String {
        self.stderr.so_far()
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(self) -> Stopped {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// [`Server::stop`], and everything about the end is as it should be: exit status 0, no panic.
    pub fn stop_cleanly(self) -> Stopped {
        let stopped = self.stop();
        assert!(!stopped.stderr.contains("panicked"), "{}", stopped.stderr);
        assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        stopped
    }

    /// Waits for the end of a server that was told to stop.
    pub fn wait(mut self) -> Stopped {
        let status = wait_for(&mut self.child);
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
            eprintln!("{}: {status:?}; it said: {}", self.ready, self.stderr.finish());
        }
    }
}

impl Stopped {
    /// The statistics written by `--stats-json`.
    ///
    /// # Panics
    /// When there is no such file or it is not JSON.
    pub fn stats(&self) -> Value {
        let text = self.stats.as_ref().expect("a statistics file");
        serde_json::from_str(text).expect("statistics in JSON")
    }
}

/// Runs a command that ends by itself.
///
/// # Panics
/// When it does not end within [`PATIENCE`].
pub fn run(command: &mut Command) -> Stopped {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = Output::collect(child.stdout.take().unwrap());
    let mut stderr = Output::collect(child.stderr.take().unwrap());
    let status = wait_for(&mut child);
    Stopped { status, stdout: stdout.finish(), stderr: stderr.finish(), stats: None }
}

fn wait_for(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the process did not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn stderr_of(gone: bool, stderr: &mut Output) -> String {
    if gone { stderr.finish() } else { stderr.so_far() }
}

/// The addresses in `weir: serving DIR on ADDRESS, ADDRESS (mechanism, n loops)`.
fn addresses_in(ready: &str) -> Vec<Address> {
    let (_, list) = ready.rsplit_once(" on ").expect("` on ` in the ready line");
    let (list, _) = list.rsplit_once(" (").expect("` (` in the ready line");
    list.split(", ").map(address_in).collect()
}

fn address_in(text: &str) -> Address {
    if let Some(path) = text.strip_prefix("unix:") {
        return Address::Unix(Path::new(path).to_owned());
    }
    let authority = text.strip_prefix("http://").expect("an http URL").trim_end_matches('/');
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
