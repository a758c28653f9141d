//! Folders of past runs: redraws a report, compares two runs.

use std::path::Path;
use std::process::ExitCode;

use weir_lab::artifact;
use weir_lab::compare;
use weir_lab::results;

use super::papers;
use crate::print::print_text;

/// Writes the archive of a run of all papers.
pub(super) fn artifact(dir: &Path, out: &Path) -> Result<ExitCode, String> {
    let weir = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let parts = artifact::write(dir, &weir, env!("CARGO_PKG_VERSION"), out)?;
    let keys: Vec<&str> = parts.iter().map(|part| part.key.as_str()).collect();
    print_text(&format!("{}: {}\n", out.display(), keys.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}

/// Draws the report of a run, or of all runs of all papers and their front page.
pub(super) fn report(dir: &Path) -> Result<ExitCode, String> {
    if let Some(front) = papers::redraw(dir)? {
        return print_text(&format!("{}\n", front.display()));
    }
    results::draw(dir)?;
    print_text(&format!("{}\n", dir.join("report.html").display()))
}

/// Prints a comparison of two runs.
pub(super) fn compare(a: &Path, b: &Path) -> Result<ExitCode, String> {
    let (a, b) = (results::findings(a)?, results::findings(b)?);
    print_text(&compare::text(&compare::compare(&a, &b)))
}
