//! `lag`: how late `weir load` starts what it planned, at half the rate that it can do.

use std::fmt::Write;

use anyhow::Result;

use super::generator::{Job, Pace};
use super::page::{Page, judged};
use super::run::{Entry, Notes, Run};
use super::{Bench, Drive, ONE_BYTE, rate};

/// How late 1 % of the starts may be, in microseconds.
const P99_MAX_US: f64 = 200.0;

/// How far the starts may be from the plan, in number.
const MISSING_SHARE_MAX: f64 = 0.001;

/// Finds the highest rate, and runs for long at half of it.
pub(super) fn run(bench: &Bench) -> Result<usize> {
    let generator = bench.tools.weir_load();
    let server = bench.tools.serve(&[]);
    let pace = Pace::Open(0.0);
    let job = Job { path: ONE_BYTE.to_owned(), pace, keep: false, options: Vec::new() };
    let highest = rate::highest(bench, &server, &generator, &job)?;
    let half = (highest / 2.0).round();
    let job = Job { pace: Pace::Open(half), ..job };
    let entries = [Entry { group: String::new(), name: format!("weir load at {half}/s"), of: () }];
    let (rounds, seconds) = (bench.long.rounds, bench.long.seconds);
    let runs = bench.rounds("lag", rounds, &entries, |(), notes: &mut Notes| {
        let place = bench.stage.place(&server)?;
        notes.server.clone_from(&place.arguments);
        let _running = place.start()?;
        let (to, folder) = (place.address, place.path());
        let drive = Drive { generator: &generator, job: &job, to, seconds, folder };
        let measured = drive.run(notes)?;
        notes.flags.extend(measured.complaints());
        Ok(measured)
    })?;
    let body = body(&runs);
    print!("{body}");
    let page = Page {
        case: "lag",
        about: format!(
            "How late weir load starts what it planned: an open loop at {half} a second, half of \
             the {highest} that it held with this server; a connection for each request, a file \
             of one byte from weir serve."
        ),
        body,
        method: METHOD.to_owned(),
        plan: format!("{rounds} rounds of {seconds} s"),
    };
    bench.write("lag", &page.text(bench, &runs), &runs)
}

fn body(runs: &[Run<'_>]) -> String {
    let mut body = "
| run | planned | started ÷ planned | lag p50 µs | p99 µs | p99.9 µs | most µs | core busy % | \
                    errors | verdict |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---|
"
    .to_owned();
    let counted = || runs.iter().filter_map(|run| Some((run, run.valid()?, run.valid()?.weir()?)));
    let (mut p99_us, mut missing) = (None::<f64>, None::<f64>);
    for (run, measured, report) in counted() {
        let verdict = &report.verdict;
        let achieved = verdict.achieved_share.unwrap_or(0.0);
        p99_us = Some(p99_us.unwrap_or(0.0).max(verdict.lag_p99_us));
        missing = Some(missing.unwrap_or(0.0).max((1.0 - achieved).abs()));
        let _ = writeln!(
            body,
            "| {} | {} | {achieved:.5} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {} |",
            run.round,
            report.counts.planned,
            verdict.lag_p50_us,
            verdict.lag_p99_us,
            verdict.lag_p999_us,
            verdict.lag_max_us,
            measured.window.not_idle_share() * 100.0,
            measured.tally.errors,
            if verdict.valid { "valid".to_owned() } else { verdict.reasons.join(" ") },
        );
    }
    let in_time = p99_us.map(|worst| worst <= P99_MAX_US);
    let in_number = missing.map(|worst| worst <= MISSING_SHARE_MAX);
    let _ = write!(
        body,
        "\n- {}\n- {}\n",
        judged("lag p99 ≤ 200 µs, in every run", in_time),
        judged("started within 0.1 % of planned, in every run", in_number),
    );
    body
}

const METHOD: &str = "\
- Lag is the time from a request's planned start to its actual start, over every start.
- The highest rate is the highest, to within 5 %, in runs of 2 s or less that weir load called
  valid, with no error and with replies at no less than 97 % of it.
";

#[cfg(test)]
mod tests {
    use super::super::generator::Said;
    use super::super::generator::tests::report;
    use super::super::run::tests::{measured, run};
    use super::*;
    use crate::bench::page::tests::setup;

    #[test]
    fn the_worst_run_is_judged() {
        let setup = setup();
        let late = |round, lag_p99_us, achieved| {
            let (mut measured, mut report) = (measured(1000, 0), report());
            report.verdict.lag_p99_us = lag_p99_us;
            report.verdict.achieved_share = Some(achieved);
            measured.tally.said = Said::Weir(Box::new(report));
            run(("", "weir load at 5/s"), round, Some(measured), &setup)
        };
        let text = body(&[late(1, 80.0, 1.0), late(2, 199.0, 0.9995)]);
        assert!(text.contains("| 2 | 1000 | 0.99950 | 5 | 199 | 90 |"), "{text}");
        assert_eq!(text.matches(": reached").count(), 2, "{text}");
        let text = body(&[late(1, 201.0, 0.99), late(2, 80.0, 1.0)]);
        assert_eq!(text.matches(": MISSED").count(), 2, "{text}");
        assert_eq!(body(&[]).matches(": –").count(), 2);
    }
}
