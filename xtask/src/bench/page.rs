//! What the summaries of all measurements share: figures as they are written, the runs that do not
//! count, and the set-up. Pure.

use std::fmt::Write;

use super::machine::Setup;
use crate::spread::Spread;

/// The median of `values` and their ends, to three digits; a dash without values.
pub(super) fn spread(values: Vec<f64>) -> String {
    Spread::of(values).map_or(none(), |Spread { median, least, most }| {
        format!("{median:.3} ({least:.3}–{most:.3})")
    })
}

/// The median of `values`.
pub(super) fn median(values: Vec<f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// What stands where there is no figure.
pub(super) fn none() -> String {
    "–".to_owned()
}

/// The section about the runs that do not count, a line each; nothing without any.
pub(super) fn flagged(page: &mut String, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        page.push_str("\n## Runs that do not count\n\n");
    }
    for line in lines {
        let _ = writeln!(page, "- {line}");
    }
}

/// The section about the machine and the programs; `plan` says how long things ran.
pub(super) fn machine(page: &mut String, setup: &Setup, plan: &str) {
    let dirty = if setup.weir_dirty { ", with changes not committed" } else { "" };
    let kind = if setup.virtual_machine { ", virtual" } else { "" };
    let _ = write!(
        page,
        "
## Set-up

- {date}, {cores} cores, {cpu}{kind}, governor {governor}, Linux {kernel}
- server on core {server}, load on core {load}; {plan}
- weir at commit {commit}{dirty}
",
        date = setup.date,
        cores = setup.cores,
        cpu = setup.cpu_model,
        governor = setup.governor.as_deref().unwrap_or("unknown"),
        kernel = setup.kernel,
        server = setup.server_core,
        load = setup.load_core,
        commit = setup.weir_commit,
    );
    for (program, version) in &setup.versions {
        let _ = writeln!(page, "- {program}: {version}");
    }
    let settings: Vec<String> =
        setup.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let _ = writeln!(page, "- {}", settings.join("; "));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    pub(in crate::bench) fn setup() -> Setup {
        Setup {
            date: "2026-01-02".to_owned(),
            machine: "2core-x".to_owned(),
            cpu_model: "X".to_owned(),
            cores: 2,
            virtual_machine: true,
            governor: None,
            kernel: "6.1".to_owned(),
            settings: BTreeMap::new(),
            descriptors_max: None,
            server_core: 0,
            load_core: 1,
            weir_commit: "abc".to_owned(),
            weir_dirty: true,
            versions: BTreeMap::from([("wrk".to_owned(), "wrk 4".to_owned())]),
            rounds: 2,
            seconds: 5,
            warm_up_seconds: 1,
            seed: 1,
        }
    }

    #[test]
    fn a_spread_of_nothing_is_a_dash() {
        assert_eq!(spread(vec![]), "–");
        assert_eq!(spread(vec![1.0, 2.0]), "1.500 (1.000–2.000)");
    }
}
