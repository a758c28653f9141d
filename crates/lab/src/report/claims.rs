//! Texts common to the page and the summary: verdicts, the claims of a run, and counts of points.

use super::names::Names;
use crate::findings::{Chapter, Findings, Judged, Verdict};

/// Returns a verdict as a sign and a word.
pub(super) fn verdict(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Holds => ("✓", "holds"),
        Verdict::DoesNotHold => ("✗", "does not hold"),
        Verdict::Undecided => ("≈", "undecided"),
        Verdict::NotMeasurable => ("∅", "not measurable here"),
    }
}

/// All verdicts, in display order.
pub(super) const VERDICTS: [Verdict; 4] =
    [Verdict::Holds, Verdict::DoesNotHold, Verdict::Undecided, Verdict::NotMeasurable];

/// Subject of a claim, as file stem: a picture, a sheet, or the whole chapter.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    Picture(&'a str),
    Sheet(&'a str),
    Chapter,
}

/// A claim, with its chapter's number and its subject.
pub(super) struct Claimed<'a> {
    pub(super) chapter: usize,
    pub(super) about: About<'a>,
    pub(super) judged: &'a Judged,
}

/// Returns all claims of all chapters, in the order of the page.
pub(super) fn claims<'a>(findings: &'a Findings, names: &'a Names) -> Vec<Claimed<'a>> {
    let mut all = Vec::new();
    for (nth, chapter) in findings.chapters.iter().enumerate() {
        let mut put = |about, judged: &'a [Judged]| {
            all.extend(judged.iter().map(|judged| Claimed { chapter: nth, about, judged }));
        };
        for (picture, stem) in chapter.pictures.iter().zip(names.pictures(nth)) {
            put(About::Picture(stem), &picture.judged);
        }
        for (sheet, stem) in chapter.sheets.iter().zip(names.sheets(nth)) {
            put(About::Sheet(stem), &sheet.judged);
        }
        put(About::Chapter, &chapter.judged);
    }
    all
}

/// Returns the heading of the claims: the paper's, or the experiments' own.
pub(super) fn claims_heading(findings: &Findings) -> &'static str {
    if findings.paper.is_some() { "The paper’s claims" } else { "What was expected" }
}

/// Counts the claims with each verdict; verdicts without claims are left out.
pub(super) fn tally_of(claims: &[Claimed<'_>]) -> Vec<(Verdict, usize)> {
    let count = |verdict| claims.iter().filter(|claim| claim.judged.verdict == verdict).count();
    VERDICTS.map(|verdict| (verdict, count(verdict))).into_iter().filter(|(_, n)| *n > 0).collect()
}

/// Describes the counts of points in a sentence.
pub(super) fn points(chapter: &Chapter) -> String {
    let tally = chapter.tally;
    let mut text = format!("{} of {} points measured", tally.measured, tally.planned);
    for (count, what) in [
        (tally.invalid, "INVALID (shown, not used)"),
        (tally.late, "late (times not used)"),
        (tally.flagged, "flagged (used and named)"),
        (tally.failed, "not measurable"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn claims_are_counted_by_verdict() {
        let findings = fixtures::findings();
        let names = Names::of(&findings);
        let all = claims(&findings, &names);
        let sum: usize = tally_of(&all).iter().map(|(_, n)| n).sum();
        assert_eq!(sum, all.len());
        assert_eq!(tally_of(&all).len(), VERDICTS.len());
    }
}
