//! Paths of `weir load link` as other programs find them: fping, from the servers to thousands of
//! clients, each of which has a path of its own, and iperf3. Each preset's round trip, jitter, loss
//! and bandwidth are held against its law.

mod asked;
mod estimate;
mod page;
mod ping;
mod row;
mod spaces;
mod stream;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use weir_lab::{programs, time};
use weir_packet::path::PRESETS;

use self::asked::Asked;
use self::estimate::Estimate;
use self::ping::PingPlan;
use self::row::{Measured, Row};
use self::spaces::Spaces;
use crate::tree;

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct LinkArgs {
    /// For how long each preset is pinged, seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// For how long each bandwidth is measured, seconds
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=60))]
    stream_seconds: u32,
    /// Only this preset
    #[arg(long, value_name = "PRESET")]
    only: Option<String>,
    /// The folder to write to; a run that is there is continued [default: results/DATE-link]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A path without any property: what is measured of it, the link and the programs add themselves.
const NOTHING: &str = "rtt=0s";

/// Name of the file with a line for each path.
const LINES: &str = "paths.jsonl";

/// Programs that are needed, with the package of Debian that has each.
const NEEDED: [(&str, &str); 6] = [
    ("fping", "fping"),
    ("iperf3", "iperf3"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("taskset", "util-linux"),
    ("unshare", "util-linux"),
];

/// Measures, and writes the rows and the page.
pub(crate) fn run(args: &LinkArgs) -> Result<()> {
    for (program, package) in NEEDED {
        if programs::find(program).is_none() {
            println!("{program} is not installed (package {package}): skipped");
            return Ok(());
        }
    }
    let presets = PRESETS.iter().filter(|(_, _, law)| law.contains('=')).map(|(name, ..)| *name);
    let wanted = |name: &&str| args.only.as_deref().is_none_or(|only| *name == only);
    let paths: Vec<&str> = std::iter::once(NOTHING).chain(presets.filter(wanted)).collect();
    ensure!(paths.len() > 1, "there is no such preset of one kind of path");
    let weir = tree::build(tree::cargo(), &["--release", "--package", "weir"], "weir")?;
    let spaces = Spaces::new(weir)?;
    let dated = || tree::root().join(format!("results/{}-link", time::utc_today()));
    let out = args.out.clone().unwrap_or_else(dated);
    fs::create_dir_all(&out)?;
    let mut all = measured_before(&out)?;
    for path in paths {
        if all.iter().any(|measured| measured.path == path) {
            continue;
        }
        let mut measured = measure(&spaces, path, args).with_context(|| format!("path {path}"))?;
        if !measured.is_valid() {
            // As the lab does with a point: once more, and then it stays INVALID.
            measured = measure(&spaces, path, args)?;
        }
        measured.rows.iter().for_each(|row| println!("{}", page::line(row)));
        all.push(measured);
        write(&out, &all, args)?;
    }
    println!("results in {}", out.display());
    Ok(())
}

/// Returns the valid paths of a run that is continued; none for a new one.
fn measured_before(out: &Path) -> Result<Vec<Measured>> {
    let text = fs::read_to_string(out.join(LINES)).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    let all = lines.collect::<serde_json::Result<Vec<Measured>>>().context(LINES)?;
    Ok(all.into_iter().filter(Measured::is_valid).collect())
}

/// Writes what has been measured so far.
fn write(out: &Path, all: &[Measured], args: &LinkArgs) -> Result<()> {
    let lines: serde_json::Result<Vec<String>> = all.iter().map(serde_json::to_string).collect();
    fs::write(out.join(LINES), lines?.join("\n") + "\n")?;
    fs::write(out.join("summary.md"), page::page(all, &PingPlan::of(args.seconds)))?;
    Ok(())
}

fn measure(spaces: &Spaces, path: &str, args: &LinkArgs) -> Result<Measured> {
    let asked = Asked::of(path)?;
    let link = spaces.link(path)?;
    let pings = ping::run(spaces, &PingPlan::of(args.seconds))?;
    let row = |quantity: &str, unit: &str, asked: f64, measured: Option<Estimate>| {
        let measured = measured.with_context(|| format!("{quantity}: nothing was measured"))?;
        let verdict = measured.against(asked);
        let (quantity, unit) = (quantity.to_owned(), unit.to_owned());
        Ok::<Row, anyhow::Error>(Row {
            path: path.into(),
            quantity,
            unit,
            asked,
            measured,
            verdict,
        })
    };
    let mut rows = vec![
        row("mean round trip", "ms", asked.rtt_ms(ping::PACKET_BYTES), pings.rtt_ms())?,
        row("jitter", "ms", asked.jitter_ms(), pings.jitter_ms())?,
        row("loss", "%", asked.loss_percent(), pings.loss_percent())?,
    ];
    for way in [stream::Way::Up, stream::Way::Down] {
        let Some(rate) = asked.mbit_per_s(way) else { continue };
        let measured = stream::run(spaces, way, rate, args.stream_seconds)?;
        rows.push(row(way.quantity(), "Mbit/s", asked.arriving(rate), measured)?);
    }
    Ok(Measured { path: path.into(), rows, link: link.end()? })
}
