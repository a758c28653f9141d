//! Direction of dependencies as a test: between crates by their manifests, and between the files of
//! each crate by their imports.

mod crates;
mod imports;
mod layers;
mod modules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::tree;
use crates::Dependency;
use modules::Modules;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
}

/// Reads `cargo metadata` and the imports of every crate, and fails on a wrong arrow, naming each.
pub(crate) fn run() -> Result<()> {
    let metadata = metadata()?;
    let packages = metadata.packages.iter();
    let named: Vec<_> = packages.map(|it| (it.name.as_str(), it.dependencies.as_slice())).collect();
    let mut wrong = crates::wrong(&named);
    wrong.extend(wrong_within(&metadata, &tree::root())?);
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

/// Circles of files and arrows against the order of layers, in all targets of all crates.
fn wrong_within(metadata: &Metadata, root: &Path) -> Result<BTreeSet<String>> {
    let mut wrong = BTreeSet::new();
    for package in &metadata.packages {
        for target in &package.targets {
            let file = target.src_path.strip_prefix(root).context("a target outside the tree")?;
            let read = |file: &str| fs::read_to_string(root.join(file)).ok();
            let modules = Modules::read(&file.to_string_lossy(), read);
            wrong.extend(modules.circles());
            wrong.extend(layers::wrong(&package.name, &modules));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_has_no_wrong_arrow() {
        let metadata = metadata().unwrap();
        assert!(metadata.packages.iter().any(|package| package.name == "weir-sys"));
        run().unwrap();
    }
}
