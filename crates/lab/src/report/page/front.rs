//! The front page of several papers' runs: what came out for each, and every claim of all of them,
//! with links to the pages of the runs.

use maud::{Markup, html};

use super::figure::{anchor, judged_by, verdict};
use super::{document, how_to_read, overview};
use crate::findings::Findings;
use crate::report::claims::{About, Claimed, VERDICTS, claims, points, tally_of};
use crate::report::names::Names;
use crate::report::number::number;

/// Renders the front page. `runs`: the folder of each run, relative to the page, and its findings.
pub fn front(title: &str, runs: &[(String, Findings)]) -> String {
    let names: Vec<Names> = runs.iter().map(|(_, findings)| Names::of(findings)).collect();
    let parts = || runs.iter().zip(&names);
    let body = html! {
        main {
            header { h1 { (title) } }
            (warnings(runs))
            section {
                h2 { "Verdicts" }
                div.scroll tabindex="0" {
                    table {
                        thead {
                            tr {
                                th { "paper" }
                                @for kind in VERDICTS { th.number { (verdict(kind)) } }
                            }
                        }
                        tbody {
                            @for ((folder, run), names) in parts() { (row(folder, run, names)) }
                        }
                    }
                }
            }
            @for ((folder, run), names) in parts() { (paper(folder, run, names)) }
            (how_to_read())
            @if let Some((_, first)) = runs.first() { (overview::set_up(&first.set_up)) }
        }
    };
    document(title, &body)
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

fn page_of(folder: &str) -> String {
    format!("{folder}/report.html")
}

fn row(folder: &str, run: &Findings, names: &Names) -> Markup {
    let tally = tally_of(&claims(run, names));
    let count = |kind| tally.iter().find(|(one, _)| *one == kind).map_or(0, |(_, count)| *count);
    html! {
        tr {
            td.words { a href=(page_of(folder)) { (run.title) } }
            @for kind in VERDICTS { td.number { (count(kind)) } }
        }
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
                                th { "bound" }
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
    let page = page_of(folder);
    let (href, text) = match claim.about {
        About::Picture(stem) => (format!("{page}{}", anchor("figure", stem)), stem),
        About::Sheet(stem) => (format!("{page}{}", anchor("table", stem)), stem),
        About::Chapter => (format!("{page}#chapter-{}", claim.chapter), "experiment"),
    };
    html! {
        tr {
            td { (verdict(judged.verdict)) }
            td.words {
                (judged.text) " " span.place { (judged.place) }
                @if !judged.why.is_empty() { " " span.small { (judged.why) } }
            }
            td { (judged.holds_if) }
            td.number { (judged.paper.map_or("–".to_owned(), number)) }
            td.number { (judged_by(judged.here.as_ref())) }
            td.see { a href=(href) { (text) } }
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
    }

    #[test]
    fn without_a_run_there_is_a_page_that_loads_nothing() {
        let page = front("None", &[]);
        assert!(page.contains("<h1>None</h1>") && !page.contains("href=\"http"));
    }
}
