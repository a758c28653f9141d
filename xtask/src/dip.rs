//! The dip of goodput around a succession in an overload: a server that is offered four times what
//! it can do reads changed configurations, and is replaced by newly installed programs, every few
//! seconds. For how long is its goodput below 95 % of what it is otherwise?

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_lab::generators::INVALID;
use weir_lab::{machine, setup_summary, time};

use crate::succession::Server;
use crate::tree;

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct DipArgs {
    /// How often the configuration is read again, and how often the program takes over
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    successions: u32,
    /// The program [default: this tree's, built for release]
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// The folder to write to [default: results/DATE-dip]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Work of a request, microseconds. It is counted, so that replies come evenly.
const BURN_US: u32 = 600;

/// What is offered, of what the server does in a closed loop.
const OVERLOAD: f64 = 4.0;

/// Time from a succession to the next, its first half looked at as around it and its second half
/// as what there is without one.
const PERIOD: Duration = Duration::from_secs(5);

/// Time before the first succession.
const LEAD: Duration = Duration::from_secs(5);

/// Length of the windows in which replies are counted, and from one's start to the next's, ms.
const WINDOW_MS: usize = 50;
const STEP_MS: usize = 10;

/// The share of the level below which goodput has dipped.
const DIPPED: f64 = 0.95;

/// Time of a dip that is one too long, ms.
const DIP_MAX_MS: usize = 200;

/// What became of goodput in a span of time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Dip {
    /// Time of the longest run of windows below the least, ms.
    longest_ms: usize,
    /// Replies missing from the level over the span, as the time in which they would have come at
    /// it, ms; negative if there were more.
    missing_ms: f64,
}

/// Measurements of one kind of succession.
struct Measured {
    /// The rate that was offered, per second.
    rate: f64,
    /// True if the load says that it was late itself.
    is_invalid: bool,
    dips: Dips,
}

/// The dips of each succession: in the half period from it on, and in the half after that.
struct Dips {
    around: Vec<Dip>,
    without: Vec<Dip>,
}

/// Measures, and writes the page.
pub(crate) fn run(args: &DipArgs) -> Result<()> {
    let weir = match &args.weir {
        Some(weir) => weir.clone(),
        None => tree::build(tree::cargo(), &["--release", "--package", "weir"], "weir")?,
    };
    let mut rows = Vec::new();
    for what in ["reloads", "upgrades"] {
        let scratch = tempfile::Builder::new().prefix("weir-dip-").tempdir()?;
        rows.push((what, measure(&weir, scratch.path(), what, args.successions)?));
    }
    let page = page(&rows);
    print!("{page}");
    let dated = || tree::root().join(format!("results/{}-dip", time::utc_today()));
    let out = args.out.clone().unwrap_or_else(dated);
    fs::create_dir_all(&out)?;
    Ok(fs::write(out.join("summary.md"), page)?)
}

fn measure(weir: &Path, scratch: &Path, what: &str, successions: u32) -> Result<Measured> {
    let options = "--bench-endpoints --cpus 0";
    let mut server = Server::start(weir, scratch, &[1], options)?;
    let url = server.url.replace("/file", &format!("/.weir/burn/{BURN_US}/file"));
    let rate = OVERLOAD * capacity(weir, &url)?;
    let each = scratch.join("each");
    let duration = LEAD + PERIOD * (successions + 1);
    let began = Instant::now();
    let mut load = command(weir, &url)
        .args(["--arrivals", "poisson", "--timeout", "500ms", "--cpus", "1"])
        .args(["--rate", &rate.to_string(), "--duration", &format!("{}s", duration.as_secs())])
        .arg("--each")
        .arg(&each)
        .spawn()?;
    let mut times = Vec::new();
    for number in 0..successions {
        let due = LEAD + PERIOD * number;
        thread::sleep(due.saturating_sub(began.elapsed()));
        times.push(began.elapsed());
        server.succeed_once(what)?;
    }
    let status = load.wait()?;
    // Minutes of it may have one bad second: a dip that it makes itself is counted like any other.
    ensure!(matches!(status.code(), Some(0 | INVALID)), "the load ended with {status}");
    server.stop()?;
    let is_invalid = status.code() == Some(INVALID);
    Ok(Measured { rate, is_invalid, dips: dips(&counts(&each)?, &times) })
}

fn command(weir: &Path, url: &str) -> Command {
    let mut command = Command::new(weir);
    command.args(["load", "--quiet", url]).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Returns the replies a second in a closed loop.
fn capacity(weir: &Path, url: &str) -> Result<f64> {
    let mut load = command(weir, url);
    load.args(["--closed", "64", "--requests-per-conn", "1", "--warmup", "1s", "--duration", "4s"]);
    let output = load.args(["--cpus", "1", "--json", "-"]).stdout(Stdio::piped()).output()?;
    let json: Value = serde_json::from_slice(&output.stdout).context("the load's output")?;
    json["rates"]["replies_per_s"].as_f64().context("no rate of replies")
}

/// Returns the numbers of good replies in each step of a run.
fn counts(each: &Path) -> Result<Vec<u32>> {
    let mut counts = Vec::new();
    for line in BufReader::new(File::open(each)?).lines() {
        let request: Value = serde_json::from_str(&line?)?;
        if let (Some(200), Some(ns)) =
            (request["status"].as_u64(), request["last_byte_ns"].as_u64())
        {
            let step = (ns / 1_000_000) as usize / STEP_MS;
            if counts.len() <= step {
                counts.resize(step + 1, 0);
            }
            counts[step] += 1;
        }
    }
    Ok(counts)
}

fn dips(counts: &[u32], times: &[Duration]) -> Dips {
    let windows: Vec<u32> =
        counts.windows(WINDOW_MS / STEP_MS).map(|steps| steps.iter().sum()).collect();
    let half = PERIOD.as_millis() as usize / 2 / STEP_MS;
    let starts = times.iter().map(|time| time.as_millis() as usize / STEP_MS);
    let halves =
        |at: usize| Some((windows.get(at..at + half)?, windows.get(at + half..at + 2 * half)?));
    let pairs = starts.filter_map(halves).map(|(around, without)| {
        // Of this process alone: each measures anew how much work a microsecond is.
        let level = median(without);
        (dip(around, level), dip(without, level))
    });
    let (around, without) = pairs.unzip();
    Dips { around, without }
}

fn median(counts: &[u32]) -> f64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().map_or(0.0, f64::from)
}

fn dip(windows: &[u32], level: f64) -> Dip {
    let dips = windows.split(|count| f64::from(*count) >= DIPPED * level);
    let missing = windows.iter().map(|count| 1.0 - f64::from(*count) / level.max(1.0));
    Dip {
        longest_ms: dips.map(|dip| dip.len() * STEP_MS).max().unwrap_or(0),
        missing_ms: missing.sum::<f64>() * STEP_MS as f64,
    }
}

fn page(rows: &[(&str, Measured)]) -> String {
    let mut page = format!(
        "\
# The dip around a reload and an upgrade, in an overload

A server on one core, each of whose requests burns {BURN_US} us of counted work, is offered
{OVERLOAD} times what it does in a closed loop of 64 connections: a connection for each request,
Poisson arrivals, clients that wait 0.5 s. Every {} s it reads a changed configuration, or a newly
installed program takes over. For how long, in ms, is its goodput below {DIPPED} of the median of
the half period after that? It is counted in windows of {WINDOW_MS} ms, one every {STEP_MS} ms.
Missing replies are told as the time in which they would have come, ms.

| {} s after | 1/s | n | dip, median | 90 % | most | over {DIP_MAX_MS} | missing, median | most |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
",
        PERIOD.as_secs(),
        PERIOD.as_secs_f64() / 2.0,
    );
    for (what, Measured { rate, dips, .. }) in rows {
        row(&mut page, what, *rate, &dips.around);
        row(&mut page, &format!("neither, beside {what}"), *rate, &dips.without);
    }
    for (what, _) in rows.iter().filter(|(_, measured)| measured.is_invalid) {
        let told =
            format!("\nThe load beside {what} says that it is INVALID: it was late itself.\n");
        page.push_str(&told);
    }
    page.push_str("\n## Each\n\nThe longest dip and the missing replies, ms.\n\n");
    for (what, Measured { dips, .. }) in rows {
        for (name, dips) in [("after", &dips.around), ("without", &dips.without)] {
            let each = dips.iter().map(|dip| format!("{} ({:.0})", dip.longest_ms, dip.missing_ms));
            // Writing into a String cannot fail.
            let _ = writeln!(page, "- {name} {what}: {}", each.collect::<Vec<_>>().join(", "));
        }
    }
    page.push_str("\n## Set-up\n\n");
    for (name, value) in setup_summary::machine(&machine::machine()) {
        let _ = writeln!(page, "- {name}: {value}");
    }
    page
}

fn row(page: &mut String, name: &str, rate: f64, dips: &[Dip]) {
    let mut longest: Vec<usize> = dips.iter().map(|dip| dip.longest_ms).collect();
    longest.sort_unstable();
    let mut missing: Vec<f64> = dips.iter().map(|dip| dip.missing_ms).collect();
    missing.sort_by(f64::total_cmp);
    let n = longest.len();
    let (Some(most), Some(missing_most)) = (longest.last(), missing.last()) else { return };
    let (median, high) = (longest[n / 2], longest[n * 9 / 10]);
    let long = longest.iter().filter(|ms| **ms > DIP_MAX_MS).count();
    let missing_median = missing[n / 2];
    let _ = writeln!(
        page,
        "| {name} | {rate:.0} | {n} | {median} | {high} | {most} | {long} | {missing_median:.0} | \
         {missing_most:.0} |"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_dip_around_a_succession_is_found_and_told_from_those_without() {
        let mut counts = vec![10; 1000];
        // Two steps with nothing: six windows of five steps have them.
        counts[120..122].fill(0);
        // One step with too few is in five.
        counts[450] = 5;
        let dips = dips(&counts, &[Duration::from_secs(1)]);
        assert_eq!(longest(&dips.around), [60]);
        assert_eq!(longest(&dips.without), [50]);
        let missing = [&dips.around, &dips.without].map(|dips| dips[0].missing_ms.round());
        assert_eq!(missing, [20.0, 5.0]);
    }

    fn longest(dips: &[Dip]) -> Vec<usize> {
        dips.iter().map(|dip| dip.longest_ms).collect()
    }

    #[test]
    fn a_page_counts_what_is_too_long() {
        let of = |dips: [usize; 3]| {
            dips.map(|longest_ms| Dip { longest_ms, missing_ms: longest_ms as f64 / 2.0 }).to_vec()
        };
        let dips = || Dips { around: of([0, 210, 200]), without: of([10, 0, 0]) };
        let measured = |is_invalid| Measured { rate: 4000.0, is_invalid, dips: dips() };
        let page = page(&[("reloads", measured(false)), ("upgrades", measured(true))]);
        assert!(page.contains("| reloads | 4000 | 3 | 200 | 210 | 210 | 1 | 100 | 105 |\n"));
        assert!(
            page.contains("| neither, beside reloads | 4000 | 3 | 0 | 10 | 10 | 0 | 0 | 5 |\n")
        );
        assert!(page.contains("- after reloads: 0 (0), 210 (105), 200 (100)\n"));
        assert!(page.contains("The load beside upgrades says"));
        assert!(!page.contains("The load beside reloads says"));
    }
}
