//! Folders of past runs: redraws a report, compares two runs.

use std::path::Path;
use std::process::ExitCode;

use weir_lab::compare;
use weir_lab::results;

use crate::print::print_text;

/// Draws the report of a run.
pub(super) fn report(dir: &Path) -> Result<ExitCode, String> {
    results::draw(dir)?;
    print_text(&format!("{}\n", dir.join("report.html").display()))
}

/// Prints a comparison of two runs.
pub(super) fn compare(a: &Path, b: &Path) -> Result<ExitCode, String> {
    let (a, b) = (results::findings(a)?, results::findings(b)?);
    print_text(&compare::text(&compare::compare(&a, &b)))
}
