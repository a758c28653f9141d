//! The summary in Markdown, shown first to a reader of a repository. Figures are links to files
//! beside it.

use super::claims::{
    About, Claimed, PEAK, TRIALS, cause, causes, claims, claims_heading, points, tally_of, trials,
    verdict,
};
use super::names::Names;
use super::number::{evidence, interval, number, percent};
use crate::findings::{Chapter, Estimate, Findings, Judged, Saturation, Sheet};

/// Returns the run in Markdown. Links are relative to the directory that [`write`](super::write)
/// fills.
pub fn summary(findings: &Findings) -> String {
    let names = Names::of(findings);
    let mut text = format!("# {}\n", plain(&findings.title));
    if let Some(paper) = &findings.paper {
        let cite = format!("{}, “{}”, {}.", paper.authors, paper.title, paper.year);
        paragraph(&mut text, &plain(&cite));
        paragraph(&mut text, &format!("The paper’s set-up: {}", plain(&paper.set_up)));
    }
    for warning in &findings.warnings {
        paragraph(&mut text, &format!("**Warning:** {}", plain(warning)));
    }
    paragraph(
        &mut text,
        "Numbers are medians of repetitions; intervals are in brackets. \
         The page `report.html` beside this file has all of it, to look at closely.",
    );
    saturations(&mut text, findings);
    verdicts(&mut text, claims_heading(findings), &claims(findings, &names));
    tried(&mut text, &trials(findings, &names));
    for (nth, chapter) in findings.chapters.iter().enumerate() {
        self::chapter(&mut text, chapter, names.pictures(nth), names.sheets(nth));
    }
    if !findings.set_up.is_empty() {
        text.push_str("\n## Set-up\n");
        table(
            &mut text,
            &["what", "value"],
            findings.set_up.iter().map(|(a, b)| vec![plain(a), plain(b)]),
        );
    }
    text
}

fn saturations(text: &mut String, findings: &Findings) {
    let rows: Vec<Vec<String>> = findings
        .chapters
        .iter()
        .flat_map(|chapter| chapter.saturations.iter().map(|row| saturation(chapter, row)))
        .collect();
    if rows.is_empty() {
        return;
    }
    text.push_str("\n## Peak, and what is left of it\n");
    let head = [
        "sweep",
        "server",
        "peak goodput, replies/s",
        "offered there",
        "offered up to",
        "kept there",
    ];
    paragraph(text, PEAK);
    table(text, &head, rows.into_iter());
}

fn saturation(chapter: &Chapter, row: &Saturation) -> Vec<String> {
    vec![
        plain(&format!("{}: {}", chapter.title, row.sweep)),
        plain(&row.server),
        bracketed(&row.peak, number),
        number(row.at),
        format!("{}×", number(row.offered)),
        row.kept.map_or_else(|| "–".to_owned(), |kept| bracketed(&kept, percent)),
    ]
}

fn verdicts(text: &mut String, heading: &str, claims: &[Claimed<'_>]) {
    if claims.is_empty() {
        return;
    }
    text.push_str(&format!("\n## {heading}\n"));
    let counts = tally_of(claims).into_iter();
    let counts: Vec<String> =
        counts.map(|(kind, count)| format!("{count} × {}", verdict(kind).1)).collect();
    paragraph(text, format!("{}. {}", counts.join(", "), causes(claims)).trim_end());
    let rows = claims.iter().map(|claim| {
        let judged = claim.judged;
        vec![
            format!("{} ({})", plain(&judged.text), plain(&judged.place)),
            judged.paper.map_or_else(|| "–".to_owned(), number),
            judged.here.map_or_else(|| "–".to_owned(), |here| judged_by(&here)),
            outcome(judged),
            about(claim.about),
        ]
    });
    table(text, &["claim", "paper", "here", "verdict", "figure"], rows);
}

/// Adds the trials of a cause, which are in no count of claims.
fn tried(text: &mut String, trials: &[Claimed<'_>]) {
    if trials.is_empty() {
        return;
    }
    text.push_str(&format!("\n## {TRIALS}\n"));
    let rows = trials.iter().map(|trial| {
        let judged = trial.judged;
        vec![
            format!("{} ({})", plain(&judged.text), plain(&judged.place)),
            judged.trial_of.as_deref().map_or_else(|| "–".to_owned(), plain),
            judged.here.map_or_else(|| "–".to_owned(), |here| judged_by(&here)),
            outcome(judged),
            about(trial.about),
        ]
    });
    table(text, &["trial", "of the claim", "here", "verdict", "figure"], rows);
}

/// Returns the verdict with its reason, and what is known of the cause.
fn outcome(judged: &Judged) -> String {
    let (sign, word) = verdict(judged.verdict);
    let mut why =
        if judged.why.is_empty() { String::new() } else { format!(": {}", plain(&judged.why)) };
    let cause = cause(judged);
    if !cause.is_empty() {
        why.push_str(&format!(". {}", plain(&cause)));
    }
    format!("{sign} {word}{why}")
}

fn about(about: About<'_>) -> String {
    match about {
        About::Picture(stem) => format!("[{stem}](figures/{stem}.svg)"),
        About::Sheet(stem) => format!("[{stem}](tables/{stem}.csv)"),
        About::Chapter => "–".to_owned(),
    }
}

fn chapter(text: &mut String, chapter: &Chapter, pictures: &[String], sheets: &[String]) {
    text.push_str(&format!("\n## {}\n", plain(&chapter.title)));
    paragraph(text, &plain(&chapter.question));
    for sweep in &chapter.sweeps {
        paragraph(text, &plain(sweep));
    }
    paragraph(text, &format!("{}.", points(chapter)));
    for (picture, stem) in chapter.pictures.iter().zip(pictures) {
        text.push_str(&format!("\n### {}\n", plain(&picture.title)));
        paragraph(text, &format!("![{}](figures/{stem}.svg)", plain(&picture.title)));
        if !picture.note.is_empty() {
            paragraph(text, &plain(&picture.note));
        }
    }
    for (sheet, stem) in chapter.sheets.iter().zip(sheets) {
        text.push_str(&format!("\n### {}\n", plain(&sheet.title)));
        self::sheet(text, sheet);
        paragraph(text, &format!("[as CSV](tables/{stem}.csv)"));
    }
}

fn sheet(text: &mut String, sheet: &Sheet) {
    let mut head = vec![String::new()];
    for (name, unit) in &sheet.columns {
        let unit = if unit.is_empty() { String::new() } else { format!(", {}", plain(unit)) };
        head.push(format!("{}{unit}", plain(name)));
    }
    let rows = sheet.rows.iter().map(|row| {
        let mut fields = vec![plain(&row.label)];
        for nth in 0..sheet.columns.len() {
            let (here, paper) = row.cells.get(nth).copied().unwrap_or_default();
            let here = here.map_or_else(|| "–".to_owned(), |here| bracketed(&here, number));
            let paper =
                paper.map_or_else(String::new, |paper| format!("; paper {}", number(paper)));
            fields.push(format!("{here}{paper}"));
        }
        fields
    });
    table(text, &head, rows);
}

fn bracketed(estimate: &Estimate, write: impl Fn(f64) -> String) -> String {
    format!("{} ({})", write(estimate.value), interval(estimate, write))
}

/// Formats an estimate that a verdict rests on.
pub(super) fn judged_by(here: &Estimate) -> String {
    format!("{} ({})", number(here.value), evidence(here, number))
}

pub(super) fn paragraph(text: &mut String, words: &str) {
    text.push_str(&format!("\n{words}\n"));
}

pub(super) fn table<T: AsRef<str>>(
    text: &mut String,
    head: &[T],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let head: Vec<&str> = head.iter().map(AsRef::as_ref).collect();
    text.push_str(&format!("\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len())));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
}

/// Escapes a text for Markdown and HTML, on one line.
pub(super) fn plain(words: &str) -> String {
    let mut text = String::new();
    for word in words.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        for c in word.chars() {
            if matches!(c, '\\' | '|' | '<' | '>' | '*' | '_' | '`' | '[' | ']' | '&' | '#' | '~') {
                text.push('\\');
            }
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn markdown_and_html_in_a_label_mean_nothing() {
        assert_eq!(plain("a|b <b>*c*</b>\n# d"), "a\\|b \\<b\\>\\*c\\*\\</b\\> \\# d");
    }

    #[test]
    fn every_figure_claim_and_warning_is_in_the_summary() {
        let findings = fixtures::findings();
        let text = summary(&findings);
        let names = Names::of(&findings);
        for nth in 0..findings.chapters.len() {
            for stem in names.pictures(nth) {
                assert!(text.contains(&format!("](figures/{stem}.svg)")), "{stem}");
            }
        }
        for claim in claims(&findings, &names) {
            assert!(text.contains(&plain(&claim.judged.text)));
        }
        let (claims, rest) = text.split_once("\n## Trials of a cause\n").unwrap();
        for trial in trials(&findings, &names) {
            let said = plain(&trial.judged.text);
            assert!(rest.contains(&said) && !claims.contains(&said), "{said}");
        }
        for warning in &findings.warnings {
            assert!(text.contains(&plain(warning)));
        }
    }

    #[test]
    fn a_peak_is_said_to_be_one_of_goodput() {
        let text = summary(&fixtures::findings());
        assert!(text.contains(PEAK) && text.contains("| peak goodput, replies/s |"), "{text}");
    }

    #[test]
    fn an_infinite_ratio_is_shown_as_one() {
        let text = summary(&fixtures::findings());
        assert!(text.contains("| ∞ (2 to ∞, n = 5) | ✓ holds |"), "{text}");
    }

    #[test]
    fn each_row_of_a_table_has_as_many_cells_as_its_head() {
        let mut cells = None;
        for line in summary(&fixtures::findings()).lines() {
            let count = line.replace("\\|", "").matches('|').count();
            match cells {
                _ if count == 0 => cells = None,
                Some(cells) => assert_eq!(count, cells, "{line}"),
                None => cells = Some(count),
            }
        }
    }
}
