//! Rule for figures: what was measured names what carries it. A figure stands in a record that its
//! paragraph links, or its sentence names the command that repeats it; a setting stands in
//! back-quotes with its option, or in a page of the manual that its paragraph links.

mod command;
mod page;
mod quote;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};

use super::markdown;
use super::violation::Violation;
use page::Passage;
use quote::{Grammar, Quote, Unit};
use record::Record;

/// Pages in which every figure is checked. In the manual a sentence without a measurement is where
/// its settings are stated, unless its paragraph, table or section leans on a record.
const STRICT: &[&str] = &["README.md", "CHANGELOG.md", "docs/papers.md"];

/// Checks the pages among the `known` files of the tree at `root`.
pub(super) fn check(root: &Path, known: &BTreeSet<&str>) -> Result<Vec<Violation>> {
    let mut rule = Rule { root, known, grammar: Grammar::new()?, records: BTreeMap::new() };
    let mut violations = Vec::new();
    for page in known.iter().filter(|page| is_checked(page)) {
        let text = fs::read_to_string(root.join(page)).with_context(|| (*page).to_owned())?;
        violations.extend(rule.check_page(page, &text)?);
    }
    Ok(violations)
}

fn is_checked(page: &str) -> bool {
    let is_manual = page.starts_with("docs/") && page.ends_with(".md");
    STRICT.contains(&page) || is_manual
}

struct Rule<'a> {
    root: &'a Path,
    known: &'a BTreeSet<&'a str>,
    grammar: Grammar,
    records: BTreeMap<String, Rc<Record>>,
}

/// What a sentence may lean on.
#[derive(Default)]
struct Carriers {
    records: Vec<Rc<Record>>,
    manual: Vec<Rc<Record>>,
    is_repeatable: bool,
}

impl Rule<'_> {
    fn check_page(&mut self, page: &str, text: &str) -> Result<Vec<Violation>> {
        let mut violations = Vec::new();
        for passage in page::passages(text) {
            for sentence in sentences(&passage.text) {
                for (at, what) in self.check_sentence(page, &passage, sentence)? {
                    let place = passage.place(at);
                    let line = 1 + text.bytes().take(place).filter(|&byte| byte == b'\n').count();
                    violations.push(Violation::new(page, line, what));
                }
            }
        }
        Ok(violations)
    }

    /// Returns the figures of a sentence that nothing carries, each with its place in the passage.
    fn check_sentence(
        &mut self,
        page: &str,
        passage: &Passage,
        range: Range<usize>,
    ) -> Result<Vec<(usize, String)>> {
        let text = passage.text.get(range.clone()).unwrap_or_default();
        let quotes = self.grammar.quotes(text, passage.is_cell);
        let is_strict = STRICT.contains(&page) || leans_on_a_record(page, passage);
        let measured = match (is_strict, passage.is_cell) {
            (true, true) => true,
            (true, false) => is_measured(text, &quotes) || tells_speed(text, &quotes),
            (false, true) => {
                let caption = self.grammar.quotes(&passage.caption_text, false);
                is_measured(text, &quotes) || is_measured(&passage.caption_text, &caption)
            }
            (false, false) => is_measured(text, &quotes),
        };
        if quotes.is_empty() || !(measured || is_strict) {
            return Ok(Vec::new());
        }
        let carriers = self.carriers(page, passage, &range)?;
        let lost = quotes.iter().filter(|quote| !carriers.carry(quote, measured));
        let told = lost.map(|quote| {
            let words = text.get(quote.at..quote.end).unwrap_or_default();
            (range.start + quote.at, carriers.complaint(words, quote, measured))
        });
        Ok(told.collect())
    }

    fn carriers(
        &mut self,
        page: &str,
        passage: &Passage,
        range: &Range<usize>,
    ) -> Result<Carriers> {
        let mut carriers = Carriers::default();
        let sources = [&passage.own, &passage.caption, &passage.lead];
        for link in sources.iter().flat_map(|sources| &sources.links) {
            let path = link.split(['#', '?']).next().unwrap_or_default();
            let Some(path) = markdown::resolve(page, path) else { continue };
            let is_record = is_record(&path);
            let is_read = path.ends_with(".md") || (is_record && path.ends_with(".csv"));
            if !is_read || !self.known.contains(&*path) || path == page {
                continue;
            }
            let list = if is_record { &mut carriers.records } else { &mut carriers.manual };
            list.push(record_of(self.root, &path, &self.grammar, &mut self.records)?);
        }
        for (at, code) in passage.own.code.iter().chain(&passage.caption.code) {
            let Some(command) = command::read(code, self.known) else { continue };
            carriers.is_repeatable |=
                command.records.is_empty() && (passage.is_cell || range.contains(at));
            for path in command.records {
                let record = record_of(self.root, &path, &self.grammar, &mut self.records)?;
                carriers.records.push(record);
            }
        }
        Ok(carriers)
    }
}

/// Returns whether a passage, its caption or its section links a record.
fn leans_on_a_record(page: &str, passage: &Passage) -> bool {
    let mut links =
        [&passage.own, &passage.caption, &passage.lead].into_iter().flat_map(|from| &from.links);
    links.any(|link| markdown::resolve(page, link).is_some_and(|path| is_record(&path)))
}

fn is_record(path: &str) -> bool {
    path.starts_with("results/") && !path.starts_with("results/README.md")
}

fn record_of(
    root: &Path,
    path: &str,
    grammar: &Grammar,
    known: &mut BTreeMap<String, Rc<Record>>,
) -> Result<Rc<Record>> {
    if let Some(record) = known.get(path) {
        return Ok(Rc::clone(record));
    }
    let record = Rc::new(Record::read(root, path, grammar)?);
    known.insert(path.to_owned(), Rc::clone(&record));
    Ok(record)
}

impl Carriers {
    fn carry(&self, quote: &Quote, measured: bool) -> bool {
        let has = |records: &[Rc<Record>]| records.iter().any(|record| record.has(quote));
        self.is_repeatable || has(&self.records) || (!measured && has(&self.manual))
    }

    /// Returns what the writer has to do about a figure, which is `words` in the page.
    fn complaint(&self, words: &str, quote: &Quote, measured: bool) -> String {
        let manual = self.manual.iter().filter(|_| !measured);
        let nearest =
            self.records.iter().chain(manual).filter_map(|page| {
                page.nearest(quote).map(|(value, far)| (value, far, &page.name))
            });
        let interval = match quote.interval.as_slice() {
            [] => String::new(),
            numbers => {
                let ends: Vec<String> = numbers.iter().map(|end| end.value.to_string()).collect();
                format!(" ({})", ends.join(", "))
            }
        };
        match nearest.min_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((_, far, name)) if far < 1e-9 && !quote.interval.is_empty() => {
                format!("{words}{interval} is not in one cell of {name}")
            }
            Some((value, _, name)) => format!(
                "{words}{interval} is not in {name} (nearest: {value}): quote what stands there, \
                 or link the page that has it"
            ),
            None if measured => format!(
                "{words}{interval} has no record: link the results/…/summary.md that has it, or \
                 name in this sentence the command that repeats it"
            ),
            None => format!(
                "{words} has neither a record nor a manual: link the page that states it, or put \
                 it in back-quotes with its option"
            ),
        }
    }
}

/// Returns whether a sentence says by its form that something was measured: by an interval, a
/// number of repetitions, or a ratio that is no whole number.
fn is_measured(text: &str, quotes: &[Quote]) -> bool {
    const WORDS: &[&str] = &["n = ", "medians of", "one run"];
    let is_ratio =
        |quote: &Quote| quote.number.unit == Unit::Ratio && quote.number.value.fract() != 0.0;
    quotes.iter().any(|quote| !quote.interval.is_empty() || is_ratio(quote))
        || WORDS.iter().any(|word| text.contains(word))
}

/// Returns whether a sentence tells a speed, going by its units and its words.
fn tells_speed(text: &str, quotes: &[Quote]) -> bool {
    const WORDS: &[&str] =
        &["median", "percentile", "p99", "goodput", "core time", "its peak", "their peak", "µs"];
    quotes.iter().any(|quote| matches!(quote.number.unit, Unit::Ratio | Unit::Rate))
        || WORDS.iter().any(|word| text.contains(word))
}

/// Returns the ranges of the sentences of a text.
fn sentences(text: &str) -> Vec<Range<usize>> {
    const SHORT: &[&str] = &["fig", "figs", "eq", "eqs", "ch", "e.g", "i.e", "vs"];
    let mut start = 0;
    let mut ranges = Vec::new();
    for (at, _) in text.match_indices(". ") {
        let word = text.get(..at).and_then(|head| head.rsplit([' ', '(']).next()).unwrap_or("");
        let is_initial = word.len() == 1 && word.chars().all(char::is_alphabetic);
        if !is_initial && !SHORT.contains(&word) {
            ranges.push(start..at + 1);
            start = at + 2;
        }
    }
    ranges.push(start..text.len());
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "results/day/bench/serve/summary.md";
    const OTHER: &str = "results/day/wan/cold/summary.md";
    const FILES: &[(&str, &str)] = &[
        (RECORD, "| loop | 12.5 (12.1 to 13.4, n = 3) | 61,833 |\n"),
        (OTHER, "| loop | 117 |\n"),
        ("docs/serve.md", "The client times out after 60 s.\n"),
        ("experiments/bench/serve.toml", ""),
        ("experiments/tls/storm.toml", ""),
        ("xtask/src/slots.rs", ""),
    ];

    /// What is wrong with `text` as the page `page`.
    fn wrong(page: &str, text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in FILES.iter().chain(&[(page, text)]) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let known = FILES.iter().map(|(path, _)| *path).chain([page]).collect();
        let found = check(folder.path(), &known).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_figure_of_a_linked_record_is_carried() {
        for text in [
            "It takes 12.5 µs (12.1 to 13.4, n = 3; [serve](results/day/bench/serve/summary.md)).",
            "It takes 13 µs, and serves 61,800/s. See [serve](results/day/bench/serve/summary.md).",
            "# A\n\n[serve](results/day/bench/serve/summary.md)\n\nIt takes 12.5 µs.",
            "[serve](results/day/bench/serve/summary.md):\n\n| a | b |\n|---|---|\n| c | 12.5 |",
            "| a | b |\n|---|---|\n| [c](results/day/bench/serve/summary.md) | 12.5 |",
            "It takes 12.5 µs (`weir lab run bench/serve`).",
        ] {
            assert_eq!(wrong("README.md", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_figure_without_a_record_is_told() {
        let what = "has no record: link the results/…/summary.md that has it, or name in this \
                    sentence the command that repeats it";
        let text = "Fine.\n\nIt takes\n12.5 µs.";
        assert_eq!(wrong("README.md", text), [format!("README.md:4: 12.5 µs {what}")]);
        let below =
            "# A\n\n[serve](results/day/bench/serve/summary.md)\n\n## B\n\nIt takes 12.5 µs.";
        assert_eq!(wrong("README.md", below), [format!("README.md:7: 12.5 µs {what}")]);
        for page in ["[manual](docs/serve.md)", "[results](results/README.md)", "`cargo test`"] {
            let text = format!("A reply takes 60 s of core time ({page}).");
            assert_eq!(wrong("README.md", &text).len(), 1, "{page}");
        }
    }

    #[test]
    fn a_figure_that_its_record_does_not_have_is_told_with_the_nearest() {
        let link = "([serve](results/day/bench/serve/summary.md))";
        let told = |text: &str| wrong("README.md", &format!("{text} {link}."));
        let nearest = "(nearest: 12.5): quote what stands there, or link the page that has it";
        assert_eq!(told("12.6 µs"), [format!("README.md:1: 12.6 µs is not in {RECORD} {nearest}")]);
        let apart = "README.md:1: 12.5 µs (12.1, 61833) is not in one cell of";
        assert_eq!(told("12.5 µs (12.1, 61,833)"), [format!("{apart} {RECORD}")]);
        assert_eq!(told("117 µs").len(), 1);
    }

    #[test]
    fn a_command_carries_its_own_sentence_where_there_is_no_record() {
        let text = "It takes 1.5 µs (`cargo xtask slots`). It takes 1.6 µs.";
        assert_eq!(wrong("README.md", text).len(), 1);
        assert_eq!(wrong("README.md", "1.5 µs by `weir lab run tls/storm`."), [""; 0]);
        assert_eq!(wrong("README.md", "1.5 µs by `weir lab run tls/gone`.").len(), 1);
        assert_eq!(wrong("README.md", "1.5 µs by `weir lab run bench/serve`.").len(), 1);
    }

    #[test]
    fn a_setting_stands_in_the_manual_or_with_its_option() {
        assert_eq!(wrong("README.md", "After `--idle 60s` it ends."), [""; 0]);
        assert_eq!(wrong("README.md", "After 60 s it ends ([manual](docs/serve.md))."), [""; 0]);
        assert_eq!(wrong("README.md", "After 61 s it ends ([manual](docs/serve.md)).").len(), 1);
        let bare = wrong("README.md", "After 60 s it ends, or after `61 s`.");
        assert_eq!(bare.len(), 2);
        assert!(bare[0].contains("has neither a record nor a manual"), "{bare:?}");
    }

    #[test]
    fn the_manual_states_its_settings_and_carries_what_was_measured() {
        let page = "docs/proxy.md";
        assert_eq!(wrong(page, "It ends after 60 s."), [""; 0]);
        for text in ["It takes 60 µs (n = 3).", "It takes 0.5 of it.", "It takes 5 s (4 to 6)."] {
            assert_eq!(wrong(page, text).len(), 1, "{text}");
        }
        let table = "In medians of 3:\n\n| a | b |\n|---|---|\n| c | 5 µs |\n";
        assert_eq!(wrong(page, table).len(), 1);
        assert_eq!(wrong(page, "Reads:\n\n| a | b |\n|---|---|\n| c | 5 µs |\n"), [""; 0]);
    }

    #[test]
    fn sentences_end_at_full_stops_only() {
        let text = "See fig. 4.12, e.g. by A. Chandra. One is 12. Two is 1.5.";
        let found: Vec<&str> = sentences(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, ["See fig. 4.12, e.g. by A. Chandra.", "One is 12.", "Two is 1.5."]);
    }
}
