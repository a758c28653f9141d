//! `weir load files`: writes the files that a named workload or an access log requests, and reports
//! their size.

use std::io::Write;
use std::process::ExitCode;

use weir_load::workload::files::{self, FileSetOptions, FilesWritten};
use weir_load::workload::{NamedWorkload, logged_files};

use super::input;
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
    let dir = &options.dir;
    let (name, FilesWritten { files, bytes }) = match (&options.log, &options.workload) {
        (Some(log), _) => {
            let name = log.display().to_string();
            let text = input::file(log).map_err(|error| format!("cannot read {name}: {error}"))?;
            let listed = logged_files::files(&name, &text)?;
            (name, files::write_all(dir, listed)?)
        }
        (None, workload) => {
            let named: NamedWorkload = workload.as_deref().unwrap_or_default().parse()?;
            let sizes = FileSetOptions { mb: options.mb, head_bytes: options.head_bytes };
            (named.name().to_owned(), files::write(dir, named, &sizes)?)
        }
    };
    let dir = dir.display();
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
            workload: Some(workload.into()),
            log: None,
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

    #[test]
    fn the_files_of_a_log_are_written_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("access.log");
        let line = "::1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a/b.html HTTP/1.1\" 200 700\n";
        std::fs::write(&log, line).unwrap();
        let root = dir.path().join("root");
        let log = Some(log);
        let options =
            FilesOptions { dir: root.clone(), workload: None, log, mb: 5, head_bytes: 448 };
        let summary = write(&options).unwrap();
        assert!(summary.contains("access.log: 1 file(s), 700 bytes, in "), "{summary}");
        assert_eq!(std::fs::metadata(root.join("a/b.html")).unwrap().len(), 700);
    }
}
