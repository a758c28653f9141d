//! Order of the modules within a crate. A module may use those of its own layer and of the layers
//! below.

use super::modules::Modules;

/// Crates with an order: their top-level modules by layer, the lowest first. The root file is above
/// all; a module without a layer is an error.
const LAYERS: &[(&str, &[&[&str]])] = &[
    (
        "weir-server",
        &[
            &["architecture", "compressor", "files", "strategy", "helpers"],
            &["sites"],
            &["config", "control"],
            &["sandbox", "stat_page"],
            &["upstream"],
            &["context"],
            &["http"],
            &["worker"],
            &["user"],
            &["check", "models", "succession"],
            &["bind"],
            &["limits"],
            &["server", "test_support"],
        ],
    ),
    (
        "weir-load",
        &[
            &["measure", "schedule", "session"],
            &["tls"],
            &["config", "workload"],
            &["driver", "link"],
            &["audit", "capacity_check", "condition", "packet_setup", "scan"],
            &["report"],
        ],
    ),
    (
        "weir-lab",
        &[
            &[
                "atomic_file",
                "document",
                "environment",
                "experiment",
                "findings",
                "fit",
                "record",
                "time",
            ],
            &["allow_list", "file_set", "programs", "workload"],
            &["cgroup", "loopback", "machine", "measure", "process_group", "testbed"],
            &["check", "generators", "journal", "metrics", "servers", "setup_summary"],
            &["plan", "validation"],
            &["analysis", "paper"],
            &["catalogue", "report", "run"],
            &["compare", "results"],
            &["artifact"],
        ],
    ),
];

/// The arrows of a crate that point upward, each as a sentence.
pub(super) fn wrong(package: &str, modules: &Modules) -> Vec<String> {
    let layers = LAYERS.iter().find(|(name, _)| *name == package).map(|(_, layers)| *layers);
    layers.map_or_else(Vec::new, |layers| against(layers, modules))
}

fn against(layers: &[&[&str]], modules: &Modules) -> Vec<String> {
    let layer = |file| match modules.top_level(file) {
        None => Ok(layers.len()),
        Some(module) => {
            let found = layers.iter().position(|layer| layer.contains(&module));
            found.ok_or_else(|| format!("{file}: is in no layer"))
        }
    };
    let judge = |(from, to)| match (layer(from), layer(to)) {
        (Err(nowhere), _) | (_, Err(nowhere)) => Some(nowhere),
        (Ok(above), Ok(below)) => (above < below).then(|| format!("{from} -> {to}: upward")),
    };
    modules.arrows().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(layers: &[&[&str]]) -> Vec<String> {
        let files = [
            ("c/lib.rs", "mod a;\nmod b;\nuse a::A;"),
            ("c/a.rs", "use crate::b::B;"),
            ("c/b.rs", ""),
        ];
        let text = |file: &str| files.iter().find(|(name, _)| *name == file).map(|(_, text)| *text);
        against(layers, &Modules::read("c/lib.rs", |file| text(file).map(str::to_owned)))
    }

    #[test]
    fn a_module_may_use_its_own_layer_and_those_below() {
        assert_eq!(found(&[&["b"], &["a"]]), [""; 0]);
        assert_eq!(found(&[&["a", "b"]]), [""; 0]);
        assert_eq!(found(&[&["a"], &["b"]]), ["c/a.rs -> c/b.rs: upward"]);
    }

    #[test]
    fn a_module_without_a_layer_is_wrong() {
        assert_eq!(found(&[&["a"]]), ["c/b.rs: is in no layer"]);
    }
}
