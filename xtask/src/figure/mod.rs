//! Figures of the documentation, drawn from results as they were written. Measures nothing.

mod draw;
mod read;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;

use self::read::Cost;
use crate::tree;

#[derive(Subcommand)]
pub(crate) enum Figure {
    /// Draw what a reply costs weir and other servers, for the README
    Serve {
        /// The folder with the results [default: the latest of results/]
        dir: Option<PathBuf>,
        /// The file to write [default: docs/serve-cost.svg]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// A part of the figure: the results of one case.
struct Panel {
    case: &'static str,
    title: &'static str,
    unit: &'static str,
    cost: Cost,
}

const PANELS: [Panel; 3] = [
    Panel {
        case: "one-packet",
        title: "A connection a request",
        unit: "1.2 KB, µs per request",
        cost: Cost::OfRequests,
    },
    Panel {
        case: "keepalive-1k",
        title: "Connections kept open",
        unit: "1 KB, µs per request",
        cost: Cost::OfRequests,
    },
    Panel {
        case: "file-1m",
        title: "A large file",
        unit: "1 MB, µs per MB",
        cost: Cost::OfMegabytes,
    },
];

/// Draws the figure that `figure` asks for.
pub(crate) fn run(figure: &Figure) -> Result<()> {
    let Figure::Serve { dir, out } = figure;
    let from = dir.clone().map_or_else(latest, Ok)?;
    let out = out.clone().unwrap_or_else(|| tree::root().join("docs/serve-cost.svg"));
    fs::write(&out, serve(&from)?)?;
    println!("{} from {}", out.display(), from.display());
    Ok(())
}

fn serve(from: &Path) -> Result<String> {
    let cases: Vec<_> = PANELS
        .iter()
        .map(|panel| {
            let path = from.join(format!("serve-{}.jsonl", panel.case));
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            read::case(&text, panel.cost).with_context(|| path.display().to_string())
        })
        .collect::<Result<_>>()?;
    draw::figure(&PANELS, &cases)
}

/// The last folder of results that has what the first panel needs; their names begin with the day.
fn latest() -> Result<PathBuf> {
    let folder = tree::root().join("results");
    let entries = fs::read_dir(&folder).context("results")?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let complete = paths.filter(|path| path.join("serve-one-packet.jsonl").is_file());
    complete.max().with_context(|| format!("no results of a bench in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const SERVERS: [&str; 5] = ["weir", "bare loop", "nginx", "h2o", "lighttpd"];

    fn write_results(folder: &Path) {
        for (nth, panel) in PANELS.iter().enumerate() {
            let mut text = String::new();
            for (server, name) in SERVERS.iter().enumerate() {
                for round in 1..=3 {
                    let busy_s = (nth * 100 + server * 10 + round) as f64 / 1e3;
                    let _ = writeln!(text, "{}", read::tests::line(name, busy_s, "[]"));
                }
            }
            fs::write(folder.join(format!("serve-{}.jsonl", panel.case)), text).unwrap();
        }
    }

    #[test]
    fn every_server_and_every_median_is_written_out() {
        let folder = tempfile::tempdir().unwrap();
        write_results(folder.path());
        let svg = serve(folder.path()).unwrap();
        for text in SERVERS.into_iter().chain(PANELS.iter().map(|panel| panel.title)) {
            assert!(svg.contains(&format!(">\n{text}\n<")), "{text}: {svg}");
        }
        // Of 1000 requests and of 2000 MB: thousandths of a second are µs, and half as many.
        for value in ["2.00", "12.0", "42.0", "102", "142", "101", "121"] {
            assert!(svg.contains(&format!(">\n{value}\n<")), "{value}: {svg}");
        }
        assert!(svg.contains("3 runs") && svg.contains("2 cores") && svg.contains("2026-01-02"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_case_that_is_missing_is_an_error_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        write_results(folder.path());
        fs::remove_file(folder.path().join("serve-file-1m.jsonl")).unwrap();
        let error = serve(folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("serve-file-1m.jsonl"));
    }
}
