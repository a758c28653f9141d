//! wrk (<https://github.com/wg/wrk>) with one thread, a closed loop: a connection sends its next
//! request when the reply to the last is there.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Prints what wrk counted as one line of JSON. A script without a `request` function leaves wrk's
/// fast path as it is.
pub(crate) const COUNTS: &str = r#"
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'json {"requests":%d,"connect_errors":%d,"read_errors":%d,"write_errors":%d,'
    .. '"timeouts":%d,"bad_status":%d}\n',
    summary.requests, e.connect, e.read, e.write, e.timeout, e.status))
end
"#;

/// A load of wrk.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The target, with its slash.
    pub(crate) path: String,
    /// Connections open at a time.
    pub(crate) connections: u32,
    /// True for a connection for each request.
    pub(crate) close: bool,
    /// Its duration, seconds.
    pub(crate) seconds: u32,
    /// Time within which a reply must come, seconds.
    pub(crate) timeout_s: u32,
}

/// Counters of wrk over a run.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    connect_errors: u64,
    read_errors: u64,
    write_errors: u64,
    timeouts: u64,
    bad_status: u64,
}

impl Outcome {
    /// Returns the errors in words; empty without any.
    pub(crate) fn complaints(&self) -> Vec<String> {
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

/// Runs `wrk`, a command of wrk, to its end.
pub(crate) fn run(wrk: Command, load: &Load, to: SocketAddr, dir: &Path) -> Result<Outcome> {
    parse(&output(wrk, load, to, COUNTS, dir)?)
}

/// Returns the output of wrk under the text `script`, which is written to `dir`.
pub(crate) fn output(
    mut wrk: Command,
    load: &Load,
    to: SocketAddr,
    script: &str,
    dir: &Path,
) -> Result<String> {
    let path = dir.join("wrk.lua");
    fs::write(&path, script)?;
    wrk.args(["--threads=1", &format!("--timeout={}s", load.timeout_s)]);
    wrk.arg(format!("--connections={}", load.connections));
    wrk.arg(format!("--duration={}s", load.seconds));
    if load.close {
        wrk.arg("--header=Connection: close");
    }
    wrk.arg("--script").arg(path).arg(format!("http://{to}{}", load.path));
    let output = wrk.stdin(Stdio::null()).output().context("wrk does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "wrk: {} {}",
        text.trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(text.into_owned())
}

/// Reads the counters that wrk printed under [`COUNTS`].
pub(crate) fn parse(output: &str) -> Result<Outcome> {
    let line = output.lines().find_map(|line| line.strip_prefix("json "));
    serde_json::from_str(line.context("wrk did not say what it counted")?).context("wrk's counts")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"json {"requests":10,"connect_errors":0,"read_errors":0,"write_errors":0,
"timeouts":0,"bad_status":0}"#;

    #[test]
    fn the_counts_are_found_among_the_rest() {
        let output = format!("Running 5s test\n{}\nTransfer: 1\n", LINE.replace('\n', ""));
        let outcome = parse(&output).unwrap();
        assert_eq!(outcome.requests, 10);
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
