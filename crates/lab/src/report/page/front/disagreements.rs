//! The largest disagreements with the papers, over all runs of a front page: what was measured, how
//! far that is from what the paper says, and what is known of the cause.

use maud::{Markup, html};

use crate::findings::{Findings, Verdict};
use crate::report::claims::{Claimed, claims};
use crate::report::names::Names;
use crate::report::number::number;
use crate::report::page::links::whither;
use crate::report::page::overview;

/// Number of disagreements shown.
const SHOWN: usize = 10;

/// Renders the largest disagreements, if there are any.
pub(super) fn disagreements(runs: &[(String, Findings)], names: &[Names]) -> Markup {
    let all = largest(runs, names);
    html! {
        @if !all.is_empty() {
            section {
                h2 { "The largest disagreements" }
                p {
                    "Claims that do not hold, those first whose number is most times away from the \
                     paper’s, or from the bound where the text gives none."
                }
                div.scroll tabindex="0" {
                    table.claims {
                        thead {
                            tr {
                                th { "claim" }
                                th { "holds if" }
                                th.number { "paper" }
                                th.number { "here" }
                                th.number { "times apart" }
                                th { "see" }
                            }
                        }
                        tbody { @for (folder, claim) in &all { (row(folder, claim)) } }
                    }
                }
            }
        }
    }
}

fn largest<'a>(runs: &'a [(String, Findings)], names: &'a [Names]) -> Vec<(&'a str, Claimed<'a>)> {
    let all = runs.iter().zip(names).flat_map(|((folder, findings), names)| {
        claims(findings, names).into_iter().map(|claim| (folder.as_str(), claim))
    });
    let mut all: Vec<(&str, Claimed<'_>)> =
        all.filter(|(_, claim)| claim.judged.verdict == Verdict::DoesNotHold).collect();
    let apart = |claim: &Claimed<'_>| claim.judged.apart.unwrap_or(f64::INFINITY);
    all.sort_by(|(_, one), (_, other)| apart(other).total_cmp(&apart(one)));
    all.truncate(SHOWN);
    all
}

fn row(folder: &str, claim: &Claimed<'_>) -> Markup {
    let judged = claim.judged;
    html! {
        tr {
            td.words { (folder) ": " (overview::said(judged)) }
            (overview::numbers(judged))
            td.number data-label="times apart" { (judged.apart.map_or("–".to_owned(), number)) }
            td.see data-label="see" { (whither(folder, claim)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn those_furthest_apart_come_first_and_those_without_a_number_before_them() {
        let apart = |apart: Option<f64>| {
            let mut findings = fixtures::findings();
            for chapter in &mut findings.chapters {
                let pictures = chapter.pictures.iter_mut().flat_map(|one| &mut one.judged);
                pictures.for_each(|judged| judged.apart = apart);
            }
            findings
        };
        let runs = [("near", Some(1.1)), ("far", Some(9.0)), ("zero", None)];
        let runs = runs.map(|(folder, times)| (folder.to_owned(), apart(times)));
        let names: Vec<Names> = runs.iter().map(|(_, run)| Names::of(run)).collect();
        let found: Vec<&str> = largest(&runs, &names).iter().map(|(folder, _)| *folder).collect();
        assert_eq!(found, ["zero", "far", "near"]);
        let page = disagreements(&runs, &names).into_string();
        assert!(page.contains("Cause unknown") && page.contains("far/report.html#"), "{page}");
        assert!(disagreements(&[], &[]).into_string().is_empty());
    }
}
