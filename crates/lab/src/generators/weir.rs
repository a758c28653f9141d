//! `weir load` of this binary: its options and its JSON report.

use std::fs::{self, File};
use std::io::BufReader;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::request::{
    GeneratorOutput, Invocation, LoadRequest, REQUEST_LOG, Replay, ReportContext, seconds,
};
use super::timeline::{self, Grid};
use super::{mix, set};
use crate::allow_list::{AllowList, Syntax, ValueShape};
use crate::environment::Side;
use crate::experiment::Generator;
use crate::record::{LoadResult, Times, WholeRun};
use crate::workload::{file_of, path_of};

const REPORT: &str = "load.json";

/// Exit code of `weir load` for a run that its client makes invalid; it has a report all the same.
pub const INVALID: i32 = 3;

/// Number of sessions of a run limited by its duration: more than there can be.
const SESSIONS: u64 = 1_000_000_000_000;

/// Default rate of opening connections before the schedule begins, per second.
const BACKGROUND_PER_S: f64 = 2000.0;

/// Time from the start of the process to the first start of the schedule, without connections to
/// open before: loading the program, setting up its threads, and the 2 ms that it waits for these.
const SET_UP: Duration = Duration::from_millis(10);

/// Options that an experiment may set. The files it reads or writes and the server it loads are not
/// among them.
pub(super) const ALLOWED: AllowList = AllowList {
    program: "weir load",
    syntax: Syntax::Words,
    options: &[
        ("--ack-with-request", ValueShape::Nothing),
        ("--background-rate", ValueShape::Number),
        ("--burst-length", ValueShape::Number),
        ("--close", ValueShape::OneOf(&["server", "client", "reset"])),
        ("--deadline", ValueShape::Quantity),
        ("--header", ValueShape::OneOf(&["Cache-Control:no-cache"])),
        ("--http", ValueShape::OneOf(&["1.0", "1.1"])),
        ("--max-conns", ValueShape::Number),
        ("--mb", ValueShape::Number),
        ("--pipeline", ValueShape::Number),
        ("--send-rate", ValueShape::Quantity),
        ("--slow-rate", ValueShape::Quantity),
        ("--slow-readers", ValueShape::Number),
        ("--slow-senders", ValueShape::Number),
        ("--tls-resume", ValueShape::Nothing),
        ("--tls-version", ValueShape::OneOf(&["1.2", "1.3"])),
        ("--vanish", ValueShape::Nothing),
        ("--wsess", ValueShape::Numbers),
        ("--wset", ValueShape::Numbers),
    ],
};

pub(super) fn invocation(request: &LoadRequest<'_>) -> Result<Invocation, String> {
    let load = request.load;
    let run_s = request.warmup_s + request.duration_s + request.cooldown_s;
    let mut arguments = vec!["load".to_owned(), "--quiet".to_owned()];
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    pace(request)?.into_iter().for_each(|(name, value)| option(name, value));
    option("--duration", format!("{run_s}s"));
    option("--warmup", format!("{}s", request.warmup_s));
    if request.cooldown_s > 0.0 {
        option("--cooldown", format!("{}s", request.cooldown_s));
    }
    option("--timeout", format!("{}s", load.timeout_s));
    let cpus = request.environment.cpus(Side::Client);
    stack(request)?.into_iter().for_each(|(name, value)| option(name, value));
    if !cpus.is_empty() {
        option("--cpus", list(cpus));
    }
    option("--threads", cpus.len().max(1).to_string());
    option("--seed", request.seed.to_string());
    let counts = [
        ("--idle", Some(request.idle).filter(|idle| *idle > 0)),
        ("--conns", request.conns),
        ("--requests-per-conn", load.requests_per_conn.map(|count| *count)),
    ];
    if load.keep_alive {
        option("--requests-per-conn", "inf".to_owned());
    }
    for (name, count) in counts {
        if let Some(count) = count {
            option(name, count.to_string());
        }
    }
    // The paths in a list are complete.
    let listed = set::listed(request).map_or_else(|| mix::listed(request), |set| Ok(Some(set)))?;
    let (prefix, mut path) = if listed.is_some() || request.replay.is_some() {
        ("", String::new())
    } else {
        (request.prefix, path_of(&load.workload))
    };
    if let Some(apart_s) = request.twice_s {
        path = file_of(&load.workload)
            .ok_or_else(|| format!("no one file of workload {} can be asked for", load.workload))?;
        option("--wsess", format!("{SESSIONS},2,{apart_s}"));
    } else if path.ends_with('/') {
        option("--workload", load.workload.clone());
    }
    if request.gzip {
        option("--header", "Accept-Encoding: gzip".to_owned());
    }
    option("--json", request.dir.join(REPORT).display().to_string());
    // A mix needs the outcome of each request, its capacity only the total.
    if request.timeline_ms.is_some() || (!load.mix.is_empty() && request.rate.is_some()) {
        option("--each", request.dir.join(REQUEST_LOG).display().to_string());
    }
    if let Some((name, text)) = listed {
        option("--wlog", format!("y,{}", written(request, name, &text)?));
    }
    arguments.extend(load.options.iter().cloned());
    let prefix = prefix.trim_end_matches('/');
    let scheme = if request.tls { "https" } else { "http" };
    if request.tls {
        // The certificate is its own, and of this run.
        arguments.push("--insecure".to_owned());
    }
    arguments.push(format!("{scheme}://{}{prefix}{path}", request.server));
    Ok(Invocation { program: request.weir.to_owned(), arguments, window: window(request)? })
}

/// Returns the options that say when sessions start.
fn pace(request: &LoadRequest<'_>) -> Result<Vec<(&'static str, String)>, String> {
    match (request.rate, request.closed, request.spike, request.replay) {
        (Some(_), None, None, Some(Replay { log, speed })) => {
            Ok(vec![("--replay", log.display().to_string()), ("--speed", speed.to_string())])
        }
        (Some(_), None, Some(spike), None) => Ok(vec![("--arrivals", spike.law(request.warmup_s))]),
        (Some(rate), None, None, None) => {
            let law = request.load.arrivals.map(|law| ("--arrivals", law.name().to_owned()));
            Ok(std::iter::once(("--rate", rate.to_string())).chain(law).collect())
        }
        (None, Some(conns), None, None) => Ok(vec![("--closed", conns.to_string())]),
        _ => Err("weir load takes a rate or the connections of a closed loop".to_owned()),
    }
}

/// Returns the options of the clients' TCP and of their addresses.
fn stack(request: &LoadRequest<'_>) -> Result<Vec<(&'static str, String)>, String> {
    if request.load.generator != Generator::Packet {
        let sources = Some(&request.sources).filter(|sources| !sources.is_empty());
        return Ok(sources.map(|sources| ("--source", list(sources))).into_iter().collect());
    }
    let link = request.environment.packet_link();
    let link = link.ok_or("generator packet needs namespaces, which this testbed has not")?;
    let mut options = vec![
        ("--stack", "packet".to_owned()),
        ("--interface", link.interface),
        ("--source", link.network),
    ];
    options.extend(request.load.path.as_ref().map(|path| ("--path", path.to_string())));
    options.extend(request.load.coalesce_us.map(|us| ("--coalesce", format!("{}us", *us))));
    Ok(options)
}

/// Writes a list of paths; returns where it is.
fn written(request: &LoadRequest<'_>, name: &str, text: &str) -> Result<String, String> {
    let path = request.dir.join(name).display().to_string();
    fs::write(&path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
    Ok(path)
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

/// Returns the measurement window. Idle and shared connections are opened before the schedule
/// begins, evenly, by all threads together at the background rate. If the server accepts them more
/// slowly, the schedule begins later than returned here.
fn window(request: &LoadRequest<'_>) -> Result<(Duration, Duration), String> {
    let options = &request.load.options;
    let given = options.iter().position(|option| option == "--background-rate");
    let rate = given.and_then(|at| options.get(at + 1)?.parse().ok());
    let opened = f64::from(request.idle) + f64::from(request.conns.unwrap_or(0));
    let opening = seconds(opened / rate.unwrap_or(BACKGROUND_PER_S))?;
    let begin = SET_UP + opening + seconds(request.warmup_s)?;
    Ok((begin, begin + seconds(request.duration_s)?))
}

pub(super) fn read(
    output: &GeneratorOutput<'_>,
    context: &ReportContext,
) -> Result<LoadResult, String> {
    if output.status.code() != Some(INVALID) {
        output.of_success()?;
    }
    let text = fs::read(output.dir.join(REPORT))
        .map_err(|_| format!("it wrote no report: {}", output.words))?;
    let report = serde_json::from_slice(&text).map_err(|error| format!("its report: {error}"))?;
    let result =
        result(&report).ok_or_else(|| "its report lacks what is expected of it".to_owned())?;
    let timeline = context.grid.map(|grid| folded(output, &grid)).transpose()?;
    Ok(LoadResult { timeline, ..result })
}

/// Aggregates the lines of all requests over time.
fn folded(output: &GeneratorOutput<'_>, grid: &Grid) -> Result<crate::record::Timeline, String> {
    let path = output.dir.join(REQUEST_LOG);
    let said = |error| format!("{}: {error}", path.display());
    timeline::fold(BufReader::new(File::open(&path).map_err(said)?), grid)
}

/// Translates the report into the lab's terms. The window is the schedule after its warm-up, and
/// the rates count the replies received in it, whenever they were requested, and sessions by their
/// good replies. Replies received while the last requests run into their timeouts add to the counts
/// but not to the rates: they would make the rate of a short window depend on the timeout.
fn result(report: &Value) -> Option<LoadResult> {
    let (verdict, rates, counts) = (&report["verdict"], &report["rates"], &report["counts"]);
    let open_loop = report["description"]["loop"].as_str()? == "open";
    let status = |class: &str| counts["statuses"][class].as_u64().unwrap_or(0);
    let errors = report["errors"].as_object()?.iter();
    let reasons = verdict["reasons"].as_array()?.iter();
    let cpus = verdict["cpu_share"].as_array().into_iter().flatten().filter_map(Value::as_f64);
    let clock = |name: &str| times(&report["clocks"][name]);
    let replies_per_s = rates["replies_in_schedule_per_s"].as_f64()?;
    let replies = counts["replies"].as_u64()?;
    let good_per_s = rates["good_replies_in_schedule_per_s"].as_f64();
    // Each had so many replies.
    let sessions = counts["sessions"].as_u64().filter(|_| replies > 0);
    let sessions_per_s = sessions
        .map(|sessions| good_per_s.unwrap_or(replies_per_s) * sessions as f64 / replies as f64);
    let valid = verdict["valid"].as_bool()?;
    Some(LoadResult {
        valid,
        late_only: !valid && verdict["rates_valid"].as_bool().unwrap_or(false),
        reasons: reasons.filter_map(Value::as_str).map(str::to_owned).collect(),
        open_loop,
        window_s: rates["scheduled_s"].as_f64()?,
        planned_per_s: rates["planned_per_s"].as_f64().filter(|_| open_loop),
        started_per_s: rates["started_per_s"].as_f64(),
        replies_per_s,
        good_per_s,
        sessions_per_s,
        replies,
        replies_refused: status("1xx") + status("4xx") + status("5xx"),
        errors: errors
            .filter_map(|(kind, count)| Some((kind.clone(), count.as_u64().filter(|n| *n > 0)?)))
            .collect(),
        whole: WholeRun::deserialize(&report["whole_run"]).ok(),
        response: clock("response"),
        good_response: clock("good_response"),
        connect: clock("connect"),
        service: clock("service"),
        lag: clock("lag"),
        open_max: report["connections"]["open_max"].as_u64(),
        cpu_share: cpus.reduce(f64::max),
        connects: counts["connects"].as_u64(),
        connected: counts["connected"].as_u64(),
        ..LoadResult::default()
    })
}

fn times(clock: &Value) -> Option<Times> {
    Times::deserialize(clock).ok().filter(|times| times.count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = include_str!("fixtures/weir.json");

    #[test]
    fn a_report_is_read() {
        let report = serde_json::from_str(REPORT).unwrap();
        let result = result(&report).unwrap();
        assert!(!result.valid && result.open_loop);
        assert!(result.reasons[0].starts_with("This client was late"), "{:?}", result.reasons);
        assert_eq!((result.replies, result.replies_refused), (140, 0));
        assert_eq!((result.window_s, result.replies_per_s), (0.7, 200.0));
        assert_eq!((result.planned_per_s, result.sessions_per_s), (Some(200.0), Some(200.0)));
        assert!(result.open_max == Some(101) && result.whole.is_none());
        assert!(result.errors.is_empty());
        let response = result.response.unwrap();
        assert_eq!((response.count, response.p50_us), (140, Some(261.887)));
    }

    #[test]
    fn sessions_are_those_of_the_schedule_without_refusals() {
        let mut report: Value = serde_json::from_str(REPORT).unwrap();
        // Two replies a session; the last of them came long after the schedule.
        report["counts"]["sessions"] = 70.into();
        report["rates"]["sessions_per_s"] = 20.into();
        report["rates"]["good_replies_in_schedule_per_s"] = 150.into();
        assert_eq!(result(&report).unwrap().sessions_per_s, Some(75.0));
        report["counts"]["replies"] = 0.into();
        assert_eq!(result(&report).unwrap().sessions_per_s, None);
    }

    #[test]
    fn errors_and_the_whole_run_are_read_when_they_are_there() {
        let mut report: Value = serde_json::from_str(REPORT).unwrap();
        report["errors"]["reset"] = 3.into();
        report["description"]["loop"] = "closed".into();
        report["whole_run"] = serde_json::json!({ "replies": 200, "errors": 4, "connected": 300 });
        report["clocks"]["response"]["count"] = 0.into();
        report["clocks"]["service"] = serde_json::json!({ "count": 0, "mean_us": null });
        let result = result(&report).unwrap();
        assert_eq!(result.errors.into_iter().collect::<Vec<_>>(), [("reset".to_owned(), 3)]);
        let whole = result.whole.unwrap();
        assert_eq!((whole.replies, whole.errors, whole.connected), (200, 4, 300));
        assert_eq!((result.planned_per_s, result.response.is_none()), (None, true));
        assert!(result.service.is_none());
    }

    #[test]
    fn a_report_that_lacks_something_is_refused() {
        assert!(result(&serde_json::json!({ "verdict": { "valid": true } })).is_none());
    }
}
