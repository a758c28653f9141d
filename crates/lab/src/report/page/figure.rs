//! A figure or a table of the page with everything that belongs to it: note, legend, the paper's
//! numbers, verdicts, files.

use maud::{Markup, PreEscaped, html};

use super::interactive;
use crate::findings::{Estimate, Judged, PaperValue, Picture, Row, Sheet, Verdict};
use crate::report::number::{evidence, interval, number, with_unit};
use crate::report::series_style::{INVALID, INVALID_NAME, SeriesStyle, Shape, series_style};
use crate::report::{claims, scale, svg};

/// Renders a figure: static until the script draws it.
///
/// # Errors
///
/// Returns a message naming the figure that could not be drawn.
pub(super) fn picture(
    picture: &Picture,
    stem: &str,
    interactive: &mut interactive::Figures,
) -> Result<Markup, String> {
    let drawn = if scale::is_empty(picture) {
        html! { p { em { "Nothing was measured for this figure." } } }
    } else {
        plot(picture, interactive)?
    };
    Ok(html! {
        section.figure id=(format!("figure-{stem}")) {
            h3 { (picture.title) }
            @if !picture.note.is_empty() { p { (picture.note) } }
            (drawn)
            (values(&picture.values))
            (judged("What is said of it, judged", &picture.judged))
            p.files {
                a href=(format!("figures/{stem}.svg")) { "this figure as SVG" } " · "
                a href=(format!("figures/{stem}.csv")) { "its numbers as CSV" }
            }
        }
    })
}

fn plot(picture: &Picture, interactive: &mut interactive::Figures) -> Result<Markup, String> {
    let svg = svg::draw(picture, svg::Frame::Bare)?;
    Ok(html! {
        div.plot data-figure=(interactive.add(picture)) role="group" aria-label=(picture.title) {
            div.still { (PreEscaped(svg)) }
            div.live {}
        }
        (legend(picture))
    })
}

/// Returns the link to a figure or a table on the page.
pub(super) fn anchor(kind: &str, stem: &str) -> String {
    format!("#{kind}-{stem}")
}

fn legend(picture: &Picture) -> Markup {
    html! {
        ul.legend {
            @for (nth, series) in picture.series.iter().enumerate() {
                li {
                    button type="button" aria-pressed="true" {
                        (glyph(series_style(nth, series.stroke))) span { (series.label) }
                    }
                }
            }
            @if scale::any_invalid(picture) {
                li.invalid { (hollow()) span { (INVALID_NAME) } }
            }
        }
    }
}

fn glyph(look: SeriesStyle) -> Markup {
    let colour = format!("color:var({})", look.ink.variable());
    let dash = look.dash.map(|(dash, gap)| format!("{dash} {gap}"));
    html! {
        svg width="34" height="14" viewBox="0 0 34 14" style=(colour) aria-hidden="true" {
            @if look.joined {
                line x1="1" y1="7" x2="33" y2="7" stroke="currentColor" stroke-width="2"
                    stroke-dasharray=[dash] {}
            }
            @if let Some(shape) = look.shape {
                polygon points=(corners(shape, 4.6)) fill="currentColor" {}
            }
        }
    }
}

fn hollow() -> Markup {
    html! {
        svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true" {
            polygon points=(corners(&INVALID, 5.5)) fill="none" stroke="currentColor" {}
        }
    }
}

fn corners(shape: &Shape, size: f64) -> String {
    let corner = |(x, y): &(f64, f64)| format!("{:.1},{:.1}", 17.0 + x * size, 7.0 + y * size);
    shape.corners.iter().map(corner).collect::<Vec<_>>().join(" ")
}

/// Renders a table: the measured number, its interval below, and the paper's number beside it.
pub(super) fn sheet(sheet: &Sheet, stem: &str) -> Markup {
    html! {
        section.figure id=(format!("table-{stem}")) {
            h3 { (sheet.title) }
            @if !sheet.note.is_empty() { p { (sheet.note) } }
            div.scroll tabindex="0" {
                table {
                    thead {
                        tr {
                            th {}
                            @for (nth, (name, unit)) in sheet.columns.iter().enumerate() {
                                th.number { (name) span.unit { (unit) } }
                                @if has_paper(sheet, nth) {
                                    th.number.paper { "paper" span.unit { (unit) } }
                                }
                            }
                        }
                    }
                    tbody { @for row in &sheet.rows { (self::row(sheet, row)) } }
                }
            }
            (values(&sheet.values))
            (judged("What is said of it, judged", &sheet.judged))
            p.files { a href=(format!("tables/{stem}.csv")) { "this table as CSV" } }
        }
    }
}

fn has_paper(sheet: &Sheet, column: usize) -> bool {
    sheet.rows.iter().any(|row| row.cells.get(column).is_some_and(|(_, paper)| paper.is_some()))
}

fn row(sheet: &Sheet, row: &Row) -> Markup {
    html! {
        tr {
            th scope="row" { (row.label) }
            @for nth in 0..sheet.columns.len() {
                @let (here, paper) = row.cells.get(nth).copied().unwrap_or_default();
                td.number { (measured(here.as_ref(), number)) }
                @if has_paper(sheet, nth) {
                    td.number.paper { (paper.map_or("–".to_owned(), number)) }
                }
            }
        }
    }
}

/// Renders a measured number, with its interval in small print below.
pub(super) fn measured(estimate: Option<&Estimate>, write: impl Fn(f64) -> String) -> Markup {
    html! {
        @if let Some(estimate) = estimate {
            (write(estimate.value))
            span.interval { (interval(estimate, write)) }
        } @else {
            "–"
        }
    }
}

/// Renders an estimate that a verdict rests on: with half the width of its interval.
pub(super) fn judged_by(estimate: Option<&Estimate>) -> Markup {
    html! {
        @if let Some(estimate) = estimate {
            (number(estimate.value))
            span.interval { (evidence(estimate, number)) }
        } @else {
            "–"
        }
    }
}

fn values(values: &[PaperValue]) -> Markup {
    html! {
        @if !values.is_empty() {
            p.label { "The paper’s numbers" }
            div.scroll tabindex="0" {
                table {
                    tbody {
                        @for value in values {
                            tr {
                                th.words scope="row" { (value.what) }
                                td.number { (with_unit(value.value, &value.unit)) }
                                td { span.place { (value.place) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders claims with their details, and trials of a cause below a heading of their own.
pub(super) fn judged(heading: &str, all: &[Judged]) -> Markup {
    let (trials, others): (Vec<&Judged>, Vec<&Judged>) = all.iter().partition(|one| one.is_trial());
    html! {
        (listed(heading, &others))
        (listed(claims::TRIALS, &trials))
    }
}

fn listed(heading: &str, all: &[&Judged]) -> Markup {
    html! {
        @if !all.is_empty() {
            p.label { (heading) }
            ul.judged { @for judged in all { (claim(judged)) } }
        }
    }
}

fn claim(judged: &Judged) -> Markup {
    html! {
        li {
            p { (verdict(judged.verdict)) " " (judged.text) " " span.place { (judged.place) } }
            p.small {
                @if let Some(claim) = &judged.trial_of { "Of the claim " (claim) ". " }
                @if !judged.measure.is_empty() {
                    "Measured: " (unstopped(&judged.measure)) ". "
                }
                @if !judged.holds_if.is_empty() {
                    "It holds if that is " (unstopped(&judged.holds_if)) ". "
                }
                @if let Some(paper) = judged.paper { "Paper: " b { (number(paper)) } ". " }
                @if let Some(here) = &judged.here {
                    "Here: " b { (number(here.value)) } " (" (evidence(here, number)) "). "
                }
                @if !judged.why.is_empty() { "Why: " (unstopped(&judged.why)) ". " }
                (claims::cause(judged))
            }
        }
    }
}

/// Strips the full stop of a sentence; the template adds its own.
fn unstopped(text: &str) -> &str {
    text.trim_end().trim_end_matches('.')
}

/// Renders a verdict: a sign, a word and a colour.
pub(super) fn verdict(verdict: Verdict) -> Markup {
    let class = match verdict {
        Verdict::Holds => "holds",
        Verdict::DoesNotHold => "fails",
        Verdict::Undecided => "open",
        Verdict::NotMeasurable => "none",
    };
    let (sign, word) = claims::verdict(verdict);
    html! { span.verdict.(class) { span aria-hidden="true" { (sign) } "\u{a0}" (word) } }
}
