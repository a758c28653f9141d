//! A program as a child: started in a process group of its own, looked at, told to stop, and gone
//! with all its processes whatever happens. Knows no program's options.

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

use crate::ground::Ground;
use crate::proc_stat;

/// How long killed processes may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// How often a child is looked at while it is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How much of the end of what a program said is shown.
const LAST_LINES: usize = 5;

/// A running program. Dropping it kills its whole process group and waits until that is gone.
pub(crate) struct Group {
    child: Child,
    group: Pid,
    out: PathBuf,
    err: PathBuf,
    /// Whether the leader has been waited for: its id may be somebody else's by now.
    reaped: bool,
}

impl Group {
    /// Starts `command`; what it prints goes to `NAME.out` and `NAME.err` in `dir`.
    ///
    /// # Errors
    /// A sentence: the files cannot be written, or the program does not start.
    pub(crate) fn start(
        ground: &dyn Ground,
        mut command: Command,
        dir: &Path,
        name: &str,
    ) -> Result<Self, String> {
        let (out, err) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        let create = |path: &Path| {
            File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))
        };
        command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
        let mut child = ground
            .spawn(command.process_group(0))
            .map_err(|error| format!("{name} does not start: {error}"))?;
        let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            let _ = child.kill();
            return Err(format!("{name} has no process id"));
        };
        Ok(Self { child, group, out, err, reaped: false })
    }

    /// The id of the program's first process, and of its group.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether its first process has ended. It is not waited for, so its id stays its own.
    pub(crate) fn ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.reaped || !matches!(waitid(WaitId::Pid(self.group), options), Ok(None))
    }

    /// Waits until its first process has ended, or for so long; whether it has.
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

    /// Sends its first process a signal; one that has ended takes none.
    pub(crate) fn signal(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill_process(self.group, signal);
        }
    }

    /// Ends what is left of the group, and returns how the first process ended.
    ///
    /// # Errors
    /// A sentence: some of its processes would not go.
    pub(crate) fn end(mut self) -> Result<ExitStatus, String> {
        self.kill_all()
    }

    fn kill_all(&mut self) -> Result<ExitStatus, String> {
        // The leader is not reaped yet, so the group's id is nobody else's.
        let _ = kill_process_group(self.group, Signal::KILL);
        let status = self.child.wait().map_err(|error| format!("it cannot be waited for: {error}"));
        self.reaped = true;
        let deadline = Instant::now() + GONE_WITHIN;
        while test_kill_process_group(self.group).is_ok() && self.lives() {
            if Instant::now() >= deadline {
                return Err("some of its processes do not go".to_owned());
            }
            thread::sleep(LOOK_EVERY);
        }
        status
    }

    /// Whether a process of the group is more than an entry that nobody has asked about yet.
    fn lives(&self) -> bool {
        members(self.group.as_raw_nonzero().get()).iter().any(|state| *state != 'Z')
    }

    /// What it printed to standard output.
    pub(crate) fn said(&self) -> String {
        text(&self.out)
    }

    /// The end of what it printed, of standard error if there is any, in one line.
    pub(crate) fn last_words(&self) -> String {
        let words = [&self.err, &self.out].map(|path| last_lines(&text(path)));
        words.into_iter().find(|words| !words.is_empty()).unwrap_or_default()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.kill_all();
        }
    }
}

fn text(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last lines of a text, in one line.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines.get(from..).unwrap_or_default().join(" / ")
}

/// The states of the processes of a group (proc_pid_stat(5), fields 3 and 5).
pub(crate) fn members(group: i32) -> Vec<char> {
    let group = u64::try_from(group).ok();
    let stats = proc_stat::processes().filter_map(proc_stat::of);
    let of_group = stats.filter(|stat| group.is_some() && proc_stat::group(stat) == group);
    of_group.filter_map(|stat| proc_stat::state(&stat)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::Loopback;

    fn shell(script: &str, dir: &Path) -> Group {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Group::start(&Loopback, command, dir, "sh").unwrap()
    }

    fn wait_for_a_word(group: &Group) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while group.said().is_empty() {
            assert!(Instant::now() < deadline, "{}", group.last_words());
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let dir = tempfile::tempdir().unwrap();
        let group = shell("sleep 100 & echo ready; wait", dir.path());
        wait_for_a_word(&group);
        let id = group.group.as_raw_nonzero().get();
        assert_eq!(members(id).len(), 2);
        assert!(!group.ended());
        drop(group);
        assert!(members(id).iter().all(|state| *state == 'Z'));
    }

    #[test]
    fn how_a_program_ended_and_its_last_words_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let group = shell("echo fine; echo no such option >&2; exit 7", dir.path());
        assert!(group.ended_within(Duration::from_secs(10)));
        assert_eq!(group.last_words(), "no such option");
        assert_eq!(group.said(), "fine\n");
        assert_eq!(group.end().unwrap().code(), Some(7));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let started =
            Group::start(&Loopback, Command::new("no-such-program-of-this-name"), dir.path(), "it");
        assert!(started.err().unwrap().starts_with("it does not start: "));
    }
}
