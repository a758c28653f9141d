//! `weir lab`: turns options into a run of experiments, and a run's folder into printed output.
//!
//! Planning, measurement, verdicts and plots are all in `weir-lab`.

mod list;
mod options;
mod papers;
mod progress;
mod results;
mod run;

use std::process::ExitCode;

pub(crate) use options::LabOptions;
use options::LabTask;

/// What stands for all papers where the key of one does.
const ALL: &str = "all";

/// Runs the requested `weir lab` task.
///
/// # Errors
/// A sentence: the request cannot be met.
pub(crate) fn lab(options: LabOptions) -> Result<ExitCode, String> {
    match options.task {
        LabTask::List => list::list(),
        LabTask::Check { name } => list::check(name.as_deref()),
        LabTask::Quick(options) => run::one("quick", &options),
        LabTask::Run { name, options } => run::one(&name, &options),
        LabTask::Reproduce { paper, quick, options } if paper == ALL => {
            papers::all(quick, &options)
        }
        LabTask::Reproduce { paper, quick, options } => papers::one(&paper, quick, &options),
        LabTask::Report { dir } => results::report(&dir),
        LabTask::Artifact { dir, out } => results::artifact(&dir, &out),
        LabTask::Compare { a, b } => results::compare(&a, &b),
    }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::path::PathBuf;

    use clap::CommandFactory;
    use weir_lab::validation::allowed_options;
    use weir_lab::workload;
    use weir_load::workload::NamedWorkload;

    use crate::command::Cli;

    #[test]
    fn experiments_know_the_workloads_of_the_load_by_name() {
        let names: Vec<&str> = NamedWorkload::all().map(NamedWorkload::name).collect();
        assert_eq!(names, workload::OF_LOAD);
    }

    #[test]
    fn options_of_ours_that_experiments_may_set_are_there_and_name_no_file() {
        let cli = Cli::command();
        for (program, task) in [("weir", "serve"), ("weir load", "load")] {
            let list = allowed_options::all().find(|list| list.program == program).unwrap();
            let command = cli.find_subcommand(task).unwrap();
            for (name, _) in list.options {
                let arg = command
                    .get_arguments()
                    .find(|arg| arg.get_long().is_some_and(|long| format!("--{long}") == *name));
                let arg = arg.unwrap_or_else(|| panic!("weir {task} has no {name}"));
                assert!(arg.get_value_parser().type_id() != TypeId::of::<PathBuf>(), "{name}");
            }
        }
    }
}
