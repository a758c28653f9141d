//! Child processes: each is started in a process group of its own, watched, signalled, and in any
//! case killed together with its group. Options of programs are up to the callers.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process_group,
    waitid,
};
use weir_sys::proc;

use crate::environment::Environment;

/// Maximum time for killed processes to disappear.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Polling interval while waiting for a child.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Number of lines shown from the end of a program's output.
const LAST_LINES: usize = 5;

/// A running program. Dropping it kills its whole process group and waits until the group is gone.
pub(crate) struct ProcessGroup {
    child: Child,
    group: Pid,
    out: PathBuf,
    err: PathBuf,
    /// True once the leader has been reaped: its process id may have been reused since.
    reaped: bool,
}

impl ProcessGroup {
    /// Starts `command`, with its output redirected to `NAME.out` and `NAME.err` in `dir`.
    ///
    /// # Errors
    /// Returns a sentence if the files cannot be written or the program does not start.
    pub(crate) fn start(
        environment: &dyn Environment,
        mut command: Command,
        dir: &Path,
        name: &str,
    ) -> Result<Self, String> {
        let (out, err) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        let create = |path: &Path| {
            File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))
        };
        command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
        let mut child = environment
            .spawn(command.process_group(0))
            .map_err(|error| format!("{name} does not start: {error}"))?;
        let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            let _ = child.kill();
            return Err(format!("{name} has no process id"));
        };
        Ok(Self { child, group, out, err, reaped: false })
    }

    /// Returns the process id of the leader, which is also the id of the group.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the leader has ended. Does not reap it, so its process id is not reused.
    pub(crate) fn ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.reaped || !matches!(waitid(WaitId::Pid(self.group), options), Ok(None))
    }

    /// Waits until the leader has ended, but at most for `time`; returns whether it has ended.
    pub(crate) fn ended_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while !self.ended() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        true
    }

    /// Sends a signal to the leader; has no effect once the leader has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill_process(self.group, signal);
        }
    }

    /// Kills what is left of the group, and returns the exit status of the leader.
    ///
    /// # Errors
    /// Returns a sentence if the leader cannot be waited for, or if some processes of the group do
    /// not end.
    pub(crate) fn end(mut self) -> Result<ExitStatus, String> {
        self.kill_all()
    }

    fn kill_all(&mut self) -> Result<ExitStatus, String> {
        // The leader is not reaped yet, so the group's id cannot have been reused.
        let _ = kill_process_group(self.group, Signal::KILL);
        let status = self.child.wait().map_err(|error| format!("it cannot be waited for: {error}"));
        self.reaped = true;
        let deadline = Instant::now() + GONE_WITHIN;
        while test_kill_process_group(self.group).is_ok() && lives(self.pid()) {
            if Instant::now() >= deadline {
                return Err("some of its processes do not go".to_owned());
            }
            thread::sleep(LOOK_EVERY);
        }
        status
    }

    /// Returns the program's standard output so far.
    pub(crate) fn stdout(&self) -> String {
        text(&self.out)
    }

    /// Returns the last lines of standard error, or of standard output if there are none, joined
    /// into one line.
    pub(crate) fn last_output(&self) -> String {
        let words = [&self.err, &self.out].map(|path| last_lines(&text(path)));
        words.into_iter().find(|words| !words.is_empty()).unwrap_or_default()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.kill_all();
        }
    }
}

fn text(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Joins the last lines of a text into one line.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines.get(from..).unwrap_or_default().join(" / ")
}

/// Returns the `stat` lines of the processes of a group.
fn stats(group: u32) -> impl Iterator<Item = String> {
    let stats = proc::processes().filter_map(proc::of);
    stats.filter(move |stat| proc::group(stat) == Some(u64::from(group)))
}

/// Returns whether the group has a process that has not ended.
pub(crate) fn lives(group: u32) -> bool {
    stats(group).any(|stat| !proc::has_ended(&stat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::Loopback;

    fn shell(script: &str, dir: &Path) -> ProcessGroup {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ProcessGroup::start(&Loopback, command, dir, "sh").unwrap()
    }

    fn wait_for_a_word(group: &ProcessGroup) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while group.stdout().is_empty() {
            assert!(Instant::now() < deadline, "{}", group.last_output());
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let dir = tempfile::tempdir().unwrap();
        let group = shell("sleep 100 & echo ready; wait", dir.path());
        wait_for_a_word(&group);
        let id = group.pid();
        assert_eq!(stats(id).count(), 2);
        assert!(lives(id) && !group.ended());
        drop(group);
        assert!(!lives(id));
    }

    #[test]
    fn how_a_program_ended_and_its_last_words_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let group = shell("echo fine; echo no such option >&2; exit 7", dir.path());
        assert!(group.ended_within(Duration::from_secs(10)));
        assert_eq!(group.last_output(), "no such option");
        assert_eq!(group.stdout(), "fine\n");
        assert_eq!(group.end().unwrap().code(), Some(7));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let started = ProcessGroup::start(
            &Loopback,
            Command::new("no-such-program-of-this-name"),
            dir.path(),
            "it",
        );
        assert!(started.err().unwrap().starts_with("it does not start: "));
    }
}
