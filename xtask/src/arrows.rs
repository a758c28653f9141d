//! Which crate of ours may depend on which, and the check that they keep to it. The table below is
//! the only place that says so; a crate without a row is an error.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::tree;

/// A crate, and the crates of ours it may name in its manifest.
const ALLOWED: &[(&str, &[&str])] = &[
    ("weir-sys", &[]),
    ("weir-http1", &[]),
    ("weir-accept", &[]),
    ("weir-stats", &[]),
    ("weir-dispatch", &["weir-sys"]),
    ("weir-content", &["weir-sys"]),
    (
        "weir-server",
        &["weir-sys", "weir-dispatch", "weir-http1", "weir-content", "weir-accept", "weir-stats"],
    ),
    ("weir-load", &["weir-sys", "weir-dispatch", "weir-http1", "weir-stats"]),
    ("weir-lab", &["weir-sys", "weir-stats"]),
    ("weir-sim", &["weir-accept", "weir-stats"]),
    (
        "weir",
        &[
            "weir-server",
            "weir-dispatch",
            "weir-accept",
            "weir-stats",
            "weir-content",
            "weir-load",
            "weir-lab",
        ],
    ),
    ("xtask", &["weir"]),
];

/// The crates that may name any other: the tests of the whole.
const ANY: &[&str] = &["weir-tests"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
}

/// Reads `cargo metadata` and fails on a wrong arrow, naming each.
pub(crate) fn run() -> Result<()> {
    let wrong = wrong(&metadata()?);
    for arrow in &wrong {
        println!("{arrow}");
    }
    ensure!(wrong.is_empty(), "{} wrong arrow(s)", wrong.len());
    println!("arrows: all as they should be");
    Ok(())
}

fn metadata() -> Result<Metadata> {
    let arguments = ["metadata", "--no-deps", "--format-version=1"];
    let output = tree::cargo().args(arguments).output().context("cargo does not start")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

/// The wrong arrows of the workspace, whatever their kind: an arrow needed only by tests ties the
/// crates together just the same.
fn wrong(metadata: &Metadata) -> Vec<String> {
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| &*package.name).collect();
    let mut wrong = Vec::new();
    for package in metadata.packages.iter().filter(|package| !ANY.contains(&&*package.name)) {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            wrong.push(format!("{}: has no row in the table of arrows", package.name));
            continue;
        };
        let named: BTreeSet<&str> = package.dependencies.iter().map(|to| &*to.name).collect();
        for to in named.intersection(&ours).filter(|to| !allowed.contains(to)) {
            wrong.push(format!("{} -> {to}: not allowed", package.name));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(packages: &[(&str, &[&str])]) -> Metadata {
        let dependencies = |names: &[&str]| {
            names.iter().map(|name| Dependency { name: (*name).to_owned() }).collect()
        };
        let package = |&(name, to): &(&str, &[&str])| Package {
            name: name.to_owned(),
            dependencies: dependencies(to),
        };
        Metadata { packages: packages.iter().map(package).collect() }
    }

    #[test]
    fn this_workspace_has_no_wrong_arrow() {
        let metadata = metadata().unwrap();
        assert!(metadata.packages.iter().any(|package| package.name == "weir-sys"));
        assert_eq!(wrong(&metadata), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_outside_the_table_is_wrong() {
        let metadata = workspace(&[
            ("weir-sys", &["libc"]),
            ("weir-stats", &[]),
            ("weir-http1", &["weir-sys", "weir-sys"]),
            ("weir-dispatch", &["weir-sys", "weir-stats"]),
        ]);
        let expected =
            ["weir-http1 -> weir-sys: not allowed", "weir-dispatch -> weir-stats: not allowed"];
        assert_eq!(wrong(&metadata), expected);
    }

    #[test]
    fn the_tests_of_the_whole_may_name_any_crate() {
        let metadata =
            workspace(&[("weir-sys", &[]), ("weir", &[]), ("weir-tests", &["weir", "weir-sys"])]);
        assert_eq!(wrong(&metadata), Vec::<String>::new());
    }

    #[test]
    fn an_unknown_crate_is_wrong() {
        let metadata = workspace(&[("weir-new", &[])]);
        assert_eq!(wrong(&metadata), ["weir-new: has no row in the table of arrows"]);
    }

    #[test]
    fn the_table_is_free_of_cycles() {
        fn reaches(from: &str, to: &str) -> bool {
            let row = ALLOWED.iter().find(|(name, _)| *name == from);
            row.is_some_and(|(_, next)| next.iter().any(|n| *n == to || reaches(n, to)))
        }
        for (name, _) in ALLOWED {
            assert!(!reaches(name, name), "{name} reaches itself");
        }
    }
}
