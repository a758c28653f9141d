//! Starting and stopping of a server's processes: waiting until they are ready, and ending them.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::weir;
use crate::environment::Environment;
use crate::experiment::{Kind, ServerSpec, UpstreamSpec};
use crate::process_group::ProcessGroup;

/// Timeout for a server to start listening.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(10);

/// Polling interval while waiting for that.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Timeout for a server to end after SIGTERM.
pub(super) const STOPPED_WITHIN: Duration = Duration::from_secs(5);

/// Exit code that a shell reports for a program ended by SIGTERM, 128 + 15; some programs use it
/// themselves.
pub(super) const TERMINATED_CODE: i32 = 143;

/// The parameters for starting a server.
pub struct Launch<'a> {
    /// The server.
    pub spec: &'a ServerSpec,
    /// The testbed it runs on.
    pub environment: &'a dyn Environment,
    /// Path of the weir binary.
    pub weir: &'a Path,
    /// The document root. Apache, started as root, reads it as another user.
    pub root: &'a Path,
    /// An empty directory for its configuration, logs, pid file and statistics.
    pub dir: &'a Path,
    /// The port it listens on.
    pub port: u16,
    /// weir: true to count and time system calls.
    pub calls: bool,
    /// The application behind it, of which the server is then a proxy.
    pub upstream: Option<&'a UpstreamSpec>,
    /// True if it serves files beside that application.
    pub serves_files: bool,
    /// weir, or the weir behind a proxy: true to offer `/.weir/burn/N`, which burns processor time.
    pub bench_endpoints: bool,
    /// Number of processors of the server's side.
    pub workers: usize,
    /// Control groups that limit the server and its upstream.
    pub groups: &'a [PathBuf],
}

/// Replaces the paths of this run in a text. The longer path goes first, because it may contain the
/// other.
pub(super) fn without_paths(text: &str, launch: &Launch<'_>) -> String {
    let mut paths = [(launch.root, "ROOT"), (launch.dir, "DIR")]
        .map(|(path, name)| (path.display().to_string(), name));
    paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    paths.iter().fold(text.to_owned(), |text, (path, name)| text.replace(path, name))
}

/// Waits until a program that was just started is ready.
///
/// # Errors
/// Returns a sentence with its last output if it ended, or took more than 10 s.
pub(super) fn until_ready(
    group: &ProcessGroup,
    what: &str,
    is_ready: impl Fn() -> Result<bool, String>,
) -> Result<(), String> {
    let deadline = Instant::now() + READY_WITHIN;
    while !is_ready()? {
        if group.ended() {
            return Err(format!("{what} ended before it listened: {}", group.last_output()));
        }
        if Instant::now() >= deadline {
            return Err(format!("{what} did not listen within 10 s: {}", group.last_output()));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Stops a program and kills the processes left of it; returns a sentence unless it ended well.
pub(super) fn stopped(group: ProcessGroup, kind: Kind, what: &str) -> Result<(), String> {
    let by_itself = group.ended();
    let in_time = by_itself || told_to_stop(&group, kind);
    let words = group.last_output();
    match group.end() {
        Err(why) => Err(format!("{what}: {why}")),
        Ok(status) if by_itself => Err(format!("{what} ended by itself, {status}: {words}")),
        Ok(_) if !in_time => {
            Err(format!("{what} was killed, 5 s after it was told to stop: {words}"))
        }
        Ok(status) if ended_well(status, kind) => Ok(()),
        Ok(status) => Err(format!("{what} ended badly, {status}: {words}")),
    }
}

/// Sends SIGTERM, to weir repeatedly; returns whether the program ended in time.
pub(super) fn told_to_stop(group: &ProcessGroup, kind: Kind) -> bool {
    let deadline = Instant::now() + STOPPED_WITHIN;
    group.signal(Signal::TERM);
    while !group.ended_within(weir::AGAIN_AFTER) {
        if Instant::now() >= deadline {
            return false;
        }
        if kind == Kind::Weir {
            group.signal(Signal::TERM);
        }
    }
    true
}

/// Returns whether a program that was told to stop succeeded or was ended by SIGTERM; it may leave
/// the signal to the kernel, or exit with the code that a shell would report. lighttpd exits with 1
/// where it leaves connections open.
pub(super) fn ended_well(status: ExitStatus, kind: Kind) -> bool {
    let terminated = status.signal() == Some(Signal::TERM.as_raw());
    let left_some = kind == Kind::Lighttpd && status.code() == Some(1);
    status.success() || terminated || left_some || status.code() == Some(TERMINATED_CODE)
}
