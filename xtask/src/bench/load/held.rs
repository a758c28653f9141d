//! `idle`: what an idle connection costs `weir load` that holds thousands of them beside its load,
//! and whether all of them stay open.

use std::cell::RefCell;
use std::fmt::Write;
use std::fs;
use std::time::Duration;

use anyhow::Result;

use super::generator::{Job, Pace};
use super::page::{Page, judged, typical};
use super::run::{Entry, Measured, Notes, Run};
use super::{Bench, Drive, ONE_BYTE, client};
use crate::bench::core_time::resident_bytes;
use crate::bench::page::{none, spread};

/// How many connections are held.
const IDLE: usize = 18_000;

/// How many of them are opened a second.
const OPENED_PER_S: usize = 5_000;

/// Requests a second meanwhile.
const RATE: f64 = 1_000.0;

/// Addresses with more ports than connections.
const SOURCES: &str = "127.0.0.2-127.0.0.9";

/// How the server is made to have room for idle connections and to leave them alone. Descriptors
/// for files are kept back from those for connections, and here is one file.
const PATIENT: [&str; 8] = [
    "--max-conns",
    "19000",
    "--open-files",
    "100",
    "--header-timeout",
    "60m",
    "--idle-timeout",
    "60m",
];

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Runs without idle connections and with them.
pub(super) fn run(bench: &Bench) -> Result<usize> {
    let entries = [0, IDLE].map(|idle| Entry {
        group: String::new(),
        name: format!("{idle} idle"),
        of: idle,
    });
    let rounds = bench.long.rounds;
    let measure = |idle: &usize, notes: &mut Notes| measure(bench, *idle, notes);
    let runs = bench.rounds("idle", rounds, &entries, measure)?;
    let body = body(&runs);
    print!("{body}");
    let page = Page {
        case: "idle",
        about: format!(
            "weir load makes {RATE} requests a second, a connection for each, and holds no or \
             {IDLE} idle connections beside them; the server is weir serve."
        ),
        body,
        method: METHOD.to_owned(),
        plan: format!("{rounds} rounds of {} s; seed {}", bench.setup.seconds, bench.setup.seed),
    };
    bench.write("idle", &page.text(bench, &runs), &runs)
}

fn measure(bench: &Bench, idle: usize, notes: &mut Notes) -> Result<Measured> {
    let place = bench.stage.place(&bench.tools.serve(&PATIENT))?;
    notes.server.clone_from(&place.arguments);
    let mut running = place.start()?;
    let (idle_text, opened) = (idle.to_string(), OPENED_PER_S.to_string());
    let options = ["--source", SOURCES, "--idle", &idle_text, "--background-rate", &opened]
        .map(str::to_owned);
    let job = Job {
        path: ONE_BYTE.to_owned(),
        pace: Pace::Open(RATE),
        keep: false,
        options: options.into(),
    };
    let looked = RefCell::new((Vec::new(), 0));
    let server = running.id();
    let look = |client: u32, age_s: f64| {
        let (resident, descriptors) = &mut *looked.borrow_mut();
        // A client that has just ended has no resident set.
        resident.extend(resident_bytes(client).ok().map(|bytes| (age_s, bytes)));
        *descriptors = descriptors_of(server).max(*descriptors);
    };
    let generator = &bench.tools.weir_load();
    let (to, folder, seconds) = (place.address, place.path(), bench.setup.seconds);
    let drive = Drive { generator, job: &job, to, seconds, folder };
    let mut measured =
        drive.run_by(|line, folder| client::watch(line, folder, LOOK_EVERY, look), notes)?;
    let (resident, descriptors) = looked.into_inner();
    measured.resident = resident;
    measured.server_descriptors = Some(descriptors);
    notes.flags.extend(measured.complaints());
    if !running.is_alive() {
        notes.flags.push(format!("the server ended: {}", running.last_words()));
    }
    Ok(measured)
}

/// How many descriptors a process has.
fn descriptors_of(id: u32) -> usize {
    fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count)
}

/// The most that was seen: the connections are opened before the load begins, and held to its end.
fn resident_most(measured: &Measured) -> Option<f64> {
    measured.resident.iter().map(|(_, bytes)| *bytes as f64).reduce(f64::max)
}

fn body(runs: &[Run<'_>]) -> String {
    let mut body = "
| | client resident MiB | server descriptors | opened | lost | lag p99 µs | core busy % | errors | \
                    runs |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
"
    .to_owned();
    let names = [0, IDLE].map(|idle| format!("{idle} idle"));
    let own = names.each_ref().map(|name| super::page::of(runs, "", name));
    for (name, own) in names.iter().zip(&own) {
        let opened = |run: &Measured| Some(run.weir()?.counts.background_opened as f64);
        let lost = |run: &Measured| Some(run.weir()?.counts.background_lost as f64);
        let _ = writeln!(
            body,
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} of {} |",
            typical(own, 2, |run| Some(resident_most(run)? / f64::from(1 << 20))),
            typical(own, 0, |run| Some(run.server_descriptors? as f64)),
            typical(own, 0, opened),
            typical(own, 0, lost),
            typical(own, 0, |run| Some(run.weir()?.verdict.lag_p99_us)),
            typical(own, 0, |run| Some(run.window.not_idle_share() * 100.0)),
            typical(own, 0, |run| Some(run.tally.errors as f64)),
            own.iter().filter(|run| run.valid().is_some()).count(),
            own.len(),
        );
    }
    let [without, with] = own;
    let price = prices(&without, &with);
    let price = if price.is_empty() { none() } else { spread(price) };
    let _ = write!(
        body,
        "\n- resident bytes per idle connection (min–max): {price}\n- {}\n",
        judged(&format!("all {IDLE} open to the end, in every run"), all_open(&with)),
    );
    body
}

/// What an idle connection adds to the client's resident set, in bytes, round by round.
fn prices(without: &[&Run<'_>], with: &[&Run<'_>]) -> Vec<f64> {
    let price = |run: &&Run<'_>| {
        let other = without.iter().find(|other| other.round == run.round)?;
        let more = resident_most(run.valid()?)? - resident_most(other.valid()?)?;
        Some(more / IDLE as f64)
    };
    with.iter().filter_map(price).collect()
}

/// Whether each run opened every idle connection once, lost none, and the server had them all.
fn all_open(with: &[&Run<'_>]) -> Option<bool> {
    let mut runs = with.iter().filter_map(|run| run.valid()).peekable();
    runs.peek()?;
    Some(runs.all(|measured| {
        let counts = measured.weir().map(|report| &report.counts);
        counts.is_some_and(|counts| {
            counts.background_opened == IDLE as u64 && counts.background_lost == 0
        }) && measured.server_descriptors.is_some_and(|descriptors| descriptors >= IDLE)
    }))
}

const METHOD: &str = "\
- The resident set is VmRSS of the client's process, read four times a second; the most that was
  seen. Its difference between the two runs of a round, divided by the idle connections, is what one
  of them costs: the median of the rounds, and the least and the greatest.
- Opened and lost are by the client's count, before the load and during it. The server's descriptors
  are those of its process, the most that was seen.
";

#[cfg(test)]
mod tests {
    use super::super::generator::Said;
    use super::super::generator::tests::report;
    use super::super::run::tests::{measured, run};
    use super::*;
    use crate::bench::page::tests::setup;

    fn looked_at(bytes: u64, lost: u64) -> Option<Measured> {
        let (mut measured, mut report) = (measured(1000, 0), report());
        report.counts.background_opened = IDLE as u64 + lost;
        report.counts.background_lost = lost;
        measured.tally.said = Said::Weir(Box::new(report));
        measured.resident = vec![(0.3, 1), (0.5, bytes), (0.8, bytes - 1)];
        measured.server_descriptors = Some(IDLE + 10);
        Some(measured)
    }

    #[test]
    fn an_idle_connection_has_its_price() {
        let setup = setup();
        let bytes = 4 << 20;
        let mut runs = vec![
            run(("", "0 idle"), 1, looked_at(bytes, 0), &setup),
            run(("", "18000 idle"), 1, looked_at(bytes + 200 * IDLE as u64, 0), &setup),
        ];
        let text = body(&runs);
        assert!(text.contains("connection (min–max): 200.000 (200.000–200.000)"), "{text}");
        assert!(text.contains("| 0 idle | 4.00 | 18010 |") && text.contains("run: reached"));
        runs[1].measured = looked_at(bytes, 1);
        assert!(body(&runs).contains("in every run: MISSED"));
        assert!(body(&runs[..1]).contains("in every run: –"));
    }

    #[test]
    fn the_descriptors_of_a_process_are_counted() {
        assert!(descriptors_of(std::process::id()) > 2);
    }
}
