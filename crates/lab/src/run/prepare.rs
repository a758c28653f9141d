//! Prepares the machine before the first step of a run: sets of files on the disk, and the limits
//! of its servers. Missing prerequisites are reported before anything is measured.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::cgroup::{self, ControlGroup, Limits};
use crate::experiment::{Experiment, Sweep};
use crate::file_set::{self, FileSet};
use crate::plan::NamedExperiment;

/// Returns the file sets requested by a sweep's clients.
pub(super) fn sets(sweep: &Sweep) -> impl Iterator<Item = FileSet> {
    let beside = sweep.background_load.as_ref().and_then(|spec| spec.workload.as_ref());
    let names = std::iter::once(&sweep.load.workload).chain(beside);
    names.filter_map(|name| FileSet::named(name))
}

/// Tries each server's limits, and writes the sets.
///
/// # Errors
/// Returns a message if a limit is not available, if a set cannot be written or would be kept in
/// memory, or if `stop` is set while sets are written.
pub(super) fn prepare(experiments: &[NamedExperiment], stop: &AtomicBool) -> Result<(), String> {
    for (name, experiment) in experiments {
        one(experiment, stop).map_err(|why| format!("experiment {name}: {why}"))?;
    }
    Ok(())
}

fn one(experiment: &Experiment, stop: &AtomicBool) -> Result<(), String> {
    let mut sets = experiment.sweep.iter().flat_map(sets).peekable();
    let root = sets.peek().map(|_| kept()).transpose()?;
    // Limits on the reads of other files apply to the disk that holds the run's files.
    let files = root.clone().unwrap_or_else(std::env::temp_dir);
    let percents = experiment.sweep.iter().filter_map(|sweep| sweep.upstream.as_ref()?.cpu_percent);
    let of_upstreams = percents
        .map(|percent| Limits { cpu_percent: Some(f64::from(*percent)), ..Limits::default() });
    let mut limits = experiment.server.iter().filter_map(Limits::of).chain(of_upstreams);
    limits.try_for_each(|limits| ControlGroup::make(&limits, &files).map(drop))?;
    root.map_or(Ok(()), |root| sets.try_for_each(|set| set.write(&root, stop)))
}

/// Returns the document root of sets, which exists and is on a disk.
fn kept() -> Result<PathBuf, String> {
    let root = file_set::kept()?;
    fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    match cgroup::keeps_in_memory(&root)? {
        false => Ok(root),
        true => Err(format!(
            "the files in {} are kept in memory and never read from a disk",
            root.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::one_weir;

    const TEXT: &str = one_weir!(
        r#"
[[sweep]]
id = "up"
x = "beside"
values = [0, 5]
rate = 5
load.workload = "files-2x1k"
beside = { kind = "cold", workload = "files-3x4k" }
"#
    );

    #[test]
    fn a_sweep_needs_the_sets_of_all_its_clients() {
        let experiment = Experiment::parse(TEXT).unwrap();
        let names: Vec<String> = sets(&experiment.sweep[0]).map(|set| set.name()).collect();
        assert_eq!(names, ["files-2x1k", "files-3x4k"]);
    }
}
