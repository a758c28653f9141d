//! `bench slots`: what taking and giving a slot costs, by a tree of bitmaps, by a scan and from a
//! list. The measuring is an example of `weir-dispatch`, built for release and run as a process;
//! here its lines are kept and made into a table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::machine::{Plan, Setup};
use super::{SERVER_CORE, SlotsArgs, page, stage};
use crate::tree;

/// The stores, with what a table calls them.
const STORES: [(&str, &str); 4] = [
    ("tree", "tree of bitmaps"),
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

The tree and the scan take the lowest free number, the list the one that was given last.
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
pub(super) fn run(args: &SlotsArgs) -> Result<()> {
    let setup = Setup::read(Plan {
        versions: BTreeMap::new(),
        descriptors_max: None,
        rounds: args.rounds,
        seconds: 0,
        warm_up_seconds: 0,
        seed: 0,
    })?;
    let release = ["--release", "--package", "weir-dispatch", "--example", "slots"];
    let example = tree::build(tree::cargo(), &release, "slots")?;
    stage::stay_on(SERVER_CORE)?;
    let words = [args.rounds.to_string(), args.milliseconds.to_string()];
    let output = Command::new(example).args(words).output().context("the example")?;
    ensure!(output.status.success(), "the example failed");
    let text = String::from_utf8(output.stdout)?;
    let out = args.out.clone().unwrap_or_else(|| setup.folder());
    fs::create_dir_all(&out)?;
    fs::write(out.join("slots.jsonl"), with_setup(&text, &setup)?)?;
    fs::write(out.join("slots.md"), page(&read(&text)?, &setup, args.milliseconds))?;
    println!("results in {}", out.display());
    Ok(())
}

/// Each line with what it was measured on.
fn with_setup(text: &str, setup: &Setup) -> Result<String> {
    let mut lines = String::new();
    for line in text.lines() {
        let mut line: Value = serde_json::from_str(line)?;
        line["setup"] = json!(setup);
        writeln!(lines, "{line}")?;
    }
    Ok(lines)
}

fn read(text: &str) -> Result<Vec<Line>> {
    text.lines().map(|line| serde_json::from_str(line).context(line.to_owned())).collect()
}

fn page(lines: &[Line], setup: &Setup, milliseconds: u32) -> String {
    let mut page = HEAD.to_owned();
    table(&mut page, "give and take, ns", lines, |line| line.ns, page::spread);
    table(
        &mut page,
        "highest number in use + 1",
        lines,
        |line| line.numbers_in_use,
        |values| page::median(values).map_or_else(page::none, |median| format!("{median:.0}")),
    );
    let plan = format!("{} rounds of {milliseconds} ms each, on core {SERVER_CORE}", setup.rounds);
    page::machine(&mut page, setup, &plan);
    page
}

/// A row for each number of slots and share of them, a column for each store.
fn table(
    page: &mut String,
    title: &str,
    lines: &[Line],
    of: fn(&Line) -> f64,
    shown: fn(Vec<f64>) -> String,
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
            shown(own.map(of).collect())
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
        let setup = page::tests::setup();
        let page = page(&read(&lines()).unwrap(), &setup, 20);
        assert!(page.contains("| 64 | 50 % | 6.000 (5.000–7.000) | – | 2.000 (2.000–2.000) | – |"));
        assert!(page.contains("| 64 | 50 % | 33 | – | 64 | – |"), "{page}");
        assert!(page.contains("has a price") && page.contains("2 rounds of 20 ms"), "{page}");
    }

    #[test]
    fn each_line_is_kept_with_its_set_up() {
        let kept = with_setup(&lines(), &page::tests::setup()).unwrap();
        let first: Value = serde_json::from_str(kept.lines().next().unwrap()).unwrap();
        assert_eq!((&first["ns"], &first["setup"]["kernel"]), (&5.into(), &"6.1".into()));
        assert!(read("{\"store\":\"tree\"}").is_err());
    }
}
