//! Comparison of two runs: which estimates agree, and what differs in the set-up. Findings in, a
//! comparison out; nothing here sees a point or knows what an experiment is about.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analysis::number;
use crate::findings::{Chapter, Estimate, Findings, INTERVAL_N_MIN, Saturation, Stroke};
use crate::fit::cut;

/// A comparison of two runs, A and B.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    /// Name of the first run.
    pub a: String,
    /// Name of the second run.
    pub b: String,
    /// Peaks, and the shares of them left past the peak, for servers and sweeps that both runs
    /// have.
    pub saturations: Vec<Pair>,
    /// Marks of figures that both runs have.
    pub marks: Vec<Pair>,
    /// Agreement of the peaks.
    pub peaks: Agreement,
    /// Agreement of the shares left past the peak.
    pub kept: Agreement,
    /// Agreement of the marks.
    pub figures: Agreement,
    /// Number of estimates that only one of the runs has.
    pub alone: u32,
    /// Differences in the set-up: name, value in A, value in B.
    pub set_up: Vec<(String, Option<String>, Option<String>)>,
}

/// A number that both runs have.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Pair {
    /// The chapter.
    pub chapter: String,
    /// The figure, or the sweep of a saturation.
    pub part: String,
    /// Label of the number: `accept 10, peak`, `accept 10 at 2.5`.
    pub what: String,
    /// Estimate of the first run.
    pub a: Estimate,
    /// Estimate of the second run.
    pub b: Estimate,
    /// Ratio of the second to the first; `None` if it is not finite.
    pub ratio: Option<f64>,
    /// True if the intervals of the two estimates overlap; `None` if one of them has too few values
    /// for an interval, as nothing follows from those.
    pub overlap: Option<bool>,
}

/// Number of pairs whose intervals overlap, out of those of two intervals.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Agreement {
    /// Pairs whose intervals overlap.
    pub agree: u32,
    /// Pairs of two intervals.
    pub of: u32,
    /// Pairs in which an estimate has too few values for an interval.
    pub undecided: u32,
}

/// Place of a number: chapter, figure or sweep, and label.
type EstimateKey = (String, String, String);

/// Numbers by place, in the order of their run.
type KeyedEstimates = Vec<(EstimateKey, Estimate)>;

/// Compares two runs. Estimates are matched by chapter, figure, server and value of the sweep.
pub fn compare(a: &Findings, b: &Findings) -> Comparison {
    let mut alone = 0;
    let mut both = |of: fn(&Chapter) -> KeyedEstimates| {
        let numbers = |run: &Findings| run.chapters.iter().flat_map(of).collect();
        let (pairs, single) = pairs(numbers(a), numbers(b));
        alone += single;
        pairs
    };
    let (peaks, kept, marks) = (both(peaks), both(kept), both(marks));
    let agreements = [&peaks, &kept, &marks].map(|pairs| agreement(pairs));
    let [of_peaks, of_kept, of_marks] = agreements;
    Comparison {
        a: a.name.clone(),
        b: b.name.clone(),
        saturations: peaks.into_iter().chain(kept).collect(),
        marks,
        peaks: of_peaks,
        kept: of_kept,
        figures: of_marks,
        alone,
        set_up: differences(&facts(a), &facts(b)),
    }
}

fn peaks(chapter: &Chapter) -> KeyedEstimates {
    saturations(chapter, "peak", |one| Some(one.peak))
}

fn kept(chapter: &Chapter) -> KeyedEstimates {
    saturations(chapter, "left of it", |one| one.kept)
}

fn saturations(
    chapter: &Chapter,
    name: &str,
    of: fn(&Saturation) -> Option<Estimate>,
) -> KeyedEstimates {
    let number = |one: &Saturation| {
        let what = format!("{}, {name}", one.server);
        Some(((chapter.id.clone(), one.sweep.clone(), what), of(one)?))
    };
    chapter.saturations.iter().filter_map(number).collect()
}

fn marks(chapter: &Chapter) -> KeyedEstimates {
    let mut numbers = Vec::new();
    for picture in &chapter.pictures {
        // A line over time has too many numbers to compare.
        for series in picture.series.iter().filter(|one| one.stroke == Stroke::Marks) {
            for mark in &series.marks {
                let what = format!("{} at {}", series.label, mark.at);
                let place = (chapter.id.clone(), picture.id.clone(), what);
                numbers.extend(mark.estimate.map(|estimate| (place, estimate)));
            }
        }
    }
    numbers
}

/// Pairs numbers by place; returns the pairs and the count of unpaired numbers.
fn pairs(a: KeyedEstimates, b: KeyedEstimates) -> (Vec<Pair>, u32) {
    let mut theirs: BTreeMap<EstimateKey, Estimate> = b.into_iter().collect();
    let mut alone = 0;
    let mut pairs = Vec::new();
    for (place, mine) in a {
        match theirs.remove(&place) {
            Some(other) => pairs.push(pair(place, mine, other)),
            None => alone += 1,
        }
    }
    (pairs, alone + theirs.len() as u32)
}

fn pair((chapter, part, what): EstimateKey, a: Estimate, b: Estimate) -> Pair {
    let ratio = Some(b.value / a.value).filter(|ratio| ratio.is_finite());
    let has_intervals = a.has_interval() && b.has_interval();
    let overlap = has_intervals.then_some(a.low <= b.high && b.low <= a.high);
    Pair { chapter, part, what, a, b, ratio, overlap }
}

fn agreement(pairs: &[Pair]) -> Agreement {
    let count = |overlap| pairs.iter().filter(|pair| pair.overlap == overlap).count() as u32;
    let agree = count(Some(true));
    Agreement { agree, of: agree + count(Some(false)), undecided: count(None) }
}

/// Collects the set-up of a run and the servers of each chapter, by name.
fn facts(run: &Findings) -> BTreeMap<String, String> {
    let mut facts: BTreeMap<String, String> = run.set_up.iter().cloned().collect();
    for chapter in &run.chapters {
        for (label, command) in &chapter.servers {
            facts.insert(format!("{}: {label}", chapter.id), command.clone());
        }
    }
    facts
}

fn differences(
    a: &BTreeMap<String, String>,
    b: &BTreeMap<String, String>,
) -> Vec<(String, Option<String>, Option<String>)> {
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differ = names.into_iter().filter(|name| a.get(*name) != b.get(*name));
    differ.map(|name| (name.clone(), a.get(name).cloned(), b.get(name).cloned())).collect()
}

/// Maximum line width of [`text`], in columns.
const WIDTH: usize = 100;

/// Formats the comparison as plain text, at most 100 columns wide: differences in the set-up, all
/// saturations, and the marks of figures that do not agree.
pub fn text(comparison: &Comparison) -> String {
    let Comparison { a, b, peaks, kept, figures, alone, .. } = comparison;
    let mut lines = vec![format!("A: {a}"), format!("B: {b}"), String::new()];
    for (name, agreement) in [("peaks", peaks), ("shares left", kept), ("marks", figures)] {
        lines.push(format!("{name}: {}", agreed(agreement)));
    }
    if *alone > 0 {
        lines.push(format!("{alone} estimates are in one of the runs only"));
    }
    if !comparison.set_up.is_empty() {
        lines.extend([String::new(), "The set-up differs:".to_owned()]);
    }
    for (name, a, b) in &comparison.set_up {
        lines.push(format!("  {name}"));
        for (run, text) in [("A", a), ("B", b)] {
            lines.push(format!("    {run}: {}", text.as_deref().unwrap_or("says nothing")));
        }
    }
    lines.extend(table("Saturation", &comparison.saturations.iter().collect::<Vec<_>>()));
    let differ: Vec<&Pair> =
        comparison.marks.iter().filter(|pair| pair.overlap == Some(false)).collect();
    lines.extend(table("Marks of figures that do not agree", &differ));
    lines.iter().map(|line| cut(line.trim_end(), WIDTH) + "\n").collect()
}

fn agreed(agreement: &Agreement) -> String {
    let Agreement { agree, of, undecided } = agreement;
    let few = match undecided {
        0 => String::new(),
        _ => format!(
            "; {undecided} cannot be told, having fewer than {INTERVAL_N_MIN} rounds in a run"
        ),
    };
    format!("the intervals of {agree} of {of} overlap{few}")
}

/// Formats rows below a heading for each figure or sweep; returns nothing if there are no pairs.
fn table(title: &str, pairs: &[&Pair]) -> Vec<String> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), title.to_owned()];
    lines.push(row("", "A", "B", "B / A", "overlap"));
    let mut under = None;
    for pair in pairs {
        let here = (&pair.chapter, &pair.part);
        if under.replace(here) != Some(here) {
            lines.push(format!("{}, {}", pair.chapter, pair.part));
        }
        let ratio = pair.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
        let overlap = pair.overlap.map_or("-", |overlap| if overlap { "yes" } else { "no" });
        let what = format!("  {}", pair.what);
        lines.push(row(&what, &interval(pair.a), &interval(pair.b), &ratio, overlap));
    }
    lines
}

fn row(what: &str, a: &str, b: &str, ratio: &str, overlap: &str) -> String {
    format!("{:<35} {a:>23} {b:>23} {ratio:>7} {overlap:>7}", cut(what, 35))
}

/// Formats an estimate as `19500 (19200-19800)`, or `19500 (n = 2)` if it has no interval.
fn interval(estimate: Estimate) -> String {
    let Estimate { value, low, high, n } = estimate;
    match estimate.has_interval() {
        true => format!("{} ({}-{})", number(value), number(low), number(high)),
        false => format!("{} (n = {n})", number(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Mark, Picture, Series};

    fn estimate(value: f64, spread: f64) -> Estimate {
        Estimate { value, low: value - spread, high: value + spread, n: 3 }
    }

    fn run(name: &str, peak: Estimate, marks: &[(f64, f64)], kernel: &str) -> Findings {
        let mark = |(at, value): &(f64, f64)| Mark {
            x: at * peak.value,
            at: *at,
            estimate: Some(estimate(*value, 1.0)),
            ..Mark::default()
        };
        let marks = marks.iter().map(mark).collect();
        let series = vec![Series { label: "one".into(), marks, ..Series::default() }];
        let saturation = Saturation {
            sweep: "up".into(),
            server: "one".into(),
            peak,
            at: 1.0,
            offered: 2.0,
            kept: Some(estimate(0.5, 0.1)),
        };
        let chapter = Chapter {
            id: "p/e".into(),
            servers: vec![("one".into(), "weir serve".into())],
            pictures: vec![Picture { id: "fig-1".into(), series, ..Picture::default() }],
            saturations: vec![saturation],
            ..Chapter::default()
        };
        Findings {
            name: name.into(),
            set_up: vec![("cpu".into(), "X".into()), ("kernel".into(), kernel.into())],
            chapters: vec![chapter],
            ..Findings::default()
        }
    }

    #[test]
    fn estimates_agree_when_their_intervals_overlap() {
        let a = run("a", estimate(1000.0, 20.0), &[(1.0, 10.0), (2.0, 10.0), (3.0, 1.0)], "6.1");
        let b = run("b", estimate(1030.0, 20.0), &[(1.0, 11.0), (2.0, 13.0), (4.0, 1.0)], "6.2");
        let found = compare(&a, &b);
        let of = |agree, of| Agreement { agree, of, undecided: 0 };
        assert_eq!(found.peaks, of(1, 1));
        assert_eq!(found.kept, of(1, 1));
        assert_eq!(found.figures, of(1, 2));
        assert_eq!((found.alone, found.saturations[0].ratio), (2, Some(1.03)));
        let kernel = ("kernel".to_owned(), Some("6.1".to_owned()), Some("6.2".to_owned()));
        assert_eq!(found.set_up, [kernel]);
        let far = run("c", estimate(1041.0, 20.0), &[], "6.1");
        assert_eq!(compare(&a, &far).peaks, of(0, 1));
    }

    #[test]
    fn too_few_rounds_for_an_interval_neither_agree_nor_disagree() {
        let with = |value: f64, n: u32| {
            let peak = Estimate { n, ..estimate(value, if n > 1 { 1.0 } else { 0.0 }) };
            let mut run = run("r", peak, &[(1.0, value)], "6");
            for mark in &mut run.chapters[0].pictures[0].series[0].marks {
                mark.estimate = Some(peak);
            }
            run
        };
        for (ours, theirs) in [(1, 1), (1, 3), (3, 2), (2, 2)] {
            let found = compare(&with(1000.0, ours), &with(2000.0, theirs));
            let none = Agreement { agree: 0, of: 0, undecided: 1 };
            assert_eq!((found.peaks, found.figures), (none, none), "{ours} and {theirs}");
            let text = text(&found);
            let said = "peaks: the intervals of 0 of 0 overlap; 1 cannot be told, having fewer \
                        than 3 rounds in a run";
            assert!(text.contains(said) && !text.contains("do not agree"), "{text}");
        }
        let text = text(&compare(&with(1000.0, 1), &with(2000.0, 3)));
        assert!(text.contains("1000 (n = 1)") && text.contains("2000 (1999-2001)"), "{text}");
        assert!(text.contains("2.000       -\n"), "{text}");
    }

    #[test]
    fn the_text_is_a_narrow_table() {
        let a = run(&"long ".repeat(40), estimate(123456.0, 200.0), &[(2.0, 10.0)], "6.1");
        let b = run("b", estimate(1234567.0, 2000.0), &[(2.0, 15.0)], "6.2");
        let text = text(&compare(&a, &b));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for part in ["peaks: the intervals of 0 of 1 overlap", "    B: 6.2", "p/e, fig-1", "10.000"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("  one at 2"), "{text}");
    }

    #[test]
    fn a_comparison_is_data() {
        let a = run("a", estimate(10.0, 1.0), &[(1.0, 0.0)], "6");
        let found = compare(&a, &a);
        assert_eq!(found.marks[0].ratio, None);
        let json = serde_json::to_string(&found).unwrap();
        let back: Comparison = serde_json::from_str(&json).unwrap();
        assert_eq!(text(&back), text(&found));
    }
}
