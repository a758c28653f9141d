//! Rules about names: of files and folders, and of places outside the tree.

use std::collections::BTreeSet;

use super::violation::Violation;

/// Folders that exist on one machine only. Written in pieces, so that this file passes.
const PLACES: &[&str] = &["work", "home", "root"];

/// Checks the names of the tree: nothing called utils, and a `lib.rs` in every crate.
pub(super) fn check(files: &BTreeSet<&str>) -> Vec<Violation> {
    let named = files.iter().filter(|file| file.split('/').any(is_grab_bag));
    let mut violations: Vec<Violation> =
        named.map(|file| Violation::new(file, 1, "a name that says nothing: utils")).collect();
    for folder in files.iter().filter_map(|file| crate_folder(file)) {
        let lib = format!("{folder}/src/lib.rs");
        if !files.contains(&*lib) {
            let manifest = format!("{folder}/Cargo.toml");
            violations.push(Violation::new(&manifest, 1, "a crate without src/lib.rs"));
        }
    }
    violations
}

fn is_grab_bag(component: &str) -> bool {
    matches!(component.split('.').next(), Some("utils" | "util"))
}

fn crate_folder(file: &str) -> Option<&str> {
    let folder = file.strip_suffix("/Cargo.toml")?;
    let name = folder.strip_prefix("crates/")?;
    (!name.contains('/')).then_some(folder)
}

/// Finds mentions, in any text, of a place that exists on one machine only.
pub(super) fn check_mentions(file: &str, text: &str) -> Vec<Violation> {
    let lines = text.lines().enumerate();
    let guilty = lines.filter(|(_, line)| PLACES.iter().any(|place| mentions(line, place)));
    guilty.map(|(at, _)| Violation::new(file, at + 1, "the path of a work place")).collect()
}

/// Returns whether `line` contains the absolute path `/place/`, not the end of a longer path or of
/// a URL.
fn mentions(line: &str, place: &str) -> bool {
    let path = format!("/{place}/");
    line.match_indices(&path).any(|(at, _)| {
        let before = line.get(..at).and_then(|head| head.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '*'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_names(files: &[&str]) -> Vec<String> {
        let files = files.iter().copied().collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nothing_is_called_utils() {
        let what = "a name that says nothing: utils";
        let found = check_names(&["src/utils/a.rs", "src/util.rs", "src/utilisation.rs"]);
        assert_eq!(found, [format!("src/util.rs:1: {what}"), format!("src/utils/a.rs:1: {what}")]);
    }

    #[test]
    fn every_crate_has_a_lib() {
        let files = ["crates/a/Cargo.toml", "crates/a/src/lib.rs", "crates/b/Cargo.toml"];
        assert_eq!(check_names(&files), ["crates/b/Cargo.toml:1: a crate without src/lib.rs"]);
    }

    #[test]
    fn a_work_place_is_not_named() {
        for place in PLACES {
            let text = format!("a\nsee /{place}/x\n\"/{place}/\"\n");
            let found = check_mentions("a.md", &text);
            assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [2, 3], "{text}");
            for innocent in ["https://host/{}/x", "net/{}/x", "./{}/x", "/{}", "/{}er/", "${A}/{}/"]
            {
                let text = innocent.replace("{}", place);
                assert_eq!(check_mentions("a.md", &text), [], "{text}");
            }
        }
    }
}
