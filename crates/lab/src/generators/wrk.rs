//! wrk: a closed loop from one source address, which measures from its start to its end, in whole
//! seconds. A connection sends its next request only after the last reply, so its times omit the
//! waiting that an open loop would include.

use std::fs;
use std::time::Duration;

use serde::Deserialize;

use super::request::{self, Invocation, LoadRequest, installed, of_closed_loop};
use crate::allow_list::{AllowList, Syntax};
use crate::environment::Side;
use crate::record::{LoadResult, Times};

/// Script that prints wrk's counters as one line of JSON. Without a `request` function, it leaves
/// wrk on its fast path.
const SCRIPT: &str = r#"
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'json {"count":%d,"duration_us":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,'
    .. '"status":%d,"mean_us":%.3f,"p50_us":%d,"p90_us":%d,"p99_us":%d,"p999_us":%d,'
    .. '"max_us":%d}\n',
    summary.requests, summary.duration, e.connect, e.read, e.write, e.timeout, e.status,
    latency.mean, latency:percentile(50), latency:percentile(90), latency:percentile(99),
    latency:percentile(99.9), latency.max))
end
"#;

/// The counters that the script prints.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Counts {
    duration_us: u64,
    connect: u64,
    read: u64,
    write: u64,
    timeout: u64,
    status: u64,
    /// Times of all its requests, which are counted with them.
    #[serde(flatten)]
    times: Times,
}

/// Options that an experiment may set: none. Of those that the lab does not set itself, the script
/// is a program and the header free text.
pub(super) const ALLOWED: AllowList =
    AllowList { program: "wrk", syntax: Syntax::Words, options: &[] };

pub(super) fn invocation(request: &LoadRequest<'_>) -> Result<Invocation, String> {
    request.plain("wrk")?;
    let load = request.load;
    let (None, Some(conns)) = (request.rate, request.closed) else {
        return Err(
            "wrk is a closed loop: it takes a number of connections, and no rate".to_owned()
        );
    };
    if load.arrivals.is_some() {
        return Err("wrk is a closed loop: it has no law of arrivals".to_owned());
    }
    let url = request.url("wrk")?;
    let script = request.dir.join("wrk.lua");
    fs::write(&script, SCRIPT)
        .map_err(|error| format!("cannot write {}: {error}", script.display()))?;
    let threads = request.environment.cpus(Side::Client).len().clamp(1, conns.max(1) as usize);
    let seconds = request.duration_s.ceil().max(1.0);
    let mut arguments = vec![
        format!("-c{conns}"),
        format!("-t{threads}"),
        format!("-d{seconds}s"),
        "--latency".to_owned(),
        format!("--timeout={}s", load.timeout_s.ceil().max(1.0)),
        format!("--script={}", script.display()),
    ];
    if !load.keep_alive && load.requests_per_conn.map_or(1, |count| *count) == 1 {
        arguments.push("--header=Connection: close".to_owned());
    }
    if request.gzip {
        arguments.push("--header=Accept-Encoding: gzip".to_owned());
    }
    arguments.extend(load.options.iter().cloned());
    arguments.push(url);
    let window = (Duration::ZERO, request::seconds(seconds)?);
    Ok(Invocation { program: installed("wrk")?, arguments, window })
}

/// Reads the line of the script.
pub(super) fn result(said: &str) -> Result<LoadResult, String> {
    let line = said.lines().find_map(|line| line.strip_prefix("json "));
    let line = line.ok_or("it did not say what it counted")?;
    let counts: Counts =
        serde_json::from_str(line).map_err(|error| format!("what it counted: {error}"))?;
    let errors = [
        ("connect", counts.connect),
        ("read", counts.read),
        ("write", counts.write),
        ("timeout", counts.timeout),
    ];
    let window_s = counts.duration_us as f64 / 1e6;
    Ok(of_closed_loop(counts.times, window_s, counts.status, &errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = include_str!("fixtures/wrk.txt");

    #[test]
    fn a_report_is_read_and_its_loop_is_closed() {
        let result = result(REPORT).unwrap();
        assert!(result.valid && !result.open_loop);
        assert!(result.replies > 0 && result.planned_per_s.is_none());
        let mean = result.replies as f64 / result.window_s;
        assert!((result.replies_per_s - mean).abs() < 1e-6);
        let times = result.response.unwrap();
        assert_eq!(times.count, result.replies);
        assert!(times.p50_us <= times.p99_us && times.p99_us <= times.max_us);
        assert!(result.errors.is_empty());
    }

    #[test]
    fn errors_are_told_by_kind_and_nothing_is_invalid() {
        let bad = r#"json {"count":0,"duration_us":5,"connect":1,"read":0,"write":0,
            "timeout":2,"status":0,"mean_us":0.0,"p50_us":0,"p90_us":0,"p99_us":0,"p999_us":0,
            "max_us":0}"#
            .replace('\n', "");
        let result = result(&bad).unwrap();
        assert_eq!((result.errors["connect"], result.errors["timeout"]), (1, 2));
        assert!(!result.valid && result.response.is_none());
        assert!(super::result("Running 1s test\n").is_err());
    }
}
