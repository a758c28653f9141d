//! `weir lab`: from options to a run of experiments, and from its folder to what is printed.
//!
//! How a run is planned, measured, judged and drawn is all in `weir-lab`.

mod list;
mod options;
mod progress;
mod results;
mod run;

use std::process::ExitCode;

pub(crate) use options::LabOptions;
use options::LabTask;

/// Does what `weir lab` was asked for.
///
/// # Errors
/// A sentence: what is asked for cannot be had.
pub(crate) fn lab(options: LabOptions) -> Result<ExitCode, String> {
    match options.task {
        LabTask::List => list::list(),
        LabTask::Check { name } => list::check(name.as_deref()),
        LabTask::Quick(options) => run::one("quick", &options),
        LabTask::Run { name, options } => run::one(&name, &options),
        LabTask::Reproduce { paper, options } => run::paper(&paper, &options),
        LabTask::Report { dir } => results::report(&dir),
        LabTask::Compare { a, b } => results::compare(&a, &b),
    }
}
