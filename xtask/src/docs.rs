//! Generated tables of the documentation. The text between `<!-- generated: NAME -->` and
//! `<!-- /generated -->`, each alone on its line, is what `weir docs-table NAME` prints, or, where
//! the name is `results/PAGE.md#HEADING`, the table of measurements below that heading. This file
//! only replaces text: what a table holds is the binary's business, or the record's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::tree;

const END: &str = "<!-- /generated -->";

/// Writes every table anew; with `check`, only says which pages are stale, and fails if one is.
pub(crate) fn run(check: bool) -> Result<()> {
    let root = tree::root();
    let weir = tree::build(tree::cargo(), &["--package", "weir"], "weir")?;
    let mut made = BTreeMap::new();
    let mut stale = Vec::new();
    for file in tree::files(&root)?.into_iter().filter(|file| is_page(file)) {
        let path = root.join(&file);
        let old = fs::read_to_string(&path).with_context(|| file.clone())?;
        let new = replace(&old, |name| table_once(&weir, name, &mut made)).context(file.clone())?;
        if new != old {
            if !check {
                fs::write(&path, new)?;
            }
            stale.push(file);
        }
    }
    report(check, &stale, made.len())
}

fn is_page(file: &str) -> bool {
    file.ends_with(".md") && (file.starts_with("docs/") || !file.contains('/'))
}

fn report(check: bool, stale: &[String], tables: usize) -> Result<()> {
    for file in stale {
        println!("{file}: {}", if check { "stale; run cargo xtask docs" } else { "written" });
    }
    ensure!(!check || stale.is_empty(), "{} stale page(s)", stale.len());
    println!("docs: {tables} table(s) up to date");
    Ok(())
}

fn table_once(weir: &Path, name: &str, made: &mut BTreeMap<String, String>) -> Result<String> {
    if let Some(known) = made.get(name) {
        return Ok(known.clone());
    }
    let table = match name.split_once('#') {
        Some((page, anchor)) => recorded(page, anchor)?,
        None => table(weir, name)?,
    };
    made.insert(name.to_owned(), table.clone());
    Ok(table)
}

/// The Markdown table `name`, from the executable `weir`.
pub(crate) fn table(weir: &Path, name: &str) -> Result<String> {
    let output = Command::new(weir).args(["docs-table", name]).output()?;
    if !output.status.success() {
        bail!("weir docs-table {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("weir docs-table {name}"))
}

/// The table below the heading `anchor` of a page of results.
fn recorded(page: &str, anchor: &str) -> Result<String> {
    ensure!(page.starts_with("results/"), "{page} is no page of results");
    let text = fs::read_to_string(tree::root().join(page)).with_context(|| page.to_owned())?;
    table_below(&text, anchor).with_context(|| format!("{page} has no table below #{anchor}"))
}

/// The first table of `text` below the heading `anchor` and above the next heading.
fn table_below(text: &str, anchor: &str) -> Option<String> {
    let headed = text.lines().skip_while(|line| anchor_of(line).as_deref() != Some(anchor));
    let section = headed.skip(1).take_while(|line| !line.starts_with('#'));
    let rows = section.skip_while(|line| !line.starts_with('|'));
    let table: Vec<_> = rows.take_while(|line| line.starts_with('|')).collect();
    (!table.is_empty()).then(|| table.join("\n"))
}

/// The anchor of a heading: its letters and digits in lower case, a hyphen for each space.
fn anchor_of(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase())
}

/// The first cell of each row of a Markdown table, without its back-quotes: what the row is about.
pub(crate) fn first_cells(table: &str) -> Vec<String> {
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

/// The page `text` with each marked passage replaced by what `table` gives for its name.
fn replace(text: &str, mut table: impl FnMut(&str) -> Result<String>) -> Result<String> {
    let mut page = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        page.push_str(line);
        page.push('\n');
        let Some(name) = marker(line) else {
            ensure!(line.trim() != END, "an end of a generated table without its start");
            continue;
        };
        let passage = table(name)?;
        page.push_str(passage.trim_end());
        page.push('\n');
        loop {
            let Some(old) = lines.next() else { bail!("the generated table {name} has no end") };
            ensure!(marker(old).is_none(), "the generated table {name} has no end");
            if old.trim() == END {
                break;
            }
        }
        page.push_str(END);
        page.push('\n');
    }
    Ok(page)
}

fn marker(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix("<!-- generated:")?.strip_suffix("-->")?;
    Some(name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shout(name: &str) -> Result<String> {
        Ok(format!("{}\n", name.to_uppercase()))
    }

    #[test]
    fn text_between_the_markers_is_replaced() {
        let page = "# A\n<!-- generated: one -->\nold\nolder\n<!-- /generated -->\nB\n\
                    <!-- generated: two -->\n<!-- /generated -->\n";
        let new = "# A\n<!-- generated: one -->\nONE\n<!-- /generated -->\nB\n\
                   <!-- generated: two -->\nTWO\n<!-- /generated -->\n";
        assert_eq!(replace(page, shout).unwrap(), new);
        assert_eq!(replace(new, shout).unwrap(), new);
    }

    #[test]
    fn a_page_without_markers_is_left_alone() {
        let page = "# A\n\nSee `<!-- generated: x -->`.\n";
        assert_eq!(replace(page, shout).unwrap(), page);
    }

    #[test]
    fn a_lone_marker_is_an_error() {
        assert!(replace("<!-- generated: one -->\nold\n", shout).is_err());
        assert!(replace("old\n<!-- /generated -->\n", shout).is_err());
        let nested = "<!-- generated: a -->\n<!-- generated: b -->\n<!-- /generated -->\n";
        assert!(replace(nested, shout).is_err());
    }

    #[test]
    fn a_table_that_cannot_be_made_is_an_error() {
        let page = "<!-- generated: one -->\n<!-- /generated -->\n";
        assert!(replace(page, |_| bail!("no such table")).is_err());
    }

    #[test]
    fn a_recorded_table_is_the_first_below_its_heading() {
        let page = "# One\n\n### Core time a reply, 1\n\ntext\n\n| a |\n|---|\n| 1 |\n\n| b |\n\
                    ### Two\n";
        let table = "| a |\n|---|\n| 1 |";
        assert_eq!(table_below(page, "core-time-a-reply-1").as_deref(), Some(table));
        assert_eq!(table_below(page, "one"), None);
        assert_eq!(table_below(page, "two"), None);
        assert_eq!(table_below(page, "three"), None);
    }

    #[test]
    fn rows_are_named_by_their_first_cell() {
        let table = "| name | what |\n|---|---|\n| `select` | a |\n| `epoll-et` | b |\n";
        assert_eq!(first_cells(table), ["select", "epoll-et"]);
    }

    #[test]
    fn only_pages_are_written() {
        assert!(is_page("README.md") && is_page("docs/a/b.md"));
        assert!(!is_page("results/x/serve.md") && !is_page("docs/x.txt"));
    }
}
