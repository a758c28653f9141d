//! The front page of several papers' runs: what came out for each, and every claim of all of them,
//! with links to the pages of the runs.

mod disagreements;

use maud::{Markup, html};

use super::figure::verdict;
use super::links::{page_of, whither};
use super::{document, how_to_read, overview};
use crate::findings::{Findings, INTERVAL_N_MIN, Verdict};
use crate::report::claims::{self, Claimed, VERDICTS, causes, claims, points, tally_of};
use crate::report::names::Names;

/// Renders the front page. `runs`: the folder of each run, relative to the page, and its findings.
pub fn front(title: &str, runs: &[(String, Findings)]) -> String {
    let names: Vec<Names> = runs.iter().map(|(_, findings)| Names::of(findings)).collect();
    let parts = || runs.iter().zip(&names);
    let all: Vec<Claimed<'_>> =
        parts().flat_map(|((_, findings), names)| claims(findings, names)).collect();
    let body = html! {
        main {
            header { h1 { (title) } (what_this_is()) }
            (warnings(runs))
            section {
                h2 { "Verdicts" }
                (meanings())
                div.scroll tabindex="0" {
                    table.claims {
                        thead {
                            tr {
                                th { "paper" }
                                @for kind in VERDICTS { th.number { (verdict(kind)) } }
                                th.number { "rounds (n)" }
                            }
                        }
                        tbody {
                            @for ((folder, run), names) in parts() { (row(folder, run, names)) }
                        }
                    }
                }
                p { (undecided(&all)) " " (causes(&all)) }
                p.small {
                    "n rounds make an interval that has the true median inside in at most 1 − 2/2ⁿ \
                     of all runs: 75 % with 3 rounds, 94 % with 5, 97 % with 6."
                }
            }
            (disagreements::disagreements(runs, &names))
            @for ((folder, run), names) in parts() { (paper(folder, run, names)) }
            (how_to_read())
            @if let Some((_, first)) = runs.first() { (overview::set_up(&first.set_up)) }
        }
    };
    document(title, &body)
}

fn what_this_is() -> Markup {
    html! {
        p {
            "Papers about web servers compare designs: how many connections to accept at a time, \
             how to ask the kernel what is ready. weir is a web server in which each of these \
             designs is a setting, so that what the papers claim can be measured again on a \
             machine and a kernel of today."
        }
        p {
            "Each claim was written down as a quantity and a bound before anything was measured. \
             A verdict is computed from the repetitions; nobody gives it. Each leads to the \
             figure or table that it rests on, in the page of its paper, which has the set-up, \
             the commands and every point."
        }
    }
}

fn meanings() -> Markup {
    let meaning = |kind| match kind {
        Verdict::Holds => {
            "the whole interval of what was measured is within the claim’s bound.".to_owned()
        }
        Verdict::DoesNotHold => {
            "the whole interval is outside the bound. An experiment may have found the condition \
             that makes the difference; otherwise the cause is unknown."
                .to_owned()
        }
        Verdict::Undecided => format!(
            "fewer than {INTERVAL_N_MIN} rounds were measured, or the interval has both answers. \
             Each says which, and how many rounds would tell."
        ),
        Verdict::NotMeasurable => "each says why.".to_owned(),
    };
    html! {
        ul.meanings { @for kind in VERDICTS { li { (verdict(kind)) ": " (meaning(kind)) } } }
    }
}

/// Says why what is undecided is so; empty if nothing is.
fn undecided(claims: &[Claimed<'_>]) -> String {
    let open = || claims.iter().filter(|one| one.judged.verdict == Verdict::Undecided);
    let few = |one: &&Claimed<'_>| one.judged.here.is_none_or(|here| !here.has_interval());
    match (open().count(), open().filter(few).count()) {
        (0, _) => String::new(),
        (all, few) => format!(
            "Of {all} that are undecided {few} have fewer than {INTERVAL_N_MIN} rounds, and {} an \
             interval with both answers.",
            all - few
        ),
    }
}

/// Renders the warnings of all runs, each once.
fn warnings(runs: &[(String, Findings)]) -> Markup {
    let mut all: Vec<String> = Vec::new();
    for (folder, run) in runs {
        let named = run.warnings.iter().map(|warning| format!("{folder}: {warning}"));
        all.extend(named);
    }
    html! {
        @if !all.is_empty() {
            section.warnings role="note" {
                h2 { "⚠ Before you read on" }
                ul { @for warning in &all { li { (warning) } } }
            }
        }
    }
}

fn row(folder: &str, run: &Findings, names: &Names) -> Markup {
    let claims = claims(run, names);
    let tally = tally_of(&claims);
    let count = |kind| tally.iter().find(|(one, _)| *one == kind).map_or(0, |(_, count)| *count);
    html! {
        tr {
            td.words { a href=(page_of(folder)) { (run.title) } }
            @for kind in VERDICTS {
                td.number data-label=(claims::verdict(kind).1) { (count(kind)) }
            }
            td.number data-label="rounds (n)" { (rounds(&claims)) }
        }
    }
}

/// Returns the least and the greatest number of rounds that a verdict rests on.
fn rounds(claims: &[Claimed<'_>]) -> String {
    let rounds = || claims.iter().filter_map(|one| one.judged.here.map(|here| here.n));
    match (rounds().min(), rounds().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (Some(least), _) => least.to_string(),
        (None, _) => "–".to_owned(),
    }
}

fn paper(folder: &str, run: &Findings, names: &Names) -> Markup {
    let claims = claims(run, names);
    html! {
        section.chapter id=(folder) {
            h2 { a href=(page_of(folder)) { (run.title) } }
            @if let Some(paper) = &run.paper { (overview::citation(paper)) }
            ul {
                @for (nth, chapter) in run.chapters.iter().enumerate() {
                    li {
                        a href=(format!("{}#chapter-{nth}", page_of(folder))) { (chapter.title) }
                        ": " (points(chapter))
                    }
                }
            }
            @if !claims.is_empty() {
                div.scroll tabindex="0" {
                    table.claims {
                        thead {
                            tr {
                                th { "verdict" }
                                th { "claim" }
                                th { "holds if" }
                                th.number { "paper" }
                                th.number { "here" }
                                th { "see" }
                            }
                        }
                        tbody { @for claim in &claims { (claim_row(folder, claim)) } }
                    }
                }
            }
        }
    }
}

fn claim_row(folder: &str, claim: &Claimed<'_>) -> Markup {
    let judged = claim.judged;
    html! {
        tr {
            td { (verdict(judged.verdict)) }
            td.words { (overview::said(judged)) }
            (overview::numbers(judged))
            td.see data-label="see" { (whither(folder, claim)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn every_claim_of_every_run_leads_to_its_place_in_the_run_s_page() {
        let findings = fixtures::findings();
        let names = Names::of(&findings);
        let runs = vec![("one".to_owned(), findings.clone()), ("two".to_owned(), findings.clone())];
        let page = front("All", &runs);
        let report = super::super::page(&findings).unwrap();
        let ids = |link: &str| report.contains(&format!("id=\"{link}\""));
        for folder in ["one", "two"] {
            assert!(page.contains(&format!("href=\"{folder}/report.html\"")));
        }
        let mut links = 0;
        for part in page.split("href=\"one/report.html#").skip(1) {
            let link = part.split('"').next().unwrap();
            assert!(ids(link), "{link}");
            links += 1;
        }
        assert!(links >= claims(&findings, &names).len());
        assert!(!page.contains("<b>bold"), "a label became HTML");
        let trial = findings.chapters[1].all_judged().find(|one| one.is_trial()).unwrap();
        assert!(!page.contains(&trial.text), "a trial is a claim");
    }

    #[test]
    fn what_is_undecided_says_whether_rounds_are_missing() {
        let findings = fixtures::findings();
        let names = Names::of(&findings);
        let told = undecided(&claims(&findings, &names));
        let expected = "Of 1 that are undecided 0 have fewer than 3 rounds, and 1 an interval with \
                        both answers.";
        assert_eq!(told, expected);
        assert_eq!((undecided(&[]), rounds(&[])), (String::new(), "–".to_owned()));
        assert_eq!(rounds(&claims(&findings, &names)), "5");
    }

    #[test]
    fn without_a_run_there_is_a_page_that_loads_nothing() {
        let page = front("None", &[]);
        assert!(page.contains("<h1>None</h1>") && !page.contains("href=\"http"));
    }
}
