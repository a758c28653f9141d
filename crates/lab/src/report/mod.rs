//! The report of a run: one page for a browser, each figure as SVG and CSV, each table as CSV, and
//! a summary in Markdown. It draws findings; measuring and judging are done elsewhere.
//!
//! All text from findings is escaped: a label may contain any character.

mod artifact;
mod claims;
mod csv;
#[cfg(test)]
mod fixtures;
mod names;
mod number;
mod page;
mod scale;
mod series_style;
mod summary;
mod svg;

use std::fs;
use std::path::Path;

use crate::atomic_file::replace;
use crate::findings::{Findings, Picture};

pub use artifact::{Part, artifact_readme};
pub use csv::{claims_csv, csv, sheet_csv};
pub use page::{front, page};
pub use summary::summary;

/// Writes `report.html`, `summary.md`, `claims.csv`, `figures/ID.svg`, `figures/ID.csv` and
/// `tables/ID.csv` into `dir`, which is created if missing. Each file is replaced atomically.
///
/// # Errors
///
/// Returns a message naming the file that could not be drawn or written.
pub fn write(findings: &Findings, dir: &Path) -> Result<(), String> {
    let names = names::Names::of(findings);
    let folders = [("", true), ("figures", names.any_picture()), ("tables", names.any_sheet())];
    for (folder, _) in folders.into_iter().filter(|(_, some)| *some) {
        let folder = dir.join(folder);
        fs::create_dir_all(&folder)
            .map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
    }
    for (nth, chapter) in findings.chapters.iter().enumerate() {
        for (picture, stem) in chapter.pictures.iter().zip(names.pictures(nth)) {
            put(dir, &format!("figures/{stem}.svg"), &svg(picture)?)?;
            put(dir, &format!("figures/{stem}.csv"), &csv(picture))?;
        }
        for (sheet, stem) in chapter.sheets.iter().zip(names.sheets(nth)) {
            put(dir, &format!("tables/{stem}.csv"), &sheet_csv(sheet))?;
        }
    }
    if findings.chapters.iter().any(|chapter| chapter.all_judged().next().is_some()) {
        put(dir, "claims.csv", &claims_csv(findings))?;
    }
    put(dir, "summary.md", &summary(findings))?;
    put(dir, "report.html", &page(findings)?)
}

/// Writes the front page of several runs, `index.html`, into the folder that theirs are in.
///
/// # Errors
///
/// Returns a message naming the file that could not be written.
pub fn write_front(title: &str, runs: &[(String, Findings)], dir: &Path) -> Result<(), String> {
    put(dir, "index.html", &front(title, runs))
}

/// Draws a figure by itself, 720 px wide, on white, with its title and its legend.
///
/// # Errors
///
/// Returns a message naming the figure that could not be drawn.
pub fn svg(picture: &Picture) -> Result<String, String> {
    svg::draw(picture, svg::Frame::Whole)
}

fn put(dir: &Path, name: &str, text: &str) -> Result<(), String> {
    replace(&dir.join(name), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_written_with_every_file_and_no_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let findings = fixtures::findings();
        write(&findings, &dir.path().join("new")).unwrap();
        let names = names::Names::of(&findings);
        for (nth, chapter) in findings.chapters.iter().enumerate() {
            for stem in names.pictures(nth) {
                assert!(dir.path().join(format!("new/figures/{stem}.svg")).is_file(), "{stem}");
                assert!(dir.path().join(format!("new/figures/{stem}.csv")).is_file(), "{stem}");
            }
            assert_eq!(names.pictures(nth).len(), chapter.pictures.len());
            for stem in names.sheets(nth) {
                assert!(dir.path().join(format!("new/tables/{stem}.csv")).is_file(), "{stem}");
            }
        }
        assert!(dir.path().join("new/report.html").is_file());
        assert!(dir.path().join("new/summary.md").is_file());
        for folder in ["new", "new/figures", "new/tables"] {
            for file in fs::read_dir(dir.path().join(folder)).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                assert!(!name.ends_with(".part"), "{name}");
            }
        }
    }

    #[test]
    fn a_run_with_nothing_in_it_still_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let empty = Findings {
            name: "empty".to_owned(),
            title: "Nothing".to_owned(),
            paper: None,
            set_up: Vec::new(),
            warnings: Vec::new(),
            chapters: Vec::new(),
        };
        write(&empty, dir.path()).unwrap();
        let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
        assert!(page.contains("<h1>Nothing</h1>"));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = write(&fixtures::findings(), &dir.path().join("file")).unwrap_err();
        assert!(error.contains("file"), "{error}");
    }
}
