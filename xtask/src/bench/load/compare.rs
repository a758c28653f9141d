//! `close` and `keep`: how much load a second of the client's core makes, by `weir load` and by
//! others of its kind.

use std::fmt::Write;

use anyhow::Result;

use super::generator::{Generator, Job, Pace};
use super::page::{Page, judged, of, typical};
use super::run::{Entry, Measured, Notes, Run};
use super::{Bench, Drive, ONE_BYTE, WARM_UP_SECONDS, rate};
use crate::bench::page::{none, spread};
use crate::bench::peers::Server;
use crate::spread::{Spread, paired_ratios};

/// How many connections a closed loop has.
const CONNECTIONS: u32 = 64;

struct Contestant {
    server: Server,
    generator: Generator,
    job: Job,
}

/// A connection for each request.
pub(super) fn close(bench: &Bench) -> Result<usize> {
    let job = Job {
        path: ONE_BYTE.to_owned(),
        pace: Pace::Closed(CONNECTIONS),
        keep: false,
        options: Vec::new(),
    };
    let about = format!(
        "A connection for each request, a file of one byte: {CONNECTIONS} at a time; httperf, \
         which has an open loop only, at the highest rate that it held with the server."
    );
    let mut entries = closed_loops(bench, &job);
    if bench.tools.generators.contains(&Generator::Httperf) {
        for (group, server) in bench.tools.servers() {
            let rate = rate::highest(bench, &server, &Generator::Httperf, &job)?;
            let job = Job { pace: Pace::Open(rate), ..job.clone() };
            let of = Contestant { server, generator: Generator::Httperf, job };
            let name = format!("httperf at {rate:.0}/s");
            entries.push(Entry { group: group.to_owned(), name, of });
        }
    }
    run(bench, "close", about, &entries)
}

/// Connections that are kept.
pub(super) fn keep(bench: &Bench) -> Result<usize> {
    let job = Job {
        path: "/1024.bin".to_owned(),
        pace: Pace::Closed(CONNECTIONS),
        keep: true,
        options: Vec::new(),
    };
    let about = format!("{CONNECTIONS} connections, kept open; a file of 1024 bytes.");
    run(bench, "keep", about, &closed_loops(bench, &job))
}

/// How many times the requests of another, for each second of the core, `weir load` is to make.
fn bar(case: &str, generator: &Generator) -> Option<f64> {
    match (case, generator) {
        ("close", Generator::Wrk | Generator::Ab) => Some(1.3),
        ("close", Generator::Httperf) => Some(2.0),
        ("keep", Generator::Wrk) => Some(1.0),
        _ => None,
    }
}

fn closed_loops(bench: &Bench, job: &Job) -> Vec<Entry<Contestant>> {
    let mut entries = Vec::new();
    for (group, server) in bench.tools.servers() {
        let able = |generator: &&Generator| **generator != Generator::Httperf;
        for generator in bench.tools.generators.iter().filter(able) {
            let (group, name) = (group.to_owned(), generator.name().to_owned());
            let (generator, job) = (generator.clone(), job.clone());
            let of = Contestant { server: server.clone(), generator, job };
            entries.push(Entry { group, name, of });
        }
    }
    entries
}

fn run(
    bench: &Bench,
    case: &'static str,
    about: String,
    entries: &[Entry<Contestant>],
) -> Result<usize> {
    let rounds = bench.setup.rounds;
    let measure = |contestant: &_, notes: &mut _| measure(bench, contestant, notes);
    let runs = bench.rounds(case, rounds, entries, measure)?;
    let plan = format!(
        "{rounds} rounds of {} s after {WARM_UP_SECONDS} s\n  of warm-up; seed {}",
        bench.setup.seconds, bench.setup.seed
    );
    let body = body(case, entries, &runs);
    print!("{body}");
    let page = Page { case, about, body, method: METHOD.to_owned(), plan };
    bench.write(case, &page.text(bench, &runs), &runs)
}

fn measure(bench: &Bench, contestant: &Contestant, notes: &mut Notes) -> Result<Measured> {
    let Contestant { server, generator, job } = contestant;
    let place = bench.stage.place(server)?;
    notes.server.clone_from(&place.arguments);
    let mut running = place.start()?;
    let (to, folder, seconds) = (place.address, place.path(), bench.setup.seconds);
    Drive { generator, job, to, seconds: WARM_UP_SECONDS, folder }.run(notes)?;
    let measured = Drive { generator, job, to, seconds, folder }.run(notes)?;
    notes.flags.extend(measured.complaints());
    if !running.is_alive() {
        notes.flags.push(format!("the server ended: {}", running.last_words()));
    }
    Ok(measured)
}

fn body(case: &str, entries: &[Entry<Contestant>], runs: &[Run<'_>]) -> String {
    let mut groups: Vec<&str> = entries.iter().map(|entry| entry.group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut body = String::new();
    for group in groups {
        let _ = write!(
            body,
            "
## Against {group}

| | requests per core second | weir load ÷ this (min–max) | bar | core µs | sampled µs | own µs | \
             requests/s | core busy % | errors | runs |
|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|
"
        );
        for entry in entries.iter().filter(|entry| entry.group == group) {
            row(&mut body, case, entry, runs);
        }
    }
    body
}

fn row(body: &mut String, case: &str, entry: &Entry<Contestant>, runs: &[Run<'_>]) {
    let own = of(runs, &entry.group, &entry.name);
    let ratios = match entry.of.generator {
        Generator::Weir(_) => Vec::new(),
        _ => {
            let per_core_s = |runs: &[&Run<'_>]| -> Vec<(u32, f64)> {
                runs.iter().filter_map(|run| Some((run.round, run.valid()?.per_core_s()))).collect()
            };
            paired_ratios(&per_core_s(&of(runs, &entry.group, "weir load")), &per_core_s(&own))
        }
    };
    let median = Spread::of(ratios.clone()).map(|spread| spread.median);
    let bar = bar(case, &entry.of.generator).map_or(none(), |least| {
        judged(&format!("≥ {least:.1}"), median.map(|median| median >= least))
    });
    let _ = writeln!(
        body,
        "| {} | {} | {} | {bar} | {} | {} | {} | {} | {} | {} | {} of {} |",
        entry.name,
        typical(&own, 0, |run| Some(run.per_core_s())),
        spread(ratios),
        typical(&own, 2, |run| Some(run.core_us())),
        typical(&own, 2, |run| Some(run.sampled_us())),
        typical(&own, 2, |run| Some(run.own_us())),
        typical(&own, 0, |run| Some(run.replies_per_s())),
        typical(&own, 0, |run| Some(run.window.not_idle_share() * 100.0)),
        typical(&own, 0, |run| Some(run.tally.errors as f64)),
        own.iter().filter(|run| run.valid().is_some()).count(),
        own.len(),
    );
}

const METHOD: &str = "\
- A request counts when its reply came whole. The ratio is of requests per second of the core, more
  is better for weir load: its run's divided by the other's of the same round; the median of these,
  and the least and the greatest. The other figures are medians.
- The costs are for one request. Errors are requests without a whole reply, and replies that are
  neither 2xx nor 3xx.
- ab speaks HTTP/1.0, with keep-alive where connections are kept; the others HTTP/1.1, with
  `Connection: close` where they are not.
- Before each run the same client loads the server for a moment. Httperf's rate is the highest, to
  within 5 %, with no error and with replies at no less than 97 % of it, in runs of 2 s or less.
";

#[cfg(test)]
mod tests {
    use super::super::run::tests::{measured, run};
    use super::*;
    use crate::bench::page::tests::setup;

    fn entry(generator: Generator) -> Entry<Contestant> {
        let pace = Pace::Closed(CONNECTIONS);
        let job = Job { path: "/".to_owned(), pace, keep: false, options: Vec::new() };
        let name = generator.name().to_owned();
        let of = Contestant { server: Server::Nginx("nginx".into()), generator, job };
        Entry { group: "nginx".to_owned(), name, of }
    }

    #[test]
    fn others_are_compared_within_a_round_and_judged_by_the_median() {
        let setup = setup();
        let entries = [entry(Generator::Weir("weir".into())), entry(Generator::Wrk)];
        let replies = [("weir load", 1, 1500), ("wrk", 1, 1000), ("wrk", 2, 1000)];
        let more = [("weir load", 2, 1200), ("weir load", 3, 9000)];
        let runs: Vec<Run<'_>> = replies
            .into_iter()
            .chain(more)
            .map(|(name, round, replies)| {
                run(("nginx", name), round, Some(measured(replies, 0)), &setup)
            })
            .collect();
        let text = body("close", &entries, &runs);
        assert!(text.contains("| weir load | 3000 | – | – | 333.33 |"), "{text}");
        let row = "| wrk | 2000 | 1.350 (1.200–1.500) | ≥ 1.3: reached | 500.00 |";
        assert!(text.contains(row), "{text}");
        let text = body("close", &entries, &runs[1..4]);
        assert!(text.contains("| 1.200 (1.200–1.200) | ≥ 1.3: MISSED |"), "{text}");
    }

    #[test]
    fn every_peer_that_is_promised_to_be_beaten_has_its_bar() {
        assert_eq!(bar("close", &Generator::Httperf), Some(2.0));
        assert_eq!(bar("keep", &Generator::Wrk), Some(1.0));
        assert_eq!(bar("keep", &Generator::Ab), None);
    }
}
