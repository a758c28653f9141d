//! Cleanup: kills all processes left of a run, found by a mark that they cannot lose.
//!
//! Processes are identified by /proc alone, and none is asked to end gracefully.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_sys::namespace;
use weir_sys::proc::{self, processes};

/// Environment variable set for every process of a run without namespaces.
pub(super) const RUN_VARIABLE: &str = "WEIR_LAB_RUN";

/// Maximum number of rounds, each of which looks for processes started during the last. A process
/// that the kernel does not let die must not keep the cleanup running forever.
const ROUNDS_MAX: u32 = 300;
const ROUND_PAUSE: Duration = Duration::from_millis(10);

/// A mark that each process of the run has and no other process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It is in one of these networks: `net:[4026531840]`, as links of `/proc/PID/ns` read.
    Networks(Vec<PathBuf>),
    /// It was started with this value of the variable, or is in one of the process groups that the
    /// lab reported: some programs overwrite their environment (nginx), others leave their group
    /// (Apache).
    Run { run: String, groups: Vec<u32> },
}

impl Mark {
    /// Adds a process group of the run. Groups without processes are removed, because their number
    /// may be reused.
    pub(super) fn add_group(&mut self, group: u32) {
        if let Self::Run { groups, .. } = self {
            groups.retain(|&known| processes().any(|pid| is_in_group(pid, known)));
            groups.push(group);
        }
    }

    /// Creates the mark of the networks that these links of `/proc/PID/ns` refer to.
    ///
    /// # Errors
    /// Returns a sentence if a process is gone.
    pub(super) fn networks(links: &[PathBuf]) -> Result<Self, String> {
        let read = |link: &PathBuf| {
            link.read_link().map_err(|error| format!("{}: {error}", link.display()))
        };
        links.iter().map(read).collect::<Result<_, _>>().map(Self::Networks)
    }
}

/// Kills every process with the mark except this one, until none is left or the rounds are used up.
pub(super) fn kill_marked(mark: &Mark) {
    for _ in 0..ROUNDS_MAX {
        let found = marked(mark);
        if found.is_empty() {
            return;
        }
        for pid in found {
            // A process that cannot be killed has ended meanwhile, or the next round finds it
            // again.
            let _ = namespace::kill(pid);
        }
        std::thread::sleep(ROUND_PAUSE);
    }
}

/// Returns the processes with the mark, except this one and those that have ended.
fn marked(mark: &Mark) -> Vec<u32> {
    let own = std::process::id();
    processes().filter(|&pid| pid != own && has(mark, pid)).collect()
}

fn proc_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn has(mark: &Mark, pid: u32) -> bool {
    let of = proc_of(pid);
    match mark {
        // A process that has ended is in no namespace any more.
        Mark::Networks(networks) => {
            of.join("ns/net").read_link().is_ok_and(|network| networks.contains(&network))
        }
        Mark::Run { run, groups } => {
            has_variable(&of, run) || groups.iter().any(|&group| is_in_group(pid, group))
        }
    }
}

fn has_variable(of: &Path, run: &str) -> bool {
    let Ok(environment) = std::fs::read(of.join("environ")) else { return false };
    let wanted = format!("{RUN_VARIABLE}={run}");
    environment.split(|&byte| byte == 0).any(|entry| entry == wanted.as_bytes())
}

fn is_in_group(pid: u32, group: u32) -> bool {
    proc::of(pid).is_some_and(|stat| stat_is_of_group(&stat, group))
}

/// Returns whether a line of /proc/PID/stat is of a process group and of a process that has not
/// ended.
fn stat_is_of_group(stat: &str, group: u32) -> bool {
    !proc::has_ended(stat) && proc::group(stat) == Some(u64::from(group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_variable_and_swept() {
        let run = format!("test-{}", std::process::id());
        let sleep =
            |run: &str| Command::new("sleep").arg("1000").env(RUN_VARIABLE, run).spawn().unwrap();
        let (mut of_it, mut other) = (sleep(&run), sleep("another"));
        // Not `sweep`: under a test runner others may be in a group named like this process.
        let found = |child: &std::process::Child| {
            has_variable(&PathBuf::from(format!("/proc/{}", child.id())), &run)
        };
        while !found(&of_it) {
            std::thread::yield_now();
        }
        assert!(!found(&other));
        for child in [&mut of_it, &mut other] {
            namespace::kill(child.id()).unwrap();
            child.wait().unwrap();
        }
        assert!(!found(&of_it));
    }

    #[test]
    fn a_group_is_read_past_any_name_and_the_dead_are_in_none() {
        assert!(stat_is_of_group("7 (a) b) S 1 42 42 0 -1", 42));
        assert!(!stat_is_of_group("7 (a) b) S 42 1 42 0 -1", 42));
        assert!(!stat_is_of_group("7 (sh) Z 1 42 42 0 -1", 42));
        assert!(!stat_is_of_group("", 42));
    }

    #[test]
    fn the_network_of_this_process_is_known_by_its_link() {
        let link = PathBuf::from("/proc/self/ns/net");
        let mark = Mark::networks(std::slice::from_ref(&link)).unwrap();
        assert!(has(&mark, std::process::id()));
        assert!(Mark::networks(&[PathBuf::from("/proc/0/ns/net")]).is_err());
    }
}
