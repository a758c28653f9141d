//! Writes the files of named workloads. The only part of the workloads that touches the disk.

use std::fs;
use std::io;
use std::path::Path;

use super::named::NamedWorkload;
use super::small::WEIR_HEAD_BYTES;
use super::specweb99::FileSet;

/// The line that file contents repeat: printable, the same in every run.
const LINE: &[u8; 64] = b"The quick brown fox jumps over the lazy dog, 0123456789 times..\n";

/// Parameters that a workload's name leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSetOptions {
    /// Size of the SPECweb99 file set, MiB.
    pub mb: u64,
    /// Length of the server's reply head, bytes: `one-packet` fills the rest of the packet.
    pub head_bytes: u64,
}

impl Default for FileSetOptions {
    fn default() -> Self {
        Self { mb: 100, head_bytes: WEIR_HEAD_BYTES }
    }
}

/// Totals of the files written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesWritten {
    /// Number of files.
    pub files: u64,
    /// Total size, bytes.
    pub bytes: u64,
}

/// Writes a workload's files below `dir`, which is created if necessary. Regular files of the same
/// names are overwritten; anything else of these names is left alone and is an error.
///
/// # Errors
/// A sentence: an I/O error, with the path; or options that result in an empty file or an invalid
/// set.
pub fn write(
    dir: &Path,
    workload: NamedWorkload,
    options: &FileSetOptions,
) -> Result<FilesWritten, String> {
    write_all(dir, list(workload, options)?)
}

/// Writes files of these paths below `dir` and lengths in bytes, likewise.
///
/// # Errors
/// A sentence: an I/O error, with the path.
pub fn write_all(dir: &Path, files: Vec<(String, u64)>) -> Result<FilesWritten, String> {
    let mut summary = FilesWritten::default();
    let mut text = Vec::new();
    for (path, bytes) in files {
        let path = dir.join(path);
        write_file(&path, fitting(&mut text, bytes))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        summary.files += 1;
        summary.bytes += bytes;
    }
    Ok(summary)
}

/// Lists paths below the root, and sizes in bytes.
fn list(workload: NamedWorkload, options: &FileSetOptions) -> Result<Vec<(String, u64)>, String> {
    match workload {
        NamedWorkload::Small(small) => match small.size.bytes(options.head_bytes) {
            0 => Err(format!(
                "a reply's head of {} bytes leaves no room for a body in its packet",
                options.head_bytes
            )),
            bytes => Ok(vec![(small.file(), bytes)]),
        },
        NamedWorkload::Specweb99 => Ok(FileSet::new(options.mb)?.files().collect()),
    }
}

/// Returns the first `bytes` of the text of which all contents are a prefix; it grows as needed.
fn fitting(text: &mut Vec<u8>, bytes: u64) -> &[u8] {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    while text.len() < length {
        text.extend_from_slice(LINE);
    }
    text.get(..length).unwrap_or_default()
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| match error.kind() {
            // What is said when a file is in its way.
            io::ErrorKind::AlreadyExists => {
                io::Error::other(format!("{} is not a directory", parent.display()))
            }
            _ => error,
        })?;
    }
    // Through a symbolic link, a file elsewhere would be overwritten.
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("it is there, and no regular file"));
    }
    fs::write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::specweb99::DIRECTORY_BYTES;

    #[test]
    fn every_workload_s_files_are_as_large_as_they_should_be() {
        let dir = tempfile::tempdir().unwrap();
        let options = FileSetOptions { mb: 10, ..FileSetOptions::default() };
        for workload in NamedWorkload::all() {
            // Twice: the second time over the first.
            let first = write(dir.path(), workload, &options).unwrap();
            assert_eq!(write(dir.path(), workload, &options).unwrap(), first);
        }
        let read = |path: &str| fs::read(dir.path().join(path)).unwrap();
        assert_eq!(read("one-byte.txt"), b"T");
        assert_eq!(read("one-packet.txt").len(), 1198);
        assert_eq!(read("file_set/dir00001/class3_8").len(), 921_600);
        assert!(!dir.path().join("file_set/dir00002").exists());
    }

    #[test]
    fn the_summary_counts_files_and_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let options = FileSetOptions { mb: 5, head_bytes: 300 };
        let summary = write(dir.path(), NamedWorkload::Specweb99, &options).unwrap();
        assert_eq!(summary, FilesWritten { files: 36, bytes: DIRECTORY_BYTES });
        let summary = write(dir.path(), "one-packet".parse().unwrap(), &options).unwrap();
        assert_eq!(summary, FilesWritten { files: 1, bytes: 1148 });
    }

    #[test]
    fn anything_but_a_regular_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (link, aim) = (dir.path().join("2k.txt"), dir.path().join("aim"));
        fs::write(&aim, "mine").unwrap();
        std::os::unix::fs::symlink(&aim, &link).unwrap();
        let error =
            write(dir.path(), "2k".parse().unwrap(), &FileSetOptions::default()).unwrap_err();
        assert!(error.contains("2k.txt: it is there"), "{error}");
        assert_eq!(fs::read(&aim).unwrap(), b"mine");
        let error = write(&aim, "2k".parse().unwrap(), &FileSetOptions::default()).unwrap_err();
        assert!(error.ends_with("aim is not a directory"), "{error}");
    }

    #[test]
    fn a_head_that_fills_the_packet_is_refused() {
        let options = FileSetOptions { head_bytes: 1448, ..FileSetOptions::default() };
        let dir = tempfile::tempdir().unwrap();
        let error = write(dir.path(), "one-packet".parse().unwrap(), &options).unwrap_err();
        assert!(error.contains("1448 bytes leaves no room"), "{error}");
    }
}
