//! `silent`: whether `weir load` grows when the server says nothing and every request ends in a
//! timeout.

use std::cell::RefCell;
use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use super::generator::{Job, Pace};
use super::page::{Page, judged};
use super::quiet::{Kind, Quiet};
use super::run::{Entry, Measured, Notes, Run};
use super::{Bench, Drive, ONE_BYTE, client};
use crate::bench::core_time::resident_bytes;
use crate::bench::page::none;
use crate::bench::stage::run_folder;

/// Requests a second.
const RATE: f64 = 20_000.0;

/// How long a request waits.
const TIMEOUT_S: u32 = 2;

/// From when on nothing may grow, in seconds: the first timeouts have come, and their consequences.
const SETTLED_S: f64 = TIMEOUT_S as f64 + 1.0;

/// What the resident set may grow by over the rest of the run, as a part of itself.
const GROWTH_SHARE_MAX: f64 = 0.02;

/// Addresses with more ports than requests wait.
const SOURCES: &str = "127.0.0.2-127.0.0.9";

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where the search for a free port begins.
const FIRST_PORT: u16 = 25_500;

/// Runs against either kind of silence.
pub(super) fn run(bench: &Bench) -> Result<usize> {
    let kinds = [("never accepts", Kind::NeverAccepts), ("never answers", Kind::NeverAnswers)];
    let entries =
        kinds.map(|(name, kind)| Entry { group: String::new(), name: name.to_owned(), of: kind });
    let (rounds, seconds) = (bench.long.rounds, bench.long.seconds);
    let measure = |kind: &Kind, notes: &mut Notes| measure(bench, *kind, notes);
    let runs = bench.rounds("silent", rounds, &entries, measure)?;
    let body = body(&runs, f64::from(seconds));
    print!("{body}");
    let page = Page {
        case: "silent",
        about: format!(
            "weir load starts {RATE} requests a second, a connection for each, with a timeout of \
             {TIMEOUT_S} s, against a server that never accepts a connection, and one that \
             accepts and never answers."
        ),
        body,
        method: METHOD.to_owned(),
        plan: format!("{rounds} rounds of {seconds} s; seed {}", bench.setup.seed),
    };
    bench.write("silent", &page.text(bench, &runs), &runs)
}

fn measure(bench: &Bench, kind: Kind, notes: &mut Notes) -> Result<Measured> {
    let quiet = Quiet::start(kind, FIRST_PORT)?;
    notes.server = format!("{kind:?}");
    let folder = run_folder()?;
    let timeout = format!("{TIMEOUT_S}s");
    let job = Job {
        path: ONE_BYTE.to_owned(),
        pace: Pace::Open(RATE),
        keep: false,
        options: ["--source", SOURCES, "--timeout", &timeout].map(str::to_owned).into(),
    };
    let resident = RefCell::new(Vec::new());
    let look = |client: u32, age_s: f64| {
        // A client that has just ended has no resident set.
        resident.borrow_mut().extend(resident_bytes(client).ok().map(|bytes| (age_s, bytes)));
    };
    let generator = &bench.tools.weir_load();
    let (to, folder, seconds) = (quiet.address, folder.path(), bench.long.seconds);
    let drive = Drive { generator, job: &job, to, seconds, folder };
    let mut measured =
        drive.run_by(|line, folder| client::watch(line, folder, LOOK_EVERY, look), notes)?;
    quiet.stop()?;
    measured.resident = resident.into_inner();
    // Other company on the core would not show in the memory. Here there is some: the kernel's own
    // timers, which send the SYNs of thousands of connections again.
    if measured.tally.errors == 0 {
        notes.flags.push("nothing timed out".to_owned());
    }
    Ok(measured)
}

fn body(runs: &[Run<'_>], seconds: f64) -> String {
    let mut body = "
| server | run | started ÷ planned | lag p99 µs | errors | resident MiB, settled | at the end | \
                    most | slope bytes/s | bar |
|---|---:|---:|---:|---|---:|---:|---:|---:|---|
"
    .to_owned();
    for (run, measured) in runs.iter().filter_map(|run| Some((run, run.valid()?))) {
        row(&mut body, run, measured, seconds);
    }
    body
}

fn row(body: &mut String, run: &Run<'_>, measured: &Measured, seconds: f64) {
    let Some(report) = measured.weir() else { return };
    let settled = settled(&measured.resident, seconds);
    let shown = |bytes: Option<f64>| {
        bytes.map_or(none(), |bytes| format!("{:.2}", bytes / f64::from(1 << 20)))
    };
    let (first, last) = (settled.first().map(|at| at.1), settled.last().map(|at| at.1));
    let slope = slope(&settled);
    let steady = slope
        .zip(first)
        .map(|(slope, first)| slope * (seconds - SETTLED_S) <= first * GROWTH_SHARE_MAX);
    let _ = writeln!(
        body,
        "| {} | {} | {} | {:.0} | {} | {} | {} | {} | {} | {} |",
        run.contestant,
        run.round,
        report.verdict.achieved_share.map_or(none(), |share| format!("{share:.5}")),
        report.verdict.lag_p99_us,
        kinds(report.errors.iter()),
        shown(first),
        shown(last),
        shown(settled.iter().map(|at| at.1).reduce(f64::max)),
        slope.map_or(none(), |slope| format!("{slope:.0}")),
        judged("no growth", steady),
    );
}

/// The kinds of errors there were, and how many of each.
fn kinds<'a>(errors: impl Iterator<Item = (&'a String, &'a u64)>) -> String {
    let some = errors.filter(|(_, count)| **count > 0);
    let shown: Vec<String> = some.map(|(kind, count)| format!("{count} {kind}")).collect();
    if shown.is_empty() { none() } else { shown.join(", ") }
}

/// The looks at a client between the first timeouts and the end of the load.
fn settled(resident: &[(f64, u64)], seconds: f64) -> Vec<(f64, f64)> {
    let during = resident.iter().filter(|(age_s, _)| (SETTLED_S..=seconds).contains(age_s));
    during.map(|(age_s, bytes)| (*age_s, *bytes as f64)).collect()
}

/// The slope of the line through `points` with the least squares; none through fewer than two.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (points.len() > 1 && under > 0.0).then(|| over / under)
}

const METHOD: &str = "\
- The servers are threads of the program that measures, on the server's core. The one that accepts
  lets a connection go when its client closes it.
- The resident set is VmRSS of the client's process, read each second. It is settled a second after
  the first timeouts. The slope is that of the line with the least squares through the rest, up to
  the end of the load. Nothing grows when, at that slope, the rest of the load adds 2 % at most.
- A process here may have fewer descriptors than requests wait for the timeout. What has none is an
  error of its own kind, and such a run is not valid as a measurement of a server.
";

#[cfg(test)]
mod tests {
    use super::super::generator::Said;
    use super::super::generator::tests::report;
    use super::super::run::tests::{measured, run};
    use super::*;
    use crate::bench::page::tests::setup;

    #[test]
    fn a_slope_is_that_of_the_line() {
        let slope_of = |points: &[(f64, f64)]| slope(points).unwrap();
        assert!((slope_of(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]) - 2.0).abs() < 1e-9);
        assert!((slope_of(&[(1.0, 5.0), (2.0, 7.0), (3.0, 5.0)])).abs() < 1e-9);
        assert_eq!(slope(&[(1.0, 5.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn growth_after_the_first_timeouts_is_seen_and_growth_before_is_not() {
        let setup = setup();
        let text = |resident: fn(u64) -> u64| {
            let mut measured = measured(0, 20);
            measured.tally.said = Said::Weir(Box::new(report()));
            measured.resident = (1..=12).map(|at| (at as f64, resident(at))).collect();
            body(&[run(("", "never answers"), 1, Some(measured), &setup)], 10.0)
        };
        let steady = text(|at| if at < 3 { at << 20 } else { 16 << 20 });
        let row = "| never answers | 1 | 1.00000 | 50 | 20 reply-timeout | 16.00 | 16.00 | 16.00 | \
                   0 | no growth: reached |";
        assert!(steady.contains(row), "{steady}");
        let growing = text(|at| (16 + at) << 20);
        assert!(growing.contains("| 1048576 | no growth: MISSED |"), "{growing}");
    }
}
