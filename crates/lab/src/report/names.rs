//! File names of figures and tables: derived from their ids, unique in the run, and made only of
//! characters without a meaning to a file system, a shell or a link.

use std::collections::BTreeMap;

use crate::findings::{Chapter, Findings};

/// The stems of all files: a list for each chapter, in its order.
pub(super) struct Names {
    pictures: Vec<Vec<String>>,
    sheets: Vec<Vec<String>>,
}

impl Names {
    /// Returns the names for a run.
    pub(super) fn of(findings: &Findings) -> Self {
        let pictures = |chapter: &Chapter| ids(&chapter.pictures, |picture| &picture.id);
        let sheets = |chapter: &Chapter| ids(&chapter.sheets, |sheet| &sheet.id);
        Self { pictures: stems(findings, pictures), sheets: stems(findings, sheets) }
    }

    /// Returns the stems of a chapter's figures.
    pub(super) fn pictures(&self, chapter: usize) -> &[String] {
        self.pictures.get(chapter).map_or(&[], Vec::as_slice)
    }

    /// Returns the stems of a chapter's tables.
    pub(super) fn sheets(&self, chapter: usize) -> &[String] {
        self.sheets.get(chapter).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the run has any figure.
    pub(super) fn any_picture(&self) -> bool {
        self.pictures.iter().any(|stems| !stems.is_empty())
    }

    /// Returns whether the run has any table.
    pub(super) fn any_sheet(&self) -> bool {
        self.sheets.iter().any(|stems| !stems.is_empty())
    }
}

fn ids<T>(things: &[T], id: impl Fn(&T) -> &String) -> Vec<String> {
    things.iter().map(|thing| plain(id(thing))).collect()
}

fn stems(findings: &Findings, ids: impl Fn(&Chapter) -> Vec<String>) -> Vec<Vec<String>> {
    let chapters: Vec<Vec<String>> = findings.chapters.iter().map(ids).collect();
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for id in chapters.iter().flatten() {
        *times.entry(id).or_default() += 1;
    }
    let mut taken: BTreeMap<String, u32> = BTreeMap::new();
    let stem = |chapter: &Chapter, id: &String| {
        let clash = times.get(id.as_str()).is_some_and(|times| *times > 1);
        if clash { format!("{}-{id}", plain(&chapter.id)) } else { id.clone() }
    };
    let mut list = Vec::new();
    for (chapter, ids) in findings.chapters.iter().zip(&chapters) {
        list.push(ids.iter().map(|id| unique(&mut taken, &stem(chapter, id))).collect());
    }
    list
}

fn unique(taken: &mut BTreeMap<String, u32>, stem: &str) -> String {
    let mut name = stem.to_owned();
    let mut nth = 1;
    while taken.contains_key(&name) {
        nth += 1;
        name = format!("{stem}-{nth}");
    }
    taken.insert(name.clone(), nth);
    name
}

/// Reduces an id to `[a-z0-9.-]`, without a dot or dash at either end.
fn plain(id: &str) -> String {
    let keep = |c: char| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' }
    };
    let text: String = id.chars().map(keep).collect();
    let text = text.trim_matches(['.', '-']);
    if text.is_empty() { "unnamed".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn an_id_becomes_a_plain_name() {
        assert_eq!(plain("fig-4.12"), "fig-4.12");
        assert_eq!(plain("../../etc/Pass wd"), "etc-pass-wd");
        assert_eq!(plain("µ"), "unnamed");
    }

    #[test]
    fn ids_that_two_chapters_share_get_the_chapters_name() {
        let mut findings = fixtures::findings();
        let names = Names::of(&findings);
        assert_eq!(names.pictures(0)[0], "fig-4.12");
        let id = findings.chapters[0].pictures[0].id.clone();
        findings.chapters[1].pictures[0].id = id;
        let names = Names::of(&findings);
        assert_eq!(names.pictures(0)[0], "pariag-accept-one-packet-fig-4.12");
        assert_eq!(names.pictures(1)[0], "pariag-accept-idle-fig-4.12");
    }

    #[test]
    fn no_two_files_have_one_name() {
        let mut findings = fixtures::findings();
        let mut again = findings.chapters[0].clone();
        again.pictures.push(again.pictures[0].clone());
        findings.chapters.push(again);
        let names = Names::of(&findings);
        let mut all: Vec<&String> = names.pictures.iter().flatten().collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
