//! Style as a test: rules that rustfmt, clippy and rustdoc do not have. Each rule is a function of
//! one file's text; this file walks the tree and prints violations as `path:line: what`.

mod figures;
mod markdown;
mod openings;
mod paths;
mod rust;
mod violation;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::tree;
use openings::Openings;
use violation::Violation;

/// Checks the tree, prints each violation and fails if there is one.
pub(crate) fn run() -> Result<()> {
    let root = tree::root();
    let files = tree::files(&root)?;
    let violations = check(&root, &files)?;
    for violation in &violations {
        println!("{violation}");
    }
    ensure!(violations.is_empty(), "{} violation(s) of the style", violations.len());
    println!("tidy: {} files, all tidy", files.len());
    Ok(())
}

fn check(root: &Path, files: &[String]) -> Result<Vec<Violation>> {
    let known: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let mut violations = paths::check(&known);
    let mut openings = Openings::default();
    for file in files {
        let bytes = fs::read(root.join(file)).with_context(|| file.clone())?;
        match String::from_utf8(bytes) {
            Ok(text) => {
                violations.extend(check_text(file, &text, &known, &mut openings));
            }
            Err(_) if file.ends_with(".rs") => {
                violations.push(Violation::new(file, 1, "not UTF-8"));
            }
            Err(_) => {}
        }
    }
    violations.extend(figures::check(root, &known)?);
    if openings.are_too_many() {
        violations.push(Violation::new("the tree", 1, openings.to_string()));
    }
    violations.sort();
    Ok(violations)
}

fn check_text(
    file: &str,
    text: &str,
    known: &BTreeSet<&str>,
    openings: &mut Openings,
) -> Vec<Violation> {
    let mut violations = paths::check_mentions(file, text);
    if file.ends_with(".rs") {
        openings.add(text);
        violations.extend(rust::check(file, text));
    } else if file.ends_with(".md") {
        violations.extend(markdown::check(file, text, known));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = tree::root();
        let violations = check(&root, &tree::files(&root).unwrap()).unwrap();
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    }

    #[test]
    fn every_kind_of_file_meets_its_rules() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a.rs", "b.md", "c.bin", "d.rs"].map(str::to_owned);
        fs::write(folder.path().join("a.rs"), "fn a() {}\n").unwrap();
        fs::write(folder.path().join("b.md"), "[x](gone.md)\n").unwrap();
        fs::write(folder.path().join("c.bin"), [0xff, 0xfe]).unwrap();
        fs::write(folder.path().join("d.rs"), [0xff, 0xfe]).unwrap();
        let found = check(folder.path(), &files).unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "a.rs:1: the file does not start with `//!`",
            "b.md:1: dead link: gone.md",
            "d.rs:1: not UTF-8",
        ];
        assert_eq!(found, expected);
    }
}
