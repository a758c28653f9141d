//! Cost of taking and giving a slot, by a tree of bitmaps, by a search of entries, by a scan of
//! bits and from a list. The measuring is an example of `weir-dispatch`, built for release and run
//! as a process; here its lines are kept and made into a table.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use weir_lab::{machine, setup_summary, time};

use crate::tree;

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct SlotsArgs {
    /// How often each is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// For how long each time
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
    /// The folder to write to [default: results/DATE-slots]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The stores, with what a table calls them.
const STORES: [(&str, &str); 5] = [
    ("tree", "tree of bitmaps"),
    ("entries", "search of entries"),
    ("scan", "scan of bits"),
    ("list", "list, last in first out"),
    ("nothing", "nothing: the loop itself"),
];

const HEAD: &str = "\
# Slots: the lowest free number

What it costs to give a slot back and take one, nanoseconds of processor time: the median of the
rounds, with the least and the most. All slots are taken first and given back by chance until the
share is left; then one of them by chance is given and one is taken, again and again. The last
column is the loop with no store at all, which is in all of them.

The tree, the search and the scan take the lowest free number, the list the one that was given last.
Lowest-first has a price: the tree's walk is longer than a pop. And it has a use: the numbers in
use become dense again after a peak, so that tables indexed by them stay small and in the cache,
and what is as long as the highest number, as a bitmap for select is, is short. How dense after the
rounds, which are too few for the most slots, says the second table.
";

/// A line of the example.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    store: String,
    slots: u64,
    taken_percent: u64,
    ns: f64,
    numbers_in_use: f64,
}

/// Measures, and writes the lines and the table.
pub(crate) fn run(args: &SlotsArgs) -> Result<()> {
    let release = ["--release", "--package", "weir-dispatch", "--example", "slots"];
    let example = tree::build(tree::cargo(), &release, "slots")?;
    let words = [args.rounds.to_string(), args.milliseconds.to_string()];
    let output = Command::new(example).args(words).output().context("the example")?;
    ensure!(output.status.success(), "the example failed");
    let text = String::from_utf8(output.stdout)?;
    let dated = || tree::root().join(format!("results/{}-slots", time::utc_today()));
    let out = args.out.clone().unwrap_or_else(dated);
    fs::create_dir_all(&out)?;
    fs::write(out.join("slots.jsonl"), &text)?;
    let mut page = page(&read(&text)?);
    let SlotsArgs { rounds, milliseconds, .. } = args;
    let _ = writeln!(page, "\n## Set-up\n\n- {rounds} rounds of {milliseconds} ms each");
    for (name, value) in setup_summary::machine(&machine::machine()) {
        let _ = writeln!(page, "- {name}: {value}");
    }
    fs::write(out.join("slots.md"), page)?;
    println!("results in {}", out.display());
    Ok(())
}

fn read(text: &str) -> Result<Vec<Line>> {
    text.lines().map(|line| serde_json::from_str(line).context(line.to_owned())).collect()
}

fn page(lines: &[Line]) -> String {
    let mut page = HEAD.to_owned();
    table(
        &mut page,
        "give and take, ns",
        lines,
        |line| line.ns,
        |values| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            let shown = |median| format!("{median:.3} ({least:.3}–{most:.3})");
            weir_stats::median(values).map(shown)
        },
    );
    table(
        &mut page,
        "highest number in use + 1",
        lines,
        |line| line.numbers_in_use,
        |values| weir_stats::median(values).map(|median| format!("{median:.0}")),
    );
    page
}

/// A row for each number of slots and share of them, a column for each store.
fn table(
    page: &mut String,
    title: &str,
    lines: &[Line],
    of: fn(&Line) -> f64,
    shown: fn(&[f64]) -> Option<String>,
) {
    let names: Vec<&str> = STORES.iter().map(|(_, name)| *name).collect();
    // Writing into a String cannot fail.
    let _ = writeln!(page, "\n## {title}\n\n| slots | taken | {} |", names.join(" | "));
    let _ = writeln!(page, "|---:|---:|{}", "---:|".repeat(STORES.len()));
    let mut places: Vec<_> = lines.iter().map(|line| (line.slots, line.taken_percent)).collect();
    places.sort_unstable();
    places.dedup();
    for (slots, taken) in places {
        let here = |line: &&Line| (line.slots, line.taken_percent) == (slots, taken);
        let cells = STORES.map(|(store, _)| {
            let own = lines.iter().filter(here).filter(|line| line.store == store);
            shown(&own.map(of).collect::<Vec<_>>()).unwrap_or_else(|| "–".to_owned())
        });
        let _ = writeln!(page, "| {slots} | {taken} % | {} |", cells.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> String {
        let line = |store: &str, round: u32, ns: u32, highest: u32| {
            format!(
                "{{\"store\":\"{store}\",\"slots\":64,\"taken_percent\":50,\"round\":{round},\
                 \"ns\":{ns},\"times\":9,\"numbers_in_use\":{highest}}}\n"
            )
        };
        [line("tree", 1, 5, 32), line("tree", 2, 7, 34), line("list", 1, 2, 64)].concat()
    }

    #[test]
    fn a_page_has_the_medians_of_each_store_and_says_what_they_mean() {
        let page = page(&read(&lines()).unwrap());
        let row = "| 64 | 50 % | 6.000 (5.000–7.000) | – | – | 2.000 (2.000–2.000) | – |";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("| 64 | 50 % | 33 | – | – | 64 | – |"), "{page}");
        assert!(page.contains("has a price"), "{page}");
    }

    #[test]
    fn a_malformed_line_is_refused() {
        assert!(read("{\"store\":\"tree\"}").is_err());
    }
}
