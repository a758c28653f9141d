//! `weir load files`: writes the files that a named workload requests, and reports their size.

use std::io::Write;
use std::process::ExitCode;

use weir_load::workload::NamedWorkload;
use weir_load::workload::files::{self, FileSetOptions, FilesWritten};

use super::options::FilesOptions;
use crate::print::print;

/// Writes the files and prints a summary.
///
/// # Errors
/// A sentence: a file cannot be written.
pub(crate) fn files(options: &FilesOptions) -> Result<ExitCode, String> {
    let summary = write(options)?;
    print(|out| out.write_all(summary.as_bytes()))
}

/// Writes the files; returns a summary in one line.
fn write(options: &FilesOptions) -> Result<String, String> {
    let named: NamedWorkload = options.workload.parse()?;
    let sizes = FileSetOptions { mb: options.mb, head_bytes: options.head_bytes };
    let FilesWritten { files, bytes } = files::write(&options.dir, named, &sizes)?;
    let (name, dir) = (named.name(), options.dir.display());
    Ok(format!("{name}: {files} file(s), {bytes} bytes, in {dir}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let options = |workload: &str, dir: &std::path::Path| FilesOptions {
            dir: dir.into(),
            workload: workload.into(),
            mb: 5,
            head_bytes: 448,
        };
        let summary = write(&options("one-packet", dir.path())).unwrap();
        assert!(summary.starts_with("one-packet: 1 file(s), 1000 bytes, in "), "{summary}");
        let summary = write(&options("specweb99", dir.path())).unwrap();
        assert!(summary.starts_with("specweb99: 36 file(s), 5119484 bytes"), "{summary}");
        let file = dir.path().join("file_set/dir00000/class0_0");
        assert!(write(&options("2k", &file)).unwrap_err().contains("class0_0"));
    }
}
