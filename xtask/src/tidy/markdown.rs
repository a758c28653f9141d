//! Rule for Markdown pages: a relative link leads to a file of the tree. Web addresses are not
//! visited, and anchors inside a page are not looked up.

use std::collections::BTreeSet;

use super::violation::Violation;

/// Returns the dead relative links of the page `file`; `known` holds every file of the tree.
pub(super) fn check(file: &str, text: &str, known: &BTreeSet<&str>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced {
            continue;
        }
        for target in targets(&without_code(line)) {
            if !leads_somewhere(file, &target, known) {
                violations.push(Violation::new(file, at + 1, format!("dead link: {target}")));
            }
        }
    }
    violations
}

/// Returns the line without the text between back-quotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Returns the targets of the links in a line: `[text](target "title")` and `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let definition = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .filter(|(name, _)| !name.starts_with('^'))
        .map(|(_, target)| target);
    let whole = inline.chain(definition);
    let first = whole.filter_map(|target| target.split_whitespace().next());
    first.map(|target| target.trim_matches(['<', '>']).to_owned()).collect()
}

fn leads_somewhere(file: &str, target: &str, known: &BTreeSet<&str>) -> bool {
    let outside = target.contains("://") || target.starts_with("mailto:");
    let path = target.split(['#', '?']).next().unwrap_or_default();
    if outside || path.is_empty() {
        return true;
    }
    let Some(path) = resolve(file, path) else { return false };
    let folder = format!("{path}/");
    path.is_empty() || known.iter().any(|known| *known == path || known.starts_with(&folder))
}

/// Returns the path in the tree that `link` means on the page `page`; `None` if it leaves the tree.
pub(super) fn resolve(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    if link.starts_with('/') {
        parts.clear();
    }
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(file: &str, text: &str) -> Vec<String> {
        let known = ["README.md", "docs/a.md", "docs/deep/b.md", "crates/sys/src/lib.rs"];
        let found = check(file, text, &known.into_iter().collect());
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_into_the_tree_are_followed() {
        let page = "[a](docs/a.md) [b](docs/deep/b.md#part \"title\") [c](./crates) ![d](docs)\n\
                    [e]: docs/a.md\n[^1]: a footnote\n[f](/README.md) [g](<docs/a.md>)\n";
        assert_eq!(dead("README.md", page), Vec::<String>::new());
        let deep = "[up](../a.md) [top](../../README.md) [beside](b.md) [root](../..)\n";
        assert_eq!(dead("docs/deep/b.md", deep), Vec::<String>::new());
    }

    #[test]
    fn dead_links_are_found() {
        let page = "fine\n[a](docs/gone.md) and [b](docs/a.md)\n[c]: gone.md\n[d](../x)\n";
        let expected = [
            "README.md:2: dead link: docs/gone.md",
            "README.md:3: dead link: gone.md",
            "README.md:4: dead link: ../x",
        ];
        assert_eq!(dead("README.md", page), expected);
    }

    #[test]
    fn links_out_of_the_tree_are_not_checked() {
        let page = "[a](https://example.org/x) [b](mailto:a@b) [c](#here)\n`[d](gone)`\n\
                    ```\n[e](gone)\n```\n";
        assert_eq!(dead("README.md", page), Vec::<String>::new());
    }
}
