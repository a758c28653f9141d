//! Files that are there whole or not at all. Knows nothing of what is in them.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Writes a file so that a reader finds the old one or the new one, and no half.
///
/// # Errors
/// A sentence with what the disk says.
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
