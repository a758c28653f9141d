//! `weir load trace`: writes sessions to a file, and reports how close their shares are to the
//! specified ones.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use weir_load::workload::specweb99::{FileSet, SpecTrace};

use super::options::TraceOptions;
use super::output::Output;

/// Writes a trace whose shares are within tolerance, and prints them.
///
/// # Errors
/// A sentence: no seed yields such a trace, or the file cannot be written.
pub(crate) fn trace(options: &TraceOptions) -> Result<ExitCode, String> {
    let summary = write(options)?;
    let printed = if options.file == Path::new("-") {
        io::stderr().write_all(summary.as_bytes())
    } else {
        io::stdout().write_all(summary.as_bytes())
    };
    printed.map_err(|error| format!("cannot print: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the trace; returns a report on its shares.
fn write(options: &TraceOptions) -> Result<String, String> {
    if !options.base.starts_with('/') || options.base.contains(char::is_whitespace) {
        return Err(format!("--base {}: a path begins with a slash", options.base));
    }
    let set = FileSet::new(options.mb)?;
    let Some((trace, marginals)) = SpecTrace::accepted(set, options.sessions, options.seed) else {
        return Err(format!(
            "--seed {}: neither it nor the 15 after it make shares near enough to SPECweb99's; \
             try another",
            options.seed
        ));
    };
    let mut out = Output::open(&options.file)?;
    let written = trace.write(&options.base, &mut out);
    out.note(written);
    out.finish()?;
    Ok(format!("seed {}\n{marginals}", trace.seed()))
}

#[cfg(test)]
mod tests {
    use weir_load::workload::sessions::SessionLog;

    use super::*;

    #[test]
    fn a_trace_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace");
        let options = |base: &str| TraceOptions {
            file: file.clone(),
            workload: "specweb99".into(),
            mb: 5,
            sessions: 500,
            seed: 1,
            base: base.into(),
        };
        let summary = write(&options("/below")).unwrap();
        assert!(summary.starts_with("seed ") && summary.contains("class 0"), "{summary}");
        let text = std::fs::read(&file).unwrap();
        assert!(SessionLog::parse("trace", &text).is_ok());
        assert!(String::from_utf8_lossy(&text).contains("\n/below/file_set/dir00000/class"));
        assert!(write(&options("below")).unwrap_err().contains("begins with a slash"));
    }
}
