//! h2load of nghttp2, in HTTP/1.1: a closed loop from one source address, which measures from its
//! start to its end. On connections kept open that is in whole seconds. With a connection for each
//! request a run by time does not end (1.52: it goes on to connect), so that it makes a number of
//! requests which take it longer than the window, and the window is the first part of the run.

use std::time::Duration;

use super::request::{Invocation, LoadRequest, ReportContext, installed, of_closed_loop, seconds};
use crate::allow_list::{AllowList, Syntax, ValueShape};
use crate::environment::Side;
use crate::record::{LoadResult, Times};

/// More requests per second than a thread of it makes with a connection for each.
const CONNECTIONS_PER_S_MAX: f64 = 40_000.0;

/// More than it makes with a full handshake for each.
const HANDSHAKES_PER_S_MAX: f64 = 4_000.0;

/// Minimum fraction of the window that it must take.
const TAKEN_MIN: f64 = 0.99;

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
    let duration_s = whole_seconds(request.duration_s);
    let timeout_s = load.timeout_s.ceil().max(1.0);
    let mut arguments = vec![
        "--h1".to_owned(),
        format!("-c{conns}"),
        format!("-t{threads}"),
        format!("-T{timeout_s}s"),
        format!("-N{timeout_s}s"),
    ];
    arguments.extend(match load.is_counted() {
        false => vec![format!("-D{duration_s}")],
        true => vec![
            format!("-n{}", requests(duration_s, threads, request.tls)),
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

/// Returns a number of requests that it does not make in the window.
fn requests(duration_s: f64, threads: usize, tls: bool) -> f64 {
    let per_s_max = if tls { HANDSHAKES_PER_S_MAX } else { CONNECTIONS_PER_S_MAX };
    duration_s * per_s_max * threads as f64
}

/// Returns the length of the window: it takes whole seconds.
fn whole_seconds(duration_s: f64) -> f64 {
    duration_s.ceil().max(1.0)
}

/// Reads its report. Its times are of requests from their sending on, without the connection that
/// each may have had to wait for; only their mean is read. A run that was over before the window is
/// refused: what the lab measures is of the window.
pub(super) fn result(said: &str, context: &ReportContext) -> Result<LoadResult, String> {
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
    let wanted_s = whole_seconds(context.duration_s);
    if window_s < TAKEN_MIN * wanted_s {
        return Err(format!(
            "it had made all its requests, or lost its connections, after {window_s:.2} s, \
             before the window of {wanted_s} s ended"
        ));
    }
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

    fn context(duration_s: f64) -> ReportContext {
        ReportContext {
            rate: None,
            arrivals: None,
            requests: 1,
            duration_s,
            timeout_s: 1.0,
            grid: None,
        }
    }

    #[test]
    fn more_threads_make_more_requests_and_tls_makes_fewer() {
        assert_eq!(requests(3.0, 1, true), 12_000.0);
        assert_eq!((requests(3.0, 1, false), requests(3.0, 2, false)), (120_000.0, 240_000.0));
    }

    #[test]
    fn a_run_that_was_over_before_the_window_is_refused() {
        let short = REPORT.replace("finished in 1.00s", "finished in 0.70s");
        let refused = result(&short, &context(3.0)).unwrap_err();
        assert!(refused.contains("all its requests") && refused.contains("0.70 s"), "{refused}");
        // It takes whole seconds, and a little less is no lack.
        assert!(result(&short, &context(0.5)).is_err());
        let almost = REPORT.replace("finished in 1.00s", "finished in 995.12ms");
        assert!(result(&almost, &context(0.5)).is_ok());
        let longer = REPORT.replace("finished in 1.00s", "finished in 9.79s");
        assert_eq!(result(&longer, &context(3.0)).unwrap().window_s, 9.79);
    }

    #[test]
    fn a_report_is_read_and_its_loop_is_closed() {
        let result = |said: &str| result(said, &context(1.0));
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
