//! httperf: an open loop from one source address. It measures from its start to its end, rounds
//! times to a tenth of a millisecond, and reports no percentiles.

use std::collections::BTreeMap;
use std::time::Duration;

use super::request::{Invocation, LoadRequest, ReportContext, installed, seconds};
use crate::allow_list::{AllowList, Syntax, ValueShape};
use crate::experiment::Arrivals;
use crate::record::{LoadResult, Times};

/// Minimum fraction of the planned rate that it must reach, apart from what gaps are by chance.
const REACHED_MIN: f64 = 0.99;

/// Number of standard deviations by which the gaps of a run may be longer by chance: those of one
/// run in 700 are.
const DEVIATIONS_MAX: f64 = 3.0;

/// Kinds of errors in its report. The last four are shortages of its own descriptors, ports and
/// table entries, and all other errors.
const ERRORS: &[&str] = &[
    "client-timo",
    "socket-timo",
    "connrefused",
    "connreset",
    "fd-unavail",
    "addrunavail",
    "ftab-full",
    "other",
];

/// Kinds of errors that are its own.
const OWN: &[&str] = &["fd-unavail", "addrunavail", "ftab-full"];

/// Options that an experiment may set. The files it reads or writes and the server it loads are not
/// among them.
pub(super) const ALLOWED: AllowList = AllowList {
    program: "httperf",
    syntax: Syntax::Words,
    options: &[
        ("--burst-length", ValueShape::Number),
        ("--close-with-reset", ValueShape::Nothing),
        ("--max-connections", ValueShape::Number),
        ("--max-piped-calls", ValueShape::Number),
        ("--no-host-hdr", ValueShape::Nothing),
        ("--recv-buffer", ValueShape::Number),
        ("--send-buffer", ValueShape::Number),
        ("--think-timeout", ValueShape::Number),
    ],
};

pub(super) fn invocation(request: &LoadRequest<'_>) -> Result<Invocation, String> {
    request.plain("httperf")?;
    let load = request.load;
    let (Some(rate), None) = (request.rate, request.closed) else {
        return Err("httperf is an open loop: it takes a rate".to_owned());
    };
    let requests = load.requests_per_conn.map_or(1, |count| *count);
    let conns = (rate * request.duration_s).round().max(1.0);
    let mut arguments = vec![
        "--hog".to_owned(),
        format!("--server={}", request.server.ip()),
        format!("--port={}", request.server.port()),
        format!("--uri={}", request.path("httperf")?),
        law(load.arrivals, rate),
        format!("--num-conns={conns}"),
        format!("--num-calls={requests}"),
        format!("--timeout={}", load.timeout_s),
    ];
    // httperf converts the two characters to a line end. With several requests per connection, the
    // header would end the connection after the first.
    if requests == 1 {
        arguments.push("--add-header=Connection: close\\n".to_owned());
    }
    if request.gzip {
        arguments.push("--add-header=Accept-Encoding: gzip\\n".to_owned());
    }
    arguments.extend(load.options.iter().cloned());
    let window = (Duration::ZERO, seconds(request.duration_s)?);
    Ok(Invocation { program: installed("httperf")?, arguments, window })
}

/// Returns the option for the arrival process, as a rate or as a distribution of interarrival
/// times.
fn law(arrivals: Option<Arrivals>, rate: f64) -> String {
    match arrivals.unwrap_or(Arrivals::Constant) {
        Arrivals::Constant => format!("--rate={rate}"),
        Arrivals::Poisson => format!("--period=e{}", 1.0 / rate),
        Arrivals::Uniform => format!("--period=u0,{}", 2.0 / rate),
    }
}

/// Translates the report into the lab's terms. httperf knows no planned starts: response times
/// count from the actual start, and only with one request per connection.
pub(super) fn result(said: &str, context: &ReportContext) -> Result<LoadResult, String> {
    let figure = |line: &str, name: &str| {
        after(said, line, name).ok_or_else(|| format!("its report has no {line} {name}"))
    };
    let count = |line: &str, name: &str| figure(line, name).map(|number| number as u64);
    let (conns, replies) = (figure("Total:", "connections")?, count("Total:", "replies")?);
    let took_s = figure("Total:", "test-duration")?;
    let connect_ms = figure("Connection time [ms]: connect", "")?;
    let reply_ms =
        figure("Reply time [ms]:", "response")? + figure("Reply time [ms]:", "transfer")?;
    let errors = ERRORS.iter().map(|kind| Ok(((*kind).to_owned(), count("Errors:", kind)?)));
    let errors = errors.collect::<Result<BTreeMap<_, _>, String>>()?;
    let reasons = reasons(said, context, conns, took_s, &errors);
    let status = |class: &str| count("Reply status:", class);
    let mean = |mean_ms: f64| Times { count: replies, mean_us: 1e3 * mean_ms, ..Times::default() };
    let times = (replies > 0).then(|| mean(connect_ms + reply_ms));
    let per_s = |count: f64| if took_s > 0.0 { count / took_s } else { 0.0 };
    let one = context.requests == 1;
    Ok(LoadResult {
        valid: reasons.is_empty(),
        reasons,
        open_loop: true,
        window_s: took_s,
        planned_per_s: context.rate.map(|rate| rate * f64::from(context.requests)),
        started_per_s: Some(
            figure("Total:", "requests")? / context.duration_s.max(f64::MIN_POSITIVE),
        ),
        replies_per_s: per_s(replies as f64),
        sessions_per_s: one.then(|| per_s(replies as f64)),
        replies,
        replies_refused: status("1xx=")? + status("4xx=")? + status("5xx=")?,
        errors: errors.into_iter().filter(|(_, count)| *count > 0).collect(),
        response: times.filter(|_| one),
        service: times.filter(|_| one),
        connect: (replies > 0).then(|| mean(connect_ms)),
        open_max: figure("Connection rate:", "<=").ok().map(|most| most as u64),
        ..LoadResult::default()
    })
}

/// Returns the reasons why the figures are not the server's. The run's length includes the end of
/// its last connections; the longest connection time is deducted for it, or the timeout if that is
/// longer and a client has timed out.
fn reasons(
    said: &str,
    context: &ReportContext,
    conns: f64,
    took_s: f64,
    errors: &BTreeMap<String, u64>,
) -> Vec<String> {
    let count = |kind: &str| errors.get(kind).copied().unwrap_or(0);
    let longest_s = after(said, "Connection time [ms]:", "max").unwrap_or(0.0) / 1e3;
    let waited_s = if count("client-timo") > 0 { context.timeout_s } else { 0.0 };
    let started_s = (took_s - longest_s.max(waited_s)).max(context.duration_s);
    let mut reasons = Vec::new();
    let rate = context.rate.unwrap_or(0.0);
    if conns / started_s < reached_min(context.arrivals, conns) * rate {
        let reached = conns / started_s;
        reasons.push(format!("httperf started {reached:.1} connections/s of {rate:.1} at most"));
    }
    let own: Vec<String> = OWN
        .iter()
        .filter(|kind| count(kind) > 0)
        .map(|kind| format!("httperf ran short {} times: {kind}", count(kind)))
        .collect();
    reasons.extend(own);
    if conns == 0.0 {
        reasons.push("nothing was measured".to_owned());
    }
    reasons
}

/// Returns the least fraction of the planned rate that a law of arrivals reaches. The sum of random
/// gaps has a deviation of its own, relative to its mean: that of a gap, over the root of their
/// number.
fn reached_min(arrivals: Option<Arrivals>, conns: f64) -> f64 {
    let of_a_gap = match arrivals.unwrap_or(Arrivals::Constant) {
        Arrivals::Constant => 0.0,
        Arrivals::Poisson => 1.0,
        // From 0 to twice the mean.
        Arrivals::Uniform => 1.0 / 3.0_f64.sqrt(),
    };
    REACHED_MIN * (1.0 - DEVIATIONS_MAX * of_a_gap / conns.max(1.0).sqrt())
}

/// Returns the number behind `name` in the first line that starts with `line` and has it.
fn after(said: &str, line: &str, name: &str) -> Option<f64> {
    let rests = said.lines().filter_map(|text| text.strip_prefix(line));
    let number = |rest: &str| {
        let (_, rest) = rest.split_once(name)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    rests.filter_map(number).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = include_str!("fixtures/httperf.txt");

    fn context(rate: f64) -> ReportContext {
        ReportContext {
            rate: Some(rate),
            arrivals: None,
            requests: 1,
            duration_s: 1.0,
            timeout_s: 1.0,
            grid: None,
        }
    }

    #[test]
    fn a_report_is_read() {
        let result = result(REPORT, &context(100.0)).unwrap();
        assert!(result.valid && result.open_loop, "{:?}", result.reasons);
        assert_eq!((result.replies, result.replies_refused), (100, 100));
        assert_eq!(result.window_s, 0.997);
        assert!((result.replies_per_s - 100.3).abs() < 0.1);
        let response = result.response.unwrap();
        assert!((response.mean_us - 400.0).abs() < 1e-6 && response.p50_us.is_none());
        assert_eq!((result.open_max, result.planned_per_s), (Some(1), Some(100.0)));
        assert!(result.errors.is_empty());
    }

    #[test]
    fn a_rate_that_was_not_reached_makes_it_invalid() {
        let late = REPORT.replace("test-duration 0.997", "test-duration 1.300");
        let result = result(&late, &context(100.0)).unwrap();
        assert!(!result.valid);
        assert!(result.reasons[0].contains("of 100.0"), "{:?}", result.reasons);
    }

    #[test]
    fn random_gaps_may_take_longer_by_chance_and_no_more() {
        let valid = |took: &str, arrivals| {
            let said = REPORT.replace("test-duration 0.997", &format!("test-duration {took}"));
            let context = ReportContext { arrivals: Some(arrivals), ..context(100.0) };
            result(&said, &context).unwrap().valid
        };
        // Of 100 gaps: by 30 % with exponential ones, by 17 % with uniform ones.
        assert!(valid("1.150", Arrivals::Poisson) && valid("1.150", Arrivals::Uniform));
        assert!(valid("1.300", Arrivals::Poisson) && !valid("1.300", Arrivals::Uniform));
        assert!(!valid("1.600", Arrivals::Poisson) && !valid("1.150", Arrivals::Constant));
    }

    #[test]
    fn timeouts_at_the_end_are_no_lack_of_rate() {
        let late = REPORT
            .replace("test-duration 0.997", "test-duration 1.990")
            .replace("client-timo 0", "client-timo 20");
        let result = result(&late, &context(100.0)).unwrap();
        assert!(result.valid, "{:?}", result.reasons);
        assert_eq!(result.errors["client-timo"], 20);
    }

    #[test]
    fn a_lack_of_descriptors_makes_it_invalid() {
        let short = REPORT.replace("fd-unavail 0", "fd-unavail 9");
        let result = result(&short, &context(100.0)).unwrap();
        assert!(!result.valid && result.reasons[0].contains("fd-unavail"));
    }

    #[test]
    fn laws_of_arrivals_have_httperf_s_names() {
        assert_eq!(law(None, 100.0), "--rate=100");
        assert_eq!(law(Some(Arrivals::Poisson), 100.0), "--period=e0.01");
        assert_eq!(law(Some(Arrivals::Uniform), 100.0), "--period=u0,0.02");
    }

    #[test]
    fn output_that_is_no_report_is_refused() {
        assert!(result("Total: connections 5\n", &context(1.0)).is_err());
    }
}
