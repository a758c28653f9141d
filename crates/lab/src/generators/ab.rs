//! ab of the Apache HTTP server: a closed loop in HTTP/1.0 from one source address, which measures
//! from its start to its end. It rounds percentiles to milliseconds; only its mean time is read.

use std::time::Duration;

use super::request::{Invocation, LoadRequest, installed, of_closed_loop, seconds};
use crate::allow_list::{AllowList, Syntax};
use crate::record::{LoadResult, Times};

/// More requests per second than it makes: it needs a number, and reserves memory for each.
const PER_S_MAX: f64 = 200_000.0;

/// Options that an experiment may set: none. Of those that the lab does not set itself, some name
/// files and others are free text.
pub(super) const ALLOWED: AllowList =
    AllowList { program: "ab", syntax: Syntax::Words, options: &[] };

pub(super) fn invocation(request: &LoadRequest<'_>) -> Result<Invocation, String> {
    request.plain("ab")?;
    let load = request.load;
    let (None, Some(conns)) = (request.rate, request.closed) else {
        return Err("ab is a closed loop: it takes a number of connections, and no rate".to_owned());
    };
    let duration_s = request.duration_s.ceil().max(1.0);
    let mut arguments = vec![
        "-q".to_owned(),
        format!("-s{}", load.timeout_s.ceil().max(1.0)),
        format!("-c{conns}"),
        format!("-t{duration_s}"),
        // After -t, which would set it to 50000.
        format!("-n{}", duration_s * PER_S_MAX),
    ];
    if load.keep_alive || load.requests_per_conn.map_or(1, |count| *count) > 1 {
        arguments.push("-k".to_owned());
    }
    if request.gzip {
        arguments.push("-HAccept-Encoding: gzip".to_owned());
    }
    arguments.push(request.url("ab")?);
    let window = (Duration::ZERO, seconds(duration_s)?);
    Ok(Invocation { program: installed("ab")?, arguments, window })
}

/// Reads its report.
pub(super) fn result(said: &str) -> Result<LoadResult, String> {
    let number = |name: &str| -> Option<f64> {
        let rest = said.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let needed = |name: &str| number(name).ok_or_else(|| format!("its report has no {name}"));
    let (replies, window_s) =
        (needed("Complete requests:")? as u64, needed("Time taken for tests:")?);
    let failed = needed("Failed requests:")? as u64;
    let mean_us = 1e3 * needed("Time per request:")?;
    let times = Times { count: replies, mean_us, ..Times::default() };
    // The line is there only if there are any.
    let refused = number("Non-2xx responses:").unwrap_or(0.0) as u64;
    Ok(of_closed_loop(times, window_s, refused, &[("failed", failed)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = include_str!("fixtures/ab.txt");

    #[test]
    fn a_report_is_read_and_its_loop_is_closed() {
        let report = result(REPORT).unwrap();
        assert!(report.valid && !report.open_loop && report.errors.is_empty());
        assert_eq!((report.replies, report.replies_refused, report.window_s), (19_429, 0, 1.0));
        assert_eq!(report.response.unwrap().mean_us, 412.0);
        let bad =
            REPORT.replace("Failed requests:        0", "Failed requests: 3\nNon-2xx responses: 2");
        let report = result(&bad).unwrap();
        assert_eq!((report.replies_refused, report.errors["failed"]), (2, 3));
        assert!(result("Complete requests: 5\n").is_err());
    }
}
