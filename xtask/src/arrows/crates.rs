//! Dependencies allowed between the crates of the workspace. The table below is the only place that
//! says so; a crate without a row is an error.

use std::collections::BTreeSet;

use serde::Deserialize;

/// A crate, and the crates of ours it may name in its manifest.
const ALLOWED: &[(&str, &[&str])] = &[
    ("weir-sys", &[]),
    ("weir-http1", &[]),
    ("weir-accept", &[]),
    ("weir-stats", &[]),
    ("weir-packet", &[]),
    ("weir-tls", &[]),
    ("weir-dispatch", &["weir-sys"]),
    ("weir-content", &["weir-sys"]),
    ("weir-cache", &["weir-content"]),
    (
        "weir-server",
        &[
            "weir-sys",
            "weir-dispatch",
            "weir-http1",
            "weir-content",
            "weir-cache",
            "weir-accept",
            "weir-stats",
            "weir-tls",
        ],
    ),
    (
        "weir-load",
        &["weir-sys", "weir-dispatch", "weir-http1", "weir-packet", "weir-stats", "weir-tls"],
    ),
    ("weir-observe", &["weir-sys", "weir-stats"]),
    ("weir-admin", &["weir-sys", "weir-http1", "weir-stats", "weir-observe"]),
    ("weir-lab", &["weir-sys", "weir-stats", "weir-observe", "weir-packet"]),
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
            "weir-observe",
            "weir-admin",
            "weir-lab",
        ],
    ),
    ("xtask", &["weir-lab", "weir-packet", "weir-stats"]),
];

/// The crates that may name any other: the tests of the whole.
const ANY: &[&str] = &["weir-tests"];

/// A dependency in a manifest.
#[derive(Deserialize)]
pub(super) struct Dependency {
    pub(super) name: String,
}

/// The wrong arrows of the workspace, whatever their kind: an arrow needed only by tests ties the
/// crates together just the same.
pub(super) fn wrong(packages: &[(&str, &[Dependency])]) -> Vec<String> {
    let ours: BTreeSet<&str> = packages.iter().map(|(name, _)| *name).collect();
    let mut wrong = Vec::new();
    for (name, dependencies) in packages.iter().filter(|(name, _)| !ANY.contains(name)) {
        let Some((_, allowed)) = ALLOWED.iter().find(|(allowed, _)| allowed == name) else {
            wrong.push(format!("{name}: has no row in the table of arrows"));
            continue;
        };
        let named: BTreeSet<&str> = dependencies.iter().map(|to| &*to.name).collect();
        for to in named.intersection(&ours).filter(|to| !allowed.contains(to)) {
            wrong.push(format!("{name} -> {to}: not allowed"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, Dependency};

    fn wrong(packages: &[(&str, &[&str])]) -> Vec<String> {
        let dependency = |name: &&str| Dependency { name: (*name).to_owned() };
        let dependencies: Vec<Vec<_>> =
            packages.iter().map(|(_, to)| to.iter().map(dependency).collect()).collect();
        let packages = packages.iter().zip(&dependencies);
        super::wrong(&packages.map(|((name, _), to)| (*name, to.as_slice())).collect::<Vec<_>>())
    }

    #[test]
    fn an_arrow_outside_the_table_is_wrong() {
        let wrong = wrong(&[
            ("weir-sys", &["libc"]),
            ("weir-stats", &[]),
            ("weir-http1", &["weir-sys", "weir-sys"]),
            ("weir-dispatch", &["weir-sys", "weir-stats"]),
        ]);
        let expected =
            ["weir-http1 -> weir-sys: not allowed", "weir-dispatch -> weir-stats: not allowed"];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn the_tests_of_the_whole_may_name_any_crate() {
        let packages: [(_, &[_]); 3] =
            [("weir-sys", &[]), ("weir", &[]), ("weir-tests", &["weir", "weir-sys"])];
        assert_eq!(wrong(&packages), Vec::<String>::new());
    }

    #[test]
    fn an_unknown_crate_is_wrong() {
        assert_eq!(wrong(&[("weir-new", &[])]), ["weir-new: has no row in the table of arrows"]);
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
