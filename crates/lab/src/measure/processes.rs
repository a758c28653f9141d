//! Time and memory of process trees, as reported by /proc (proc_pid_stat(5), proc_pid_status(5)).
//!
//! Processes come and go between two samples. The time of a process that ended is not lost: its
//! parent collects it (cutime, cstime) when it waits for it. The parent collects all of it,
//! including the part before the first sample, so that part is subtracted. Only the time of a
//! process that comes or goes without a parent in the tree that waits for it (the parent had ended,
//! or ignores SIGCHLD) is lost: the figure is then a lower bound.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use weir_sys::proc::{self, field};

/// Identity of a process, distinct from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    pid: u32,
    /// Start time, ticks since boot.
    began: u64,
}

/// Time of a process, ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    user: u64,
    system: u64,
    /// User time of children it has waited for.
    reaped_user: u64,
    reaped_system: u64,
}

/// Process trees at an instant.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    spent: BTreeMap<Id, Spent>,
    /// Bytes fetched from disks for each process, if the kernel reports it.
    disk_read: BTreeMap<Id, u64>,
    /// Current resident memory, bytes, summed. Pages shared between processes count in each.
    pub rss_bytes: u64,
    /// Maximum resident memory (VmHWM), bytes, summed over the processes.
    pub rss_max_bytes: u64,
}

impl Processes {
    /// Samples the processes `roots` and all their descendants.
    ///
    /// # Errors
    /// A process of `roots` is gone.
    pub fn take(roots: &[u32]) -> Result<Self, String> {
        let mut processes = Self::default();
        for pid in roots.iter().flat_map(|root| tree(*root)) {
            // A process that ends while it is sampled counts as already ended.
            let Some((id, spent)) = stat(pid) else { continue };
            processes.spent.insert(id, spent);
            let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
            processes.disk_read.extend(read_bytes(&io).map(|bytes| (id, bytes)));
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            processes.rss_bytes += memory(&status, "VmRSS:");
            processes.rss_max_bytes += memory(&status, "VmHWM:");
        }
        let is_there = |root: &&u32| processes.spent.keys().any(|id| id.pid == **root);
        match roots.iter().find(|root| !is_there(root)) {
            None => Ok(processes),
            Some(root) => Err(format!("the process {root} is gone")),
        }
    }

    /// Returns the number of processes.
    pub fn count(&self) -> u32 {
        self.spent.len() as u32
    }

    /// Returns the user and system time spent since `before`, ticks.
    pub fn since(&self, before: &Self) -> (u64, u64) {
        let user = self.grown(before, |spent| (spent.user, spent.reaped_user));
        let system = self.grown(before, |spent| (spent.system, spent.reaped_system));
        (user, system)
    }

    /// Returns the bytes fetched from disks since `before` by the processes that still exist
    /// (`read_bytes` of proc_pid_io(5)); `None` if the kernel does not report them, or denies us
    /// access.
    pub fn disk_read_since(&self, before: &Self) -> Option<u64> {
        let then = |id| before.disk_read.get(id).copied().unwrap_or(0);
        let grown = self.disk_read.iter().map(|(id, now)| now.saturating_sub(then(id)));
        (!self.disk_read.is_empty()).then(|| grown.sum())
    }

    fn grown(&self, before: &Self, of: impl Fn(&Spent) -> (u64, u64)) -> u64 {
        let (mut own, mut reaped) = (0, 0);
        for (id, now) in &self.spent {
            let then = before.spent.get(id).map_or((0, 0), &of);
            let now = of(now);
            own += now.0.saturating_sub(then.0);
            reaped += now.1.saturating_sub(then.1);
        }
        let gone = before.spent.iter().filter(|(id, _)| !self.spent.contains_key(id));
        let known: u64 = gone.map(|(_, then)| of(then).0 + of(then).1).sum();
        own + reaped.saturating_sub(known)
    }
}

/// Returns the process ids of `root` and all its descendants, the root first.
pub fn tree(root: u32) -> Vec<u32> {
    let listed = Path::new(&format!("/proc/{root}/task/{root}/children")).exists();
    let parents = if listed { Vec::new() } else { parents() };
    let below = |pid| if listed { children(pid) } else { children_of(&parents, pid) };
    let (mut found, mut seen) = (vec![root], BTreeSet::from([root]));
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(below(pid).into_iter().filter(|child| seen.insert(*child)));
        next += 1;
    }
    found
}

/// Returns the children as the kernel lists them for each thread (CONFIG_PROC_CHILDREN).
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    lists.flatten().collect()
}

/// Returns every process and its parent, for kernels that do not list children.
fn parents() -> Vec<(u32, u32)> {
    let parent = |pid: u32| Some((pid, field(&proc::of(pid)?, 4)? as u32));
    proc::processes().filter_map(parent).collect()
}

fn children_of(parents: &[(u32, u32)], of: u32) -> Vec<u32> {
    parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid).collect()
}

/// Returns a process's time; `None` if it is gone or a zombie.
fn stat(pid: u32) -> Option<(Id, Spent)> {
    parse_stat(pid, &proc::of(pid)?)
}

fn parse_stat(pid: u32, stat: &str) -> Option<(Id, Spent)> {
    if proc::has_ended(stat) {
        return None;
    }
    let spent = Spent {
        user: field(stat, 14)?,
        system: field(stat, 15)?,
        reaped_user: field(stat, 16)?,
        reaped_system: field(stat, 17)?,
    };
    Some((Id { pid, began: field(stat, 22)? }, spent))
}

/// Parses the number of bytes fetched from disks for a process.
fn read_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.trim().parse().ok()
}

/// Parses a line of a status file, in bytes; 0 for a process without memory.
fn memory(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    1024 * kib.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    const STAT: &str = "10313 (a (b) c) R 10297 10297 5479 0 -1 4194304 100 0 0 0 11 12 13 14 20 0 \
                        1 0 137421 3133440 390 18446744073709551615 1 1";
    const STATUS: &str = "Name:\tcat\nVmHWM:\t    1904 kB\nVmRSS:\t    1800 kB\n";

    fn tree_of(rows: &[(u32, [u64; 4])]) -> Processes {
        let row = |&(pid, [user, system, reaped_user, reaped_system]): &(u32, [u64; 4])| {
            (Id { pid, began: 7 }, Spent { user, system, reaped_user, reaped_system })
        };
        Processes { spent: rows.iter().map(row).collect(), ..Processes::default() }
    }

    /// A shell with a sleeping child, killed at the end of the test.
    struct Shell {
        child: Child,
        below: u32,
    }

    impl Shell {
        fn start() -> Self {
            let mut child = Command::new("sh")
                .args(["-c", "sleep 600 & echo $!; wait"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            Self { child, below: line.trim().parse().unwrap() }
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = Command::new("kill").arg(self.below.to_string()).status();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn a_name_with_brackets_moves_no_field() {
        let (id, spent) = parse_stat(10313, STAT).unwrap();
        assert_eq!(id, Id { pid: 10313, began: 137_421 });
        let wanted = Spent { user: 11, system: 12, reaped_user: 13, reaped_system: 14 };
        assert_eq!((spent, field(STAT, 4)), (wanted, Some(10297)));
        assert_eq!(parse_stat(1, &STAT.replace(" R ", " Z ")), None);
    }

    #[test]
    fn memory_is_in_bytes_and_nothing_where_there_is_none() {
        assert_eq!(memory(STATUS, "VmHWM:"), 1904 * 1024);
        assert_eq!(memory(STATUS, "VmRSS:"), 1800 * 1024);
        assert_eq!(memory("Name:\tkthreadd\n", "VmRSS:"), 0);
    }

    #[test]
    fn disk_reads_are_known_where_the_kernel_counts_them() {
        assert_eq!(read_bytes("rchar: 9\nread_bytes: 4096\nwrite_bytes: 0\n"), Some(4096));
        assert_eq!(read_bytes(""), None);
        let at = |reads: &[(u32, u64)]| Processes {
            disk_read: reads.iter().map(|&(pid, by)| (Id { pid, began: 7 }, by)).collect(),
            ..Processes::default()
        };
        let before = at(&[(1, 4096), (2, 8192)]);
        assert_eq!(at(&[(1, 5096), (3, 50)]).disk_read_since(&before), Some(1050));
        assert_eq!(at(&[]).disk_read_since(&before), None);
    }

    #[test]
    fn time_grows_by_what_each_process_spent() {
        let before = tree_of(&[(1, [10, 1, 0, 0]), (2, [50, 5, 0, 0])]);
        let after = tree_of(&[(1, [12, 1, 0, 0]), (2, [80, 9, 0, 0])]);
        assert_eq!(after.since(&before), (32, 4));
    }

    #[test]
    fn a_process_that_ended_counts_only_for_what_it_spent_since() {
        let before = tree_of(&[(1, [10, 0, 100, 0]), (2, [50, 5, 0, 0])]);
        // Process 2 had used 50 before, spent 7 more, and was waited for.
        let after = tree_of(&[(1, [11, 0, 157, 5])]);
        assert_eq!(after.since(&before), (8, 0));
    }

    #[test]
    fn a_process_that_came_counts_in_full_and_one_that_nobody_waited_for_not_at_all() {
        let before = tree_of(&[(1, [10, 0, 0, 0]), (2, [50, 0, 0, 0])]);
        let after = tree_of(&[(1, [10, 0, 0, 0]), (3, [4, 2, 0, 0])]);
        assert_eq!(after.since(&before), (4, 2));
    }

    #[test]
    fn the_tree_of_a_shell_has_its_child_and_their_memory() {
        let shell = Shell::start();
        let root = shell.child.id();
        assert_eq!(tree(root), [root, shell.below]);
        let seen = Processes::take(&[root]).unwrap();
        assert_eq!(seen.count(), 2);
        assert!(seen.rss_bytes > 0 && seen.rss_max_bytes >= seen.rss_bytes);
        assert_eq!(children_of(&parents(), root), [shell.below]);
    }

    #[test]
    fn a_process_that_worked_has_time_and_one_that_is_gone_is_an_error() {
        // Burns CPU until it has used ten ticks, then reports and stays.
        let script = "spent() { set -- $(cat /proc/$$/stat); echo $((${14} + ${15})); }; \
                      while [ $(spent) -lt 10 ]; do \
                      i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; \
                      done; echo; read x";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let before = Processes::default();
        let mut told = BufReader::new(child.stdout.take().unwrap());
        told.read_line(&mut String::new()).unwrap();
        let (user, system) = Processes::take(&[child.id()]).unwrap().since(&before);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(user + system >= 10, "{user} {system}");
        let me = std::process::id();
        assert!(Processes::take(&[me, child.id()]).unwrap_err().contains("gone"));
        assert!(Processes::take(&[me]).is_ok());
    }
}
