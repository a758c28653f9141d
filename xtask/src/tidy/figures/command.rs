//! Commands that repeat a measurement, as pages name them: an experiment, a task of the project, a
//! test or an example. One that is not in the tree repeats nothing.

use std::collections::BTreeSet;

/// A command that repeats a measurement.
#[derive(Debug, PartialEq)]
pub(super) struct Command {
    /// The summaries of the experiment that it runs.
    pub(super) records: Vec<String>,
}

/// Reads a code span; `None` for one that is no such command of this tree.
pub(super) fn read(code: &str, known: &BTreeSet<&str>) -> Option<Command> {
    let words: Vec<&str> = code.split_whitespace().collect();
    match words.as_slice() {
        ["weir", "lab", "run", name, ..] => {
            let exists = known.contains(&*format!("experiments/{name}.toml"));
            exists.then(|| Command { records: summaries(known, &format!("/{name}/summary.md")) })
        }
        ["weir", "lab", "reproduce", paper, ..] => {
            let exists = known.contains(&*format!("experiments/papers/{paper}.toml"));
            exists.then(|| Command { records: summaries(known, &format!("/{paper}/")) })
        }
        ["cargo", "xtask", task, ..] => {
            let places = [format!("xtask/src/{task}.rs"), format!("xtask/src/{task}/mod.rs")];
            repeatable(known, &places)
        }
        ["cargo", "run" | "test" | "bench", rest @ ..] => {
            let pairs = rest.windows(2).filter_map(|pair| <[&str; 2]>::try_from(pair).ok());
            let named = pairs.filter_map(|[option, name]| match option {
                "--example" => Some(format!("/examples/{name}.rs")),
                "--test" => Some(format!("/tests/{name}.rs")),
                "--bench" => Some(format!("/benches/{name}.rs")),
                _ => None,
            });
            repeatable(known, &named.collect::<Vec<_>>())
        }
        _ => None,
    }
}

/// Returns the summaries of results whose path has `part`.
fn summaries(known: &BTreeSet<&str>, part: &str) -> Vec<String> {
    let summaries = known.iter().filter(|path| {
        path.starts_with("results/") && path.ends_with("/summary.md") && path.contains(part)
    });
    summaries.map(|path| (*path).to_owned()).collect()
}

fn repeatable(known: &BTreeSet<&str>, places: &[String]) -> Option<Command> {
    let exists = places.iter().any(|place| known.iter().any(|path| path.ends_with(&**place)));
    exists.then(|| Command { records: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(code: &str) -> Option<Vec<String>> {
        let known = [
            "crates/sim/examples/corner.rs",
            "experiments/bench/serve.toml",
            "experiments/papers/gammo-epoll.toml",
            "experiments/tls/storm.toml",
            "results/a/bench/serve/summary.md",
            "results/b/gammo-epoll/one-byte/summary.md",
            "xtask/src/slots.rs",
        ];
        read(code, &known.into_iter().collect()).map(|command| command.records)
    }

    #[test]
    fn an_experiment_leads_to_its_records() {
        assert_eq!(
            records("weir lab run bench/serve --only weir"),
            Some(vec!["results/a/bench/serve/summary.md".to_owned()])
        );
        let paper = Some(vec!["results/b/gammo-epoll/one-byte/summary.md".to_owned()]);
        assert_eq!(records("weir lab reproduce gammo-epoll"), paper);
        assert_eq!(records("weir lab run tls/storm"), Some(Vec::new()));
    }

    #[test]
    fn a_command_of_the_tree_repeats_what_it_shows() {
        assert_eq!(records("cargo run -p weir-sim --example corner -- --load 2"), Some(Vec::new()));
        assert_eq!(records("cargo xtask slots"), Some(Vec::new()));
    }

    #[test]
    fn what_is_not_in_the_tree_repeats_nothing() {
        for code in [
            "weir lab run gone",
            "cargo xtask gone",
            "cargo test",
            "cargo test --test gone",
            "weir serve DIR",
            "--rate 5",
        ] {
            assert_eq!(records(code), None, "{code}");
        }
    }
}
