//! The lab's handle to a holder: starts it, sends it commands and releases it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::holder_main::READY;

/// Number of pauses ([`END_PAUSE`]) that a holder gets to clean up and end before it is killed.
const END_ROUNDS_MAX: u32 = 500;
const END_PAUSE: Duration = Duration::from_millis(10);

/// A running holder. Dropping it ends the holder and everything it holds.
#[derive(Debug)]
pub(super) struct NamespaceHolder {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl NamespaceHolder {
    /// Returns the command that starts a holder, in a process group of its own, out of reach of a
    /// terminal's interrupt.
    pub(super) fn command(weir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(weir);
        command.arg("lab-holder").args(args).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Starts a holder and waits until it is ready.
    ///
    /// # Errors
    /// Returns a sentence if it does not start, or the error that it reports.
    pub(super) fn start(weir: &Path, args: &[&str]) -> Result<Self, String> {
        let holder = Self::command(weir, args).spawn().and_then(Self::from_child);
        let mut holder = holder.map_err(|error| format!("{}: {error}", weir.display()))?;
        holder.wait_ready()?;
        Ok(holder)
    }

    /// Takes over a started holder.
    ///
    /// # Errors
    /// Fails if its pipes were not created: it was not started by [`NamespaceHolder::command`].
    pub(super) fn from_child(mut child: Child) -> std::io::Result<Self> {
        match (child.stdin.take(), child.stdout.take()) {
            (Some(commands), Some(answers)) => {
                Ok(Self { child, commands: Some(commands), answers: BufReader::new(answers) })
            }
            _ => Err(std::io::Error::other("a holder needs pipes")),
        }
    }

    /// Waits until the holder is ready.
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

    /// Writes to a kernel file, as seen by the holder.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn write(&mut self, path: &str, value: &str) -> Result<(), String> {
        self.send(&format!("write {path} {value}")).map(drop)
    }

    /// Reads a kernel file, as seen by the holder; its words are separated by single spaces.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn read(&mut self, path: &str) -> Result<String, String> {
        self.send(&format!("read {path}"))
    }

    /// Reports a process group of the run, to be killed at the end.
    ///
    /// # Errors
    /// Fails if the holder is gone.
    pub(super) fn add_group(&mut self, group: u32) -> Result<(), String> {
        self.send(&format!("group {group}")).map(drop)
    }

    fn send(&mut self, line: &str) -> Result<String, String> {
        let commands = self.commands.as_mut().ok_or("the holder was released")?;
        let gone = |error| format!("the holder of the network is gone: {error}");
        writeln!(commands, "{line}").map_err(gone)?;
        let line = self.next_line()?;
        match line.split_once(' ') {
            Some(("ok", value)) => Ok(value.to_owned()),
            Some(("error", why)) => Err(why.to_owned()),
            _ => Err(format!("the holder answers {line:?}")),
        }
    }

    fn next_line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("the holder of the network is gone".into()),
            Ok(_) => Ok(line.trim_end_matches('\n').to_owned()),
            Err(error) => Err(format!("the holder of the network: {error}")),
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
    pub(super) fn release(&mut self) {
        self.commands = None;
    }
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        self.release();
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
