//! A server as a child: started on its core, waited for, and ended whatever happens. Knows no
//! server's options.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::SERVER_CORE;

const READY_WITHIN: Duration = Duration::from_secs(10);
/// More than the server gives its clients to finish (`--drain-timeout`, 30 s).
const ENDED_WITHIN: Duration = Duration::from_secs(40);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// A command line: a program and its arguments.
pub(super) struct CommandLine {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

impl CommandLine {
    /// The command that runs this in `folder`, pinned to a core and in a process group of its own.
    pub(super) fn on_core(&self, core: usize, folder: &Path) -> Command {
        // setpriv: should this program be killed, the other gets a SIGTERM. Both programs replace
        // themselves, so the child's id is the other's.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "taskset", "-c", &core.to_string()])
            .arg(&self.program)
            .args(&self.arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .process_group(0);
        command
    }
}

/// Kills the process group that `child`, which must not be reaped yet, leads, and reaps it.
pub(super) fn end_group(child: &mut Child) {
    // As long as the group's leader is not reaped, its id cannot belong to anybody else.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// A running server. Dropping it ends its whole process group and waits for it.
pub(super) struct Running {
    child: Child,
    log: PathBuf,
    stopped: bool,
}

impl Running {
    /// Starts a server pinned to its core, and waits until `address` takes connections. What it
    /// prints goes to a file in `folder`.
    pub(super) fn start(line: &CommandLine, address: SocketAddr, folder: &Path) -> Result<Self> {
        let log = folder.join("server.log");
        let out = File::create(&log)?;
        let mut command = line.on_core(SERVER_CORE, folder);
        command.stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().context("setpriv (util-linux) does not start")?;
        let mut running = Self { child, log, stopped: false };
        running.wait_until_ready(address)?;
        Ok(running)
    }

    fn wait_until_ready(&mut self, address: SocketAddr) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("ended before it was ready, {status}: {}", self.last_words());
            }
            if Instant::now() > deadline {
                bail!("not ready within {READY_WITHIN:?}: {}", self.last_words());
            }
            thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// The id of the server's process and of its group.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the server still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the server to stop (SIGTERM), and returns how it ended.
    pub(super) fn stop(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + ENDED_WITHIN;
        if let Some(status) = self.child.try_wait()? {
            bail!("ended before it was told to, {status}: {}", self.last_words());
        }
        let own = i32::try_from(self.id()).ok().and_then(Pid::from_raw).context("no id")?;
        kill_process(own, Signal::TERM)?;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.stopped = true;
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "still there {ENDED_WITHIN:?} after a SIGTERM");
            thread::sleep(POLL_EVERY);
        }
    }

    /// The end of what the server printed.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(3);
        lines.get(from..).unwrap_or_default().join(" / ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that was stopped is reaped, and its id may by now be somebody else's. There is
        // nothing to save: a server that has measured its last run is not asked to finish.
        if !self.stopped {
            end_group(&mut self.child);
        }
    }
}

/// An address nobody listens on, below the ports that connections are given by themselves.
pub(super) fn free_address(from: u16) -> Result<SocketAddr> {
    let mut addresses = (from..32_000).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    addresses.find(|address| TcpListener::bind(address).is_ok()).context("no free port")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(program: &str, arguments: &[&str]) -> CommandLine {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        CommandLine { program: program.into(), arguments }
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_with_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let address = free_address(19_000).unwrap();
        let line = line("sh", &["-c", "echo no such option; exit 2"]);
        let error = Running::start(&line, address, folder.path()).err().unwrap().to_string();
        assert!(error.contains("no such option"), "{error}");
    }

    #[test]
    fn a_server_that_is_told_to_stop_says_how_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done";
        let mut running =
            Running::start(&line("sh", &["-c", script]), address, folder.path()).unwrap();
        let deadline = Instant::now() + READY_WITHIN;
        while running.last_words() != "ready" {
            assert!(Instant::now() < deadline, "not ready");
            thread::sleep(POLL_EVERY);
        }
        assert_eq!(running.stop().unwrap().code(), Some(7));
        assert!(running.stop().is_err());
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = line("sh", &["-c", "sleep 100 & echo $!; wait"]);
        let mut running =
            Running::start(&line, listener.local_addr().unwrap(), folder.path()).unwrap();
        assert!(running.is_alive());
        let deadline = Instant::now() + READY_WITHIN;
        let mut grandchild = running.last_words();
        while grandchild.is_empty() {
            assert!(Instant::now() < deadline, "no grandchild");
            thread::sleep(POLL_EVERY);
            grandchild = running.last_words();
        }
        assert!(lives(&grandchild));
        drop(running);
        while lives(&grandchild) {
            assert!(Instant::now() < deadline, "the grandchild lives on");
            thread::sleep(POLL_EVERY);
        }
    }

    /// Whether a process is there and is more than an entry that nobody has asked about yet.
    fn lives(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    }
}
