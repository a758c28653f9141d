//! Texts common to the page and the summary: verdicts, the claims of a run, and counts of points.

use super::names::Names;
use crate::findings::{Cause, Chapter, Findings, Judged, Trial, Verdict};

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

/// Heading of the trials of a cause.
pub(super) const TRIALS: &str = "Trials of a cause";

/// Explanation of the peaks in the table of them.
pub(super) const PEAK: &str = "A peak is the highest median goodput: replies that are no refusals, \
    in time, per second.";

/// Subject of a claim, as file stem: a picture, a sheet, or the whole chapter.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    Picture(&'a str),
    Sheet(&'a str),
    Chapter,
}

/// A claim or a trial, with its chapter's number and its subject.
pub(super) struct Claimed<'a> {
    pub(super) chapter: usize,
    pub(super) about: About<'a>,
    pub(super) judged: &'a Judged,
}

/// Returns all claims of all chapters, in the order of the page, without the trials of a cause:
/// those repeat a paper's claim under conditions that are not the paper's.
pub(super) fn claims<'a>(findings: &'a Findings, names: &'a Names) -> Vec<Claimed<'a>> {
    let all = judged(findings, names).into_iter();
    all.filter(|claim| !claim.judged.is_trial()).collect()
}

/// Returns all trials of a cause, in the order of the page.
pub(super) fn trials<'a>(findings: &'a Findings, names: &'a Names) -> Vec<Claimed<'a>> {
    let all = judged(findings, names).into_iter();
    all.filter(|claim| claim.judged.is_trial()).collect()
}

fn judged<'a>(findings: &'a Findings, names: &'a Names) -> Vec<Claimed<'a>> {
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

/// Describes what is known of the cause of a paper's claim that does not hold; empty for others.
pub(super) fn cause(judged: &Judged) -> String {
    let (Some(cause), Some(trials)) = (judged.cause(), &judged.trials) else {
        return String::new();
    };
    let with = |verdict: Verdict| -> Option<String> {
        let trials = trials.iter().filter(|one| one.verdict == verdict);
        let named: Vec<String> = trials.map(trial).collect();
        (!named.is_empty()).then(|| named.join("; with "))
    };
    let [found, failed, open, none] = VERDICTS.map(with);
    let failed_too = failed.as_ref().map(|failed| format!("Not with {failed}."));
    let open = open.into_iter().chain(none).collect::<Vec<_>>().join("; with ");
    match cause {
        Cause::Found => {
            let found = format!("Cause: the effect is there with {}.", found.unwrap_or_default());
            [Some(found), failed_too].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        Cause::NotAmongTrials => {
            let failed = failed.unwrap_or_default();
            format!("Cause unknown: the effect is not there with {failed} either.")
        }
        Cause::Open => {
            let open = format!("Cause unknown: undecided with {open}.");
            [Some(open), failed_too].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        Cause::NotLookedFor => "Cause unknown: no experiment of this run looks for it.".to_owned(),
    }
}

fn trial(trial: &Trial) -> String {
    format!("{} ({})", trial.condition, trial.experiment)
}

/// Describes how many of a paper's claims that do not hold have a known cause; empty if all hold.
pub(super) fn causes(claims: &[Claimed<'_>]) -> String {
    let count = |wanted| claims.iter().filter(|claim| claim.judged.cause() == Some(wanted)).count();
    let kinds = [
        (Cause::Found, "have a known cause"),
        (Cause::NotAmongTrials, "have a cause that is none of the conditions changed"),
        (Cause::Open, "have changed conditions that decide nothing yet"),
        (Cause::NotLookedFor, "have not been looked into"),
    ];
    let counted = kinds.map(|(kind, words)| (count(kind), words));
    let all: usize = counted.iter().map(|(count, _)| count).sum();
    let some = counted.iter().filter(|(count, _)| *count > 0);
    let some: Vec<String> = some.map(|(count, words)| format!("{count} {words}")).collect();
    if all == 0 { String::new() } else { format!("Of {all} that do not hold {}.", some.join(", ")) }
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

    fn with_trials(verdicts: &[(&str, Verdict)]) -> Judged {
        let findings = fixtures::findings();
        let mut chapters = findings.chapters.iter();
        let judged = chapters.find_map(|chapter| {
            chapter.all_judged().find(|one| one.verdict == Verdict::DoesNotHold)
        });
        let trial = |(condition, verdict): &(&str, Verdict)| Trial {
            condition: (*condition).to_owned(),
            verdict: *verdict,
            experiment: "p/x".to_owned(),
        };
        Judged { trials: Some(verdicts.iter().map(trial).collect()), ..judged.unwrap().clone() }
    }

    #[test]
    fn a_cause_is_what_the_trials_say() {
        use Verdict::{DoesNotHold, Holds, Undecided};
        let findings = fixtures::findings();
        let cases: [(&[(&str, Verdict)], &str); 4] = [
            (&[], "Cause unknown: no experiment of this run looks for it."),
            (
                &[("a", DoesNotHold), ("b", Holds)],
                "Cause: the effect is there with b (p/x). Not with a (p/x).",
            ),
            (
                &[("a", DoesNotHold), ("b", DoesNotHold)],
                "Cause unknown: the effect is not there with a (p/x); with b (p/x) either.",
            ),
            (
                &[("a", Undecided), ("b", DoesNotHold)],
                "Cause unknown: undecided with a (p/x). Not with b (p/x).",
            ),
        ];
        for (trials, expected) in cases {
            assert_eq!(cause(&with_trials(trials)), expected);
        }
        assert_eq!(cause(&Judged { trials: None, ..with_trials(&[]) }), "");
        let names = Names::of(&findings);
        let told = causes(&claims(&findings, &names));
        assert_eq!(told, "Of 1 that do not hold 1 have not been looked into.");
    }

    #[test]
    fn claims_are_counted_by_verdict() {
        let findings = fixtures::findings();
        let names = Names::of(&findings);
        let all = claims(&findings, &names);
        let sum: usize = tally_of(&all).iter().map(|(_, n)| n).sum();
        assert_eq!(sum, all.len());
        assert_eq!(tally_of(&all).len(), VERDICTS.len());
    }

    #[test]
    fn trials_are_no_claims_and_counted_nowhere() {
        let mut findings = fixtures::findings();
        let counted = |findings: &Findings| {
            let names = Names::of(findings);
            let (claims, trials) = (claims(findings, &names), trials(findings, &names));
            assert!(claims.iter().all(|claim| !claim.judged.is_trial()));
            (claims.len(), trials.len(), tally_of(&claims), causes(&claims))
        };
        let before = counted(&findings);
        assert_eq!(before.1, 1);
        let judged = &mut findings.chapters[1].pictures[0].judged;
        let trial = Judged {
            verdict: Verdict::DoesNotHold,
            trial_of: Some("peak".to_owned()),
            ..judged[0].clone()
        };
        judged.push(trial);
        let after = counted(&findings);
        assert_eq!((after.0, after.1), (before.0, 2));
        assert_eq!((after.2, after.3), (before.2, before.3));
    }
}
