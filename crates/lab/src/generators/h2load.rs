//! h2load of nghttp2, in HTTP/1.1: a closed loop from one source address, which measures from its
//! start to its end. On connections kept open that is in whole seconds. With a connection for each
//! request a run by time does not end (1.52: it goes on to connect), so that it makes a number of
//! requests which take it longer than the window, and the window is the first part of the run.

use std::time::Duration;

use super::request::{Invocation, LoadRequest, installed, of_closed_loop, seconds};
use crate::allow_list::{AllowList, Syntax, ValueShape};
use crate::environment::Side;
use crate::record::{LoadResult, Times};

/// More requests per second than it makes with a full handshake for each, on one processor.
const CONNECTIONS_PER_S_MAX: f64 = 4_000.0;

/// Options that an experiment may set: the cipher suites that it offers. Of others that the lab
/// does not set itself, some name files and others are free text.
pub(super) const ALLOWED: AllowList = AllowList {
    program: "h2load",
    syntax: Syntax::Words,
    options: &[(
        "--tls13-ciphers",
        ValueShape::OneOf(&[
            "TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLS_CHACHA20_POLY1305_SHA256",
        ]),
    )],
};

pub(super) fn invocation(request: &LoadRequest<'_>) -> Result<Invocation, String> {
    request.plain("h2load")?;
    let load = request.load;
    let (None, Some(conns)) = (request.rate, request.closed) else {
        return Err(
            "h2load is a closed loop: it takes a number of connections, and no rate".to_owned()
        );
    };
    let threads = request.environment.cpus(Side::Client).len().clamp(1, conns.max(1) as usize);
    let duration_s = request.duration_s.ceil().max(1.0);
    let timeout_s = load.timeout_s.ceil().max(1.0);
    let mut arguments = vec![
        "--h1".to_owned(),
        format!("-c{conns}"),
        format!("-t{threads}"),
        format!("-T{timeout_s}s"),
        format!("-N{timeout_s}s"),
    ];
    arguments.extend(match load.keep_alive || load.requests_per_conn.is_some() {
        true => vec![format!("-D{duration_s}")],
        false => vec![
            format!("-n{}", duration_s * CONNECTIONS_PER_S_MAX),
            "--header=Connection: close".to_owned(),
        ],
    });
    if request.gzip {
        arguments.push("--header=Accept-Encoding: gzip".to_owned());
    }
    arguments.extend(load.options.iter().cloned());
    arguments.push(request.url("h2load")?);
    let window = (Duration::ZERO, seconds(duration_s)?);
    Ok(Invocation { program: installed("h2load")?, arguments, window })
}

/// Reads its report. Its times are of requests from their sending on, without the connection that
/// each may have had to wait for; only their mean is read.
pub(super) fn result(said: &str) -> Result<LoadResult, String> {
    let line = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.ok_or_else(|| format!("its report has no {name}"))
    };
    let (requests, statuses) = (line("requests: ")?, line("status codes: ")?);
    let counted = |line: &str, what: &str| -> Result<u64, String> {
        let mut parts = line.split(", ").filter_map(|part| part.trim().split_once(' '));
        let count = parts.find(|(_, name)| *name == what).and_then(|(count, _)| count.parse().ok());
        count.ok_or_else(|| format!("its report does not count {what}"))
    };
    let window_s = line("finished in ")?.split(',').next().and_then(length_us);
    let window_s = window_s.ok_or("its report does not say how long it took")? / 1e6;
    // Columns: least, greatest, mean.
    let mean_us = line("time for request:")?.split_whitespace().nth(2).and_then(length_us);
    let times = Times {
        count: counted(requests, "succeeded")? + refused(statuses, counted)?,
        mean_us: mean_us.ok_or("its report has no mean time for a request")?,
        ..Times::default()
    };
    let errors =
        [("errored", counted(requests, "errored")?), ("timeout", counted(requests, "timeout")?)];
    Ok(of_closed_loop(times, window_s, refused(statuses, counted)?, &errors))
}

/// Returns the replies that were no success.
fn refused(
    statuses: &str,
    counted: impl Fn(&str, &str) -> Result<u64, String>,
) -> Result<u64, String> {
    Ok(counted(statuses, "4xx")? + counted(statuses, "5xx")?)
}

/// Reads a length of time such as `5.00s`, `1.23ms` or `67us`, in microseconds.
fn length_us(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(|char: char| char.is_ascii_alphabetic())?);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = include_str!("fixtures/h2load.txt");

    #[test]
    fn a_report_is_read_and_its_loop_is_closed() {
        let report = result(REPORT).unwrap();
        assert!(report.valid && !report.open_loop && report.errors.is_empty());
        assert_eq!((report.replies, report.replies_refused, report.window_s), (28_498, 0, 1.0));
        assert_eq!(report.response.unwrap().mean_us, 2180.0);
        let bad = REPORT
            .replace("28498 succeeded, 0 failed, 0 errored", "7 succeeded, 3 failed, 2 errored")
            .replace("0 4xx, 0 5xx", "1 4xx, 2 5xx");
        let report = result(&bad).unwrap();
        assert_eq!((report.replies, report.replies_refused), (10, 3));
        assert_eq!(report.errors["errored"], 2);
        assert!(result("requests: 5 total\n").is_err());
    }

    #[test]
    fn a_length_has_a_unit() {
        let lengths = ["67us", "1.5ms", "2.00s", "5", "4min"].map(length_us);
        assert_eq!(lengths, [Some(67.0), Some(1500.0), Some(2e6), None, None]);
    }
}
