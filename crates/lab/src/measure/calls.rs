//! Counts the system calls of a tree of processes from outside with strace(1), for servers that
//! keep no profile of their own.
//!
//! A traced process stops at every call, so a counted run is not a measured one, and only the
//! counts are kept: strace's times reflect strace rather than the server. A call that began before
//! the count or ended after it is not included. strace runs where the lab runs and is pinned to no
//! processor.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weir_sys::proc;

use super::processes;
use crate::record::CallCount;

/// Time limit for strace to attach to all processes.
const ATTACH_MAX: Duration = Duration::from_secs(10);
/// Interval at which attachment is checked.
const LOOK: Duration = Duration::from_millis(5);

/// A running count. Dropping it ends the count, and the processes continue.
#[derive(Debug)]
pub struct Counting {
    strace: Child,
}

impl Counting {
    /// Starts counting the calls of the processes `roots`, of all their descendants and of any they
    /// will start. Returns once all of them are attached.
    ///
    /// # Errors
    /// strace cannot be started, or is not permitted to attach; the message quotes strace.
    pub fn start(roots: &[u32]) -> Result<Self, String> {
        let pids: Vec<u32> = roots.iter().flat_map(|root| processes::tree(*root)).collect();
        let is_gone = |root: &&u32| proc::of(**root).is_none();
        if let Some(root) = roots.iter().find(is_gone) {
            return Err(format!("the process {root} is gone"));
        }
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-qq", "-o", "/dev/stdout"]);
        for pid in &pids {
            command.arg("-p").arg(pid.to_string());
        }
        let strace = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("strace does not start: {error}"))?;
        let mut counting = Self { strace };
        counting.await_attached(&pids)?;
        Ok(counting)
    }

    fn await_attached(&mut self, pids: &[u32]) -> Result<(), String> {
        let by = Instant::now() + ATTACH_MAX;
        let tracer = self.strace.id();
        while !pids.iter().all(|pid| is_traced(*pid, tracer)) {
            if self.strace.try_wait().is_ok_and(|status| status.is_some()) {
                return Err(format!("strace does not count: {}", self.complaint()));
            }
            if Instant::now() > by {
                return Err("strace does not attach to the server's processes".to_owned());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Stops counting and detaches from the processes.
    ///
    /// # Errors
    /// strace's table cannot be read; the message quotes strace.
    pub fn stop(mut self) -> Result<Vec<CallCount>, String> {
        self.interrupt();
        let mut table = String::new();
        if let Some(mut stdout) = self.strace.stdout.take() {
            stdout
                .read_to_string(&mut table)
                .map_err(|error| format!("strace's table cannot be read: {error}"))?;
        }
        parse(&table).map_err(|error| format!("{error}; {}", self.complaint()))
    }

    /// Returns the first line of strace's standard error, once strace has ended.
    fn complaint(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.strace.stderr.take() {
            // An unreadable message is omitted.
            let _ = stderr.read_to_string(&mut said);
        }
        let line = said.lines().next().unwrap_or_default().trim();
        if line.is_empty() { "it said nothing".to_owned() } else { line.to_owned() }
    }

    /// Sends SIGINT, which makes strace detach, print and end.
    fn interrupt(&mut self) {
        if let Some(pid) = Pid::from_raw(self.strace.id().cast_signed()) {
            // It may have ended by itself, with the server.
            let _ = kill_process(pid, Signal::INT);
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if self.strace.try_wait().is_ok_and(|status| status.is_none()) {
            self.interrupt();
        }
        let _ = self.strace.wait();
    }
}

/// Returns whether `tracer` traces every thread of a process. A process that has ended needs no
/// tracing.
fn is_traced(pid: u32, tracer: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { return true };
        let by = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        by.and_then(|by| by.trim().parse().ok()) == Some(tracer)
    })
}

/// Parses the table of `strace -c`, the most frequent call first. An empty table is valid: the
/// processes made no call.
///
/// # Errors
/// The text is not such a table.
pub fn parse(table: &str) -> Result<Vec<CallCount>, String> {
    let mut calls = Vec::new();
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (Some(first), Some(name)) = (columns.first(), columns.last()) else { continue };
        if *first == "%" || first.starts_with("---") || *name == "total" {
            continue;
        }
        let count = columns.get(3).and_then(|count| count.parse().ok());
        let (Some(count), 5 | 6) = (count, columns.len()) else {
            return Err(format!("no line of strace's table: {line:.60}"));
        };
        calls.push(CallCount { name: (*name).to_owned(), count, time_s: None });
    }
    calls.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs;
    use std::io::Write;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 63.59    1.047740        1740       602       301 wait4
  8.95    0.147407          15      9630      3913 openat
  5.89    0.097028          14      6621           mmap
  0.00    0.000051           0       300           getpid
------ ----------- ----------- --------- --------- ----------------
100.00    1.647652          37     43926      4515 total
";

    fn count(calls: &[CallCount], name: &str) -> u64 {
        calls.iter().find(|call| call.name == name).map_or(0, |call| call.count)
    }

    #[test]
    fn the_table_becomes_counts_with_and_without_errors() {
        let calls = parse(TABLE).unwrap();
        let names: Vec<_> = calls.iter().map(|call| &*call.name).collect();
        assert_eq!(names, ["openat", "mmap", "wait4", "getpid"]);
        assert_eq!((count(&calls, "openat"), count(&calls, "mmap")), (9630, 6621));
        assert!(calls.iter().all(|call| call.time_s.is_none()));
    }

    #[test]
    fn no_calls_are_no_error_and_no_table_is_one() {
        assert_eq!(parse(""), Ok(Vec::new()));
        assert!(parse("strace: attach: ptrace(PTRACE_SEIZE, 1): Operation not permitted").is_err());
    }

    #[test]
    fn the_calls_of_a_real_process_and_its_children_are_counted() {
        if programs::find("strace").is_none() {
            eprintln!("skipped: no strace");
            return;
        }
        // Each line it reads makes it start a child; its answer means that the child has ended.
        let mut child = Command::new("sh")
            .args(["-c", "while read line; do /bin/sh -c :; echo; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut counting = Some(Counting::start(&[child.id()]));
        let calls = match counting.take() {
            Some(Ok(counting)) => {
                let mut stdin = child.stdin.take().unwrap();
                let mut stdout = child.stdout.take().unwrap();
                for _ in 0..3 {
                    stdin.write_all(b"\n").unwrap();
                    stdout.read_exact(&mut [0]).unwrap();
                }
                let calls = counting.stop();
                // Its processes continue.
                stdin.write_all(b"\n").unwrap();
                stdout.read_exact(&mut [0]).unwrap();
                calls
            }
            Some(Err(error)) if error.contains("not permitted") => {
                eprintln!("skipped: {error}");
                Ok(Vec::new())
            }
            other => Err(format!("{other:?}")),
        };
        drop(child.stdin.take());
        child.wait().unwrap();
        let calls = calls.unwrap();
        assert!(calls.is_empty() || count(&calls, "execve") == 3, "{calls:?}");
    }

    #[test]
    fn a_process_that_is_not_there_cannot_be_counted() {
        if programs::find("strace").is_none() {
            eprintln!("skipped: no strace");
            return;
        }
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(Counting::start(&[child.id()]).is_err());
    }
}
