//! Links from a front page into the pages of its runs.

use maud::{Markup, html};

use super::figure::anchor;
use crate::report::claims::{About, Claimed};

/// Returns the page of the run in a folder.
pub(super) fn page_of(folder: &str) -> String {
    format!("{folder}/report.html")
}

/// Renders the link to what a claim is about, in the page of its run.
pub(super) fn whither(folder: &str, claim: &Claimed<'_>) -> Markup {
    let page = page_of(folder);
    let (href, text) = match claim.about {
        About::Picture(stem) => (format!("{page}{}", anchor("figure", stem)), stem),
        About::Sheet(stem) => (format!("{page}{}", anchor("table", stem)), stem),
        About::Chapter => (format!("{page}#chapter-{}", claim.chapter), "experiment"),
    };
    html! { a href=(href) { (text) } }
}
