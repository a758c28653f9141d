//! The page of a run: a single file that is readable without scripts and without a network, and
//! interactive where scripts run. The templates escape everything from findings; only our own
//! style, script and drawings are inserted as they are.

#[cfg(test)]
mod browser_tests;
mod figure;
mod front;
mod interactive;
mod links;
mod overview;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::claims::points;
use super::names::Names;
use super::series_style::{COLOURS, hex};
use crate::findings::{Chapter, Findings};

pub use front::front;

const STYLE: &str = include_str!("page.css");

/// Content security policy: nothing is loaded from anywhere, whatever the text contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data: blob:";

/// Renders the page.
///
/// # Errors
///
/// Returns a message naming the figure that could not be drawn.
pub fn page(findings: &Findings) -> Result<String, String> {
    let names = Names::of(findings);
    let mut interactive = interactive::Figures::default();
    let mut chapters = Vec::new();
    for (nth, chapter) in findings.chapters.iter().enumerate() {
        chapters.push(self::chapter(nth, chapter, &names, &mut interactive)?);
    }
    let body = html! {
        main {
            (overview::head(findings))
            (overview::summary(findings, &names))
            (how_to_read())
            @for chapter in chapters { (chapter) }
            (overview::set_up(&findings.set_up))
        }
        (interactive.scripts())
    };
    Ok(document(&findings.title, &body))
}

/// Renders a whole document around its body.
fn document(title: &str, body: &Markup) -> String {
    let text = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) " – weir lab" }
                style { (PreEscaped(STYLE)) (PreEscaped(colours())) }
            }
            body { (body) }
        }
    };
    text.into_string() + "\n"
}

/// Returns the colours of series as CSS variables, light and dark.
fn colours() -> String {
    let all = |dark: bool| {
        let one = |(nth, (light, night))| {
            format!("--series-{nth}:{};", hex(if dark { night } else { light }))
        };
        COLOURS.into_iter().enumerate().map(one).collect::<String>()
    };
    format!(
        ":root{{{}}}@media screen and (prefers-color-scheme:dark){{:root{{{}}}}}",
        all(false),
        all(true)
    )
}

fn how_to_read() -> Markup {
    html! {
        section.how {
            h2 { "How to read this" }
            p {
                "Each point was measured several times, and what is shown is the median of these \
                 repetitions. The interval around it, a bar in figures and small print in tables, \
                 is where the true median should lie: a bootstrap interval of 95 %, which n \
                 repetitions cannot make surer than 1 − 2/2ⁿ, that is 75 % for 3 and 94 % for 5. \
                 Two make no interval: their range is shown in its place. ± is half the width of \
                 an interval, as a share of its median. A point is INVALID when the client, not \
                 the server, was the limit: it is shown as a hollow cross and used for nothing. \
                 One that was late by some milliseconds spoils times and no rates, and only its \
                 times are left out. Ratios are paired: \
                 each is made of two points of the same round, measured one soon after the other, \
                 so that what changes slowly on the machine cancels out."
            }
        }
    }
}

/// Renders a paragraph; text between backticks becomes code.
fn prose(text: &str) -> Markup {
    html! {
        @for (nth, part) in text.split('`').enumerate() {
            @if nth % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn chapter(
    nth: usize,
    chapter: &Chapter,
    names: &Names,
    interactive: &mut interactive::Figures,
) -> Result<Markup, String> {
    let mut figures = Vec::new();
    for (picture, stem) in chapter.pictures.iter().zip(names.pictures(nth)) {
        figures.push(figure::picture(picture, stem, interactive)?);
    }
    for (sheet, stem) in chapter.sheets.iter().zip(names.sheets(nth)) {
        figures.push(figure::sheet(sheet, stem));
    }
    Ok(html! {
        section.chapter id=(format!("chapter-{nth}")) {
            h2 { (chapter.title) }
            p.question { (chapter.question) }
            @for about in &chapter.about { p { (prose(about)) } }
            (sweeps(chapter))
            (servers(chapter))
            p.small { (points(chapter)) "." }
            (remarks(chapter))
            @for figure in figures { (figure) }
            (figure::judged("Claims of the paper about no figure shown here", &chapter.judged))
        }
    })
}

fn sweeps(chapter: &Chapter) -> Markup {
    html! {
        @if !chapter.sweeps.is_empty() {
            p.label { "What was measured" }
            ul { @for sweep in &chapter.sweeps { li { (sweep) } } }
        }
    }
}

fn servers(chapter: &Chapter) -> Markup {
    html! {
        @if !chapter.servers.is_empty() {
            details {
                summary { "Servers and their commands (" (chapter.servers.len()) ")" }
                dl {
                    @for (label, command) in &chapter.servers {
                        dt { (label) }
                        dd { pre { code { (command) } } }
                    }
                }
            }
        }
    }
}

fn remarks(chapter: &Chapter) -> Markup {
    html! {
        @if !chapter.remarks.is_empty() {
            details {
                summary { "Points left out, flagged or failed (" (chapter.remarks.len()) ")" }
                div.scroll tabindex="0" {
                    table {
                        thead { tr { th { "point" } th { "why" } } }
                        tbody {
                            @for (point, why) in &chapter.remarks {
                                tr { td { (point) } td.words { (why) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;
    use crate::report::series_style::tests::contrast;

    #[test]
    fn a_label_cannot_leave_its_place() {
        let page = page(&fixtures::findings()).unwrap();
        assert!(!page.contains("<b>bold"), "a label became HTML");
        // Engine, data, and our own: a label closes none of them.
        assert_eq!(page.matches("</script>").count(), 3);
        assert!(!page.contains("<!--"));
        assert!(page.contains("&lt;/script&gt;&lt;b&gt;bold"));
    }

    #[test]
    fn text_between_backticks_is_code_and_escaped() {
        let page = prose("so `a<b` and `c`.").into_string();
        assert_eq!(page, "so <code>a&lt;b</code> and <code>c</code>.");
    }

    #[test]
    fn every_title_question_command_and_remark_is_on_the_page() {
        let findings = fixtures::findings();
        let page = page(&findings).unwrap();
        let escaped = |text: &str| html! { (text) }.into_string();
        for chapter in &findings.chapters {
            let mut texts = vec![&chapter.title, &chapter.question];
            texts.extend(chapter.servers.iter().flat_map(|(label, command)| [label, command]));
            texts.extend(chapter.remarks.iter().flat_map(|(point, why)| [point, why]));
            texts.extend(
                chapter.pictures.iter().flat_map(|picture| [&picture.title, &picture.note]),
            );
            for text in texts {
                assert!(page.contains(&escaped(text)), "{text}");
            }
        }
    }

    #[test]
    fn trials_of_a_cause_are_shown_in_their_experiment_alone() {
        let page = page(&fixtures::findings()).unwrap();
        let trial = "Accept-inf loses past the peak";
        assert_eq!(page.matches(trial).count(), 1);
        let at = |text: &str| page.find(text).unwrap();
        assert!(at("id=\"chapter-1\"") < at("Trials of a cause"));
        assert!(at("Trials of a cause") < at(trial) && page.contains("Of the claim inf-past."));
    }

    #[test]
    fn nothing_on_the_page_is_loaded_from_elsewhere() {
        let page = page(&fixtures::findings()).unwrap();
        for loads in [" src=", "@import", "url(", "href=\"http", "href=\"//"] {
            assert!(!page.contains(loads), "{loads}");
        }
    }

    #[test]
    fn no_text_is_paler_than_it_may_be() {
        // A variable of the style and its background, light and dark.
        let value = |name: &str, nth: usize| {
            let text = STYLE.match_indices(&format!("--{name}: #")).nth(nth).unwrap().0;
            let digits = &STYLE[text + name.len() + 5..][..6];
            let part = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
            (part(0), part(2), part(4))
        };
        for dark in [0, 1] {
            for (ink, paper) in [
                ("ink", "paper"),
                ("ink", "panel"),
                ("pale", "paper"),
                ("pale", "panel"),
                ("link", "paper"),
                ("link", "panel"),
                ("ink", "warn"),
                ("holds", "paper"),
                ("fails", "paper"),
                ("open", "paper"),
                ("holds", "panel"),
                ("fails", "panel"),
                ("open", "panel"),
            ] {
                let contrast = contrast(value(ink, dark), value(paper, dark));
                assert!(contrast >= 4.5, "{ink} on {paper}, {dark}: {contrast:.2}");
            }
        }
    }
}
