//! A load generator as a child on the load's core: run to its end, with what that cost. Knows no
//! generator.

use std::fs::{self, File};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::bench::LOAD_CORE;
use crate::bench::core_time::group_s;
use crate::bench::process::{CommandLine, end_group};
use crate::bench::window::{Open, Window};

/// How often a client that is looked at is asked whether it has ended.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// A client that has ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// The client's core, from before the client started to after it ended.
    pub(super) window: Window,
    /// What the kernel charged to the client, user and system, in seconds.
    pub(super) client_s: f64,
    /// Its exit code; none after a signal.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// The end of what it complained of.
    pub(super) fn last_words(&self) -> String {
        let lines: Vec<&str> = self.stderr.lines().collect();
        lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join(" / ")
    }
}

/// Runs a client to its end.
pub(super) fn run(line: &CommandLine, folder: &Path) -> Result<Ended> {
    let client = Client::start(line, folder)?;
    client.wait(WaitIdOptions::empty())?;
    client.end(folder)
}

/// The same, calling `look` with its id and its age in seconds every so often.
pub(super) fn watch(
    line: &CommandLine,
    folder: &Path,
    every: Duration,
    mut look: impl FnMut(u32, f64),
) -> Result<Ended> {
    let client = Client::start(line, folder)?;
    let mut next_s = every.as_secs_f64();
    while !client.wait(WaitIdOptions::NOHANG)? {
        thread::sleep(POLL_EVERY);
        let age_s = client.open.age_s();
        if age_s >= next_s {
            look(client.child.id(), age_s);
            next_s += every.as_secs_f64();
        }
    }
    client.end(folder)
}

/// A running client. Dropping it ends it with whatever it started.
struct Client {
    child: Child,
    open: Open,
    reaped: bool,
}

impl Client {
    fn start(line: &CommandLine, folder: &Path) -> Result<Self> {
        let mut command = line.on_core(LOAD_CORE, folder);
        command.stdout(File::create(folder.join("client.out"))?);
        command.stderr(File::create(folder.join("client.err"))?);
        let open = Window::open(LOAD_CORE)?;
        let child = command.spawn().context("setpriv (util-linux) does not start")?;
        Ok(Self { child, open, reaped: false })
    }

    /// Waits for the end, or asks whether it has come. The client is not reaped: what it used is
    /// known for as long as its entry stands.
    fn wait(&self, options: WaitIdOptions) -> Result<bool> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no id")?;
        let options = options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(id), options)?.is_some())
    }

    fn end(mut self, folder: &Path) -> Result<Ended> {
        let window = self.open.close()?;
        let client_s = group_s(self.child.id())?;
        let code = self.child.wait()?.code();
        self.reaped = true;
        let text = |name: &str| -> Result<String> {
            Ok(String::from_utf8_lossy(&fs::read(folder.join(name))?).into_owned())
        };
        Ok(Ended {
            window,
            client_s,
            code,
            stdout: text("client.out")?,
            stderr: text("client.err")?,
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.reaped {
            end_group(&mut self.child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> CommandLine {
        let arguments = ["-c", script].map(str::to_owned).into();
        CommandLine { program: "sh".into(), arguments }
    }

    #[test]
    fn a_client_is_run_to_its_end_and_charged_for_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; \
                      echo a >&2; echo b >&2; exit 3";
        let ended = run(&shell(script), folder.path()).unwrap();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), "done\n"));
        assert_eq!(ended.last_words(), "a / b");
        assert!(ended.client_s > 0.0 && ended.window.window_s > 0.0);
    }

    #[test]
    fn a_client_is_looked_at_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut ages = Vec::new();
        // It ends when it has been looked at three times.
        let stop = folder.path().join("stop");
        let script = format!("while ! [ -e {} ]; do sleep 0.01; done", stop.display());
        let look = |_, age_s| {
            ages.push(age_s);
            if ages.len() == 3 {
                fs::write(&stop, "").unwrap();
            }
        };
        let every = Duration::from_millis(20);
        let ended = watch(&shell(&script), folder.path(), every, look).unwrap();
        assert_eq!(ended.code, Some(0));
        assert!(ages.len() >= 3 && ages.is_sorted(), "{ages:?}");
    }

    #[test]
    fn what_is_not_there_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let line = CommandLine { program: "/no/such/program".into(), arguments: Vec::new() };
        let ended = run(&line, folder.path()).unwrap();
        assert_ne!(ended.code, Some(0));
        assert!(ended.last_words().contains("/no/such/program"), "{}", ended.last_words());
    }
}
