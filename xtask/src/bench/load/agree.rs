//! `httperf`: whether `weir load` and httperf measure the same when they load the same server at
//! the same rate.

use std::fmt::Write;

use anyhow::Result;

use super::generator::{Generator, Job, Pace, Said};
use super::page::{Page, judged, of};
use super::run::{Entry, Measured, Notes, Run};
use super::slow::{DELAY, Slow};
use super::{Bench, Drive, ONE_BYTE, WARM_UP_SECONDS};
use crate::bench::page::{median, none, spread};
use crate::bench::stage::run_folder;
use crate::spread::{Spread, paired_ratios};

/// Requests a second: far from what any of the servers can do.
const RATE: f64 = 2_000.0;

/// How far the two may be from each other.
const DIFFERENCE_MAX: f64 = 0.02;

/// What httperf's times are rounded to, in milliseconds.
const ROUNDED_TO_MS: f64 = 0.1;

/// Where the search for a free port for the slow server begins.
const FIRST_PORT: u16 = 25_000;

const SERVE: &str = "weir serve";
const SLOW: &str = "a slow server";

struct Contestant {
    slow: bool,
    generator: Generator,
}

/// Runs both against both servers.
pub(super) fn run(bench: &Bench) -> Result<usize> {
    let mut entries = Vec::new();
    for (group, slow) in [(SERVE, false), (SLOW, true)] {
        for generator in [bench.tools.weir_load(), Generator::Httperf] {
            if !bench.tools.generators.contains(&generator) {
                println!("there is no httperf to agree with: skipped");
                return Ok(0);
            }
            let name = generator.name().to_owned();
            let of = Contestant { slow, generator };
            entries.push(Entry { group: group.to_owned(), name, of });
        }
    }
    let rounds = bench.setup.rounds;
    let measure = |contestant: &_, notes: &mut _| measure(bench, contestant, notes);
    let runs = bench.rounds("httperf", rounds, &entries, measure)?;
    let body = body(&runs);
    print!("{body}");
    let page = Page {
        case: "httperf",
        about: format!(
            "Whether weir load and httperf measure the same: an open loop of {RATE} requests a \
             second, a connection for each, against weir serve with a file of one byte, and \
             against a server that sends the head of a reply {delay} ms after the request and the \
             body {delay} ms after the head.",
            delay = DELAY.as_millis()
        ),
        body,
        method: METHOD.to_owned(),
        plan: format!(
            "{rounds} rounds of {} s after {WARM_UP_SECONDS} s\n  of warm-up; seed {}",
            bench.setup.seconds, bench.setup.seed
        ),
    };
    bench.write("httperf", &page.text(bench, &runs), &runs)
}

fn measure(bench: &Bench, contestant: &Contestant, notes: &mut Notes) -> Result<Measured> {
    let generator = &contestant.generator;
    let pace = Pace::Open(RATE);
    let job = &Job { path: ONE_BYTE.to_owned(), pace, keep: false, options: Vec::new() };
    let (warm_up, seconds) = (WARM_UP_SECONDS, bench.setup.seconds);
    let measured = if contestant.slow {
        let slow = Slow::start(FIRST_PORT)?;
        notes.server = SLOW.to_owned();
        let folder = run_folder()?;
        let (to, folder) = (slow.address, folder.path());
        Drive { generator, job, to, seconds: warm_up, folder }.run(notes)?;
        Drive { generator, job, to, seconds, folder }.run(notes)?
    } else {
        let place = bench.stage.place(&bench.tools.serve(&[]))?;
        notes.server.clone_from(&place.arguments);
        let _running = place.start()?;
        let (to, folder) = (place.address, place.path());
        Drive { generator, job, to, seconds: warm_up, folder }.run(notes)?;
        Drive { generator, job, to, seconds, folder }.run(notes)?
    };
    notes.flags.extend(measured.complaints());
    Ok(measured)
}

/// A figure that both give.
struct Figure {
    name: &'static str,
    /// Whether httperf rounds it.
    is_time: bool,
    of: fn(&Measured) -> Option<f64>,
}

const FIGURES: [Figure; 3] = [
    Figure { name: "replies/s", is_time: false, of: |measured| Some(measured.replies_per_s()) },
    Figure {
        name: "reply time, ms",
        is_time: true,
        of: |measured| match &measured.tally.said {
            Said::Weir(report) => {
                Some((report.clocks.wait.mean_us + report.clocks.transfer.mean_us) / 1e3)
            }
            Said::Httperf(report) => Some(report.response_ms + report.transfer_ms),
            _ => None,
        },
    },
    Figure {
        name: "connection time, ms",
        is_time: true,
        of: |measured| match &measured.tally.said {
            Said::Weir(report) => Some(report.clocks.service.mean_us / 1e3),
            Said::Httperf(report) => Some(report.connection_ms),
            _ => None,
        },
    },
];

fn body(runs: &[Run<'_>]) -> String {
    let mut body = "
| server | figure | weir load | httperf | weir load ÷ httperf (min–max) | bar |
|---|---|---:|---:|---:|---|
"
    .to_owned();
    for group in [SERVE, SLOW] {
        for figure in &FIGURES {
            row(&mut body, group, figure, runs);
        }
    }
    body
}

fn row(body: &mut String, group: &str, figure: &Figure, runs: &[Run<'_>]) {
    let values = |name: &str| -> Vec<(u32, f64)> {
        let own = of(runs, group, name);
        own.iter().filter_map(|run| Some((run.round, (figure.of)(run.valid()?)?))).collect()
    };
    let middle = |values: &[(u32, f64)]| median(values.iter().map(|(_, value)| *value).collect());
    let (ours, theirs) = (values("weir load"), values("httperf"));
    let (our, their) = (middle(&ours), middle(&theirs));
    let ratios = paired_ratios(&ours, &theirs);
    let ratio = Spread::of(ratios.clone()).map(|spread| spread.median);
    // A figure that is as small as its rounding says nothing about 2 %.
    let coarse =
        figure.is_time && their.is_some_and(|ms| ROUNDED_TO_MS / 2.0 > ms * DIFFERENCE_MAX / 2.0);
    let verdict = if coarse {
        "none: too small for httperf's rounding".to_owned()
    } else {
        judged("within 2 %", ratio.map(|ratio| (ratio - 1.0).abs() <= DIFFERENCE_MAX))
    };
    let shown = |value: Option<f64>| value.map_or(none(), |value| format!("{value:.3}"));
    let _ = writeln!(
        body,
        "| {group} | {} | {} | {} | {} | {verdict} |",
        figure.name,
        shown(our),
        shown(their),
        if coarse { none() } else { spread(ratios) },
    );
}

const METHOD: &str = "\
- The rate of replies is their number divided by the time, as each client counts them. Times are
  means. The reply time is from the first byte of the request sent to the last byte of the reply
  received: wait and transfer of weir load, response and transfer of httperf. The connection time is
  from the start of the connect to the last byte received for weir load (its service time), to the
  end of the connection for httperf.
- Each ratio is of two runs of one round; the median of these, and the least and the greatest. The
  other figures are medians.
- httperf rounds its times to 0.1 ms. Where half of that is more than 1 % of the time, the two are
  shown and not compared. For this the slow server is there: threads on the server's core that sleep
  before they send.
- Before each run the same client loads the server for a moment.
";

#[cfg(test)]
mod tests {
    use super::super::generator::tests::{httperf_report, report};
    use super::super::run::tests::{measured, run};
    use super::*;
    use crate::bench::page::tests::setup;

    fn said(said: Said) -> Option<Measured> {
        let mut measured = measured(1000, 0);
        measured.tally.said = said;
        Some(measured)
    }

    #[test]
    fn like_is_compared_with_like() {
        let setup = setup();
        let ours = || said(Said::Weir(Box::new(report())));
        let theirs = || said(Said::Httperf(httperf_report()));
        let text = body(&[
            run((SLOW, "weir load"), 1, ours(), &setup),
            run((SLOW, "httperf"), 1, theirs(), &setup),
        ]);
        let rows = [
            "| a slow server | replies/s | 1000.000 | 1000.000 | 1.000 (1.000–1.000) | within 2 %: \
             reached |",
            "| a slow server | reply time, ms | 40.100 | 40.100 | 1.000 (1.000–1.000) | within",
            "| a slow server | connection time, ms | 40.300 | 40.300 | 1.000 (1.000–1.000) | wit",
            "| weir serve | replies/s | – | – | – | within 2 %: – |",
        ];
        for row in rows {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }

    #[test]
    fn what_httperf_rounds_away_is_not_compared() {
        let setup = setup();
        let mut small = httperf_report();
        (small.response_ms, small.transfer_ms) = (0.2, 0.0);
        let text = body(&[
            run((SERVE, "weir load"), 1, said(Said::Weir(Box::new(report()))), &setup),
            run((SERVE, "httperf"), 1, said(Said::Httperf(small)), &setup),
        ]);
        let row = "| weir serve | reply time, ms | 40.100 | 0.200 | – | none: too small";
        assert!(text.contains(row), "{text}");
    }
}
