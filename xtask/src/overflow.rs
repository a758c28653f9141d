//! Overflow: a server whose kernel queues its events one by one, with a queue too short for its
//! connections, answers millions of requests. Every event that does not fit must be found again:
//! wrk, a closed loop, shows a connection that hangs as a time-out. Asks nothing about speed.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use weir_lab::programs;

use crate::trial::Trial;
use crate::trial::stop::Counted;
use crate::trial::wrk::{self, Load};

/// The options of the overflow trial.
#[derive(clap::Args)]
pub(crate) struct OverflowArgs {
    /// How many requests are answered at least, by all cases with too short a queue together
    #[arg(long, default_value_t = 10_000_000)]
    requests: u64,
    /// How long wrk runs at a time, seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// The folder to write to [default: results/DATE-overflow]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The file that is asked for, in bytes.
const FILE_BYTES: usize = 1024;

/// Time after which wrk calls a request timed out, seconds.
const TIMEOUT_S: u32 = 10;

/// A mechanism with a queue of some length, under some connections.
struct Case {
    mechanism: &'static str,
    /// Signals that may be queued.
    queue: u32,
    connections: u32,
    close: bool,
    /// The share of all requests that this case is to answer.
    share: f64,
    /// Whether the queue is to overflow; else it must not.
    overflows: bool,
}

const fn case(mechanism: &'static str, queue: u32, connections: u32, share: f64) -> Case {
    Case { mechanism, queue, connections, close: false, share, overflows: true }
}

/// The first three have a queue far too short; the others two places a connection.
const CASES: [Case; 6] = [
    case("rtsig", 64, 256, 0.34),
    case("rtsig-bulk", 64, 256, 0.33),
    case("signal-per-fd", 64, 256, 0.33),
    Case { overflows: false, ..case("signal-per-fd", 512, 256, 0.1) },
    Case { overflows: false, close: true, ..case("signal-per-fd", 512, 256, 0.02) },
    Case { overflows: false, ..case("signal-per-fd", 10_000, 5_000, 0.1) },
];

/// What came of a case.
struct Row {
    case: &'static Case,
    requests: u64,
    counted: Counted,
    /// What was wrong, in words.
    wrong: Vec<String>,
}

/// Runs the cases and writes what came of them.
pub(crate) fn run(args: &OverflowArgs) -> Result<()> {
    if programs::find("wrk").is_none() {
        println!("wrk is not installed: skipped");
        return Ok(());
    }
    let trial = Trial::build()?;
    let root = trial.root()?;
    fs::write(root.join(format!("{FILE_BYTES}.bin")), [b'x'; FILE_BYTES])?;
    let mut rows = Vec::new();
    for case in &CASES {
        let row = measure(case, &trial, &root, args)?;
        println!("{}", line(&row));
        rows.push(row);
    }
    let out = trial.results(args.out.as_deref(), "overflow")?;
    let plan = format!("wrk is run for {} s, again and again", args.seconds);
    fs::write(out.join("serve-overflow.md"), text(&rows) + &trial.set_up(&plan))?;
    println!("results in {}", out.display());
    let failed = rows.iter().filter(|row| !row.wrong.is_empty()).count();
    ensure!(failed == 0, "{failed} case(s) failed");
    Ok(())
}

/// Runs wrk again and again against one server until it has its share of the requests.
fn measure(case: &'static Case, trial: &Trial, root: &Path, args: &OverflowArgs) -> Result<Row> {
    let queue = format!("pending-signals={}", case.queue);
    // No connection is refused: one that waits in vain waits for an event.
    let options =
        ["--controls-off", "all", "--mechanism", case.mechanism, "--mechanism-option", &queue];
    let server = trial.start(&options, root)?;
    let load = Load {
        path: format!("/{FILE_BYTES}.bin"),
        connections: case.connections,
        close: case.close,
        seconds: args.seconds,
        timeout_s: TIMEOUT_S,
    };
    let wanted = (args.requests as f64 * case.share) as u64;
    let (mut requests, mut wrong) = (0, Vec::new());
    while requests < wanted && wrong.is_empty() {
        let outcome = wrk::run(trial.client("wrk"), &load, server.address, &server.dir)?;
        requests += outcome.requests;
        wrong.extend(outcome.complaints());
    }
    let (counted, more) = server.stop(requests)?;
    wrong.extend(more);
    if case.overflows != (counted.event_overflows > 0) {
        wrong.push(format!("{} overflows", counted.event_overflows));
    }
    Ok(Row { case, requests, counted, wrong })
}

fn line(row: &Row) -> String {
    let Row { case, requests, counted, wrong } = row;
    let verdict = if wrong.is_empty() { "passed".to_owned() } else { wrong.join("; ") };
    format!(
        "{}, {} signals, {} connections{}: {requests} requests, {} overflows: {verdict}",
        case.mechanism,
        case.queue,
        case.connections,
        if case.close { ", close" } else { "" },
        counted.event_overflows,
    )
}

fn text(rows: &[Row]) -> String {
    let requests: u64 = rows.iter().map(|row| row.requests).sum();
    let failed = rows.iter().filter(|row| !row.wrong.is_empty()).count();
    let mut page = format!(
        "# serve: overflow

Mechanisms whose events are queued one by one, with queues that overflow and queues that must not.

{requests} requests in {} cases, {failed} failed.

| mechanism | queue | connections | requests | signals | overflows | members swept | stale \
| coalesced | checked | wrong |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|
",
        rows.len()
    );
    for Row { case, requests, counted, wrong } in rows {
        let close = if case.close { ", close" } else { "" };
        let verdict = if wrong.is_empty() { "none".to_owned() } else { wrong.join("; ") };
        let _ = writeln!(
            page,
            "| {} | {} | {}{close} | {requests} | {} | {} | {} | {} | {} | {} | {verdict} |",
            case.mechanism,
            case.queue,
            case.connections,
            counted.event_notices,
            counted.event_overflows,
            counted.event_swept,
            counted.event_stale,
            counted.event_coalesced,
            counted.event_checked,
        );
    }
    page.push_str(
        "
## How it was checked

- The overload control is off, so that nobody is refused.
- wrk keeps one request going on every connection, and calls one that is not answered within ten
  seconds a time-out: an event lost, or a connection that hangs. Any error fails the case.
- At the end the server gets a SIGTERM. It must end with status 0, all accepted connections must be
  closed, and it must have sent as many replies as wrk saw or more.
- The queue is RLIMIT_SIGPENDING. The first cases have a quarter of a place for each connection, and
  fail when nothing overflows; the others have two, and fail when anything does.
",
    );
    page
}
