//! The lab's handle to a keeper: starts it, sends it orders and lets it go.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::keeper::READY;

/// Number of pauses ([`END_PAUSE`]) that a keeper gets to sweep and end before it is killed.
const END_ROUNDS_MAX: u32 = 500;
const END_PAUSE: Duration = Duration::from_millis(10);

/// A running keeper. Dropping it ends the keeper and everything it holds.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    /// Returns the command that starts a keeper, in a process group of its own, out of reach of a
    /// terminal's interrupt.
    pub(super) fn command(weir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(weir);
        command.arg("lab-keeper").args(args).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Takes over a started keeper.
    ///
    /// # Errors
    /// Fails if its pipes were not created: it was not started by [`Keeper::command`].
    pub(super) fn take(mut child: Child) -> std::io::Result<Self> {
        match (child.stdin.take(), child.stdout.take()) {
            (Some(orders), Some(answers)) => {
                Ok(Self { child, orders: Some(orders), answers: BufReader::new(answers) })
            }
            _ => Err(std::io::Error::other("a keeper needs pipes")),
        }
    }

    /// Waits until the keeper is ready.
    ///
    /// # Errors
    /// Returns the error that it reports.
    pub(super) fn wait_ready(&mut self) -> Result<(), String> {
        let line = self.next_line()?;
        match line.strip_prefix("error ") {
            None if line == READY => Ok(()),
            why => Err(why.unwrap_or(&line).to_owned()),
        }
    }

    /// Writes to a kernel file, as seen by the keeper.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn write(&mut self, path: &str, value: &str) -> Result<(), String> {
        self.order(&format!("write {path} {value}")).map(drop)
    }

    /// Reads a kernel file, as seen by the keeper; its words are separated by single spaces.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn read(&mut self, path: &str) -> Result<String, String> {
        self.order(&format!("read {path}"))
    }

    /// Reports a process group of the run, to be swept at the end.
    ///
    /// # Errors
    /// Fails if the keeper is gone.
    pub(super) fn add_group(&mut self, group: u32) -> Result<(), String> {
        self.order(&format!("group {group}")).map(drop)
    }

    fn order(&mut self, line: &str) -> Result<String, String> {
        let orders = self.orders.as_mut().ok_or("the keeper was let go")?;
        let gone = |error| format!("the keeper of the network is gone: {error}");
        writeln!(orders, "{line}").map_err(gone)?;
        let line = self.next_line()?;
        match line.split_once(' ') {
            Some(("ok", value)) => Ok(value.to_owned()),
            Some(("error", why)) => Err(why.to_owned()),
            _ => Err(format!("the keeper answers {line:?}")),
        }
    }

    fn next_line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("the keeper of the network is gone".into()),
            Ok(_) => Ok(line.trim_end_matches('\n').to_owned()),
            Err(error) => Err(format!("the keeper of the network: {error}")),
        }
    }

    /// Returns its process id, as seen by the lab.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its directory below /proc.
    pub(super) fn proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.id()))
    }

    /// Returns whether it still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells it to end, without waiting for it.
    pub(super) fn let_go(&mut self) {
        self.orders = None;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.let_go();
        for _ in 0..END_ROUNDS_MAX {
            if !self.is_alive() {
                return;
            }
            std::thread::sleep(END_PAUSE);
        }
        // The first process of a PID namespace ends only after every child that the lab has in
        // there was waited for. If the lab has missed one, all of them end with the lab itself.
        let _ = self.child.kill();
    }
}
