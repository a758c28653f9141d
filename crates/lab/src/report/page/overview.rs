//! The first part of the page, the summary for a reader in a hurry: title, warnings, verdicts,
//! peaks; and the last, the set-up.

use maud::{Markup, html};

use super::figure::{anchor, judged_by, measured, verdict};
use crate::findings::{Findings, Judged, PaperHead, Saturation};
use crate::report::claims::{
    About, Claimed, PEAK, cause, causes, claims, claims_heading, tally_of,
};
use crate::report::names::Names;
use crate::report::number::{number, percent};

/// Renders title, citation and warnings.
pub(super) fn head(findings: &Findings) -> Markup {
    html! {
        header {
            h1 { (findings.title) }
            @if let Some(paper) = &findings.paper { (citation(paper)) }
        }
        @if !findings.warnings.is_empty() {
            section.warnings role="note" {
                h2 { "⚠ Before you read on" }
                ul { @for warning in &findings.warnings { li { (warning) } } }
            }
        }
    }
}

pub(super) fn citation(paper: &PaperHead) -> Markup {
    html! {
        p {
            "Measured here beside what the paper says: " (paper.authors) ", "
            cite { "“" (paper.title) "”" } ", " (paper.year) "."
        }
        p.small { "The paper’s set-up: " (paper.set_up) }
    }
}

/// Renders verdicts, peaks, and links to the chapters.
pub(super) fn summary(findings: &Findings, names: &Names) -> Markup {
    let claims = claims(findings, names);
    html! {
        section {
            @if !claims.is_empty() {
                h2 { (claims_heading(findings)) ", judged by what was measured here" }
                (verdicts(findings, &claims))
            }
            (saturations(findings))
            @if findings.chapters.len() > 1 {
                h2 { "Experiments" }
                ol {
                    @for (nth, chapter) in findings.chapters.iter().enumerate() {
                        li {
                            a href=(format!("#chapter-{nth}")) { (chapter.title) }
                            " – " (chapter.question)
                        }
                    }
                }
            }
        }
    }
}

fn verdicts(findings: &Findings, claims: &[Claimed<'_>]) -> Markup {
    html! {
        ul.tally {
            @for (kind, count) in tally_of(claims) { li { b { (count) } " " (verdict(kind)) } }
        }
        @let causes = causes(claims);
        @if !causes.is_empty() { p.small { (causes) } }
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
                tbody {
                    @for claim in claims {
                        tr {
                            td { (verdict(claim.judged.verdict)) }
                            td.words { (said(claim.judged)) }
                            (numbers(claim.judged))
                            td.see data-label="see" { (whither(findings, claim)) }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the cells with a claim's bound, the paper's number, and what was measured.
pub(super) fn numbers(judged: &Judged) -> Markup {
    let paper = judged.paper.map_or("–".to_owned(), number);
    html! {
        td.bound data-label="holds if" {
            @if judged.holds_if.is_empty() { "–" } @else { (judged.holds_if) }
        }
        td.number data-label="paper" { (paper) }
        td.number data-label="here" { (judged_by(judged.here.as_ref())) }
    }
}

/// Renders a claim's text with its place, the reason of its verdict and the cause, as far as these
/// are known.
pub(super) fn said(judged: &Judged) -> Markup {
    let cause = cause(judged);
    html! {
        (judged.text) " " span.place { (judged.place) }
        @if !judged.why.is_empty() { span.reason { (sentence(&judged.why)) } }
        @if !cause.is_empty() { span.reason { (cause) } }
    }
}

/// Makes a sentence of a reason: a capital first, a full stop last.
fn sentence(reason: &str) -> String {
    let mut letters = reason.trim_end().trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn whither(findings: &Findings, claim: &Claimed<'_>) -> Markup {
    let link = |href: String, text: &str| html! { a href=(href) { (text) } };
    match claim.about {
        About::Picture(stem) => link(anchor("figure", stem), stem),
        About::Sheet(stem) => link(anchor("table", stem), stem),
        About::Chapter => {
            let title = findings.chapters.get(claim.chapter).map_or("", |c| c.title.as_str());
            link(format!("#chapter-{}", claim.chapter), title)
        }
    }
}

fn saturations(findings: &Findings) -> Markup {
    let chapters = findings.chapters.iter().enumerate();
    let any = findings.chapters.iter().any(|chapter| !chapter.saturations.is_empty());
    html! {
        @if any {
            h2 { "Peak, and what is left of it under overload" }
            p.small { (PEAK) }
            div.scroll tabindex="0" {
                table {
                    thead {
                        tr {
                            th { "server" }
                            th.number { "peak goodput" span.unit { "replies/s" } }
                            th.number { "at an offer of" span.unit { "sessions/s" } }
                            th.number { "offered up to" span.unit { "× that" } }
                            th.number { "kept there" span.unit { "% of the peak" } }
                        }
                    }
                    @for (nth, chapter) in chapters {
                        @for sweep in chapter.saturations.chunk_by(|a, b| a.sweep == b.sweep) {
                            tbody { (sweep_rows(nth, &chapter.title, sweep)) }
                        }
                    }
                }
            }
        }
    }
}

fn sweep_rows(nth: usize, title: &str, rows: &[Saturation]) -> Markup {
    html! {
        @if let Some(first) = rows.first() {
            tr.group {
                th colspan="5" {
                    a href=(format!("#chapter-{nth}")) { (title) } " – sweep " (first.sweep)
                }
            }
        }
        @for row in rows {
            tr {
                td { (row.server) }
                td.number { (measured(Some(&row.peak), number)) }
                td.number { (number(row.at)) }
                td.number { (number(row.offered)) "×" }
                td.number { (measured(row.kept.as_ref(), percent)) }
            }
        }
    }
}

/// Renders the machine and the testbed.
pub(super) fn set_up(pairs: &[(String, String)]) -> Markup {
    html! {
        @if !pairs.is_empty() {
            section {
                h2 { "Set-up" }
                div.scroll tabindex="0" {
                    table.pairs {
                        tbody {
                            @for (name, value) in pairs {
                                tr { th scope="row" { (name) } td.words { (value) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
