//! The load: wrk (<https://github.com/wg/wrk>) with one thread on a core of its own. It is a closed
//! loop: a connection sends its next request when the reply to the last is there.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::LOAD_CORE;
use super::process::CommandLine;

/// Prints what wrk counted as one line of JSON. A script without a `request` function leaves wrk's
/// fast path as it is.
pub(super) const COUNTS: &str = r#"
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'json {"requests":%d,"bytes":%d,"duration_us":%d,"connect_errors":%d,"read_errors":%d,'
    .. '"write_errors":%d,"timeouts":%d,"bad_status":%d,"latency_us_p50":%d,"latency_us_p99":%d,'
    .. '"latency_us_max":%d}\n',
    summary.requests, summary.bytes, summary.duration, e.connect, e.read,
    e.write, e.timeout, e.status, latency:percentile(50), latency:percentile(99), latency.max))
end
"#;

const TIMEOUT_S: u32 = 10;

/// What wrk is to ask for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Load {
    /// The target, with its slash.
    pub(super) path: String,
    /// How many connections are open at a time.
    pub(super) connections: u32,
    /// Whether each request has a connection of its own.
    pub(super) close: bool,
}

/// What wrk counted over a whole run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) duration_us: u64,
    pub(super) connect_errors: u64,
    pub(super) read_errors: u64,
    pub(super) write_errors: u64,
    pub(super) timeouts: u64,
    pub(super) bad_status: u64,
    pub(super) latency_us_p50: u64,
    pub(super) latency_us_p99: u64,
    pub(super) latency_us_max: u64,
}

impl Outcome {
    /// What went wrong, in words; empty when nothing did.
    pub(super) fn complaints(&self) -> Vec<String> {
        let kinds = [
            ("connect errors", self.connect_errors),
            ("read errors", self.read_errors),
            ("write errors", self.write_errors),
            ("timeouts", self.timeouts),
            ("replies that are neither 2xx nor 3xx", self.bad_status),
        ];
        let wrong = kinds.iter().filter(|(_, count)| *count > 0);
        let mut complaints: Vec<String> =
            wrong.map(|(kind, count)| format!("{count} {kind}")).collect();
        if self.requests == 0 {
            complaints.push("no request was answered".to_owned());
        }
        complaints
    }
}

/// Runs wrk once, to its end.
pub(super) fn run(load: &Load, to: SocketAddr, seconds: u32, folder: &Path) -> Result<Outcome> {
    parse(&output(load, to, seconds, TIMEOUT_S, COUNTS, folder)?)
}

/// What wrk prints when it runs once, to its end, with the text `script`; a reply may take
/// `timeout_s`.
pub(super) fn output(
    load: &Load,
    to: SocketAddr,
    seconds: u32,
    timeout_s: u32,
    script: &str,
    folder: &Path,
) -> Result<String> {
    let path = write(script, folder)?;
    let line = command_line(load, to, seconds, timeout_s, &path);
    let mut command = Command::new("taskset");
    command.args(["-c", &LOAD_CORE.to_string()]).arg(line.program).args(line.arguments);
    let output = command.stdin(Stdio::null()).output().context("taskset does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "wrk: {} {}",
        text.trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(text.into_owned())
}

/// How wrk is run so that [`parse`] reads what it prints; its script goes to `folder`.
pub(super) fn counting(
    load: &Load,
    to: SocketAddr,
    seconds: u32,
    folder: &Path,
) -> Result<CommandLine> {
    Ok(command_line(load, to, seconds, TIMEOUT_S, &write(COUNTS, folder)?))
}

fn write(script: &str, folder: &Path) -> Result<PathBuf> {
    let path = folder.join("wrk.lua");
    fs::write(&path, script)?;
    Ok(path)
}

fn command_line(
    load: &Load,
    to: SocketAddr,
    seconds: u32,
    timeout_s: u32,
    script: &Path,
) -> CommandLine {
    let mut arguments = vec!["--threads=1".to_owned(), format!("--timeout={timeout_s}s")];
    arguments.push(format!("--connections={}", load.connections));
    arguments.push(format!("--duration={seconds}s"));
    if load.close {
        arguments.push("--header=Connection: close".to_owned());
    }
    arguments.extend(["--script".to_owned(), script.display().to_string()]);
    arguments.push(format!("http://{to}{}", load.path));
    CommandLine { program: "wrk".into(), arguments }
}

/// What wrk counted, from what it printed under [`COUNTS`].
pub(super) fn parse(output: &str) -> Result<Outcome> {
    let line = output.lines().find_map(|line| line.strip_prefix("json "));
    serde_json::from_str(line.context("wrk did not say what it counted")?).context("wrk's counts")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"json {"requests":10,"bytes":99,"duration_us":5,"connect_errors":0,
"read_errors":0,"write_errors":0,"timeouts":0,"bad_status":0,"latency_us_p50":1,
"latency_us_p99":2,"latency_us_max":3}"#;

    #[test]
    fn the_counts_are_found_among_the_rest() {
        let output = format!("Running 5s test\n{}\nTransfer: 1\n", LINE.replace('\n', ""));
        let outcome = parse(&output).unwrap();
        assert_eq!((outcome.requests, outcome.bytes, outcome.latency_us_max), (10, 99, 3));
        assert!(outcome.complaints().is_empty());
        assert!(parse("Running 5s test\n").is_err());
    }

    #[test]
    fn whatever_went_wrong_is_said() {
        let outcome = Outcome { requests: 1, bad_status: 2, timeouts: 1, ..Outcome::default() };
        let expected = ["1 timeouts", "2 replies that are neither 2xx nor 3xx"];
        assert_eq!(outcome.complaints(), expected);
        assert_eq!(Outcome::default().complaints(), ["no request was answered"]);
    }
}
