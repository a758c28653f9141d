//! Numbers of a record: a page of results without its set-up, or a table of one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::quote::{Grammar, Number, Quote, Unit};

/// A recorded number, and whether it is per cent.
pub(super) type Recorded = (f64, bool);

/// The numbers of a page.
pub(super) struct Record {
    pub(super) name: String,
    groups: Vec<Group>,
}

/// The numbers of a cell or line.
struct Group {
    values: Vec<Recorded>,
    /// Ends of the interval in brackets, which are no values of their own; two values are.
    ends: Vec<Recorded>,
}

impl Record {
    /// Reads the page or table `name` of the tree at `root`.
    pub(super) fn read(root: &Path, name: &str, grammar: &Grammar) -> Result<Self> {
        let path = root.join(name);
        let text = fs::read_to_string(&path).with_context(|| name.to_owned())?;
        let text = if name.ends_with(".csv") { text.replace(',', " ") } else { text };
        Ok(Self::of_text(name, &text, grammar))
    }

    /// Reads the `text` of a page up to its set-up.
    pub(super) fn of_text(name: &str, text: &str, grammar: &Grammar) -> Self {
        let measured = text.split("\n## Set-up").next().unwrap_or_default();
        let cells = measured.lines().flat_map(|line| line.split(" | "));
        let told = cells.filter(|cell| !cell.contains("the interval "));
        Self { name: name.to_owned(), groups: told.map(|cell| Group::of(cell, grammar)).collect() }
    }

    /// Returns whether the record has the figure, and its interval in the same cell.
    pub(super) fn has(&self, quote: &Quote) -> bool {
        self.groups.iter().any(|group| {
            let all = group.values.iter().chain(&group.ends);
            let has_value = group.values.iter().any(|&value| matches(&quote.number, value));
            let mut ends = quote.interval.iter();
            has_value && ends.all(|end| all.clone().any(|&number| matches(end, number)))
        })
    }

    /// Returns the number nearest to the figure, and how far it is as a share of it.
    pub(super) fn nearest(&self, quote: &Quote) -> Option<(f64, f64)> {
        let number = &quote.number;
        let values = self.groups.iter().flat_map(|group| &group.values);
        let forms = values.flat_map(|&recorded| forms(number, recorded));
        let far = forms.map(|form| (form, (form - number.value).abs() / number.value.max(1e-9)));
        far.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Group {
    fn of(cell: &str, grammar: &Grammar) -> Self {
        let is_interval = cell.contains("n = ") && !cell.contains("n = 2)");
        let bracket = cell.find(" (").filter(|_| is_interval);
        let (values, ends) = cell.split_at(bracket.unwrap_or(cell.len()));
        Self { values: grammar.numbers(values), ends: grammar.numbers(ends) }
    }
}

fn matches(number: &Number, recorded: Recorded) -> bool {
    let close = |form: f64| (form - number.value).abs() <= number.tolerance * 1.000_001;
    forms(number, recorded).into_iter().any(close)
}

/// Returns what a recorded number is in the unit of `number`: shares are recorded as ratios too,
/// and times in other units.
fn forms(number: &Number, (value, percent): Recorded) -> Vec<f64> {
    match number.unit {
        Unit::Percent if percent => vec![value],
        Unit::Percent => vec![value, 100.0 * value],
        Unit::Ratio | Unit::Bare if percent => vec![value, value / 100.0],
        Unit::Time => vec![value, 1000.0 * value, value / 1e3, value / 1e6],
        Unit::Size => vec![value, value / 1000.0, value / 1024.0],
        Unit::Ratio | Unit::Rate | Unit::Bare => vec![value],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| a | 1.07 (1.03 to 1.12, n = 3) | 0.0228 |\n|---|---|---|\n\
                        | b | 93.2 % (one point) | 13,137 |\n\n## Set-up\n\n| scale | 77 |\n";

    fn has(text: &str) -> bool {
        let grammar = Grammar::new().unwrap();
        let record = Record::of_text("results/a.md", PAGE, &grammar);
        let quotes = grammar.quotes(text, false);
        assert_eq!(quotes.len(), 1, "{text}");
        record.has(&quotes[0])
    }

    #[test]
    fn a_figure_is_found_as_it_is_rounded() {
        for text in ["1.07 times", "1.1 times", "93 %", "13,100 replies/s", "2.3 %", "0.93"] {
            assert!(has(text), "{text}");
        }
        for text in ["1.08 times", "1.12 times", "93.3 %", "13,200 replies/s", "77 %", "0.94"] {
            assert!(!has(text), "{text}");
        }
    }

    #[test]
    fn an_interval_stands_in_the_cell_of_its_figure() {
        assert!(has("1.07 (1.03, 1.12)"));
        assert!(!has("1.07 (1.03, 1.13)"));
        assert!(!has("1.07 (0.0228, 1.12)"));
    }

    #[test]
    fn times_are_found_in_other_units() {
        let grammar = Grammar::new().unwrap();
        let record = Record::of_text("results/a.md", "| 1,250 |\n", &grammar);
        assert!(record.has(&grammar.quotes("1.25 ms", false)[0]));
        assert!(!record.has(&grammar.quotes("1.26 ms", false)[0]));
    }
}
