//! `weir load day`: writes the access log of a made-up day.

use std::process::ExitCode;

use weir_load::workload::day::Day;

use super::options::DayOptions;
use super::output::Output;

/// Writes the log.
///
/// # Errors
/// A sentence: the file cannot be written.
pub(crate) fn day(options: &DayOptions) -> Result<ExitCode, String> {
    let &DayOptions { requests, objects, seed, .. } = options;
    let mut out = Output::open(&options.file)?;
    let written = Day { requests, objects, seed }.write(&mut out);
    out.note(written);
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
