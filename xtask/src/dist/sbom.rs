//! The list of what is linked into the program (CycloneDX 1.5), from what cargo resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::files::output;

/// Makes the list for a target.
pub(super) fn make(root: &Path, target: &str) -> Result<String> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", target])
        .current_dir(root);
    let metadata: Value = serde_json::from_str(&output(cargo)?)?;
    let bom = bom(&metadata).context("cargo metadata has another form")?;
    Ok(serde_json::to_string_pretty(&bom)? + "\n")
}

/// Makes the list from the output of `cargo metadata`.
fn bom(metadata: &Value) -> Option<Value> {
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()?
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let (top, _) = packages.iter().find(|(_, package)| package["name"] == "weir")?;
    let mut linked = BTreeSet::new();
    let mut left = vec![*top];
    while let Some(id) = left.pop() {
        if linked.insert(id) {
            left.extend(dependencies(nodes.get(id)?)?);
        }
    }
    let component = |id: &&str| {
        let package = packages.get(*id)?;
        let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
        let kind = if id == top { "application" } else { "library" };
        let mut component = json!({
            "type": kind, "bom-ref": name_of(package)?, "name": name, "version": version,
        });
        if let Some(licence) = package["license"].as_str() {
            // The old form of an expression (the Cargo book, license).
            let licence = licence.replace('/', " OR ");
            component["licenses"] = json!([{ "expression": licence }]);
        }
        if package["source"].is_string() {
            component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
        }
        Some(component)
    };
    let depends = |id: &&str| {
        let on: BTreeSet<String> = dependencies(nodes.get(*id)?)?
            .iter()
            .filter_map(|id| name_of(packages.get(id)?))
            .collect();
        Some(json!({ "ref": name_of(packages.get(*id)?)?, "dependsOn": on }))
    };
    let others: Vec<&str> = linked.iter().copied().filter(|id| id != top).collect();
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(top)? },
        "components": others.iter().map(component).collect::<Option<Vec<_>>>()?,
        "dependencies": linked.iter().map(depends).collect::<Option<Vec<_>>>()?,
    }))
}

fn name_of(package: &Value) -> Option<String> {
    Some(format!("{}@{}", package["name"].as_str()?, package["version"].as_str()?))
}

/// Returns what a package is linked with: not what builds it or tests it.
fn dependencies(node: &Value) -> Option<Vec<&str>> {
    let linked = |dependency: &Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    let all = node["deps"].as_array()?.iter().filter(|dependency| linked(dependency));
    Some(all.filter_map(|dependency| dependency["pkg"].as_str()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_builds_or_tests_is_not() {
        let package = |name: &str| {
            let source = (name != "weir").then_some("registry");
            json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                "source": source,
            })
        };
        let dependency = |name: &str, kind: Value| {
            let kinds = json!([{ "kind": kind }]);
            json!({ "name": name, "pkg": name, "dep_kinds": kinds })
        };
        let packages = ["weir", "a", "b", "tool", "test"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": { "nodes": [
                { "id": "weir", "deps": [
                    dependency("a", Value::Null),
                    dependency("tool", json!("build")),
                    dependency("test", json!("dev")),
                ] },
                { "id": "a", "deps": [dependency("b", Value::Null)] },
                { "id": "b", "deps": [] },
                { "id": "tool", "deps": [] },
                { "id": "test", "deps": [] },
            ] },
        });
        let bom = bom(&metadata).unwrap();
        let names: Vec<&str> = bom["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|component| component["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(bom["components"][0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(bom["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bom["dependencies"][0]["ref"], "a@1.0.0");
    }
}
