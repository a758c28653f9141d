//! Atomic replacement of files: a file is there in full or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Replaces a file atomically: a reader sees the old content or the new, never a part.
///
/// # Errors
/// Returns a sentence with the I/O error.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), String> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = File::create(&part)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_data()))
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&part);
        format!("{}: {error}", path.display())
    })
}
